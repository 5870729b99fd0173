"""Which columns of a Parquet file Arrow may not be asked about, read from its footer alone.

Arrow reads the other columns of a file, but ends the process when it is asked about an encrypted one without its key,
or about one whose statistics of sizes are damaged, and does not tell which they are. The footer is Thrift's compact
protocol: values are passed over by their types.
"""

from collections.abc import Iterator
from typing import NamedTuple

# Numbers of fields in parquet.thrift.
_ROW_GROUPS = 4  # of FileMetaData
_COLUMNS = 1  # of RowGroup
_METADATA, _CRYPTO = 3, 8  # of ColumnChunk
_SIZES = 16  # of ColumnMetaData
_REPETITIONS, _DEFINITIONS = 2, 3  # of SizeStatistics
_LIST, _SET, _MAP, _STRUCT = 9, 10, 11, 12
# Values inside values; those of a footer are a handful deep.
_DEEPEST = 64


class ThriftError(ValueError):
    """A footer that is no Thrift."""


class _Reader:
    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def byte(self) -> int:
        if self.at >= len(self.data):
            raise ThriftError("its footer ends early")
        self.at += 1
        return self.data[self.at - 1]

    def number(self) -> int:
        value = shift = 0
        while True:
            byte = self.byte()
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value
            if shift > 63:
                raise ThriftError("its footer holds a number of more than 64 bits")

    def pass_over(self, count: int) -> None:
        if count > len(self.data) - self.at:
            raise ThriftError("its footer ends early")
        self.at += count

    def field(self, before: int) -> tuple[int, int]:
        """Number and type of the next field of a struct; type 0 at its end."""
        head = self.byte()
        kind = head & 15
        if kind == 0:
            return before, 0
        if head >> 4:
            return before + (head >> 4), kind
        number = self.number()
        return (number >> 1) ^ -(number & 1), kind

    def items(self) -> tuple[int, int]:
        """Number and type of the items of a list."""
        head = self.byte()
        count = head >> 4
        return (self.number() if count == 15 else count), head & 15

    def skip(self, kind: int, depth: int = 0, inside: bool = False) -> None:
        """Pass over a value; `inside` a list a boolean takes a byte, in a struct none."""
        if depth > _DEEPEST:
            raise ThriftError("its footer is nested too deeply")
        if kind in (1, 2):
            self.at += inside
        elif kind == 3:
            self.pass_over(1)
        elif kind in (4, 5, 6):
            self.number()
        elif kind == 7:
            self.pass_over(8)
        elif kind == 8:
            self.pass_over(self.number())
        elif kind in (_LIST, _SET):
            count, item = self.items()
            self._bounded(count)
            for _ in range(count):
                self.skip(item, depth + 1, inside=True)
        elif kind == _MAP:
            count = self.number()
            self._bounded(count)
            kinds = self.byte() if count else 0
            for _ in range(count):
                self.skip(kinds >> 4, depth + 1, inside=True)
                self.skip(kinds & 15, depth + 1, inside=True)
        elif kind == _STRUCT:
            number = 0
            while True:
                number, field = self.field(number)
                if field == 0:
                    return
                self.skip(field, depth + 1)
        else:
            raise ThriftError(f"its footer holds a value of the unknown type {kind}")

    def _bounded(self, count: int) -> None:
        if count > len(self.data) - self.at:
            raise ThriftError("its footer ends early")


class Chunk(NamedTuple):
    """What is to be known of a column in a row group: whether it is encrypted, and the lengths of its histograms."""

    encrypted: bool = False
    repetitions: int = 0
    definitions: int = 0


def chunks(footer: bytes) -> list[list[Chunk]]:
    """The chunks of each row group.

    Raises:
        ThriftError: the footer is damaged.
    """
    found: list[list[Chunk]] = []
    reader = _Reader(footer)
    for number, kind in _fields(reader):
        if number == _ROW_GROUPS and kind == _LIST:
            found.extend(_of_group(reader) for _ in range(_structs(reader)))
        else:
            reader.skip(kind)
    return found


def _fields(reader: _Reader) -> Iterator[tuple[int, int]]:
    number = 0
    while True:
        number, kind = reader.field(number)
        if kind == 0:
            return
        yield number, kind


def _structs(reader: _Reader) -> int:
    count, kind = reader.items()
    if kind != _STRUCT:
        raise ThriftError("its footer has a list of something else than structs")
    return count


def _of_group(reader: _Reader) -> list[Chunk]:
    found: list[Chunk] = []
    for number, kind in _fields(reader):
        if number == _COLUMNS and kind == _LIST:
            found += [_of_chunk(reader) for _ in range(_structs(reader))]
        else:
            reader.skip(kind)
    return found


def _of_chunk(reader: _Reader) -> Chunk:
    chunk = Chunk()
    for number, kind in _fields(reader):
        if number == _METADATA and kind == _STRUCT:
            for inner, inner_kind in _fields(reader):
                if inner == _SIZES and inner_kind == _STRUCT:
                    chunk = _of_sizes(reader, chunk)
                else:
                    reader.skip(inner_kind)
        else:
            chunk = chunk._replace(encrypted=True) if number == _CRYPTO else chunk
            reader.skip(kind)
    return chunk


def _of_sizes(reader: _Reader, chunk: Chunk) -> Chunk:
    for number, kind in _fields(reader):
        if number in (_REPETITIONS, _DEFINITIONS) and kind == _LIST:
            count, item = reader.items()
            repeated = number == _REPETITIONS
            chunk = chunk._replace(repetitions=count) if repeated else chunk._replace(definitions=count)
            for _ in range(count):
                reader.skip(item, inside=True)
        else:
            reader.skip(kind)
    return chunk
