"""Arrow IPC files and streams."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa

from dist_bpe.corpus.columns import Column, checked, locate, values_of
from dist_bpe.corpus.documents import Batch, Inspected, Piece, Reading, Sample, Skipped, documents_of
from dist_bpe.corpus.formats import what_by_start
from dist_bpe.errors import BadFile
from dist_bpe.storage.places import File, said


class Arrow:
    """Arrow IPC files, and streams as `save_to_disk` writes them. Shards of a file begin at record batches.

    Files are read and not mapped into memory: a mapped one that shrinks while it is read ends the process.
    """

    @staticmethod
    def reader(handle: Any, path: str, columns: Sequence[int] | None = None) -> Any:
        """The reader of a file (which has `get_batch`) or of a stream.

        Raises:
            BadFile: it is neither.
        """
        start = bytes(handle.read(512))
        handle.seek(0)
        options = pa.ipc.IpcReadOptions(use_threads=False, included_fields=columns)
        try:
            if start.startswith(b"ARROW1"):
                return pa.ipc.open_file(handle, options=options)
            return pa.ipc.open_stream(handle, options=options)
        except (pa.ArrowException, OSError, ValueError) as error:
            if not start.startswith(b"ARROW1") and (what := what_by_start(start)):
                raise BadFile(f"{path} is no Arrow file, but {what}.") from error
            raise BadFile(f"{path} is neither an Arrow IPC file nor a stream, or is damaged: {said(error)}") from error

    @classmethod
    def _located(cls, handle: Any, path: str, reading: Reading) -> tuple[Any, Column, Column | None]:
        schema = cls.reader(handle, path).schema
        handle.seek(0)
        text = locate(schema, reading.text, path)
        group = locate(schema, reading.group_by, path, "group") if reading.group_by else None
        wanted = {column.names[0] for column in (text, group) if column}
        return cls.reader(handle, path, [schema.get_field_index(name) for name in sorted(wanted)]), text, group

    @classmethod
    def inspect(cls, file: File, reading: Reading) -> Inspected:
        """Read the schema and the first record batch, whose text stands for that of the others."""
        with file.open(1 << 18) as handle:
            reader, text, _ = cls._located(handle, file.path, reading)
            if not getattr(reader, "num_record_batches", 1):
                return Inspected([])
            try:
                batch = reader.get_batch(0) if hasattr(reader, "get_batch") else reader.read_next_batch()
            except StopIteration:
                return Inspected([])
            except pa.ArrowInvalid as error:
                raise BadFile(f"{file.path} is damaged: {said(error)}") from error
            checked(batch, file.path)
            size = values_of(batch.column(text.names[0]), text.names[1:])[0].nbytes
            if hasattr(reader, "num_record_batches"):
                return Inspected([(None, size)] * reader.num_record_batches)
            # A stream tells neither the number nor the places of its batches.
            return Inspected([(None, size * (file.size or handle.tell()) // max(1, handle.tell()))])

    @classmethod
    def read(cls, piece: Piece, reading: Reading, skipped: Skipped) -> Iterator[Batch]:
        """The documents of some record batches."""
        sample = Sample(reading, piece.name)
        with piece.require_file().open() as handle:
            reader, text, group = cls._located(handle, piece.path, reading)
            if hasattr(reader, "get_batch"):
                batches: Iterable[Any] = (reader.get_batch(i) for i in range(piece.first, piece.last))
            else:
                batches = reader
            for number, batch in enumerate(batches, piece.first):
                checked(batch, piece.path)
                groups = values_of(batch.column(group.names[0]), group.names[1:])[0] if group else None

                def fault(i: int, byte: int, number: int = number) -> str:
                    where = f"{piece.path}: record batch {number:,}, row {i:,} of column {reading.text!r}"
                    return f"{where} is not UTF-8 from byte {byte:,} on"

                column = batch.column(text.names[0])
                yield from documents_of(column, text.names[1:], groups, number << 32, sample, reading, skipped, fault)

    @classmethod
    def groups(cls, piece: Piece, reading: Reading) -> set[str]:
        """The names in the group column of the rows that take part."""
        return {batch.source for batch in cls.read(piece, reading, Skipped())}
