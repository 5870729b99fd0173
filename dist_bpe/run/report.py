"""What a command did, for its closing summary and report.json."""

from dataclasses import asdict, dataclass, field
from typing import Any

from dist_bpe.counting.table import CountTable
from dist_bpe.progress import StageRecord
from dist_bpe.storage import places
from dist_bpe.storage.files import RunPath
from dist_bpe.vocabulary.vocabulary import Vocabulary


@dataclass
class RunReport:
    """What a command did, for the closing summary and report.json; lies outside the reproducible set.

    `stages` have seconds and peak bytes of the driver and, where the work ran elsewhere, of the largest worker.
    `mixture` has (source, raw share, used share, multiplier), empty if natural; `curve` bytes per token by vocabulary
    size and source, for each size asked for; `bytes_per_token` is that of the largest. `chosen` has, with parity, the
    language that chose each merge, None where all did.
    """

    output: str
    table: CountTable | None = None
    stages: list[StageRecord] = field(default_factory=list)
    vocabulary: Vocabulary | None = None
    requested_size: int | None = None
    mixture: list[tuple[str, float, float, float]] = field(default_factory=list)
    bytes_per_token: dict[str, float] = field(default_factory=dict)
    curve: dict[int, dict[str, float]] = field(default_factory=dict)
    chosen: list[str | None] = field(default_factory=list)
    folders: list[RunPath] = field(default_factory=list)
    verification: dict[str, str] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    left_out: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.output = places.redacted(self.output)  # without secrets

    def as_json(self) -> dict[str, Any]:
        """The report as plain values."""
        return {
            "stages": [asdict(stage) for stage in self.stages],
            "sources": {name: vars(source) for name, source in self.table.sources.items()} if self.table else {},
            "mixture": [dict(zip(("source", "raw", "used", "multiplier"), row, strict=True)) for row in self.mixture],
            "bytes_per_token": self.bytes_per_token,
            "curve": self.curve,
            "chosen": self.chosen,
            "sizes": self.vocabulary.sizes if self.vocabulary else {},
            "requested_size": self.requested_size,
            "verification": self.verification,
            "left_out": self.left_out,
            "warnings": self.warnings,
        }
