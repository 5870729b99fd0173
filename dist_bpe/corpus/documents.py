"""What readers give and take: pieces of files, batches of documents, the sample, and what was left out."""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from dist_bpe import _core
from dist_bpe.arrays import of_bytes, of_numpy
from dist_bpe.corpus.columns import filled, plain_texts, values_of
from dist_bpe.corpus.source import OnBadFile, OnBadRow
from dist_bpe.errors import DataError
from dist_bpe.storage.places import File

#: The source of rows whose group column is null.
NO_GROUP = "(none)"
# Places of left-out rows that are kept as examples, a shard.
EXAMPLES = 5
#: Bad files that a warning names each; a report names all.
MOST_NAMED = 20
WHOLE = 1 << 64
# How to relax a policy, as it is said on the command line, in a file and in Python.
LEAVE_OUT = "set on_bad_row (--on-bad-row) to skip"
LEAVE_FILES = "set on_bad_file (--on-bad-file) to skip"


@dataclass(frozen=True)
class Reading:
    """How the rows of one source become documents.

    Attributes:
        source: name of the source; with `group_by` it only stands in messages.
        text, group_by: fields; a dot goes into a struct, and a list makes each element a document.
        on_bad_file, on_bad_row: what happens to a file that cannot be read, and to a row that is no text.
        seed, threshold: a row takes part if its hash, below 2^64, is below the threshold.
        check_utf8: False where the one who takes the batches will check them.
    """

    source: str
    text: str = "text"
    group_by: str | None = None
    on_bad_file: OnBadFile = "error"
    on_bad_row: OnBadRow = "error"
    seed: int = 0
    threshold: int = WHOLE
    check_utf8: bool = True


@dataclass(frozen=True)
class Piece:
    """A part of one file, or of documents in memory.

    Attributes:
        format: a name of `FORMATS`.
        file: the file, if it is one.
        name: its path relative to the source, with `/`: what the sample is drawn by.
        first, last: row groups, record batches, bytes or rows from `first` up to, not including, `last`.
        first_row, rows: place and number of the rows, where known.
        bytes: text in it, as the plan could tell.
        documents: rows in memory.
        group: the source of all rows, where folders name it and not a column.
        mark: what tells this content of the file from another, where its format has such a thing.
    """

    format: str
    file: File | None
    name: str
    first: int
    last: int
    first_row: int = 0
    rows: int | None = None
    bytes: int = 0
    documents: Any = field(default=None, repr=False)
    group: str | None = None
    mark: str = ""

    @property
    def path(self) -> str:
        """How people see the file."""
        return self.file.path if self.file else self.name

    def require_file(self) -> File:
        """The file of a piece that has one."""
        if self.file is None:
            raise TypeError(f"{self.name} is no file.")
        return self.file


@dataclass
class Skipped:
    """What reading left out.

    Attributes:
        rows: rows that are no documents, by reason, and rows that were replaced.
        files: files that could not be read to their end, with the reason.
        notes: what is odd about a file but was read as it is.
        examples: places of some of the first rows of each reason.
    """

    rows: Counter[str] = field(default_factory=Counter)
    files: dict[str, str] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)
    examples: dict[str, list[str]] = field(default_factory=dict)

    def row(self, reason: str, where: str) -> None:
        """Count one row."""
        self.rows[reason] += 1
        examples = self.examples.setdefault(reason, [])
        if len(examples) < EXAMPLES:
            examples.append(where)

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {"rows": dict(self.rows), "files": self.files, "notes": self.notes, "examples": self.examples}

    @classmethod
    def total(cls, parts: Iterable[dict[str, Any]]) -> "Skipped":
        """The sum of what `as_dict` gave."""
        whole = cls()
        for part in parts:
            whole.rows.update(part["rows"])
            whole.files |= part["files"]
            whole.notes |= part["notes"]
            for reason, places in part["examples"].items():
                whole.examples[reason] = sorted([*whole.examples.get(reason, []), *places])[:EXAMPLES]
        return whole

    def warnings(self) -> list[str]:
        """A sentence for each kind of thing that was left out or is odd."""
        texts = [
            f"{'rows that have U+FFFD where they were bad' if 'replaced' in reason else 'rows that are left out'}: "
            f"{count:,} ({reason}), as in {self.examples[reason][0]}"
            for reason, count in sorted(self.rows.items())
        ]
        files = [f"{path} was not read to its end: {reason}" for path, reason in sorted(self.files.items())]
        texts += files[:MOST_NAMED]
        if len(files) > MOST_NAMED:
            texts.append(
                f"… and {len(files) - MOST_NAMED:,} more files were not read to their end; report.json names all."
            )
        return texts + [f"{path} {note}." for path, note in sorted(self.notes.items())]


