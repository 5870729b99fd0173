"""A source: what is read, and the options of reading it."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import Any, Literal

from dist_bpe.corpus.formats import FORMATS
from dist_bpe.errors import UsageError

OnBadFile = Literal["error", "skip"]
OnBadRow = Literal["error", "skip", "replace"]


@dataclass(frozen=True)
class Source:
    """A named group of text.

    Attributes:
        name: the source's name in tables and reports, usually a language. With `group_by` the names come from that
            column, and this one only stands in messages.
        paths: files, folders, globs or URIs; `@list.txt` names a file with one of these a line, and
            `hf://datasets/NAME?config=…&split=…` a dataset by name. One string is one path.
        text: the field that holds the documents; `doc.text` goes into a struct, and each element of a list is a
            document.
        group_by: a field whose value names the source of each row.
        documents: instead of paths, documents in memory: an iterable of str, bytes or None, or a table (of pyarrow,
            pandas, polars), whose column `text` holds them (local engine only); or a dataset of the `datasets` library.
        format: parquet, arrow, jsonl, text (a document a file) or lines (a document a line); by default the extension
            tells.
        on_bad_file: "error", or "skip" files that cannot be read; what was read of one before the damage stays.
        on_bad_row: "error", "skip", or "replace" bad bytes by U+FFFD. Nulls are counted and never an error.
        sample_fraction: the share of rows that take part, drawn by a hash of (seed, path relative to the source, row).
        max_bytes: text bytes to aim at: the share that the planned size allows is drawn the same way.
        seed: draws another sample.
    """

    name: str
    paths: str | Sequence[str] = field(default=(), repr=False)  # may hold a login
    text: str = "text"
    group_by: str | None = None
    _: KW_ONLY
    documents: Any = field(default=None, repr=False)
    format: str | None = None
    on_bad_file: OnBadFile = "error"
    on_bad_row: OnBadRow = "error"
    sample_fraction: float = 1.0
    max_bytes: int | None = None
    seed: int = 0

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
        for option, value, allowed in (
            ("format", self.format, (None, *FORMATS)),
            ("on_bad_file", self.on_bad_file, ("error", "skip")),
            ("on_bad_row", self.on_bad_row, ("error", "skip", "replace")),
        ):
            if value not in allowed:
                names = ", ".join(name for name in allowed if name)
                raise UsageError(f"source {self.name!r}: unknown {option} {value!r}; known are: {names}.")
        if not 0 < self.sample_fraction <= 1:
            raise UsageError(
                f"source {self.name!r}: sample_fraction {self.sample_fraction} is not above 0 and up to 1."
            )
        if self.max_bytes is not None and self.max_bytes < 1:
            raise UsageError(f"source {self.name!r}: max_bytes {self.max_bytes} is less than 1.")

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
