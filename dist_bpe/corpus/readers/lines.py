"""Plain text: a document a line, or a file; and lines themselves, in blocks, from compressed files, too."""

import codecs
import errno
import io
import lzma
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
from isal import igzip
from isal.igzip_lib import IsalError

from dist_bpe.arrays import of_bytes
from dist_bpe.corpus.columns import BATCH_BYTES, NoGroup
from dist_bpe.corpus.documents import LEAVE_OUT, Batch, Inspected, Piece, Reading, Sample, Skipped, valid_texts
from dist_bpe.corpus.formats import compression, what_by_start
from dist_bpe.errors import BadFile, DataError
from dist_bpe.storage.places import File, said

# What planning reads of a file for its first lines, its encoding and its share of text, and what it decompresses of it.
PROBE_BYTES = 1 << 18
PROBE_LIMIT = 8 << 20
# A block of a compressed file may give nothing before its end is there; of bz2 and xz it can be some megabytes long.
LONGEST_PROBE_BYTES = 32 << 20
#: A line, or a compressed file that is one document, may be no longer: 96 kB of zstd can stand for gigabytes of it.
LONGEST_LINE_BYTES = 1 << 30
NEWLINE, CARRIAGE_RETURN, OPENING, CLOSING = b"\n\r{}"
# The stub of `isal` takes its error for a value.
_ISAL_ERROR: type[Exception] = IsalError  # type: ignore[assignment]
#: What a disk, a network file system, or a system short of files, memory or room answers: nothing of the file.
_OF_THE_MACHINE = {
    errno.EIO, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOSPC, errno.EAGAIN, errno.EBUSY, errno.ESTALE,
    errno.ETIMEDOUT,
}  # fmt: skip
# The names of groups are text of Python's, and may be none.
DAMAGED = (UnicodeDecodeError, OSError, EOFError, pa.ArrowException, lzma.LZMAError, zlib.error, _ISAL_ERROR)


def of_the_machine(error: BaseException) -> bool:
    """Whether an error is of the machine that reads, not of the file; the damage that libraries find has no number."""
    return isinstance(error, OSError) and error.errno in _OF_THE_MACHINE


_UTF16 = {
    codecs.BOM_UTF32_LE: "UTF-32",
    codecs.BOM_UTF32_BE: "UTF-32",
    codecs.BOM_UTF16_LE: "UTF-16",
    codecs.BOM_UTF16_BE: "UTF-16",
}


def decompressed(raw: Any, codec: str | None) -> Any:
    """A stream of what a compressed file holds; the file itself without a codec."""
    if codec == "xz":
        return _Xz(raw)
    if codec == "gzip":
        # ISA-L takes 0.4 of the time of zlib, which Arrow has (2026-11-30), and gzip is what crawls are kept in.
        return igzip.IGzipFile(fileobj=raw)
    # Arrow's streams read any number of zstd frames and bz2 streams. All of them release the interpreter lock.
    return pa.CompressedInputStream(raw, codec) if codec else raw


class _Xz(io.RawIOBase):
    """Any number of xz streams, one after the other, with zeros between them. `lzma.open` takes a second stream whose
    start is damaged for the end of the file.
    """

    def __init__(self, raw: Any) -> None:
        self._raw = raw
        self._stream: lzma.LZMADecompressor | None = lzma.LZMADecompressor()
        self._padding = 0

    def readable(self) -> bool:
        """Always."""
        return True

    def read(self, size: int = -1, /) -> bytes:
        """Up to `size` bytes; none at the end only.

        Raises:
            lzma.LZMAError: what is there is no stream.
            EOFError: the last stream is cut short.
        """
        if size == 0:
            return b""
        pieces: list[bytes] = []
        while data := self._next(size):
            if size >= 0:
                return data
            pieces.append(data)
        return b"".join(pieces)

    def _next(self, size: int) -> bytes:
        rest = b""
        while True:
            if self._stream is not None and self._stream.eof:
                rest, self._stream = self._stream.unused_data, None
            if self._stream is None:
                rest = rest or self._raw.read(1 << 16)
                if not rest:
                    if self._padding % 4:
                        raise lzma.LZMAError(f"{self._padding} zeros follow the last stream, not a multiple of 4")
                    return b""
                start = rest.lstrip(b"\0")
                self._padding += len(rest) - len(start)
                if not start:
                    rest = b""
                    continue
                self._stream, self._padding, rest = lzma.LZMADecompressor(lzma.FORMAT_XZ), 0, start
            elif self._stream.needs_input and not rest:
                rest = self._raw.read(1 << 16)
                if not rest:
                    raise EOFError("Compressed file ended before the end-of-stream marker was reached")
            data = self._stream.decompress(rest, size)
            rest = b""
            if data:
                return data


