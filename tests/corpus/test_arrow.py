"""Arrow files whose buffers lie: each is one sentence, and no foreign memory is counted."""

import struct
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from mutation import outcome

from dist_bpe.corpus.columns import checked
from dist_bpe.corpus.plan import plan
from dist_bpe.corpus.source import Source
from dist_bpe.errors import BadFile, DistBpeError, SourceError

TEXTS = ["first", "second text that is longer than twelve bytes", None, "third"] * 5


def column(kind: Any) -> Any:
    values = pa.array(TEXTS, pa.string())
    if pa.types.is_dictionary(kind):
        return values.dictionary_encode().cast(kind)
    if kind in (
        pa.list_(pa.string()),
        pa.large_list(pa.string()),
        pa.list_view(pa.string()),
        pa.large_list_view(pa.string()),
    ):
        return pa.array([[text] * 2 for text in TEXTS], kind)
    return values.cast(kind)


KINDS = [
    pa.string(), pa.large_string(), pa.binary(), pa.string_view(), pa.binary_view(), pa.list_(pa.string()),
    pa.large_list(pa.string()), pa.list_view(pa.string()), pa.large_list_view(pa.string()),
    pa.dictionary(pa.int32(), pa.string()), pa.dictionary(pa.int8(), pa.large_string()),
]  # fmt: skip


def written(path: Path, array: Any, stream: bool = False) -> bytes:
    new = pa.ipc.new_stream if stream else pa.ipc.new_file
    with new(str(path), pa.schema([("text", array.type)])) as writer:
        writer.write_batch(pa.record_batch({"text": array}))
    return path.read_bytes()


def read(path: Path) -> list[Any]:
    shards = plan([Source("s", str(path))]).shards
    return [text for shard in shards for _, texts, _ in shard.batches() for text in texts.to_pylist()]


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("stream", [False, True], ids=["file", "stream"])
def test_numbers_that_lead_outside_are_a_bad_file(tmp_path: Path, kind: Any, stream: bool) -> None:
    """Every number of every buffer of offsets, sizes, views and indices is made huge, one at a time."""
    path = tmp_path / "a.arrow"
    array = column(kind)
    data = written(path, array, stream)
    right = read(path)
    buffers = {
        buffer.to_pybytes()
        for part in [array, *([array.indices] if pa.types.is_dictionary(kind) else [])]
        for buffer in part.buffers()[1:]
        if buffer is not None and buffer.size >= 8
    }
    tried = 0
    for buffer in buffers:
        start = data.find(buffer)
        if start < 0:
            continue
        for at in range(start, start + min(len(buffer) - 3, 32), 4):
            for value in (0x7FFFFFFF, -2):
                if data[at : at + 4].isalpha():
                    continue  # of a text
                path.write_bytes(data[:at] + struct.pack("<i", value) + data[at + 4 :])
                end = outcome(lambda: read(path))
                assert end.kind in ("result", "error"), (at, value, end)
                tried += 1
                if end.kind == "error":
                    assert "a.arrow" in end.text
                elif len(end.value) != len(right):
                    pytest.fail(f"{at}: {end}")
        path.write_bytes(data)
    assert tried > 8 or pa.types.is_dictionary(kind)


def view_out_of_bounds() -> bytes:
    """A string_view whose second value lies a gigabyte behind its buffer: the process used to end here."""
    sink = pa.BufferOutputStream()
    array = pa.array(["short", "a text that is longer than twelve bytes"], pa.string_view())
    with pa.ipc.new_file(sink, pa.schema([("text", array.type)])) as writer:
        writer.write_batch(pa.record_batch({"text": array}))
    data = sink.getvalue().to_pybytes()
    view = array.buffers()[1].to_pybytes()[16:32]
    return data.replace(view, view[:12] + struct.pack("<i", 1 << 30))


def test_a_view_behind_its_buffer_by_both_policies(tmp_path: Path) -> None:
    path = tmp_path / "a.arrow"
    path.write_bytes(view_out_of_bounds())
    with pytest.raises(DistBpeError, match=r"a\.arrow is damaged"):
        read(path)
    written(tmp_path / "b.arrow", pa.array(["good"]))
    planned = plan([Source("s", str(tmp_path), on_bad_file="skip")])
    assert [Path(file.path).name for file in planned.files] == ["b.arrow"]


def test_texts_that_are_no_utf8_are_no_damage() -> None:
    bad = pa.array([b"\xff", b"a"]).view(pa.binary())
    text = pa.Array.from_buffers(pa.string(), 2, bad.buffers())
    nested = pa.ListArray.from_arrays(pa.array([0, 1, 2], pa.int32()), text)
    inside = pa.StructArray.from_arrays([text, nested], ["a", "b"])
    words = pa.DictionaryArray.from_arrays(pa.array([0, 1], pa.int8()), text)
    pairs = pa.MapArray.from_arrays(pa.array([0, 1, 2], pa.int32()), text, text)
    for array in (text, nested, inside, words, pairs, text.slice(1), nested.slice(1)):
        assert checked(pa.record_batch({"x": array}), "f").num_columns == 1
    broken = pa.Array.from_buffers(
        pa.string(), 2, [None, pa.py_buffer(struct.pack("<3i", 0, 9000, 1)), bad.buffers()[2]]
    )
    for array in (broken, pa.StructArray.from_arrays([broken], ["a"])):
        with pytest.raises(BadFile, match="f is damaged"):
            checked(pa.record_batch({"x": array}), "f")


@pytest.mark.parametrize("form", ["file", "stream", "parquet"])
def test_two_columns_of_one_name_are_said_by_the_plan(tmp_path: Path, form: str) -> None:
    import pyarrow.parquet as pq

    table = pa.Table.from_arrays(
        [pa.array(["a"]), pa.array(["b"]), pa.array(["c"]), pa.array(["d"])], ["text", "x", "text", "y"]
    )
    path = tmp_path / ("a.parquet" if form == "parquet" else "a.arrow")
    if form == "parquet":
        pq.write_table(table, path)
    else:
        with (pa.ipc.new_file if form == "file" else pa.ipc.new_stream)(str(path), table.schema) as writer:
            writer.write_table(table)
    with pytest.raises(BadFile, match="has two columns named 'text'"):
        plan([Source("s", str(path))])
    shards = plan([Source("s", str(path), text="x")]).shards
    assert [batch.texts.to_pylist() for batch in shards[0].batches()] == [[b"b"]]


def test_a_file_and_a_stream_without_batches(tmp_path: Path) -> None:
    schema = pa.schema([("text", pa.string())])
    for name, writer in (("a.arrow", pa.ipc.new_file), ("b.arrow", pa.ipc.new_stream)):
        with writer(str(tmp_path / name), schema):
            pass
    written(tmp_path / "c.arrow", pa.array(["good"]))
    planned = plan([Source("s", str(tmp_path))])
    assert len(planned.shards) == 1
    for name in ("a.arrow", "b.arrow"):
        with pytest.raises(SourceError, match="the files hold no rows"):
            plan([Source("s", str(tmp_path / name))])