class Batch(NamedTuple):
    """Documents of one source: UTF-8 as binary values, large or not, with nulls. `row` is the place of the first one.

    A place is a row of the file; for formats of lines it is the byte where the line begins, and in Arrow files the
    number of the record batch times 2^32 plus the row in it.
    """

    source: str
    texts: Any
    row: int


class Inspected(NamedTuple):
    """What planning found in a file: the rows (None: unknown) and text bytes of each unit that a shard can begin at.

    `lines` says that a shard can begin at any byte instead; `mark` see `Piece`.
    """

    units: list[tuple[int | None, int]]
    lines: bool = False
    mark: str = ""


class Sample:
    """Which rows of a file take part: those whose hash of (seed, path relative to the source, place) is small enough.

    The hash is SplitMix64 [Steele, Lea, Flood 2014], seeded with BLAKE2b of seed and path, at the step that the place
    names; numpy makes 10^8 of them a second. A smaller fraction takes a subset of what a larger one takes.
    """

    def __init__(self, reading: Reading, name: str) -> None:
        self.all = reading.threshold >= WHOLE
        self._threshold = np.uint64(min(reading.threshold, WHOLE - 1))
        text = f"{reading.seed}\0{name}".encode("utf-8", "surrogatepass")
        self._key = np.uint64(int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little"))

    def keep(self, places: Any) -> Any:
        """A mask over an array of places."""
        z = self._key + (places.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return (z ^ (z >> np.uint64(31))) < self._threshold


Fault = Callable[[int, int], str]
"""Says of row i of a batch that its text is not UTF-8 from a byte on, with the names and numbers that people need."""


def valid_texts(texts: Any, reading: Reading, skipped: Skipped, fault: Fault) -> tuple[Any, Any]:
    """Texts that are UTF-8, by the source's policy, and the indices that were kept (None: all).

    Raises:
        DataError: a text is not UTF-8 and the policy is `error`.
    """
    found = _core.first_invalid_utf8(texts) if reading.check_utf8 else None
    if found is None:
        return texts, None
    if reading.on_bad_row == "error":
        raise DataError(
            f"{fault(*found)}. Fix it, or {LEAVE_OUT} to leave such rows out, or to replace to put U+FFFD where they "
            "are bad."
        )
    # One bad text is rare: the batch that holds it may take the slow way.
    kept: list[bytes | None] = []
    indices = []
    for i, value in enumerate(texts.cast(pa.large_binary()).to_pylist()):
        if value is not None:
            try:
                value.decode()
            except UnicodeDecodeError as error:
                replace = reading.on_bad_row == "replace"
                skipped.row("not UTF-8" + (", replaced" if replace else ""), fault(i, error.start))
                if not replace:
                    continue
                value = value.decode(errors="replace").encode()
        kept.append(value)
        indices.append(i)
    return of_bytes(kept), of_numpy(np.array(indices, np.int64))


def group_names(values: Any) -> list[str]:
    """Names of sources from values of a group column."""
    return [NO_GROUP if value is None else str(value) for value in values.to_pylist()]


def by_group(texts: Any, groups: Any) -> Iterator[tuple[str, Any]]:
    """Split texts by the values beside them."""
    if not pa.types.is_dictionary(groups.type):
        groups = groups.dictionary_encode(null_encoding="encode")
    names = [*group_names(groups.dictionary), NO_GROUP]
    codes = filled(groups.indices, len(names) - 1)
    present = np.unique(codes)
    if len(present) == 1:
        yield names[present[0]], texts
        return
    for code in present:
        yield names[code], texts.take(of_numpy(np.flatnonzero(codes == code)))


def documents_of(
    column: Any,
    names: Sequence[str],
    groups: Any,
    first: int,
    sample: Sample,
    reading: Reading,
    skipped: Skipped,
    fault: Fault,
) -> Iterator[Batch]:
    """The documents in one column of a batch of rows that begin at place `first`; `fault` takes a row of the batch."""
    kept = None
    if not sample.all:
        kept = of_numpy(np.flatnonzero(sample.keep(np.arange(first, first + len(column)))))
        if not len(kept):
            return
        column = column.take(kept)
        groups = groups if groups is None else groups.take(kept)
    values, rows = values_of(column, names)
    if groups is not None and rows is not None:
        groups = groups.take(rows)
    done = 0

    def place(i: int) -> int:
        row = done + i if rows is None else rows[done + i].as_py()
        return int(row if kept is None else kept[row].as_py())

    for texts in plain_texts(values):
        size = len(texts)
        texts, indices = valid_texts(texts, reading, skipped, lambda i, byte: fault(place(i), byte))
        if len(texts):
            row = first + place(0 if indices is None else indices[0].as_py())
            if groups is None:
                yield Batch(reading.source, texts, row)
            else:
                part = groups.slice(done, size)
                part = part if indices is None else part.take(indices)
                for name, some in by_group(texts, part):
                    yield Batch(name, some, row)
        done += size