def _checked_start(data: bytes, file: File, skipped: Skipped | None = None) -> int:
    """How many bytes of a byte order mark a file begins with.

    Raises:
        BadFile: the file is UTF-16 or UTF-32.
    """
    for mark, encoding in _UTF16.items():
        if data.startswith(mark):
            raise BadFile(f"{file.path} is {encoding}, not UTF-8, from byte 0 on (byte order mark). Convert it first.")
    start = data[:1024]
    # ASCII letters in UTF-16 have a zero in every second byte.
    for half in (start[::2], start[1::2]):
        if len(half) >= 4 and half.count(0) > 0.4 * len(half) and start.count(0) < 0.6 * len(start):
            raise BadFile(f"{file.path} looks like UTF-16 without a byte order mark, not UTF-8. Convert it first.")
    if data.startswith(codecs.BOM_UTF8):
        if skipped is not None:
            skipped.notes[file.path] = "begins with a UTF-8 byte order mark, which is no part of the text"
        return len(codecs.BOM_UTF8)
    return 0


def _read_full(handle: Any, size: int) -> bytes:
    """Read `size` bytes, fewer at the end only; a decompressing stream may give less at once."""
    data: bytes = handle.read(size)
    if not data or len(data) == size:
        return data
    pieces, left = [data], size - len(data)
    while left and (data := handle.read(left)):
        pieces.append(data)
        left -= len(data)
    return b"".join(pieces)


def _read_bounded(handle: Any) -> bytes:
    """All that a stream holds, or a little more than `LONGEST_LINE_BYTES`."""
    pieces: list[bytes] = []
    done = 0
    while done <= LONGEST_LINE_BYTES and (data := handle.read(BATCH_BYTES)):
        pieces.append(data)
        done += len(data)
    return b"".join(pieces)


def line_blocks(
    piece: Piece, skipped: Skipped | None = None, lines: "LineReader | None" = None
) -> Iterator[tuple[int, bytes]]:
    """Yield (byte of its first line, whole lines) of the lines that begin in a piece; only `\\n` ends a line.

    Blocks have about `BATCH_BYTES`, and more only where one line is longer. A byte order mark is left out. A line
    longer than `LONGEST_LINE_BYTES` is a bad row of the reading that `lines` knows, and never held.

    Raises:
        DataError: a line is too long, and the policy is `error`.
    """
    file = piece.require_file()
    raw = file.open()
    handle = decompressed(raw, compression(file.key))
    stop = None if compression(piece.path) else piece.last
    with raw, handle:
        offset = piece.first
        held: list[bytes] = []
        # Bytes held, or left out of a line that is too long.
        size = 0
        # A piece that begins in the middle of a line leaves it to the piece before.
        between = offset > 0
        if between:
            handle.seek(offset - 1)
            offset -= 1
        while data := _read_full(handle, BATCH_BYTES):
            if offset == 0 and not size:
                mark = _checked_start(data, file, skipped)
                data, offset = data[mark:], mark
            if between:
                end = data.find(b"\n") + 1
                offset += end or len(data)
                if not end:
                    continue
                data, between = data[end:], False
                if stop is not None and offset >= stop:
                    return
            if size + (data.find(b"\n") if b"\n" in data else len(data)) > LONGEST_LINE_BYTES:
                if held or not size:
                    held = []
                    _too_long(piece, offset, skipped, lines)
                end = data.find(b"\n") + 1
                if not end:
                    size += len(data)
                    continue
                offset += size + end
                data, size = data[end:], 0
                if stop is not None and offset >= stop:
                    return
                if not data:
                    continue
            end = data.rfind(b"\n") + 1
            if not end:
                held.append(data)
                size += len(data)
                continue
            block = b"".join([*held, memoryview(data)[:end]])
            held = [data[end:]] if end < len(data) else []
            size = len(data) - end
            if stop is not None and offset + len(block) >= stop:
                # The last line is the one that holds the byte before the border.
                end = block.find(b"\n", max(0, stop - 1 - offset)) + 1
                yield offset, block[:end]
                return
            yield offset, block
            offset += len(block)
        if held and not between:
            yield offset, b"".join(held)


