"""Which columns of a Parquet file are encrypted, read from its footer alone.

Arrow reads the other columns of such a file, but ends the process when it meets an encrypted one without its key, and
does not tell which they are. The footer is Thrift's compact protocol: values are passed over by their types.
"""

# Numbers of fields in parquet.thrift.
_ROW_GROUPS = 4  # of FileMetaData
_COLUMNS = 1  # of RowGroup
_CRYPTO = 8  # of ColumnChunk
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


def encrypted_columns(footer: bytes) -> frozenset[int]:
    """The numbers of the leaves that some row group of a Parquet file has encrypted.

    Raises:
        ThriftError: the footer is damaged.
    """
    found: set[int] = set()
    reader = _Reader(footer)
    number = 0
    while True:
        number, kind = reader.field(number)
        if kind == 0:
            return frozenset(found)
        if number == _ROW_GROUPS and kind == _LIST:
            count, item = reader.items()
            if item != _STRUCT:
                raise ThriftError("its row groups are no structs")
            for _ in range(count):
                found |= _of_group(reader)
        else:
            reader.skip(kind)


def _of_group(reader: _Reader) -> set[int]:
    found: set[int] = set()
    number = 0
    while True:
        number, kind = reader.field(number)
        if kind == 0:
            return found
        if number == _COLUMNS and kind == _LIST:
            count, item = reader.items()
            if item != _STRUCT:
                raise ThriftError("its columns are no structs")
            for leaf in range(count):
                if _is_encrypted(reader):
                    found.add(leaf)
        else:
            reader.skip(kind)


def _is_encrypted(reader: _Reader) -> bool:
    encrypted = False
    number = 0
    while True:
        number, kind = reader.field(number)
        if kind == 0:
            return encrypted
        encrypted = encrypted or number == _CRYPTO
        reader.skip(kind)
