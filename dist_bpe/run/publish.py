"""A finished table is put in its place: counted, added up, or imported."""

import contextlib
import hashlib
import tempfile
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dist_bpe.counting.options import CountOptions, WordList
from dist_bpe.counting.table import CountTable, add_tables, manifest
from dist_bpe.counting.tasks import merge_part, merge_tasks
from dist_bpe.counting.wordlists import described, gather
from dist_bpe.errors import RunError, SourceError, UsageError
from dist_bpe.options import both
from dist_bpe.pretokenize.checks import resolve, warnings_for
from dist_bpe.progress import Progress
from dist_bpe.run.config import ExportOptions
from dist_bpe.run.lease import Lease
from dist_bpe.run.resume import owned, refuse_foreign_table
from dist_bpe.storage.bucket import BucketPath
from dist_bpe.storage.files import (
    RunPath,
    move,
    parse_path,
    publish_folder,
    put,
    remove,
    sealed,
    to_json,
    unsealed,
    write,
)
from dist_bpe.storage.layout import COUNTS, MANIFEST, PLAN
from dist_bpe.vocabulary.data import check_special_tokens


def _of_table(plan: dict[str, Any], manifest: bytes) -> bytes:
    return sealed(plan | {"table": hashlib.sha256(manifest).hexdigest()})


def publish_table(
    output: RunPath,
    staging: RunPath,
    parts: Sequence[dict[str, Any]],
    content: bytes,
    owned: Lease | None = None,
) -> None:
    """Move the finished table to its place."""
    if isinstance(output, BucketPath):
        _publish_objects(output, staging, parts, content, owned)
        return
    if isinstance(staging, BucketPath):
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
    write(staging / MANIFEST, content)
    move(staging / MANIFEST, folder / MANIFEST)
    if plan := unsealed(staging / PLAN):
        write(staging / PLAN, _of_table(plan, content))
    if (output / COUNTS).exists():
        move(output / COUNTS, staging / f"replaced-{uuid.uuid4().hex}")
    move(folder, output / COUNTS)
    if plan:
        move(staging / PLAN, output / PLAN)
    remove(staging)


def _publish_objects(
    output: BucketPath,
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
    manifest = folder / MANIFEST
    before = manifest.version()
    if owned:
        owned.check(now=True)
    for part in parts:
        source = staging / part["file"]
        if isinstance(source, BucketPath):
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
    named = {part["file"] for part in parts} | {MANIFEST}
    old = [folder / name for name in folder.sizes() if name not in named]
    if owned:
        owned.check(now=True)
    folder.delete(old)
    remove(staging)


def add_runs(runs: Sequence[str | RunPath], output: str | RunPath, overwrite: bool, progress: Progress) -> CountTable:
    """Add the count tables of run folders into another; see `add_tables`. The same sum is left as it is."""
    output = parse_path(output)
    progress.fields["run"] = str(output)
    tables = [CountTable.open(run) for run in runs]
    if any(table.folder in (output, output / COUNTS) for table in tables):
        raise UsageError(f"{output} is one of the runs to add: name another folder for the sum.")
    if len(tables) < 2:
        raise UsageError("name at least two run folders to add.")
    if len({table.digest for table in tables}) < len(tables):
        progress.warn("two of the count tables are equal to the byte: their documents count twice.")
    planned = {"added": sorted(table.digest for table in tables)}
    with owned(output, progress) as held:
        if _is_there(output, planned, overwrite, "add", progress):
            return CountTable.open(output)
        with progress.stage("add", len(tables[0].parts), "parts") as stage, publish_folder(output / COUNTS) as folder:
            add_tables(tables, folder)
            held.check(now=True)
            stage.advance(len(tables[0].parts))
        table = CountTable.open(output)
        write(output / PLAN, sealed(planned | {"table": table.digest}))
    return table


def run_import(
    lists: Sequence[WordList], output: str | RunPath, options: CountOptions, overwrite: bool, progress: Progress
) -> CountTable:
    """Gather lists of words into a table; see `making.import_counts`. The table of the same lists is left as it is."""
    output = parse_path(output)
    progress.fields["run"] = str(output)
    pattern = resolve(options.pattern)
    check_special_tokens(options.special_tokens)
    planned = {"words": described(lists), "options": options.model_dump(mode="json", exclude={"table_bytes"})}
    with owned(output, progress) as held, contextlib.ExitStack() as stack:
        if _is_there(output, planned, overwrite, "gather", progress):
            return CountTable.open(output)
        where = output if isinstance(output, Path) else None
        staging = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix=".import-", dir=where)))
        with progress.stage("gather", unit="words") as stage:
            commits, warnings = gather(lists, staging, options.partitions, options.table_bytes, pattern)
            stage.advance(sum(commit["totals"][0]["words"] for commit in commits))
        for text in warnings + warnings_for(pattern):
            progress.warn(text)
        if not commits:
            raise SourceError("no words found: the lists hold none with a count above zero.")
        with progress.stage("merge", options.partitions, "parts") as stage:
            parts = []
            for task in merge_tasks(commits, staging, options):
                parts.append(merge_part(task))
                stage.advance(1)
        held.check(now=True)
        publish_table(output, staging, parts, to_json(manifest(options, commits, parts, {})))
        table = CountTable.open(output)
        write(output / PLAN, sealed(planned | {"table": table.digest}))
    return table


def _is_there(output: RunPath, planned: dict[str, Any], overwrite: bool, stage: str, progress: Progress) -> bool:
    """Whether the very table that is asked for is there already.

    Raises:
        RunError: another one is, or what is no table; unless it may be replaced.
    """
    if not (output / COUNTS).exists():
        return False
    if not overwrite:
        old = unsealed(output / PLAN) or {}
        if {**planned, "table": old.get("table")} == old and old["table"] == CountTable.open(output).digest:
            progress.say(f"{stage}: {output / COUNTS} is there already, of the same inputs and options.")
            return True
        refuse_foreign_table(output)
        raise RunError(
            f"{output} holds a count table already, which was made from something else or by other options; name "
            f"another folder, or replace it with {both(ExportOptions, 'overwrite')}."
        )
    refuse_foreign_table(output)
    return False
