"""The run: count -> learn -> export, from sources to vocabulary files; the only module that knows them all."""

import contextlib
import dataclasses
import math
import os
import shutil
import socket
import tempfile
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, overload

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dist_bpe import __version__, budget, places, reference
from dist_bpe.balance import Outcome, Retrainer, balance, frontier, held_back, refuse_overlap, search
from dist_bpe.balance import warnings as limits
from dist_bpe.config import (
    CountConfig,
    LearnConfig,
    RunConfig,
    special_token,
    validate,
)
from dist_bpe.counts import (
    FAN_IN,
    CountTable,
    CountTask,
    DamagedRunError,
    MergeTask,
    add_tables,
    committed,
    count_shard,
    manifest,
    merge_part,
    merge_tasks,
    merged,
)
from dist_bpe.documents import Skipped, to_numpy
from dist_bpe.engine import Engine, open_engine, run
from dist_bpe.errors import CountOverflowError, RunError, SourceError, UsageError
from dist_bpe.evaluate import Corpus
from dist_bpe.export import DEFAULT_LIBRARIES, export
from dist_bpe.formats import BYTES, SpecialToken, VocabularyData, check_special_tokens, chosen_formats, not_carried
from dist_bpe.lease import FOLDER as LEASE
from dist_bpe.lease import PLAN, RELEASED, Lease, holder, lease
from dist_bpe.ledger import Ledger, Listener
from dist_bpe.merges import Learned, batches_of_mapping, check_memory, learn_merges
from dist_bpe.metrics import exported
from dist_bpe.mixture import Mixture, Weights, sizes_of
from dist_bpe.pretokenize import Normalization, Pattern, normalization_form, resolve, warnings_for
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
    sha256,
    sizes,
    to_json,
    unsealed,
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
VOCABULARIES = "vocabularies"


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
            "output": output.uri() if isinstance(output, RemotePath) else str(output),
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
        _warn(progress, report, text)
    options = config.count.model_dump(mode="json", exclude={"table_bytes"})
    options |= {"pattern": pattern.regex, "special_tokens": sorted(token.text for token in config.count.special_tokens)}
    fresh = not output.exists()
    try:
        output.mkdir(parents=True, exist_ok=True)
        (output / LEASE).mkdir(exist_ok=True)
    except OSError as error:
        raise UsageError(f"{output} cannot be written: {error.strerror}. Name another folder.") from error
    try:
        before = holder(output)
        with lease(output, progress.say) as owned:
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
        _warn(
            progress,
            report,
            f"the pattern {options.pattern!r} cuts syllables apart (words that begin with a combining mark) in: "
            f"{', '.join(cut)}. Their text costs more tokens than it needs to; {KEEPS_MARKS}",
        )
    long = [f"{name} ({source.cut_words:,})" for name, source in table.sources.items() if source.cut_words]
    if long:
        _warn(
            progress,
            report,
            f"words longer than max_word_bytes ({options.max_word_bytes:,}) were counted in pieces, in: "
            f"{', '.join(long)}.",
        )
    total = sum(source.words for source in table.sources.values())
    documents = sum(source.documents for source in table.sources.values())
    if total <= documents and documents > 1 and options.pattern != "none":
        _warn(progress, report, f"the pattern {options.pattern!r} left each document whole: it splits nothing here.")


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
        return
    # Made whole beside its name, so that a staging folder always holds its plan.
    new = staging.with_name(f".{staging.name}")
    remove(new)
    new.mkdir()
    if planned is not None:
        write(new / PLAN, sealed(planned))
    move(new, staging)


def _without_table(plan: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in plan.items() if name != "table"}


