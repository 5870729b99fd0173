"""What the user sees while work goes on: bars on a terminal, plain lines in a log, nothing when told so.

Each stage says that it began at once, and from then on moves at least every few seconds. Each stage's seconds and peak
memory are kept for the closing summary.
"""

import contextlib
import re
import resource
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress

LINE_EVERY_SECONDS = 3.0


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


class Stage:
    """One running stage. `advance` and `note` may be called as often as one likes; output is limited by time."""

    def __init__(self, name: str, total: int | None, unit: str, bars: "RichProgress | None", silent: bool) -> None:
        self.name = name
        self.total = total
        self.unit = unit
        self.done = 0
        self.text = ""
        self.worker_peak_bytes = 0
        self._bars = bars
        self._silent = silent
        self._task = bars.add_task(name, total=total, note="") if bars else None
        self._began = time.monotonic()
        if not bars:
            self._line("…")

    def _amount(self, count: int) -> str:
        return human_bytes(count) if self.unit == "bytes" else f"{count:,} {self.unit}"

    def _line(self, what: str) -> None:
        if not self._silent:
            print(f"{self.name}: {what}", file=sys.stderr, flush=True)

    def advance(self, count: int = 0, note: str | None = None) -> None:
        """Report `count` more units done, and optionally a short text to stand beside the number."""
        self.done += count
        if note is not None:
            self.text = note
        if self._bars and self._task is not None:
            self._bars.update(self._task, completed=self.done, note=self.text)

    def tick(self, ended: threading.Event) -> None:
        """Print a line every few seconds until the stage ends, also while nothing advances."""
        while not ended.wait(LINE_EVERY_SECONDS):
            share = f" of {self._amount(self.total)} ({self.done / self.total:.0%})" if self.total else ""
            note = f", {self.text}" if self.text else ""
            self._line(f"{self._amount(self.done)}{share}{note}, {time.monotonic() - self._began:.0f} s")

    def worker_peak(self, peak_bytes: int) -> None:
        """Note the peak memory that a task's process reported."""
        self.worker_peak_bytes = max(self.worker_peak_bytes, peak_bytes)

    def finish(self) -> None:
        """Say that the stage ended."""
        seconds = time.monotonic() - self._began
        if self._bars and self._task is not None:
            self._bars.update(self._task, total=self.total or self.done or 1, completed=self.total or self.done or 1)
        else:
            amount = f"{self._amount(self.done)}, " if self.done else ""
            self._line(f"done, {amount}{self.text + ', ' if self.text else ''}{seconds:.1f} s")


class Progress:
    """The stages of one command.

    `style` is "bars" (rich, for terminals), "lines" (one plain line at a time on standard error), "silent", or "auto":
    bars where standard error is a terminal, lines elsewhere.
    """

    def __init__(self, style: str = "auto") -> None:
        if style == "auto":
            style = "bars" if sys.stderr.isatty() else "lines"
        self.style = style
        self.records: list[StageRecord] = []
        self._bars: RichProgress | None = None

    @contextlib.contextmanager
    def stage(self, name: str, total: int | None = None, unit: str = "items") -> Iterator[Stage]:
        """Run a stage of `total` units; its time and peak memory are recorded when it ends without an error."""
        _reset_peak_memory()
        began = time.monotonic()
        with contextlib.ExitStack() as stack:
            bars = stack.enter_context(_new_bars(unit)) if self.style == "bars" else None
            stage = Stage(name, total, unit, bars, self.style == "silent")
            if self.style == "lines":
                ended = threading.Event()
                ticker = threading.Thread(target=stage.tick, args=(ended,), name="dist-bpe progress", daemon=True)
                ticker.start()
                stack.callback(ticker.join)
                stack.callback(ended.set)
            yield stage
            stage.finish()
        self.records.append(StageRecord(name, time.monotonic() - began, peak_memory_bytes(), stage.worker_peak_bytes))

    def say(self, text: str) -> None:
        """Print one line that stays, unless silent."""
        if self.style != "silent":
            print(text, file=sys.stderr, flush=True)

    def warn(self, text: str) -> None:
        """Print one warning line, even when silent: a warning changes what the result means."""
        print(f"warning: {text}", file=sys.stderr, flush=True)


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
        TextColumn("{task.description}"),
        BarColumn(),
        amount,
        TextColumn("{task.fields[note]}"),
        TimeElapsedColumn(),
        console=Console(stderr=True),
    )
