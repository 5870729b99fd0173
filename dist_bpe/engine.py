"""Where work runs: one seam, a few methods wide, with an in-process twin.

An engine starts attempts and says which have ended; the ledger decides what is started, how often and where. Functions
and tasks pickle; the function decides what is durable, so running a task twice, at once or later, must be harmless.
"""

import contextlib
import logging
import math
import os
import signal
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import Any, Protocol, TypeVar

from dist_bpe import budget
from dist_bpe.errors import DistBpeError, RunError, UsageError
from dist_bpe.ledger import Ledger, Unit
from dist_bpe.remote import RemotePath
from dist_bpe.storage import RunPath, write

T = TypeVar("T", bound=Unit)
R = TypeVar("R")

# A signal handler that raises inside a long wait of Ray is served minutes late: wait in short pieces.
POLL_SECONDS = 0.5
STALL_SECONDS = 600.0
# Between two looks at the nodes of the cluster.
LOOK_SECONDS = 3.0
# For all nodes to answer before work starts.
PROBE_SECONDS = 60.0


class AttemptError(Exception):
    """An attempt that ended without a result and may be repeated; `own` unless a node was lost."""

    def __init__(self, cause: str, own: bool) -> None:
        super().__init__(cause)
        self.own = own


class Engine(Protocol):
    """What `run` needs of a place where work runs. A handle is whatever the engine takes for one."""

    name: str
    workers: int
    slots: int
    """Attempts that may be out at once."""
    stall_seconds: float
    """See `Ledger`."""
    memory_per_worker: int
    """Bytes."""

    def probe(self, folder: RunPath) -> None:
        """Check that all nodes run this version of the package, and read and write the same folder.

        Raises:
            UsageError: one does not; names it, and the way out.
        """

    def start(self, function: Callable[[Any], Any], task: Any, elsewhere: bool) -> Any:
        """Start `function(task)` and return its handle; `elsewhere`: on a node that is known to answer."""

    def wait(self, handles: Sequence[Any]) -> Sequence[Any]:
        """The handles that have ended; returns after `POLL_SECONDS` at the latest."""

    def result(self, handle: Any) -> Any:
        """The result of an attempt that has ended.

        Raises:
            DistBpeError: the task raised it: it would come again.
            AttemptError: anything else.
        """

    def cancel(self, handles: Sequence[Any]) -> None:
        """Give up attempts whose end is of no interest any more."""

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
                    result = engine.result(handle)
                except AttemptError as error:
                    ledger.fail(number, str(error), error.own, time.monotonic())
                else:
                    if ledger.finish(number, result, time.monotonic()):
                        yield result
            if needless := ledger.needless():
                engine.cancel([handle for handle, number in handles.items() if number in needless])
                handles = {handle: number for handle, number in handles.items() if number not in needless}
    finally:
        engine.cancel(list(handles))


