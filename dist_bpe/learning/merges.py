"""Merges from a count table: stream it, weigh it, learn in the native core, and replay to see what each source gave.

The teaching modes (characters, end-of-word markers, other ties) are in `textbook`, the slow twin.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral

import numpy as np
import pyarrow as pa

from dist_bpe import _core
from dist_bpe.arrays import exact_sum, of_bytes, of_numpy, to_numpy
from dist_bpe.counting.spills import SPILL_SCHEMA
from dist_bpe.errors import UsageError
from dist_bpe.learning.mixture import Weights
from dist_bpe.learning.options import LearnOptions

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

    def bytes_per_token(self, merges: int) -> dict[str, float]:
        """Bytes of each source's words over the tokens that the first `merges` merges leave of them.

        Both totals are of the words in the table: neither special tokens nor words that were dropped are in them.
        Sources without words are left out.
        """
        ratios = {}
        for name, left_over in self.tokens.items():
            # A merge takes one token away at each place it replaces. With what all took put back there are as many as
            # bytes; with what the later ones took, as many as the first ones leave.
            replaced = to_numpy(self.replaced[name])
            whole = exact_sum(to_numpy(left_over))
            tokens = whole + exact_sum(replaced[merges:])
            if tokens:
                ratios[name] = (whole + exact_sum(replaced)) / tokens
        return ratios


def learn_merges(
    batches: Callable[[], Iterable[pa.RecordBatch]],
    sources: Sequence[str],
    merges: int,
    options: LearnOptions,
    weights: Weights | None = None,
    *,
    on_words: Callable[[int, int], None] | None = None,
    on_merge: Callable[[int], None] | None = None,
) -> Learned:
    """Learn up to `merges` merges; fewer when no pair reaches `min_pair_count`.

    Args:
        batches: gives the table's rows (word, source number, count), each time it is called; the rows of one word are
            adjacent.
        sources: the names behind the source numbers.
        merges: how many merges to learn.
        options: the thresholds; sizes and mixture are ignored.
        weights: how much each source counts, in the order of `sources`; without them all count alike. A word's
            weighted count is the sum over its sources.
        on_words: called once before learning with (unique words, bytes of memory the learner will take).
        on_merge: called a few times a second with the number of merges done.

    Raises:
        CountOverflowError: a weighted pair count passes 2^64 - 1.
    """
    numbers = list(weights.integers.values()) if weights else [1] * len(sources)
    if weights and weights.jitter:
        words = _core.Table(batches(), len(sources)).words(numbers, options.min_word_count, True)
    else:
        words = _core.Words(batches(), numbers, options.min_word_count)
    if on_words:
        on_words(len(words), words.learn_bytes)
    least = weights.least(options.min_pair_count) if weights else options.min_pair_count
    learned, tokenized = _core.learn_tokenized(words, merges, least, options.max_token_bytes, on_merge)
    replaced, tokens = tokenized.replay(batches(), len(sources))
    return Learned(
        learned,
        dict(zip(sources, replaced, strict=True)),
        dict(zip(sources, tokens, strict=True)),
        len(words),
    )


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
        if not isinstance(count, Integral) or isinstance(count, bool) or not 0 <= count < 2**64:
            raise UsageError(f"the count of {word!r} must be a whole number from 0 to 2^64 - 1, not {count!r}.")
        if count:
            try:
                keys.append(word.encode() if isinstance(word, str) else word)
            except UnicodeEncodeError:
                raise UsageError(
                    f"the word {word!r} has a lone surrogate, which UTF-8 cannot write: give its bytes."
                ) from None
            counts.append(int(count))
    # One word may stand there twice, as str and as bytes: rows of one word must be adjacent.
    order = sorted(range(len(keys)), key=keys.__getitem__)

    def batches() -> Iterable[pa.RecordBatch]:
        for first in range(0, len(order), BATCH_WORDS):
            part = order[first : first + BATCH_WORDS]
            yield pa.record_batch(
                [
                    of_bytes([keys[i] for i in part]),
                    of_numpy(np.zeros(len(part), np.uint32)),
                    of_numpy(np.array([counts[i] for i in part], np.uint64)),
                ],
                schema=SPILL_SCHEMA,
            )

    return batches
