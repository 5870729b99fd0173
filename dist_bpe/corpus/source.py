"""A source: what is read, and the options of reading it."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import KW_ONLY
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, ByteSize, ConfigDict, SkipValidation, WithJsonSchema
from pydantic.dataclasses import dataclass

from dist_bpe.corpus.formats import FORMATS
from dist_bpe.errors import UsageError
from dist_bpe.options import in_one_sentence, option

OnBadFile = Literal["error", "skip"]
OnBadRow = Literal["error", "skip", "replace"]


def _known(format: str | None) -> str | None:
    if format is not None and format not in FORMATS:
        raise ValueError(f"the formats are {', '.join(FORMATS)}")
    return format


@in_one_sentence
@dataclass(frozen=True, config=ConfigDict(extra="forbid", arbitrary_types_allowed=True))
class Source:
    """What is read, and how: a named group of text, from files or from memory. For the options see the fields.

    Raises:
        UsageError: an option that is unknown or out of its range, or both paths and documents.
        TypeError: documents are one text, or no iterable.
    """

    name: str = option(
        help="The source's name in tables and reports, usually a language. With group_by the names come from that "
        "column, and this one only stands in messages.",
        cli=False,
        min_length=1,
    )
    paths: Annotated[
        str | Path | Sequence[str | Path],
        SkipValidation,
        WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}),
    ] = option(
        (),
        "Files, folders, globs or URIs; @list.txt names a file with one of these a line, and "
        "hf://datasets/NAME?config=…&split=… a dataset by name. One string is one path.",
        cli=False,
        repr=False,  # may hold a login
    )
    text: str = option(
        "text",
        "The field that holds the documents. A dot goes into a struct, as in doc.text; each element of a list is a "
        "document.",
        flag="--text-column",
        metavar="COLUMN",
    )
    group_by: str | None = option(None, "The column that names each row's source.", metavar="COLUMN", example="lang")
    _: KW_ONLY
    documents: Annotated[Any, SkipValidation] = option(
        None,
        "Instead of paths, documents in memory: an iterable of str, bytes or None, or a table (of pyarrow, pandas, "
        "polars) whose column text holds them (local engine only); or a dataset of the datasets library.",
        cli=False,
        file=False,
        repr=False,
    )
    format: Annotated[str | None, AfterValidator(_known), WithJsonSchema({"enum": list(FORMATS)})] = option(
        None,
        "The file format: parquet, arrow, jsonl, text (a document a file) or lines (a document a line).",
        metavar="FORMAT",
        choices=tuple(FORMATS),
        shown="as the extension tells",
    )
    on_bad_file: OnBadFile = option(
        "error", "error, or skip files that cannot be read; what was read of one before the damage stays."
    )
    on_bad_row: OnBadRow = option(
        "error", "error, or skip rows that are no text, or replace bad bytes by U+FFFD; nulls are never an error."
    )
    sample_fraction: float = option(
        1.0,
        "The share of rows that takes part, drawn by a hash of seed, path relative to the source, and row.",
        gt=0,
        le=1,
    )
    max_bytes: ByteSize | None = option(
        None,
        "The text to aim at, such as 10GB: the share of rows that the planned size allows takes part.",
        metavar="SIZE",
        example="10GB",
        ge=1,
    )
    seed: int = option(0, "The seed of the sample; another one draws another.")

    def __post_init__(self) -> None:
        if isinstance(self.documents, (str, bytes, bytearray)):
            raise TypeError(
                f"source {self.name!r}: documents is one {type(self.documents).__name__}, which would be read letter "
                "by letter. Put it in a list, or name a file with paths=…"
            )
        if self.documents is not None:
            _refuse(self.name, self.documents)
        if self.documents is not None and self.paths:
            raise UsageError(f"source {self.name!r}: give either paths or documents.")
        if self.seed and self.sample_fraction == 1 and self.max_bytes is None:
            raise UsageError(
                f"source {self.name!r}: a seed has no effect without a sample: give sample_fraction or max_bytes "
                "(--sample-fraction, --max-bytes), or leave it out."
            )

    def list_of_paths(self) -> list[str]:
        """The paths as a list."""
        return [str(self.paths)] if isinstance(self.paths, (str, Path)) else [str(path) for path in self.paths]


def _refuse(name: str, documents: Any) -> None:
    """Refuse what is no collection of documents, and what would give something else when it is gone through.

    Raises:
        TypeError: it is.
    """
    kind = type(documents)
    if kind.__module__.startswith("datasets."):
        return
    if isinstance(documents, Mapping):
        raise TypeError(
            f"source {name!r}: documents is a {kind.__name__}, whose keys would be read as text. Give its values, as "
            "in documents=list(d.values()), or a source for each key."
        )
    tables = ("__arrow_c_stream__", "__arrow_c_array__")
    if not isinstance(documents, Iterable) and not any(hasattr(documents, method) for method in tables):
        raise TypeError(f"source {name!r}: documents is {kind.__name__}, not an iterable.")
