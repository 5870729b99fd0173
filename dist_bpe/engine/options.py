"""The options that say where work runs."""

from typing import Literal

from pydantic import ByteSize, Field

from dist_bpe.options import Options


class EngineOptions(Options):
    """Where work runs.

    Attributes:
        engine: `ray` (embedded, or the cluster at `address` or RAY_ADDRESS) or `local` threads.
        workers: tasks at once.
        address: the Ray cluster to join.
        stall_seconds: a task of Ray that takes longer, and four times as long as any that finished, is also tried on
            another node.
        memory_per_worker: bytes that a worker may take; by default its share of what is free. On Ray each task asks for
            as much if it is given.
    """

    engine: Literal["ray", "local"] = "ray"
    workers: int | None = Field(default=None, ge=1)
    address: str | None = None
    stall_seconds: float = Field(default=600, gt=0)
    memory_per_worker: ByteSize | None = Field(default=None, ge=1 << 20)
