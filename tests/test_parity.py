"""Many trainings from one table in memory, and merges chosen for the language that is worst off."""

from collections.abc import Mapping, Sequence

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from dist_bpe import _core
from dist_bpe.counts import RUN_SCHEMA

Counts = Mapping[bytes, Sequence[int]]
"""Word -> its count in each language."""


def rows(words: Counts) -> pa.RecordBatch:
    """The rows of a count table; counts of 0 have none."""
    listed = [(word, source, n) for word, counts in words.items() for source, n in enumerate(counts) if n]
    return pa.record_batch(
        [pa.array([row[i] for row in listed], field.type) for i, field in enumerate(RUN_SCHEMA)], schema=RUN_SCHEMA
    )


def merges_of(words: _core.Words, merges: int) -> list[list[int]]:
    return [column.to_pylist() for column in _core.learn_merges(words, merges, 1).columns]


LETTERS = st.text("ab", min_size=1, max_size=9) | st.text("abcé", min_size=1, max_size=7)
TWO_LANGUAGES = st.dictionaries(LETTERS.map(str.encode), st.tuples(*[st.integers(0, 30)] * 2).filter(any), max_size=10)


@settings(max_examples=300)
@given(TWO_LANGUAGES, st.tuples(*[st.integers(0, 2**30)] * 2), st.integers(0, 30))
def test_a_table_gives_what_the_stream_gives(words: Counts, weights: tuple[int, int], least: int) -> None:
    table = _core.Table([rows(words)], 2)
    assert len(table) == len(words)
    streamed = merges_of(_core.Words([rows(words)], weights, least), 20)
    assert merges_of(table.words(weights, least), 20) == streamed
    left, right = (pa.array(column, pa.uint32()) for column in streamed[:2])
    assert table.replay(left, right) == _core.replay(left, right, [rows(words)], 2)


def test_jitter_is_a_tenth_by_the_hash_of_the_word() -> None:
    # Words of two bytes, so that each is a pair of its own.
    words = {bytes([i // 200, 50 + i % 200]): (1000, 0) for i in range(2000)}
    left, right, counts = merges_of(_core.Table([rows(words)], 2).words([7, 1], 1, jitter=True), 2000)
    byte_of = {number: byte for byte, number in enumerate(_core.byte_ids())}
    weighted = {bytes([byte_of[a], byte_of[b]]): n for a, b, n in zip(left, right, counts, strict=True)}
    assert weighted.keys() == words.keys()
    assert all(900 * 7000 <= count <= 1100 * 7000 and count % 7000 == 0 for count in weighted.values())
    assert len(set(weighted.values())) == 201
    # A stored number: a mixture found with jitter must be found again with any version.
    assert weighted[b"\x07A"] == 6755000
