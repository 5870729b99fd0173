"""JSON Lines: an object a line."""

import functools
import json
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec
import numpy as np

from dist_bpe.arrays import of_bytes, of_texts
from dist_bpe.corpus.columns import NoGroup
from dist_bpe.corpus.documents import LEAVE_OUT, Batch, Inspected, Piece, Reading, Sample, Skipped, by_group
from dist_bpe.corpus.formats import partition_of, what_by_name, what_by_start
from dist_bpe.corpus.readers.lines import (
    CARRIAGE_RETURN,
    CLOSING,
    OPENING,
    LineReader,
    inspect_lines,
    line_blocks,
    line_ends,
)
from dist_bpe.errors import BadFile, DataError
from dist_bpe.storage.places import File, escaped

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


def _no_lines(start: bytes, lines: list[bytes], objects: int) -> str | None:
    """What a file is whose lines are no objects, if that can be told, and what to do with it."""
    if what := what_by_start(start, markup=False):
        return what
    if start[:1] == b"[" and (not objects or not _is_json(start)):
        return "a JSON array: write an object a line, as `jq -c '.[]' file` does"
    if start.rstrip() == b"{":
        return "an object spread over several lines: write it on one, as `jq -c . file` does"
    if objects or len(lines) < 2 or start[:1] in b'{["':
        return None
    # A header and rows with as many commas or tabs.
    for separator, name in ((b",", "CSV"), (b"\t", "TSV")):
        if start.count(separator) and all(line.count(separator) >= start.count(separator) for line in lines[1:3]):
            return f"looks like {name}, beginning with {start[:40]!r}: {what_by_name('a.csv')}"
    return None


def _is_json(line: bytes) -> bool:
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return False
    return True


class JsonLines:
    """JSON Lines: an object a line."""

    @staticmethod
    def inspect(file: File, reading: Reading) -> Inspected:
        """Probe the first lines: a file in which none has the field is refused."""
        fields = _Fields(reading)

        partition = partition_of(file.path, reading.group_by) if reading.group_by else None

        def check(data: bytes) -> int:
            size = missing = objects = ungrouped = 0
            lines = [line for line in data.split(b"\n") if line.strip()]
            for line in lines:
                try:
                    found = fields.line(line)
                    size += sum(len(text) for text in found.texts if text)
                    objects += 1
                    ungrouped += found.group is None
                except _BadLine as error:
                    missing += error.reason == "no such field"
                    objects += error.reason != "broken JSON"
            start = lines[0].lstrip() if lines else b""
            if start[:1] == b"<":
                raise BadFile(f"{file.path} is no JSON Lines, but looks like a web page: {start[:40]!r}.")
            if lines and (what := _no_lines(start, lines, objects)):
                raise BadFile(f"{file.path} is no JSON Lines, but {what}.")
            if lines and missing == len(lines):
                keys = ", ".join(sorted({key for line in lines[:100] for key in fields.keys(line)}))
                raise BadFile(f"{file.path} has no field {reading.text!r}; its fields are: {escaped(keys)}.")
            if partition is not None and objects and ungrouped == objects:
                raise NoGroup(f"{file.path} has no field {reading.group_by!r} to group by.")
            return size

        return inspect_lines(file, check)

    @classmethod
    def read(cls, piece: Piece, reading: Reading, skipped: Skipped) -> Iterator[Batch]:
        """The texts of the objects; blank lines are passed over."""
        sample = Sample(reading, piece.name)
        fields = _Fields(reading)
        lines = LineReader(piece, reading)
        for offset, block in line_blocks(piece, skipped, lines):
            ends = line_ends(block)
            number = len(ends)
            starts = numbers = None
            if not sample.all:
                starts = np.append(0, ends[:-1] + 1)
                numbers = np.flatnonzero(sample.keep(starts + offset))
                block = b"".join(block[starts[i] : ends[i] + 1] for i in numbers)
                ends = line_ends(block)
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
    block: bytes, offset: int, starts: Any, numbers: Any, fields: _Fields, lines: LineReader, skipped: Skipped
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
                raise DataError(f"{where} {error.detail}. Fix it, or {LEAVE_OUT} to leave such lines out.") from None
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
