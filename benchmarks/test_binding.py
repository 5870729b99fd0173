"""What one call through the Python binding costs, by pytest-benchmark: `make bench-micro`."""

import random
from typing import Any

import pyarrow as pa

from dist_bpe import _core

RNG = random.Random(1)
WORDS = ["".join(RNG.choices("etaoinshrdlu é", k=RNG.randint(2, 9))) for _ in range(20_000)]
TEXTS = pa.array([" ".join(RNG.choices(WORDS, k=400)) for _ in range(500)])


def table() -> list[Any]:
    counter = _core.Counter(1, "gpt2", ["<|endoftext|>"])
    counter.count(0, TEXTS)
    return [batch for _, batch in counter.drain(16)]


def test_count(benchmark: Any) -> None:
    assert benchmark(table)


def test_merge_runs(benchmark: Any) -> None:
    runs = [[batch for _, batch in _one().drain(1)] for _ in range(8)]
    assert benchmark(lambda: sum(batch.num_rows for batch in _core.Merger(runs, 1, 0)))


def _one() -> _core.Counter:
    counter = _core.Counter(1, "gpt2", [])
    counter.count(0, TEXTS)
    return counter


def test_read_words(benchmark: Any) -> None:
    batches = table()
    assert benchmark(lambda: len(_core.Words(batches, [1], 1)))


def test_learn(benchmark: Any) -> None:
    words = _core.Words(table(), [1], 1)
    assert benchmark(lambda: _core.learn_merges(words, 4000).num_rows) == 4000


def test_encode_batch(benchmark: Any) -> None:
    merges = _core.learn_merges(_core.Words(table(), [1], 1), 4000)
    encoder = _core.Encoder(merges.column(0), merges.column(1), "gpt2", [], [], 0)
    assert len(benchmark(lambda: encoder.encode_batch(TEXTS))[0])
