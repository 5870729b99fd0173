"""Merges from a count table: stream it, weigh it, learn in the native core, and replay for what each source gave.

Teaching modes (characters, end-of-word markers, other ties) are served by the slow reference twin in `reference`.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dist_bpe import _core
from dist_bpe.counts import RUN_SCHEMA
from dist_bpe.errors import CountOverflowError, UsageError

BATCH_WORDS = 65_536


@dataclass(frozen=True)
class Learned:
    """What training found; all arrays have one entry a merge, in order of rank.

    Attributes:
        merges: record batch of `left`, `right` (uint32 ids) and `count` (uint64 weighted count when it was chosen).
        replaced: for each source the occurrences that each merge replaced, unweighted (uint64).
        tokens: for each source the occurrences left of each id once all merges are done, unweighted (uint64).
        words: unique words that took part.
    """

    merges: pa.RecordBatch
    replaced: dict[str, pa.Array]
    tokens: dict[str, pa.Array]
    words: int

    def __len__(self) -> int:
        return int(self.merges.num_rows)


def learn_merges(
    batches: Callable[[], Iterable[pa.RecordBatch]],
    sources: Sequence[str],
    merges: int,
    *,
    weights: Sequence[int] | None = None,
    jitter_steps: int = 0,
    min_pair_count: int = 2,
    min_word_count: int = 1,
    max_token_bytes: int | None = None,
    threads: int = 1,
    on_words: Callable[[int, int], None] | None = None,
    on_merge: Callable[[int], None] | None = None,
) -> Learned:
    """Learn up to `merges` merges; fewer when no pair reaches `min_pair_count`.

    Args:
        batches: gives the table's rows (word, source number, count), each time it is called; the rows of one word are
            adjacent.
        sources: the names behind the source numbers.
        merges: how many merges to learn.
        weights: an integer for each source; all ones by default. A word's weighted count is the sum over sources.
        jitter_steps: each word's weighted count is multiplied by an integer within so many of 1,024, see `WordTable`.
        min_pair_count: least weighted count of a pair that is merged.
        min_word_count: words with a smaller raw count, over all sources, take no part.
        max_token_bytes: tokens never grow longer than this many bytes.
        threads: threads the learner may use; the result does not depend on it.
        on_words: called once before learning with (unique words, bytes of memory the learner will take).
        on_merge: called a few times a second with the number of merges done.

    Raises:
        CountOverflowError: a weighted pair count passes 2^64 - 1.
    """
    weights = list(weights or [1] * len(sources))
    if jitter_steps:
        words = WordTable(batches(), min_word_count, jitter_steps).weighted(weights)
    else:
        words = _core.Words(batches(), weights, min_word_count)
    if on_words:
        on_words(len(words), words.learn_bytes)
    learned = _core.learn_merges(words, merges, min_pair_count, max_token_bytes, threads, on_merge)
    number = len(words)
    del words  # the replay streams the table again, so the learner's copy need not stay beside it
    replaced, tokens = _core.replay(learned.column(0), learned.column(1), batches(), len(sources))
    return Learned(
        learned,
        dict(zip(sources, replaced, strict=True)),
        dict(zip(sources, tokens, strict=True)),
        number,
    )


class WordTable:
    """A count table in memory, to be weighed many times: the words are read once, and only their counts change.

    12 bytes a row and the words themselves. `weighted` takes 0.07 s for 400,000 words, most of it for the core's copy
    of them, which is why the core has no way of its own to change the counts of one.

    Args:
        batches: rows (word, source number, count), the rows of one word adjacent.
        min_word_count: words with a smaller raw count, over all sources, are left out.
        jitter_steps: a word's weighted count is multiplied by 1,024 - jitter_steps + h, where h is 2 * jitter_steps + 1
            times the high half of its XXH3-64 / 2^32, rounded down; with 0 by nothing.
    """

    def __init__(self, batches: Iterable[pa.RecordBatch], min_word_count: int = 1, jitter_steps: int = 0) -> None:
        chunks: list[pa.Array] = []
        firsts: list[npt.NDArray[np.bool_]] = []
        sources: list[npt.NDArray[np.uint32]] = []
        counts: list[npt.NDArray[np.uint64]] = []
        last = None
        for batch in batches:
            if not len(batch):
                continue
            words = batch.column(0)
            first = np.ones(len(words), bool)
            first[1:] = pc.not_equal(words[1:], words[:-1]).to_numpy(zero_copy_only=False)
            first[0] = words[0].as_py() != last
            last = words[-1].as_py()
            chunks.append(words.filter(pa.array(first)))
            firsts.append(first)
            sources.append(batch.column(1).to_numpy())
            counts.append(batch.column(2).to_numpy())
        self._sources = np.concatenate(sources) if sources else np.zeros(0, np.uint32)
        self._counts = np.concatenate(counts) if counts else np.zeros(0, np.uint64)
        first = np.concatenate(firsts) if firsts else np.zeros(0, bool)
        self._starts = np.flatnonzero(first)
        if min_word_count > 1 and len(self._starts):
            keep = self._sums(self._counts) >= min_word_count
            borders = np.cumsum([0, *map(len, chunks)])
            chunks = [
                chunk.filter(pa.array(keep[at : at + len(chunk)])) for chunk, at in zip(chunks, borders, strict=False)
            ]
            rows = keep[np.cumsum(first) - 1]
            self._sources, self._counts = self._sources[rows], self._counts[rows]
            self._starts = np.flatnonzero(first[rows])
        self._words = [chunk for chunk in chunks if len(chunk)]
        self._factors = None
        if jitter_steps:
            places = [_core.partition_of(word.as_py(), 2 * jitter_steps + 1) for chunk in self._words for word in chunk]
            self._factors = np.array(places, np.uint64) + np.uint64(1024 - jitter_steps)

    def __len__(self) -> int:
        return len(self._starts)

    def _sums(self, counts: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
        """The sum of each word's rows; they fit, since the table's counts of a word were added up in 64 bits before."""
        return np.add.reduceat(counts, self._starts)

    def weighted(self, weights: Sequence[int]) -> _core.Words:
        """The words with Σ weights[source] * count, times their jitter.

        Raises:
            CountOverflowError: a word's weighted count passes 2^63; half of what would fit, since it is estimated.
        """
        factors = np.array(weights, np.uint64)[self._sources]
        if len(self):
            highest = float(np.add.reduceat(factors.astype(float) * self._counts, self._starts).max())
            if highest * (1024 + 1024 if self._factors is not None else 1) >= 2.0**63:
                raise CountOverflowError(
                    "the weighted count of a word passes 2^63: divide the weights of all sources by one number, such "
                    "as 1000"
                )
            counts = self._sums(factors * self._counts)
            if self._factors is not None:
                counts *= self._factors
        batches = []
        done = 0
        for words in self._words:
            part = counts[done : done + len(words)]
            batches.append(
                pa.record_batch([words, pa.array(np.zeros(len(words), np.uint32)), pa.array(part)], schema=RUN_SCHEMA)
            )
            done += len(words)
        return _core.Words(batches, [1], 1)


def batches_of_mapping(words: Mapping[str, int] | Mapping[bytes, int]) -> Callable[[], Iterable[pa.RecordBatch]]:
    """Rows of a plain {word: count} mapping, as one source.

    Raises:
        UsageError: a count that is no whole number from 0 to 2^64 - 1, or a word that is neither str nor bytes.
    """
    keys: list[bytes] = []
    counts: list[int] = []
    for word, count in words.items():
        if not isinstance(word, (str, bytes)):
            raise UsageError(f"the word {word!r} is neither str nor bytes.")
        if not isinstance(count, int) or isinstance(count, bool) or not 0 <= count < 2**64:
            raise UsageError(f"the count of {word!r} must be a whole number from 0 to 2^64 - 1, not {count!r}.")
        if count:
            keys.append(word.encode() if isinstance(word, str) else word)
            counts.append(count)
    # One word may stand there twice, as str and as bytes: rows of one word must be adjacent.
    order = sorted(range(len(keys)), key=keys.__getitem__)

    def batches() -> Iterable[pa.RecordBatch]:
        for first in range(0, len(order), BATCH_WORDS):
            part = order[first : first + BATCH_WORDS]
            yield pa.record_batch(
                [
                    pa.array([keys[i] for i in part], pa.binary()),
                    pa.array([0] * len(part), pa.uint32()),
                    pa.array([counts[i] for i in part], pa.uint64()),
                ],
                schema=RUN_SCHEMA,
            )

    return batches
