"""Counting: from sources to a finished count table in a run folder, through whatever happens on the way."""

import contextlib
import dataclasses
import hashlib
import math
import os
import shutil
import socket
import tempfile
import uuid
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from dist_bpe import __version__, budget, places
from dist_bpe.config import CountConfig, RunConfig, validate
from dist_bpe.counts import (
    FAN_IN,
    CountTable,
    CountTask,
    MergeTask,
    add_tables,
    committed,
    count_shard,
    manifest,
    merge_part,
    merge_tasks,
    merged,
)
from dist_bpe.documents import Skipped
from dist_bpe.engine import Engine, open_engine, run
from dist_bpe.errors import DamagedRunError, DistBpeError, RunError, SourceError, UsageError
from dist_bpe.formats import check_special_tokens
from dist_bpe.lease import FOLDER as LEASE
from dist_bpe.lease import PLAN, RELEASED, Lease, holder, lease
from dist_bpe.ledger import Ledger, Listener
from dist_bpe.metrics import exported
from dist_bpe.pretokenize import Pattern, resolve, warnings_for
from dist_bpe.progress import Progress, StageRecord, human_bytes
from dist_bpe.remote import RemotePath
from dist_bpe.resume import differences, fingerprint, shown
from dist_bpe.sources import Plan, Source, plan
from dist_bpe.storage import (
    RunPath,
    at,
    move,
    publish_folder,
    put,
    remove,
    sealed,
    to_json,
    unsealed,
    uri_of,
    write,
)
from dist_bpe.vocabulary import Vocabulary
from dist_bpe.wordlists import WordList, gather

REPORT = "report.json"
# What runs and parts take at most of the text they were counted from; it is a tenth of that more often than not.
STAGED_SHARE = 0.25
# Times that damaged runs are counted again before the disk is blamed.
MAX_DAMAGED = 5
# Of words that begin with a combining mark. Text of scripts without them has a few at most, Hindi under gpt2 has half.
MARK_SHARE = 0.01
KEEPS_MARKS = "the patterns gpt2-marks, o200k and deepseek3 keep marks with their letters."
COUNTS = "counts"


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
        self.output = places.show(self.output)  # without secrets

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


def count(
    *sources: Source,
    output: str | RunPath,
    engine: str = "ray",
    workers: int | None = None,
    address: str | None = None,
    memory_per_worker: int | str | None = None,
    overwrite: bool = False,
    restart: bool = False,
    progress: str = "auto",
    **options: Any,
) -> CountTable:
    """Count the words of sources into a table in the run folder `output`, or go on with what lies there unfinished.

    Args:
        sources: what to read.
        output: the run folder, a path or a URI of an object store; the table lies in its folder `counts`.
        engine: "ray" (embedded, or a cluster by `address`, RAY_ADDRESS or an earlier `ray.init`) or "local".
        workers: tasks at once; by default one a processor.
        address: the Ray cluster to join.
        memory_per_worker: bytes, or a text like "2GB"; by default a worker's share of what is free.
        overwrite: replace a table that stands there already.
        restart: begin anew, whatever is there, finished or not.
        progress: "auto", "bars", "lines", "json" or "silent".
        options: the fields of `CountConfig`: pattern, normalization, special_tokens, max_word_bytes, min_word_count,
            partitions, shard_bytes, table_bytes.

    Raises:
        UsageError: an option or source that cannot work; found before counting, and nothing is written then.
        DataError: a row or file that cannot be counted.
        RunError: the folder holds another table or an unfinished run of other inputs or options, another driver works
            on it, its disk is full, or a shard keeps failing. What was finished is kept, and the same call goes on.
    """
    config = validate(
        RunConfig,
        {
            "sources": [
                {f.name: getattr(s, f.name) for f in dataclasses.fields(s)} | {"paths": s.list_of_paths()}
                for s in sources
            ],
            "output": uri_of(output),
            "overwrite": overwrite,
            "restart": restart,
            "count": options,
            "engine": {
                "engine": engine,
                "workers": workers,
                "address": address,
                "memory_per_worker": memory_per_worker,
            },
        },
    )
    return run_count(config, Progress(progress), RunReport(config.output))


