"""From sources to a finished count table in a run folder, whatever happens on the way."""

import contextlib
import math
import os
import shutil
import socket
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

from dist_bpe import __version__, memory
from dist_bpe.corpus.documents import Skipped
from dist_bpe.corpus.plan import Plan, plan
from dist_bpe.counting.options import CountOptions
from dist_bpe.counting.table import CountTable, dropped_words, manifest
from dist_bpe.counting.tasks import (
    FAN_IN,
    CountTask,
    MergeTask,
    committed,
    count_shard,
    merge_part,
    merge_tasks,
    merged,
)
from dist_bpe.engine.base import Engine, run
from dist_bpe.engine.ledger import Ledger, Listener
from dist_bpe.engine.metrics import exported
from dist_bpe.engine.open import open_engine
from dist_bpe.engine.ray import embeds
from dist_bpe.errors import DamagedRunError, RunError, SourceError, UsageError, several
from dist_bpe.options import both
from dist_bpe.pretokenize.checks import resolve, syllable_advice, warnings_for
from dist_bpe.pretokenize.patterns import find
from dist_bpe.progress import Progress, human_bytes
from dist_bpe.run.config import RunConfig
from dist_bpe.run.lease import Lease
from dist_bpe.run.publish import publish_table
from dist_bpe.run.report import RunReport
from dist_bpe.run.resume import begin_or_resume, fingerprint, leave_or_remove, owned
from dist_bpe.storage import places
from dist_bpe.storage.files import RunPath, parse_path, remove, to_json, write
from dist_bpe.storage.layout import COUNTS, REPORT
from dist_bpe.vocabulary.data import check_special_tokens

# What spills and parts take at most of the text they were counted from; it is a tenth of that more often than not.
STAGED_SHARE = 0.25
# Times that damaged spills are counted again before the disk is blamed.
MAX_DAMAGED = 5
# Of words that begin with a combining mark. Text of scripts without them has a few at most, Hindi under gpt2 has half.
MARK_SHARE = 0.01
# Text whose table takes minutes to merge in 16 parts: below, more parts are not worth a word.
LARGE_MERGE = 100 << 30
# An embedded Ray starts and stops in three to five seconds on two processors.
RAY_SECONDS = 5.0


class Counted(NamedTuple):
    """A finished table, and what was left out on the way to it: plain values for a report, empty if it was there."""

    table: CountTable
    left_out: dict[str, Any]


def run_count(config: RunConfig, progress: Progress) -> Counted:
    """Plan, count and merge; see `api.making.count`."""
    pattern = resolve(config.count.pattern)
    check_special_tokens(config.count.special_tokens)
    output = parse_path(config.output)
    if output.exists() and not output.is_dir():  # before the plan, which takes time
        raise UsageError(f"the output {output} is a file; name a folder.")
    progress.fields["run"] = places.redacted(config.output)
    with progress.stage("plan", unit="files") as stage:
        planned = plan(config.sources, config.count.shard_bytes)
        rows = "" if planned.rows is None else f"{several(planned.rows, 'row')}, "
        stage.advance(
            len(planned.files), f"{rows}{human_bytes(planned.bytes)}, {several(len(planned.shards), 'shard')}"
        )
    # Without an address, which is one of Ray: what this process alone can read is counted here.
    local = bool(planned.in_memory) and config.engine.address is None
    engine = config.engine.engine or ("local" if local else "ray")
    config = config.model_copy(update={"engine": config.engine.model_copy(update={"engine": engine})})
    if planned.in_memory and engine != "local":
        raise UsageError(
            f"the documents of source {planned.in_memory[0]!r} lie in this process, where no Ray worker can read them. "
            'Use engine="local", or write them to a file.'
        )
    for text in [*planned.warnings(), *warnings_for(pattern)]:
        progress.warn(text)
    options = config.count.model_dump(mode="json", exclude={"table_bytes"})
    options |= {"pattern": pattern.regex, "special_tokens": sorted(config.count.special_texts)}
    left_out: dict[str, Any] = {}
    with owned(output, progress) as held:
        progress.tell(
            "run_began", version=__version__, host=socket.gethostname(), pid=os.getpid(), lease=held.number,
            engine=engine, files=len(planned.files), bytes=planned.bytes, shards=len(planned.shards),
        )  # fmt: skip
        begin_or_resume(output, held, fingerprint(planned, config.sources, options), config, progress)
        counted = held.staging.exists()
        if counted:
            left_out = _Counting(output, held, planned, config, progress).run()
        table = CountTable.open(output)
        for text in warnings_about(table, config.count):
            progress.warn(text)
        if counted or not (output / REPORT).exists():
            report = RunReport(config.output, table, progress.records, warnings=progress.warnings, left_out=left_out)
            held.check(now=True)
            write(output / REPORT, to_json(report.as_json()))
    return Counted(table, left_out)


