"""The processes that this one has started, and those that they have."""

import contextlib
import os
import signal
from collections.abc import Iterable
from pathlib import Path


def children(pid: int) -> list[int]:
    """The processes that a process has started and that have not ended; none where `/proc` does not say."""
    found = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            found += [int(child) for child in task.read_text().split()]
    return found


def kill(pids: Iterable[int]) -> None:
    """Kill processes and all below them, which are found first: they lose their parents by it."""
    found = list(pids)
    for pid in found:
        found += children(pid)
    for pid in found:
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)