def _too_long(piece: Piece, offset: int, skipped: Skipped | None, lines: "LineReader | None") -> None:
    where = lines.where(0, offset) if lines else f"{piece.path}: the line that begins at byte {offset:,}"
    if lines is None or lines.reading.on_bad_row == "error":
        raise DataError(
            f"{where} is longer than {LONGEST_LINE_BYTES:,} bytes, which is more than a line may have. "
            + ("Break it up." if lines is None else f"Break it up, or {LEAVE_OUT} to leave such lines out.")
        )
    if skipped is not None:
        skipped.row(f"longer than {LONGEST_LINE_BYTES:,} bytes", where)
    lines.before += 1


class LineReader:
    """Where lines of a piece lie, told in line numbers: those of earlier pieces are counted when first needed."""

    def __init__(self, piece: Piece, reading: Reading) -> None:
        self.piece = piece
        self.reading = reading
        self.before = 0
        self._base: int | None = None if piece.first else 0

    def where(self, line: int, byte: int) -> str:
        """`line` counts from the current block; `byte` from the start of the file."""
        place, of = self.place(line, byte)
        return f"{place} (byte {of})"

    def place(self, line: int, byte: int) -> tuple[str, str]:
        """File and line, and the byte with what it counts from."""
        if self._base is None:
            self._base, left = 0, self.piece.first
            with self.piece.require_file().open() as handle:
                while left > 0 and (data := handle.read(min(left, BATCH_BYTES))):
                    self._base += data.count(b"\n")
                    left -= len(data)
                if left == 0 and data[-1:] != b"\n":
                    self._base += 1
        of = " of the decompressed text" if compression(self.piece.path) else ""
        return f"{self.piece.path}: line {self._base + self.before + line + 1:,}", f"{byte:,}{of}"


def line_ends(block: bytes) -> Any:
    """Where the newlines are, and the end of a last line without one. `bytes.count` takes five times as long."""
    ends = np.flatnonzero(np.frombuffer(block, np.uint8) == NEWLINE)
    return ends if block.endswith(b"\n") else np.append(ends, len(block))


def _line_starts(block: bytes) -> Any:
    return np.append(0, line_ends(block)[:-1] + 1)


def inspect_lines(file: File, check: Callable[[bytes], int]) -> Inspected:
    """Probe a file's start; `check` gives the bytes of text in lines. They stand for all of it."""
    size = PROBE_BYTES
    with file.open(PROBE_BYTES) as raw:
        head = raw.read(size)
        while not (found := _start_of(file, head, size >= LONGEST_PROBE_BYTES)) and len(head) == size:
            head += raw.read(size)
            size *= 2
    data, used = found or (b"", len(head))
    if (what := what_by_start(head, markup=False)) and not compression(file.key):
        raise BadFile(f"{file.path} is {what}.")
    if (what := what_by_start(data, markup=False)) and compression(file.key):
        raise BadFile(f"{file.path} holds, compressed, a file that is {what}.")
    if not data:
        return Inspected([])
    mark = _checked_start(data, file)
    end = len(data) if len(data) <= PROBE_BYTES else data.rfind(b"\n", 0, PROBE_BYTES) + 1 or len(data)
    size = check(data[mark:end])
    # Both steps are exact where the start is the whole.
    size = size * len(data) // end * (file.size or used) // used
    return Inspected([(None, size)], lines=compression(file.path) is None)