def _remove_if_empty(output: RunPath) -> None:
    """Remove the folders that this run made, if it leaves nothing in them, and no other driver has come since."""
    with contextlib.suppress(OSError):
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
    finished = False
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
                _warn(
                    progress,
                    report,
                    f"{output} has {human_bytes(free)} of free space, and counting {human_bytes(planned.bytes)} of "
                    f"text may take {human_bytes(STAGED_SHARE * planned.bytes)}. A full disk stops the run, and loses "
                    "nothing.",
                )
            for _ in range(MAX_DAMAGED):
                try:
                    commits = _counted(engine, owned, planned, config, progress)
                    parts = _merged(engine, owned, commits, config, progress)
                    break
                except DamagedRunError as error:
                    _warn(progress, report, str(error))
            else:
                raise RunError(f"files in {staging} were damaged {MAX_DAMAGED} times: its disk cannot be trusted.")
        skipped = Skipped.total(commit["skipped"] for commit in commits)
        selection = planned.selection(commits)
        report.left_out = {
            "files": [asdict(left) for left in planned.left_out],
            "selection": selection,
            "while_reading": skipped.as_dict(),
        }
        for text in skipped.warnings():
            _warn(progress, report, text)
        texts = tuple(token.text for token in config.count.special_tokens)
        values = manifest(
            pattern, texts, config.count.normalization, config.count.max_word_bytes, config.count.min_word_count,
            commits, parts, selection,
        )  # fmt: skip
        _publish_table(output, staging, parts, to_json(values), owned)
        finished = True
    finally:
        kept = 0 if finished else len(list(staging.glob("shard-*.json")))
        if kept and unsealed(staging / PLAN):
            progress.say(
                f"count: {kept:,} of {len(planned.shards):,} shards are finished and kept in {output}; the same "
                "command goes on from there."
            )
        else:
            remove(staging)


