"""merges.parquet, our own: a row a merge, with its counts."""

import io
import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from dist_bpe.arrays import of_bytes, of_numpy, to_numpy
from dist_bpe.errors import FormatError, several
from dist_bpe.pretokenize.patterns import Pattern, find
from dist_bpe.pretokenize.preparation import SpecialToken, normalization_form
from dist_bpe.vocabulary.data import BYTES, VocabularyData, leading, merge_columns
from dist_bpe.vocabulary.formats.format import CARRIED, Files, Format, parsed, reading, shown


def write_parquet(data: VocabularyData) -> dict[str, bytes]:
    """merges.parquet: a row a merge (left and right id, count, replaced per source, token); the rest is metadata."""
    left, right = (to_numpy(column) for column in merge_columns(data.merges))
    first = np.uint32(data.first_id)
    columns = {
        "left": of_numpy(left + first),
        "right": of_numpy(right + first),
        "count": pa.nulls(len(data.merges), pa.uint64()) if data.counts is None else data.counts,
    }
    if data.replaced:
        columns["replaced"] = pa.StructArray.from_arrays(list(data.replaced.values()), names=list(data.replaced))
    columns["token"] = of_bytes(data.tokens[BYTES:])
    about: dict[str, Any] = {
        # What an earlier release would read otherwise it shall not read at all.
        "version": 2 if data.special_places else 1,
        "pattern": {"name": data.pattern.name, "regex": data.pattern.regex},
        "special_tokens": [{"text": special.text, "role": special.role} for special in data.special_tokens],
        "special_tokens_first": data.special_tokens_first,
        "padding": data.padding,
        "normalization": data.normalization,
    }
    if data.special_places:
        about["special_places"] = data.special_places
    table = pa.table(columns).replace_schema_metadata({"dist_bpe": json.dumps(about, ensure_ascii=False)})
    file = io.BytesIO()
    pq.write_table(table, file, compression="zstd", row_group_size=1 << 20)
    return {"merges.parquet": file.getvalue()}


def read_parquet(files: Files, _: Pattern | None = None) -> VocabularyData:
    """Read merges.parquet.

    Raises:
        FormatError: damaged, of a later version, or its pattern has another text than ours of that name.
    """
    where = files.where()
    with reading(where):
        try:
            # Threads of a pool that are still there when the process ends can abort it: reading by several starts some,
            # and so does reading from a Python object or a path.
            table = pq.ParquetFile(pa.BufferReader(files.content["merges.parquet"])).read(use_threads=False)
            table.validate(full=True)
        except (OSError, pa.ArrowException) as error:  # damaged pages, or none at all
            raise FormatError(f"{where} is damaged ({error}).") from error
        if b"dist_bpe" not in (table.schema.metadata or {}):
            raise FormatError(f"{where} is not one of ours: its metadata have no entry dist_bpe.")
        about = parsed(table.schema.metadata[b"dist_bpe"], f"the entry dist_bpe of {where}")
        if about["version"] not in (1, 2):
            raise FormatError(f"{where} is of version {shown(about['version'])}; this release reads versions 1 and 2.")
        name, text = about["pattern"]["name"], about["pattern"]["regex"]
        pattern = find(name or text)
        if pattern.regex != text:
            raise FormatError(
                f"{where}: the pattern {name!r} was {text!r} when this vocabulary was made and is {pattern.regex!r} in "
                "this release; use the release that made it."
            )
        specials = tuple(SpecialToken(special["text"], special["role"]) for special in about["special_tokens"])
        in_front, padding = about["special_tokens_first"], about["padding"]
        places = tuple(about.get("special_places", ()))
        if type(in_front) is not bool or any(type(number) is not int for number in (padding, *places)):
            raise FormatError(
                f"{where}: what its metadata say of special tokens and padding are not truths and numbers."
            )
        _check_columns(table, where)
        tokens = table.column("token").to_pylist()
        first = leading(places) if places else len(specials) if in_front else 0
        counts = table.column("count")
        data = VocabularyData(
            _merges(table, first, tokens, where),
            pattern,
            specials,
            in_front,
            padding,
            normalization_form(about["normalization"]),
            None if counts.null_count else counts.combine_chunks(),
            _replaced(table),
            places,
        )
        if list(data.tokens[BYTES:]) != tokens:
            raise FormatError(f"{where} is damaged: its tokens are not what its merges make.")
        return data


def _check_columns(table: pa.Table, where: str) -> None:
    kinds = {"left": pa.uint32(), "right": pa.uint32(), "count": pa.uint64(), "token": pa.binary()}
    for name, kind in kinds.items():
        if table.column_names.count(name) != 1:
            raise FormatError(f"{where} has {table.column_names.count(name)} columns {name}, not one.")
        column = table.column(name)
        if column.type != kind and not (name == "token" and column.type == pa.large_binary()):
            raise FormatError(f"{where}: its column {name} is {column.type}, not {kind}.")
        # Counts are there for all merges or for none.
        if column.null_count and not (name == "count" and column.null_count == len(table)):
            raise FormatError(f"{where}: its column {name} has {several(column.null_count, 'row')} without a value.")


def _merges(table: pa.Table, first: int, tokens: Sequence[bytes], where: str) -> tuple[tuple[int, int], ...]:
    """The merges by number, once each is seen to join two earlier tokens and to make as many bytes as its token has.

    A few dozen rows that each join the one before with itself would else make more bytes than there is memory.
    """
    left, right = (to_numpy(table.column(side).combine_chunks()).astype(np.int64) - first for side in ("left", "right"))
    own = np.arange(BYTES, BYTES + len(tokens))
    lengths = np.concatenate([np.ones(BYTES, np.int64), np.fromiter(map(len, tokens), np.int64, len(tokens))])
    wrong = (left < 0) | (right < 0) | (left >= own) | (right >= own)
    if not wrong.any():
        wrong = lengths[left] + lengths[right] != lengths[own]
    if wrong.any():
        rank = int(wrong.argmax())
        raise FormatError(f"{where} is damaged: its tokens are not what its merges make, from rank {rank:,} on.")
    return tuple(zip(left.tolist(), right.tolist(), strict=True))


def _replaced(table: pa.Table) -> dict[str, pa.Array] | None:
    """The counts per source, where the file has them."""
    if "replaced" not in table.column_names:
        return None
    struct = table.column("replaced").combine_chunks()
    if struct.null_count:
        raise FormatError(f"the column replaced has {several(struct.null_count, 'row')} without a value.")
    return {column.name: struct.field(column.name) for column in struct.type}


FORMAT = Format("parquet", ("merges.parquet",), frozenset(CARRIED), write_parquet, read_parquet, {})
