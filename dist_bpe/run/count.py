"""From sources to a finished count table in a run folder, whatever happens on the way."""

import contextlib
import math
import os
import shutil
import socket
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from dist_bpe import __version__, memory
from dist_bpe.corpus.documents import Skipped
from dist_bpe.corpus.plan import Plan, plan
from dist_bpe.counting.options import CountOptions
from dist_bpe.counting.table import CountTable, manifest
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
from dist_bpe.errors import DamagedRunError, RunError, SourceError, UsageError
from dist_bpe.pretokenize.checks import resolve, warnings_for
from dist_bpe.pretokenize.patterns import Pattern
from dist_bpe.progress import Progress, human_bytes
from dist_bpe.run.config import RunConfig
from dist_bpe.run.lease import Lease, holder, lease
from dist_bpe.run.publish import publish_table
from dist_bpe.run.report import RunReport, warn
from dist_bpe.run.resume import begin_or_resume, fingerprint, leave_or_remove, remove_if_empty
from dist_bpe.storage import places
from dist_bpe.storage.files import RunPath, parse_path, remove, to_json, write
from dist_bpe.storage.layout import COUNTS, LEASE, REPORT
from dist_bpe.vocabulary.data import check_special_tokens

# What runs and parts take at most of the text they were counted from; it is a tenth of that more often than not.
STAGED_SHARE = 0.25
# Times that damaged runs are counted again before the disk is blamed.
MAX_DAMAGED = 5
# Of words that begin with a combining mark. Text of scripts without them has a few at most, Hindi under gpt2 has half.
MARK_SHARE = 0.01
KEEPS_MARKS = "the patterns gpt2-marks, o200k and deepseek3 keep marks with their letters."


def run_count(config: RunConfig, progress: Progress, report: RunReport) -> CountTable:
    """Plan, count and merge; see `count`."""
    pattern = resolve(config.count.pattern)
    check_special_tokens(config.count.special_tokens)
    output = parse_path(config.output)
    if output.exists() and not output.is_dir():
        raise UsageError(f"the output {output} is a file; name a folder.")
    sources = [source.source() for source in config.sources]
    progress.fields["run"] = places.redacted(config.output)
    with progress.stage("plan", unit="files") as stage:
        planned = plan(sources, config.count.shard_bytes)
        rows = "" if planned.rows is None else f"{planned.rows:,} rows, "
        stage.advance(len(planned.files), f"{rows}{human_bytes(planned.bytes)}, {len(planned.shards)} shards")
    if planned.in_memory and config.engine.engine != "local":
        raise UsageError(
            f"the documents of source {planned.in_memory[0]!r} lie in this process, where no Ray worker can read them. "
            'Use engine="local", or write them to a file.'
        )
    for text in [*planned.warnings(), *warnings_for(pattern)]:
        warn(progress, report, text)
    options = config.count.model_dump(mode="json", exclude={"table_bytes"})
    options |= {"pattern": pattern.regex, "special_tokens": sorted(token.text for token in config.count.special_tokens)}
    fresh = not output.exists()
    try:
        with contextlib.ExitStack() as stack:
            try:
                output.mkdir(parents=True, exist_ok=True)
                (output / LEASE).mkdir(exist_ok=True)
                before = holder(output)
                owned = stack.enter_context(lease(output, progress.say))
            except OSError as error:
                raise UsageError(
                    f"{output} cannot be written: {error.strerror or error}. Name another folder."
                ) from error
            if before and not before.released:
                progress.tell("run_taken_over", host=before.host, pid=before.pid)
            progress.tell(
                "run_began", version=__version__, host=socket.gethostname(), pid=os.getpid(), lease=owned.number,
                engine=config.engine.engine, files=len(planned.files), bytes=planned.bytes, shards=len(planned.shards),
            )  # fmt: skip
            begin_or_resume(output, owned, fingerprint(planned, sources, options), config, progress)
            counted = owned.staging.exists()
            if counted:
                _count_into(output, owned, planned, pattern, config, progress, report)
            table = report.table = CountTable.open(output)
            warnings_about(table, config.count, progress, report)
            if counted or not (output / REPORT).exists():
                report.stages = progress.records
                owned.check(now=True)
                write(output / REPORT, to_json(report.as_json()))
    except BaseException:
        if fresh:
            remove_if_empty(output)
        raise
    return table


def warnings_about(table: CountTable, options: CountOptions, progress: Progress, report: RunReport) -> None:
    """Warn of a pattern that cuts too much or nothing."""
    cut = [name for name, source in table.sources.items() if source.mark_words > MARK_SHARE * source.words]
    if cut:
        warn(
            progress,
            report,
            f"the pattern {options.pattern!r} cuts syllables apart (words that begin with a combining mark) in: "
            f"{', '.join(cut)}. Their text costs more tokens than it needs to; {KEEPS_MARKS}",
        )
    long = [f"{name} ({source.cut_words:,})" for name, source in table.sources.items() if source.cut_words]
    if long:
        warn(
            progress,
            report,
            f"words longer than max_word_bytes ({options.max_word_bytes:,}) were counted in pieces, in: "
            f"{', '.join(long)}.",
        )
    total = sum(source.words for source in table.sources.values())
    documents = sum(source.documents for source in table.sources.values())
    if total <= documents and documents > 1 and options.pattern != "none":
        warn(progress, report, f"the pattern {options.pattern!r} left each document whole: it splits nothing here.")


