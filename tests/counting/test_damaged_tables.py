"""Damaged files: whatever happens to their bytes, they give what they gave before, or an error that names the file.

A few hundred cases run in `make test`; `pytest -m fuzz tests/counting/test_damaged_tables.py` goes on with new ones for
FUZZ_SECONDS, ten minutes by default. A failure names its seed.
"""

import json
import os
import random
import time
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers import quiet

import dist_bpe
from dist_bpe import errors
from dist_bpe.corpus.heldout import HeldOut, read_parallel, write_parallel
from dist_bpe.counting.table import _checksum
from dist_bpe.learning.mixture import Mixture

CASES = 150


def mangled(content: bytes, rng: random.Random) -> bytes:
    """A file after one to three accidents."""
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        at = rng.randrange(len(content) + 1)
        size = rng.choice((1, 2, 8, 100))
        piece = content[at : at + size]
        match rng.randrange(8):
            case 0 | 1 if piece:  # a flipped bit
                content = content[:at] + bytes([content[at] ^ 1 << rng.randrange(8)]) + content[at + 1 :]
            case 2:  # lost
                content = content[:at] + content[at + size :]
            case 3:  # twice
                content = content[:at] + piece + content[at:]
            case 4:  # overwritten
                content = content[:at] + rng.randbytes(len(piece)) + content[at + size :]
            case 5:  # never written
                content = content[:at] + bytes(len(piece)) + content[at + size :]
            case 6:  # cut off
                content = content[:at]
            case _:  # something else came between
                content = content[:at] + rng.choice((b"0", b'"', b"[", b"}", b"-", b"\n", b"\xff")) + content[at:]
    return content


def misshapen(value: Any, rng: random.Random) -> Any:
    """JSON values with one of them another, missing or moved."""
    if isinstance(value, dict) and value and rng.random() < 0.9:
        name = rng.choice(list(value))
        if rng.random() < 0.15:
            return {key: one for key, one in value.items() if key != name}
        return value | {name: misshapen(value[name], rng)}
    if isinstance(value, list) and value and rng.random() < 0.9:
        at = rng.randrange(len(value))
        return [*value[:at], misshapen(value[at], rng), *value[at + rng.choice((1, 1, 1, 0, 2)) :]]
    return rng.choice(
        (None, True, -1, 0, 1, 2**63, 2**64, 1.5, "", "x", "NFC", "part-00000.parquet", [], {}, [{}], value)
    )


def run_cases(case: Callable[[random.Random], None], seeds: "range | None") -> None:
    if seeds is None:
        end, first = time.monotonic() + float(os.environ.get("FUZZ_SECONDS", "600")) / len(TARGETS), time.time_ns()
        seeds = range(first, first + 10**9)
    else:
        end = float("inf")
    for seed in seeds:
        try:
            case(random.Random(seed))
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise
        if time.monotonic() > end:
            break


def same_or_named(before: object, look: Callable[[], object], path: Path) -> None:
    """What is read is what it was, or an error of ours names the file."""
    try:
        found = look()
    except errors.DistBpeError as error:
        assert str(path) in str(error), error
        assert "\n" not in str(error), error
    else:
        assert found == before


def of_table(folder: Path) -> object:
    """All that learning takes from a table."""
    table = dist_bpe.CountTable.open(folder)
    rows = [tuple(row.values()) for batch in table.batches() for row in batch.to_pylist()]
    return table.pattern, table.special_tokens, table.normalization, table.min_word_count, table.sources, rows


def small_table(folder: Path) -> dist_bpe.CountTable:
    rng = random.Random(1)
    sources = [
        dist_bpe.Source(name, documents=[" ".join(rng.choices("the of é 日本 don't x42 <|e|>".split(), k=9))] * 5)
        for name in ("x", "y")
    ]
    return quiet(*sources, output=folder / "run", partitions=2, special_tokens=["<|e|>"])


