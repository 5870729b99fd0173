"""What Prometheus sees of a run on Ray: counters and gauges that the driver sets from the events of its ledger.

Ray's agent on each node serves them beside Ray's own, with the prefix `ray_`. What a shard holds is counted when its
commit counts, so that no retry, duplicate or takeover shows in the sums.
"""

import contextlib
from collections.abc import Iterator
from typing import Any

from dist_bpe.progress import Progress

PREFIX = "dist_bpe_"
SUMS = ("documents", "bytes", "words", "skipped_rows", "skipped_files", "unique_words")
_SECONDS = [0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0, 3000.0, 10_000.0]


class Sums:
    """What commits hold, each shard and part once, however often it is made: of a whole shard only the rest."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, int], dict[str, int]] = {}

    def more(self, fields: dict[str, Any]) -> dict[str, int]:
        """What the event of a commit that counts adds to the sums."""
        found = {name: fields.get(name, 0) for name in SUMS}
        unit = next((name for name in ("shard", "part") if name in fields), None)
        if unit is None:
            return found
        before = self._known.setdefault((unit, fields[unit]), dict.fromkeys(SUMS, 0))
        added = found if "piece" in fields else {name: found[name] - before[name] for name in SUMS}
        for name in SUMS:
            before[name] += added[name]
        return added


class Metrics:
    """Listens to the events of one run."""

    def __init__(self, run: str) -> None:
        from ray.util.metrics import Counter, Gauge, Histogram

        self._run = run
        self._metrics: dict[str, Any] = {}
        self._sums = Sums()
        self._peak = 0

        def make(kind: Any, name: str, description: str, *tags: str, **options: Any) -> None:
            self._metrics[name] = kind(PREFIX + name, description, tag_keys=("run", *tags), **options)

        make(Counter, "documents", "Documents of finished shards")
        make(Counter, "bytes", "Text bytes of finished shards")
        make(Counter, "words", "Words of finished shards")
        make(Counter, "unique_words", "Unique words of each source, in finished parts")
        make(Counter, "skipped_rows", "Rows left out of finished shards by their policy")
        make(Counter, "skipped_files", "Files left out of finished shards by their policy")
        make(Counter, "attempts_failed", "Attempts that ended without a result", "stage")
        make(Counter, "attempts_stalled", "Attempts past their deadline", "stage")
        make(Counter, "nodes_lost", "Nodes that failed")
        make(Gauge, "tasks", "Shards (stage count) and parts (stage merge) by state", "stage", "state")
        make(Gauge, "workers", "Tasks that the nodes have room for")
        make(Gauge, "stage_seconds", "Seconds that a finished stage took", "stage")
        make(Gauge, "peak_bytes", "Peak memory of the driver in its last stage, and of the largest worker", "process")
        make(Histogram, "attempt_seconds", "Seconds of finished attempts", "stage", boundaries=_SECONDS)

    def __call__(self, event: str, fields: dict[str, Any]) -> None:
        """See `Progress.listeners`."""
        if event == "run_resumed":
            self._add(fields)
        elif event.startswith("attempt_"):
            self._attempt(event, fields)
        elif event.startswith("node_"):
            self._set("workers", fields["workers"])
            if event == "node_lost":
                self._count("nodes_lost", 1)
        elif event == "stage_ended":
            self._set("stage_seconds", fields["seconds"], stage=fields["stage"])
            self._set("peak_bytes", fields["peak_bytes"], process="driver")

    def _attempt(self, event: str, fields: dict[str, Any]) -> None:
        stage = fields["stage"]
        if event == "attempt_finished":
            self._metrics["attempt_seconds"].observe(fields["seconds"], {"run": self._run, "stage": stage})
            self._peak = max(self._peak, fields["peak_bytes"])
            self._set("peak_bytes", self._peak, process="worker")
            if fields["counts"]:
                self._add(fields)
        elif event in ("attempt_failed", "attempt_stalled"):
            self._count(event.replace("attempt", "attempts"), 1, stage=stage)
        left, running = fields["left"], min(fields["running"], fields["left"])
        for state, number in (("waiting", left - running), ("running", running), ("done", fields["tasks"] - left)):
            self._set("tasks", number, stage=stage, state=state)

    def _add(self, fields: dict[str, Any]) -> None:
        for name, more in self._sums.more(fields).items():
            self._count(name, more)

    def _count(self, name: str, more: int, **tags: str) -> None:
        if more > 0:
            self._metrics[name].inc(more, {"run": self._run, **tags})

    def _set(self, name: str, value: float, **tags: str) -> None:
        self._metrics[name].set(value, {"run": self._run, **tags})


@contextlib.contextmanager
def exported(progress: Progress, workers: int) -> Iterator[None]:
    """Export what the progress tells, and the stages that ended before, while this process is part of a Ray cluster."""
    metrics = Metrics(str(progress.fields.get("run", "")))
    metrics("node_joined", {"workers": workers})
    for record in progress.records:
        metrics("stage_ended", {"stage": record.name, "seconds": record.seconds, "peak_bytes": record.peak_bytes})
    progress.listeners.append(metrics)
    try:
        yield
    finally:
        progress.listeners.remove(metrics)