def default_workers() -> int:
    """The processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


#: Set while threads of this process are to give up; long-running functions look at it between two batches.
STOP = threading.Event()


class LocalEngine:
    """Threads of this process: the native core releases the interpreter lock while it counts, merges and reads."""

    name = "local"
    stall_seconds = math.inf  # threads are not lost, and there is no elsewhere

    def __init__(self, workers: int | None = None, memory_per_worker: int | None = None) -> None:
        self.workers = self.slots = workers or default_workers()
        self.memory_per_worker = memory_per_worker or budget.available() // self.workers
        self._pool = ThreadPoolExecutor(self.workers, thread_name_prefix="dist-bpe")

    def probe(self, folder: RunPath) -> None:
        """See `Engine.probe`; this process is the only node."""

    def start(self, function: Callable[[Any], Any], task: Any, elsewhere: bool) -> "Future[Any]":  # noqa: ARG002
        """See `Engine.start`; there is no elsewhere."""
        if self.workers > 1:
            return self._pool.submit(function, task)
        # In the calling thread a signal reaches the code between two batches at once.
        future: Future[Any] = Future()
        try:
            future.set_result(function(task))
        except Exception as error:
            future.set_exception(error)
        return future

    def wait(self, handles: Sequence["Future[Any]"]) -> Sequence["Future[Any]"]:
        """See `Engine.wait`."""
        return list(wait(handles, timeout=POLL_SECONDS, return_when=FIRST_COMPLETED).done)

    def result(self, handle: "Future[Any]") -> Any:
        """See `Engine.result`."""
        try:
            return handle.result()
        except DistBpeError:
            raise
        except Exception as error:
            raise AttemptError(f"{type(error).__name__}: {error}", own=True) from error

    def cancel(self, handles: Sequence["Future[Any]"]) -> None:
        """See `Engine.cancel`. Threads cannot be ended from outside: they are asked to, and waited for."""
        running = [handle for handle in handles if not handle.cancel() and not handle.done()]
        if running:
            STOP.set()
            try:
                wait(running)
            finally:
                STOP.clear()

    def nodes_lost(self) -> int:
        """See `Engine.nodes_lost`."""
        return 0

    def close(self) -> None:
        """See `Engine.close`."""
        self._pool.shutdown()


class RayEngine:
    """Plain Ray tasks, each asking for one processor, at most two a worker in flight.

    With no address and no Ray in this process, an embedded Ray of `workers` processors is started and stopped again. A
    process that has called `ray.init` already keeps its Ray.
    """

    name = "ray"

    def __init__(
        self,
        workers: int | None = None,
        address: str | None = None,
        stall_seconds: float = STALL_SECONDS,
        memory_per_worker: int | None = None,
    ) -> None:
        self.stall_seconds = stall_seconds
        # Imported here alone: it takes a second, and the local engine must work without it.
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
        import ray

        self._ray = ray
        address = address or os.environ.get("RAY_ADDRESS")
        self._owned = not ray.is_initialized()
        with _signals_kept():
            if self._owned and address:
                try:
                    ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
                except (ConnectionError, RuntimeError) as error:
                    raise UsageError(f"no Ray cluster answers at {address}: {error}") from error
            elif self._owned:
                try:
                    # Only "local" is sure to start a Ray of our own: a bare init attaches to any stale cluster on this
                    # machine.
                    ray.init(
                        address="local",
                        num_cpus=workers or default_workers(),
                        include_dashboard=False,
                        log_to_driver=False,
                        logging_level=logging.ERROR,
                        object_store_memory=100 << 20,  # results are small: the data goes through the run folder
                    )
                except Exception as error:  # Ray raises no class of its own for this
                    raise RunError(
                        f"no embedded Ray could be started ({_first_line(error)}). Try again, or use --engine local."
                    ) from error
        nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        nodes = [node for node in nodes if node.get("CPU", 0) >= 1]
        if not nodes:
            raise UsageError("the Ray cluster has no processors for tasks.")
        # A task that asks for more than any node has would wait for ever.
        self._memory = {"memory": memory_per_worker} if memory_per_worker else {}
        fitting = [min(node["CPU"], node.get("memory", 0) // (memory_per_worker or 1)) for node in nodes]
        available = int(sum(fitting))
        if not available:
            most = max(int(node.get("memory", 0)) for node in nodes)
            raise UsageError(
                f"no node of the Ray cluster has memory_per_worker = {memory_per_worker:,} bytes; the largest has "
                f"{most:,}. Ask for less."
            )
        self.memory_per_worker = memory_per_worker or int(min(node.get("memory", 0) // node["CPU"] for node in nodes))
        self.workers = min(workers or available, available)
        self.slots = 2 * self.workers
        self._remote = ray.remote(_with_node)  # made once: Ray sends each such object to all workers
        self._heard: dict[str, float] = {}  # when a node last finished something
        self._turn = self._lost = 0
        self._looked = -math.inf

    def probe(self, folder: RunPath) -> None:
        """See `Engine.probe`. A node that does not answer is passed over: the ledger copes with those."""
        token = uuid.uuid4().hex
        write(folder / "probe", token.encode())
        where = folder.uri() if isinstance(folder, RemotePath) else str(folder)

        def look(node: str) -> dict[str, str]:  # pickled by value, so that it runs where the package is missing
            import socket

            found = {"node": f"{socket.gethostname()} ({node[:8]})"}
            try:
                import pyarrow

                import dist_bpe
                from dist_bpe import _core
                from dist_bpe.errors import DistBpeError
                from dist_bpe.storage import at, write

                found |= {
                    "dist_bpe": dist_bpe.__version__,
                    "pyarrow": pyarrow.__version__,
                    "Unicode tables": _core.UNICODE_TABLES,
                }
            except ImportError as error:
                return found | {"missing": str(error)}
            try:
                same = (at(where) / "probe").read_text() == token
                write(at(where) / f"probe-{node}", token.encode())
            except (OSError, DistBpeError) as error:
                return found | {"unreachable": getattr(error, "strerror", None) or str(error)}
            return found if same else found | {"unreachable": "it holds other files"}

        affinity = self._ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy
        remote = self._ray.remote(look)
        asked = {
            remote.options(num_cpus=0, max_retries=0, scheduling_strategy=affinity(node, soft=False)).remote(node): node
            for node in self._nodes()
        }
        mine = look("driver")
        waiting, deadline = list(asked), time.monotonic() + PROBE_SECONDS
        while waiting and time.monotonic() < deadline:
            done, waiting = self._ray.wait(waiting, timeout=POLL_SECONDS)
            for handle in done:
                try:
                    found = self._ray.get(handle)
                except self._ray.exceptions.RayError:
                    continue
                self._heard[asked[handle]] = time.monotonic()
                if "missing" in found:
                    raise UsageError(
                        f"the node {found['node']} cannot import the package ({found['missing']}). Install dist_bpe "
                        f"{mine['dist_bpe']} on every node."
                    )
                for name in ("dist_bpe", "pyarrow", "Unicode tables"):
                    if found[name] != mine[name]:
                        raise UsageError(
                            f"the node {found['node']} has {name} {found[name]}, and this driver {mine[name]}. "
                            "Install the same versions on every node."
                        )
                if "unreachable" in found:
                    raise UsageError(
                        f"the node {found['node']} does not reach the run folder at {folder}: {found['unreachable']}. "
                        "Name a folder that all nodes share under one path."
                    )
        for probe in folder.glob("probe*"):
            probe.unlink(missing_ok=True)

    def _nodes(self) -> list[str]:
        nodes = self._ray.nodes()
        return sorted(node["NodeID"] for node in nodes if node["Alive"] and node["Resources"].get("CPU"))

    def start(self, function: Callable[[Any], Any], task: Any, elsewhere: bool) -> Any:
        """See `Engine.start`."""
        # Ray's own retries are off: it repeats a task killed for memory without limit, and hides the first cause.
        # `max_retries=0` also turns off its reconstruction, which hangs on a frozen node.
        where = self._answering() if elsewhere else "SPREAD"
        options = {"num_cpus": 1, "max_retries": 0, "scheduling_strategy": where, **self._memory}
        return self._remote.options(**options).remote(function, task)

    def _answering(self) -> Any:
        """Hard affinity to a node: the ones heard from last take turns. A frozen node looks alive for half a minute."""
        nodes = self._nodes()
        if not nodes:
            return "SPREAD"
        latest = max(self._heard.get(node, 0.0) for node in nodes)
        nodes = [node for node in nodes if self._heard.get(node, 0.0) >= latest - 60]
        self._turn += 1
        return self._ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(
            nodes[self._turn % len(nodes)], soft=False
        )

    def wait(self, handles: Sequence[Any]) -> Sequence[Any]:
        """See `Engine.wait`."""
        first, _ = self._ray.wait(list(handles), timeout=POLL_SECONDS)
        finished: Sequence[Any] = self._ray.wait(list(handles), num_returns=len(handles), timeout=0)[0] if first else []
        return finished

    def result(self, handle: Any) -> Any:
        """See `Engine.result`."""
        errors = self._ray.exceptions
        try:
            node, result = self._ray.get(handle)
        except errors.RayTaskError as error:
            cause = error.cause if isinstance(error.cause, BaseException) else error
            if isinstance(cause, DistBpeError):
                raise cause from None
            raise AttemptError(f"{type(cause).__name__}: {_first_line(cause)}", own=True) from error
        except errors.RayError as error:
            # A worker that was killed counts against the shard: it may be what the shard does to a worker.
            own = isinstance(error, (errors.WorkerCrashedError, errors.OutOfMemoryError, errors.RaySystemError))
            raise AttemptError(f"{type(error).__name__}: {_first_line(error)}", own) from error
        self._heard[node] = time.monotonic()
        return result

    def cancel(self, handles: Sequence[Any]) -> None:
        """See `Engine.cancel`."""
        for handle in handles:
            with contextlib.suppress(Exception):
                self._ray.cancel(handle, force=True)

    def nodes_lost(self) -> int:
        """See `Engine.nodes_lost`. Tasks of a dead node may hang instead of failing, and nothing tells which ones."""
        if time.monotonic() - self._looked > LOOK_SECONDS:
            self._looked = time.monotonic()
            self._lost = sum(not node["Alive"] for node in self._ray.nodes())
        return self._lost

    def close(self) -> None:
        """Stop the embedded Ray, or leave the cluster joined; a Ray that was there before stays."""
        if self._owned and self._ray.is_initialized():
            self._ray.shutdown()


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [""])[0]


def _with_node(function: Callable[[Any], Any], task: Any) -> tuple[str, Any]:
    import ray

    return ray.get_runtime_context().get_node_id(), function(task)


@contextlib.contextmanager
def _signals_kept() -> Iterator[None]:
    """`ray.init` takes SIGTERM for itself, and would end the process with the code 15; a handler set before stays."""
    before = signal.getsignal(signal.SIGTERM)
    yield
    if before not in (signal.SIG_DFL, None) and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, before)


@contextlib.contextmanager
def open_engine(
    name: str,
    workers: int | None = None,
    address: str | None = None,
    stall_seconds: float = STALL_SECONDS,
    memory_per_worker: int | None = None,
) -> Iterator[Engine]:
    """The engine "ray" or "local", closed at the end.

    Raises:
        UsageError: another name, or fewer than one worker.
    """
    if workers is not None and workers < 1:
        raise UsageError(f"workers must be 1 or more, not {workers}.")
    if name == "local":
        engine: Engine = LocalEngine(workers, memory_per_worker)
    elif name == "ray":
        engine = RayEngine(workers, address, stall_seconds, memory_per_worker)
    else:
        raise UsageError(f"unknown engine {name!r}; the engines are: ray, local.")
    try:
        yield engine
    finally:
        engine.close()
