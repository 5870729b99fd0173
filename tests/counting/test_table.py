"""The count table: equal to a plain Counter, and the same bytes whatever ran where, how often and in which order."""

import os
import random
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import regex
from conftest import Writer, random_document
from helpers import hashes, quiet
from hypothesis import given
from hypothesis import strategies as st

import dist_bpe
from dist_bpe import _core, errors
from dist_bpe.counting.options import CountOptions
from dist_bpe.counting.spills import SPILL_SCHEMA
from dist_bpe.counting.tasks import CountTask, count_shard
from dist_bpe.pretokenize.checks import resolve
from dist_bpe.storage.files import unsealed


def table_of(table: dist_bpe.CountTable) -> dict[tuple[bytes, str], int]:
    """The rows of a table; a word may stand there once a source only."""
    names = list(table.sources)
    found: dict[tuple[bytes, str], int] = {}
    for batch in table.batches():
        for row in batch.to_pylist():
            key = (row["word"], names[row["source"]])
            assert key not in found
            found[key] = row["count"]
    return found


def expected(documents: dict[str, list[str]], pattern: str = "gpt2") -> dict[tuple[bytes, str], int]:
    """The slow twin: a Counter over what `regex` finds."""
    compiled = regex.compile(resolve(pattern).regex)
    found: Counter[tuple[bytes, str]] = Counter()
    for name, texts in documents.items():
        found.update((match.group().encode(), name) for text in texts for match in compiled.finditer(text))
    return dict(found)


def test_equals_a_plain_counter(write: Writer, tmp_path: Path, documents: list[str]) -> None:
    write("a.parquet", documents[:200])
    write("b.parquet", [*documents[200:], None, ""])
    table = quiet(
        dist_bpe.Source("one", str(tmp_path / "a.parquet")),
        dist_bpe.Source("two", str(tmp_path / "b.parquet")),
        output=tmp_path / "run",
    )
    assert table_of(table) == expected({"one": documents[:200], "two": documents[200:]})
    two = table.sources["two"]
    assert (two.documents, two.nulls) == (101, 1)
    assert two.bytes == sum(len(text.encode()) for text in documents[200:])
    assert two.words == sum(n for (_, name), n in table_of(table).items() if name == "two")
    assert two.unique_words == sum(name == "two" for _, name in table_of(table))
    for part in table.parts:
        rows = pq.read_table(part).to_pylist()
        assert rows == sorted(rows, key=lambda row: (row["word"], row["source"]))
        assert all(_core.partition_of(row["word"], len(table.parts)) == table.parts.index(part) for row in rows)


def test_group_by_equals_named_sources(write: Writer, tmp_path: Path, documents: list[str]) -> None:
    langs = [("de", "en", "ja")[i * i % 3] for i in range(len(documents))]
    write("mixed.parquet", documents, lang=langs)
    for lang in set(langs):
        write(f"{lang}.parquet", [text for text, of in zip(documents, langs, strict=True) if of == lang])
    grouped = quiet(
        dist_bpe.Source("all", str(tmp_path / "mixed.parquet"), group_by="lang"), output=tmp_path / "grouped"
    )
    named = quiet(
        *(dist_bpe.Source(lang, str(tmp_path / f"{lang}.parquet")) for lang in set(langs)), output=tmp_path / "named"
    )
    assert hashes(grouped.folder) == hashes(named.folder)


