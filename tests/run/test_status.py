"""`dist-bpe status`: where a run stands, without a trace."""

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from conftest import SMALL, Writer
from helpers import quiet, stop_after
from servers import until
from typer.testing import CliRunner

import dist_bpe
from dist_bpe.cli.main import app
from dist_bpe.run import lease
from dist_bpe.run.status import status
from dist_bpe.storage.files import sealed, unsealed


def tree(folder: Path) -> dict[str, int]:
    """All that is there, with the times of the last changes."""
    return {str(path): path.stat().st_mtime_ns for path in folder.rglob("*")}


def look(run: Path) -> dict[str, Any]:
    """The status of a run that nobody works on; leaves it as it was."""
    before = tree(run)
    ran = CliRunner().invoke(app, ["status", str(run), "--json"])
    assert ran.exit_code == 0, ran.stderr
    assert tree(run) == before
    return dict(json.loads(ran.stdout))


def counting(run: Path) -> dict[str, Any] | None:
    with contextlib.suppress(dist_bpe.RunError):  # there is nothing yet
        found = status(run).as_json()
        return found if found["stage"] == "counting" and found["shards"]["finished"] > 1 else None
    return None


def test_a_run_from_its_beginning_to_its_end(write: Writer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(2)
    write("in/a.parquet", [" ".join(f"{rng.randrange(30_000):x}" for _ in range(4_000)) for _ in range(150)], 5)
    run = tmp_path / "run"
    command = [sys.executable, "-m", "dist_bpe", "train", str(tmp_path / "in"), "-o", str(run)]
    command += ["--engine", "local", "--workers", "1", "--shard-bytes", "100000", "--vocab-size", "300", "--no-verify"]
    slow = ["--pattern", r"[a-z]+|[0-9]+|\s"]
    process = subprocess.Popen([*command, *slow], stderr=subprocess.DEVNULL)
    try:
        found = until(lambda: counting(run))
        assert process.poll() is None, "the run ended too soon to be looked at"
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert (found["driver"]["pid"], found["driver"]["state"]) == (process.pid, "works")
    assert found["shards"]["finished"] < found["shards"]["of"]
    found = look(run)
    assert (found["stage"], found["driver"]["state"]) == ("counting", "gone")
    (staging,) = (run / "staging").iterdir()
    commits = [json.loads(path.read_bytes()) for path in staging.glob("shard-*.json")]
    assert found["shards"]["finished"] == len(commits)
    assert found["counted"]["words"] == sum(commit["totals"][0]["words"] for commit in commits)
    # Pieces of a shard stand beside whole ones, and count once.
    first = next(staging.glob("shard-*.json"))
    piece = unsealed(first)
    assert piece
    (staging / f"{first.stem}.00.json").write_bytes(sealed(piece | {"key": [*piece["key"], 0]}))
    assert look(run) == found
    first.unlink()
    assert look(run)["shards"] == found["shards"] | {"finished": len(commits) - 1, "pieces": 1}
    (staging / f"{first.stem}.00.json").unlink()
    shown = CliRunner().invoke(app, ["status", str(run)]).stdout
    assert f"counting, {len(commits) - 1} of {found['shards']['of']} shards" in shown
    assert "is gone and did not say that it ended" in shown
    # The same lease of another machine: only its beat tells.
    (held,) = (run / "lease").iterdir()
    held.write_text(held.read_text().replace('"process": "', '"process": "another'))
    monkeypatch.setattr("dist_bpe.run.status.BEAT_SECONDS", 0.3)
    assert look(run)["driver"]["state"] == "silent"
    beat = threading.Timer(0.5, lambda: held.write_text(held.read_text().replace("0", "1", 1)))
    beat.start()
    assert status(run).as_json()["driver"]["state"] == "works"
    beat.join()
    held.write_text(lease.RELEASED.ljust(20) + held.read_text()[20:])
    assert look(run)["driver"]["state"] == "ended"
    ran = subprocess.run([*command, *slow, "--log-format", "json"], stderr=subprocess.PIPE, text=True)
    assert ran.returncode == 0, ran.stderr
    (resumed,) = (event for event in map(json.loads, ran.stderr.splitlines()) if event["event"] == "run_resumed")
    assert resumed["finished"] == len(commits) - 1
    assert "run_taken_over" not in ran.stderr
    found = look(run)
    report = json.loads((run / "report.json").read_text())["sources"]["corpus"]
    assert found["stage"] == "finished"
    assert found["table"] == {"sources": 1} | {
        name: report[name] for name in ("documents", "bytes", "words", "unique_words")
    }
    assert found["vocabularies"] == {"300": 300}
    assert found["driver"]["state"] == "ended"
    assert found["driver"]["pid"] not in (process.pid, os.getpid())
    assert "vocabulary 300: 300 tokens" in CliRunner().invoke(app, ["status", str(run)]).stdout


def test_what_is_no_run(tmp_path: Path) -> None:
    for path, what in ((tmp_path, "holds no run"), (tmp_path / "none", "there is no run folder")):
        ran = CliRunner().invoke(app, ["status", str(path)])
        assert ran.exit_code == 6
        assert what in ran.stderr


def test_the_version() -> None:
    ran = CliRunner().invoke(app, ["--version"])
    assert (ran.exit_code, ran.stdout) == (0, f"dist-bpe {dist_bpe.__version__}\n")


def test_a_damaged_run_is_told_and_not_stumbled_over(source: dist_bpe.Source, tmp_path: Path) -> None:
    """Each file that is read, in each of many ways: what the others say is shown all the same."""
    run = tmp_path / "run"
    table = quiet(source, output=run, **SMALL)
    dist_bpe.learn(table, vocab_size=300).save(run / "vocabularies" / "300")
    whole = look(run)
    assert (whole["stage"], whole["damaged"]) == ("finished", [])
    manifest = run / "counts" / "manifest.json"
    learned = run / "vocabularies" / "300" / "manifest.json"
    (held,) = (run / "lease").iterdir()
    for path in (manifest, learned, held):
        content = path.read_bytes()
        nonsense = [b"", b"\xff\xfe", b"[1]", b"null", b'{"sources": [1], "sizes": {}}', b'{"sources": {"s": 1}}']
        nonsense += [b'{"sources": {"s": {"documents": "x"}}, "sizes": {"total": null}}', b"[" * 100_000, content[:50]]
        for damaged in nonsense:
            path.write_bytes(damaged)
            found = look(run)
            (said,) = found["damaged"]
            assert str(path) in said
            assert "damaged" in said
            assert said.endswith(".")
            assert found["table"] == ({} if path == manifest else whole["table"])
            assert found["vocabularies"] == ({} if path == learned else whole["vocabularies"])
            assert found["driver"]["state"] == ("unknown" if path == held else "ended")
            shown = CliRunner().invoke(app, ["status", str(run)])
            assert (shown.exit_code, shown.stderr) == (0, "")
            assert f"warning: {said}" in shown.stdout
        path.unlink()
        path.mkdir()
        assert str(path) in look(run)["damaged"][0]
        path.rmdir()
        path.write_bytes(content)
    assert look(run) == whole


def test_a_damaged_plan_or_commit_is_told(
    source: dist_bpe.Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"
    stop_after(monkeypatch, 3)
    with pytest.raises(KeyboardInterrupt):
        quiet(source, output=run, **SMALL)
    (staging,) = (run / "staging").iterdir()
    first, *_ = sorted(staging.glob("shard-*.json"))
    first.write_bytes(first.read_bytes()[:-9])
    assert look(run)["shards"]["finished"] == 2
    (staging / "plan.json").write_bytes(b"{}")
    found = look(run)
    assert found["shards"] == {"finished": 2, "of": None, "pieces": 0}
    assert found["damaged"] == [f"{staging / 'plan.json'} is damaged: the same command begins this run anew."]
    (staging / "shard-000777.json").write_bytes(sealed({"key": "x"}))
    assert any("staging" in text for text in look(run)["damaged"])
