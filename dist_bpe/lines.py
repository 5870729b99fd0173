"""Formats of lines and plain text: JSON Lines, a document a line, a document a file; compressed or not."""

import codecs
import functools
import io
import json
import lzma
import zlib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
from isal import igzip
from isal.igzip_lib import IsalError

from dist_bpe.documents import (
    BATCH_BYTES,
    BadFile,
    Batch,
    Inspected,
    Piece,
    Reading,
    Sample,
    Skipped,
    by_group,
    of_bytes,
    of_texts,
    valid_texts,
)
from dist_bpe.errors import DataError, SourceError
from dist_bpe.places import File

# What planning reads of a file for its first lines, its encoding and its share of text, and what it decompresses of it.
PROBE_BYTES = 1 << 18
PROBE_LIMIT = 8 << 20
NEWLINE, CARRIAGE_RETURN, OPENING, CLOSING = b"\n\r{}"
# The stub of `isal` takes its error for a value.
_ISAL_ERROR: type[Exception] = IsalError  # type: ignore[assignment]
DAMAGED = (OSError, EOFError, pa.ArrowException, lzma.LZMAError, zlib.error, _ISAL_ERROR)

_CODECS = {".gz": "gzip", ".gzip": "gzip", ".bgz": "gzip", ".zst": "zstd", ".zstd": "zstd", ".bz2": "bz2", ".xz": "xz"}
_UTF16 = {
    codecs.BOM_UTF32_LE: "UTF-32",
    codecs.BOM_UTF32_BE: "UTF-32",
    codecs.BOM_UTF16_LE: "UTF-16",
    codecs.BOM_UTF16_BE: "UTF-16",
}


def compression(path: str) -> str | None:
    """The codec that a file's extension names."""
    return next((codec for end, codec in _CODECS.items() if path.lower().endswith(end)), None)


def decompressed(raw: Any, codec: str | None) -> Any:
    """A stream of what a compressed file holds; the file itself without a codec."""
    if codec == "xz":
        return lzma.open(raw)
    if codec == "gzip":
        # ISA-L takes 0.4 of the time of zlib, which Arrow has (2026-11-30), and gzip is what crawls are kept in.
        return igzip.IGzipFile(fileobj=raw)
    # Arrow's streams read any number of zstd frames and bz2 streams. All of them release the interpreter lock.
    return pa.CompressedInputStream(raw, codec) if codec else raw


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


def line_blocks(piece: Piece, skipped: Skipped | None = None) -> Iterator[tuple[int, bytes]]:
    """Yield (byte of its first line, whole lines) of the lines that begin in a piece; only `\\n` ends a line.

    Blocks have about `BATCH_BYTES`, and more only where one line is longer. A byte order mark is left out.
    """
    file = piece.require_file()
    raw = file.open()
    handle = decompressed(raw, compression(file.key))
    stop = None if compression(piece.path) else piece.last
    with raw, handle:
        offset = piece.first
        held: list[bytes] = []
        # A piece that begins in the middle of a line leaves it to the piece before.
        between = offset > 0
        if between:
            handle.seek(offset - 1)
            offset -= 1
        while data := _read_full(handle, BATCH_BYTES):
            if offset == 0 and not held:
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
            end = data.rfind(b"\n") + 1
            if not end:
                held.append(data)
                continue
            block = b"".join([*held, memoryview(data)[:end]])
            held = [data[end:]] if end < len(data) else []
            if stop is not None and offset + len(block) >= stop:
                # The last line is the one that holds the byte before the border.
                end = block.find(b"\n", max(0, stop - 1 - offset)) + 1
                yield offset, block[:end]
                return
            yield offset, block
            offset += len(block)
        if held and not between:
            yield offset, b"".join(held)


class _Lines:
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


def _line_ends(block: bytes) -> Any:
    """Where the newlines are, and the end of a last line without one. `bytes.count` takes five times as long."""
    ends = np.flatnonzero(np.frombuffer(block, np.uint8) == NEWLINE)
    return ends if block.endswith(b"\n") else np.append(ends, len(block))


def _line_starts(block: bytes) -> Any:
    return np.append(0, _line_ends(block)[:-1] + 1)


