"""The count table: equal to a plain Counter, and the same bytes whatever ran where, how often and in which order."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import regex
from conftest import Writer, random_document
from helpers import hashes, quiet, run
from hypothesis import given
from hypothesis import strategies as st

import dist_bpe
from dist_bpe import _core, errors
from dist_bpe.counting.options import CountOptions
from dist_bpe.counting.spills import SPILL_SCHEMA
from dist_bpe.counting.table import _checksum, dropped_words
from dist_bpe.counting.tasks import CountTask, committed, count_shard, merge_part, merge_tasks, merged
from dist_bpe.pretokenize.checks import resolve
from dist_bpe.storage.files import sealed, sha256, unsealed


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
        ("y", "ray", 1, "2"),
        ("x", "ray", 4, "3"),
    ):
        output = tmp_path / f"{folder}-{engine}-{workers}"
        command = [
            sys.executable, "-m", "dist_bpe", "train", f"s={tmp_path / folder}", "-o", str(output),
            "--engine", engine, "--workers", str(workers), "--vocab-size", "700", "--shard-bytes", "3000",
        ]  # fmt: skip
        ran = subprocess.run(command, env=os.environ | {"PYTHONHASHSEED": seed}, capture_output=True, text=True)
        assert ran.returncode == 0, ran.stderr
        assert ("to start and stop, longer than one thread counts" in ran.stderr) == (engine == "ray")
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


@pytest.fixture
def made(write: Writer, tmp_path: Path, documents: list[str]) -> dist_bpe.CountTable:
    """A small table of two sources in three parts, and a vocabulary of it."""
    write("x.parquet", documents[:40])
    write("y.parquet", documents[40:60])
    sources = [dist_bpe.Source(name, str(tmp_path / f"{name}.parquet")) for name in "xy"]
    table = quiet(*sources, output=tmp_path / "run", partitions=3)
    assert run("learn", tmp_path / "run", "--vocab-size", "300", "--no-verify").exit_code == 0
    return table


def test_one_flipped_bit_in_a_part_is_found(made: dist_bpe.CountTable, tmp_path: Path) -> None:
    folder = made.folder.parent
    shutil.copytree(folder, tmp_path / "other")
    for part in made.parts:
        content = part.read_bytes()
        for place in (4, len(content) // 3, len(content) // 2, len(content) - 12):
            part.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
            for command in (
                ["learn", folder, "--vocab-size", "400"],
                ["evaluate", folder / "vocabularies" / "300", "--table", folder],
                ["balance", folder, "--vocab-size", "300"],
                ["add", folder, tmp_path / "other", "-o", tmp_path / "sum"],
            ):
                ran = run(*command)
                assert ran.exit_code == 4, (command, ran.stderr)
                assert f"{part} is damaged" in ran.stderr
        part.write_bytes(content[:-5])
        assert run("learn", folder, "--vocab-size", "400").exit_code == 4
        part.write_bytes(content)
    assert {path.name for path in (folder / "vocabularies").iterdir()} == {"300"}
    assert not (tmp_path / "sum" / "counts").exists()
    assert not (folder / "mixtures").exists()
    assert run("learn", folder, "--vocab-size", "400", "--no-verify").exit_code == 0


def test_a_part_is_read_for_its_hash_once(made: dist_bpe.CountTable, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Path] = []

    def noted(path: Path) -> str:
        seen.append(path)
        return sha256(path)

    monkeypatch.setattr("dist_bpe.counting.table.sha256", noted)
    dist_bpe.learn(made, vocab_size=300, progress="silent")  # reads the footers, and the table twice
    assert seen == list(made.parts)


def test_a_part_that_goes_while_it_is_read_is_named(made: dist_bpe.CountTable) -> None:
    part = made.parts[1]
    made.check(1)
    part.write_bytes(b"PAR1" + bytes(100))
    with pytest.raises(errors.FormatError, match=rf"{part} cannot be read: .*Restore it, or count again"):
        list(made.batches())
    part.unlink()
    with pytest.raises(errors.FormatError, match=rf"{part} is gone"):
        list(made.batches())
    with pytest.raises(errors.FormatError, match=f"lacks {part}"):
        dist_bpe.CountTable.open(made.folder)


def changed(values: dict[str, Any], *keys: str | int, to: object) -> dict[str, Any]:
    """A manifest with another value at one place and a checksum that fits."""
    made: dict[str, Any] = json.loads(json.dumps(values))
    place: Any = made
    for key in keys[:-1]:
        place = place[key]
    if to is KeyError:
        del place[keys[-1]]
    else:
        place[keys[-1]] = to
    return made | ({"checksum": _checksum(made)} if "checksum" in made else {})


WRONG: list[tuple[tuple[str | int, ...], object, str]] = [
    (("kind",), "vocabulary", "is no count table of format 1"),
    (("format_version",), 2, "is no count table of format 1"),
    (("format_version",), "1", "is no count table of format 1"),
    (("sources",), [], "sources: "),
    (("sources", "x"), 7, "sources.x: "),
    (("sources", "x", "words"), "12", "sources.x.words: "),
    (("sources", "x", "words"), -1, "sources.x.words: "),
    (("sources", "x", "bytes"), 2**64, "sources.x.bytes: "),
    (("sources", "x", "digest"), "0", "sources.x.digest: "),
    (("sources", "x", "unique_words"), 1, "rows, and its sources"),
    (("sources",), {"y": {}, "x": {}}, "not in the order of their names"),
    (("parts",), None, "parts: "),
    (("parts", 0), "part-00000.parquet", "parts.0: "),
    (("parts", 0, "rows"), True, "parts.0.rows: "),
    (("parts", 0, "file"), "../../elsewhere.parquet", "parts.0.file: "),
    (("parts", 0, "sha256"), "0" * 64, "do not fit together"),
    (("parts", 0), KeyError, "has 2 parts instead of 3"),
    (("pattern",), "gpt2", "pattern: "),
    (("pattern", "name"), "gpt3", "unknown pattern 'gpt3'"),
    (("pattern", "name"), "o200k", "has another regular expression there"),
    (("pattern",), {"name": None, "regex": "[", "unicode_tables": "1"}, "does not compile"),
    (("special_tokens",), "<|endoftext|>", "special_tokens: "),
    (("special_tokens", 0), 1, "special_tokens.0: "),
    (("normalization",), "NFX", "normalization: "),
    (("min_word_count",), 1.5, "min_word_count: "),
    (("min_word_count",), KeyError, "min_word_count: "),
    (("selection",), {"x": {"rows": {"nulls": "many"}}}, "selection.x.rows.nulls: "),
    (("checksum",), 3, "checksum: "),
]


@pytest.mark.parametrize(("keys", "value", "message"), WRONG, ids=lambda value: str(value)[:40])
def test_a_manifest_of_another_shape_is_named(
    made: dist_bpe.CountTable, keys: tuple[str | int, ...], value: object, message: str
) -> None:
    path = made.folder / "manifest.json"
    values = changed(made.written, *keys, to=value)
    if keys == ("checksum",):
        values = made.written | {"checksum": value}
    path.write_text(json.dumps(values))
    for command in (
        ["learn", made.folder.parent, "--vocab-size", "400"],
        ["add", made.folder, made.folder, "-o", "no"],
    ):
        ran = run(*command)
        assert ran.exit_code == 4, ran.stderr
        assert str(path) in ran.stderr
        assert message in ran.stderr


@pytest.mark.parametrize(
    "content",
    [b"", b"\xff\xfe", b"null", b"[]", b"7", b"{", b"[" * 100_000, b'{"kind":' * 100_000, b'{"kind": NaN}'],
    ids=lambda content: repr(content[:12]),
)
def test_a_manifest_that_is_no_manifest_is_named(made: dist_bpe.CountTable, content: bytes) -> None:
    path = made.folder / "manifest.json"
    path.write_bytes(content)
    with pytest.raises(errors.FormatError, match=str(path)):
        dist_bpe.CountTable.open(made.folder)


def test_a_manifest_that_cannot_be_read_is_named(made: dist_bpe.CountTable) -> None:
    path = made.folder / "manifest.json"
    path.unlink()
    path.mkdir()
    with pytest.raises(errors.RunError, match=f"{path} cannot be read: Is a directory"):
        dist_bpe.CountTable.open(made.folder)
    with pytest.raises(errors.RunError, match="cannot be read: File name too long"):
        dist_bpe.CountTable.open(made.folder / ("x" * 300))


def test_a_manifest_is_of_its_own_words_alone(made: dist_bpe.CountTable) -> None:
    """Values of the right shape, but not those that were written: the checksum tells."""
    path = made.folder / "manifest.json"
    for keys, value in (
        (("special_tokens", 0), "<|endoftexu|>"),
        (("normalization",), "NFC"),
        (("min_word_count",), 3),
    ):
        values = changed(made.written, *keys, to=value) | {"checksum": made.written["checksum"]}
        path.write_text(json.dumps(values))
        with pytest.raises(errors.FormatError, match=f"{path} is damaged: its checksum is another"):
            dist_bpe.CountTable.open(made.folder)
    # What a later release may add is let pass, and so is what an earlier one did not write.
    path.write_text(json.dumps(changed(made.written, "more", to={"a": [1]})))
    assert dist_bpe.CountTable.open(made.folder).sources == made.sources
    path.write_text(json.dumps(changed(made.written, "checksum", to=KeyError)))
    assert table_of(dist_bpe.CountTable.open(made.folder)) == table_of(made)


def test_sources_that_a_manifest_does_not_name_are_found(made: dist_bpe.CountTable) -> None:
    values = changed(made.written, "sources", to={"x": made.written["sources"]["x"], "z": made.written["sources"]["y"]})
    (made.folder / "manifest.json").write_text(json.dumps(values))
    with pytest.raises(
        errors.FormatError, match=r"part-00000-.* has sources that the manifest beside it does not name"
    ):
        list(dist_bpe.CountTable.open(made.folder).batches())


def test_a_commit_under_the_name_of_another_is_not_counted(write: Writer, tmp_path: Path) -> None:
    write("a.parquet", ["one two", "three", "four"], row_group_size=1)
    from dist_bpe.corpus.plan import plan

    staging = tmp_path / "staging"
    staging.mkdir()
    shards = plan([dist_bpe.Source("a", str(tmp_path / "a.parquet"))], 1).shards
    tasks = [CountTask(shard, staging, CountOptions(special_tokens=[], partitions=2), 1 << 29) for shard in shards]
    commits = [count_shard(task) for task in tasks]
    assert len(commits) == 3
    assert committed(staging) == commits
    first, second = (staging / f"shard-00000{i}.json" for i in range(2))
    second.write_bytes(first.read_bytes())
    assert committed(staging) == [commits[0], commits[2]]
    assert not second.exists()
    # Under its own key, but with the runs of another.
    second.write_bytes(sealed(commits[0] | {"key": [1]}))
    assert committed(staging) == [commits[0], commits[2]]
    # The same of parts.
    commits = [commits[0], count_shard(tasks[1]), commits[2]]
    parts = [merge_part(task) for task in merge_tasks(commits, staging, CountOptions(partitions=2))]
    assert merged(staging, staging) == parts
    (staging / "part-00001.json").write_bytes((staging / "part-00000.json").read_bytes())
    assert merged(staging, staging) == parts[:1]
    (staging / "part-00001.json").write_bytes(sealed(parts[0] | {"partition": 1}))
    assert merged(staging, staging) == parts[:1]


def test_dropped_words_are_told_at_the_end(write: Writer, tmp_path: Path) -> None:
    write("a.parquet", ["x", "x", "x", "y"])
    write("b.parquet", ["y", "z", "w"])
    paths = [f"{name}={tmp_path}/{name}.parquet" for name in "ab"]
    options = ["--engine", "local", "--workers", "1", "-o", tmp_path / "run", "--min-word-count", "2"]
    ran = run("count", *paths, *options)
    assert ran.exit_code == 0, ran.stderr
    told = (
        "2 words, which are 28.57% of all, and 66.67% of those of b, were dropped when the table was counted: each "
        "stood fewer than 2 times (min_word_count)."
    )
    assert told in ran.stdout
    table = dist_bpe.CountTable.open(tmp_path / "run")
    assert (dropped_words(table) or "").startswith(told)
    # Learning from it says it again.
    assert told in run("learn", tmp_path / "run", "--vocab-size", "258", "--no-verify").stdout
    assert dropped_words(quiet(dist_bpe.Source("a", str(tmp_path / "a.parquet")), output=tmp_path / "all")) is None
