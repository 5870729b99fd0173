"""A text column in any Arrow schema, nested or not, and its values as documents."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dist_bpe.arrays import to_numpy
from dist_bpe.errors import BadFile
from dist_bpe.storage.places import escaped, said

# Documents are handed to the native core in batches of about this size: large enough that the crossing costs nothing,
# small enough that Ctrl-C works and memory stays flat.
BATCH_BYTES = 4 << 20
BATCH_ROWS = 65_536


class NoGroup(BadFile):
    """A file without the column to group by; its folders may name the value."""


class Column(NamedTuple):
    """A field of a schema.

    Attributes:
        names: of the column and of the structs' fields on the way to it.
        leaf: its number among the leaves.
        type: its Arrow type.
        many: whether a list lies on the way, so that a row can hold any number of values.
    """

    names: tuple[str, ...]
    leaf: int
    type: Any
    many: bool


def leaves(schema: Any) -> list[Column]:
    """The leaves of an Arrow schema in the order of Parquet columns, each with the names of structs on its way."""
    found: list[Column] = []

    def walk(names: tuple[str, ...], kind: Any, many: bool) -> None:
        if isinstance(kind, pa.BaseExtensionType):
            walk(names, kind.storage_type, many)
        elif pa.types.is_struct(kind):
            for i in range(kind.num_fields):
                walk((*names, kind.field(i).name), kind.field(i).type, many)
        elif pa.types.is_map(kind):
            # A map is a list of keys and values; its entries are no place for documents, but count as leaves.
            walk((*names, "key"), kind.key_type, True)
            walk((*names, "value"), kind.item_type, True)
        elif is_list(kind):
            walk(names, kind.value_type, True)
        else:
            found.append(Column(names, len(found), kind, many))

    try:
        for i in range(len(schema)):
            walk((schema.field(i).name,), schema.field(i).type, False)
    except UnicodeDecodeError as error:
        raise BadFile(f"the name of a column is not UTF-8 ({error.object!r})") from error
    return found


def checked(batch: Any, path: str) -> Any:
    """A record batch whose buffers hold what its types say: offsets, indices and views that lead nowhere else.

    All of them are looked at, since Arrow trusts those of a file and would read foreign memory, or none. That texts
    are UTF-8 is not asked here: strings are looked at as bytes.

    Raises:
        BadFile: a buffer is too short, or something in it leads outside.
    """
    try:
        for i in range(batch.num_columns):
            column = batch.column(i)
            column.validate()
            kind = _as_bytes(column.type)
            (column.view(kind) if kind != column.type else column).validate(full=True)
    except (pa.ArrowException, ValueError) as error:
        raise BadFile(f"{path} is damaged: {said(error)}") from error
    return batch


def _as_bytes(kind: Any) -> Any:
    """A type of the same layout in which no string stands."""
    if isinstance(kind, pa.BaseExtensionType):
        return _as_bytes(kind.storage_type)
    if pa.types.is_dictionary(kind):
        return pa.dictionary(kind.index_type, _as_bytes(kind.value_type), kind.ordered)
    if pa.types.is_struct(kind):
        fields = [kind.field(i) for i in range(kind.num_fields)]
        return pa.struct([field.with_type(_as_bytes(field.type)) for field in fields])
    if pa.types.is_map(kind):
        return pa.map_(
            kind.key_field.with_type(_as_bytes(kind.key_type)), kind.item_field.with_type(_as_bytes(kind.item_type))
        )
    if is_list(kind):
        inner = kind.value_field.with_type(_as_bytes(kind.value_type))
        if pa.types.is_fixed_size_list(kind):
            return pa.list_(inner, kind.list_size)
        makers = (
            ("is_list", pa.list_), ("is_large_list", pa.large_list), ("is_list_view", pa.list_view),
            ("is_large_list_view", pa.large_list_view),
        )  # fmt: skip
        return next(make for test, make in makers if getattr(pa.types, test)(kind))(inner)
    return {pa.string(): pa.binary(), pa.large_string(): pa.large_binary(), pa.string_view(): pa.binary_view()}.get(
        kind, kind
    )


def is_list(kind: Any) -> bool:
    """Whether a type holds any number of values a row."""
    tests = ("is_list", "is_large_list", "is_fixed_size_list", "is_list_view", "is_large_list_view")
    return any(getattr(pa.types, test)(kind) for test in tests)


def is_text(kind: Any) -> bool:
    """Whether a type holds text; a column of nulls alone has none to hold, and passes."""
    value = kind.value_type if pa.types.is_dictionary(kind) else kind
    tests = (
        "is_string",
        "is_large_string",
        "is_binary",
        "is_large_binary",
        "is_string_view",
        "is_binary_view",
        "is_null",
    )
    return any(getattr(pa.types, test)(value) for test in tests)


def locate(schema: Any, path: str, file: str, what: str = "text") -> Column:
    """The field of a schema that a path like `doc.text` names. A column whose own name holds the dots goes first.

    Raises:
        BadFile: no such field, or one that holds no text, or two of one name.
        NoGroup: no such field to group by.
    """
    try:
        fields = leaves(schema)
    except BadFile as error:
        raise BadFile(f"{file}: {said(error)}. Name the columns anew.") from error
    named = sorted((field for field in fields if ".".join(field.names) == path), key=lambda field: len(field.names))
    if not named:
        inside = [".".join(field.names) for field in fields if ".".join(field.names).startswith(path + ".")]
        if inside:
            raise BadFile(f"{file}: {path!r} holds other fields; name one of them: {escaped(', '.join(inside))}.")
        columns = ", ".join(dict.fromkeys(".".join(field.names) for field in fields))
        kind_of_error = NoGroup if what == "group" else BadFile
        raise kind_of_error(f"{file} has no {what} column {path!r}; its columns are: {escaped(columns) or 'none'}.")
    kind = named[0].type
    top = named[0].names[0]
    if (len(named) > 1 and named[1].names == named[0].names) or schema.names.count(top) > 1:
        raise BadFile(
            f"{file} has two columns named {(path if len(named) > 1 else top)!r}, so that it cannot be said which one "
            "is meant. Rename one."
        )
    if what == "text" and not is_text(kind):
        raise BadFile(f"{file}: the text column {path!r} holds {kind}, not text. Name another column.")
    if what == "group" and named[0].many:
        raise BadFile(f"{file}: the group column {path!r} holds any number of values a row. Name another column.")
    return named[0]


def values_of(array: Any, names: Sequence[str]) -> tuple[Any, Any]:
    """The values below a column at the names, and for each the row it came from (None: one value a row, in order).

    A list becomes its elements; a list that is null becomes one null, as a missing text does.
    """
    rows = None
    for name in (*names, None):
        while isinstance(array, pa.ExtensionArray):
            array = array.storage
        while is_list(array.type):
            nulls = array.null_count
            missing = pc.indices_nonzero(array.is_null()).cast(pa.int64()) if nulls else None
            at = pc.list_parent_indices(array)
            array = pc.list_flatten(array)
            if missing is not None:
                array = pa.concat_arrays([array, pa.nulls(nulls, array.type)])
                at = pa.concat_arrays([at.cast(pa.int64()), missing])
            rows = at if rows is None else rows.take(at)
        if name is not None:
            array = pc.struct_field(array, [array.type.get_field_index(name)])
    return array, rows


def plain_texts(array: Any) -> Iterator[Any]:
    """Bring texts to binary arrays, large or not, of about `BATCH_BYTES`.

    Strings become binary without a copy: nothing has checked that they are UTF-8, and where an array says that they
    are, the import into the native core checks it, slowly and with an error of its own. A dictionary is decoded a slice
    at a time, since a small one can stand for any amount of text.
    """
    if pa.types.is_null(array.type) or (pa.types.is_dictionary(array.type) and pa.types.is_null(array.type.value_type)):
        array = pa.nulls(len(array), pa.binary())
    if pa.types.is_dictionary(array.type):
        words = _binary(array.dictionary)
        sizes = _lengths(words)
        if len(array) * int(sizes.max(initial=0)) <= 2 * BATCH_BYTES:
            yield words.take(array.indices)
            return
        # Behind a null lies nothing.
        ends = np.cumsum(np.append(sizes, 0)[filled(array.indices, -1)])
        start = 0
        while start < len(array):
            before = ends[start - 1] if start else 0
            stop = max(start + 1, int(np.searchsorted(ends, before + BATCH_BYTES, side="right")))
            indices = array.indices.slice(start, stop - start)
            yield words.take(indices)
            start = stop
        return
    if len(array) > 1 and array.nbytes > 2 * BATCH_BYTES and not _is_view(array.type):
        half = len(array) // 2
        yield from plain_texts(array.slice(0, half))
        yield from plain_texts(array.slice(half))
        return
    yield _binary(array)


def _lengths(words: Any) -> Any:
    """Bytes of each value of a binary array, 0 for nulls."""
    return filled(pc.binary_length(words), 0)


def filled(array: Any, missing: int) -> Any:
    """An Arrow array of whole numbers as int64 in numpy, with another number for nulls."""
    values = np.full(len(array), missing, np.int64)
    values[to_numpy(pc.indices_nonzero(array.is_valid()))] = to_numpy(array.drop_null())
    return values


def _binary(array: Any) -> Any:
    if _is_view(array.type) or pa.types.is_large_string(array.type):
        return array.cast(pa.large_binary())
    return array.cast(pa.binary()) if pa.types.is_string(array.type) else array


def _is_view(kind: Any) -> bool:
    return bool(pa.types.is_string_view(kind) or pa.types.is_binary_view(kind))