def warnings_about(table: CountTable, options: CountOptions) -> list[str]:
    """Sentences about a pattern that cuts too much or nothing."""
    found = []
    cut = [name for name, source in table.sources.items() if source.mark_words > MARK_SHARE * source.words]
    advice = syllable_advice(resolve(options.pattern))
    if cut and advice:
        found.append(
            f"the pattern {options.pattern!r} cuts syllables apart (words that begin with a combining mark) in: "
            f"{', '.join(cut)}. Their text costs more tokens than it needs to; {advice}"
        )
    long = [f"{name} ({source.cut_words:,})" for name, source in table.sources.items() if source.cut_words]
    if long:
        found.append(
            f"words longer than max_word_bytes ({options.max_word_bytes:,}) were counted in pieces, in: "
            f"{', '.join(long)}."
        )
    total = sum(source.words for source in table.sources.values())
    documents = sum(source.documents for source in table.sources.values())
    if total <= documents and documents > 1 and options.pattern != "none":
        found.append(f"the pattern {options.pattern!r} left each document whole: it splits nothing here.")
    dropped = dropped_words(table)
    return [*found, dropped] if dropped else found


def partitions_advice(workers: int, partitions: int, size: int) -> str | None:
    """A sentence for a merge that will leave workers idle for longer than it is worth; None where it does not.

    Args:
        workers: the number of tasks at once.
        partitions: the number of parts of the table, each of which one task merges.
        size: the bytes of text.
    """
    if workers <= partitions or size < LARGE_MERGE:
        return None
    return (
        f"the merge will make {several(partitions, 'part')}, so that {several(workers - partitions, 'worker')} of "
        f"{workers:,} will have none to make: {both(CountOptions, 'partitions')} {workers} gives each one, if the run "
        "is begun anew (--restart)."
    )


