"""Formats, listings, policies and samples: the same documents come out of every form, and what does not is named."""

import bz2
import gzip
import json
import lzma
import pickle
import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers import COMPRESS, zstd
from hypothesis import given
from hypothesis import strategies as st

from dist_bpe.corpus.documents import NO_GROUP, WHOLE, Reading, Sample, Skipped
from dist_bpe.corpus.plan import Plan, plan
from dist_bpe.corpus.readers.jsonl import _BadLine, _Fields
from dist_bpe.corpus.readers.lines import line_ends
from dist_bpe.corpus.shard import Shard
from dist_bpe.corpus.source import Source
from dist_bpe.errors import DataError, SourceError, UsageError

TEXTS = [
    "a b",
    "",
    "ünïcödé 🙂",
    "line\nline",
    "\u2028x\u0085y\x0bz\x0cw\x1cv\ru",
    'quote " and \\',
    "z" * 5000,
    None,
    "a b",
]


def read(source: Source, skipped: Skipped | None = None, **options: Any) -> list[tuple[str, bytes | None]]:
    """All documents of a source, with their source names."""
    found = []
    shards = plan([source], **options).shards
    if source.documents is None:
        shards = pickle.loads(pickle.dumps(shards))  # noqa: S301  # our own
    for shard in shards:
        names = set(shard.sources())
        for name, texts, _ in shard.batches(skipped):
            assert name in names
            assert str(texts.type) in ("binary", "large_binary")
            found += [(name, text) for text in texts.cast(pa.large_binary()).to_pylist()]
    return found


def texts_of(source: Source, skipped: Skipped | None = None, **options: Any) -> list[str | None]:
    return [None if text is None else text.decode() for _, text in read(source, skipped, **options)]


def ordered(texts: Iterable[str | None]) -> list[str]:
    return sorted(repr(text) for text in texts)


def json_lines(texts: Iterable[str | None], key: str = "text") -> bytes:
    return b"".join(
        json.dumps({"id": i, key: text, "x": [1, {"y": None}]}).encode() + b"\n" for i, text in enumerate(texts)
    )


# ---------------------------------------------------------------------------------------------------------------------
# Formats


def arrow_types() -> list[Any]:
    return [
        pa.string(), pa.large_string(), pa.string_view(), pa.binary(), pa.large_binary(), pa.binary_view(),
        pa.dictionary(pa.int32(), pa.string()), pa.dictionary(pa.int8(), pa.large_string()),
    ]  # fmt: skip


@pytest.mark.parametrize("kind", arrow_types(), ids=str)
@pytest.mark.parametrize("form", ["parquet", "file", "stream"])
def test_every_text_type_of_every_columnar_format(tmp_path: Path, kind: Any, form: str) -> None:
    values = pa.array(TEXTS, pa.string())
    column = values.dictionary_encode().cast(kind) if pa.types.is_dictionary(kind) else values.cast(kind)
    table = pa.table(
        {"other": list(range(len(TEXTS))), "text": column, "nested": [{"deep": [i]} for i in range(len(TEXTS))]}
    )
    path = tmp_path / ("a.parquet" if form == "parquet" else "a.arrow")
    if form == "parquet":
        pq.write_table(table, path, row_group_size=4)
    else:
        new = pa.ipc.new_file if form == "file" else pa.ipc.new_stream
        with new(str(path), table.schema) as writer:
            writer.write_table(table, max_chunksize=4)
    assert texts_of(Source("a", str(path))) == TEXTS
    assert texts_of(Source("a", str(path)), shard_bytes=1) == TEXTS


@pytest.mark.parametrize("end", COMPRESS)
def test_json_lines_plain_and_in_many_members(tmp_path: Path, end: str) -> None:
    path = tmp_path / f"a.jsonl{end}"
    path.write_bytes(COMPRESS[end](json_lines(TEXTS)))
    assert texts_of(Source("a", str(path))) == TEXTS
    path.write_bytes(COMPRESS[end](json_lines(TEXTS).rstrip(b"\n")))
    assert texts_of(Source("a", str(path))) == TEXTS


@pytest.mark.parametrize("end", COMPRESS)
def test_only_a_newline_ends_a_line_of_text(tmp_path: Path, end: str) -> None:
    texts = ["a", "", "b\r", "\u2028x\u0085y\x0bz\x0cw\x1cv\ru", " c ", "last"]
    path = tmp_path / f"a.txt{end}"
    for tail in ("", "\n"):
        path.write_bytes(COMPRESS[end](("\n".join(texts) + tail).encode()))
        assert texts_of(Source("a", str(path), format="lines")) == texts
        assert texts_of(Source("a", str(path))) == ["\n".join(texts) + tail]


