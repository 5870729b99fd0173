"""Merges from a count table: stream it, weigh it, learn in the native core, and replay for what each source gave.

Teaching modes (characters, end-of-word markers, other ties) are served by the slow reference twin in `reference`.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dist_bpe import _core, budget
from dist_bpe.counts import RUN_SCHEMA, CountTable, word_starts
from dist_bpe.documents import to_numpy
from dist_bpe.errors import UsageError
from dist_bpe.progress import human_bytes
from dist_bpe.storage import opened

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
    jitter: bool = False,
    min_pair_count: int = 2,
    min_word_count: int = 1,
    max_token_bytes: int | None = None,
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
        jitter: each word's weighted count is multiplied by 900 to 1,100 by its hash, see `_core.Table.words`.
        min_pair_count: least weighted count of a pair that is merged.
        min_word_count: words with a smaller raw count, over all sources, take no part.
        max_token_bytes: tokens never grow longer than this many bytes.
        on_words: called once before learning with (unique words, bytes of memory the learner will take).
        on_merge: called a few times a second with the number of merges done.

    Raises:
        CountOverflowError: a weighted pair count passes 2^64 - 1.
    """
    weights = list(weights or [1] * len(sources))
    if jitter:
        words = _core.Table(batches(), len(sources)).words(weights, min_word_count, True)
    else:
        words = _core.Words(batches(), weights, min_word_count)
    if on_words:
        on_words(len(words), words.learn_bytes)
    learned = _core.learn_merges(words, merges, min_pair_count, max_token_bytes, on_merge)
    number = len(words)
    del words  # the replay streams the table again, so the learner's copy need not stay beside it
    replaced, tokens = _core.replay(learned.column(0), learned.column(1), batches(), len(sources))
    return Learned(
        learned,
        dict(zip(sources, replaced, strict=True)),
        dict(zip(sources, tokens, strict=True)),
        number,
    )


def check_memory(
    table: CountTable, min_word_count: int, memory: int, *, kept: bool = False, apart: bool = False
) -> None:
    """Refuse a table that learning from would take more than `memory` bytes.

    Bounds from the manifest and the footers settle most cases; where they do not, the table is read through once.

    Args:
        table: what is learned from.
        min_word_count: rarer words take no part.
        memory: bytes.
        kept: the whole table is kept in memory beside what is learned from, for many trainings.
        apart: the words of each source are learned from by themselves, as parity does.

    Raises:
        UsageError: names the `min_word_count` that would fit, and the share of text that it drops.
    """
    rows = sum(source.unique_words for source in table.sources.values())
    size = 0  # of each row's word, as if none stood in two sources
    for part in table.parts:
        metadata = pq.read_metadata(opened(part))
        size += sum(metadata.row_group(i).column(0).total_uncompressed_size for i in range(metadata.num_row_groups))
    beside = budget.kept_bytes(rows, rows, size) if kept else 0
    if beside + budget.learn_bytes(rows, size) <= memory:
        return
    counts, words, sizes, row_numbers, row_sizes = count_histogram(table.batches())
    if kept:
        beside = budget.kept_bytes(int(words.sum()), rows, int(sizes.sum()))
    # From the back: what is left with each count as the minimum.
    columns = (row_numbers, row_sizes) if apart else (words, sizes)
    left = [np.cumsum(column[::-1])[::-1] for column in columns]
    first = int(np.searchsorted(counts, min_word_count))
    needs = [beside + budget.learn_bytes(int(w), int(s)) for w, s in zip(*(each[first:] for each in left), strict=True)]
    if not needs or needs[0] <= memory:
        return
    fits = next((i for i, need in enumerate(needs, first) if need <= memory), None)
    text = [int(c) * int(s) for c, s in zip(counts, sizes, strict=True)]
    advice = "no min_word_count would fit"
    if fits is not None:
        share = sum(text[first:fits]) / sum(text)
        advice = f"min_word_count = {counts[fits]} would fit, and leave out {share:.2%} of the text"
    unique = int(words[first:].sum())
    raise UsageError(
        f"learning from {unique:,} unique words takes about {human_bytes(needs[0])} of memory, and there are "
        f"{human_bytes(memory)}: {advice}. Or take a machine with more, or set driver_memory if you know better."
    )


def count_histogram(batches: Iterable[pa.RecordBatch]) -> tuple[Any, ...]:
    """Of a table's unique words, by raw count over all sources: what there is of each count, in five columns.

    The counts, rising; words of each; bytes of those; their rows, which are one for each source that has the word; and
    bytes of those rows' words. A count of 2^63 and more stands as 2^64 - 1.
    """
    found: dict[int, list[int]] = {}

    def add(totals: Any, lengths: Any, rows: Any) -> None:
        values, place = np.unique(totals, return_inverse=True)
        columns = [
            np.bincount(place, weights=column) for column in (np.ones(len(totals)), lengths, rows, lengths * rows)
        ]
        for value, *numbers in zip(values.tolist(), *columns, strict=True):
            entry = found.setdefault(value, [0, 0, 0, 0])
            for i, number in enumerate(numbers):
                entry[i] += int(number)

    open_word, open_count, open_rows = None, 0, 0
    for batch in batches:
        if not batch.num_rows:
            continue
        word, count = batch.column(0), to_numpy(batch.column(2))
        starts = word_starts(word)
        totals = np.add.reduceat(count.astype(np.float64), starts)
        totals = np.where(totals < 2.0**63, np.add.reduceat(count, starts), np.uint64(2**64 - 1))
        lengths = to_numpy(pc.binary_length(word))[starts].astype(np.int64)
        rows = np.diff(np.append(starts, batch.num_rows))
        first = word[0].as_py()
        if first == open_word:
            totals[0] = min(open_count + int(totals[0]), 2**64 - 1)
            rows[0] += open_rows
        elif open_word is not None:
            add(np.array([open_count], np.uint64), np.array([len(open_word)]), np.array([open_rows]))
        open_word, open_count, open_rows = word[-1].as_py(), int(totals[-1]), int(rows[-1])
        add(totals[:-1], lengths[:-1], rows[:-1])
    if open_word is not None:
        add(np.array([open_count], np.uint64), np.array([len(open_word)]), np.array([open_rows]))
    counts = np.array(sorted(found), np.uint64)
    numbers = np.array([found[count] for count in sorted(found)], np.int64).reshape(-1, 4)
    return counts, *numbers.T


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