def run_count(config: RunConfig, progress: Progress, report: RunReport) -> CountTable:
    """Plan, count and merge; see `count`."""
    pattern = resolve(config.count.pattern)
    check_special_tokens(config.count.special_tokens)
    output = at(config.output)
    if output.exists() and not output.is_dir():
        raise UsageError(f"the output {output} is a file; name a folder.")
    sources = [source.source() for source in config.sources]
    progress.fields["run"] = places.show(config.output)
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
            _begin(output, owned, fingerprint(planned, sources, options), config, progress)
            counted = owned.staging.exists()
            if counted:
                _count_into(output, owned, planned, pattern, config, progress, report)
            table = report.table = CountTable.open(output)
            _doubts(table, config.count, progress, report)
            if counted or not (output / REPORT).exists():
                report.stages = progress.records
                owned.check(now=True)
                write(output / REPORT, to_json(report.as_json()))
    except BaseException:
        if fresh:
            _remove_if_empty(output)
        raise
    return table


def _doubts(table: CountTable, options: CountConfig, progress: Progress, report: RunReport) -> None:
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


def _begin(
    output: RunPath, owned: Lease, planned: dict[str, Any] | None, config: RunConfig, progress: Progress
) -> None:
    """Leave a staging folder with this plan in it, new or to go on with; none if the table is there already.

    Raises:
        RunError: what lies there, finished or not, was made of other inputs or by other options.
    """
    # The plan lies where what it speaks of lies: in staging first, and beside the table once that is finished.
    begun, finished = owned.staging / PLAN, output / PLAN
    if owned.staging.exists():
        old = unsealed(begun)
        if config.restart or not old or planned is None:
            owned.check(now=True)
            remove(owned.staging)
        elif changed := differences(_without_table(old), planned):
            raise RunError(
                f"{output} holds an unfinished run that this command cannot go on with: {shown(changed)}. Give the "
                "command it was begun with, name another folder, or begin anew with --restart."
            )
        else:
            write(begun, sealed(planned))  # with the policies of now
            return
    if (output / COUNTS).exists() and not config.overwrite and not config.restart:
        old = unsealed(finished) if planned else None
        if old and old.get("table") != CountTable.open(output).digest:
            old = None  # the table was put there by something else
        changed = differences(_without_table(old), planned) if old and planned else []
        if old and not changed:
            progress.say(f"count: {output / COUNTS} is there already, of the same inputs and options.")
            return
        raise RunError(
            f"{output} holds a count table already{' of another run' if changed else ''}"
            f"{f' ({shown(changed)})' if changed else ''}. Learn from it (`dist-bpe learn {output}`), name another "
            "folder, or replace it with --overwrite."
        )
    owned.begin()
    staging = owned.staging
    if isinstance(staging, RemotePath):
        write(staging / PLAN, sealed(planned or {}))
        try:
            owned.check(now=True)
        except RunError:
            remove(staging)
            raise
        return
    # Made whole beside its name, so that a staging folder always holds its plan.
    new = staging.with_name(f".{staging.name}")
    remove(new)
    new.mkdir()
    if planned is not None:
        write(new / PLAN, sealed(planned))
    owned.check()
    move(new, staging)


def _without_table(plan: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in plan.items() if name != "table"}


def _of_table(plan: dict[str, Any], manifest: bytes) -> bytes:
    return sealed(plan | {"table": hashlib.sha256(manifest).hexdigest()})


def _remove_if_empty(output: RunPath) -> None:
    """Remove the folders that this run made, if it leaves nothing in them, and no other driver has come since."""
    with contextlib.suppress(OSError, DistBpeError):
        if any(path.name != LEASE for path in output.iterdir()):
            return
        for file in (output / LEASE).iterdir():
            if not file.read_text().startswith(RELEASED):
                return
            file.unlink()
        (output / LEASE).rmdir()
        output.rmdir()


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
        _publish_table(output, staging, parts, to_json(values), owned)
    except BaseException:
        _keep(output, owned, len(planned.shards), progress)
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


