"""A run is begun, gone on with, or refused: what it was planned with, and whether that is what is asked for now."""

import contextlib
import hashlib
import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Any

from dist_bpe import _core
from dist_bpe.corpus.plan import Plan
from dist_bpe.corpus.shard import SPLIT
from dist_bpe.corpus.source import Source
from dist_bpe.counting.table import FORMAT_VERSION, CountTable
from dist_bpe.errors import DistBpeError, RunError, UsageError
from dist_bpe.options import both
from dist_bpe.progress import Progress
from dist_bpe.run.config import ExportOptions, RunConfig
from dist_bpe.run.lease import RELEASED, Lease, holder, lease, unfinished
from dist_bpe.storage.bucket import BucketPath
from dist_bpe.storage.files import RunPath, make_folder, move, remove, sealed, unsealed, write
from dist_bpe.storage.layout import COUNTS, LEASE, MANIFEST, PLAN, claim

MOST_SHOWN = 5
PATTERN = "pattern"
_PART = re.compile(r"part-\d{5,}-[0-9a-f]{16}\.parquet")


def fingerprint(planned: Plan, sources: list[Source], options: dict[str, Any]) -> dict[str, Any] | None:
    """All that decides a count table, as plain values without secrets; None if documents in memory cannot be compared.

    Args:
        planned: the files with size and time, and the borders of the shards.
        sources: how they are read.
        options: those of counting that decide the table, by name.
    """
    borders = hashlib.sha256()
    for shard in planned.shards:
        for piece in shard.pieces:
            borders.update(f"{shard.index} {piece.format} {piece.name} {piece.first} {piece.last}\n".encode())
    memory: dict[str, str] = {}
    for shard in planned.shards:
        for piece in shard.pieces:
            if piece.documents is not None:
                # `open` is that of our own stand-ins for datasets, which name a folder or a revision of the Hub.
                known = getattr(piece.documents, "_fingerprint", None)
                if known is None and hasattr(piece.documents, "open"):
                    known = repr(piece.documents)
                if known is None:
                    return None
                memory[piece.name] = str(known)
    return {
        "count format": FORMAT_VERSION,
        "Unicode tables": _core.UNICODE_TABLES,
        "options": options,
        "sources": {
            source.name: {
                "text": source.text,
                "group_by": source.group_by,
                "sample_fraction": source.sample_fraction,
                "max_bytes": source.max_bytes,
                "seed": source.seed,
            }
            for source in sources
        },
        "files": {
            file.path: {"source": file.source, "format": file.format, "size": file.size, "modified": file.modified}
            for file in planned.files
        },
        "datasets": memory,
        "shards": {"number": len(planned.shards), "borders": borders.hexdigest(), "pieces when split": SPLIT},
        "policies": {
            source.name: {"on_bad_file": source.on_bad_file, "on_bad_row": source.on_bad_row} for source in sources
        },
    }