def _inspect_lines(file: File, check: Callable[[bytes], int]) -> Inspected:
    """Probe a file's start; `check` gives the bytes of text in lines. They stand for all of it."""
    with file.open(PROBE_BYTES) as raw:
        head = raw.read(PROBE_BYTES)
    data, used = _start_of(file, head)
    if not data:
        return Inspected([])
    mark = _checked_start(data, file)
    end = len(data) if len(data) <= PROBE_BYTES else data.rfind(b"\n", 0, PROBE_BYTES) + 1 or len(data)
    size = check(data[mark:end])
    # Both steps are exact where the start is the whole.
    size = size * len(data) // end * (file.size or used) // used
    return Inspected([(None, size)], lines=compression(file.path) is None)


def _start_of(file: File, head: bytes) -> tuple[bytes, int]:
    """The decompressed start of a file, and how much of the file makes it up."""
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
        if len(head) == file.size or not pieces:
            raise BadFile(f"{file.path} cannot be decompressed: {error}") from error
        return b"".join(pieces), len(head)
    return b"".join(pieces), raw.tell()


class Lines:
    """Plain text with a document a line. Nothing but `\\n` ends one; a `\\r` before it stays in the document."""

    @staticmethod
    def inspect(file: File, reading: Reading) -> Inspected:
        """Probe the start."""
        _no_groups(file, reading)
        return _inspect_lines(file, lambda data: len(data) - data.count(b"\n"))

    @staticmethod
    def read(piece: Piece, reading: Reading, skipped: Skipped) -> Iterator[Batch]:
        """A document a line; an empty line is an empty document."""
        sample = Sample(reading, piece.name)
        lines = _Lines(piece, reading)
        for offset, block in line_blocks(piece, skipped):
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
        found = _inspect_lines(file, len)
        return Inspected([(1, size) for _, size in found.units])

    @staticmethod
    def read(piece: Piece, reading: Reading, skipped: Skipped) -> Iterator[Batch]:
        """One document."""
        file = piece.require_file()
        sample = Sample(reading, piece.name)
        if not sample.all and not sample.keep(np.arange(1))[0]:
            return
        with file.open() as raw, decompressed(raw, compression(file.key)) as handle:
            data = handle.read()
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
        raise SourceError(f"{file.path} is plain text, which has no column {reading.group_by!r} to group by.")


_UNSET = msgspec.UNSET


class _BadLine(Exception):
    """A line that is no document: the reason it is counted under, what is wrong with it, and the byte in it."""

    def __init__(self, reason: str, detail: str, byte: int | None = None) -> None:
        self.reason, self.detail, self.byte = reason, detail, byte


class _Line(NamedTuple):
    texts: list[bytes | None]
    group: str | None
    replaced: str | None = None


