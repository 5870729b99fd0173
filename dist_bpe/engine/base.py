"""Where work runs: one seam, a few methods wide, with an in-process twin.

An engine starts attempts and says which have ended; the ledger decides what is started, how often and where. Functions
and tasks pickle; the function decides what is durable, so running a task twice, at once or later, must be harmless.
"""

import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol, TypeVar

from dist_bpe.engine.ledger import Ledger, Unit
from dist_bpe.errors import DamagedRunError
from dist_bpe.storage.files import RunPath

T = TypeVar("T", bound=Unit)
R = TypeVar("R")
# A signal handler that raises inside a long wait of Ray is served minutes late: wait in short pieces.
POLL_SECONDS = 0.5
STALL_SECONDS = 600.0
# Between two looks at the nodes of the cluster.
LOOK_SECONDS = 3.0
# For a cluster to answer at its address.
CONNECT_SECONDS = 20.0
# A cluster that has not answered for so long is gone. Ray itself ends this process after a minute, in its own words.
GONE_SECONDS = 35.0
# For all nodes to answer before work starts.
PROBE_SECONDS = 60.0
# For the first node with a processor: an autoscaler may have to buy and boot it.
NODES_SECONDS = 900.0
# Tasks that wait for that: more tell an autoscaler no more.
MOST_DEMANDED = 1000


class AttemptError(Exception):
    """An attempt that ended without a result and may be repeated; `own` unless a node was lost."""

    def __init__(self, cause: str, own: bool, node: str | None = None) -> None:
        super().__init__(cause)
        self.own = own
        self.node = node


def cause_of(error: BaseException) -> str:
    """What an attempt failed of, in one line; of memory that ran out with the way out, which its error never has."""
    text = (str(error).strip().splitlines() or [""])[0]
    if isinstance(error, MemoryError):
        text = f"{text.rstrip('.') or 'none is left'}. Give it more (ulimit -v, a control group), or lower --workers"
    return f"{type(error).__name__}: {text}"


class Engine(Protocol):
    """What `run` needs of a place where work runs. A handle is whatever the engine takes for one."""

    name: str
    stall_seconds: float
    """See `Ledger`."""
    memory_per_worker: int
    """Bytes."""

    @property
    def workers(self) -> int:
        """Tasks at once; may change while nodes come and go."""

    @property
    def slots(self) -> int:
        """Attempts that may be out at once; likewise."""

    def probe(self, folder: RunPath) -> None:
        """Check that all nodes run this version of the package, and read and write the same folder.

        Raises:
            UsageError: one does not; names it, and the way out.
        """

    def start(self, function: Callable[[Any], Any], task: Any, elsewhere: bool) -> Any:
        """Start `function(task)` and return its handle; `elsewhere`: on a node that is known to answer."""

    def wait(self, handles: Sequence[Any]) -> Sequence[Any]:
        """The handles that have ended; returns after `POLL_SECONDS` at the latest."""

    def result(self, handle: Any) -> tuple[str, Any]:
        """Where an attempt that has ended ran, and its result.

        Raises:
            DistBpeError: the task raised it: it would come again.
            AttemptError: anything else.
        """

    def cancel(self, handles: Sequence[Any], closing: bool = False) -> None:
        """Give up attempts whose end is of no interest any more; `closing`: the engine is about to be closed."""

    def nodes_lost(self) -> int:
        """How many nodes have been lost so far."""

    def close(self) -> None:
        """Leave nothing running."""


def run(engine: Engine, function: Callable[[T], R], ledger: Ledger[T, R]) -> Iterator[R]:
    """Work until every task of the ledger is covered; yields the results that count, as they come.

    Raises:
        DistBpeError: the first error that a task raised, as it was raised.
        RunError: a task that failed too often.
    """
    handles: dict[Any, int] = {}
    lost = engine.nodes_lost()
    closing = True
    try:
        while not ledger.done:
            if (more := engine.nodes_lost()) > lost:
                lost = more
                ledger.suspect(time.monotonic())
            ledger.expire(time.monotonic())
            while ledger.running < engine.slots and (attempt := ledger.take(time.monotonic())):
                handles[engine.start(function, attempt.task, attempt.elsewhere)] = attempt.number
            for handle in engine.wait(list(handles)):
                number = handles.pop(handle)
                try:
                    node, result = engine.result(handle)
                except AttemptError as error:
                    ledger.fail(number, str(error), error.own, time.monotonic(), error.node)
                else:
                    if ledger.finish(number, result, time.monotonic(), node):
                        yield result
            if needless := ledger.needless():
                engine.cancel([handle for handle, number in handles.items() if number in needless])
                handles = {handle: number for handle, number in handles.items() if number not in needless}
        closing = False
    except DamagedRunError:
        closing = False  # what is damaged is counted again, on this engine
        raise
    finally:
        engine.cancel(list(handles), closing)


def default_workers() -> int:
    """The processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


#: Set while threads of this process are to give up; long-running functions look at it between two batches.
STOP = threading.Event()
