"""Where work runs: one seam, one method wide, with an in-process twin.

An engine maps a function over tasks and yields results as they come, never holding more than a few in flight. The
function and its tasks pickle; the function decides what is durable, so running a task twice must be harmless.
"""

import contextlib
import logging
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import Any, Protocol, TypeVar

from dist_bpe.errors import DistBpeError, RunError, UsageError

T = TypeVar("T")
R = TypeVar("R")

# Attempts of one task when its worker dies. An error that the task raises is never repeated: it would come again.
MAX_ATTEMPTS = 3


class Engine(Protocol):
    """What the pipeline needs of a place where work runs."""

    name: str
    workers: int

    def run(self, function: Callable[[T], R], tasks: Iterable[T]) -> Iterator[R]:
        """Yield `function(task)` for every task, in the order of completion, a bounded number at a time.

        Raises:
            DistBpeError: the first error a task raised, as it was raised.
            RunError: a task's worker died `MAX_ATTEMPTS` times.
        """

    def close(self) -> None:
        """Leave nothing running."""


def default_workers() -> int:
    """The processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class LocalEngine:
    """Threads of this process: the native core releases the interpreter lock while it counts, merges and reads."""

    name = "local"

    def __init__(self, workers: int | None = None) -> None:
        self.workers = workers or default_workers()

    def run(self, function: Callable[[T], R], tasks: Iterable[T]) -> Iterator[R]:
        """See `Engine.run`."""
        if self.workers == 1:
            # In the calling thread a signal reaches the code between two batches at once.
            yield from map(function, tasks)
            return
        waiting = iter(tasks)
        running: set[Future[R]] = set()
        with ThreadPoolExecutor(self.workers, thread_name_prefix="dist-bpe") as pool:
            try:
                while True:
                    while len(running) < self.workers:
                        task = next(waiting, None)
                        if task is None:
                            break
                        running.add(pool.submit(function, task))
                    if not running:
                        return
                    finished, running = wait(running, timeout=0.5, return_when=FIRST_COMPLETED)
                    for future in finished:
                        yield future.result()
            except BaseException:
                STOP.set()
                pool.shutdown(wait=True, cancel_futures=True)
                raise
            finally:
                STOP.clear()

    def close(self) -> None:
        """Nothing outlives `run`."""


#: Set while threads of this process are to give up; long-running functions look at it between two batches.
STOP = threading.Event()


class RayEngine:
    """Plain Ray tasks, each asking for one processor, at most two a worker in flight.

    With no address and no Ray in this process, an embedded Ray of `workers` processors is started and stopped again. A
    process that has called `ray.init` already keeps its Ray.
    """

    name = "ray"

    def __init__(self, workers: int | None = None, address: str | None = None) -> None:
        # Imported here alone: it takes a second, and the local engine must work without it.
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
        import ray

        self._ray = ray
        address = address or os.environ.get("RAY_ADDRESS")
        self._owned = not ray.is_initialized()
        if self._owned and address:
            try:
                ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
            except (ConnectionError, RuntimeError) as error:
                raise UsageError(f"no Ray cluster answers at {address}: {error}") from error
        elif self._owned:
            # Only "local" is sure to start a Ray of our own: a bare init attaches to any stale cluster on this machine.
            ray.init(
                address="local",
                num_cpus=workers or default_workers(),
                include_dashboard=False,
                log_to_driver=False,
                logging_level=logging.ERROR,
                object_store_memory=100 << 20,  # results are small: the data goes through the run folder
            )
        available = int(ray.cluster_resources().get("CPU", 0))
        if not available:
            raise UsageError("the Ray cluster has no processors for tasks.")
        self.workers = min(workers or available, available)

    def run(self, function: Callable[[T], R], tasks: Iterable[T]) -> Iterator[R]:
        """See `Engine.run`."""
        ray = self._ray
        # Ray's own retries are off: it repeats a task killed for memory without limit, and hides the first cause.
        remote = ray.remote(function).options(num_cpus=1, max_retries=0, scheduling_strategy="SPREAD")
        waiting = iter(tasks)
        running: dict[Any, tuple[T, int]] = {}
        try:
            while True:
                while len(running) < 2 * self.workers:
                    task = next(waiting, None)
                    if task is None:
                        break
                    running[remote.remote(task)] = (task, 1)
                if not running:
                    return
                # A signal handler that raises inside a long wait is served minutes late: wait in short pieces.
                finished, _ = ray.wait(list(running), timeout=0.5)
                for reference in finished:
                    task, attempt = running.pop(reference)
                    try:
                        result = ray.get(reference)
                    except ray.exceptions.RayTaskError as error:
                        cause = error.cause if isinstance(error.cause, BaseException) else error
                        raise cause if isinstance(cause, DistBpeError) else error from None
                    except ray.exceptions.RayError as error:
                        if attempt == MAX_ATTEMPTS:
                            first = str(error).strip().splitlines()[0]
                            raise RunError(
                                f"the worker of {task} died {attempt} times, last: {first} "
                                "Give the workers more memory, or use smaller shards (--shard-bytes)."
                            ) from error
                        running[remote.remote(task)] = (task, attempt + 1)
                        continue
                    yield result
        finally:
            for reference in running:
                with contextlib.suppress(Exception):
                    ray.cancel(reference, force=True)

    def close(self) -> None:
        """Stop the embedded Ray, or leave the cluster joined; a Ray that was there before stays."""
        if self._owned and self._ray.is_initialized():
            self._ray.shutdown()


@contextlib.contextmanager
def open_engine(name: str, workers: int | None = None, address: str | None = None) -> Iterator[Engine]:
    """The engine "ray" or "local", closed at the end.

    Raises:
        UsageError: another name, or fewer than one worker.
    """
    if workers is not None and workers < 1:
        raise UsageError(f"workers must be 1 or more, not {workers}.")
    if name == "local":
        engine: Engine = LocalEngine(workers)
    elif name == "ray":
        engine = RayEngine(workers, address)
    else:
        raise UsageError(f"unknown engine {name!r}; the engines are: ray, local.")
    try:
        yield engine
    finally:
        engine.close()