def _counted(
    engine: Engine, owned: Lease, planned: Plan, config: RunConfig, progress: Progress
) -> list[dict[str, Any]]:
    """The commits of all shards.

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
        if done:
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
) -> list[dict[str, Any]]:
    """The commits of all parts."""
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
        if rows:
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
        write(staging / PLAN, sealed(plan | {"table": sha256(folder / "manifest.json")}))
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
    if plan := unsealed(staging / PLAN):
        write(output / PLAN, sealed(plan | {"table": sha256(manifest)}))
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
    tables = [CountTable.open(run) for run in runs]
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
            _warn(progress, report, text)
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


def _warn(progress: Progress, report: RunReport, text: str) -> None:
    progress.warn(text)
    report.warnings.append(text)


@overload
def learn(
    counts: CountTable | str | RunPath,
    vocab_size: int,
    *,
    special_tokens: Sequence[str | SpecialToken] | None = None,
    progress: str = "auto",
    **options: Any,
) -> Vocabulary: ...


@overload
def learn(
    counts: Mapping[str, int] | Mapping[bytes, int],
    vocab_size: int | None = None,
    *,
    num_merges: int | None = None,
    unit: Literal["byte"] = "byte",
    pattern: str = "gpt2",
    normalization: str | None = None,
    special_tokens: Sequence[str | SpecialToken] | None = None,
    progress: str = "auto",
    **options: Any,
) -> Vocabulary: ...


@overload
def learn(
    counts: Mapping[str, int],
    *,
    num_merges: int | None = None,
    unit: Literal["byte", "character"] = "byte",
    tie_break: Literal["id", "lexicographic", "first-seen"] = "id",
    end_of_word: str | None = None,
    unknown_token: str | None = None,
    min_pair_count: int = 2,
    max_token_bytes: int | None = None,
) -> reference.ReferenceModel[str]: ...


def learn(
    counts: CountTable | str | RunPath | Mapping[str, int] | Mapping[bytes, int],
    vocab_size: int | None = None,
    *,
    num_merges: int | None = None,
    unit: str = "byte",
    tie_break: str = "id",
    end_of_word: str | None = None,
    unknown_token: str | None = None,
    pattern: str = "gpt2",
    normalization: str | None = None,
    special_tokens: Sequence[str | SpecialToken] | None = None,
    progress: str = "auto",
    **options: Any,
) -> Vocabulary | reference.ReferenceModel[str] | reference.ReferenceModel[bytes]:
    """Learn a vocabulary from a count table, a run folder, or a plain {word: count} mapping.

    Args:
        counts: the table, its folder, or the mapping. Words of a mapping are str (taken as UTF-8) or bytes.
        vocab_size: all tokens: 256 bytes, merges, special tokens. Or give:
        num_merges: the number of merges.
        unit: "byte", or "character" for teaching: symbols are characters, and the result is a `ReferenceModel`.
        tie_break: among pairs of equal count: "id" (smallest ids), or for teaching "lexicographic" or "first-seen".
        end_of_word: for teaching: a symbol put after each word.
        unknown_token: for teaching: what a character outside the vocabulary becomes.
        pattern: how the vocabulary of a mapping is to cut text; a table knows its own.
        normalization: what its text is to be brought into first: NFC, NFD, NFKC or NFKD; a table knows its own.
        special_tokens: `TEXT`, `ROLE=TEXT` or `SpecialToken`; by default those cut out when the table was counted.
        progress: "auto", "bars", "lines", "json" or "silent".
        options: the other fields of `LearnConfig`: mixture, min_pair_count, min_word_count, max_token_bytes,
            special_tokens_first, pad_to_multiple, driver_memory.

    Raises:
        UsageError: a size that is too small, or options that do not go together.
        RunError: no finished count table in the folder.
    """
    if (vocab_size is None) == (num_merges is None):
        raise UsageError("give either vocab_size or num_merges.")
    teaching = unit != "byte" or tie_break != "id" or end_of_word is not None or unknown_token is not None
    if teaching:
        if not isinstance(counts, Mapping):
            raise UsageError("unit, tie_break, end_of_word and unknown_token are for plain {word: count} mappings.")
        if num_merges is None:
            raise UsageError("the teaching modes take num_merges, not vocab_size.")
        unknown = options.keys() - {"min_pair_count", "max_token_bytes"}
        if unknown:
            raise UsageError(f"the option {min(unknown)!r} has no effect in the teaching modes: leave it out.")
        return reference.learn(  # type: ignore[call-overload,no-any-return]  # checked inside, with a sentence
            counts,
            num_merges,
            unit=unit,
            tie_break=tie_break,
            end_of_word=end_of_word,
            unknown_token=unknown_token,
            **options,
        )
    if isinstance(counts, (str, Path, RemotePath)):
        counts = CountTable.open(counts)
    if special_tokens is None:
        special_tokens = counts.special_tokens if isinstance(counts, CountTable) else ()
    specials = [special_token(token) for token in special_tokens]
    if vocab_size is None:
        vocab_size = BYTES + (num_merges or 0) + len(specials)
    config: LearnConfig = validate(LearnConfig, {"vocab_size": vocab_size, **options})
    if len(config.vocab_size) > 1:
        raise UsageError("one size is learned at a time here: take the largest, and `Vocabulary.cut` gives the others.")
    steps = Progress(progress)
    report = RunReport("")
    if isinstance(counts, CountTable):
        return run_learn(counts, config, specials, steps, report)[0]
    if config.mixture != Mixture():
        raise UsageError("a {word: count} mapping is one source: a mixture needs a count table.")
    batches = batches_of_mapping(counts)
    learned = _learn(batches, ["words"], config, specials, None, steps, report)
    form = normalization_form(normalization)
    return _vocabulary(learned, resolve(pattern), form, specials, config)


def run_learn(
    table: CountTable,
    config: LearnConfig,
    specials: Sequence[SpecialToken],
    progress: Progress,
    report: RunReport,
    dev: Corpus | None = None,
) -> tuple[Vocabulary, Learned, Weights | None]:
    """Learn from a table; see `learn`. Fills the report's vocabulary and bytes per token. No weights with parity."""
    pattern = resolve(table.pattern)
    for token in specials:
        if token.text not in table.special_tokens:
            _warn(
                progress,
                report,
                f"the special token {token.text!r} was not cut out when the table was counted: where it stands in the "
                "text, its pieces were learned as ordinary words.",
            )
    memory = config.driver_memory or budget.available()
    check_memory(table, config.min_word_count, memory, kept=bool(config.parity), apart=bool(config.parity))
    weights = None
    if config.parity:
        learned = _learn_parity(table, config, specials, dev, progress, report)
    else:
        weights = config.mixture.weights(sizes_of(table, config.mixture.unit))
        report.mixture = [] if weights.natural else weights.rows()
        learned = _learn(table.batches, list(table.sources), config, specials, weights, progress, report)
    vocabulary = _vocabulary(learned, pattern, table.normalization, specials, config)
    report.vocabulary = vocabulary
    report.requested_size = config.largest
    for size in config.vocab_size:
        merges = size - BYTES - len(specials)
        for name, source in table.sources.items():
            # A merge takes one token away at each place it replaces, so what later merges took is put back.
            tokens = pc.sum(learned.tokens[name]).as_py() + (pc.sum(learned.replaced[name][merges:]).as_py() or 0)
            if tokens + source.special_tokens:
                report.curve.setdefault(size, {})[name] = source.bytes / (tokens + source.special_tokens)
    report.bytes_per_token = report.curve.get(config.largest, {})
    return vocabulary, learned, weights


