"""merges.parquet, our own: a row a merge, with its counts."""

import io
import json

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dist_bpe.errors import FormatError
from dist_bpe.pretokenize.patterns import Pattern, find
from dist_bpe.pretokenize.preparation import SpecialToken, normalization_form
from dist_bpe.vocabulary.data import BYTES, VocabularyData, merge_columns
from dist_bpe.vocabulary.formats.format import CARRIED, Files, Format, reading


def write_parquet(data: VocabularyData) -> dict[str, bytes]:
    """merges.parquet: a row a merge (left and right id, count, replaced per source, token); the rest is metadata."""
    left, right = merge_columns(data.merges)
    first = pa.scalar(data.first_id, pa.uint32())
    columns = {
        "left": pc.add(left, first),
        "right": pc.add(right, first),
        "count": pa.array(data.counts or [None] * len(data.merges), pa.uint64()),
    }
    if data.replaced:
        arrays = [pa.array(numbers, pa.uint64()) for numbers in data.replaced.values()]
        columns["replaced"] = pa.StructArray.from_arrays(arrays, names=list(data.replaced))
    columns["token"] = pa.array(data.tokens[BYTES:], pa.binary())
    about = {
        "version": 1,
        "pattern": {"name": data.pattern.name, "regex": data.pattern.regex},
        "special_tokens": [{"text": special.text, "role": special.role} for special in data.special_tokens],
        "special_tokens_first": data.special_tokens_first,
        "padding": data.padding,
        "normalization": data.normalization,
    }
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
            table = pq.read_table(io.BytesIO(files.content["merges.parquet"]))
        except (OSError, pa.ArrowException) as error:  # damaged pages, or none at all
            raise FormatError(f"{where} is damaged ({error}).") from error
        if b"dist_bpe" not in (table.schema.metadata or {}):
            raise FormatError(f"{where} is not one of ours: its metadata have no entry dist_bpe.")
        about = json.loads(table.schema.metadata[b"dist_bpe"])
        if about["version"] != 1:
            raise FormatError(f"{where} is of version {about['version']}; this release reads version 1.")
        name, text = about["pattern"]["name"], about["pattern"]["regex"]
        pattern = find(name or text)
        if pattern.regex != text:
            raise FormatError(
                f"{where}: the pattern {name!r} was {text!r} when this vocabulary was made and is {pattern.regex!r} in "
                "this release; use the release that made it."
            )
        specials = tuple(SpecialToken(special["text"], special["role"]) for special in about["special_tokens"])
        first = len(specials) if about["special_tokens_first"] else 0
        left, right = (table.column(side).to_pylist() for side in ("left", "right"))
        counts = table.column("count")
        data = VocabularyData(
            tuple((a - first, b - first) for a, b in zip(left, right, strict=True)),
            pattern,
            specials,
            about["special_tokens_first"],
            about["padding"],
            normalization_form(about["normalization"]),
            None if counts.null_count else tuple(counts.to_pylist()),
            _replaced(table),
        )
        if list(data.tokens[BYTES:]) != table.column("token").to_pylist():
            raise FormatError(f"{where} is damaged: its tokens are not what its merges make.")
        return data


def _replaced(table: pa.Table) -> dict[str, tuple[int, ...]] | None:
    """The counts per source, where the file has them."""
    if "replaced" not in table.column_names:
        return None
    struct = table.column("replaced").combine_chunks()
    return {column.name: tuple(struct.field(column.name).to_pylist()) for column in struct.type}


FORMAT = Format("parquet", ("merges.parquet",), frozenset(CARRIED), write_parquet, read_parquet, {})
