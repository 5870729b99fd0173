"""One driver at a time: who owns a run folder, and how the writes of whoever owned it before are kept out.

`RUN/lease/` holds one file whose name is a number, with its owner inside and a heartbeat that the owner raises every
few seconds. Whoever wants the run makes the file of the next number, which one alone can; the owner before must have
said that it ended, be a process of this machine that is gone, or let its heartbeat stand still for `DEAD_SECONDS`.
Clocks of different machines are never compared. A lease that cannot be read, damaged or put there by something else, is
taken for that of an owner on another machine: its bytes, such as they are, must stand still as long.

The new owner then renames `RUN/staging/<its predecessor's number>` to its own number. That is the fence: all that a
driver and its workers write on the way to a finished table lies below that path, and it leads nowhere any more for one
that was paused, thought dead, and wakes. A number is never used twice.

An object store cannot rename. There the new owner goes on under its predecessor's prefix if it goes on with its plan:
what a stale driver commits there is what any other attempt would have committed. A new plan begins under a new prefix.
And the table is published by a request that fails if the manifest was replaced since, see `publish`.
"""

import contextlib
import json
import os
import re
import secrets
import socket
import stat
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from dist_bpe.errors import DistBpeError, RunError, UsageError, of_system
from dist_bpe.storage.bucket import BucketPath
from dist_bpe.storage.files import RunPath, create_if_absent, is_litter, make_folder, move, remove
from dist_bpe.storage.layout import LEASE, PLAN, STAGING

BEAT_SECONDS = 5.0
DEAD_SECONDS = 45.0
RELEASED = "released"
_BEAT_DIGITS = 20
# A lease has a few hundred bytes.
_MOST_BYTES = 1 << 16
_NUMBER = re.compile(r"[0-9]+")
_FIRST = 100_000_000


class Lease:
    """The right to write to a run folder; `take` gives it, `release` ends it."""

    def __init__(self, run: RunPath, number: int) -> None:
        self.number = number
        self.staging = run / STAGING / f"{number:06}"
        self._run = run
        self._file = run / LEASE / f"{number:06}"
        self._content = ""
        self._looked = 0.0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="dist-bpe lease", daemon=True)

    def check(self, now: bool = False) -> None:
        """Go on only as the owner. An object store is asked every few seconds only, or `now`: it is no fence anyway.

        Raises:
            RunError: another driver took the run over while this one was paused or cut off.
        """
        if isinstance(self._run, BucketPath):
            if not now and time.monotonic() - self._looked < BEAT_SECONDS:
                return
            lost = max(_files(self._run / LEASE), default=0) != self.number
            self._looked = time.monotonic()
        else:
            lost = not self._file.exists()
        if lost:
            raise RunError(
                f"another driver has taken over {self._run} while this one was paused or cut off from it; "
                "it goes on there, and this one has stopped."
            )

    def begin(self) -> None:
        """Stage where nobody but this owner has written."""
        self.staging = self._run / STAGING / f"{self.number:06}"

    def take(self, owner: dict[str, Any]) -> bool:
        """Make the file of this number; False if somebody else has."""
        self._content = f"{json.dumps(owner)}\n"
        content = f"{0:<{_BEAT_DIGITS}}{self._content}".encode()
        if not create_if_absent(self._file, content):
            return False
        if isinstance(self._file, BucketPath) and self._file.create(content + b"another"):
            raise UsageError(
                f"{self._run} lies in a store that does not keep to conditional requests (If-None-Match): two drivers "
                "could take one run there. Name a folder elsewhere."
            )
        return True

    def release(self) -> None:
        """Let the next driver begin at once. The file stays, so that its number is not used again."""
        self._ended.set()
        self._thread.join(BEAT_SECONDS)  # it may be waiting for a store that is out of reach
        with contextlib.suppress(OSError, DistBpeError):
            self.check(now=True)
            self._write(RELEASED)

    def _write(self, beat: str) -> None:
        beat = beat.ljust(_BEAT_DIGITS)
        if isinstance(self._file, BucketPath):
            self._file.write_bytes((beat + self._content).encode())
            return
        with self._file.open("r+b", buffering=0) as file:
            file.write(beat.encode())

    def _keep(self) -> None:
        beat = 0
        while not self._ended.wait(BEAT_SECONDS):
            beat += 1
            try:
                self._write(str(beat))
            except (OSError, DistBpeError):
                continue  # storage out of reach: try until it is back. Or the file is gone, which `check` sees.