class _Fields:
    """Decodes the fields asked for, and nothing else, from lines of JSON.

    msgspec skips what its type does not name, and refuses what is not JSON to the letter. What it refuses, Python's own
    parser judges, a line at a time: it also takes NaN, as Python writes it. Measured on 2026-11-29, one core, 4 MiB
    blocks to Arrow: msgspec 430 and 260 MB/s (code, 26 languages), pyarrow.json 340 and 360, orjson 280 and 200.
    pyarrow.json was turned down since it tells neither the line of an error nor a missing field from a null one.
    """

    def __init__(self, reading: Reading) -> None:
        self.reading = reading
        # With one plain field the texts are read off without a walk.
        self._flat = "." not in reading.text and reading.group_by is None
        self._decoder = _decoder(reading.text, reading.group_by)

    def texts(self, block: bytes, ends: Any) -> Any:
        """The texts of a block of lines as an Arrow array, one each; None where that cannot be said at a glance.

        `ends` are the places of the newlines, and of the block's end if none stands there.
        """
        if not self._flat:
            return None
        # A line is one object. The parser would also take two on a line, or one on two lines. Neither can be, where
        # each line begins and ends with a brace and there are as many rows as lines: inside an object, nothing that
        # ends with a closing brace can be followed by an opening one.
        data = np.frombuffer(block, np.uint8)
        last = ends - 1
        if (data[last] == CARRIAGE_RETURN).all():
            last = last - 1
        if data[0] != OPENING or (data[last] != CLOSING).any() or (data[ends[:-1] + 1] != OPENING).any():
            return None
        try:
            rows = self._decoder.decode_lines(block)
            if len(rows) != len(ends):
                return None
            texts = [row.f0 for row in rows]
            if None in texts:
                return of_bytes([None if text is None else str.encode(text) for text in texts])
            return of_bytes(list(map(str.encode, texts)))
        except (msgspec.MsgspecError, RecursionError, TypeError, UnicodeEncodeError):
            return None  # not only texts and nulls: lists, lines without the field, lines that are broken

    def line(self, line: bytes) -> _Line:
        """The documents of one line.

        Raises:
            _BadLine: there are none, and not for being null.
        """
        replaced = None
        try:
            row = self._decoder.decode(line)
        except (msgspec.MsgspecError, RecursionError):
            row, replaced = self._judge(line)
        group = _find(row, self.reading.group_by, text=False)[0] if self.reading.group_by else None
        texts: list[bytes | None] = []
        for text in _find(row, self.reading.text):
            try:
                texts.append(None if text is None else text.encode())
            except UnicodeEncodeError as error:
                if self.reading.on_bad_row != "replace":
                    raise _BadLine("lone surrogate", f"holds a lone surrogate (character {error.start:,})") from None
                replaced = "lone surrogate, replaced"
                # Through UTF-16, since a high and a low one that were escaped apart are one character together.
                texts.append(text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode())
        return _Line(texts, None if group is None else str(group), replaced)

    def _judge(self, line: bytes) -> tuple[dict[str, Any], str | None]:
        replaced = None
        try:
            text = line.decode()
        except UnicodeDecodeError as error:
            if self.reading.on_bad_row != "replace":
                raise _BadLine("not UTF-8", "is not UTF-8", error.start) from None
            text, replaced = line.decode(errors="replace"), "not UTF-8, replaced"
        try:
            row = json.loads(text)
        except json.JSONDecodeError as error:
            raise _BadLine("broken JSON", f"is no JSON ({error.msg})", len(text[: error.pos].encode())) from None
        except RecursionError:
            raise _BadLine("broken JSON", "is nested too deeply") from None
        if not isinstance(row, dict):
            raise _BadLine("broken JSON", f"holds {type(row).__name__}, not a JSON object")
        return row, replaced

    def keys(self, line: bytes) -> list[str]:
        """The fields of one line, for messages."""
        try:
            return list(self._judge(line)[0])
        except _BadLine:
            return []


@functools.lru_cache(maxsize=64)
def _decoder(text: str, group_by: str | None) -> Any:
    tree: dict[str, Any] = {}
    for path, leaf in ((group_by, str | int | float | bool | None), (text, str | None | list[str | None])):
        if path is not None:
            for names in (path.split("."), [path]):
                node: Any = tree
                for name in names[:-1]:
                    node = node.setdefault(name, {})
                    if not isinstance(node, dict):
                        break
                else:
                    node[names[-1]] = leaf
    return msgspec.json.Decoder(_struct(tree))


def _struct(tree: dict[str, Any]) -> Any:
    fields = []
    for i, below in enumerate(tree.values()):
        kind = below
        if isinstance(below, dict):
            inner: Any = _struct(below)
            kind = inner | None | list[inner | None]
        fields.append((f"f{i}", kind | msgspec.UnsetType, _UNSET))
    # Rows hold no cycles, and the collector need not walk them.
    return msgspec.defstruct("Row", fields, gc=False, rename={f"f{i}": name for i, name in enumerate(tree)})


def _get(row: Any, name: str) -> Any:
    if isinstance(row, dict):
        return row.get(name, _UNSET)
    if isinstance(row, msgspec.Struct) and name in row.__struct_encode_fields__:
        return getattr(row, f"f{row.__struct_encode_fields__.index(name)}")
    return _UNSET


def _find(row: Any, path: str, text: bool = True) -> list[Any]:
    """The values at a path; a field whose own name holds the dots goes first. Without `text` any value will do."""
    value = _get(row, path)
    if value is not _UNSET:
        return _values(value, (), path, text)
    return _values(row, tuple(path.split(".")), path, text)