def _learn(
    batches: Callable[[], Iterable[pa.RecordBatch]],
    sources: Sequence[str],
    config: LearnConfig,
    specials: Sequence[SpecialToken],
    weights: Weights | None,
    progress: Progress,
    report: RunReport,
) -> Learned:
    wanted = config.merges(specials)
    with progress.stage("learn", wanted, "merges") as stage, _rescaling(config):
        learned = learn_merges(
            batches,
            sources,
            wanted,
            weights=list(weights.integers.values()) if weights else None,
            jitter=weights is not None and weights.jitter,
            min_pair_count=weights.least(config.min_pair_count) if weights else config.min_pair_count,
            min_word_count=config.min_word_count,
            max_token_bytes=config.max_token_bytes,
            on_words=lambda words, memory: stage.advance(
                0, f"{words:,} unique words, about {human_bytes(memory)} of memory"
            ),
            on_merge=lambda done: stage.advance(done - stage.done),
        )
        stage.advance(len(learned) - stage.done)
    _tell_if_short(learned, config, wanted, progress, report)
    if weights and not weights.natural:
        raw = np.sum([to_numpy(array) for array in learned.replaced.values()], axis=0, dtype=np.uint64)
        few = int((raw < config.min_pair_count).sum())
        if few:
            _warn(
                progress,
                report,
                f"{few:,} merges join pairs that stand fewer than {config.min_pair_count} times in the text: their "
                "sources have a weight above one. Raise min_pair_count if that is not wanted.",
            )
    return learned


def _learn_parity(
    table: CountTable,
    config: LearnConfig,
    specials: Sequence[SpecialToken],
    dev: Corpus | None,
    progress: Progress,
    report: RunReport,
) -> Learned:
    if config.mixture != Mixture():
        raise UsageError(
            "parity and a mixture exclude each other: parity looks at each language's counts by themselves."
        )
    wanted = config.merges(specials)
    trainer = Retrainer(table, config, specials, dev)
    with progress.stage("learn", wanted, "merges") as stage:
        merges = trainer.parity(str(config.parity), lambda done: stage.advance(done - stage.done))
        stage.advance(len(merges) - stage.done)
    names = [*trainer.sources, None]
    report.chosen = [names[-1 if i is None else i] for i in merges.column(3).to_pylist()]
    replaced, tokens = trainer.words.replay(merges.column(0), merges.column(1))
    learned = Learned(
        merges.select([0, 1, 2]),
        dict(zip(trainer.sources, replaced, strict=True)),
        dict(zip(trainer.sources, tokens, strict=True)),
        len(trainer.words),
    )
    _tell_if_short(learned, config, wanted, progress, report)
    return learned


