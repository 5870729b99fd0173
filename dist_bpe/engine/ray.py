"""Ray: an embedded one, a cluster, or that of the process."""

import contextlib
import logging
import math
import os
import pickle
import re
import signal
import socket
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from dist_bpe.engine.base import (
    CONNECT_SECONDS,
    GONE_SECONDS,
    LOOK_SECONDS,
    MOST_DEMANDED,
    NODES_SECONDS,
    POLL_SECONDS,
    PROBE_SECONDS,
    AttemptError,
    cause_of,
    default_workers,
)
from dist_bpe.engine.node import node_side
from dist_bpe.engine.options import EngineOptions
from dist_bpe.errors import DistBpeError, RunError, UsageError
from dist_bpe.processes import children, kill
from dist_bpe.progress import Tell
from dist_bpe.storage.files import RunPath, uri_of, write


class RayEngine:
    """Plain Ray tasks, each asking for one processor, at most two a worker in flight.

    With no address and no Ray in this process, an embedded Ray of `workers` processors is started and stopped again. A
    process that has called `ray.init` already keeps its Ray. Nodes may come and go: the work follows them.
    """

    name = "ray"

    def __init__(self, options: EngineOptions, tasks: int, tell: Tell) -> None:
        self.stall_seconds = options.stall_seconds
        # Imported here alone: it takes a second, and the local engine must work without it.
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
        import ray

        self._ray = ray
        address = options.address or os.environ.get("RAY_ADDRESS")
        self._owned = not ray.is_initialized()
        self._embedded = embeds(options)
        if self._embedded:
            _start(options.workers or default_workers())
        elif self._owned and address:
            _reach(address)
            try:
                with _signals_kept():
                    ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
            except (ConnectionError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
                raise UsageError(f"no Ray cluster answers at {address}: {_first_line(error)}") from error
        self._tell = tell
        self._wanted = options.workers
        self._memory = {"memory": options.memory_per_worker} if options.memory_per_worker else {}
        self._nodes: dict[str, dict[str, Any]] = {}  # alive and with processors, as Ray describes them
        self._refused: set[str] = set()  # nodes that must not get work
        self._heard: dict[str, float] = {}  # when a node last finished something
        self._turn = self._lost = self._goal = 0
        self._asked = -math.inf  # when processors were asked for, while that request stands
        self._gone = False
        self._answered = time.monotonic()  # when the cluster did so last
        self._gcs = ray.get_runtime_context().gcs_address
        self._look_at_nodes()
        try:
            self._ask_for_processors(0 if self._embedded else tasks)
            self.memory_per_worker = options.memory_per_worker or self._share_of_memory()
        except BaseException:
            self.close()
            raise
        _, work = node_side(None, "")
        self._remote = ray.remote(work)  # made once: Ray sends each such object to all workers

    @property
    def workers(self) -> int:
        """Tasks that the nodes of now have room for, at most as many as were asked for."""
        room = self._room()
        return min(self._wanted or room, room)

    @property
    def slots(self) -> int:
        """See `Engine.slots`: twice the room, since an autoscaler buys nodes for tasks that wait; at most `workers`.

        An embedded Ray has just as many processors: twice that there, so that the next task is at hand when one ends.
        """
        room = 2 * max(self._room(), 1)
        return room if self._embedded or not self._wanted else min(room, self._wanted)

    def _room(self) -> int:
        sizes = [node["Resources"] for name, node in self._nodes.items() if name not in self._refused]
        memory = self._memory.get("memory")
        return int(sum(min(size["CPU"], size.get("memory", 0) // memory if memory else math.inf) for size in sizes))

    def _share_of_memory(self) -> int:
        sizes = (node["Resources"] for node in self._nodes.values())
        return int(min(size.get("memory", 0) // size["CPU"] for size in sizes))

    def _ask_for_processors(self, tasks: int) -> None:
        """Ask an autoscaler for the processors that the work can use, and wait for the first.

        Without any, tasks that do nothing wait for them, which every autoscaler takes for demand; later those of the
        work do. A request for all of `workers` hastens it, but one for more than the cluster may ever have is not
        answered by fewer, so that it is made for that number alone, which somebody chose.

        Raises:
            UsageError: no processor came, or no node has the memory that a task asks for.
        """
        self._goal = min(self._wanted or 0, tasks)
        if self._goal > self._room():
            self._request([{"CPU": 1, **self._memory}] * self._goal)
            self._asked = time.monotonic()
        wanted = [] if self._nodes else self._demand(min(self._wanted or tasks, tasks, MOST_DEMANDED))
        try:
            self._wait_for_nodes(len(wanted))
        except BaseException:
            self.cancel(wanted)
            raise
        if not self._room():
            # A task that asks for more than any node has would wait for ever.
            most = max(int(node["Resources"].get("memory", 0)) for node in self._nodes.values())
            raise UsageError(
                f"no node of the Ray cluster has memory_per_worker = {self._memory['memory']:,} bytes; the largest has "
                f"{most:,}. Ask for less."
            )

    def _wait_for_nodes(self, wanted: int) -> None:
        began, told = time.monotonic(), -math.inf
        while not self._nodes:
            now = time.monotonic()
            if now - began > NODES_SECONDS:
                raise UsageError(
                    f"the Ray cluster had no processors for tasks within {NODES_SECONDS:.0f} seconds. Start worker "
                    "nodes, or look at `ray status` for what keeps its autoscaler from it."
                )
            if now - told > 30:
                told = now
                text = f"the cluster has no processors yet: waited {now - began:.0f} of {NODES_SECONDS:.0f} seconds"
                self._tell("nodes_awaited", text, wanted=wanted, seconds=round(now - began, 3))
            time.sleep(POLL_SECONDS)
            self._look_at_nodes()

    def _demand(self, number: int) -> list[Any]:
        nothing = self._ray.remote(lambda: None).options(
            name="dist_bpe.demand", num_cpus=1, max_retries=0, **self._memory
        )
        return [nothing.remote() for _ in range(number)]

    def _request(self, bundles: list[dict[str, int]]) -> None:
        from ray.autoscaler.sdk import request_resources

        request_resources(bundles=bundles)

    def _look_at_nodes(self) -> None:
        """Take note of nodes that came and went; without an autoscaler's word for it, one that went was lost."""
        self._looked = time.monotonic()
        if not self._answers():
            return
        nodes = self._ray.nodes()
        alive = {node["NodeID"]: node for node in nodes if node["Alive"] and node["Resources"].get("CPU", 0) >= 1}
        lost = [node for node in nodes if not node["Alive"] and node.get("DeathReason") != _IDLE]
        before, self._nodes, self._lost = self._nodes, alive, len(lost)
        for name in alive.keys() - before.keys():
            self._heard[name] = self._looked
            self._tell(
                "node_joined",
                node=_name(alive[name]),
                processors=int(alive[name]["Resources"]["CPU"]),
                workers=self.workers,
            )
        gone = {node["NodeID"] for node in lost}
        for name in before.keys() - alive.keys():
            how = "lost" if name in gone else "left"
            self._tell(
                f"node_{how}",
                f"the node {_name(before[name])} is {how}",
                node=_name(before[name]),
                workers=self.workers,
            )
        if self._asked > 0 and (self._room() >= self._goal or self._looked > self._asked + NODES_SECONDS):
            # Running and waiting tasks hold the nodes from now on. A request would outlive a driver that is killed.
            self._withdraw()

    def _answers(self) -> bool:
        """Whether Ray's control service, the GCS, is there to be asked; a question to a dead one is never answered.

        Raises:
            RunError: the cluster, or the Ray of this process, is gone.
        """
        if self._embedded and (dead := self._dead()):
            self._gone = True
            raise RunError(
                f"the embedded Ray has ended: its process {dead} is gone, killed by somebody or for want of memory. "
                "What was finished is kept, and the same command goes on from there."
            )
        try:
            _connect(self._gcs, 2.0)
        except OSError as error:
            waited = time.monotonic() - self._answered
            if waited < GONE_SECONDS:
                return False
            self._gone = True
            raise RunError(
                f"the Ray cluster at {self._gcs} is gone: no answer for {waited:.0f} seconds "
                f"({error.strerror or error}). What was finished is kept, and the same command goes on from there once "
                "a cluster answers."
            ) from error
        self._answered = time.monotonic()
        return True

    def _dead(self) -> str:
        """The processes of the embedded Ray without which it does nothing, as far as they have ended."""
        node = getattr(self._ray._private.worker, "_global_node", None)
        dead = {kind for kind, _ in node.dead_processes()} if node else set()
        return " and ".join(sorted(dead & {"gcs_server", "raylet"}))

    def _withdraw(self) -> None:
        with contextlib.suppress(Exception):
            self._request([])
            self._asked = -math.inf

    def probe(self, folder: RunPath) -> None:
        """See `Engine.probe`. A node that does not answer is passed over: the ledger copes with those.

        A node that comes later is probed by each of its workers before the first task: see `_worker_side`.
        """
        token = uuid.uuid4().hex
        write(folder / f"probe-{token}", token.encode())  # a name that no other driver writes to
        look, work = node_side(uri_of(folder), token)
        self._remote = self._ray.remote(work)
        affinity = self._ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy
        remote = self._ray.remote(look)
        asked = {
            remote.options(num_cpus=0, max_retries=0, scheduling_strategy=affinity(node, soft=False)).remote(): node
            for node in sorted(self._nodes)
        }
        waiting, deadline = list(asked), time.monotonic() + PROBE_SECONDS
        while waiting and time.monotonic() < deadline:
            done, waiting = self._ray.wait(waiting, timeout=POLL_SECONDS)
            for handle in done:
                try:
                    _, problem = self._ray.get(handle)
                except self._ray.exceptions.RayError:
                    continue
                self._heard[asked[handle]] = time.monotonic()
                if problem:
                    raise UsageError(f"the node {_name(self._nodes[asked[handle]])} {problem}")

    def start(self, function: Callable[[Any], Any], task: Any, elsewhere: bool) -> Any:
        """See `Engine.start`."""
        # Ray's own retries are off: it repeats a task killed for memory without limit, and hides the first cause.
        # `max_retries=0` also turns off its reconstruction, which hangs on a frozen node.
        where = self._answering() if elsewhere or self._refused else "SPREAD"
        options: dict[str, Any] = {"num_cpus": 1, "max_retries": 0, "scheduling_strategy": where, **self._memory}
        if self._lost:
            # Ray asks for workers on behalf of all tasks alike, and what it asked of a node that was cut off stays open
            # for a minute and more. Some bytes make the tasks after a loss unlike those before.
            options["memory"] = abs(options.get("memory", 0) - self._lost)
        name = f"dist_bpe.{function.__name__}"
        return self._remote.options(name=name, **options).remote(pickle.dumps((function, task)))

    def _answering(self) -> Any:
        """Hard affinity to a node: the ones heard from last take turns. A frozen node looks alive for half a minute."""
        nodes = sorted(self._nodes.keys() - self._refused)
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

    def result(self, handle: Any) -> tuple[str, Any]:
        """See `Engine.result`."""
        errors = self._ray.exceptions
        try:
            node, problem, result = self._ray.get(handle)
        except errors.RayTaskError as error:
            cause = error.cause if isinstance(error.cause, BaseException) else error
            if isinstance(cause, DistBpeError):
                raise cause from None
            found = [_name(node) for node in self._nodes.values() if node["NodeManagerAddress"] == error.ip]
            node = found[0] if len(found) == 1 else error.ip
            raise AttemptError(cause_of(cause), True, node) from error
        except errors.RayError as error:
            self._answers()  # without its cluster no attempt can do better
            # A worker that was killed counts against the shard: it may be what the shard does to a worker.
            own = isinstance(error, (errors.WorkerCrashedError, errors.OutOfMemoryError, errors.RaySystemError))
            raise AttemptError(f"{type(error).__name__}: {_first_line(error)}", own) from error
        if node not in self._nodes:  # it came since the last look
            self._look_at_nodes()
        name = _name(self._nodes[node]) if node in self._nodes else node
        if problem:
            if node not in self._refused:
                self._refused.add(node)
                text = f"the node {name} {problem} It gets no work."
                self._tell("node_refused", text, level="warning", node=name, workers=self.workers)
            if not self._nodes.keys() - self._refused:
                raise RunError(f"no node is left that can work: the node {name} {problem}")
            raise AttemptError(f"the node {problem}", False, name)
        self._heard[node] = time.monotonic()
        return name, result

    def cancel(self, handles: Sequence[Any], closing: bool = False) -> None:
        """See `Engine.cancel`.

        A task that ends at the moment it is cancelled makes Ray 2.60 abort this process, which after a signal is to
        say what is kept and end with its own code: workers of a Ray that is left end without being told.
        """
        for handle in () if self._gone or (closing and self._owned) else handles:
            with contextlib.suppress(Exception):
                self._ray.cancel(handle, force=True)

    def nodes_lost(self) -> int:
        """See `Engine.nodes_lost`. Tasks of a dead node may hang instead of failing, and nothing tells which ones."""
        if time.monotonic() - self._looked > LOOK_SECONDS:
            self._look_at_nodes()
        return self._lost

    def close(self) -> None:
        """Stop the embedded Ray, or leave the cluster joined; a Ray that was there before stays."""
        if not self._ray.is_initialized():
            return
        if self._asked > 0 and not self._gone:
            self._withdraw()
        if self._owned:
            self._ray.shutdown()


def embeds(options: EngineOptions) -> bool:
    """Whether a Ray is started for this run alone: no address is given, and this process has no Ray."""
    ray = sys.modules.get("ray")
    return not (options.address or os.environ.get("RAY_ADDRESS") or (ray and ray.is_initialized()))


# How Ray describes the end of a node that its autoscaler took away because nothing ran there.
_IDLE = 4


def _name(node: dict[str, Any]) -> str:
    return f"{node['NodeManagerHostname']} ({node['NodeID'][:8]})"


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [""])[0]


def _connect(address: str, seconds: float) -> None:
    """Connect to a host:port, and leave it.

    Raises:
        OSError: nothing listens there, or nothing answered in time.
    """
    host, _, port = address.rpartition(":")
    socket.create_connection((host.strip("[]"), int(port)), seconds).close()


def _reach(address: str) -> None:
    """Make sure that a cluster answers before `ray.init` is called, which would try for minutes and hide the cause.

    Raises:
        UsageError: none does, or it refuses this process.
    """
    found = re.fullmatch(r"(ray://)?(\[[^\]\s]+\]|[^\[\]:/\s]+):(\d+)", address)
    if not found:
        return  # "auto" and "local", or what Ray itself has to say something of
    deadline = time.monotonic() + CONNECT_SECONDS
    while True:
        try:
            _connect(address.removeprefix("ray://"), CONNECT_SECONDS / 4)
            break
        except (OSError, OverflowError, UnicodeError) as error:
            if not isinstance(error, ConnectionRefusedError | TimeoutError) or time.monotonic() > deadline:
                raise UsageError(
                    f"no Ray cluster answers at {address}: {getattr(error, 'strerror', None) or error}. Check host and "
                    "port, and that `ray start --head` runs there."
                ) from error
        time.sleep(POLL_SECONDS)
    if found[1]:
        return
    refusal = _asked(address)
    if refusal is None:
        return
    if "Authentication" in type(refusal).__name__:
        raise UsageError(
            f"the Ray cluster at {address} refuses this process: its authentication token is missing here, or another "
            "one. Set RAY_AUTH_MODE=token, and RAY_AUTH_TOKEN or RAY_AUTH_TOKEN_PATH to the token of the cluster."
        ) from refusal
    raise UsageError(
        f"no Ray cluster answers at {address}: something listens there, but does not speak as Ray's head node of this "
        f"version does ({_first_line(refusal)}). Check host and port."
    ) from refusal


def _asked(address: str) -> BaseException | None:
    """What the control service of a cluster answers that is asked whether it is there; None if it is.

    In a thread, since the question cannot be broken off, neither by a signal nor by a deadline.
    """
    from ray._private.authentication.authentication_token_setup import ensure_token_if_auth_enabled
    from ray._raylet import GcsClient  # type: ignore[attr-defined]

    answer: list[BaseException | None] = []

    def ask() -> None:
        try:
            # A token that is asked for by RAY_AUTH_MODE and not there would make the client abort the process.
            ensure_token_if_auth_enabled(create_token_if_missing=False)
            GcsClient(address=address)
        except BaseException as error:
            answer.append(error)
        else:
            answer.append(None)

    thread = threading.Thread(target=ask, name="dist-bpe connect", daemon=True)
    thread.start()
    deadline = time.monotonic() + CONNECT_SECONDS
    while not answer and time.monotonic() < deadline:
        thread.join(POLL_SECONDS)
    return answer[0] if answer else TimeoutError(f"no answer within {CONNECT_SECONDS:.0f} seconds")


def _start(workers: int) -> None:
    """Start the embedded Ray, or leave nothing of it.

    Raises:
        RunError: it does not start.
    """
    import ray

    before = set(children(os.getpid()))
    try:
        with _signals_held(), _needless_left_out():
            ray.init(
                # Only "local" is sure to start a Ray of our own: a bare init attaches to any stale cluster on this
                # machine.
                address="local",
                num_cpus=workers,
                include_dashboard=False,
                log_to_driver=False,
                logging_level=logging.ERROR,
                object_store_memory=100 << 20,  # results are small: the data goes through the run folder
            )
    except Exception as error:  # Ray raises no class of its own for this
        # When this process ends, an incomplete Ray kills its own children alone, and theirs would live on for a minute.
        if getattr(ray._private.worker, "_global_node", None) is None:
            folder = str(Path(ray.__file__).parent).encode()
            started = set(children(os.getpid())) - before
            kill(pid for pid in started if Path(f"/proc/{pid}/cmdline").read_bytes().startswith(folder))
        raise RunError(
            f"no embedded Ray could be started ({_first_line(error)}). Try again, or use --engine local."
        ) from error
    except BaseException:
        ray.shutdown()
        raise


@contextlib.contextmanager
def _signals_held() -> Iterator[None]:
    """Signals are answered at once, but what their handlers raise comes when the embedded Ray is complete.

    Ray 2.60 that is interrupted before leaves processes behind for a minute, or crashes at the end of this one. A start
    takes seconds; who does not want to wait sends the signal again, which ends all of it at once.
    """
    from ray._private import utils

    raised: list[BaseException] = []

    def held(number: int, frame: Any) -> None:
        try:
            before[number](number, frame)
        except BaseException as error:
            raised.append(error)

    before: dict[int, Any] = {}
    if threading.current_thread() is threading.main_thread():
        handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
        before |= {number: handler for number, handler in handlers.items() if callable(handler)}
    own = utils.set_sigterm_handler
    try:
        for number in before:
            signal.signal(number, held)
        if signal.SIGTERM in before:
            utils.set_sigterm_handler = lambda _: None
        yield
    finally:
        utils.set_sigterm_handler = own
        for number, handler in before.items():
            if signal.getsignal(number) is held:  # else a handler has set another for the second signal
                signal.signal(number, handler)
    if raised:
        raise raised[0]


# Of a head node: each starts a process.
_NEEDLESS = ("start_monitor", "start_api_server", "start_log_monitor")


@contextlib.contextmanager
def _needless_left_out() -> Iterator[None]:
    """An embedded Ray without its autoscaler, the server of its dashboard, and the reader of its logs.

    `ray.init` starts the three whatever it is told, and waits for the server: two of the five seconds of processor time
    that a start takes (Ray 2.60, two processors). A Ray that starts them under other names starts as ever.
    """
    from ray._private.node import Node

    before = {name: vars(Node)[name] for name in _NEEDLESS if name in vars(Node)}
    try:
        for name in before:
            setattr(Node, name, lambda *_, **__: None)
        yield
    finally:
        for name, function in before.items():
            setattr(Node, name, function)


@contextlib.contextmanager
def _signals_kept() -> Iterator[None]:
    """`ray.init` takes SIGTERM for itself, and ends the process with the code 15; a handler set before stays."""
    before = signal.getsignal(signal.SIGTERM)
    kept = before not in (signal.SIG_DFL, None) and threading.current_thread() is threading.main_thread()
    stopped = False
    try:
        yield
    except SystemExit as error:
        if kept and callable(before) and error.code == signal.SIGTERM:
            stopped = True
            before(signal.SIGTERM, None)  # as if it had been there all the time
        raise
    finally:
        if kept and not stopped:
            signal.signal(signal.SIGTERM, before)
