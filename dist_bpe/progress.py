"""What the user sees while work goes on: bars on a terminal, plain lines in a log, JSON for machines, or nothing.

Bars and events say at once that a stage began; a line says it after a second, so that short stages take one line. From
then on something moves at least every few seconds. Each stage's seconds and peak memory are kept for the closing
summary. All that happens is an event with a name and fields (docs/observing.md).
"""

import contextlib
import io
import json
import os
import re
import resource
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from dist_bpe.errors import UsageError, printable, several, without_secrets

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress


# A stage that ends before this has one line instead of two.
LINE_AFTER_SECONDS = 1.0
LINE_EVERY_SECONDS = 3.0
# Machines add up what they read, and somebody pays for it.
JSON_EVERY_SECONDS = 30.0
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


class Tell(Protocol):
    """Takes an event: its name, a sentence for people if they are to see one, and fields for machines."""

    def __call__(self, event: str, text: str | None = None, **fields: Any) -> None:
        """See `Progress.tell`."""


def json_line(event: str, text: str | None = None, level: str = "info", **fields: Any) -> None:
    """Write an event as one line of JSON to standard error; fields that are None are left out."""
    time = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    line = {"time": time, "level": level, "event": event, **fields, "text": text}
    shown = {name: _shown(value) for name, value in line.items() if value is not None}
    _print(json.dumps(shown, default=str))


def line(text: str) -> None:
    """Write a line for people to standard error: in one line, without secrets and without what acts on a terminal."""
    _print(printable(text))


def timed_line(text: str) -> None:
    """Write a line of a log: the same, after the time of day where the machine is."""
    line(f"{datetime.now():%H:%M:%S} {text}")  # people compare it with their clock


def _print(text: str) -> None:
    if sys.stderr is None:  # closed
        return
    try:
        sys.stderr.write(text + "\n")  # at once: threads write, too
        sys.stderr.flush()
    except BrokenPipeError:
        raise
    except OSError:  # the disk with the log is full, say: no reason to stop the work, nor to end with another code
        give_up(sys.stderr)


def give_up(stream: Any) -> None:
    """Write what is left of a stream, and all that may come, nowhere: Python flushes it once more when it ends."""
    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)


def _shown(value: Any) -> Any:
    return without_secrets(value) if isinstance(value, str) else value


@dataclass
class StageRecord:
    """One finished stage: wall seconds, and peak resident bytes of this process and of a worker (0 if none told)."""

    name: str
    seconds: float
    peak_bytes: int
    worker_peak_bytes: int


def peak_memory_bytes() -> int:
    """Peak resident memory of this process since the last reset, in bytes."""
    with contextlib.suppress(OSError):
        found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
        if found:
            return int(found[1]) * 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def _reset_peak_memory() -> None:
    # Linux resets the high-water mark when 5 is written here; elsewhere the peak is the one since the process began.
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def human_bytes(count: float) -> str:
    """A size for people: 1.5 GB."""
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if count < 1000 or unit == "TB":
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    raise AssertionError("unreachable")


class _Lines(io.TextIOBase):
    """A stream whose lines become events."""

    def __init__(self, tell: Tell) -> None:
        self._tell = tell
        self._rest = ""

    def write(self, text: str) -> int:
        *lines, self._rest = (self._rest + text).split("\n")
        for line in lines:
            if line := _COLOURS.sub("", line).strip():
                self._tell("log", line, logger="stdout")
        return len(text)