def _values(value: Any, names: tuple[str, ...], path: str, text: bool, inside: bool = False) -> list[Any]:
    if value is None or (value is _UNSET and (inside or not text)):
        return [None]  # inside a list, a field that is missing is null, as it is in a table
    if value is _UNSET:
        raise _BadLine("no such field", f"has no field {path!r}")
    if isinstance(value, list) and text:
        return [one for each in value for one in _values(each, names, path, text, inside=True)]
    if names:
        return _values(_get(value, names[0]), names[1:], path, text, inside)
    if text and not isinstance(value, str):
        raise _BadLine("not text", f"holds {type(value).__name__} in the field {path!r}, not text")
    return [value]


class JsonLines:
    """JSON Lines: an object a line."""

    @staticmethod
    def inspect(file: File, reading: Reading) -> Inspected:
        """Probe the first lines: a file in which none has the field is refused."""
        fields = _Fields(reading)

        def check(data: bytes) -> int:
            size = missing = 0
            lines = [line for line in data.split(b"\n") if line.strip()]
            for line in lines:
                try:
                    size += sum(len(text) for text in fields.line(line).texts if text)
                except _BadLine as error:
                    missing += error.reason == "no such field"
            if lines and lines[0].lstrip()[:1] == b"<":
                raise BadFile(f"{file.path} is no JSON Lines, but looks like a web page: {lines[0][:40]!r}.")
            if lines and missing == len(lines):
                keys = ", ".join(sorted({key for line in lines[:100] for key in fields.keys(line)}))
                raise BadFile(f"{file.path} has no field {reading.text!r}; its fields are: {keys}.")
            return size

        return _inspect_lines(file, check)

    @classmethod
    def read(cls, piece: Piece, reading: Reading, skipped: Skipped) -> Iterator[Batch]:
        """The texts of the objects; blank lines are passed over."""
        sample = Sample(reading, piece.name)
        fields = _Fields(reading)
        lines = _Lines(piece, reading)
        for offset, block in line_blocks(piece, skipped):
            ends = _line_ends(block)
            number = len(ends)
            starts = numbers = None
            if not sample.all:
                starts = np.append(0, ends[:-1] + 1)
                numbers = np.flatnonzero(sample.keep(starts + offset))
                block = b"".join(block[starts[i] : ends[i] + 1] for i in numbers)
                ends = _line_ends(block)
            array = fields.texts(block, ends) if block else None
            if array is not None:
                yield Batch(reading.source, array, offset)
            elif block:
                yield from _slowly(block, offset, starts, numbers, fields, lines, skipped)
            lines.before += number

    @classmethod
    def groups(cls, piece: Piece, reading: Reading) -> set[str]:
        """The names in the group field, for which the file has to be parsed once more."""
        return {batch.source for batch in cls.read(piece, reading, Skipped())}


def _slowly(
    block: bytes, offset: int, starts: Any, numbers: Any, fields: _Fields, lines: _Lines, skipped: Skipped
) -> Iterator[Batch]:
    """The documents of a block of JSON lines, read line by line, by the policy for bad ones."""
    reading = fields.reading
    texts: list[bytes | None] = []
    groups: list[str | None] = []
    at = offset
    for i, line in enumerate(block.removesuffix(b"\n").split(b"\n")):
        number, start = (i, at) if numbers is None else (int(numbers[i]), offset + int(starts[numbers[i]]))
        at += len(line) + 1
        if not line.strip():
            continue
        try:
            found = fields.line(line)
        except _BadLine as error:
            where = lines.where(number, start + (error.byte or 0))
            if reading.on_bad_row == "error":
                raise DataError(
                    f'{where} {error.detail}. Mend it, or leave such lines out (on_bad_row = "skip").'
                ) from None
            skipped.row(error.reason, where)
            continue
        if found.replaced:
            skipped.row(found.replaced, lines.where(number, start))
        texts += found.texts
        groups += [found.group] * len(found.texts)
    if texts:
        array = of_bytes(texts)
        if reading.group_by is None:
            yield Batch(reading.source, array, offset)
        else:
            for name, part in by_group(array, of_texts(groups)):
                yield Batch(name, part, offset)
