"""What a log file sees: a line at once, one every few seconds even while nothing ends, and no terminal codes."""

import time

import pytest

from dist_bpe import progress


def test_lines_move_while_nothing_advances(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "LINE_EVERY_SECONDS", 0.05)
    steps = progress.Progress("lines")
    with steps.stage("count", 2_000_000, "bytes") as stage:
        assert capsys.readouterr().err == "count: …\n"
        stage.advance(1_500_000, "shard 1 of 2")
        stage.worker_peak(7)
        time.sleep(0.3)
        assert "count: 1.5 MB of 2.0 MB (75%), shard 1 of 2, 0 s\n" in capsys.readouterr().err
    assert capsys.readouterr().err.startswith("count: done, 1.5 MB, shard 1 of 2, 0.")
    (record,) = steps.records
    assert (record.name, record.worker_peak_bytes) == ("count", 7)
    assert record.seconds >= 0.3
    assert record.peak_bytes > 1_000_000


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