def _keep(output: RunPath, owned: Lease, shards: int, progress: Progress) -> None:
    """Say what a stopped run leaves to go on with, or remove it if that is nothing: while it is still ours."""
    with contextlib.suppress(OSError, DistBpeError):  # what stopped the run comes first
        kept = len(list(owned.staging.glob("shard-*.json")))
        if kept and unsealed(owned.staging / PLAN):
            progress.say(
                f"count: {kept:,} of {shards:,} shards are finished and kept in {output}; the same command goes on "
                "from there."
            )
        else:
            owned.check(now=True)
            remove(owned.staging)


def _counted(
    engine: Engine, owned: Lease, planned: Plan, config: RunConfig, progress: Progress, first: bool
) -> list[dict[str, Any]]:
    """The commits of all shards; the `first` time those that are there already are of an earlier driver.

    Raises:
        SourceError: none of them holds any text.
    """
    options = config.count
    texts = tuple(token.text for token in options.special_tokens)
    table_bytes = budget.table_bytes(engine.memory_per_worker, options.table_bytes)
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
    fan_in = budget.fan_in(engine.memory_per_worker, FAN_IN)
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


def _publish_table(
    output: RunPath,
    staging: RunPath,
    parts: Sequence[dict[str, Any]],
    content: bytes,
    owned: Lease | None = None,
) -> None:
    """Move the finished table to its place."""
    if isinstance(output, RemotePath):
        _publish_objects(output, staging, parts, content, owned)
        return
    if isinstance(staging, RemotePath):
        raise TypeError("what is staged in an object store belongs to a run there")
    if owned:
        owned.check()
    # Every path begins or ends in staging, which only the owner can reach.
    folder = staging / COUNTS
    folder.mkdir(exist_ok=True)
    for part in parts:
        if (staging / part["file"]).exists():
            move(staging / part["file"], folder / part["file"])
    # Only by renames, so that the folder never holds what a crash left half-written.
    write(staging / "manifest.json", content)
    move(staging / "manifest.json", folder / "manifest.json")
    if plan := unsealed(staging / PLAN):
        write(staging / PLAN, _of_table(plan, content))
    if (output / COUNTS).exists():
        move(output / COUNTS, staging / f"replaced-{uuid.uuid4().hex}")
    move(folder, output / COUNTS)
    if plan:
        move(staging / PLAN, output / PLAN)
    remove(staging)


def _publish_objects(
    output: RemotePath,
    staging: RunPath,
    parts: Sequence[dict[str, Any]],
    content: bytes,
    owned: Lease | None,
) -> None:
    """Copy the parts to their place, and put the manifest there: the one step that makes the table.

    Parts are named by their content: those of one table never touch those of another, and readers of the old table keep
    theirs until the end. The manifest is put on the condition that nobody has put one since this driver was the owner.
    """
    folder = output / COUNTS
    manifest = folder / "manifest.json"
    before = manifest.version()
    if owned:
        owned.check(now=True)
    for part in parts:
        source = staging / part["file"]
        if isinstance(source, RemotePath):
            source.copy(folder / part["file"])
        else:
            put(source, folder / part["file"])
    if not manifest.replace(content, before):
        raise RunError(
            f"something else has put a count table into {output} at this moment; this one was not put there."
        )
    if owned:
        owned.check(now=True)
    if plan := unsealed(staging / PLAN):
        write(output / PLAN, _of_table(plan, content))
    named = {part["file"] for part in parts} | {"manifest.json"}
    old = [folder / name for name in folder.sizes() if name not in named]
    if owned:
        owned.check(now=True)
    folder.delete(old)
    remove(staging)


