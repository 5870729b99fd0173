"""Parquet files."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from dist_bpe.arrays import of_numpy
from dist_bpe.corpus.columns import BATCH_BYTES, BATCH_ROWS, Column, locate, values_of
from dist_bpe.corpus.documents import Batch, Inspected, Piece, Reading, Sample, Skipped, documents_of, group_names
from dist_bpe.errors import BadFile
from dist_bpe.storage.places import File

# What planning reads of a remote file at a time: footers are small.
FOOTER_BYTES = 1 << 16


def _not_parquet(file: File, error: BaseException) -> BadFile:
    start = b""
    if file.size != 0:
        with file.open(1 << 10) as handle:
            start = bytes(handle.read(256))
    if not start:
        return BadFile(f"{file.path} cannot be read as Parquet: it is empty.")
    if start.lstrip()[:1] == b"<":
        return BadFile(
            f"{file.path} cannot be read as Parquet: it looks like a web page and begins with {start[:40]!r}."
        )
    if start.startswith(b"PAR1"):
        return BadFile(f"{file.path} cannot be read as Parquet: it is cut short or damaged ({error}).")
    return BadFile(f"{file.path} cannot be read as Parquet: it is none, and begins with {start[:16]!r}.")


class Parquet:
    """Parquet: shards begin at row groups, since the middle of one is reached only by decoding from its start."""

    @staticmethod
    def open(file: File, handle: Any, **options: Any) -> Any:
        """The reader of an open file.

        Raises:
            BadFile: the file is no Parquet, or damaged.
        """
        try:
            return pq.ParquetFile(handle, **options)
        except (OSError, pa.ArrowException) as error:
            raise _not_parquet(file, error) from error

    @classmethod
    def inspect(cls, file: File, reading: Reading) -> Inspected:
        """Read the footer and check the columns; sizes are those before compression."""
        with file.open(FOOTER_BYTES) as handle:
            metadata = cls.open(file, handle).metadata
        schema = metadata.schema.to_arrow_schema()
        column = locate(schema, reading.text, file.path)
        if reading.group_by:
            locate(schema, reading.group_by, file.path, "group")
        groups = (metadata.row_group(i) for i in range(metadata.num_row_groups))
        return Inspected([(g.num_rows, g.column(column.leaf).total_uncompressed_size) for g in groups])

    @classmethod
    def _batches(cls, piece: Piece, paths: dict[str, str]) -> Iterator[tuple[dict[str, tuple[Any, Any]], int]]:
        """Columns by what they are ("text", "group"), each with the names below it, and the row they begin at."""
        file = piece.require_file()
        # Without pre-buffering and with a small buffer, memory stays near the batch size even where one row group holds
        # gigabytes; a dataset scanner would take the whole group.
        options = {"pre_buffer": False, "buffer_size": 1 << 20}
        row = piece.first_row
        with file.open() as handle:
            parquet = cls.open(file, handle, **options)
            metadata = parquet.metadata
            schema = metadata.schema.to_arrow_schema()
            columns = {what: locate(schema, path, piece.path, what) for what, path in paths.items()}
            places = {what: metadata.schema.column(column.leaf).path for what, column in columns.items()}
            text = columns.get("text")
            for dictionary, groups in _alike(metadata, range(piece.first, piece.last), text):
                rows = BATCH_ROWS if text is None else _batch_rows(metadata, groups, text.leaf)
                reader = parquet
                if dictionary and text and (text.many or len(text.names) > 1):
                    rows = min(rows, 256)  # Arrow cannot read a dictionary inside a struct or list
                elif dictionary:
                    reader = pq.ParquetFile(handle, metadata=metadata, read_dictionary=[places["text"]], **options)
                for batch in reader.iter_batches(
                    batch_size=rows, row_groups=groups, columns=list(places.values()), use_threads=False
                ):
                    yield {what: (batch.column(c.names[0]), c.names[1:]) for what, c in columns.items()}, row
                    row += batch.num_rows

    @classmethod
    def read(cls, piece: Piece, reading: Reading, skipped: Skipped) -> Iterator[Batch]:
        """The documents of some row groups."""
        sample = Sample(reading, piece.name)
        paths = {"text": reading.text} | ({"group": reading.group_by} if reading.group_by else {})
        for columns, row in cls._batches(piece, paths):
            column, names = columns["text"]
            groups = values_of(*columns["group"])[0] if reading.group_by else None

            def fault(i: int, byte: int, row: int = row) -> str:
                return f"{piece.path}: row {row + i:,} of column {reading.text!r} is not UTF-8 from byte {byte:,} on"

            yield from documents_of(column, names, groups, row, sample, reading, skipped, fault)

    @classmethod
    def groups(cls, piece: Piece, reading: Reading) -> set[str]:
        """The names in the group column of the rows that take part, read from that column alone."""
        sample = Sample(reading, piece.name)
        names: set[str] = set()
        for columns, row in cls._batches(piece, {"group": reading.group_by or ""}):
            values = values_of(*columns["group"])[0]
            if not sample.all:
                values = values.take(of_numpy(np.flatnonzero(sample.keep(np.arange(row, row + len(values))))))
            names.update(group_names(values.unique()))
        return names


def _batch_rows(metadata: Any, groups: Sequence[int], leaf: int) -> int:
    """Rows a batch."""
    rows = BATCH_ROWS
    for i in groups:
        group = metadata.row_group(i)
        rows = min(rows, max(1, BATCH_BYTES * group.num_rows // max(1, group.column(leaf).total_uncompressed_size)))
    return rows


def _alike(metadata: Any, groups: Iterable[int], text: Column | None) -> Iterator[tuple[bool, list[int]]]:
    """Row groups that follow each other and are to be read alike: as dictionaries or not."""
    for repeats, some in groupby(groups, lambda i: bool(text and _repeats(metadata.row_group(i).column(text.leaf)))):
        yield repeats, list(some)


def _repeats(column: Any) -> bool:
    """Whether a chunk may stand for far more text than its size.

    One not much larger than the dictionary that writers allow (1 MiB) and its indices may: a megabyte that repeats in
    each of 2,200 rows takes one. It is read as a dictionary, and decoded a slice at a time. Where it is none after all,
    reading it so costs little, since it is small; and a few rows of little stand for little.
    """
    size, values = int(column.total_uncompressed_size), int(column.num_values)
    return bool(column.has_dictionary_page) and size <= (4 << 20) + 4 * values and size * values > 2 * BATCH_BYTES
