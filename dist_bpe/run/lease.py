"""One driver at a time: who owns a run folder, and how the writes of whoever owned it before are kept out.

`RUN/lease/` holds one file whose name is a number, with its owner inside and a heartbeat that the owner raises every
few seconds. Whoever wants the run makes the file of the next number, which one alone can; the owner before must have
said that it ended, be a process of this machine that is gone, or let its heartbeat stand still for `DEAD_SECONDS`.
Clocks of different machines are never compared.

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
import secrets
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from dist_bpe.errors import DistBpeError, RunError, UsageError
from dist_bpe.storage.bucket import BucketPath
from dist_bpe.storage.files import RunPath, create_if_absent, move, remove
from dist_bpe.storage.layout import LEASE, PLAN, STAGING

BEAT_SECONDS = 5.0
DEAD_SECONDS = 45.0
RELEASED = "released"
_BEAT_DIGITS = 20
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
            lost = max(_numbers(self._run / LEASE), default=0) != self.number
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

    @property
    def released(self) -> bool:
        """Whether it has said that it ended."""
        return self.beat == RELEASED


def holder(run: RunPath) -> Holder | None:
    """Who holds a run folder, or held it last; None if nobody ever did."""
    folder = run / LEASE
    content = None
    while content is None:
        numbers = _numbers(folder) if folder.exists() else []
        if not numbers:
            return None
        with contextlib.suppress(FileNotFoundError):  # the next driver has just taken over
            content = (folder / f"{max(numbers):06}").read_bytes().decode()
    return _written_in(content)


def _written_in(content: str) -> Holder:
    """What a lease file says."""
    try:
        owner = json.loads(content[_BEAT_DIGITS:])
    except ValueError:
        owner = {"host": "unknown", "pid": 0, "process": ""}
    process = owner["process"]
    here = bool(process) and process.split(" ")[:2] == _process(os.getpid()).split(" ")[:2]
    lives = here and _process(owner["pid"]) == process
    return Holder(owner["host"], owner["pid"], owner.get("since"), content[:_BEAT_DIGITS].strip(), here, lives)


@contextlib.contextmanager
def lease(run: RunPath, say: Callable[[str], None]) -> Iterator[Lease]:
    """Own a run folder, in which the folder `lease` must exist. `say` is told when there is somebody to wait for.

    Raises:
        RunError: another driver works on it.
        UsageError: a store that knows no conditional requests.
    """
    folder = run / LEASE
    before = max(_numbers(folder), default=0)
    if before:
        _wait_for_the_end_of(folder / f"{before:06}", run, say)
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
    if not owned.take(owner) or max(_numbers(folder)) != owned.number:
        raise RunError(f"another driver began to work on {run} at this moment; this one has stopped.")
    for number in _numbers(folder):
        if number < owned.number:
            (folder / f"{number:06}").unlink(missing_ok=True)
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
    folders: list[RunPath] = [path for path in staging.iterdir() if path.name.isdigit()] if staging.exists() else []
    if isinstance(run, BucketPath):
        # Without a plan it is what a stale worker left, or a name alone: some stores list prefixes that are gone.
        folders = [path for path in folders if (path / PLAN).is_file()]
    return max(folders, key=lambda path: int(path.name), default=None)


def _take_up(run: RunPath, owned: Lease) -> None:
    """Make what the driver before left in staging ours."""
    newest = unfinished(run)
    if isinstance(run, BucketPath):
        owned.staging = newest or owned.staging
        for path in (run / STAGING).iterdir():
            if path.name.isdigit() and path != owned.staging:
                remove(path)
        return
    for litter in run.glob(".*.tmp"):  # half of a file that the driver before was about to publish
        if litter.is_file():
            litter.unlink(missing_ok=True)
    staging = run / STAGING
    staging.mkdir(exist_ok=True)
    for found in list(staging.iterdir()):
        if found == newest:
            move(found, staging / f"{owned.number:06}")
        else:
            remove(found)  # one that was never finished making, or that a stale driver began


def _numbers(folder: RunPath) -> list[int]:
    return [int(path.name) for path in folder.iterdir() if path.name.isdigit()]


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
    began, first, told = time.monotonic(), "", False
    while True:
        try:
            content = path.read_text()
        except FileNotFoundError:
            raise RunError(f"another driver began to work on {run} at this moment; this one has stopped.") from None
        found = _written_in(content)
        if found.released or (found.here and not found.lives):
            return
        first = first or found.beat
        if found.beat != first:
            raise RunError(
                f"another driver works on {run}: process {found.pid} on {found.host}. Wait for its end, or stop it and "
                "give the same command again."
            )
        if time.monotonic() - began > DEAD_SECONDS:
            return
        if not told:
            say(
                f"{run} belongs to process {found.pid} on {found.host}, which has not said that it ended: taken "
                f"over if it gives no sign of life within {DEAD_SECONDS:.0f} seconds."
            )
            told = True
        time.sleep(BEAT_SECONDS / 10)