def manifest(folder: Path) -> Callable[[random.Random], None]:
    table = small_table(folder)
    path = table.folder / "manifest.json"
    content, before = path.read_bytes(), of_table(table.folder)

    def case(rng: random.Random) -> None:
        damaged = mangled(content, rng)
        # Tables of release 0.1 have no checksum: a fault that hides its name, and one that it would tell, are two.
        if b'"checksum"' not in damaged:
            return
        path.write_bytes(damaged)
        same_or_named(before, lambda: of_table(table.folder), path)

    return case


def shape(folder: Path) -> Callable[[random.Random], None]:
    """Values of other types whose checksum fits: they may be another table's, so that any of our errors will do."""
    table = small_table(folder)
    path = table.folder / "manifest.json"

    def case(rng: random.Random) -> None:
        values = misshapen(table.written, rng)
        if isinstance(values, dict) and rng.random() < 0.8:
            values |= {"checksum": _checksum(values)}
        path.write_text(json.dumps(values))
        try:
            found = dist_bpe.CountTable.open(table.folder)
            dist_bpe.learn(found, vocab_size=280, progress="silent")
        except errors.DistBpeError as error:
            assert str(error)

    return case


def part(folder: Path) -> Callable[[random.Random], None]:
    table = small_table(folder)
    before = of_table(table.folder)
    contents = {path: path.read_bytes() for path in table.parts}

    def case(rng: random.Random) -> None:
        path = rng.choice(list(table.parts))
        path.write_bytes(mangled(contents[path], rng))
        same_or_named(before, lambda: of_table(table.folder), path)
        path.write_bytes(contents[path])

    return case


def mixture(folder: Path) -> Callable[[random.Random], None]:  # noqa: ARG001
    """A text in which another digit is another mixture: any sentence will do, and what is read is written back."""
    texts = [
        Mixture(alpha="3/10", unit="documents", caps={"x": 5, "*": 7}, jitter=True).as_toml(),
        Mixture(shares={"x": "1/3", "𒀀 \x7f\\": 0.5}, multipliers={"*": 2, "y": "1e-3"}, scale=77).as_toml(),
        "[mixture]\nunimax = 4e2\nself = 3\n",
    ]
    sizes = {"x": 1000, "y": 20, "𒀀 \x7f\\": 3}

    def case(rng: random.Random) -> None:
        content = mangled(rng.choice(texts).encode(), rng)
        try:
            values = tomllib.loads(content.decode())["mixture"]
            values = dict(values)
        except (ValueError, KeyError, TypeError, RecursionError):
            return
        try:
            found = Mixture(**values)
            found.weights(sizes).rows()
        except (errors.UsageError, errors.CountOverflowError) as error:
            assert "\n" not in str(error)
            return
        assert Mixture(**tomllib.loads(found.as_toml())["mixture"]) == found

    return case


def parallel(folder: Path) -> Callable[[random.Random], None]:
    path = folder / "p.parquet"
    texts = {lang: [f"{lang} {i} 日本 {'x' * (i % 9)}" for i in range(40)] for lang in ("de", "en", "ja")}
    write_parallel(HeldOut("p", texts, tuple(f"d{i:02}" for i in range(40))), path)
    content, before = path.read_bytes(), read_parallel(path)

    def case(rng: random.Random) -> None:
        path.write_bytes(mangled(content, rng))
        same_or_named(before, lambda: read_parallel(path), path)

    return case


TARGETS = [manifest, shape, part, mixture, parallel]


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.__name__)
def test_damaged_files(target: Callable[[Path], Callable[[random.Random], None]], tmp_path: Path) -> None:
    run_cases(target(tmp_path), range(CASES))


@pytest.mark.fuzz
@pytest.mark.timeout(0)
@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.__name__)
def test_damaged_files_for_long(target: Callable[[Path], Callable[[random.Random], None]], tmp_path: Path) -> None:
    run_cases(target(tmp_path), None)