def _count_into(
    output: RunPath,
    owned: Lease,
    planned: Plan,
    pattern: Pattern,
    config: RunConfig,
    progress: Progress,
    report: RunReport,
) -> None:
    """Count and merge in the staging folder, going on with what is committed there, and move the table to its place."""
    staging = owned.staging
    try:
        with contextlib.ExitStack() as stack:
            stack.enter_context(progress.standard_output())
            with progress.stage(f"start {config.engine.engine}", unit="workers") as stage:
                engine = stack.enter_context(
                    open_engine(
                        config.engine.engine,
                        config.engine.workers,
                        config.engine.address,
                        config.engine.stall_seconds,
                        config.engine.memory_per_worker,
                        len(planned.shards),
                        progress.tell,
                    )
                )
                if config.engine.engine == "ray":
                    stack.enter_context(exported(progress, engine.workers))
                engine.probe(staging.resolve())
                stage.advance(engine.workers, f"{human_bytes(engine.memory_per_worker)} of memory each")
            free = shutil.disk_usage(staging).free if isinstance(staging, Path) else math.inf
            if free < STAGED_SHARE * planned.bytes:
                warn(
                    progress,
                    report,
                    f"{output} has {human_bytes(free)} of free space, and counting {human_bytes(planned.bytes)} of "
                    f"text may take {human_bytes(STAGED_SHARE * planned.bytes)}. A full disk stops the run, and loses "
                    "nothing.",
                )
            commits, parts = _counted_and_merged(engine, owned, planned, config, progress, report)
        skipped = Skipped.total(commit["skipped"] for commit in commits)
        selection = planned.selection(commits)
        report.left_out = {
            "files": [asdict(left) for left in planned.left_out],
            "selection": selection,
            "while_reading": skipped.as_dict(),
        }
        for text in skipped.warnings():
            warn(progress, report, text)
        texts = tuple(token.text for token in config.count.special_tokens)
        values = manifest(
            pattern, texts, config.count.normalization, config.count.max_word_bytes, config.count.min_word_count,
            commits, parts, selection,
        )  # fmt: skip
        publish_table(output, staging, parts, to_json(values), owned)
    except BaseException:
        leave_or_remove(output, owned, len(planned.shards), progress)
        raise


def _counted_and_merged(
    engine: Engine, owned: Lease, planned: Plan, config: RunConfig, progress: Progress, report: RunReport
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The commits of all shards and of all parts; what turns out to be damaged is made again."""
    for turn in range(MAX_DAMAGED):
        try:
            commits = _counted(engine, owned, planned, config, progress, first=not turn)
            return commits, _merged(engine, owned, commits, config, progress, first=not turn)
        except DamagedRunError as error:
            warn(progress, report, str(error))
    raise RunError(f"files in {owned.staging} were damaged {MAX_DAMAGED} times: its disk cannot be trusted.")


def _counted(
    engine: Engine, owned: Lease, planned: Plan, config: RunConfig, progress: Progress, first: bool
) -> list[dict[str, Any]]:
    """The commits of all shards; the `first` time those that are there already are of an earlier driver.

    Raises:
        SourceError: none of them holds any text.
    """
    options = config.count
    texts = tuple(token.text for token in options.special_tokens)
    table_bytes = memory.table_bytes(engine.memory_per_worker, options.table_bytes)
    # A worker may have another working folder than the driver: paths go out absolute.
    place = owned.staging.resolve()
    ledger: Ledger[CountTask, dict[str, Any]] = Ledger(
        (
            CountTask(
                shard,
                place,
                options.pattern,
                texts,
                options.partitions,
                table_bytes,
                options.normalization,
                options.max_word_bytes,
            )
            for shard in planned.shards
        ),
        engine.stall_seconds,
        _listener("count", progress),
    )
    with progress.stage("count", planned.bytes, "bytes") as stage:
        done, resumed = 0, dict[str, int]()
        for commit in committed(place):
            if not ledger.restore(tuple(commit["key"]), commit):
                continue
            done += 1
            stage.advance(commit["bytes"], f"{done:,} of {len(planned.shards):,} shards were finished before")
            for name, value in _figures(commit).items():
                resumed[name] = resumed.get(name, 0) + value
        if done and first:
            progress.tell("run_resumed", None, stage="count", finished=done, **resumed)
        for commit in run(engine, count_shard, ledger):
            owned.check()
            done += 1
            stage.worker_peak(commit["peak_bytes"])
            stage.advance(commit["bytes"], f"shard {done:,} of {len(planned.shards):,}")
    commits = ledger.results()
    if not any(totals["bytes"] for commit in commits for totals in commit["totals"]):
        remove(owned.staging)  # there is nothing to go on with
        looked = ", ".join(file.path for file in planned.files[:5]) + (", …" if len(planned.files) > 5 else "")
        raise SourceError(f"no text found: all rows are empty, null or left out (files looked at: {looked}).")
    return commits


def _merged(
    engine: Engine,
    owned: Lease,
    commits: Sequence[dict[str, Any]],
    config: RunConfig,
    progress: Progress,
    first: bool,
) -> list[dict[str, Any]]:
    """The commits of all parts; `first` as for `_counted`."""
    place = owned.staging.resolve()
    fan_in = memory.fan_in(engine.memory_per_worker, FAN_IN)
    tasks = merge_tasks(commits, place, config.count.partitions, config.count.min_word_count, fan_in)
    ledger: Ledger[MergeTask, dict[str, Any]] = Ledger(tasks, engine.stall_seconds, _listener("merge", progress))
    with progress.stage("merge", len(tasks), "parts") as stage:
        rows = 0
        for part in merged(place, place / COUNTS):
            ledger.restore((part["partition"],), part)
            rows += part["rows"]
            stage.advance(1, f"{rows:,} rows")
        if rows and first:
            progress.tell("run_resumed", stage="merge", finished=stage.done, unique_words=rows)
        for part in run(engine, merge_part, ledger):
            owned.check()
            rows += part["rows"]
            stage.worker_peak(part["peak_bytes"])
            stage.advance(1, f"{rows:,} rows")
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
