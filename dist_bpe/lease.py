"""One driver at a time: who owns a run folder, and how the writes of whoever owned it before are kept out.

`RUN/lease/` holds one file whose name is a number, with its owner inside and a beat that the owner raises every few
seconds. Whoever wants the run makes the file of the next number, which one alone can; the owner before must have said
that it ended, be a process of this machine that is gone, or let its beat stand still for `DEAD_SECONDS`. Clocks of
different machines are never compared.

The new owner then renames `RUN/staging/<its predecessor's number>` to its own number. That is the fence: all that a
driver and its workers write on the way to a finished table lies below that path, and it leads nowhere any more for one
that was paused, thought dead, and wakes. A number is never used twice.
"""

import contextlib
import json
import os
import shutil
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from dist_bpe.errors import RunError
from dist_bpe.storage import create_if_absent, move

FOLDER = "lease"
STAGING = "staging"
BEAT_SECONDS = 5.0
DEAD_SECONDS = 45.0
RELEASED = "released"
_BEAT_DIGITS = 20


class Lease:
    """The right to write to a run folder; `take` gives it, `release` ends it."""

    def __init__(self, run: Path, number: int) -> None:
        self.number = number
        self.staging = run / STAGING / f"{number:06}"
        self._run = run
        self._file = run / FOLDER / f"{number:06}"
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="dist-bpe lease", daemon=True)

    def check(self) -> None:
        """Go on only as the owner.

        Raises:
            RunError: another driver took the run over while this one was paused or cut off.
        """
        if not self._file.exists():
            raise RunError(
                f"another driver has taken over {self._run} while this one was paused or cut off from it; "
                "it goes on there, and this one has stopped."
            )

    def release(self) -> None:
        """Let the next driver begin at once. The file stays, so that its number is not used again."""
        self._ended.set()
        self._thread.join()
        with contextlib.suppress(OSError):
            self._write(RELEASED)

    def _write(self, beat: str) -> None:
        with self._file.open("r+b", buffering=0) as file:
            file.write(beat.ljust(_BEAT_DIGITS).encode())

    def _keep(self) -> None:
        beat = 0
        while not self._ended.wait(BEAT_SECONDS):
            beat += 1
            try:
                self._write(str(beat))
            except OSError:
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


def holder(run: Path) -> Holder | None:
    """Who holds a run folder, or held it last; None if nobody ever did."""
    folder = run / FOLDER
    numbers = _numbers(folder) if folder.exists() else []
    if not numbers:
        return None
    content = (folder / f"{max(numbers):06}").read_bytes().decode()
    try:
        owner = json.loads(content[_BEAT_DIGITS:])
    except ValueError:
        owner = {"host": "unknown", "pid": 0, "process": ""}
    process = owner["process"]
    here = bool(process) and process.split(" ")[:2] == _process(os.getpid()).split(" ")[:2]
    lives = here and _process(owner["pid"]) == process
    return Holder(owner["host"], owner["pid"], owner.get("since"), content[:_BEAT_DIGITS].strip(), here, lives)


@contextlib.contextmanager
def lease(run: Path, say: Callable[[str], None]) -> Iterator[Lease]:
    """Own a run folder, in which the folder `lease` must exist. `say` is told when there is somebody to wait for.

    Raises:
        RunError: another driver works on it.
    """
    folder = run / FOLDER
    before = max(_numbers(folder), default=0)
    if before:
        _wait_for_the_end_of(folder / f"{before:06}", run, say)
    owned = Lease(run, before + 1)
    owner = {"host": socket.gethostname(), "pid": os.getpid(), "process": _process(os.getpid())}
    owner["since"] = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    made = create_if_absent(owned._file, f"{0:<{_BEAT_DIGITS}}{json.dumps(owner)}\n".encode())
    # Someone may have made a higher number, and removed this one, since the look into the folder.
    if not made or max(_numbers(folder)) != owned.number:
        raise RunError(f"another driver began to work on {run} at this moment; this one has stopped.")
    for number in _numbers(folder):
        if number < owned.number:
            (folder / f"{number:06}").unlink(missing_ok=True)
    for litter in run.glob(".*.tmp"):  # half of a file that the driver before was about to publish
        if litter.is_file():
            litter.unlink(missing_ok=True)
    owned.staging.parent.mkdir(exist_ok=True)
    for found in list(owned.staging.parent.iterdir()):
        if found.name.isdigit():
            move(found, owned.staging)
        else:
            shutil.rmtree(found, ignore_errors=True)  # one that was never finished making
    owned._thread.start()
    try:
        yield owned
    except Exception:
        owned.check()  # if the run is lost, that comes first: the other error is a consequence
        raise
    finally:
        if owned._file.exists():
            with contextlib.suppress(OSError):
                owned.staging.parent.rmdir()  # where nothing is left to go on with
        owned.release()


def _numbers(folder: Path) -> list[int]:
    return [int(path.name) for path in folder.iterdir() if path.name.isdigit()]


def _process(pid: int) -> str:
    """What tells a process from every other that had or will have its number: machine, namespace, time of its start."""
    with contextlib.suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        start = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
        return f"{boot} {os.readlink('/proc/self/ns/pid')} {start}"  # noqa: PTH115  # no path, a name
    return ""


def _wait_for_the_end_of(path: Path, run: Path, say: Callable[[str], None]) -> None:
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
        beat = content[:_BEAT_DIGITS].strip()
        if beat == RELEASED:
            return
        try:
            owner = json.loads(content[_BEAT_DIGITS:])
        except ValueError:
            owner = {"host": "unknown", "pid": 0, "process": ""}
        here = _process(os.getpid()).split(" ")[:2]
        if owner["process"] and owner["process"].split(" ")[:2] == here and _process(owner["pid"]) != owner["process"]:
            return
        first = first or beat
        if beat != first:
            raise RunError(
                f"another driver works on {run}: process {owner['pid']} on {owner['host']}. Wait for its end, or stop "
                "it and give the same command again."
            )
        if time.monotonic() - began > DEAD_SECONDS:
            return
        if not told:
            say(
                f"{run} belongs to process {owner['pid']} on {owner['host']}, which has not said that it ended: taken "
                f"over if it gives no sign of life within {DEAD_SECONDS:.0f} seconds."
            )
            told = True
        time.sleep(BEAT_SECONDS / 10)
