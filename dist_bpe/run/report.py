"""What a command did, for its closing summary and report.json."""

from dataclasses import asdict, dataclass, field
from typing import Any

import pyarrow as pa

from dist_bpe.counting.table import CountTable
from dist_bpe.errors import several
from dist_bpe.progress import StageRecord
from dist_bpe.storage import places
from dist_bpe.storage.files import RunPath
from dist_bpe.tables import Tabular, arrow_table
from dist_bpe.vocabulary.vocabulary import Vocabulary


@dataclass(repr=False)
class RunReport(Tabular):
    """What a command did, for the closing summary and report.json; lies outside the reproducible set.

    As a table, a row for each source.

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

    def _described(self) -> str:
        shown = [several(len(self.table.sources), "source")] if self.table else []
        shown += [f"{len(self.vocabulary):,} tokens"] if self.vocabulary is not None else []
        shown += [f"{sum(stage.seconds for stage in self.stages):.1f} s"] if self.stages else []
        shown += [several(len(self.warnings), "warning")] if self.warnings else []
        return f"<RunReport of {self.output}: {', '.join(shown)}>"

    def to_arrow(self) -> pa.Table:
        """A row for each source, those of most bytes first: its totals, bytes per token, and part in the mixture."""
        sources = sorted(self.table.sources.items(), key=lambda row: (-row[1].bytes, row[0])) if self.table else []
        columns: dict[str, list[Any]] = {"source": [name for name, _ in sources]}
        for total in ("documents", "bytes", "words", "unique_words"):
            columns[total] = [getattr(source, total) for _, source in sources]
        if self.bytes_per_token:
            columns["bytes_per_token"] = [self.bytes_per_token.get(name) for name, _ in sources]
        if self.mixture:
            mixture = {name: (used, multiplier) for name, _, used, multiplier in self.mixture}
            for i, column in enumerate(("used_share", "multiplier")):
                columns[column] = [mixture[name][i] if name in mixture else None for name, _ in sources]
        return arrow_table(columns)

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
