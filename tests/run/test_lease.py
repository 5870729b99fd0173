"""One driver at a time: leases that are held, given up, damaged; and drivers that were replaced."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import SMALL
from helpers import hashes, quiet, stop_after

import dist_bpe
from dist_bpe import errors
from dist_bpe.run import lease


def test_what_a_woken_driver_or_worker_leaves_is_not_taken_up(
    source: dist_bpe.Source, clean: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = tmp_path / "run"
    stop_after(monkeypatch, 0)
    with pytest.raises(KeyboardInterrupt):
        quiet(source, output=output, **SMALL | {"pattern": "cl100k"})
    assert not output.exists()
    # A run that left nothing was staged elsewhere than the next one is: its workers do not know where.
    stop_after(monkeypatch, 2)
    with pytest.raises(KeyboardInterrupt):
        quiet(source, output=output, **SMALL)
    (staging,) = (output / "staging").iterdir()
    assert int(staging.name) > 10**8
    (output / "staging" / "000000007").mkdir()
    (output / "staging" / "000000007" / "plan.json").write_bytes((staging / "plan.json").read_bytes())
    assert hashes(quiet(source, output=output, **SMALL).folder) == clean
    assert not (output / "staging").exists()


def test_one_driver_at_a_time(source: dist_bpe.Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dist_bpe.run.lease.BEAT_SECONDS", 0.05)
    output = tmp_path / "run"
    (output / "lease").mkdir(parents=True)
    with lease.lease(output, print), pytest.raises(errors.RunError, match=f"another driver works on .*{os.getpid()}"):
        quiet(source, output=output)
    quiet(source, output=output)


def test_a_driver_that_was_replaced_writes_nothing_more(
    source: dist_bpe.Source, clean: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A real driver is stopped in the middle, replaced, and woken: at every point it could be in, by its progress."""
    monkeypatch.setattr("dist_bpe.run.lease.DEAD_SECONDS", 0.3)
    monkeypatch.setattr("dist_bpe.run.lease.BEAT_SECONDS", 0.05)
    script = (
        "import dist_bpe, sys, time\nfrom dist_bpe.counting import tasks\nfrom dist_bpe.run import count\n"
        "def slow(task, real=tasks.count_shard):\n    time.sleep(0.3)\n    return real(task)\n"
        "count.count_shard = slow\n"
        f"dist_bpe.count(dist_bpe.Source('s', {source.paths!r}), output={str(tmp_path / 'run')!r}, engine='local',"
        f" workers=2, progress='lines', **{SMALL!r})\n"
    )
    process = subprocess.Popen([sys.executable, "-c", script], stderr=subprocess.PIPE, text=True)
    while len(list((tmp_path / "run").glob("staging/*/shard-*.json"))) < 2:
        time.sleep(0.02)
        assert process.poll() is None
    process.send_signal(signal.SIGSTOP)
    try:
        table = quiet(source, output=tmp_path / "run", workers=2, **SMALL)
        assert hashes(table.folder) == clean
        before = {path: path.stat().st_mtime_ns for path in (tmp_path / "run").rglob("*")}
    finally:
        process.send_signal(signal.SIGCONT)
    _, text = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "another driver has taken over" in text.splitlines()[-1]
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "run").rglob("*")} == before


def released(run: Path) -> Path:
    """A run folder that a driver has had and given up; its lease."""
    run.mkdir(exist_ok=True)
    with lease.lease(run, print):
        pass
    (held,) = (run / "lease").iterdir()
    return held


def written(change: Callable[[bytes], bytes]) -> Callable[[Path], None]:
    return lambda path: path.write_bytes(change(path.read_bytes().replace(b"released", b"7       ")))


def owner(**values: object) -> Callable[[Path], None]:
    """Make other values of those that a driver writes of itself; None to leave one out."""

    def change(content: bytes) -> bytes:
        found = json.loads(content[20:]) | values
        return content[:20] + json.dumps({name: value for name, value in found.items() if value is not None}).encode()

    return written(change)


def instead(make: Callable[[Path], object]) -> Callable[[Path], None]:
    def damage(path: Path) -> None:
        path.unlink()
        make(path)

    return damage