def add_runs(
    runs: Sequence[str | RunPath], output: str | RunPath, overwrite: bool, progress: Progress, report: RunReport
) -> CountTable:
    """Add the count tables of run folders into another; see `add_tables`."""
    output = at(output)
    progress.fields["run"] = str(output)
    tables = [CountTable.open(run) for run in runs]
    if any(table.folder in (output, output / COUNTS) for table in tables):
        raise UsageError(f"{output} is one of the runs to add: name another folder for the sum.")
    if len(tables) < 2:
        raise UsageError("name at least two run folders to add.")
    if (output / COUNTS).exists() and not overwrite:
        raise RunError(f"{output} holds a count table already; name another folder, or replace it with --overwrite.")
    with progress.stage("add", len(tables[0].parts), "parts") as stage, publish_folder(output / COUNTS) as folder:
        add_tables(tables, folder)
        stage.advance(len(tables[0].parts))
    report.stages = progress.records
    report.table = CountTable.open(output)
    return report.table


def import_counts(
    lists: str | Path | Sequence[WordList],
    *,
    output: str | Path,
    overwrite: bool = False,
    progress: str = "auto",
    **options: Any,
) -> CountTable:
    """Make a count table in the run folder `output` from words that were counted elsewhere.

    Words that stand there twice are summed; those with a count of zero are left out. The table is the one that counting
    the text itself makes, if that was cut by the same pattern, but knows nothing of documents.

    Args:
        lists: a path, folder, glob or URI, or any number of `wordlists.WordList` with columns and names of sources.
        output: the run folder; the table lies in its folder `counts`.
        overwrite: replace a table that stands there already.
        progress: "auto", "bars", "lines", "json" or "silent".
        options: the fields of `CountConfig`: pattern (what cut the words, which goes into the vocabulary),
            special_tokens (those that were cut out of the text), min_word_count, partitions, table_bytes.

    Raises:
        UsageError: an option, file or column that cannot work.
        DataError: a word that is missing or not UTF-8, or a count that is negative or no whole number; names the row.
        RunError: the folder holds a table already.
    """
    if isinstance(lists, (str, Path)):
        lists = [WordList("corpus", (str(lists),))]
    config = validate(CountConfig, options)
    for option in ("shard_bytes", "max_word_bytes"):
        if getattr(config, option) is not None:
            raise UsageError(f"{option} has no effect on lists of words: leave it out.")
    return run_import(lists, output, overwrite, config, Progress(progress), RunReport(str(output)))


def run_import(
    lists: Sequence[WordList],
    output: str | RunPath,
    overwrite: bool,
    config: CountConfig,
    progress: Progress,
    report: RunReport,
) -> CountTable:
    """Gather lists of words into a table; see `import_counts`."""
    output = at(output)
    progress.fields["run"] = str(output)
    pattern = resolve(config.pattern)
    check_special_tokens(config.special_tokens)
    if (output / COUNTS).exists() and not overwrite:
        raise RunError(f"{output} holds a count table already; name another folder, or replace it with --overwrite.")
    fresh = not output.exists()
    output.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as stack:
        if fresh:
            stack.callback(lambda: None if (output / COUNTS).exists() else output.rmdir())
        where = output if isinstance(output, Path) else None
        staging = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix=".import-", dir=where)))
        with progress.stage("gather", unit="words") as stage:
            commits, warnings = gather(lists, staging, config.partitions, config.table_bytes, pattern)
            stage.advance(sum(commit["totals"][0]["words"] for commit in commits))
        for text in warnings + warnings_for(pattern):
            warn(progress, report, text)
        if not commits:
            raise SourceError("no words found: the lists hold none with a count above zero.")
        with progress.stage("merge", config.partitions, "parts") as stage:
            parts = []
            for task in merge_tasks(commits, staging, config.partitions, config.min_word_count, FAN_IN):
                parts.append(merge_part(task))
                stage.advance(1)
        texts = tuple(token.text for token in config.special_tokens)
        values = manifest(pattern, texts, config.normalization, None, config.min_word_count, commits, parts, {})
        _publish_table(output, staging, parts, to_json(values))
    report.table = CountTable.open(output)
    return report.table


def warn(progress: Progress, report: RunReport, text: str) -> None:
    """Say it now, and once more in the report."""
    progress.warn(text)
    report.warnings.append(text)
