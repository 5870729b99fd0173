"""Documents in memory: lists, arrays, generators, tables."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from dist_bpe.arrays import of_bytes
from dist_bpe.corpus.columns import BATCH_BYTES, BATCH_ROWS
from dist_bpe.corpus.documents import Batch, Inspected, Piece, Reading, Sample, Skipped, documents_of
from dist_bpe.errors import DataError, DistBpeError, SourceError


class Given:
    """An iterable that a user gave, and how far it was read: one that cannot begin again gives less the second time.

    A generator gives nothing then, and a retry that found it empty would count nothing and succeed.
    """

    def __init__(self, documents: Iterable[Any], name: str) -> None:
        self.documents, self.name = documents, name
        self._most = 0
        self._iterator: Any = None
        self._error: Exception | None = None

    def __iter__(self) -> Iterator[Any]:
        """The documents.

        Raises:
            DataError: the iterable raised and cannot begin again, or it gives fewer documents than before.
        """
        iterator = iter(self.documents)
        once = iterator is self.documents or iterator is self._iterator
        if once and self._iterator is not None:
            raise self._used_up()
        self._iterator = iterator
        done = 0
        while True:
            try:
                document = next(iterator)
            except StopIteration:
                if done < self._most:
                    raise self._used_up() from self._error
                return
            except DistBpeError:
                raise
            except Exception as error:
                self._error = self._error or error
                if once:
                    raise self._used_up() from error
                raise
            done += 1
            self._most = max(self._most, done)
            yield document

    def _used_up(self) -> DataError:
        cause = f" It stopped with {type(self._error).__name__}: {self._error}." if self._error else ""
        return DataError(
            f"{self.name}: documents can be read once only, and were read up to document {self._most:,} before.{cause} "
            "Write them to a file, or give a list, so that they can be read again."
        )


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
        if isinstance(piece.documents, Given):
            reading = replace(reading, check_utf8=True)  # they cannot be read again to learn which one is at fault
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
