"""What is ours, who may make what, and what is there already: run/resume.py, with publish, balance and train."""

import json
import threading
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import SMALL, Writer
from helpers import hashes, quiet, run

import dist_bpe
from dist_bpe.errors import DistBpeError, RunError
from dist_bpe.progress import Progress
from dist_bpe.run.resume import claimed
from dist_bpe.storage.layout import VOCABULARIES


@pytest.fixture
def source(write: Writer, documents: list[str]) -> dist_bpe.Source:
    return dist_bpe.Source("s", str(write("in/a.parquet", documents).parent))


def test_a_folder_counts_of_somebody_else_stays(source: dist_bpe.Source, tmp_path: Path) -> None:
    counts = tmp_path / "run" / "counts"
    counts.mkdir(parents=True)
    (counts / "mine.csv").write_text("kept")
    (counts / "manifest.json").write_text('{"kind": "count-table"}')
    for options in ({}, {"overwrite": True}, {"restart": True}):
        with pytest.raises(RunError):
            quiet(source, output=tmp_path / "run", **SMALL, **options)
        assert (counts / "mine.csv").read_text() == "kept"
    (counts / "mine.csv").unlink()
    (counts / "manifest.json").write_text('{"kind": "another thing"}')
    with pytest.raises(RunError, match=r"counts is no count table of ours .*its manifest is of something else"):
        quiet(source, output=tmp_path / "run", overwrite=True, **SMALL)
    words = tmp_path / "w.txt"
    words.write_text("ab 3\n")
    with pytest.raises(RunError, match="is no count table of ours"):
        dist_bpe.import_counts(words, output=tmp_path / "run", overwrite=True, progress="silent")
    assert (counts / "manifest.json").read_text() == '{"kind": "another thing"}'


def test_names_lead_nowhere_else(source: dist_bpe.Source, tmp_path: Path) -> None:
    table = quiet(source, output=tmp_path / "run", **SMALL)
    before = hashes(table.folder)  # type: ignore[arg-type]
    for name in ("../counts", "../../x", "/tmp/x", "a/b", ".", "..", ".hidden", ""):  # noqa: S108  # refused
        ran = run("learn", tmp_path / "run", "--vocab-size", "300", "--overwrite", "--name", name)
        assert (ran.exit_code, "--name: " in ran.stderr) == (2, True), ran.stderr
    assert hashes(table.folder) == before  # type: ignore[arg-type]
    assert not (tmp_path / "x").exists()


def test_a_strangers_vocabulary_stays(source: dist_bpe.Source, tmp_path: Path) -> None:
    quiet(source, output=tmp_path / "run", **SMALL)
    folder = tmp_path / "run" / "vocabularies" / "mine"
    folder.mkdir(parents=True)
    (folder / "tokenizer.json").write_text("{}")
    ran = run("learn", tmp_path / "run", "--vocab-size", "300", "--name", "mine")
    assert (ran.exit_code, "tokenizer.json is there and is no file that was written here" in ran.stderr) == (6, True)
    assert [path.name for path in folder.iterdir()] == ["tokenizer.json"]
    assert (folder / "tokenizer.json").read_text() == "{}"
    assert run("learn", tmp_path / "run", "--vocab-size", "300", "--name", "mine", "--overwrite").exit_code == 0


