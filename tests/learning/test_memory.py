"""Memory: what there is, what each step takes, and what is refused before it would take too much."""

import random
import resource
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from conftest import Writer
from helpers import hashes, quiet
from typer.testing import CliRunner

import dist_bpe
from dist_bpe import errors
from dist_bpe.cli.main import app
from dist_bpe.learning.memory import check_memory, count_histogram, kept_bytes, learn_bytes
from dist_bpe.memory import _left, available, fan_in, fan_in_of_files, table_bytes


def test_control_groups_limit_what_is_available(tmp_path: Path) -> None:
    for name, value in (
        ("memory.max", "1000\n"),
        ("memory.current", "700\n"),
        ("memory.stat", "anon 1\ninactive_file 200\n"),
    ):
        (tmp_path / name).write_text(value)
    assert _left(tmp_path, "memory.max", "memory.current", "inactive_file") == 500
    (tmp_path / "memory.max").write_text("max\n")
    with pytest.raises(ValueError, match="max"):
        _left(tmp_path, "memory.max", "memory.current", "inactive_file")
    assert 0 < available() < 1 << 62


def test_a_limited_address_space_limits_what_is_available() -> None:
    script = "from dist_bpe.memory import available; print(available())"
    limit = 1 << 30
    ran = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)),
    )  # fmt: skip
    assert 0 < int(ran.stdout) < limit


def test_few_open_files_make_merges_narrower(monkeypatch: pytest.MonkeyPatch) -> None:
    for files, most in ((resource.RLIM_INFINITY, 64), (1 << 20, 64), (128, 16), (65, 2), (10, 2)):
        monkeypatch.setattr("dist_bpe.memory.resource.getrlimit", lambda _, files=files: (files, files))
        monkeypatch.setattr("dist_bpe.memory.os.cpu_count", lambda: 2)
        assert fan_in_of_files(64) == fan_in(4 << 30, 64) == most


def test_little_memory_for_workers_changes_nothing(write: Writer, tmp_path: Path) -> None:
    rng = random.Random(3)
    write("a.parquet", [" ".join(f"{rng.randrange(200_000):x}" for _ in range(2_000)) for _ in range(100)])
    source = dist_bpe.Source("a", str(tmp_path / "a.parquet"))
    whole = quiet(source, output=tmp_path / "whole")
    small = quiet(source, output=tmp_path / "small", memory_per_worker="256MiB")
    assert hashes(whole.folder) == hashes(small.folder)
    assert table_bytes(256 << 20, 1 << 29) == 1 << 20
    assert fan_in(256 << 20, 64) == 2
    assert table_bytes(4 << 30, 1 << 29) == 1 << 29
    assert fan_in(4 << 30, 64) == 64


def test_a_table_that_does_not_fit_is_refused_with_what_would(write: Writer, tmp_path: Path) -> None:
    """Field case 10: the number named fits, one less does not, and the share of text is exact."""
    rng = random.Random(3)
    words = ["".join(rng.choices("abcdefgh", k=k)) for k in (2, 3, 4, 6) for _ in range(3000)]
    write("a.parquet", words[::2])
    write("b.parquet", words[1::2])
    sources = [dist_bpe.Source(name, str(tmp_path / f"{name}.parquet")) for name in "ab"]
    table = dist_bpe.count(*sources, output=tmp_path / "run", engine="local", workers=1, progress="silent")
    batches = [batch.slice(i, 7) for batch in table.batches() for i in range(0, batch.num_rows, 7)]
    number = Counter(words)
    found = list(zip(*(column.tolist() for column in count_histogram(batches)), strict=True))
    by_count = {n: [w for w in number if number[w] == n] for n in set(number.values())}
    in_a, in_b = set(words[::2]), set(words[1::2])
    rows_of = {word: (word in in_a) + (word in in_b) for word in number}
    assert found == [
        (
            n,
            len(by_count[n]),
            sum(map(len, by_count[n])),
            sum(rows_of[word] for word in by_count[n]),
            sum(rows_of[word] * len(word) for word in by_count[n]),
        )
        for n in sorted(by_count)
    ]

    def need(least: int, kept: bool = False, apart: bool = False) -> int:
        left = [word for word in number if number[word] >= least for _ in range(rows_of[word] if apart else 1)]
        beside = kept_bytes(len(number), sum(rows_of.values()), sum(map(len, number))) if kept else 0
        return beside + learn_bytes(len(left), sum(map(len, left)))

    fitting = next(n for n in sorted(by_count) if need(n) <= need(1) - 20_000)
    with pytest.raises(errors.UsageError) as caught:
        dist_bpe.learn(table, vocab_size=400, driver_memory=need(1) - 20_000, progress="silent")
    share = sum(len(w) * n for w, n in number.items() if n < fitting) / sum(len(w) * n for w, n in number.items())
    assert f"min_word_count (--min-word-count) = {fitting} would fit, and leave out {share:.2%} of the text" in str(
        caught.value
    )
    options = {"min_word_count": fitting, "progress": "silent"}
    dist_bpe.learn(table, vocab_size=400, driver_memory=need(1) - 20_000, **options)  # type: ignore[call-overload]
    with pytest.raises(errors.UsageError, match=r"no min_word_count \(--min-word-count\) would fit"):
        dist_bpe.learn(table, vocab_size=400, driver_memory="1kB", progress="silent")
    # A table that is kept for many trainings, and parity, which learns from each language's words by themselves.
    for options in ({"kept": True}, {"kept": True, "apart": True}):
        check_memory(table, 1, need(1, **options), **options)
        with pytest.raises(errors.UsageError, match=f"{len(number):,} unique words"):
            check_memory(table, 1, need(1, **options) - 1, **options)
        fitting = next(n for n in sorted(by_count) if need(n, **options) <= need(1, **options) - 20_000)
        with pytest.raises(errors.UsageError, match=rf"\(--min-word-count\) = {fitting} would fit"):
            check_memory(table, 1, need(1, **options) - 20_000, **options)
    ran = CliRunner().invoke(app, ["balance", str(tmp_path / "run"), "--vocab-size", "400", "--driver-memory", "1MB"])
    assert ran.exit_code == 2
    assert "no min_word_count (--min-word-count) would fit" in ran.stderr