def _tell_if_short(learned: Learned, config: LearnConfig, wanted: int, progress: Progress, report: RunReport) -> None:
    if len(learned) < wanted:
        _warn(
            progress,
            report,
            f"the text ran out of pairs with a count of {config.min_pair_count} or more at merge {len(learned):,}: the "
            f"vocabulary has {config.largest - wanted + len(learned):,} tokens instead of {config.largest:,}.",
        )


@contextlib.contextmanager
def _rescaling(config: LearnConfig) -> Iterator[None]:
    try:
        yield
    except CountOverflowError as error:
        if config.mixture == Mixture():
            raise
        raise CountOverflowError(
            f"{str(error).rstrip('.')}; in a mixture that is its option scale, now {config.mixture.scale:,}."
        ) from error


def _vocabulary(
    learned: Learned,
    pattern: Pattern,
    normalization: Normalization | None,
    specials: Sequence[SpecialToken],
    config: LearnConfig,
) -> Vocabulary:
    left, right, counts = (tuple(column.to_pylist()) for column in learned.merges.columns)
    data = VocabularyData(
        tuple(zip(left, right, strict=True)),
        pattern,
        tuple(specials),
        special_tokens_first=config.special_tokens_first,
        normalization=normalization,
        counts=counts,
        replaced={name: tuple(array.to_pylist()) for name, array in learned.replaced.items()},
    )
    return Vocabulary(data.padded(config.pad_to_multiple) if config.pad_to_multiple else data)


def train(config: RunConfig, progress: Progress | None = None) -> RunReport:
    """The whole run: count, learn, export, and reload every file in its own library.

    Raises:
        UsageError: an option or input that cannot work; found before counting, and nothing is written then.
        ExportError: a library reads a file otherwise than we do.
    """
    if config.learn is None:
        raise UsageError("the run has no [learn] table; say at least how large the vocabulary is to be: vocab_size.")
    config.learn.merges(config.count.special_tokens)
    progress = progress or Progress()
    report = RunReport(config.output)
    table = run_count(config, progress, report)
    _learn_and_export(table, config.learn, config.count.special_tokens, config, progress, report)
    return report


def learn_and_export(
    run: str | RunPath,
    config: LearnConfig,
    special_tokens: Sequence[SpecialToken] | None = None,
    name: str | None = None,
    overwrite: bool = False,
    verify: bool = True,
    verify_transformers: bool = False,
    dev: Corpus | None = None,
    progress: Progress | None = None,
) -> RunReport:
    """Learn one more vocabulary from a run folder's table and export it beside the others.

    With `config.parity` on the parallel set `dev`.
    """
    table = CountTable.open(run)
    if special_tokens is None:
        special_tokens = [special_token(text) for text in table.special_tokens]
    else:
        check_special_tokens(special_tokens)
    progress = progress or Progress()
    progress.fields["run"] = str(at(run))
    report = RunReport(str(at(run)), table)
    options = _ExportOptions(run, name, overwrite, verify, verify_transformers)
    _learn_and_export(table, config, special_tokens, options, progress, report, dev)
    return report


@dataclass(frozen=True)
class _ExportOptions:
    """The part of a `RunConfig` that exporting looks at."""

    output: str | RunPath
    name: str | None
    overwrite: bool
    verify: bool
    verify_transformers: bool


