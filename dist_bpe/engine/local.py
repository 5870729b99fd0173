"""Threads of this process."""

import math
import socket
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import Any

from dist_bpe import memory
from dist_bpe.engine.base import POLL_SECONDS, STOP, AttemptError, cause_of, default_workers
from dist_bpe.engine.options import EngineOptions
from dist_bpe.errors import DistBpeError
from dist_bpe.storage.files import RunPath


class LocalEngine:
    """Threads of this process: the native core releases the interpreter lock while it counts, merges and reads."""

    name = "local"
    stall_seconds = math.inf  # threads are not lost, and there is no elsewhere

    def __init__(self, options: EngineOptions) -> None:
        self.workers = self.slots = options.workers or default_workers()
        self.memory_per_worker = options.memory_per_worker or memory.available() // self.workers
        memory.allow_files()
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

    def result(self, handle: "Future[Any]") -> tuple[str, Any]:
        """See `Engine.result`."""
        try:
            return socket.gethostname(), handle.result()
        except DistBpeError:
            raise
        except Exception as error:
            raise AttemptError(cause_of(error), own=True) from error

    def cancel(self, handles: Sequence["Future[Any]"], closing: bool = False) -> None:  # noqa: ARG002
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