def differences(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """What keeps a run planned with `old` from going on with `new`, a phrase each; empty if nothing does."""
    found = list(_differences(old, new, ""))
    # The borders of shards follow from the rest, and say something only where nothing else does.
    return [text for text in found if not text.startswith("shards ")] or found


def _differences(old: Any, new: Any, name: str) -> Iterator[str]:
    if isinstance(old, dict) and isinstance(new, dict):
        for key in [*old, *(key for key in new if key not in old)]:
            inner = key if name in ("", "options", "files", "datasets", "sources") else f"{name} {key}"
            if key not in new:
                yield f"{inner} is gone"
            elif key not in old:
                yield f"{inner} is new"
            else:
                yield from _differences(old[key], new[key], inner)
    elif old != new and not (name.rpartition(" ")[2].startswith("on_bad_") and old == "error"):
        if name.endswith("modified"):
            old, new = (_moment(value) for value in (old, new))
        yield f"{name} was {old!r} and is {new!r}"


def _moment(modified: Any) -> Any:
    """The time of a file for people, from nanoseconds; an etag as it is."""
    if not isinstance(modified, int) or isinstance(modified, bool):
        return modified
    return datetime.fromtimestamp(modified / 1e9, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def shown(texts: list[str]) -> str:
    """Some differences in one phrase."""
    more = len(texts) - MOST_SHOWN
    return "; ".join(texts[:MOST_SHOWN]) + (f"; and {more:,} more" if more > 0 else "")


@contextlib.contextmanager
def owned(output: RunPath, progress: Progress) -> Iterator[Lease]:
    """Own a run folder; it is made where there is none, and removed again if this leaves nothing in it.

    Raises:
        RunError: another driver works on it, or it holds what a run would remove and is of none.
        UsageError: it cannot be written.
    """
    if output.exists() and not output.is_dir():
        raise UsageError(f"the output {output} is a file; name a folder.")
    fresh = not output.exists()
    try:
        with contextlib.ExitStack() as stack:
            try:
                make_folder(output, parents=True)
                make_folder(output / LEASE)
                before = holder(output)
                staged = unfinished(output)
                if staged and not before:
                    raise RunError(
                        f"{staged} is of no run, and a run would go on with it: move it away, or name another folder."
                    )
                held = stack.enter_context(lease(output, progress.say))
            except OSError as error:
                raise UsageError(
                    f"{output} cannot be written: {error.strerror or error}. Name another folder."
                ) from error
            if before and not before.released:
                progress.tell("run_taken_over", host=before.host, pid=before.pid)
            yield held
    except BaseException:
        if fresh:
            remove_if_empty(output)
        raise


@contextlib.contextmanager
def claimed(run: RunPath, kind: str, names: Iterable[str], progress: Progress) -> Iterator[None]:
    """Be the only one to make the vocabularies or mixtures of some names in a run.

    Raises:
        RunError: another process makes one of them at this moment.
    """
    with contextlib.ExitStack() as stack:
        for name in sorted(set(names)):
            place = claim(run, kind, name)
            make_folder(place / LEASE, parents=True)
            stack.enter_context(lease(place, progress.say))
        yield


def refuse_foreign_table(output: RunPath) -> None:
    """Refuse to replace a folder `counts` that is no count table: a name makes nothing ours.

    Raises:
        RunError: it has no manifest of a table, or other files.
    """
    folder = output / COUNTS
    names = [path.name for path in folder.iterdir()] if folder.exists() else []
    # Parts alone, named by their content, are of a driver that was stopped on the way into an object store; parts with
    # a manifest that says nothing are of a table whose manifest is damaged.
    marked = MANIFEST not in names or len(names) > 1
    with contextlib.suppress(OSError):
        marked = marked or b'"count-table"' in (folder / MANIFEST).read_bytes()
    foreign = next((name for name in sorted(names) if name != MANIFEST and not _PART.fullmatch(name)), None)
    if names and (foreign or not marked):
        why = f"it holds {foreign}" if foreign else "its manifest is of something else"
        raise RunError(
            f"{folder} is no count table of ours ({why}), and is not replaced: move it away, or name another folder."
        )


def begin_or_resume(
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
        refuse_foreign_table(output)
        if not (output / COUNTS / MANIFEST).exists():
            raise RunError(
                f"{output / COUNTS} holds parts of a count table without their manifest: restore it, or count again "
                f"with {both(ExportOptions, 'overwrite')}."
            )
        old = unsealed(finished) if planned else None
        why = "" if planned else ", and documents in memory cannot be compared with those it was counted from"
        if planned and old is None and finished.exists():
            why = f", and {finished}, which says what it was counted from, is damaged"
        if old and old.get("table") != CountTable.open(output).digest:
            old = None  # the table was put there by something else
        changed = differences(_without_table(old), planned) if old and planned else []
        if old and not changed:
            progress.say(f"count: {output / COUNTS} is there already, of the same inputs and options.")
            return
        raise RunError(
            f"{output} holds a count table already{' of another run' if changed else ''}"
            f"{f' ({shown(changed)})' if changed else why}. Learn from it (`dist-bpe learn {output}`, in Python "
            f"CountTable.open), name another folder, or replace it with {both(ExportOptions, 'overwrite')}."
        )
    refuse_foreign_table(output)
    owned.begin()
    staging = owned.staging
    if isinstance(staging, BucketPath):
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


def remove_if_empty(output: RunPath) -> None:
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


def leave_or_remove(output: RunPath, owned: Lease, shards: int, progress: Progress) -> None:
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