def _learn_and_export(
    table: CountTable,
    config: LearnConfig,
    specials: Sequence[SpecialToken],
    options: "RunConfig | _ExportOptions",
    progress: Progress,
    report: RunReport,
    dev: Corpus | None = None,
) -> None:
    config.merges(specials)
    one = len(config.vocab_size) == 1
    folders = {}
    for size in config.vocab_size:
        name = str(size) if options.name is None else options.name if one else f"{options.name}-{size}"
        folders[size] = at(options.output) / VOCABULARIES / name
        if folders[size].exists() and not options.overwrite:
            raise RunError(f"{folders[size]} is there already; choose another --name, or replace it with --overwrite.")
    largest, learned, weights = run_learn(table, config, specials, progress, report, dev)
    with progress.stage("export", unit="files") as stage:
        for size, folder in folders.items():
            vocabulary = largest
            if size < config.largest:
                vocabulary = largest.cut(min(size, config.largest - config.merges(specials) + len(learned)))
                if config.pad_to_multiple:
                    vocabulary = Vocabulary(vocabulary.data.padded(config.pad_to_multiple))
            report.verification = export(
                vocabulary,
                folder,
                libraries=_libraries(options.verify, options.verify_transformers),
                fingerprints=_fingerprints(table, config.model_copy(update={"vocab_size": (size,)}), weights, dev),
            )
            stage.advance(len(sizes(folder)))
            report.folders.append(folder)
    for text in not_carried(largest.data):
        _warn(progress, report, text)
    report.stages = progress.records
    for folder in report.folders:
        write(folder / REPORT, to_json(report.as_json()))


@dataclass
class BalanceReport:
    """What `balance` found: the rounds, what else was tried, the mixture's file, and what limits it."""

    reference: str
    rounds: list[Outcome] = field(default_factory=list)
    tried: list[tuple[str, Outcome]] = field(default_factory=list)
    best: tuple[str, Outcome] | None = None
    test: Outcome | None = None
    file: RunPath | None = None
    warnings: list[str] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        """The report as plain values."""
        return {
            "rounds": [outcome.as_json(self.reference) for outcome in self.rounds],
            "tried": [{"name": name} | outcome.as_json(self.reference) for name, outcome in self.tried],
            "best": {"name": self.best[0]} | self.best[1].as_json(self.reference) if self.best else None,
            "test": self.test.as_json(self.reference) if self.test else None,
            "warnings": self.warnings,
        }


