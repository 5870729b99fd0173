"""A shard: some pieces of one source's files, read in batches, and split where it is too large."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

from dist_bpe.corpus.documents import LEAVE_FILES, Batch, Piece, Reading, Skipped
from dist_bpe.corpus.readers.lines import DAMAGED, of_the_machine
from dist_bpe.corpus.readers.registry import READERS
from dist_bpe.errors import AccessError, DataError, SourceError
from dist_bpe.storage.places import said

# Pieces of a shard that failed again and again.
SPLIT = 8


@dataclass(frozen=True)
class Shard:
    """The unit of work and retry: a piece of one file, or a number of small files, of one source.

    `bytes` is the text in it, as the plan could tell; `rows` may be unknown.
    """

    index: int
    reading: Reading
    pieces: tuple[Piece, ...]

    @property
    def source(self) -> str:
        """The source's name, which with `group_by` is that of no row."""
        return self.reading.source

    @property
    def path(self) -> str:
        """The first file."""
        return self.pieces[0].path

    @property
    def rows(self) -> int | None:
        """Rows, before sampling."""
        return sum_or_none(piece.rows for piece in self.pieces)

    @property
    def bytes(self) -> int:
        """Text bytes, before sampling."""
        return sum(piece.bytes for piece in self.pieces)

    def __str__(self) -> str:
        if len(self.pieces) > 1:
            return f"shard {self.index} ({len(self.pieces):,} files from {self.path} on)"
        piece = self.pieces[0]
        if piece.rows is None:
            unit = "bytes" if piece.format in ("jsonl", "lines", "text") else "parts"
            return f"shard {self.index} ({piece.path}, {unit} {piece.first:,} to {piece.last:,})"
        return f"shard {self.index} ({piece.path}, rows {piece.first_row:,} to {piece.first_row + piece.rows - 1:,})"

    def split(self) -> "list[Shard]":
        """The same documents in at most `SPLIT` smaller shards of the same number; none where it cannot be cut.

        Looks into the file once more where that says what lies in the middle.
        """
        if len(self.pieces) > 1:
            groups = [self.pieces[i::SPLIT] for i in range(min(SPLIT, len(self.pieces)))]
        else:
            try:
                groups = [(piece,) for piece in _halved(self.pieces[0], self.reading)]
            except (*DAMAGED, SourceError):
                return []  # whoever asks has a first cause to tell, and this is another of its kind
        return [Shard(self.index, self.reading, pieces) for pieces in groups] if len(groups) > 1 else []

    def batches(self, skipped: Skipped | None = None, check_utf8: bool = True) -> Iterator[Batch]:
        """Yield the documents, in the order of the files, as (source name, texts, place of the first text).

        Texts are an Arrow array of binary values, large or not, of about `BATCH_BYTES`, and all UTF-8; nulls stay in
        it. `skipped` takes note of what the policies leave out. Who checks the texts anyway may pass `check_utf8=False`
        and call again without it to learn where a bad one lies; it has no effect where the policy needs the check.

        Raises:
            DataError: a row or file that cannot be read, by the policies; a file that changed since it was planned.
            NetworkError: a remote file system that does not answer within the deadline, whatever the policies.
        """
        skipped = Skipped() if skipped is None else skipped
        reading = replace(self.reading, check_utf8=check_utf8 or self.reading.on_bad_row != "error")
        for piece in self.pieces:
            try:
                yield from _unchanged(piece, READERS[piece.format].read(piece, _of_piece(reading, piece), skipped))
            except AccessError as error:
                raise DataError(str(error)) from error
            except (*DAMAGED, SourceError) as error:
                if of_the_machine(error):
                    raise  # no damage of the file, so no policy's: another attempt may read it
                reason = said(error) if isinstance(error, SourceError) else f"{piece.path} is damaged: {said(error)}."
                if self.reading.on_bad_file == "error":
                    raise DataError(f"{reason.rstrip('.')}. To leave such files out, {LEAVE_FILES}.") from error
                skipped.files[piece.path] = reason

    def sources(self) -> list[str]:
        """The names of the sources in this shard, sorted; with `group_by`, read from that field alone."""
        if self.reading.group_by is None:
            return [self.reading.source]
        names: set[str] = set()
        for piece in self.pieces:
            if piece.group is not None:
                names.add(piece.group)
                continue
            try:
                reader = READERS[piece.format]
                if hasattr(reader, "groups"):
                    names |= reader.groups(piece, self.reading)
                else:
                    names |= {batch.source for batch in reader.read(piece, self.reading, Skipped())}
            except AccessError as error:
                raise DataError(str(error)) from error
            except (*DAMAGED, SourceError) as error:
                if of_the_machine(error):
                    raise
                if self.reading.on_bad_file == "error":
                    raise DataError(
                        f"{piece.path}: the groups of {self.reading.group_by!r} cannot be read: {said(error)}"
                    ) from error
                names |= self._until_damage(piece)
        return sorted(names)

    def _until_damage(self, piece: Piece) -> set[str]:
        names = set()
        try:
            for batch in READERS[piece.format].read(piece, self.reading, Skipped()):
                names.add(batch.source)
        except (*DAMAGED, SourceError) as error:
            if of_the_machine(error):
                raise
            # What `batches` will meet again, and note.
        return names


def _of_piece(reading: Reading, piece: Piece) -> Reading:
    """How a piece is read whose folder names the source of its rows."""
    return reading if piece.group is None else replace(reading, source=piece.group, group_by=None)


def _unchanged(piece: Piece, batches: Iterator[Batch]) -> Iterator[Batch]:
    """Batches of a piece, if its file is the same before and after; what is damaged may be one that was changed.

    Raises:
        DataError: it was changed.
    """
    file = piece.file
    if file is not None and file.place.local:
        file.check()
    try:
        for batch in batches:
            if len(batch.texts):
                yield batch
    except AccessError:
        raise
    except (*DAMAGED, SourceError):
        if file is not None:
            file.check()
        raise
    if file is not None:
        file.check()
        if piece.mark:
            READERS[piece.format].check_mark(piece)


def sum_or_none(values: Iterable[int | None]) -> int | None:
    """The sum, or None if one of the numbers is not known."""
    total = 0
    for value in values:
        if value is None:
            return None
        total += value
    return total


def _halved(piece: Piece, reading: Reading) -> list[Piece]:
    """A piece in smaller ones, where its format can be entered in the middle."""
    if piece.format == "documents" and not isinstance(piece.documents, (list, tuple)):
        return []
    first, last = piece.first, piece.last
    borders = sorted({first + (last - first) * i // SPLIT for i in range(SPLIT + 1)})
    if piece.format == "parquet":
        rows = [rows or 0 for rows, _ in READERS["parquet"].inspect(piece.require_file(), reading).units]
        return [
            replace(piece, first=a, last=b, first_row=sum(rows[:a]), rows=sum(rows[a:b]), bytes=piece.bytes // SPLIT)
            for a, b in pairwise(borders)
        ]
    return [
        replace(piece, first=a, last=b, rows=piece.rows and piece.rows // SPLIT, bytes=piece.bytes // SPLIT)
        for a, b in pairwise(borders)
    ]