def test_small_tables_spill_many_runs_and_change_nothing(
    write: Writer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(3)
    texts = [" ".join(f"{rng.randrange(200_000):x}" for _ in range(2_000)) for _ in range(200)]
    write("a.parquet", texts, row_group_size=1)
    source = dist_bpe.Source("a", str(tmp_path / "a.parquet"))
    whole = quiet(source, output=tmp_path / "whole")
    monkeypatch.setattr("dist_bpe.corpus.readers.parquet.BATCH_BYTES", 1 << 16)
    monkeypatch.setattr("dist_bpe.run.count.FAN_IN", 3)  # merging in levels
    spilled = quiet(source, output=tmp_path / "spilled", table_bytes=1 << 20, shard_bytes=100_000)
    assert hashes(whole.folder) == hashes(spilled.folder)
    assert table_of(whole) == expected({"a": texts})


@pytest.mark.parametrize("workers", [1, 2, 3, 7, 16])
def test_ten_words_with_any_number_of_workers(write: Writer, tmp_path: Path, workers: int) -> None:
    words = [f"word{i}" for i in range(10)]
    write("a.parquet", words, row_group_size=1)
    source = dist_bpe.Source("a", str(tmp_path / "a.parquet"))
    table = quiet(source, output=tmp_path / "run", workers=workers, shard_bytes=1)
    assert table_of(table) == expected({"a": words})


def test_special_tokens_are_cut_out_first(write: Writer, tmp_path: Path) -> None:
    write("a.parquet", ["ab<|endoftext|>cd", "<|endoftext|>", "x<|end|>y<|endoftext|>"])
    table = quiet(
        dist_bpe.Source("a", str(tmp_path / "a.parquet")),
        output=tmp_path / "run",
        special_tokens=["<|end|>", "<|endoftext|>"],
    )
    assert {word for word, _ in table_of(table)} == {b"ab", b"cd", b"x", b"y"}
    assert table.sources["a"].special_tokens == 4
    # Longest first among those that begin at the same place.
    assert _core.cut("1<|e|><|e|>x2", ["<|e|>", "<|e|>x"]) == ["1", "2"]


def test_custom_pattern_counts_everything_between_its_matches(write: Writer, tmp_path: Path) -> None:
    write("a.parquet", ["abc 12 abc", "(x)"])
    for pattern in ("[a-z]+", "([a-z])+", "(?:[a-z])+"):
        table = quiet(
            dist_bpe.Source("a", str(tmp_path / "a.parquet")), output=tmp_path / "run", pattern=pattern, overwrite=True
        )
        assert {word: n for (word, _), n in table_of(table).items()} == {
            b"abc": 2, b" 12 ": 1, b"(": 1, b"x": 1, b")": 1,
        }  # fmt: skip


def test_min_word_count_drops_by_the_total_and_says_how_many(write: Writer, tmp_path: Path) -> None:
    write("a.parquet", ["x", "x", "y"])
    write("b.parquet", ["y", "z", "w"])
    sources = [dist_bpe.Source(name, str(tmp_path / f"{name}.parquet")) for name in "ab"]
    table = quiet(*sources, output=tmp_path / "run", min_word_count=2)
    assert {word for word, _ in table_of(table)} == {b"x", b"y"}
    dropped = {name: (s.dropped_words, s.dropped_unique_words) for name, s in table.sources.items()}
    assert dropped == {"a": (0, 0), "b": (2, 2)}


def test_same_bytes_on_ray_and_local_in_any_order(write: Writer, tmp_path: Path, documents: list[str]) -> None:
    write("x/a.parquet", documents[:150], row_group_size=10)
    write("x/b.parquet", documents[150:], row_group_size=10)
    shuffled = documents[:]
    random.Random(1).shuffle(shuffled)
    write("y/1.parquet", shuffled[:40], row_group_size=3)
    write("y/2.parquet", shuffled[40:], row_group_size=50)
    reference = None
    for folder, engine, workers, seed in (
        ("x", "local", 1, "0"),
        ("y", "local", 3, "1"),
        ("x", "ray", 1, "2"),
        ("y", "ray", 2, "3"),
        ("x", "ray", 4, "4"),
    ):
        output = tmp_path / f"{folder}-{engine}-{workers}"
        command = [
            sys.executable, "-m", "dist_bpe", "train", f"s={tmp_path / folder}", "-o", str(output),
            "--engine", engine, "--workers", str(workers), "--vocab-size", "700", "--shard-bytes", "3000",
        ]  # fmt: skip
        ran = subprocess.run(command, env=os.environ | {"PYTHONHASHSEED": seed}, capture_output=True, text=True)
        assert ran.returncode == 0, ran.stderr
        found = hashes(output / "counts") | hashes(output / "vocabularies")
        assert len(found) > 20
        reference = reference or found
        assert found == reference, (folder, engine, workers)


def test_a_commit_holds_against_a_second_attempt(write: Writer, tmp_path: Path) -> None:
    write("a.parquet", ["one two", "three"])
    from dist_bpe.corpus.plan import plan

    shard = plan([dist_bpe.Source("a", str(tmp_path / "a.parquet"))]).shards[0]
    task = CountTask(shard, tmp_path, CountOptions(special_tokens=[], partitions=4), 1 << 29)
    first = count_shard(task)
    staged = set(tmp_path.iterdir())
    commit = tmp_path / "shard-000000.json"
    assert count_shard(task) == first
    # An attempt that began before the commit was there and ends after it: its runs go, the commit stays.
    held = commit.read_bytes()
    commit.unlink()
    late = count_shard(task)
    commit.write_bytes(held)
    assert late["totals"] == first["totals"]
    assert staged <= set(tmp_path.iterdir())
    assert unsealed(commit) == first


def test_text_that_is_not_utf8_names_file_row_and_byte(tmp_path: Path) -> None:
    for group_by in (None, "lang"):
        rows = [b"fine"] * 20 + [b"caf\xc3\xa9 \xff!"] + [b"fine"] * 5
        path = tmp_path / "bad.parquet"
        table = pa.table({"text": pa.array(rows, pa.binary()), "lang": ["a", "b"] * 13})
        pq.write_table(table, path, row_group_size=7)
        with pytest.raises(errors.DataError, match=rf"{path}: row 20 of column 'text' is not UTF-8 from byte 6 on"):
            quiet(dist_bpe.Source("a", str(path), group_by=group_by), output=tmp_path / "run")
        assert not (tmp_path / "run").exists()


def test_a_string_array_that_is_not_utf8_is_found_out() -> None:
    # Arrow trusts the type: such arrays come from writers that never looked.
    offsets = pa.py_buffer(b"".join(n.to_bytes(4, "little") for n in (0, 2, 5)))
    texts = pa.StringArray.from_buffers(2, offsets, pa.py_buffer(b"okay\xff"))
    with pytest.raises(_core.InvalidUtf8Error) as caught:
        _core.Counter(1, "gpt2", []).count(0, texts)
    assert caught.value.args == (1, 2)


def test_a_signal_ends_counting_inside_one_array() -> None:
    class Now(Exception):
        pass

    def stop(*_: object) -> None:
        raise Now

    texts = pa.array(["all work and no play " * 50_000] * 200)
    counter = _core.Counter(1, "gpt2", [])
    before = signal.signal(signal.SIGALRM, stop)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        with pytest.raises(Now):
            counter.count(0, texts)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert counter.totals(0)["documents"] < len(texts)


@pytest.mark.parametrize(
    "kind",
    [
        pa.string(), pa.large_string(), pa.string_view(), pa.binary(), pa.large_binary(), pa.binary_view(),
        pa.dictionary(pa.int32(), pa.string()),
    ],
    ids=str,
)  # fmt: skip
def test_every_text_type_gives_one_table(tmp_path: Path, documents: list[str], kind: pa.DataType) -> None:
    texts = pa.array([*documents[:50], None], pa.string())
    for i, array in enumerate((texts, texts.dictionary_encode() if pa.types.is_dictionary(kind) else texts.cast(kind))):
        pq.write_table(pa.table({"text": array}), tmp_path / f"{i}.parquet", row_group_size=9)
        quiet(dist_bpe.Source("a", str(tmp_path / f"{i}.parquet")), output=tmp_path / f"run{i}")
    assert hashes(tmp_path / "run0" / "counts") == hashes(tmp_path / "run1" / "counts")


def test_counts_near_the_borders_of_integers() -> None:
    for total in (2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**63 - 1, 2**63, 2**64 - 1):
        counter = _core.Counter(1, None, [])
        counter.add_words(0, pa.array([b"w"]), pa.array([total - 1], pa.uint64()))
        counter.add_words(0, pa.array([b"w"]), pa.array([1], pa.uint64()))
        ((_, batch),) = list(counter.drain(1))
        assert batch.column("count").to_pylist() == [total]
    counter = _core.Counter(1, None, [])
    counter.add_words(0, pa.array([b"w"]), pa.array([2**64 - 1], pa.uint64()))
    with pytest.raises(errors.CountOverflowError, match="w"):
        counter.add_words(0, pa.array([b"w"]), pa.array([1], pa.uint64()))
    run = pa.record_batch([pa.array([b"w"]), pa.array([0], pa.uint32()), pa.array([2**63], pa.uint64())], SPILL_SCHEMA)
    with pytest.raises(errors.CountOverflowError, match="w"):
        list(_core.Merger([[run], [run]], 1, 0))


@given(st.lists(st.tuples(st.binary(max_size=20), st.integers(0, 2)), max_size=200), st.integers(1, 5))
def test_drained_runs_merge_to_a_plain_counter(words: list[tuple[bytes, int]], pieces: int) -> None:
    wanted = Counter(words)
    runs: list[list[pa.RecordBatch]] = []
    for piece in range(pieces):
        counter = _core.Counter(3, None, [])
        for word, source in words[piece::pieces]:
            counter.add_words(source, pa.array([word], pa.binary()), pa.array([1], pa.uint64()))
        runs.append([batch for _, batch in counter.drain(1)])
    merger = _core.Merger(runs, 3, 0)
    found = [(row["word"], row["source"], row["count"]) for batch in merger for row in batch.to_pylist()]
    assert found == sorted((word, source, n) for (word, source), n in wanted.items())
    assert [tally["words"] for tally in merger.tallies()] == [sum(s == i for _, s in words) for i in range(3)]


def test_scanned_words_of_a_column_equal_regex_words() -> None:
    rng = random.Random(5)
    texts = [random_document(rng, 200) for _ in range(500)]
    counter = _core.Counter(1, "cl100k", [])
    counter.count(0, pa.array(texts))
    found = {row["word"]: row["count"] for _, batch in counter.drain(3) for row in batch.to_pylist()}
    assert found == {word: n for (word, _), n in expected({"a": texts}, "cl100k").items()}
