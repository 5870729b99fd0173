"""How much memory learning takes, and what would fit."""

from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dist_bpe.arrays import to_numpy
from dist_bpe.counting.table import CountTable, word_starts
from dist_bpe.errors import UsageError
from dist_bpe.learning.options import LearnOptions
from dist_bpe.options import both
from dist_bpe.progress import human_bytes


def learn_bytes(words: int, size: int) -> int:
    """The bytes that learning takes at its peak from unique words of `size` bytes in all, estimated on the safe side.

    The words grow in buffers that double; beside them lie the symbols with the places of each pair, see
    `memory_estimate` in rust/src/learn.rs.
    """
    symbols = size + words
    place = 8 if symbols > (1 << 32) - words else 4
    return 2 * (size + 16 * words) + symbols * (5 + 3 * place) // 2 + 8 * words + (16 << 20)


def kept_bytes(words: int, rows: int, size: int) -> int:
    """The bytes of a table kept in memory for many trainings: unique words of `size` bytes in all, and their rows.

    See rust/src/learn/table.rs. Its arrays double while it is read; that is over before learning begins, which takes
    more. With tables of 4 and 11 million rows, this and `learn_bytes` came to 1.6 to 2.1 times what balancing or
    parity-aware learning took at its peak (2026-11-30).
    """
    return size + 16 * words + 12 * rows


def check_memory(
    table: CountTable, min_word_count: int, memory: int, *, kept: bool = False, apart: bool = False
) -> None:
    """Refuse a table from which learning would take more than `memory` bytes.

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
    size = table.word_bytes_bound()  # of each row's word, as if none stood in two sources
    beside = kept_bytes(rows, rows, size) if kept else 0
    if beside + learn_bytes(rows, size) <= memory:
        return
    counts, words, sizes, row_numbers, row_sizes = count_histogram(table.batches())
    if kept:
        beside = kept_bytes(int(words.sum()), rows, int(sizes.sum()))
    # From the back: what is left with each count as the minimum.
    columns = (row_numbers, row_sizes) if apart else (words, sizes)
    left = [np.cumsum(column[::-1])[::-1] for column in columns]
    first = int(np.searchsorted(counts, min_word_count))
    needs = [beside + learn_bytes(int(w), int(s)) for w, s in zip(*(each[first:] for each in left), strict=True)]
    if not needs or needs[0] <= memory:
        return
    fits = next((i for i, need in enumerate(needs, first) if need <= memory), None)
    text = [int(c) * int(s) for c, s in zip(counts, sizes, strict=True)]
    advice = f"no {both(LearnOptions, 'min_word_count')} would fit"
    if fits is not None:
        share = sum(text[first:fits]) / sum(text)
        advice = (
            f"{both(LearnOptions, 'min_word_count')} = {counts[fits]} would fit, and leave out {share:.2%} of the text"
        )
    unique = int(words[first:].sum())
    raise UsageError(
        f"learning from {unique:,} unique words takes about {human_bytes(needs[0])} of memory, and there are "
        f"{human_bytes(memory)}: {advice}. A machine with more memory would do, or set "
        f"{both(LearnOptions, 'driver_memory')} if you know better."
    )


def count_histogram(batches: Iterable[pa.RecordBatch]) -> tuple[Any, ...]:
    """How many unique words have each raw count over all sources, in five columns.

    The counts, rising; the words of each; the bytes of those words; their rows, one for each source that has the word;
    and the bytes of those rows' words. A count of 2^63 or more stands as 2^64 - 1.
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