def test_the_same_command_again_is_done_at_once(source: dist_bpe.Source, tmp_path: Path) -> None:
    path = str(source.paths)
    for name in ("one", "two"):
        quiet(dist_bpe.Source(name, path), output=tmp_path / name, **SMALL)
    (tmp_path / "w.txt").write_text("ab 30\nabc 9\n")
    parallel = {
        "lang": ["one", "two"] * 6,
        "doc": [str(i // 2) for i in range(12)],
        "text": [f"low {i}" for i in range(12)],
    }
    pq.write_table(pa.table(parallel), tmp_path / "p.parquet")
    local = ["--engine", "local", "--workers", "1"]
    commands: list[tuple[list[object], list[str]]] = [
        (["count", path, "-o", tmp_path / "c", *local], ["--pattern", "cl100k"]),
        (["train", path, "-o", tmp_path / "t", "--vocab-size", "300,320", *local], ["--min-pair-count", "3"]),
        (["add", tmp_path / "one", tmp_path / "two", "-o", tmp_path / "sum"], [str(tmp_path / "c")]),
        (["learn", tmp_path / "w", "--counts", tmp_path / "w.txt", "--vocab-size", "258"], ["--pattern", "cl100k"]),
        (["learn", tmp_path / "sum", "--vocab-size", "300", "--alpha", "0.5"], ["--max-token-bytes", "3"]),
        (["balance", tmp_path / "sum", "--vocab-size", "300"], ["--rounds", "2"]),
        (["export", tmp_path / "t/vocabularies/300", "-o", tmp_path / "out"], ["--format", "gpt2"]),
        (["split", tmp_path / "p.parquet", "-o", tmp_path / "sets"], ["--seed", "7"]),
    ]  # fmt: skip
    for command, other in commands:
        first = run(*map(str, command))
        assert first.exit_code == 0, (command, first.stderr)
        # The mixture is made again, to the same bytes; its report has other times.
        anew = command[0] in ("balance", "split")
        before = {
            file: (file.read_bytes(), 0 if anew else file.stat().st_mtime_ns)
            for file in tmp_path.rglob("*")
            if file.is_file() and "lease" not in file.parts and not (anew and file.suffix == ".json")
        }
        again = run(*map(str, command))
        assert again.exit_code == 0, (command, again.stderr)
        for file, (content, modified) in before.items():
            assert file.read_bytes() == content, (command, file)
            assert modified in (0, file.stat().st_mtime_ns), (command, file)
        changed = run(*map(str, command), *other)
        assert changed.exit_code in (2, 6), (command, changed.stderr)
        assert "--overwrite" in changed.stderr, (command, changed.stderr)


def test_mixtures_that_were_edited_or_are_not_ours_stay(source: dist_bpe.Source, tmp_path: Path) -> None:
    quiet(source, output=tmp_path / "run", **SMALL)
    command = ["balance", tmp_path / "run", "--vocab-size", "300"]
    assert run(*command).exit_code == 0
    mixture = tmp_path / "run" / "mixtures" / "balanced.toml"
    edited = mixture.read_text() + "# mine\n"
    mixture.write_text(edited)
    for more in ([], ["--overwrite"]):
        ran = run(*command, *more)
        assert (ran.exit_code, "was edited since, or was not made here" in ran.stderr) == (6, True)
    assert mixture.read_text() == edited
    (tmp_path / "x.json").write_text("[1]")
    ran = run(*command, "-o", tmp_path / "x.toml", "--overwrite")
    assert ran.exit_code == 6
    assert json.loads((tmp_path / "x.json").read_text()) == [1]
    assert not (tmp_path / "x.toml").exists()
    assert run(*command, "-o", tmp_path / "x.txt").exit_code == 2


def test_two_at_once_do_not_make_one_name(source: dist_bpe.Source, tmp_path: Path) -> None:
    table = quiet(source, output=tmp_path / "run", **SMALL)
    entered, leave = threading.Event(), threading.Event()

    def hold() -> None:
        with claimed(table.folder.parent, VOCABULARIES, ["300"], Progress("silent")):
            entered.set()
            leave.wait(60)

    holder = threading.Thread(target=hold)
    holder.start()
    try:
        assert entered.wait(30)
        # Of this process, which lives: its heartbeat is waited for, and heard.
        ran = run("learn", tmp_path / "run", "--vocab-size", "300", "--no-verify")
        assert (ran.exit_code, "another driver works on" in ran.stderr) == (6, True), ran.stderr
        assert run("learn", tmp_path / "run", "--vocab-size", "310", "--no-verify").exit_code == 0
    finally:
        leave.set()
        holder.join()
    assert run("learn", tmp_path / "run", "--vocab-size", "300", "--no-verify").exit_code == 0


def test_the_folder_counts_may_be_named_itself(source: dist_bpe.Source, tmp_path: Path) -> None:
    table = quiet(source, output=tmp_path / "run", **SMALL)
    assert run("learn", table.folder, "--vocab-size", "300", "--no-verify").exit_code == 0
    assert (tmp_path / "run" / "vocabularies" / "300" / "manifest.json").exists()
    assert sorted(path.name for path in Path(str(table.folder)).iterdir()) == sorted(
        ["manifest.json", *(part.name for part in table.parts)]
    )


def test_a_damaged_report_hinders_nothing(source: dist_bpe.Source, tmp_path: Path) -> None:
    quiet(source, output=tmp_path / "run", **SMALL)
    command = ["learn", tmp_path / "run", "--vocab-size", "300", "--no-verify"]
    assert run(*command).exit_code == 0
    report = tmp_path / "run" / "vocabularies" / "300" / "report.json"
    for content in ("", "[]", "{}", '{"curve": {"300": {"s": "x"}}, "bytes_per_token": {"s": "x"}, "mixture": [3]}'):
        report.write_text(content)
        ran = run(*command)
        assert (ran.exit_code, "300 tokens" in ran.stdout) == (0, True), ran.stderr


def test_a_table_of_ours_that_is_damaged_can_be_replaced(source: dist_bpe.Source, tmp_path: Path) -> None:
    table = quiet(source, output=tmp_path / "run", **SMALL)
    right = hashes(table.folder)

    def empty() -> None:
        (table.folder / "manifest.json").write_bytes(b"")

    def gone() -> None:
        (table.folder / "manifest.json").unlink()

    def partly() -> None:
        table.parts[0].unlink()  # type: ignore[union-attr]

    for damage, said in (
        (empty, r"manifest\.json is damaged"),
        (gone, r"parts of a count table without their manifest: restore it, or count again with overwrite"),
        (partly, r"lacks .*part-00000"),
    ):
        damage()
        with pytest.raises(DistBpeError, match=rf"{said}.*--overwrite"):
            quiet(source, output=tmp_path / "run", **SMALL)
        assert "damaged" in run("status", tmp_path / "run").stdout
        quiet(source, output=tmp_path / "run", overwrite=True, **SMALL)
        assert hashes(table.folder) == right
    (tmp_path / "run" / "plan.json").write_text("{")
    with pytest.raises(RunError, match=r"plan\.json, which says what it was counted from, is damaged"):
        quiet(source, output=tmp_path / "run", **SMALL)


def test_documents_in_memory_twice_say_why(tmp_path: Path) -> None:
    documents = dist_bpe.Source("s", documents=["a b", "c"])
    quiet(documents, output=tmp_path / "run", **SMALL)
    with pytest.raises(RunError, match=r"documents in memory cannot be compared .*CountTable\.open.*overwrite"):
        quiet(documents, output=tmp_path / "run", **SMALL)


@pytest.mark.usefixtures("source")
def test_a_run_that_begins_anew_makes_its_vocabulary_anew(tmp_path: Path) -> None:
    given = (
        "train",
        tmp_path / "in",
        "-o",
        tmp_path / "run",
        "--vocab-size",
        "280",
        "--engine",
        "local",
        "--no-verify",
    )
    assert run(*given).exit_code == 0
    pq.write_table(pa.table({"text": ["zqz zqz zqz"] * 2000}), tmp_path / "in" / "b.parquet")
    ran = run(*given)
    assert ran.exit_code == 6
    assert "b.parquet is new" in ran.stderr
    assert run(*given, "--restart").exit_code == 0
    assert "zqz" in (tmp_path / "run" / "vocabularies" / "280" / "vocab.json").read_text()


def test_a_file_in_lease_that_is_not_ours_stays(source: dist_bpe.Source, tmp_path: Path) -> None:
    mine = tmp_path / "run" / "lease" / "123456"
    mine.parent.mkdir(parents=True)
    mine.write_text("released")  # as if its owner had said so: nobody waits for it
    quiet(source, output=tmp_path / "run", **SMALL)
    assert mine.read_text() == "released"


@pytest.mark.usefixtures("source")
def test_a_run_folder_whose_name_is_no_utf8(tmp_path: Path) -> None:
    given = ("train", tmp_path / "in", "--vocab-size", "280", "--engine", "local", "--no-verify", "-o")
    assert run(*given, f"{tmp_path}/o\udcff").exit_code == 0
    assert run(*given, f"{tmp_path}/o").exit_code == 0
    assert hashes(Path(f"{tmp_path}/o\udcff/vocabularies")) == hashes(tmp_path / "o" / "vocabularies")