class Stage:
    """One running stage. `advance` and `note` may be called as often as one likes; output is limited by time."""

    def __init__(
        self, progress: "Progress", name: str, total: int | None, unit: str, bars: "RichProgress | None"
    ) -> None:
        self.name = name
        self.total = total
        self.unit = unit
        self.done = 0
        self.text = ""
        self.worker_peak_bytes = 0
        self._progress = progress
        self._bars = bars
        self._task = bars.add_task(name, total=total, note="") if bars else None
        self._began = time.monotonic()
        text = None if progress.style == "lines" else self._line("…")
        progress.tell("stage_began", text, stage=name, total=total, unit=unit)

    def _amount(self, count: int) -> str:
        return human_bytes(count) if self.unit == "bytes" else several(count, self.unit.removesuffix("s"))

    def _line(self, what: str) -> str | None:
        return None if self._bars else f"{self.name}: {what}"

    def advance(self, count: int = 0, note: str | None = None) -> None:
        """Report `count` more units done, and optionally a short text to stand beside the number."""
        self.done += count
        if note is not None:
            self.text = note
        if self._bars and self._task is not None:
            self._bars.update(self._task, completed=self.done, note=printable(self.text))

    def tick(self, ended: threading.Event, every_seconds: float) -> None:
        """Tell how far it is every few seconds until the stage ends, also while nothing advances."""
        if self._progress.style == "lines":
            if ended.wait(LINE_AFTER_SECONDS):
                return
            timed_line(f"{self.name}: …")
        while not ended.wait(every_seconds):
            share = f" of {self._amount(self.total)} ({self.done / self.total:.0%})" if self.total else ""
            note = f", {self.text}" if self.text else ""
            seconds = time.monotonic() - self._began
            self._progress.tell(
                "progress",
                self._line(f"{self._amount(self.done)}{share}{note}, {seconds:.0f} s"),
                stage=self.name, done=self.done, total=self.total, unit=self.unit, note=self.text or None,
                seconds=round(seconds, 3),
            )  # fmt: skip

    def worker_peak(self, peak_bytes: int) -> None:
        """Note the peak memory that a task's process reported."""
        self.worker_peak_bytes = max(self.worker_peak_bytes, peak_bytes)

    def finish(self) -> StageRecord:
        """Say that the stage ended."""
        record = StageRecord(self.name, time.monotonic() - self._began, peak_memory_bytes(), self.worker_peak_bytes)
        if self._bars and self._task is not None:
            self._bars.update(self._task, total=self.total or self.done or 1, completed=self.total or self.done or 1)
        amount = f"{self._amount(self.done)}, " if self.done else ""
        self._progress.tell(
            "stage_ended",
            self._line(f"done, {amount}{self.text + ', ' if self.text else ''}{record.seconds:.1f} s"),
            stage=self.name, done=self.done, unit=self.unit, note=self.text or None, seconds=round(record.seconds, 3),
            peak_bytes=record.peak_bytes, worker_peak_bytes=record.worker_peak_bytes or None,
        )  # fmt: skip
        return record


class Progress:
    """The stages and events of one command.

    `style` is "bars" (rich, for terminals), "lines" (one plain line at a time on standard error), "json" (one JSON
    object a line), "silent", or "auto": bars where standard error is a terminal, lines elsewhere.

    `fields` are added to each event; `listeners` are called with each, whatever the style. `records` has the stages
    that have ended and `warnings` all that was warned of, for the closing summary and report.json.
    """

    def __init__(self, style: str = "auto") -> None:
        if style not in ("auto", "bars", "lines", "json", "silent"):
            raise UsageError(f"progress is auto, bars, lines, json or silent, not {style!r}.")
        if style == "auto":
            style = "bars" if sys.stderr.isatty() else "lines"
        self.style = style
        self.records: list[StageRecord] = []
        self.warnings: list[str] = []
        self.fields: dict[str, Any] = {}
        self.listeners: list[Callable[[str, dict[str, Any]], None]] = []

    @contextlib.contextmanager
    def stage(self, name: str, total: int | None = None, unit: str = "items") -> Iterator[Stage]:
        """Run a stage of `total` units; its time and peak memory are recorded when it ends without an error."""
        _reset_peak_memory()
        with contextlib.ExitStack() as stack:
            bars = stack.enter_context(_new_bars(unit)) if self.style == "bars" else None
            stage = Stage(self, name, total, unit, bars)
            if self.style in ("lines", "json"):
                ended = threading.Event()
                every = LINE_EVERY_SECONDS if self.style == "lines" else JSON_EVERY_SECONDS
                ticker = threading.Thread(target=stage.tick, args=(ended, every), name="dist-bpe progress", daemon=True)
                ticker.start()
                stack.callback(ticker.join)
                stack.callback(ended.set)
            yield stage
            self.records.append(stage.finish())

    def tell(self, event: str, text: str | None = None, **fields: Any) -> None:
        """An event: people see its text, if it has one, unless silent; machines see its fields."""
        for listener in self.listeners:
            listener(event, fields)
        if self.style == "json":
            json_line(event, text, **self.fields, **fields)
        elif text is not None and (self.style != "silent" or event == "warning"):
            write = timed_line if self.style == "lines" else line
            write(f"warning: {text}" if event == "warning" else text)

    @contextlib.contextmanager
    def standard_output(self) -> Iterator[None]:
        """Make events of what others print to standard output, if all is to be JSON. Ray says there why workers end."""
        with contextlib.redirect_stdout(_Lines(self.tell)) if self.style == "json" else contextlib.nullcontext():
            yield

    def say(self, text: str) -> None:
        """Print one line that stays, unless silent."""
        self.tell("message", text)

    def warn(self, text: str) -> None:
        """Print one warning line, even when silent: a warning changes what the result means. Reports have it, too."""
        self.warnings.append(text)
        self.tell("warning", text, level="warning")


def _new_bars(unit: str) -> "RichProgress":
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        MofNCompleteColumn,
        SpinnerColumn,
        TextColumn,
        TimeElapsedColumn,
    )
    from rich.progress import Progress as RichProgress

    amount = DownloadColumn() if unit == "bytes" else MofNCompleteColumn()
    return RichProgress(
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        amount,
        TextColumn("{task.fields[note]}", markup=False),
        TimeElapsedColumn(),
        console=Console(stderr=True),
    )