@dataclass(frozen=True)
class Holder:
    """Who wrote a lease last: host, number of the process, time of its beginning in UTC, and its beat."""

    host: str
    pid: int
    since: str | None
    beat: str
    here: bool
    """Whether the process is one of this machine, so that `lives` says how it is."""
    lives: bool
    damaged: str = ""
    """Why the file could not be understood, with its name; nothing else is known of the owner then."""

    @property
    def released(self) -> bool:
        """Whether it has said that it ended."""
        return self.beat == RELEASED


def holder(run: RunPath) -> Holder | None:
    """Who holds a run folder, or held it last; None if nobody ever did.

    Raises:
        UsageError: the folder of the lease cannot be read.
    """
    return next((found for _ in range(_LOOKS) if not isinstance(found := _looked_at(run), bool)), None)


# The next driver may take over between the look into the folder and that into the file, but not for ever.
_LOOKS = 10


def _looked_at(run: RunPath) -> "Holder | bool | None":
    """The holder; False if it gave way to another at this moment."""
    paths = _files(run / LEASE)
    return (_read(paths[max(paths)]) or False) if paths else None


def _files(folder: RunPath) -> dict[int, RunPath]:
    """What lies in the folder of the lease, by number."""
    if not folder.exists():
        return {}
    try:
        found: list[RunPath] = list(folder.iterdir())
    except OSError as error:
        raise of_system(error, str(folder), "be read") from error
    return {int(path.name): path for path in found if _NUMBER.fullmatch(path.name)}


def _read(path: RunPath) -> Holder | None:
    """What a lease file says; None if it is not there any more."""
    try:
        if isinstance(path, BucketPath):
            content = path.read_bytes()
        else:
            # No file of ours, and one that is a pipe would keep us for ever.
            if not stat.S_ISREG(path.stat().st_mode):
                return _unreadable(path, b"", "it is no file")
            with path.open("rb") as file:
                content = file.read(_MOST_BYTES)
    except FileNotFoundError:
        there = path.is_dir() if isinstance(path, BucketPath) else path.is_symlink()
        return _unreadable(path, b"", "it leads nowhere") if there else None
    except OSError as error:
        return _unreadable(path, b"", (error.strerror or str(error)).lower())
    return _written_in(path, content)


def _written_in(path: RunPath, content: bytes) -> Holder:
    try:
        owner = json.loads(content[_BEAT_DIGITS:])
        host, pid, process, since = owner["host"], owner["pid"], owner["process"], owner.get("since")
        beat = content[:_BEAT_DIGITS].decode("ascii").strip()
    except (ValueError, RecursionError, TypeError, KeyError, AttributeError):
        return _unreadable(path, content, "it does not hold what a driver writes there")
    if not (isinstance(host, str) and isinstance(pid, int) and isinstance(process, str)):
        return _unreadable(path, content, "it does not hold what a driver writes there")
    here = bool(process) and process.split(" ")[:2] == _process(os.getpid()).split(" ")[:2]
    lives = here and _process(pid) == process
    return Holder(host, pid, since if isinstance(since, str) else None, beat, here, lives)


def _unreadable(path: RunPath, content: bytes, why: str) -> Holder:
    beat = content[:_BEAT_DIGITS].decode("utf-8", "backslashreplace")
    # A release is one short write of a driver that was well: what was damaged then is of no account.
    beat = RELEASED if beat.strip() == RELEASED else beat
    return Holder("unknown", 0, None, beat, False, False, f"{path} is damaged ({why})")