def test_fields_inside_structs_and_lists(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [
        {"doc": {"text": "one"}, "messages": [{"role": "u", "content": "q"}, {"role": "a", "content": "r"}], "l": "x"},
        {"doc": {"text": None}, "messages": [], "l": "y"},
        {"doc": None, "messages": None, "l": "y"},
        {"doc": {"text": "two"}, "messages": [{"role": "t", "content": None}, {"role": "t", "content": "s"}], "l": "x"},
    ]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "a.parquet", row_group_size=2)
    with pa.ipc.new_file(str(tmp_path / "a.arrow"), pa.Table.from_pylist(rows).schema) as writer:
        writer.write_table(pa.Table.from_pylist(rows))
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    for name in ("a.parquet", "a.arrow", "a.jsonl"):
        path = str(tmp_path / name)
        assert texts_of(Source("a", path, "doc.text")) == ["one", None, None, "two"]
        content = ["q", "r", None, None, "s"]
        assert ordered(texts_of(Source("a", path, "messages.content"))) == ordered(content)
        grouped = read(Source("a", path, "messages.content", group_by="l"))
        assert sorted(grouped, key=repr) == sorted(
            [("x", b"q"), ("x", b"r"), ("y", None), ("x", None), ("x", b"s")], key=repr
        )
        assert sorted(read(Source("a", path, "l", group_by="doc.text")), key=repr) == sorted(
            [("one", b"x"), (NO_GROUP, b"y"), (NO_GROUP, b"y"), ("two", b"x")], key=repr
        )
    dotted = pa.table({"doc.text": ["flat"], "doc": [{"text": "nested"}]})
    pq.write_table(dotted, tmp_path / "d.parquet")
    (tmp_path / "d.jsonl").write_text('{"doc.text": "flat", "doc": {"text": "nested"}}\n')
    for name in ("d.parquet", "d.jsonl"):
        assert texts_of(Source("a", str(tmp_path / name), "doc.text")) == ["flat"]


def test_a_shard_of_nulls_and_other_columns_beside(tmp_path: Path) -> None:
    pq.write_table(pa.table({"text": pa.nulls(5)}), tmp_path / "0.parquet")
    pq.write_table(pa.table({"x": [1, 2], "text": ["a", None]}), tmp_path / "1.parquet")
    pq.write_table(
        pa.table({"text": pa.array([None, "b"], pa.large_string()), "y": [[1], [2]]}), tmp_path / "2.parquet"
    )
    assert texts_of(Source("a", str(tmp_path))) == [None] * 5 + ["a", None, None, "b"]


def test_a_text_that_repeats_is_decoded_in_slices(tmp_path: Path) -> None:
    """2,200 texts of a mebibyte take one in a Parquet dictionary, two thousand in a batch that trusts the footer."""
    text = "x" * (1 << 20)
    dictionary = pa.DictionaryArray.from_arrays(pa.array([0] * 2200, pa.int32()), pa.array([text]))
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"text": dictionary}), path)
    before = pa.total_allocated_bytes()
    count = most = 0
    for shard in plan([Source("a", str(path))]).shards:
        for batch in shard.batches():
            count += len(batch.texts)
            most = max(most, pa.total_allocated_bytes() - before)
    assert count == 2200
    assert most < 60 << 20


def test_a_row_group_of_repeats_beside_another(tmp_path: Path) -> None:
    """Each row group is read as it needs: the large one beside it must not take the bound from the one that repeats."""
    texts = [f"{i} " * 300 for i in range(20_000)]
    text = "x" * (1 << 20)
    with pq.ParquetWriter(tmp_path / "a.parquet", pa.schema([("text", pa.string())])) as writer:
        writer.write_table(pa.table({"text": texts}))
        writer.write_table(pa.table({"text": pa.array([text] * 150)}))
    before = pa.total_allocated_bytes()
    count = most = 0
    for shard in plan([Source("a", str(tmp_path / "a.parquet"))]).shards:
        for batch in shard.batches():
            count += len(batch.texts)
            most = max(most, pa.total_allocated_bytes() - before)
    assert count == 20_150
    assert most < 60 << 20


