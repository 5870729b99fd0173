"""What a run says of what it found and of what it left out: in the plan, the summary, the report and the manifest."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import Writer
from helpers import COMPRESS, run

import dist_bpe
from dist_bpe.corpus.documents import MOST_NAMED, Skipped
from dist_bpe.corpus.plan import plan
from dist_bpe.corpus.source import Source
from dist_bpe.counting.table import CountTable


@pytest.fixture
def folder(tmp_path: Path, write: Writer) -> Path:
    """A folder with two good files, bad files, bad rows and what listings pass over."""
    write("in/a.parquet", ["one two", None, "three"] * 10)
    values = pa.array([b"four", b"b\xffd"], pa.binary())
    pq.write_table(
        pa.table({"text": pa.Array.from_buffers(pa.string(), 2, values.buffers())}), tmp_path / "in" / "b.parquet"
    )
    (tmp_path / "in" / "web.parquet").write_text("<html>sign in</html>")
    (tmp_path / "in" / "_SUCCESS").touch()
    (tmp_path / "in" / "notes.xyz").write_text("x")
    (tmp_path / "chat.jsonl").write_text('{"text": "five"}\n{"text": 5}\n{"body": "x"}\n')
    return tmp_path


def inputs(folder: Path) -> list[str]:
    return [f"a={folder / 'in'}", f"chat={folder / 'chat.jsonl'}", "--on-bad-file", "skip", "--on-bad-row", "skip"]


def test_the_plan_says_what_is_there_and_what_is_left_out(folder: Path) -> None:
    ran = run("plan", *inputs(folder))
    assert ran.exit_code == 0, ran.stderr
    out = " ".join(ran.stdout.split())
    assert "a 2 32" in out
    assert f"left out: {folder}/in/web.parquet cannot be read as Parquet: it looks like a web page" in out
    assert "files that are left out: 1 (hidden, or a marker), as " in out
    assert "of memory a task" in out
    ran = run("plan", *inputs(folder), "--json", "--max-bytes", "2")
    found = json.loads(ran.stdout)
    first, second = found["sources"]
    assert (first["source"], first["files"], first["rows"], first["shards"], first["left_out"]) == ("a", 2, 32, 1, 3)
    assert (second["source"], second["rows"]) == ("chat", None)
    assert first["core_seconds"] > 0
    assert 0 < first["fraction"] < 1
    assert found["task_bytes"] > 0
    assert {Path(left["path"]).name: left["bad"] for left in found["left_out"]} == {
        "web.parquet": True, "_SUCCESS": False, "notes.xyz": False,
    }  # fmt: skip
    assert "by the sizes in the footers" in found["notes"][0]
    assert "estimated from the start of each file" in found["notes"][1]
    assert not (folder / "counts").exists()


def test_the_plan_of_a_file_and_of_what_cannot_be_read(folder: Path) -> None:
    (folder / "run.toml").write_text(
        f'output = "{folder}/run"\n[[sources]]\nname = "a"\npaths = "{folder}/in"\non_bad_file = "skip"\n'
    )
    assert "web page" in run("plan", folder / "run.toml").stdout
    assert json.loads(run("plan", folder / "run.toml", "--json").stdout)["sources"][0]["files"] == 2
    beside = run("plan", folder / "run.toml", "--on-bad-file", "error")
    assert (beside.exit_code, "web page" in beside.stderr) == (2, True)
    for arguments in ((folder / "in",), (folder / "in" / "nothing",), ()):
        ran = run("plan", *arguments)
        assert ran.exit_code == 2
        assert ran.stderr.startswith("error: ")


def test_what_was_left_out_is_in_the_summary_the_report_and_the_manifest(folder: Path) -> None:
    ran = run("count", *inputs(folder), "--sample-fraction", "0.999999", "-o", folder / "run", "--engine", "local")
    assert ran.exit_code == 0, ran.stderr
    for text in (
        "web.parquet cannot be read as Parquet",
        f"rows that are left out: 1 (not UTF-8), as in {folder}/in/b.parquet: row 1 ",
        f"rows that are left out: 1 (no such field), as in {folder}/chat.jsonl: line 3 ",
        f"rows that are left out: 1 (not text), as in {folder}/chat.jsonl: line 2 ",
    ):
        assert text in ran.stdout, ran.stdout
    left = json.loads((folder / "run" / "report.json").read_text())["left_out"]
    assert {Path(file["path"]).name for file in left["files"]} == {"web.parquet", "_SUCCESS", "notes.xyz"}
    assert left["while_reading"]["rows"] == {"not UTF-8": 1, "no such field": 1, "not text": 1}
    assert (
        "b.parquet: row 1 of column 'text' is not UTF-8 from byte 1"
        in left["while_reading"]["examples"]["not UTF-8"][0]
    )
    manifest = json.loads((folder / "run" / "counts" / "manifest.json").read_text())
    sample = {"seed": 0, "below": f"{int(0.999999 * 2**64):016x}"}
    assert manifest["selection"] == {
        "a": {"sample": sample, "rows": {"not UTF-8": 1}, "files": 1},
        "chat": {"sample": sample, "rows": {"no such field": 1, "not text": 1}},
    } == left["selection"]  # fmt: skip
    assert manifest["sources"]["a"]["nulls"] == 10
    assert str(folder) not in json.dumps(manifest)
    assert run("count", folder / "in" / "a.parquet", "-o", folder / "clean", "--engine", "local").exit_code == 0
    assert json.loads((folder / "clean" / "counts" / "manifest.json").read_text())["selection"] == {}


def test_thousands_of_bad_files_are_not_a_wall_of_warnings(tmp_path: Path, write: Writer) -> None:
    write("in/good.parquet", ["a"])
    for i in range(40):
        (tmp_path / "in" / f"{i}.parquet").write_text("<html>")
    planned = plan([Source("a", str(tmp_path / "in"), on_bad_file="skip")])
    assert len(planned.left_out) == 40
    assert len(planned.warnings()) == MOST_NAMED + 1
    assert "20 more bad files" in planned.warnings()[-1]
    skipped = Skipped(files={f"{i}.parquet": "is damaged" for i in range(40)})
    assert len(skipped.warnings()) == MOST_NAMED + 1


def test_the_manifest_does_not_depend_on_shards_or_workers(folder: Path) -> None:
    manifests: list[Any] = []
    for extra in ([], ["--workers", "1"], ["--shard-bytes", "50"]):
        out = folder / f"run{len(manifests)}"
        ran = run("count", *inputs(folder), "-o", out, "--engine", "local", *extra)
        assert ran.exit_code == 0, ran.stderr
        manifests.append(CountTable.open(out).digest)
    assert len(set(manifests)) == 1


def test_every_format_and_place_gives_the_same_count_table(tmp_path: Path, documents: list[str]) -> None:
    """The same documents, one of them null, as files of every format, as objects, in pieces, and by another place."""
    import datasets
    import fsspec

    texts = [*documents, None, "\u2028a\u0085b\x0c\x1c c\r"]
    table = pa.table({"text": texts, "id": range(len(texts))})
    folder = tmp_path / "a b#c?d=é语%20[x]"
    folder.mkdir()
    rows = b"".join(json.dumps({"id": i, "text": text}).encode() + b"\n" for i, text in enumerate(texts))
    pq.write_table(table, folder / "plain.parquet", row_group_size=37)
    view = table.set_column(0, "text", table.column("text").cast(pa.string_view()))
    with pa.ipc.new_file(str(folder / "views.arrow"), view.schema) as writer:
        writer.write_table(view, 50)
    coded = table.set_column(0, "text", table.column("text").combine_chunks().dictionary_encode())
    with pa.ipc.new_stream(str(folder / "coded.arrows"), coded.schema) as stream:
        stream.write_table(coded)
    pq.write_table(coded, folder / "coded.parquet", compression="zstd")
    nested = pa.table({"doc": [{"text": text, "n": 1} for text in texts]})
    pq.write_table(nested, folder / "nested.parquet")
    (folder / "lines.jsonl").write_bytes(rows)
    for end in COMPRESS:
        (folder / f"lines.jsonl{end}").write_bytes(COMPRESS[end](rows))
    datasets.Dataset.from_dict({"text": texts}).save_to_disk(str(folder / "saved"), num_shards=2)
    fsspec.filesystem("memory").pipe("/tables/a #?.jsonl", rows)
    chosen = [Source("a", str(path)) for path in sorted(folder.iterdir()) if path.name != "nested.parquet"]
    chosen += [
        Source("a", str(folder / "nested.parquet"), "doc.text"),
        Source("a", (folder / "plain.parquet").as_uri()),
        Source("a", "memory://tables/a #?.jsonl"),
        Source("a", documents=texts),
        Source("a", documents=(text for text in texts)),
        Source("a", documents=datasets.Dataset.from_dict({"text": texts}).shuffle(seed=1)),
        Source("a", documents=datasets.Dataset.from_dict({"text": texts}).to_iterable_dataset(num_shards=2)),
    ]
    assert len(chosen) == 17
    digests = {}
    for i, source in enumerate(chosen):
        options: Any = {"shard_bytes": 5000} if i % 2 else {}
        counts = dist_bpe.count(
            source, output=tmp_path / f"run{i}", engine="local", workers=2, progress="silent", partitions=2, **options
        )
        digests[f"{i} {source}"] = counts.digest
    assert len(set(digests.values())) == 1, digests
    # Text files hold no nulls, and no document with a newline in it.
    whole = [text for text in texts if text and "\n" not in text]
    (folder / "lines.txt").write_text("\n".join(whole), newline="")
    for i, text in enumerate(whole):
        (folder / "each" / f"{i}.txt").parent.mkdir(exist_ok=True)
        (folder / "each" / f"{i}.txt").write_text(text, newline="")
    found = {
        dist_bpe.count(source, output=tmp_path / name, engine="local", progress="silent", partitions=2).digest
        for name, source in (
            ("by-line", Source("a", str(folder / "lines.txt"), format="lines")),
            ("by-file", Source("a", str(folder / "each"))),
            ("objects", Source("a", documents=whole)),
        )
    }
    assert len(found) == 1
