"""What a log sees: a line at once, one every few seconds even while nothing ends; no terminal codes; JSON if asked."""

import re
import time
import warnings
from pathlib import Path
from typing import Any

import pytest
from conftest import Writer
from helpers import events_of
from typer.testing import CliRunner

from dist_bpe import progress
from dist_bpe.cli.main import app


def test_lines_move_while_nothing_advances(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dist_bpe.progress.LINE_AFTER_SECONDS", 0.1)
    monkeypatch.setattr("dist_bpe.progress.LINE_EVERY_SECONDS", 0.05)
    steps = progress.Progress("lines")
    with steps.stage("count", 2_000_000, "bytes") as stage:
        assert capsys.readouterr().err == ""
        stage.advance(1_500_000, "shard 1 of 2")
        stage.worker_peak(7)
        time.sleep(0.4)
        first, second, *_ = capsys.readouterr().err.splitlines()
        assert re.fullmatch(r"\d\d:\d\d:\d\d count: …", first)
        assert re.fullmatch(r"\d\d:\d\d:\d\d count: 1\.5 MB of 2\.0 MB \(75%\), shard 1 of 2, 0 s", second)
    assert re.search(r"^\d\d:\d\d:\d\d count: done, 1\.5 MB, shard 1 of 2, 0\.", capsys.readouterr().err, re.M)
    (record,) = steps.records
    assert (record.name, record.worker_peak_bytes) == ("count", 7)
    assert record.seconds >= 0.3
    assert record.peak_bytes > 1_000_000


def test_a_short_stage_takes_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    steps = progress.Progress("lines")
    with steps.stage("plan"):
        pass
    assert re.fullmatch(r"\d\d:\d\d:\d\d plan: done, 0\.\d s\n", capsys.readouterr().err)
    assert progress.LINE_AFTER_SECONDS + progress.LINE_EVERY_SECONDS < 5  # something moves by then


def test_silence_and_warnings(capsys: pytest.CaptureFixture[str]) -> None:
    steps = progress.Progress("silent")
    with steps.stage("learn"):
        steps.say("nothing")
        steps.warn("this changes the result")
    assert capsys.readouterr().err == "warning: this changes the result\n"


def test_bars_on_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    steps = progress.Progress("bars")
    with steps.stage("merge", 4, "parts") as stage:
        stage.advance(4, "9 rows")
    assert "4/4" in capsys.readouterr().err


def test_names_are_shown_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    """Not as markup, and not as what a terminal acts on; nor with what is secret in them."""
    for style in ("bars", "lines", "silent"):
        steps = progress.Progress(style)
        with steps.stage("[/b]", 4, "parts") as stage:
            stage.advance(4, "[/b][red]x\x1b[2J\n")
            steps.warn("s3://KEY:VEILED@bucket/[/b][red]\x1b[2J\udcff\n is odd")
        text = capsys.readouterr().err
        assert "warning: s3://bucket/[/b][red]\\x1b[2J\\xff\\n is odd\n" in text
        assert "\x1b[2J" not in text
        if style == "bars":
            assert "[/b][red]x\\x1b[2J\\n" in text


def test_a_failed_stage_is_not_recorded() -> None:
    steps = progress.Progress("silent")
    with pytest.raises(RuntimeError), steps.stage("merge"):
        raise RuntimeError
    assert steps.records == []


@pytest.mark.parametrize(
    ("size", "text"), [(0, "0 B"), (999, "999 B"), (1500, "1.5 kB"), (2.5e9, "2.5 GB"), (3e15, "3000.0 TB")]
)
def test_sizes_for_people(size: float, text: str) -> None:
    assert progress.human_bytes(size) == text


def told(*arguments: object, code: int = 0, **environment: str) -> list[dict[str, Any]]:
    """What a command told, as JSON; nothing else may stand on either stream."""
    ran = CliRunner().invoke(app, list(map(str, arguments)), env=environment)
    assert ran.exit_code == code, ran.stderr
    assert ran.stdout == ""
    return events_of(ran.stderr)


def test_json_lines_tell_all_of_a_run(write: Writer, tmp_path: Path, documents: list[str]) -> None:
    write("in/a.parquet", documents)
    output = tmp_path / "run"
    command = ["train", tmp_path / "in", "-o", output, "--vocab-size", 600, "--engine", "local", "--workers", 1]
    command += ["--shard-bytes", 9000, "--partitions", 2, "--log-format", "json"]
    events = told(*command)
    names = [event["event"] for event in events]
    assert [event["stage"] for event in events if event["event"] == "stage_ended"] == [
        "plan", "start local", "count", "merge", "learn", "export",
    ]  # fmt: skip
    shards = [event for event in events if event["event"] == "attempt_finished" and event["stage"] == "count"]
    (began,) = (event for event in events if event["event"] == "run_began")
    assert began["run"] == str(output)
    assert len(shards) == began["shards"] > 3
    assert (shards[-1]["left"], shards[-1]["tasks"]) == (0, began["shards"])
    (finished,) = (event for event in events if event["event"] == "finished")
    for name in ("documents", "bytes", "words"):
        assert sum(shard[name] for shard in shards) == finished[name] > 0
    assert names[-1] == "finished"
    assert told(*command)[-1]["event"] == "finished"  # what is there already is done at once
    (error,) = told(*command, "--pattern", "cl100k", code=6)[-1:]
    assert (error["event"], error["kind"], error["exit_code"]) == ("error", "RunError", 6)
    assert "--overwrite" in error["text"]
    assert told("learn", output, "--vocab-size", 500, DIST_BPE_LOG_FORMAT="json")[-1]["vocabulary"] == 500


def test_json_lines_of_what_goes_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def learn(*_: Any) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            warnings.warn("odd", stacklevel=1)
        raise ZeroDivisionError("s3://me:secret@bucket/key?X-Amz-Signature=secret is odd")

    monkeypatch.setattr("dist_bpe.counting.table.CountTable.open", learn)
    log, error = told("learn", tmp_path, "--vocab-size", 500, "--log-format", "json", code=1)
    assert (log["event"], log["logger"]) == ("log", "py.warnings")
    assert (error["event"], error["kind"]) == ("error", "ZeroDivisionError")
    assert "s3://bucket/key is odd" in error["text"]
    assert "secret" not in error["text"]
    ran = CliRunner().invoke(app, ["learn", str(tmp_path), "--vocab-size", "500", "--log-format", "xml"])
    assert (ran.exit_code, ran.stderr) == (2, "error: --log-format xml is neither text nor json.\n")
