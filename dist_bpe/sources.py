"""Where text lies: a `Source` names files and columns, a `Shard` is a piece of one file, and a shard yields batches.

Planning reads only footers. It fails there, before any counting, for a file that is no Parquet or has no such column.
"""

import glob
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from dist_bpe.errors import DataError, SourceError

MIN_SHARD_BYTES = 64 << 20
MAX_SHARD_BYTES = 1 << 30
# A run aims at no more shards than this, so that staging stays a listable number of files.
AIMED_SHARDS = 4096
# Documents are handed to the native core in batches of about this size: large enough that the crossing costs nothing,
# small enough that Ctrl-C works and memory stays flat.
BATCH_BYTES = 4 << 20
BATCH_ROWS = 65_536
#: The source of rows whose group column is null.
NO_GROUP = "(none)"


@dataclass(frozen=True)
class Source:
    """A named group of text.

    Attributes:
        name: the source's name in tables and reports, usually a language. With `group_by` the names come from that
            column, and this one only stands in messages.
        paths: Parquet files, folders (all `*.parquet` below them) or globs. One string is one path.
        text: the column that holds the documents.
        group_by: a column whose value names the source of each row.
    """

    name: str
    paths: str | Sequence[str]
    text: str = "text"
    group_by: str | None = None

    def files(self) -> list[Path]:
        """The files of this source, sorted, without repeats.

        Raises:
            SourceError: a path matches nothing, or a folder holds no Parquet file.
        """
        paths = [self.paths] if isinstance(self.paths, (str, Path)) else list(self.paths)
        found: set[Path] = set()
        for text in map(str, paths):
            path = Path(text)
            if path.is_dir():
                # Names that begin with a dot or an underscore are markers and half-written files by convention.
                files = [
                    file
                    for file in path.rglob("*.parquet")
                    if not any(part.startswith((".", "_")) for part in file.relative_to(path).parts)
                ]
                if not files:
                    raise SourceError(f"source {self.name!r}: the folder {text} holds no *.parquet file.")
            elif path.exists():
                files = [path]
            else:
                # Path.glob takes no absolute patterns.
                files = [Path(file) for file in glob.glob(text, recursive=True) if not Path(file).is_dir()]  # noqa: PTH207
                if not files:
                    raise SourceError(f"source {self.name!r}: no file matches {text}.")
            found.update(files)
        if not found:
            raise SourceError(f"source {self.name!r} names no path.")
        return sorted(found)