def _start_of(file: File, head: bytes, last: bool) -> tuple[bytes, int] | None:
    """The decompressed start of a file, and how much of the file makes it up; None where more of it is needed first.

    Raises:
        BadFile: it cannot be decompressed; `last`: from this much of it.
    """
    codec = compression(file.key)
    if codec is None:
        return head, len(head)
    raw = io.BytesIO(head)
    pieces: list[bytes] = []
    done = 0
    try:
        stream = decompressed(raw if codec in ("xz", "gzip") else pa.PythonFile(raw, mode="r"), codec)
        # All that the start of the file holds, unless it is a bomb.
        while done < PROBE_LIMIT and (data := stream.read(1 << 16)):
            pieces.append(data)
            done += len(data)
    except DAMAGED as error:
        if not pieces and len(head) != file.size and len(head) >= PROBE_BYTES and not last:
            return None
        if len(head) == file.size or not pieces:
            raise BadFile(f"{file.path} cannot be decompressed: {said(error)}") from error
        return b"".join(pieces), len(head)
    return b"".join(pieces), raw.tell()


class Lines:
    """Plain text with a document a line. Nothing but `\\n` ends one; a `\\r` before it stays in the document."""

    @staticmethod
    def inspect(file: File, reading: Reading) -> Inspected:
        """Probe the start."""
        _no_groups(file, reading)
        return inspect_lines(file, lambda data: len(data) - data.count(b"\n"))

    @staticmethod
    def read(piece: Piece, reading: Reading, skipped: Skipped) -> Iterator[Batch]:
        """A document a line; an empty line is an empty document."""
        sample = Sample(reading, piece.name)
        lines = LineReader(piece, reading)
        for offset, block in line_blocks(piece, skipped, lines):
            texts: list[bytes] = block.split(b"\n")
            if block.endswith(b"\n"):
                texts.pop()
            number = len(texts)
            starts = numbers = None
            if not sample.all:
                starts = _line_starts(block)
                numbers = np.flatnonzero(sample.keep(starts + offset))
                texts = [texts[i] for i in numbers]
            if b"\0" in block:
                skipped.notes.setdefault(piece.path, "holds NUL bytes, which are text like any other")
            array = of_bytes(texts)

            def fault(i: int, byte: int, offset: int = offset, block: bytes = block, numbers: Any = numbers) -> str:
                line = i if numbers is None else int(numbers[i])
                place, of = lines.place(line, offset + int(_line_starts(block)[line]) + byte)
                return f"{place} is not UTF-8 from byte {of} on"

            array, _ = valid_texts(array, reading, skipped, fault)
            if len(array):
                yield Batch(reading.source, array, offset)
            lines.before += number


class Text:
    """Plain text with a document a file, which is held whole in memory."""

    @staticmethod
    def inspect(file: File, reading: Reading) -> Inspected:
        """Probe the start."""
        _no_groups(file, reading)
        found = inspect_lines(file, len)
        return Inspected([(1, size) for _, size in found.units])

    @staticmethod
    def read(piece: Piece, reading: Reading, skipped: Skipped) -> Iterator[Batch]:
        """One document."""
        file = piece.require_file()
        sample = Sample(reading, piece.name)
        if not sample.all and not sample.keep(np.arange(1))[0]:
            return
        with file.open() as raw, decompressed(raw, compression(file.key)) as handle:
            data = handle.read() if compression(file.key) is None else _read_bounded(handle)
        if compression(file.key) and len(data) > LONGEST_LINE_BYTES:
            if reading.on_bad_row == "error":
                raise DataError(
                    f"{piece.path} is one document of more than {LONGEST_LINE_BYTES:,} bytes, which is more than a "
                    f"compressed one may have. With the format lines each of its lines is one; or {LEAVE_OUT} to leave "
                    "such files out."
                )
            skipped.row(f"longer than {LONGEST_LINE_BYTES:,} bytes", piece.path)
            return
        start = _checked_start(data, file, skipped)
        if b"\0" in data:
            skipped.notes[piece.path] = (
                f"holds NUL bytes (the first at byte {data.index(0):,}), which are text like any other"
            )
        if len(data) == start:
            return

        def fault(_: int, byte: int) -> str:
            return f"{piece.path} is not UTF-8 from byte {start + byte:,} on"

        texts, _ = valid_texts(of_bytes([data[start:]]), reading, skipped, fault)
        if len(texts):
            yield Batch(reading.source, texts, 0)


def _no_groups(file: File, reading: Reading) -> None:
    if reading.group_by:
        raise NoGroup(f"{file.path} is plain text, which has no column {reading.group_by!r} to group by.")