@contextlib.contextmanager
def lease(run: RunPath, say: Callable[[str], None]) -> Iterator[Lease]:
    """Own a run folder. `say` is told when there is somebody to wait for.

    Raises:
        RunError: another driver works on it.
        UsageError: a store that knows no conditional requests, or a folder that cannot be written.
    """
    folder = run / LEASE
    make_folder(folder)
    found = _files(folder)
    before = max(found, default=0)
    if before:
        _wait_for_the_end_of(found[before], run, say)
    # The first number is drawn, so that a worker left over from a run that was removed finds nothing of its own here.
    owned = Lease(run, before + 1 if before else _FIRST + secrets.randbelow(_FIRST))
    owner = {
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "process": _process(os.getpid()),
        "since": datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
        "driver": uuid.uuid4().hex,
    }
    # Someone may have made a higher number, and removed this one, since the look into the folder.
    if not owned.take(owner) or max(_files(folder)) != owned.number:
        raise RunError(f"another driver began to work on {run} at this moment; this one has stopped.")
    for number, path in _files(folder).items():
        # What is no file of ours stays; its number has passed.
        if number < owned.number and (old := _read(path)) and not old.damaged:
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)
    _take_up(run, owned)
    owned._thread.start()
    try:
        yield owned
    except Exception:
        owned.check(now=True)  # if the run is lost, that comes first: the other error is a consequence
        raise
    finally:
        try:
            with contextlib.suppress(OSError, DistBpeError):
                if owned._file.exists():
                    owned.staging.parent.rmdir()  # where nothing is left to go on with
        finally:
            owned.release()


def unfinished(run: RunPath) -> RunPath | None:
    """The folder of what is staged and may be gone on with; None if there is none."""
    staging = run / STAGING
    folders = [path for path in _staged(staging) if _NUMBER.fullmatch(path.name)]
    if isinstance(run, BucketPath):
        # Without a plan it is what a stale worker left, or a name alone: some stores list prefixes that are gone.
        folders = [path for path in folders if (path / PLAN).is_file()]
    return max(folders, key=lambda path: int(path.name), default=None)


def _staged(staging: RunPath) -> list[RunPath]:
    """What lies in staging under a name that we give."""
    found: list[RunPath] = list(staging.iterdir()) if staging.is_dir() else []
    return [path for path in found if _NUMBER.fullmatch(path.name.removeprefix("."))]


def _take_up(run: RunPath, owned: Lease) -> None:
    """Make what the driver before left in staging ours."""
    newest = unfinished(run)
    if isinstance(run, BucketPath):
        owned.staging = newest or owned.staging
        for path in _staged(run / STAGING):
            if path != owned.staging:
                remove(path)
        return
    for litter in run.glob(".*.tmp"):  # half of a file that the driver before was about to publish
        if is_litter(litter.name) and litter.is_file():
            litter.unlink(missing_ok=True)
    staging = run / STAGING
    make_folder(staging)
    for found in _staged(staging):
        if found == newest and isinstance(found, Path):
            move(found, staging / f"{owned.number:06}")
        else:
            remove(found)  # one that was never finished making, or that a stale driver began


def _process(pid: int) -> str:
    """What tells a process from every other that had or will have its number: machine, namespace, time of its start."""
    with contextlib.suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        start = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
        return f"{boot} {os.readlink('/proc/self/ns/pid')} {start}"  # noqa: PTH115  # no path, a name
    return ""


def _wait_for_the_end_of(path: RunPath, run: RunPath, say: Callable[[str], None]) -> None:
    """Return once the owner in a lease file is known to have ended.

    Raises:
        RunError: it lives.
    """
    began, first = time.monotonic(), None
    while True:
        found = _read(path)
        if found is None:
            raise RunError(f"another driver began to work on {run} at this moment; this one has stopped.")
        if found.released or (found.here and not found.lives):
            return
        who = found.damaged or f"process {found.pid} on {found.host}"
        if first is None:
            first = found.beat
            belongs = (
                f"{who}; if nothing writes to it within {DEAD_SECONDS:.0f} seconds, {run} is taken over."
                if found.damaged
                else f"{run} belongs to {who}, which has not said that it ended: taken over if it gives no sign of "
                f"life within {DEAD_SECONDS:.0f} seconds."
            )
            say(belongs)
        elif found.beat != first:
            works = f"{who}, and something still writes to it" if found.damaged else who
            raise RunError(
                f"another driver works on {run}: {works}. Wait for its end, or stop it and give the same command again."
            )
        elif time.monotonic() - began > DEAD_SECONDS:
            return
        time.sleep(BEAT_SECONDS / 10)
