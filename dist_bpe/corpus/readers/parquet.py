"""Parquet files."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from dist_bpe.arrays import of_numpy
from dist_bpe.corpus.columns import BATCH_BYTES, BATCH_ROWS, Column, checked, locate, values_of
from dist_bpe.corpus.documents import Batch, Inspected, Piece, Reading, Sample, Skipped, documents_of, group_names
from dist_bpe.corpus.formats import what_by_start
from dist_bpe.corpus.readers.thrift import Chunk, ThriftError, chunks
from dist_bpe.errors import BadFile, DataError
from dist_bpe.storage.files import digest
from dist_bpe.storage.places import CHANGED, File, said

# What planning reads of a remote file at a time: footers are small.
FOOTER_BYTES = 1 << 16


def _not_parquet(file: File, error: BaseException) -> BadFile:
    start = b""
    if file.size != 0:
        with file.open(1 << 10) as handle:
            start = bytes(handle.read(512))
    if not start:
        return BadFile(f"{file.path} cannot be read as Parquet: it is empty.")
    if start.startswith(b"PAR1"):
        return BadFile(f"{file.path} cannot be read as Parquet: it is cut short or damaged ({said(error)}).")
    if start.lstrip()[:1] == b"<":
        return BadFile(
            f"{file.path} cannot be read as Parquet: it looks like a web page and begins with {start[:40]!r}."
        )
    if what := what_by_start(start, markup=False):
        return BadFile(f"{file.path} cannot be read as Parquet: it is {what}.")
    return BadFile(f"{file.path} cannot be read as Parquet: it is none, and begins with {start[:16]!r}.")


def _footer(handle: Any) -> bytes:
    """The footer of an open file, without the length and the mark that follow it; empty if there is none."""
    size = handle.size()
    if size < 12:
        return b""
    handle.seek(size - 8)
    tail = bytes(handle.read(8))
    length = int.from_bytes(tail[:4], "little")
    footer = b""
    if tail[4:] in (b"PAR1", b"PARE") and length <= size - 12:
        handle.seek(size - 8 - length)
        footer = bytes(handle.read(length))
    handle.seek(0)
    return footer


class Parquet:
    """Parquet: shards begin at row groups, since the middle of one is reached only by decoding from its start."""

    @staticmethod
    def open(file: File, handle: Any, **options: Any) -> Any:
        """The reader of an open file.

        Pages that carry a checksum are compared with it.

        Raises:
            BadFile: the file is no Parquet, or damaged.
        """
        try:
            parquet = pq.ParquetFile(handle, page_checksum_verification=True, **options)
        except UnicodeDecodeError as error:
            raise BadFile(
                f"{file.path}: the name of a column is not UTF-8 ({error.object!r}). Name it anew."
            ) from error
        except (OSError, pa.ArrowException) as error:
            raise _not_parquet(file, error) from error
        metadata = parquet.metadata
        rows = sum(metadata.row_group(i).num_rows for i in range(metadata.num_row_groups))
        if rows != metadata.num_rows:
            # Arrow reads as many as each row group says, and leaves out the others without a word.
            raise BadFile(
                f"{file.path} is damaged: its footer says {metadata.num_rows:,} rows in all, and {rows:,} in "
                "its row groups."
            )
        return parquet

    @classmethod
    def whole(cls, file: File, handle: Any, mark: str = "", **options: Any) -> tuple[Any, frozenset[int], str]:
        """The reader, the numbers of the leaves that are encrypted, and a digest of the footer.

        Raises:
            BadFile: see `open`.
            DataError: the footer is another than the one of this digest.
        """
        footer = _footer(handle)
        found = digest(footer)
        _compare(file, found, mark)
        parquet = cls.open(file, handle, **options)
        secret: set[int] = set()
        # The footer of a file with encrypted columns is signed, and longer than what is in it. A short one is looked
        # through anyway, which takes some milliseconds: one damaged bit can claim an encryption.
        if parquet.metadata.serialized_size != len(footer) or len(footer) <= FOOTER_BYTES:
            try:
                groups = chunks(footer)
            except ThriftError as error:
                raise _not_parquet(file, error) from error
            secret = {leaf for group in groups for leaf, chunk in enumerate(group) if chunk.encrypted}
            _check_levels(groups, parquet.metadata, file)
        return parquet, frozenset(secret), found

    @classmethod
    def inspect(cls, file: File, reading: Reading) -> Inspected:
        """Read the footer and check the columns; sizes are those before compression."""
        with file.open(FOOTER_BYTES) as handle:
            parquet, secret, mark = cls.whole(file, handle)
        metadata = parquet.metadata
        schema = _schema(metadata, file)
        column = locate(schema, reading.text, file.path)
        columns = [column]
        if reading.group_by:
            columns.append(locate(schema, reading.group_by, file.path, "group"))
        _refuse_encrypted(columns, secret, file.path)
        groups = (metadata.row_group(i) for i in range(metadata.num_row_groups))
        sizes = [(g.num_rows, g.column(column.leaf).total_uncompressed_size) for g in groups]
        if any(rows < 0 or size < 0 for rows, size in sizes):
            raise BadFile(f"{file.path} is damaged: its footer has sizes below zero.")
        return Inspected(sizes, mark=mark)

    @classmethod
    def check_mark(cls, piece: Piece) -> None:
        """Check that the footer is still the one that was planned with.

        Raises:
            DataError: it is another.
        """
        file = piece.require_file()
        with file.open(FOOTER_BYTES) as handle:
            _compare(file, digest(_footer(handle)), piece.mark)

    @classmethod
    def _batches(cls, piece: Piece, paths: dict[str, str]) -> Iterator[tuple[dict[str, tuple[Any, Any]], int]]:
        """Columns by what they are ("text", "group"), each with the names below it, and the row they begin at."""
        file = piece.require_file()
        # Without pre-buffering and with a small buffer, memory stays near the batch size even where one row group holds
        # gigabytes; a dataset scanner would take the whole group.
        options = {"pre_buffer": False, "buffer_size": 1 << 20}
        row = piece.first_row
        with file.open() as handle:
            parquet, secret, _ = cls.whole(file, handle, piece.mark, **options)
            metadata = parquet.metadata
            schema = _schema(metadata, file)
            columns = {what: locate(schema, path, piece.path, what) for what, path in paths.items()}
            _refuse_encrypted(columns.values(), secret, piece.path)
            places = {what: metadata.schema.column(column.leaf).path for what, column in columns.items()}
            text = columns.get("text")
            for dictionary, groups in _alike(metadata, range(piece.first, piece.last), text):
                rows = BATCH_ROWS if text is None else _batch_rows(metadata, groups, text.leaf)
                reader = parquet
                if dictionary and text and (text.many or len(text.names) > 1):
                    rows = min(rows, 256)  # Arrow cannot read a dictionary inside a struct or list
                elif dictionary:
                    reader = cls.open(file, handle, metadata=metadata, read_dictionary=[places["text"]], **options)
                for batch in reader.iter_batches(
                    batch_size=rows, row_groups=groups, columns=list(places.values()), use_threads=False
                ):
                    if dictionary:
                        checked(batch, piece.path)  # Arrow does not compare a page's indices with its dictionary
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


def _compare(file: File, found: str, mark: str) -> None:
    if mark and found != mark:
        raise DataError(f"{file.path} was changed after the run was planned: it has another footer. {CHANGED}")


def _schema(metadata: Any, file: File) -> Any:
    try:
        return metadata.schema.to_arrow_schema()
    except UnicodeDecodeError as error:
        raise BadFile(f"{file.path}: the name of a column is not UTF-8 ({error.object!r}). Name it anew.") from error
    except (OSError, pa.ArrowException) as error:
        raise BadFile(f"{file.path} cannot be read as Parquet: its schema is damaged ({said(error)}).") from error


def _check_levels(groups: Sequence[Sequence[Chunk]], metadata: Any, file: File) -> None:
    """Check what Arrow ends the process over when it is asked about a column."""
    schema = metadata.schema
    levels = [(c.max_repetition_level, c.max_definition_level) for c in (schema.column(i) for i in range(len(schema)))]
    for group in groups:
        if len(group) != len(levels):
            raise BadFile(f"{file.path} is damaged: a row group has {len(group)} columns, not {len(levels)}.")
        for chunk, (repetitions, definitions) in zip(group, levels, strict=True):
            if chunk.repetitions not in (0, repetitions + 1) or chunk.definitions not in (0, definitions + 1):
                raise BadFile(f"{file.path} is damaged: its statistics of sizes do not fit its schema.")


def _refuse_encrypted(columns: Iterable[Column], secret: frozenset[int], path: str) -> None:
    """Without this Arrow ends the process."""
    for column in columns:
        if column.leaf in secret:
            raise BadFile(f"{path}: the column {'.'.join(column.names)!r} is encrypted. Write it without encryption.")


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
