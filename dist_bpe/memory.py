"""How much memory there is, and what counting, merging and learning may take of it."""

import contextlib
import os
import resource
from pathlib import Path

#: Resident bytes of a worker that holds nothing yet: interpreter, Arrow, and the batches on their way.
WORKER_BASE = 256 << 20
#: Bytes a merge takes for each run that it reads: a batch of 65,536 words, once as it lies on the disk and once open.
RUN_BYTES = 8 << 20
#: Bytes of a row group on its way out, a million rows of a word each.
ROW_GROUP_BYTES = 192 << 20
# Files that are open beside the runs of merges: of the process, and of libraries that are loaded meanwhile.
_OTHER_FILES = 64
_MOST_FILES = 1 << 16
# Of what is free; the rest is for what else the machine does.
_SHARE = 0.8


def available() -> int:
    """Bytes that this process may still take: what the machine has free, and its control groups and limits leave."""
    free = [1 << 62]
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)  # ulimit -v
    with contextlib.suppress(OSError, ValueError):
        if limit != resource.RLIM_INFINITY:
            pages = int(Path("/proc/self/statm").read_text().split()[0])
            free.append(limit - pages * resource.getpagesize())
    with contextlib.suppress(OSError, StopIteration, ValueError):
        lines = Path("/proc/meminfo").read_text().splitlines()
        free.append(int(next(line for line in lines if line.startswith("MemAvailable")).split()[1]) << 10)
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            names = ("memory.max", "memory.current", "inactive_file")
            root = Path("/sys/fs/cgroup")
            if controllers:
                if "memory" not in controllers.split(","):
                    continue
                names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
                root /= "memory"
            group = root / path.strip("/")
            # A limit may be set at any level above; inside a container only the root is seen.
            for folder in {group, *group.parents, root}:
                if folder.is_relative_to(root):
                    with contextlib.suppress(OSError, ValueError):
                        free.append(_left(folder, *names))
    return int(max(0, min(free)) * _SHARE)


def _left(folder: Path, limit: str, used: str, cache: str) -> int:
    """What a control group leaves; files in its cache are given back when they are in the way."""
    most = int((folder / limit).read_text())  # "max" is no number, and no limit
    kept = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
    return most - int((folder / used).read_text()) + int(kept.get(cache, 0))


def table_bytes(memory: int, wanted: int) -> int:
    """The size of a word table at which a worker of `memory` bytes writes it out.

    A table doubles with the old one beside it, and is sorted then: up to 3.4 times this size was seen, in 12 million
    different words (2026-11-30).
    """
    return min(wanted, max(1 << 20, (memory - WORKER_BASE) // 4))


def fan_in(memory: int, most: int) -> int:
    """How many spills a worker of `memory` bytes merges at once."""
    return min(fan_in_of_files(most), max(2, (memory - WORKER_BASE - ROW_GROUP_BYTES) // RUN_BYTES))


def allow_files() -> None:
    """Let this process open as many files as it may without asking anybody, up to as many as are ever of use."""
    files, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MOST_FILES if most == resource.RLIM_INFINITY else min(most, _MOST_FILES)
    if files != resource.RLIM_INFINITY and files < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))


def fan_in_of_files(most: int) -> int:
    """How many spills a merge in this process may have open at once; each takes one of the files that it may open.

    Merges of other threads are open beside it: a share of the limit is for each processor, or four of them.
    """
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files == resource.RLIM_INFINITY:
        return most
    return min(most, max(2, (files - _OTHER_FILES) // max(4, os.cpu_count() or 1)))
