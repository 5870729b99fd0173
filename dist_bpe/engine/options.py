"""The options that say where work runs."""

from typing import Literal

from pydantic import ByteSize, model_validator

from dist_bpe.options import Options, both, option


class EngineOptions(Options):
    """Where work runs."""

    engine: Literal["ray", "local"] | None = option(
        None,
        "ray (embedded, or the cluster at --address or RAY_ADDRESS) or local (threads of this process).",
        example="local",
        shown="ray, but local for documents in memory",
    )
    workers: int | None = option(None, "The number of tasks at once.", shown="one a processor", example=8, ge=1)
    address: str | None = option(
        None, "The address of the Ray cluster to join.", shown="RAY_ADDRESS, if it is set", example="HOST:6379"
    )
    memory_per_worker: ByteSize | None = option(
        None,
        "The memory of one worker, such as 2GB. On Ray each task asks for as much if it is given.",
        metavar="SIZE",
        example="2GB",
        shown="its share of what is free",
        ge=1 << 20,
    )
    stall_seconds: float = option(
        600,
        "A task of Ray that takes longer than this, and four times as long as any that finished, is also tried on "
        "another node.",
        metavar="SECONDS",
        gt=0,
    )

    @model_validator(mode="after")
    def _of_ray_alone(self) -> "EngineOptions":
        for name in ("address", "stall_seconds"):
            if self.engine == "local" and getattr(self, name) != type(self).model_fields[name].default:
                raise ValueError(
                    f"{both(EngineOptions, name)} has no effect with the engine local: leave it out, or take "
                    "the engine ray"
                )
        return self
