"""The engine of a name."""

import contextlib
from collections.abc import Iterator

from dist_bpe.engine.base import Engine
from dist_bpe.engine.local import LocalEngine
from dist_bpe.engine.options import EngineOptions
from dist_bpe.engine.ray import RayEngine
from dist_bpe.progress import Tell


@contextlib.contextmanager
def open_engine(options: EngineOptions, tasks: int, tell: Tell) -> Iterator[Engine]:
    """The engine that the options name, closed at the end; `tell` hears of nodes, `tasks` is how many there will be.

    Raises:
        UsageError: no Ray cluster that answers, or none with room for a task.
    """
    engine = LocalEngine(options) if options.engine == "local" else RayEngine(options, tasks, tell)
    try:
        yield engine
    finally:
        engine.close()