DAMAGES: dict[str, Callable[[Path], None]] = {
    "not UTF-8": written(lambda content: content[:20] + b"\xff\xfe" + content[20:]),
    "no beat": written(lambda content: b"\xff" * 20 + content[20:]),
    "cut short": written(lambda content: content[:40]),
    "empty": written(lambda _: b""),
    "zeros": written(lambda content: bytes(len(content))),
    "a list": written(lambda content: content[:20] + b"[1]"),
    "nested": written(lambda content: content[:20] + b"[" * 60_000),
    "no host": owner(host=None),
    "no process": owner(process=None),
    "a process of another type": owner(process=7),
    "a number that is none": owner(pid="x"),
    "a folder": instead(Path.mkdir),
    "a folder with something in it": instead(lambda path: (path.mkdir(), (path / "kept").touch())),
    "a link to nowhere": instead(lambda path: path.symlink_to("nowhere")),
    "a link to itself": instead(lambda path: path.symlink_to(path.name)),
    "a pipe": instead(os.mkfifo),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_lease_is_taken_over_when_nothing_moves(
    tmp_path: Path, damage: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bounded, and named: as of a driver on another machine that is dead, and nothing else can be known."""
    monkeypatch.setattr("dist_bpe.run.lease.DEAD_SECONDS", 0.2)
    monkeypatch.setattr("dist_bpe.run.lease.BEAT_SECONDS", 0.05)
    held = released(tmp_path)
    damage(held)
    found = lease.holder(tmp_path)
    assert found
    assert found.damaged.startswith(f"{held} is damaged (")
    assert not found.released
    said: list[str] = []
    with lease.lease(tmp_path, said.append) as owned:
        assert owned.number == int(held.name) + 1
        owned.check(now=True)
    (text,) = said
    assert text.startswith(f"{held} is damaged (")
    assert text.endswith(f"if nothing writes to it within 0 seconds, {tmp_path} is taken over.")
    after = lease.holder(tmp_path)
    assert after
    assert after.released
    # What is not ours stays, its number has passed.
    assert held.is_dir() == (damage in (DAMAGES["a folder"], DAMAGES["a folder with something in it"]))


def test_a_damaged_lease_that_is_still_written_to_is_somebodys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dist_bpe.run.lease.BEAT_SECONDS", 0.05)
    held = released(tmp_path)
    held.write_bytes(b"1".ljust(20) + b"\xff")
    beat = threading.Timer(0.3, lambda: held.write_bytes(b"2".ljust(20) + b"\xff"))
    beat.start()
    with (
        pytest.raises(errors.RunError, match=r"another driver works on .*is damaged.*still writes to it"),
        lease.lease(tmp_path, lambda _: None),
    ):
        pass
    beat.join()


def test_what_only_looks_like_a_lease_is_passed_over(tmp_path: Path) -> None:
    held = released(tmp_path)
    for name in ("²", "seven", "-3", ".nfs0001"):
        (tmp_path / "lease" / name).touch()
    with lease.lease(tmp_path, print) as owned:
        assert owned.number == int(held.name) + 1
    # A number without the zeros in front is a number.
    (tmp_path / "short" / "lease").mkdir(parents=True)
    (tmp_path / "short" / "lease" / "7").write_bytes(held.with_name(str(owned.number)).read_bytes())
    found = lease.holder(tmp_path / "short")
    assert found
    assert found.released
    with lease.lease(tmp_path / "short", print) as owned:
        assert owned.number == 8


def test_a_file_in_the_place_of_the_leases_is_named(tmp_path: Path) -> None:
    (tmp_path / "lease").touch()
    with pytest.raises(errors.UsageError, match=r"lease cannot be (written|read)"), lease.lease(tmp_path, print):
        pass
    with pytest.raises(errors.UsageError, match="lease cannot be read: Not a directory"):
        lease.holder(tmp_path)


def test_only_our_own_is_swept(source: dist_bpe.Source, tmp_path: Path) -> None:
    """Files of the user that look a little like ours stay."""
    run = tmp_path / "run"
    (run / "staging" / "mine").mkdir(parents=True)
    (run / "staging" / "mine" / "notes").write_text("kept")
    for name in (".x.tmp", f".{'0' * 32}.tmp"):
        (run / name).touch()
    quiet(source, output=run, **SMALL)
    assert (run / "staging" / "mine" / "notes").read_text() == "kept"
    assert (run / ".x.tmp").exists()
    assert not (run / f".{'0' * 32}.tmp").exists()