def balance_run(
    run: str | RunPath,
    config: LearnConfig,
    *,
    dev: Corpus | None = None,
    test: Corpus | None = None,
    reference: str | None = None,
    targets: Mapping[str, float] | None = None,
    beta: float = math.inf,
    rounds: int | None = None,
    tolerance: float = 0.001,
    caps: Mapping[str, float] | None = None,
    floors: Mapping[str, float] | None = None,
    with_frontier: bool = False,
    with_search: bool = False,
    premium: float | None = None,
    output: RunPath | None = None,
    progress: Progress | None = None,
) -> BalanceReport:
    """Find the mixture under which languages cost the same (or the best one of a search) and write it as a file.

    Args:
        run: the folder of a count table.
        config: size and thresholds of the vocabulary; its mixture is not looked at.
        dev: see `Retrainer`; and `targets`.
        test: a parallel set that the result is measured on; it may share nothing with `dev`.
        reference: the language premiums compare with; English by default, or the one that costs least without dev.
        beta: see `balance`; and `rounds` (8, for a search 24), `tolerance`, `caps`, `floors`.
        with_frontier: also train temperatures and dials, to show what evenness costs.
        with_search: search instead, see `search`; and `premium`.
        output: the TOML file for the mixture; a JSON file beside it holds the report. By default
            `mixtures/balanced.toml` in the run folder.
        progress: who is told how it goes.

    Raises:
        UsageError: development and test text overlap, options that cannot work, or too little memory.
    """
    table = CountTable.open(run)
    progress = progress or Progress()
    progress.fields["run"] = str(at(run))
    specials = [special_token(text) for text in table.special_tokens]
    if dev is not None and test is not None:
        refuse_overlap(dev, test)
    if dev is not None and dev.documents is not None:
        reference = dev.reference(reference)
    check_memory(table, config.min_word_count, config.driver_memory or budget.available(), kept=True)
    with progress.stage("load", unit="words") as stage:
        trainer = Retrainer(table, config, specials, dev, targets)
        stage.advance(len(trainer.words), f"{human_bytes(trainer.words.memory_bytes)} of memory")
    if reference is None:
        outcome = trainer.train(Mixture())
        reference = min(outcome.costs, key=lambda name: (outcome.costs[name], name))
    elif reference not in trainer.languages:
        raise UsageError(f"there is no language {reference!r}; there are: {', '.join(trainer.languages)}.")
    report = BalanceReport(reference)
    if with_search:
        with progress.stage("search", unit="mixtures") as stage:
            name, best, report.tried = search(trainer, reference, premium=premium, rounds=rounds or 24)
            stage.advance(len(report.tried))
    else:
        with progress.stage("balance", rounds or 8, "rounds") as stage:

            def on_round(_: int, outcome: Outcome) -> None:
                report.rounds.append(outcome)
                stage.advance(1, f"Gini {outcome.gini:.4f}, worst {outcome.worst}")

            best, leaning = balance(
                trainer, beta=beta, rounds=rounds or 8, tolerance=tolerance, caps=caps, floors=floors, on_round=on_round
            )
        report.warnings = held_back(trainer, leaning, caps, floors)
        name = "balanced" if math.isinf(beta) else f"dial {beta:g}"
        if with_frontier:
            with progress.stage("frontier", unit="mixtures") as stage:
                report.tried = frontier(trainer, best)
                stage.advance(len(report.tried))
    report.best = (name, best)
    report.warnings += limits(table, dev, best, reference)
    for text in report.warnings:
        progress.warn(text)
    if test is not None:
        judge = Retrainer(table, config, specials, test, words=trainer.words)
        report.test = judge.measure(best.mixture, best.merges, time.perf_counter())
    report.file = output or table.folder.parent / "mixtures" / "balanced.toml"
    report.file.parent.mkdir(parents=True, exist_ok=True)
    write(report.file, best.mixture.as_toml().encode())
    write(report.file.with_suffix(".json"), to_json(report.as_json()))
    return report


def _libraries(verify: bool, transformers: bool) -> tuple[str, ...] | None:
    if not verify:
        return None
    return (*DEFAULT_LIBRARIES, "transformers") if transformers else DEFAULT_LIBRARIES


def _fingerprints(
    table: CountTable, config: LearnConfig, weights: Weights | None, dev: Corpus | None
) -> dict[str, Any]:
    """What the vocabulary was made from: the documents, the table, and the options that decide the result."""
    return {
        "sources": {name: source.digest for name, source in table.sources.items()},
        "counts": table.digest,
        # The weights decide, not the words they were asked for with: equal ones shall give equal bytes.
        "options": config.model_dump(exclude={"driver_memory", "mixture"}),
        **({} if weights is None or weights.natural else {"mixture": weights.fingerprint()}),
        **({"development": dev.digest()} if dev and config.parity else {}),
    }


def export_vocabulary(
    path: str | RunPath,
    output: str | RunPath,
    formats: Sequence[str] | None,
    overwrite: bool,
    verify: bool,
    transformers: bool,
) -> list[str]:
    """Write a saved vocabulary in the given formats (by default all) to another folder; returns a line a library."""
    chosen_formats(formats)
    output = at(output)
    if output.exists() and any(output.iterdir()) and not overwrite:
        raise RunError(f"{output} is not empty; name another folder, or use --overwrite.")
    vocabulary = Vocabulary.load(path)
    outcome = export(vocabulary, output, formats, libraries=_libraries(verify, transformers))
    return [
        *(f"{library}: {text}" for library, text in outcome.items()),
        *(f"warning: {text}" for text in not_carried(vocabulary.data, formats)),
        f"files: {output}",
    ]
