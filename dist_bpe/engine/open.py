"""The engine of a name."""

import contextlib
from collections.abc import Iterator

from dist_bpe.engine.base import STALL_SECONDS, Engine, nobody
from dist_bpe.engine.local import LocalEngine
from dist_bpe.engine.ray import RayEngine
from dist_bpe.errors import UsageError
from dist_bpe.progress import Tell


@contextlib.contextmanager
def open_engine(
    name: str,
    workers: int | None = None,
    address: str | None = None,
    stall_seconds: float = STALL_SECONDS,
    memory_per_worker: int | None = None,
    tasks: int = 1,
    tell: Tell = nobody,
) -> Iterator[Engine]:
    """The engine "ray" or "local", closed at the end; `tell` hears of nodes, `tasks` is how many there will be.

    Raises:
        UsageError: another name, or fewer than one worker.
    """
    if workers is not None and workers < 1:
        raise UsageError(f"workers must be 1 or more, not {workers}.")
    if name == "local":
        engine: Engine = LocalEngine(workers, memory_per_worker)
    elif name == "ray":
        engine = RayEngine(workers, address, stall_seconds, memory_per_worker, tasks, tell)
    else:
        raise UsageError(f"unknown engine {name!r}; the engines are: ray, local.")
    try:
        yield engine
    finally:
        engine.close()
