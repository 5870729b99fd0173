"""Documents in memory: lists, arrays, generators."""

from collections.abc import Iterable, Iterator
from typing import Any

from dist_bpe.arrays import of_bytes
from dist_bpe.corpus.columns import BATCH_BYTES, BATCH_ROWS
from dist_bpe.corpus.documents import Batch, Inspected, Piece, Reading, Sample, Skipped, documents_of
from dist_bpe.errors import DataError, SourceError


class Documents:
    """An iterable of str, bytes or None. A list or tuple can be cut into shards, anything else is read through once."""

    @staticmethod
    def inspect(documents: Any, reading: Reading) -> Inspected:
        """Sizes, where the documents can be looked at without using them up."""
        if reading.group_by:
            raise SourceError(f"source {reading.source!r}: documents in memory have no column to group by.")
        if not isinstance(documents, (list, tuple)):
            return Inspected([(None, 0)])
        return Inspected([(1, len(text) if isinstance(text, (str, bytes)) else 0) for text in documents])

    @staticmethod
    def read(piece: Piece, reading: Reading, skipped: Skipped) -> Iterator[Batch]:
        """The documents, by the policy for bad ones."""
        sample = Sample(reading, piece.name)
        whole = not isinstance(piece.documents, (list, tuple))
        documents: Iterable[Any] = piece.documents if whole else piece.documents[piece.first : piece.last]
        held: list[Any] = []
        size, first = 0, piece.first
        row = first
        for row, text in enumerate(documents, first):
            if text is not None and not isinstance(text, (str, bytes)):
                raise DataError(f"{piece.name}: document {row:,} is {type(text).__name__}, not str, bytes or None.")
            # Lone surrogates are let through as bytes that are not UTF-8, so that one policy serves for all.
            held.append(text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text)
            size += len(text or "")
            if size >= BATCH_BYTES or len(held) >= BATCH_ROWS:
                yield from Documents._batch(held, first, piece, sample, reading, skipped)
                held, size, first = [], 0, row + 1
        yield from Documents._batch(held, first, piece, sample, reading, skipped)

    @staticmethod
    def _batch(
        held: list[Any], first: int, piece: Piece, sample: Sample, reading: Reading, skipped: Skipped
    ) -> Iterator[Batch]:
        def fault(i: int, byte: int) -> str:
            return f"{piece.name}: document {first + i:,} is not UTF-8 from byte {byte:,} on"

        if held:
            yield from documents_of(of_bytes(held), (), None, first, sample, reading, skipped, fault)