@dataclass(frozen=True)
class Shard:
    """The unit of work and retry: some row groups of one file.

    `bytes` is the uncompressed size of the text column in these row groups, as the footer gives it.
    """

    index: int
    source: str
    path: str
    text: str
    group_by: str | None
    row_groups: tuple[int, ...]
    rows: int
    bytes: int
    first_row: int

    def batches(self) -> Iterator[tuple[str, pa.Array, int]]:
        """Yield (source name, texts, row of the first text in the file), in file order.

        Texts are an Arrow array of string or binary values, large or not; nulls stay in it. With `group_by` the rows of
        one batch come as one array a group, and the row number is that of the batch's first row.

        Raises:
            DataError: the file cannot be read.
        """
        columns = [self.text] + ([self.group_by] if self.group_by else [])
        batch_rows = max(1, min(BATCH_ROWS, BATCH_BYTES * self.rows // max(1, self.bytes)))
        row = self.first_row
        try:
            # Without pre-buffering and with a small buffer, memory stays near the batch size even where one row group
            # holds gigabytes; a dataset scanner would take the whole group.
            with pq.ParquetFile(self.path, pre_buffer=False, buffer_size=1 << 20) as file:
                for batch in file.iter_batches(
                    batch_size=batch_rows, row_groups=list(self.row_groups), columns=columns, use_threads=False
                ):
                    texts = plain_text(batch.column(self.text))
                    if self.group_by is None:
                        yield self.source, texts, row
                    else:
                        yield from ((name, part, row) for name, part in _by_group(texts, batch.column(self.group_by)))
                    row += batch.num_rows
        except (OSError, pa.ArrowException) as error:
            raise DataError(f"{self.path}: rows from {row:,} on cannot be read: {error}") from error

    def sources(self) -> list[str]:
        """The names of the sources in this shard, sorted; with `group_by`, read from that column alone."""
        if self.group_by is None:
            return [self.source]
        names: set[str] = set()
        try:
            with pq.ParquetFile(self.path, pre_buffer=False, buffer_size=1 << 20) as file:
                for batch in file.iter_batches(
                    batch_size=BATCH_ROWS, row_groups=list(self.row_groups), columns=[self.group_by], use_threads=False
                ):
                    names.update(_group_names(batch.column(self.group_by).unique()))
        except (OSError, pa.ArrowException) as error:
            raise DataError(f"{self.path}: column {self.group_by!r} cannot be read: {error}") from error
        return sorted(names)


def plain_text(array: pa.Array) -> pa.Array:
    """Bring dictionary and view arrays to a plain one; the native core reads string and binary, large or not."""
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if pa.types.is_string_view(array.type) or pa.types.is_binary_view(array.type):
        array = array.cast(pa.large_binary())
    return array


def _group_names(values: pa.Array) -> list[str]:
    return [NO_GROUP if value is None else str(value) for value in values.to_pylist()]


def _by_group(texts: pa.Array, groups: pa.Array) -> Iterator[tuple[str, pa.Array]]:
    if not pa.types.is_dictionary(groups.type):
        groups = groups.dictionary_encode(null_encoding="encode")
    names = _group_names(groups.dictionary)
    codes = groups.indices
    if codes.null_count:
        codes = codes.fill_null(len(names))
        names.append(NO_GROUP)
    if len(names) == 1:
        yield names[0], texts
        return
    import pyarrow.compute as pc

    for code, name in enumerate(names):
        part = texts.filter(pc.equal(codes, code))
        if len(part):
            yield name, part


@dataclass(frozen=True)
class FileReport:
    """What planning found in one file; `bytes` is the text column's uncompressed size."""

    source: str
    path: str
    rows: int
    bytes: int


@dataclass
class Plan:
    """The shards of a run, in a fixed order, and what each file holds."""

    shards: list[Shard]
    files: list[FileReport] = field(default_factory=list)

    @property
    def bytes(self) -> int:
        """Uncompressed size of all text columns, in bytes."""
        return sum(file.bytes for file in self.files)

    @property
    def rows(self) -> int:
        """Rows of all files."""
        return sum(file.rows for file in self.files)


def _is_text(kind: Any) -> bool:
    value = kind.value_type if pa.types.is_dictionary(kind) else kind
    tests = ("is_string", "is_large_string", "is_binary", "is_large_binary", "is_string_view", "is_binary_view")
    return any(getattr(pa.types, test)(value) for test in tests)


def _check_columns(source: Source, path: Path, schema: Any) -> None:
    for column, what in ((source.text, "text column"), (source.group_by, "group column")):
        if column is None:
            continue
        if column not in schema.names:
            known = ", ".join(schema.names)
            raise SourceError(f"{path} has no {what} {column!r}; its columns are: {known}.")
    kind = schema.field(source.text).type
    if not _is_text(kind):
        raise SourceError(f"{path}: the text column {source.text!r} holds {kind}, not text. Name another column.")


def plan(sources: Sequence[Source], shard_bytes: int | None = None) -> Plan:
    """Read all footers, check columns, and cut every file by row groups into shards of about equal size.

    Shard borders follow from the files and `shard_bytes` alone. A row group is never cut, since its middle can only be
    reached by decoding from its start.

    Args:
        sources: what to read. Names must differ, except that a `group_by` source takes its names from its rows.
        shard_bytes: text bytes a shard aims at; by default the whole divided by 4,096, within 64 MiB .. 1 GiB.

    Raises:
        SourceError: nothing found, a file that is no Parquet, a column that is missing or holds no text.
    """
    names = [source.name for source in sources]
    for name in names:
        if names.count(name) > 1:
            raise SourceError(f"two sources are named {name!r}; give each its own name, or put their paths together.")
    found: list[tuple[Source, Path, Any, int]] = []
    reports = []
    for source in sources:
        for path in source.files():
            try:
                with pq.ParquetFile(path) as file:
                    metadata, schema = file.metadata, file.schema_arrow
            except (OSError, pa.ArrowException) as error:
                raise SourceError(f"{path} cannot be read as Parquet: {error}") from error
            _check_columns(source, path, schema)
            column = [metadata.schema.column(i).path for i in range(len(metadata.schema))].index(source.text)
            found.append((source, path, metadata, column))
            sizes = (
                metadata.row_group(i).column(column).total_uncompressed_size for i in range(metadata.num_row_groups)
            )
            reports.append(FileReport(source.name, str(path), metadata.num_rows, sum(sizes)))
    if not any(report.rows for report in reports):
        looked = ", ".join(report.path for report in reports[:5]) + (", …" if len(reports) > 5 else "")
        raise SourceError(f"no text found: the files hold no rows ({looked}).")
    total = sum(report.bytes for report in reports)
    size = shard_bytes or min(max(total // AIMED_SHARDS, MIN_SHARD_BYTES), MAX_SHARD_BYTES)
    shards: list[Shard] = []
    for source, path, metadata, column in found:
        shards += _cut(len(shards), source, path, metadata, column, size)
    return Plan(shards, reports)


def _cut(index: int, source: Source, path: Path, metadata: Any, column: int, size: int) -> list[Shard]:
    groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
    sizes = [group.column(column).total_uncompressed_size for group in groups]
    # Even pieces instead of full ones and a crumb: as many as the file needs, each up to its share of the total.
    pieces = max(1, round(sum(sizes) / size))
    shards: list[Shard] = []
    chosen: list[int] = []
    row = first_row = done = 0
    for i, group in enumerate(groups):
        chosen.append(i)
        row += group.num_rows
        done += sizes[i]
        if done * pieces >= sum(sizes) * (len(shards) + 1) or i == len(groups) - 1:
            if row > first_row:
                text_bytes = sum(sizes[j] for j in chosen)
                shards.append(
                    Shard(
                        index + len(shards), source.name, str(path), source.text, source.group_by,
                        tuple(chosen), row - first_row, text_bytes, first_row,
                    )
                )  # fmt: skip
            chosen, first_row = [], row
    return shards