def test_a_huge_row_group_is_read_in_small_batches(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    texts = [f"{i} " * 20_000 for i in range(2000)]
    pq.write_table(pa.table({"text": texts}), path, 10_000, use_dictionary=False, write_batch_size=8)
    size = sum(map(len, texts))
    del texts
    before = pa.total_allocated_bytes()
    most = total = 0
    for batch in plan([Source("a", str(path))]).shards[0].batches():
        total += batch.texts.nbytes
        most = max(most, pa.total_allocated_bytes() - before)
    assert total > size > 150e6
    assert most < 30 << 20


def test_a_saved_dataset_is_read_by_its_own_list(tmp_path: Path) -> None:
    import datasets

    data = datasets.Dataset.from_dict({"text": [f"d{i}" for i in range(50)]})
    data.save_to_disk(str(tmp_path / "plain"), num_shards=3)
    (tmp_path / "plain" / "cache-1.arrow").write_bytes(b"left by a filter")
    assert texts_of(Source("a", str(tmp_path / "plain"))) == data["text"][:]
    shuffled = data.shuffle(seed=1).select(range(20))
    shuffled.save_to_disk(str(tmp_path / "mapped"))
    assert texts_of(Source("a", str(tmp_path / "mapped"))) == shuffled["text"][:]
    datasets.DatasetDict({"train": data, "test": shuffled}).save_to_disk(str(tmp_path / "both"))
    assert texts_of(Source("a", str(tmp_path / "both"))) == data["text"][:]
    assert any("another split" in left.reason for left in plan([Source("a", str(tmp_path / "both"))]).left_out)
    # As versions before 2.0 wrote it: the rows are named in a file beside the data.
    indices = pa.table({"indices": pa.array([3, 1, 4], pa.uint64())})
    with pa.ipc.new_stream(str(tmp_path / "plain" / "indices.arrow"), indices.schema) as writer:
        writer.write_table(indices)
    state = json.loads((tmp_path / "plain" / "state.json").read_text())
    state["_indices_data_files"] = [{"filename": "indices.arrow"}]
    (tmp_path / "plain" / "state.json").write_text(json.dumps(state))
    source = Source("a", str(tmp_path / "plain"))
    assert [type(piece.documents).__name__ for piece in plan([source]).shards[0].pieces] == ["SavedDataset"]


def test_datasets_of_the_library() -> None:
    import datasets

    values = [f"d{i}" for i in range(5000)]
    data = datasets.Dataset.from_dict({"text": values, "lang": ["x", "y"] * 2500})
    assert texts_of(Source("a", documents=data)) == values
    assert texts_of(Source("a", documents=data), shard_bytes=2000) == values
    mapped = data.shuffle(seed=3).filter(lambda row: row["lang"] == "x")
    assert texts_of(Source("a", documents=mapped)) == mapped["text"][:]
    assert {name for name, _ in read(Source("a", documents=data, group_by="lang"))} == {"x", "y"}
    stream = data.to_iterable_dataset(num_shards=3)
    assert sorted(texts_of(Source("a", documents=stream)), key=str) == sorted(values)
    assert len(plan([Source("a", documents=stream)], 1).shards) == 3
    with pytest.raises(SourceError, match="no text column 'body'"):
        plan([Source("a", text="body", documents=data)])
    with pytest.raises(SourceError, match="several splits"):
        plan([Source("a", documents=datasets.DatasetDict({"train": data}))])


def test_a_dataset_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The name of a folder stands for one of the Hub: the library resolves both the same way."""
    from dist_bpe.corpus.readers.huggingface import hub_split

    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "parquet"
    folder.mkdir()
    pq.write_table(pa.table({"text": ["a", "b"]}), folder / "train-0.parquet")
    pq.write_table(pa.table({"text": ["c"]}), folder / "test-0.parquet")
    found, files = hub_split(str(folder), None, None, None)
    assert (found.split, [Path(file).name for file in files]) == ("train", ["train-0.parquet"])
    assert [Path(file).name for file in hub_split(str(folder), None, "test", None)[1]] == ["test-0.parquet"]
    with pytest.raises(SourceError, match="has no split 'dev'; its splits are: train, test"):
        hub_split(str(folder), None, "dev", None)
    other = tmp_path / "csv"
    other.mkdir()
    (other / "train.csv").write_text("text,n\nhello,1\nworld,2\n")
    found, files = hub_split(str(other), None, None, None)
    assert not files
    assert texts_of(Source("a", documents=found.open())) == ["hello", "world"]
    with pytest.raises(SourceError, match="cannot be opened by `datasets`"):
        hub_split(str(tmp_path / "nothing"), None, None, None)


def test_documents_in_memory() -> None:
    assert texts_of(Source("a", documents=TEXTS)) == TEXTS
    assert texts_of(Source("a", documents=(t for t in TEXTS))) == TEXTS
    assert texts_of(Source("a", documents=[b"x", "y"]), shard_bytes=1) == ["x", "y"]
    many = [str(i) * 100 for i in range(1000)]
    assert len(plan([Source("a", documents=many)], 1 << 19).shards) == 1
    assert len(plan([Source("a", documents=many * 50)], 1 << 20).shards) > 3
    assert texts_of(Source("a", documents=many * 50), shard_bytes=1 << 20) == many * 50
    assert plan([Source("a", documents=many)]).in_memory == ["a"]
    for value in ("abc", b"abc"):
        with pytest.raises(TypeError, match="letter by letter"):
            Source("a", documents=value)
    with pytest.raises(TypeError, match="not an iterable"):
        Source("a", documents=3)
    with pytest.raises(DataError, match="document 1 is int"):
        read(Source("a", documents=["x", 3]))
    with pytest.raises(DataError, match="document 0 is not UTF-8 from byte 1 on"):
        read(Source("a", documents=["a\ud800"]))
    assert texts_of(Source("a", documents=["a\ud800"], on_bad_row="replace")) == ["a���"]
    with pytest.raises(UsageError, match="either paths or documents"):
        Source("a", "x.parquet", documents=["x"])


# ---------------------------------------------------------------------------------------------------------------------
# Lines: the fast way equals the slow one, whatever the borders


def test_pieces_of_a_text_file_hold_each_line_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(5)
    for _ in range(25):
        texts = ["é" * rng.choice([0, 1, 2, 30]) + str(i) for i in range(rng.randint(1, 40))]
        monkeypatch.setattr("dist_bpe.corpus.readers.lines.BATCH_BYTES", rng.choice([1, 2, 7, 50, 1000]))
        tail = rng.choice(["", "\n"])
        (tmp_path / "a.txt").write_text("\n".join(texts) + tail)
        (tmp_path / "a.jsonl").write_bytes(json_lines(texts))
        shard_bytes = rng.choice([1, 5, 40, 1000])
        assert texts_of(Source("a", str(tmp_path / "a.txt"), format="lines"), shard_bytes=shard_bytes) == texts
        assert texts_of(Source("a", str(tmp_path / "a.jsonl")), shard_bytes=shard_bytes) == texts


ODD_LINES = r"""{}
[]
{
}
"a"
{"text": null}
{"text": 1}
{"text": ["a", null, "b"]}
{"text": "a"
{"text": "a"}{"text": "b"}
{"text": NaN}
{"text": "a", "x": NaN}
{"text": "\ud800"}
{"text": "\ud83d\ude00"}
{"text": "a"} ,
{"text": {"text": "a"}}
"text": "a"}
{"text": "a", "text": "b"}
{"x": {}, "text":
{"x": [{}
{"text": "a"}]}
""".split("\n")
JSON_LINES = st.one_of(
    st.text(max_size=5).map(lambda text: json.dumps({"text": text})),
    st.text(max_size=5).map(lambda text: json.dumps({"a": 1, "text": text}, ensure_ascii=False)),
    st.sampled_from([*ODD_LINES, '{"text": "a"}\r', "\x00", '{"text": "\x00"}']),
)


@given(st.lists(JSON_LINES, max_size=8), st.sampled_from(["skip", "replace"]))
def test_a_block_of_json_lines_reads_like_its_lines_alone(rows: list[str], policy: Any) -> None:
    reading = Reading("a", on_bad_row=policy)
    fields = _Fields(reading)
    block = "".join(row.replace("\n", " ") + "\n" for row in rows).encode()
    expected: list[bytes | None] = []
    fine = True
    for line in block.split(b"\n"):
        if line.strip():
            try:
                found = fields.line(line)
                fine = fine and not found.replaced
                expected += found.texts
            except _BadLine:
                fine = False
    fast = fields.texts(block, line_ends(block)) if block else None
    if fast is not None:
        assert fine
        assert fast.cast(pa.large_binary()).to_pylist() == expected


@given(st.dictionaries(st.sampled_from(["text", "a", "doc.text"]), st.text(max_size=4) | st.none() | st.integers()))
def test_the_fast_json_decoder_agrees_with_the_standard_library(row: dict[str, Any]) -> None:
    line = json.dumps(row).encode()
    fields = _Fields(Reading("a"))
    try:
        found: Any = fields.line(line).texts
    except _BadLine as error:
        found = error.reason
    if "text" not in row:
        assert found == "no such field"
    elif isinstance(row["text"], int):
        assert found == "not text"
    else:
        assert found == [row["text"] if row["text"] is None else row["text"].encode()]


# ---------------------------------------------------------------------------------------------------------------------
# Policies


BAD_LINES: dict[str, tuple[bytes, str, str]] = {
    "broken": (b'{"text": "b', "is no JSON", "broken JSON"),
    "not an object": (b"[1]", "holds list, not a JSON object", "broken JSON"),
    "missing": (b'{"body": "b"}', "has no field 'text'", "no such field"),
    "number": (b'{"text": 5}', "holds int in the field 'text', not text", "not text"),
    "latin-1": ('{"text": "é"}'.encode("latin-1"), "is not UTF-8", "not UTF-8"),
    "surrogate": (b'{"text": "\\ud800"}', "holds a lone surrogate", "lone surrogate"),
    "raw NUL": (b'{"text": "\0"}', "is no JSON", "broken JSON"),
}


@pytest.mark.parametrize("kind", BAD_LINES)
@pytest.mark.parametrize("end", ["", ".gz"])
def test_a_bad_line_is_named_or_left_out(tmp_path: Path, kind: str, end: str) -> None:
    bad, message, reason = BAD_LINES[kind]
    good = b'{"text": "a"}\n'
    path = tmp_path / f"a.jsonl{end}"
    path.write_bytes(COMPRESS[end](good + b"\n" + bad + b"\n" + good))
    with pytest.raises(DataError) as caught:
        read(Source("a", str(path)))
    assert f"{path}: line 3 (byte " in str(caught.value)
    assert message in str(caught.value)
    skipped = Skipped()
    assert texts_of(Source("a", str(path), on_bad_row="skip"), skipped) == ["a", "a"]
    assert skipped.rows == {reason: 1}
    assert "line 3" in skipped.examples[reason][0]
    replaced = texts_of(Source("a", str(path), on_bad_row="replace"), Skipped())
    assert replaced == (["a", "�", "a"] if kind in ("latin-1", "surrogate") else ["a", "a"])


def test_the_line_and_byte_of_an_error_do_not_depend_on_shards(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    rows = json_lines([str(i) for i in range(500)]).split(b"\n")
    rows[321] = b'{"text": "\xff"}'
    path.write_bytes(b"\n".join(rows))
    byte = sum(len(row) + 1 for row in rows[:321]) + 10
    for shard_bytes in (None, 100, 7):
        with pytest.raises(DataError, match=rf"line 322 \(byte {byte:,}\)"):
            read(Source("a", str(path)), shard_bytes=shard_bytes)
        with pytest.raises(DataError, match=rf"line 322 is not UTF-8 from byte {byte:,} on"):
            read(Source("a", str(path), format="lines"), shard_bytes=shard_bytes)


def test_bad_utf8_in_a_column(tmp_path: Path) -> None:
    values = pa.array([b"a", None, b"b\xffc", b"d"] * 3, pa.binary())
    column = pa.Array.from_buffers(pa.string(), len(values), values.buffers())
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"text": column, "g": ["x", "y", "x", "y"] * 3}), path, row_group_size=4)
    with pytest.raises(DataError, match=r"a\.parquet: row 2 of column 'text' is not UTF-8 from byte 1 on"):
        read(Source("a", str(path)))
    skipped = Skipped()
    assert texts_of(Source("a", str(path), on_bad_row="skip"), skipped) == ["a", None, "d"] * 3
    assert skipped.rows == {"not UTF-8": 3}
    assert ["row 2 " in skipped.examples["not UTF-8"][0], "row 6 " in skipped.examples["not UTF-8"][1]] == [True, True]
    assert texts_of(Source("a", str(path), on_bad_row="replace"), skipped) == ["a", None, "b�c", "d"] * 3
    assert read(Source("a", str(path), group_by="g", on_bad_row="skip"), Skipped()).count(("x", b"a")) == 3
    nested = pa.table({"m": [[{"c": b"ok"}], [{"c": b"ok"}, {"c": b"\xff"}]]})
    pq.write_table(nested, path)
    with pytest.raises(DataError, match=r"row 1 of column 'm\.c' is not UTF-8 from byte 0 on"):
        read(Source("a", str(path), "m.c"))


def test_encodings_of_text_files(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    for encoding in ("utf-16", "utf-32"):
        path.write_bytes("hello\nworld\n".encode(encoding))
        for form in ("text", "lines", "jsonl"):
            with pytest.raises(SourceError, match=rf"a\.txt is {encoding.upper()}, not UTF-8, from byte 0"):
                plan([Source("a", str(path), format=form)])
            left = Source("b", documents=["x"]), Source("a", str(path), format=form, on_bad_file="skip")
            assert [entry.bad for entry in plan(left).left_out] == [True]
    path.write_bytes("hello\nworld\n".encode("utf-16-le"))
    with pytest.raises(SourceError, match="looks like UTF-16"):
        plan([Source("a", str(path))])
    path.write_bytes("caf\xe9 au lait".encode("latin-1"))
    with pytest.raises(DataError, match=r"a\.txt is not UTF-8 from byte 3 on"):
        read(Source("a", str(path)))
    assert texts_of(Source("a", str(path), on_bad_row="replace")) == ["caf� au lait"]
    skipped = Skipped()
    path.write_bytes(b"\xef\xbb\xbfa\nb\0c\n")
    assert texts_of(Source("a", str(path)), skipped) == ["a\nb\0c\n"]
    assert "NUL" in skipped.notes[str(path)]
    skipped = Skipped()
    assert texts_of(Source("a", str(path), format="lines"), skipped) == ["a", "b\0c"]
    path.with_suffix(".jsonl").write_bytes(b'\xef\xbb\xbf{"text": "a"}\n')
    skipped = Skipped()
    assert texts_of(Source("a", str(path.with_suffix(".jsonl"))), skipped) == ["a"]
    assert "byte order mark" in next(iter(skipped.notes.values()))


def damaged(tmp_path: Path) -> dict[str, str]:
    """Files that are bad, each with what its error says."""
    pq.write_table(pa.table({"text": ["good"] * 1000}), tmp_path / "good.parquet")
    data = (tmp_path / "good.parquet").read_bytes()
    (tmp_path / "cut.parquet").write_bytes(data[: len(data) // 2])
    (tmp_path / "zero.parquet").write_bytes(b"")
    (tmp_path / "web.parquet").write_bytes(b"<!DOCTYPE html><html><body>404</body></html>")
    (tmp_path / "web.jsonl").write_bytes(b"<!DOCTYPE html>\n<html></html>\n")
    (tmp_path / "noise.parquet").write_bytes(b"no parquet at all")
    pq.write_table(pa.table({"body": ["x"], "n": [1]}), tmp_path / "column.parquet")
    pq.write_table(pa.table({"text": [1]}), tmp_path / "number.parquet")
    pq.write_table(pa.table({"text": [{"a": "x"}]}), tmp_path / "struct.parquet")
    (tmp_path / "field.jsonl").write_bytes(b'{"body": "x", "id": 1}\n')
    (tmp_path / "noise.arrow").write_bytes(b"no arrow at all, whatever the name")
    (tmp_path / "zero.arrow").write_bytes(b"")
    (tmp_path / "noise.jsonl.gz").write_bytes(b"not gzip")
    return {
        "cut.parquet": "cut short or damaged",
        "zero.parquet": "it is empty",
        "web.parquet": "looks like a web page",
        "web.jsonl": "looks like a web page",
        "noise.parquet": "it is none, and begins with b'no parquet",
        "column.parquet": "has no text column 'text'; its columns are: body, n",
        "number.parquet": "holds int64, not text",
        "struct.parquet": "'text' holds other fields; name one of them: text.a",
        "field.jsonl": "has no field 'text'; its fields are: body, id",
        "noise.arrow": "neither an Arrow IPC file nor a stream",
        "zero.arrow": "neither an Arrow IPC file nor a stream",
        "noise.jsonl.gz": "cannot be decompressed",
    }


def test_bad_files_are_found_by_the_plan(tmp_path: Path) -> None:
    for name, message in damaged(tmp_path).items():
        paths = [str(tmp_path / "good.parquet"), str(tmp_path / name)]
        with pytest.raises(SourceError) as caught:
            plan([Source("a", paths)])
        assert message in str(caught.value)
        assert name in str(caught.value)
        planned = plan([Source("a", paths, on_bad_file="skip")])
        assert [(Path(left.path).name, left.bad) for left in planned.left_out] == [(name, True)]
        assert message in planned.left_out[0].reason
        assert len(planned.files) == 1


def test_files_that_break_while_they_are_read(tmp_path: Path) -> None:
    rng = random.Random(3)
    body = json_lines([f"document {i} {rng.random()}" for i in range(40_000)])
    packed = gzip.compress(body)
    for name, data in {
        "cut.jsonl.gz": packed[:-20],
        "cut.jsonl.zst": zstd(body)[:-20],
        "cut.jsonl.bz2": bz2.compress(body)[:-20],
        "cut.jsonl.xz": lzma.compress(body, preset=0)[:-20],
        "noise.jsonl.gz": packed[: len(packed) // 2] + bytes(100) + packed[len(packed) // 2 + 100 :],
    }.items():
        path = tmp_path / name
        path.write_bytes(data)
        with pytest.raises(DataError, match=name) as caught:
            read(Source("a", str(path)))
        assert caught.value.__cause__ is not None
        skipped = Skipped()
        read(Source("a", str(path), on_bad_file="skip"), skipped)
        assert list(skipped.files) == [str(path)]


def test_a_corrupt_page_keeps_its_first_cause(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    rng = random.Random(3)
    texts = [f"{i} {rng.random()}" for i in range(5000)]
    pq.write_table(pa.table({"text": texts}), path, compression="zstd")
    data = bytearray(path.read_bytes())
    data[2000:3000] = bytes(1000)
    path.write_bytes(data)
    shard = plan([Source("a", str(path))]).shards[0]
    with pytest.raises(DataError, match=r"a\.parquet is damaged: \w+") as caught:
        list(shard.batches())
    assert isinstance(caught.value.__cause__, OSError)


def test_files_that_change_after_the_plan(tmp_path: Path) -> None:
    for name in ("a.parquet", "a.jsonl", "a.txt", "a.arrow"):
        path = tmp_path / name
        write_any(path, ["x"] * 10)
        shard = plan([Source("a", str(path))]).shards[0]
        write_any(path, ["another text"] * 1000)
        with pytest.raises(DataError, match="when the run was planned"):
            list(shard.batches())
        path.unlink()
        with pytest.raises(DataError, match="is not there"):
            list(shard.batches())
        skipped = Skipped()
        planned = plan([Source("a", [str(path)], on_bad_file="skip")]) if path.exists() else None
        assert planned is None
        gone = Shard(0, Reading("a", on_bad_file="skip"), shard.pieces)
        assert list(gone.batches(skipped)) == []
        assert "is not there" in skipped.files[str(path)]


def write_any(path: Path, texts: list[str]) -> None:
    if path.suffix == ".parquet":
        pq.write_table(pa.table({"text": texts}), path)
    elif path.suffix == ".arrow":
        with pa.ipc.new_stream(str(path), pa.schema([("text", pa.string())])) as writer:
            writer.write_table(pa.table({"text": texts}))
    elif path.suffix == ".jsonl":
        path.write_bytes(json_lines(texts))
    else:
        path.write_text("\n".join(texts))


# ---------------------------------------------------------------------------------------------------------------------
# Listings


def test_folders_leave_out_what_is_no_document_and_say_so(tmp_path: Path) -> None:
    for name in ("a/1.parquet", "a/b/2.parquet", ".hidden/3.parquet", "_temporary/4.parquet", "c/.5.parquet"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table({"text": [name]}), tmp_path / name)
    for name in ("_SUCCESS", "a/_metadata", "a/.part.crc", "a/empty.parquet"):
        (tmp_path / name).write_bytes(b"")
    (tmp_path / "README").write_text("about")
    (tmp_path / "LICENSE.txt").write_text("a licence")
    planned = plan([Source("a", str(tmp_path))])
    assert [Path(file.path).name for file in planned.files] == ["1.parquet", "2.parquet"]
    reasons = {Path(left.path).name: left.reason for left in planned.left_out}
    assert reasons == {
        "3.parquet": "hidden, or a marker", "4.parquet": "hidden, or a marker", ".5.parquet": "hidden, or a marker",
        "_SUCCESS": "hidden, or a marker", "_metadata": "hidden, or a marker", ".part.crc": "hidden, or a marker",
        "empty.parquet": "empty: no bytes", "README": "its name tells no known format",
        "LICENSE.txt": "text, beside files of parquet",
    }  # fmt: skip
    assert not any(left.bad for left in planned.left_out)


def test_globs(tmp_path: Path) -> None:
    names = ["a/1.txt", "a/2.txt", "b/1.txt", "b/c/3.txt", "b/.h.txt", "x.jsonl"]
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text('{"text": "x"}')
    for pattern, expected in {
        "*/1.txt": ["a/1.txt", "b/1.txt"],
        "a/?.txt": ["a/1.txt", "a/2.txt"],
        "[b]/*.txt": ["b/1.txt"],
        "**/*.txt": ["a/1.txt", "a/2.txt", "b/1.txt", "b/c/3.txt"],
        "b/**": ["b/1.txt", "b/c/3.txt"],
        "b/*": ["b/1.txt", "b/c/3.txt"],
        "*.jsonl": ["x.jsonl"],
    }.items():
        found = plan([Source("a", f"{tmp_path}/{pattern}")]).files
        assert [str(Path(file.path).relative_to(tmp_path)) for file in found] == expected, pattern
    for pattern in ("nothing*", "nothing/*.txt", "nothing.txt", "a/[0].txt"):
        with pytest.raises(SourceError, match="no file"):
            plan([Source("a", f"{tmp_path}/{pattern}")])


def test_paths_are_taken_letter_by_letter(tmp_path: Path) -> None:
    folder = tmp_path / "a b#c?d=e&é语[x]*%20"
    folder.mkdir()
    for name in ("1 #?.parquet", "ü语%2F.parquet"):
        pq.write_table(pa.table({"text": [name]}), folder / name)
        assert texts_of(Source("a", str(folder / name))) == [name]
    assert sorted(texts_of(Source("a", str(folder))), key=str) == ["1 #?.parquet", "ü语%2F.parquet"]
    uri = (folder / "1 #?.parquet").as_uri()
    assert uri.startswith("file://")
    assert texts_of(Source("a", uri)) == ["1 #?.parquet"]


def test_lists_of_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a b.txt", "c.txt", "#d.txt"):
        (tmp_path / name).write_text(name)
    (tmp_path / "list").write_text(f"{tmp_path}/a b.txt\r\n\n{tmp_path}/c.txt\n#d.txt")
    monkeypatch.chdir(tmp_path)
    assert sorted(texts_of(Source("a", f"@{tmp_path}/list")), key=str) == ["#d.txt", "a b.txt", "c.txt"]
    (tmp_path / "list").write_text("gone.txt\n")
    with pytest.raises(SourceError, match=r"no file matches .*gone\.txt, which .*list names"):
        plan([Source("a", "@list")])
    with pytest.raises(SourceError, match="there is no list"):
        plan([Source("a", "@nothing")])


def test_an_unknown_name_asks_for_a_format(tmp_path: Path) -> None:
    path = tmp_path / "part-00000"
    path.write_bytes(json_lines(["a"]))
    with pytest.raises(SourceError, match=r"does not tell its format\. Give one: parquet, arrow, jsonl, text, lines"):
        plan([Source("a", str(path))])
    assert texts_of(Source("a", str(path), format="jsonl")) == ["a"]
    assert texts_of(Source("a", str(tmp_path), format="jsonl")) == ["a"]
    with pytest.raises(UsageError, match=r"format: the formats are parquet, .*, not 'csv'"):
        Source("a", str(path), format="csv")


def test_nothing_to_read(tmp_path: Path) -> None:
    pq.write_table(pa.table({"text": pa.array([], pa.string())}), tmp_path / "a.parquet")
    (tmp_path / "b.jsonl").write_bytes(b"")
    for paths in (["a.parquet"], ["b.jsonl"], ["a.parquet", "b.jsonl"]):
        with pytest.raises(SourceError, match=f"no text found: the files hold no rows .*{paths[0]}"):
            plan([Source("a", [str(tmp_path / path) for path in paths])])
    with pytest.raises(SourceError, match="names no path"):
        plan([Source("a")])
    with pytest.raises(SourceError, match="two sources are named 'a'"):
        plan([Source("a", documents=["x"]), Source("a", documents=["y"])])


def test_small_files_are_packed_and_counted_once(tmp_path: Path) -> None:
    for i in range(300):
        (tmp_path / f"{i:03}.jsonl").write_bytes(json_lines([f"text {i}"]))
    planned = plan([Source("a", str(tmp_path))])
    assert len(planned.shards) == 2
    assert sum(len(shard.pieces) for shard in planned.shards) == 300
    assert texts_of(Source("a", str(tmp_path))) == [f"text {i}" for i in range(300)]
    assert "300 files" in str(plan([Source("a", str(tmp_path))], 1 << 30).shards[0])


def test_shards_are_even_pieces_of_row_groups(tmp_path: Path) -> None:
    pq.write_table(
        pa.table({"text": ["x" * 1000 + str(i) for i in range(1000)]}), tmp_path / "a.parquet", 10, use_dictionary=False
    )
    planned = plan([Source("a", str(tmp_path / "a.parquet"))], shard_bytes=100_000)
    rows = [shard.rows or 0 for shard in planned.shards]
    assert sum(rows) == 1000
    assert len(rows) == 12
    assert max(rows) - min(rows) <= 10
    assert [shard.pieces[0].first_row for shard in planned.shards] == [sum(rows[:i]) for i in range(12)]
    assert planned == plan([Source("a", str(tmp_path / "a.parquet"))], shard_bytes=100_000)


def test_the_plan_reports_each_source(tmp_path: Path) -> None:
    pq.write_table(pa.table({"text": ["x"] * 10}), tmp_path / "a.parquet")
    (tmp_path / "b.jsonl").write_bytes(json_lines(["x"] * 10))
    planned: Plan = plan(
        [Source("a", str(tmp_path / "a.parquet")), Source("b", str(tmp_path / "b.jsonl"), sample_fraction=0.5)]
    )
    a, b = planned.by_source()
    assert (a.source, a.files, a.rows, a.shards, a.fraction) == ("a", 1, 10, 1, 1.0)
    assert (b.source, b.rows, b.bytes, b.fraction) == ("b", None, 10, 0.5)
    assert planned.rows is None


# ---------------------------------------------------------------------------------------------------------------------
# The sample


def slow_keep(reading: Reading, name: str, place: int) -> bool:
    """The sample's rule with Python's integers."""
    import hashlib

    mask = 2**64 - 1
    key = int.from_bytes(hashlib.blake2b(f"{reading.seed}\0{name}".encode(), digest_size=8).digest(), "little")
    z = (key + (place + 1) * 0x9E3779B97F4A7C15) & mask
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 & mask
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB & mask
    return z ^ (z >> 31) < reading.threshold


@given(st.integers(0, 2**62), st.integers(), st.text(max_size=8), st.integers(0, 2**64))
def test_the_sample_equals_its_slow_twin(place: int, seed: int, name: str, threshold: int) -> None:
    reading = Reading("a", seed=seed, threshold=threshold)
    sample = Sample(reading, name)
    if threshold < WHOLE:
        assert bool(sample.keep(np.array([place]))[0]) == slow_keep(reading, name, place)


@pytest.mark.parametrize("name", ["a.parquet", "a.arrow", "a.jsonl", "a.txt", "a.jsonl.gz"])
def test_a_sample_does_not_depend_on_shards_or_places(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = [f"document {i}" for i in range(4000)]
    samples = []
    for folder in ("one", "two/three"):
        path = tmp_path / folder / name
        path.parent.mkdir(parents=True)
        if name.endswith(".gz"):
            path.write_bytes(gzip.compress(json_lines(texts)))
        elif name == "a.parquet":
            pq.write_table(pa.table({"text": texts}), path, row_group_size=100)
        else:
            write_any(path, texts)
        form = "lines" if name == "a.txt" else None
        for shard_bytes, batch in ((None, 4 << 20), (2000, 4 << 20), (300, 500)):
            for module in ("columns", "readers.lines", "readers.parquet"):
                monkeypatch.setattr(f"dist_bpe.corpus.{module}.BATCH_BYTES", batch)
            source = Source("a", str(path), format=form, sample_fraction=0.25)
            samples.append(texts_of(source, shard_bytes=shard_bytes))
    assert all(sample == samples[0] for sample in samples)
    assert 850 < len(samples[0]) < 1150
    assert set(samples[0]) <= set(texts)
    other = texts_of(Source("a", str(path), format=form, sample_fraction=0.25, seed=1))
    assert other != samples[0]
    assert set(samples[0]) <= set(texts_of(Source("a", str(path), format=form, sample_fraction=0.5)))


def test_a_sample_is_drawn_by_row_so_that_grouping_and_lists_do_not_change_it(tmp_path: Path) -> None:
    rows = [{"m": [{"c": f"{i} {j}"} for j in range(i % 3)], "g": "xy"[i % 2]} for i in range(900)]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "a.parquet", row_group_size=50)
    path = str(tmp_path / "a.parquet")
    plain = texts_of(Source("a", path, "m.c", sample_fraction=0.3))
    grouped = read(Source("a", path, "m.c", "g", sample_fraction=0.3))
    assert ordered(text.decode() for _, text in grouped if text) == ordered(plain)
    assert {text.decode().split()[0] for name, text in grouped if text and name == "x"} <= {
        str(i) for i in range(0, 900, 2)
    }
    ids = {text.split()[0] for text in plain if text}
    assert all(f"{i} {j}" in plain for i in map(int, ids) for j in range(i % 3))


def test_max_bytes_draws_the_share_that_sizes_allow(tmp_path: Path) -> None:
    texts = [f"{i} " * 50 for i in range(5000)]
    size = sum(map(len, texts))
    pq.write_table(pa.table({"text": texts}), tmp_path / "a.parquet")
    (tmp_path / "a.jsonl").write_bytes(json_lines(texts))
    (tmp_path / "b.jsonl.gz").write_bytes(gzip.compress(json_lines(texts)))
    (tmp_path / "a.txt").write_text("\n".join(texts))
    with pa.ipc.new_file(str(tmp_path / "a.arrow"), pa.schema([("text", pa.string())])) as writer:
        writer.write_table(pa.table({"text": texts}), max_chunksize=500)
    for name in ("a.parquet", "a.jsonl", "b.jsonl.gz", "a.txt", "a.arrow"):
        form = "lines" if name == "a.txt" else None
        source = Source("a", str(tmp_path / name), format=form, max_bytes=size // 4)
        assert sum(len(text or "") for text in texts_of(source)) == pytest.approx(size / 4, rel=0.25), name
        whole = Source("a", str(tmp_path / name), format=form, max_bytes=10 * size)
        assert len(texts_of(whole)) == 5000
    for options, message in (
        ({"sample_fraction": 0.0}, "sample_fraction: it should be greater than 0, not 0.0"),
        ({"max_bytes": 0}, "max_bytes: it should be greater than or equal to 1, not 0"),
    ):
        with pytest.raises(UsageError, match=message):
            Source("a", "x", **options)