@dataclass(frozen=True)
class _Counting:
    """The work of one driver on one run, from its plan to its table."""

    output: RunPath
    owned: Lease
    planned: Plan
    config: RunConfig
    progress: Progress

    def run(self) -> dict[str, Any]:
        """Count and merge in the staging folder, going on with what is committed there; put the table in its place.

        Returns what was left out.
        """
        try:
            with contextlib.ExitStack() as stack:
                stack.enter_context(self.progress.standard_output())
                engine = stack.enter_context(self._started())
                commits, parts = self._counted_and_merged(engine)
            skipped = Skipped.total(commit["skipped"] for commit in commits)
            for text in skipped.warnings():
                self.progress.warn(text)
            selection = self.planned.selection(commits)
            content = to_json(manifest(self.config.count, commits, parts, selection))
            publish_table(self.output, self.owned.staging, parts, content, self.owned)
        except BaseException:
            leave_or_remove(self.output, self.owned, len(self.planned.shards), self.progress)
            raise
        return {
            "files": [asdict(left) for left in self.planned.left_out],
            "selection": selection,
            "while_reading": skipped.as_dict(),
        }

    @contextlib.contextmanager
    def _started(self) -> Iterator[Engine]:
        """The engine, with all its nodes looked at."""
        options, staging = self.config.engine, self.owned.staging
        seconds = sum(source.core_seconds for source in self.planned.by_source())
        # A custom pattern takes longer than that, and uses but one processor in threads of one process.
        named = find(self.config.count.pattern).name is not None
        if options.engine == "ray" and embeds(options) and named and seconds < RAY_SECONDS:
            self.progress.say(
                f"an embedded Ray takes about {RAY_SECONDS:.0f} seconds to start and stop, longer than one thread "
                f"counts {human_bytes(self.planned.bytes)} of text: --engine local gives the same bytes sooner."
            )
        with contextlib.ExitStack() as stack:
            with self.progress.stage(f"start {options.engine}", unit="workers") as stage:
                engine = stack.enter_context(open_engine(options, len(self.planned.shards), self.progress.tell))
                if options.engine == "ray":
                    stack.enter_context(exported(self.progress, engine.workers))
                engine.probe(staging.resolve())
                stage.advance(engine.workers, f"{human_bytes(engine.memory_per_worker)} of memory each")
            if advice := partitions_advice(engine.workers, self.config.count.partitions, self.planned.bytes):
                self.progress.warn(advice)
            free = shutil.disk_usage(staging).free if isinstance(staging, Path) else math.inf
            needed = STAGED_SHARE * self.planned.bytes
            if free < needed:
                self.progress.warn(
                    f"{self.output} has {human_bytes(free)} of free space, and counting "
                    f"{human_bytes(self.planned.bytes)} of text may take {human_bytes(needed)}. A full disk stops the "
                    "run, and loses nothing."
                )
            yield engine

    def _counted_and_merged(self, engine: Engine) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """The commits of all shards and of all parts; what turns out to be damaged is made again."""
        for turn in range(MAX_DAMAGED):
            try:
                commits = self._counted(engine, first=not turn)
                return commits, self._merged(engine, commits, first=not turn)
            except DamagedRunError as error:
                self.progress.warn(str(error))
        raise RunError(f"files in {self.owned.staging} were damaged {MAX_DAMAGED} times: its disk cannot be trusted.")

    def _counted(self, engine: Engine, first: bool) -> list[dict[str, Any]]:
        """The commits of all shards; the `first` time those that are there already are of an earlier driver.

        Raises:
            SourceError: none of them holds any text.
        """
        options, shards = self.config.count, self.planned.shards
        table_bytes = memory.table_bytes(engine.memory_per_worker, options.table_bytes)
        # A worker may have another working folder than the driver: paths go out absolute.
        place = self.owned.staging.resolve()
        ledger: Ledger[CountTask, dict[str, Any]] = Ledger(
            (CountTask(shard, place, options, table_bytes) for shard in shards),
            engine.stall_seconds,
            _listener("count", self.progress),
        )
        with self.progress.stage("count", self.planned.bytes, "bytes") as stage:
            done, resumed = 0, dict[str, int]()
            for commit in committed(place):
                if not ledger.restore(tuple(commit["key"]), commit):
                    continue
                done += 1
                stage.advance(commit["bytes"], f"{done:,} of {len(shards):,} shards were finished before")
                for name, value in _figures(commit).items():
                    resumed[name] = resumed.get(name, 0) + value
            if done and first:
                self.progress.tell("run_resumed", None, stage="count", finished=done, **resumed)
            for commit in run(engine, count_shard, ledger):
                self.owned.check()
                done += 1
                stage.worker_peak(commit["peak_bytes"])
                stage.advance(commit["bytes"], f"shard {done:,} of {len(shards):,}")
        commits = ledger.results()
        if not any(totals["bytes"] for commit in commits for totals in commit["totals"]):
            remove(self.owned.staging)  # there is nothing to go on with
            files = self.planned.files
            looked = ", ".join(file.path for file in files[:5]) + (", …" if len(files) > 5 else "")
            bad = Skipped.total(commit["skipped"] for commit in commits).files
            why = "; ".join(f"{path} was not read to its end: {reason}" for path, reason in sorted(bad.items())[:3])
            raise SourceError(
                f"no text found: all rows are empty, null or left out (files looked at: {looked})."
                + (f" {why}{'; …' if len(bad) > 3 else ''}." if bad else "")
            )
        return commits

    def _merged(self, engine: Engine, commits: Sequence[dict[str, Any]], first: bool) -> list[dict[str, Any]]:
        """The commits of all parts; `first` as for `_counted`."""
        place = self.owned.staging.resolve()
        tasks = merge_tasks(commits, place, self.config.count, memory.fan_in(engine.memory_per_worker, FAN_IN))
        listener = _listener("merge", self.progress)
        ledger: Ledger[MergeTask, dict[str, Any]] = Ledger(tasks, engine.stall_seconds, listener)
        with self.progress.stage("merge", len(tasks), "parts") as stage:
            rows = 0
            for part in merged(place, place / COUNTS):
                ledger.restore((part["partition"],), part)
                rows += part["rows"]
                stage.advance(1, several(rows, "row"))
            if rows and first:
                self.progress.tell("run_resumed", stage="merge", finished=stage.done, unique_words=rows)
            for part in run(engine, merge_part, ledger):
                self.owned.check()
                rows += part["rows"]
                stage.worker_peak(part["peak_bytes"])
                stage.advance(1, several(rows, "row"))
        return ledger.results()


def _figures(commit: dict[str, Any]) -> dict[str, int]:
    """What the commit of a shard or part says in numbers."""
    if "totals" not in commit:
        return {"unique_words": commit["rows"]}
    return {
        **{name: sum(totals[name] for totals in commit["totals"]) for name in ("documents", "bytes", "words")},
        "skipped_rows": sum(commit["skipped"]["rows"].values()),
        "skipped_files": len(commit["skipped"]["files"]),
    }


def _listener(stage: str, progress: Progress) -> Listener:
    """Makes events of what a ledger tells; those that need a person's eye are a line in a log, too."""

    def listen(event: str, unit: CountTask | MergeTask, **fields: Any) -> None:
        where = dict(zip(("shard", "piece") if stage == "count" else ("part",), unit.key, strict=False))
        commit = fields.pop("result", None)
        if commit:
            fields |= _figures(commit) | {"peak_bytes": commit["peak_bytes"]}
        if "seconds" in fields:
            fields["seconds"] = round(fields["seconds"], 3)
        text = None
        if "cause" in fields:
            node = f" on {fields['node']}" if fields.get("node") else ""
            then = {"again": "tried again", "split": "cut into pieces", "end": "given up", "nothing": "not needed"}
            what = f"attempt {fields['attempt']} {event.removeprefix('attempt_')}{node}"
            text = f"{stage}: {unit}, {what}: {fields['cause']}; {then[fields['then']]}"
            fields["level"] = "warning"
        progress.tell(event, text, stage=stage, **where, **fields)

    return listen
