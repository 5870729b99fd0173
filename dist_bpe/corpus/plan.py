"""Where text lies: a `Source` names places and fields, `plan` finds the files and cuts them into shards, a `Shard` is
read in batches.

Planning reads footers, sizes, schemas and first lines. It fails there, before any counting, for what cannot be read,
and lists what will be left out. Shard borders follow from inputs and options alone.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from fractions import Fraction
from itertools import pairwise
from typing import Any

import pyarrow as pa

from dist_bpe.corpus.columns import NoGroup, is_text
from dist_bpe.corpus.documents import MOST_NAMED, NO_GROUP, WHOLE, Inspected, Piece, Reading, Skipped
from dist_bpe.corpus.finding import Found, LeftOut, find, relative_names
from dist_bpe.corpus.formats import partition_of
from dist_bpe.corpus.readers.iterable import Given
from dist_bpe.corpus.readers.lines import DAMAGED, of_the_machine
from dist_bpe.corpus.readers.registry import READERS
from dist_bpe.corpus.shard import Shard, sum_or_none
from dist_bpe.corpus.source import Source
from dist_bpe.errors import AccessError, BadFile, DataError, SourceError, several
from dist_bpe.progress import human_bytes
from dist_bpe.storage import places
from dist_bpe.storage.places import File, said
from dist_bpe.tables import Tabular, arrow_table

MIN_SHARD_BYTES = 64 << 20
MAX_SHARD_BYTES = 1 << 30
# A run aims at no more shards than this, so that staging stays a listable number of files.
AIMED_SHARDS = 4096


# Opening a file counts as this much text when small files are packed into a shard.
OPEN_BYTES = 256 << 10
# A document a file is held whole; above this the plan says so.
LARGE_DOCUMENT_BYTES = 256 << 20
# What one core reads and counts in a second with a named pattern; JSON Lines in gzip and text of many scripts are the
# slowest at about this.
CORE_BYTES_PER_SECOND = 50e6
# What a task holds beside its word table: batches, decompressed pages, the libraries.
TASK_BYTES = 128 << 20


@dataclass(frozen=True)
class FileReport:
    """What planning found in one file.

    `bytes` is its text: from the footer for Parquet, before compression; from a sample of its start for other formats.
    `size` and `modified` (nanoseconds since 1970) identify the file, as far as its place tells them.
    """

    source: str
    path: str
    format: str
    rows: int | None
    bytes: int
    size: int | None = None
    modified: int | None = None


@dataclass(frozen=True)
class SourceReport:
    """What planning found of one source.

    `fraction` is the share of rows that take part, `left_out` the number of files that do not, and `core_seconds` what
    reading and counting will take of one core, roughly.
    """

    source: str
    files: int
    rows: int | None
    bytes: int
    shards: int
    fraction: float
    left_out: int
    core_seconds: float


@dataclass(repr=False)
class Plan(Tabular):
    """The shards of a run, in a fixed order; what each file holds; what is left out; what is worth knowing.

    As a table, a row for each source.
    """

    shards: list[Shard]
    files: list[FileReport] = field(default_factory=list)
    left_out: list[LeftOut] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    fractions: dict[str, float] = field(default_factory=dict)

    def _described(self) -> str:
        rows = "" if self.rows is None else f", {several(self.rows, 'row')}"
        left = f"; {several(len(self.left_out), 'file')} left out" if self.left_out else ""
        return (
            f"<Plan of {several(len(self.fractions), 'source')}: {several(len(self.files), 'file')}{rows}, "
            f"{human_bytes(self.bytes)} of text in {several(len(self.shards), 'shard')}{left}>"
        )

    def to_arrow(self) -> pa.Table:
        """A row for each source, as `by_source` has them."""
        reports = [asdict(report) for report in self.by_source()]
        return arrow_table({name: [report[name] for report in reports] for name in (reports[0] if reports else ())})

    @property
    def bytes(self) -> int:
        """Text of all files, in bytes, before sampling."""
        return sum(file.bytes for file in self.files)

    @property
    def rows(self) -> int | None:
        """Rows of all files, before sampling; None where one file does not tell."""
        return sum_or_none(file.rows for file in self.files)

    @property
    def in_memory(self) -> list[str]:
        """Sources whose documents are an iterable of this process, which no other process can read."""
        return sorted({s.source for s in self.shards if any(p.format in ("documents", "table") for p in s.pieces)})

    def warnings(self) -> list[str]:
        """A sentence for each bad file that is left out, each kind of other files, and what is worth knowing."""
        bad = [left for left in self.left_out if left.bad]
        texts = [f"left out: {left.reason}" for left in bad[:MOST_NAMED]]
        if len(bad) > MOST_NAMED:
            texts.append(f"… and {len(bad) - MOST_NAMED:,} more bad files are left out; report.json names all.")
        reasons = Counter(left.reason for left in self.left_out if not left.bad)
        for reason, count in sorted(reasons.items()):
            first = next(left.path for left in self.left_out if left.reason == reason)
            texts.append(f"files that are left out: {count:,} ({reason}), as {first}")
        return texts + self.notes

    def by_source(self) -> list[SourceReport]:
        """A summary of each source, in the order given."""
        reports = []
        for name, fraction in self.fractions.items():
            files = [file for file in self.files if file.source == name]
            reports.append(
                SourceReport(
                    name,
                    len(files),
                    sum_or_none(file.rows for file in files),
                    sum(file.bytes for file in files),
                    sum(shard.source == name for shard in self.shards),
                    fraction,
                    sum(left.source == name for left in self.left_out),
                    # Rows that take no part are read, too, which is about half of the work.
                    sum(file.bytes for file in files) * (1 + fraction) / 2 / CORE_BYTES_PER_SECOND,
                )
            )
        return reports

    @staticmethod
    def task_memory(table_bytes: int) -> int:
        """The most bytes that a counting task holds: a full table is sorted into as much memory again."""
        return 2 * table_bytes + TASK_BYTES

    def as_json(self, table_bytes: int) -> dict[str, Any]:
        """All of the plan as plain values; paths without logins and options."""
        return {
            "sources": [asdict(report) for report in self.by_source()],
            "task_bytes": self.task_memory(table_bytes),
            "files": [asdict(file) for file in self.files],
            "left_out": [asdict(left) for left in self.left_out],
            "notes": self.notes,
        }

    def selection(self, commits: Iterable[dict[str, Any]]) -> dict[str, dict[str, Any]]:
        """What decided, beside the documents, what a table holds: samples, and what policies left out, by source.

        `commits` say of each shard what reading it left out. Sources that were read whole have no entry.
        """
        skipped: dict[str, list[dict[str, Any]]] = {}
        for commit in commits:
            skipped.setdefault(self.shards[commit["key"][0]].source, []).append(commit["skipped"])
        result = {}
        for reading in {shard.source: shard.reading for shard in self.shards}.values():
            total = Skipped.total(skipped.get(reading.source, []))
            entry: dict[str, Any] = {}
            if reading.threshold < WHOLE:
                entry["sample"] = {"seed": reading.seed, "below": f"{reading.threshold:016x}"}
            if total.rows:
                entry["rows"] = dict(sorted(total.rows.items()))
            bad = sum(left.bad and left.source == reading.source for left in self.left_out)
            if bad or total.files:
                entry["files"] = bad + len(total.files)
            if entry:
                result[reading.source] = entry
        return result


@dataclass
class _Unit:
    """A file or object of a source, and what was found in it."""

    name: str
    format: str
    file: File | None
    documents: Any
    inspected: Inspected
    group: str | None = None


def plan(sources: Sequence[Source], shard_bytes: int | None = None) -> Plan:
    """Find all files, read footers, schemas and first lines, and cut the text into shards of about equal size.

    A Parquet row group is never cut, since its middle can only be reached by decoding from its start; lines that are
    not compressed are cut anywhere. Small files are packed together.

    Args:
        sources: what to read. Names must differ, except that a `group_by` source takes its names from its rows.
        shard_bytes: text bytes a shard aims at; by default the whole divided by 4,096, within 64 MiB .. 1 GiB.

    Raises:
        SourceError: nothing found, a file that is damaged or has no such field, and the policy is `error`.
        NetworkError: a place that does not answer within the deadline.
    """
    names = [source.name for source in sources]
    for name in names:
        if names.count(name) > 1:
            raise SourceError(f"two sources are named {name!r}; give each its own name, or put their paths together.")
    result = Plan([])
    inspected = [(source, list(_inspect(source, result))) for source in sources]
    for source, units in inspected:
        for unit in units:
            rows = sum_or_none(rows for rows, _ in unit.inspected.units)
            size = sum(size for _, size in unit.inspected.units)
            file = unit.file or File(unit.name, None, None)
            result.files.append(FileReport(source.name, file.path, unit.format, rows, size, file.size, file.modified))
            if unit.format == "text" and size > LARGE_DOCUMENT_BYTES:
                result.notes.append(
                    f"{file.path} is one document of about {size:,} bytes and is held whole in memory; with format = "
                    '"lines" each of its lines is one.'
                )
    if not any(report.rows is None or report.rows for report in result.files):
        looked = [file.path for file in result.files] + [left.path for left in result.left_out]
        bad = [left for left in result.left_out if left.bad]
        if bad:
            more = f" (and {len(bad) - 1:,} more)" if len(bad) > 1 else ""
            raise SourceError(
                f"no text found: what there is cannot be read and is left out: {bad[0].reason.rstrip('.')}{more}."
            )
        raise SourceError(
            f"no text found: the files hold no rows ({', '.join(looked[:5])}{', …' if len(looked) > 5 else ''})."
        )
    total = result.bytes
    size = shard_bytes or min(max(total // AIMED_SHARDS, MIN_SHARD_BYTES), MAX_SHARD_BYTES)
    for source, units in inspected:
        reading = _reading(source, sum(size for unit in units for _, size in unit.inspected.units))
        result.fractions[source.name] = reading.threshold / WHOLE
        if source.max_bytes is not None and reading.threshold < WHOLE:
            exact = all(unit.format == "parquet" for unit in units)
            result.notes.append(
                f"source {source.name!r}: max_bytes draws {result.fractions[source.name]:.4%} of the rows, by "
                f"{'the sizes in the footers' if exact else 'sizes estimated from the start of each file'}."
            )
        for pieces in _pack((piece for unit in units for piece in _cut(unit, size)), size):
            result.shards.append(Shard(len(result.shards), reading, pieces))
    return result


def _reading(source: Source, size: int) -> Reading:
    fraction = Fraction(source.sample_fraction)
    if source.max_bytes is not None and size:
        fraction = min(fraction, Fraction(source.max_bytes, size))
    return Reading(
        source.name,
        source.text,
        source.group_by,
        source.on_bad_file,
        source.on_bad_row,
        source.seed,
        min(WHOLE, int(fraction * WHOLE)),
    )


def _find(source: Source) -> Found:
    data = source.documents
    if data is None:
        return find(source.name, source.list_of_paths(), source.format, skip=source.on_bad_file == "skip")
    kind, name = "documents", f"source {source.name!r}"
    bases = {base.__name__ for base in type(data).__mro__ if base.__module__.startswith("datasets.")}
    if bases and isinstance(data, dict):
        raise SourceError(f'{name}: documents holds several splits; name one, as in data["train"].')
    if bases & {"IterableDataset", "Dataset"}:
        kind = "stream" if "IterableDataset" in bases else "dataset"
    elif (table := _table(data, name, source.text)) is not None:
        kind, data = "table", table
    elif not isinstance(data, (list, tuple)):
        data = Given(data, name)  # a column of a dataset, too
    return Found(source.name, None, objects=[(kind, name, data)])


def _table(data: Any, name: str, text: str) -> Any:
    """A table of whatever library as one of pyarrow; a column alone as one of a single column; None of other things."""
    if not isinstance(data, (pa.Table, pa.RecordBatch, pa.Array, pa.ChunkedArray)) and not any(
        hasattr(data, method) for method in ("__arrow_c_stream__", "__arrow_c_array__")
    ):
        return None
    try:
        if hasattr(data, "columns") or hasattr(data, "schema"):
            return pa.table(data)
        column = pa.chunked_array(data if not isinstance(data, pa.Array) else [data])
        return pa.table({text: column}) if is_text(column.type) else None
    except (pa.ArrowException, TypeError, ValueError) as error:
        if hasattr(data, "columns"):
            raise SourceError(f"{name}: documents is a table that Arrow cannot take over: {said(error)}.") from error
        return None  # a column of mixed values, which are looked at one by one


def _inspect(source: Source, result: Plan) -> Iterator[_Unit]:
    """Look into every file of a source, many at once, in the order of their paths."""
    found = _find(source)
    result.left_out += found.left_out
    reading = _reading(source, 0)
    files = [found.files[path] for path in sorted(found.files)]

    def look(entry: tuple[File, str]) -> tuple[File, Inspected, str | None] | SourceError:
        file, format = entry
        group = None
        try:
            try:
                inspected: Inspected = READERS[format].inspect(file, reading)
            except NoGroup:
                group = partition_of(file.path, source.group_by or "")
                if group is None:
                    raise
                group = group or NO_GROUP
                inspected = READERS[format].inspect(file, replace(reading, group_by=None))
            file = file.with_version()
        except AccessError:
            raise
        except SourceError as error:
            return error
        except DAMAGED as error:
            if of_the_machine(error):
                raise DataError(
                    f"{file.path} cannot be read, through no fault of its own: {said(error)}. Give the command again "
                    "when the machine or its storage is well."
                ) from error
            return BadFile(f"{file.path} is damaged: {said(error)}")
        return file, inspected, group

    names = relative_names([file.path for file, _ in files])
    for (file, format), name, outcome in zip(files, names, places.in_threads(look, files), strict=True):
        if isinstance(outcome, SourceError):
            if source.on_bad_file == "error":
                raise outcome
            result.left_out.append(LeftOut(source.name, file.path, str(outcome), bad=True))
        elif not outcome[1].units:
            result.left_out.append(LeftOut(source.name, file.path, "empty: no rows"))
        else:
            yield _Unit(name, format, outcome[0], None, outcome[1], outcome[2])
    for format, name, documents_ in found.objects:
        yield _Unit(name, format, None, documents_, READERS[format].inspect(documents_, reading))


def _cut(unit: _Unit, size: int) -> Iterator[Piece]:
    """The pieces of one file: even ones instead of full ones and a crumb, as many as it needs."""
    units = unit.inspected.units
    total = sum(bytes for _, bytes in units)
    count = max(1, round(total / size))

    def piece(first: int, last: int, first_row: int, rows: int | None, size: int) -> Piece:
        return Piece(
            unit.format, unit.file, unit.name, first, last, first_row, rows, size, unit.documents, unit.group,
            unit.inspected.mark,
        )  # fmt: skip

    if unit.inspected.lines and unit.file and unit.file.size is not None:
        borders = [unit.file.size * i // count for i in range(count + 1)]
        for first, last in pairwise(borders):
            yield piece(first, last, 0, None, total * (last - first) // unit.file.size)
        return
    if not total and units[0][0] is None:
        # Nothing is known but that a shard can begin here: each is its own.
        yield from (piece(i, i + 1, 0, None, 0) for i in range(len(units)))
        return
    first = row = first_row = done = before = made = 0
    known = True
    for i, (rows, bytes) in enumerate(units):
        known = known and rows is not None
        row += rows or 0
        done += bytes
        if (done * count >= total * (made + 1) and total) or i == len(units) - 1:
            if not known or row > first_row:
                yield piece(first, i + 1, first_row, row - first_row if known else None, done - before)
                made += 1
            first, first_row, before = i + 1, row, done


def _pack(pieces: Iterable[Piece], size: int) -> Iterator[tuple[Piece, ...]]:
    held: list[Piece] = []
    weight = 0
    for piece in pieces:
        more = max(piece.bytes, OPEN_BYTES)
        if held and weight + more > size:
            yield tuple(held)
            held, weight = [], 0
        held.append(piece)
        weight += more
    if held:
        yield tuple(held)
