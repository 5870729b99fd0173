"""The count table: word x source -> 64-bit count, in Parquet; opened, read, measured, added up."""

import contextlib
import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from dist_bpe import _core
from dist_bpe.arrays import of_texts, to_numpy
from dist_bpe.counting.options import CountOptions, Unit
from dist_bpe.counting.spills import SPILL_SCHEMA
from dist_bpe.errors import CountOverflowError, FormatError, RunError, UsageError, several
from dist_bpe.pretokenize.checks import resolve
from dist_bpe.pretokenize.patterns import find
from dist_bpe.pretokenize.preparation import DEFAULT_SPECIAL, Normalization, SpecialToken
from dist_bpe.storage.bucket import BucketPath
from dist_bpe.storage.files import (
    NewFile,
    RunPath,
    digest,
    opened,
    parse_path,
    put,
    retried,
    scratch,
    sha256,
    sizes,
    to_json,
    write,
)
from dist_bpe.storage.layout import COUNTS, MANIFEST
from dist_bpe.tables import MOST_ROWS, Tabular, html_table

FORMAT_VERSION = 1


ROW_GROUP_ROWS = 1 << 20


TABLE_SCHEMA = pa.schema(
    [("word", pa.binary()), ("source", pa.dictionary(pa.int32(), pa.string())), ("count", pa.uint64())]
)

#: As those see it who query it: a word is UTF-8 always.
READ_SCHEMA = TABLE_SCHEMA.set(0, pa.field("word", pa.string()))

Whole = Annotated[int, Field(ge=0, le=2**64 - 1)]
Sha256 = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


@dataclass
class SourceCounts:
    """What one source holds. Sizes in bytes of UTF-8; `digest` identifies the documents whatever their order and files.

    `mark_words` are occurrences of words that begin with a combining mark: the pattern cut inside a syllable.
    `cut_words` are occurrences of words longer than `max_word_bytes`; their pieces are counted in `words`.
    """

    documents: Whole = 0
    nulls: Whole = 0
    bytes: Whole = 0
    words: Whole = 0
    special_tokens: Whole = 0
    cut_words: Whole = 0
    longest_word_bytes: Whole = 0
    unique_words: Whole = 0
    dropped_words: Whole = 0
    dropped_unique_words: Whole = 0
    mark_words: Whole = 0
    digest: Annotated[str, Field(pattern="^[0-9a-f]{32}$")] = "0" * 32

    def add(self, other: dict[str, Any]) -> None:
        """Add a shard's totals of this source."""
        for name in ("documents", "nulls", "bytes", "words", "special_tokens", "cut_words"):
            setattr(self, name, _checked(getattr(self, name) + other[name], name))
        self.longest_word_bytes = max(self.longest_word_bytes, other["longest_word_bytes"])
        self.digest = f"{(int(self.digest, 16) + int(other['digest'], 16)) % 2**128:032x}"


def _checked(value: int, what: str) -> int:
    if value >= 2**64:
        raise CountOverflowError(f"the number of {what} passes 2^64 - 1. Count the sources in separate runs.")
    return value


def _row_groups(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    held: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        held.append(batch)
        rows += batch.num_rows
        while rows >= ROW_GROUP_ROWS:
            table = pa.Table.from_batches(held)
            yield table.slice(0, ROW_GROUP_ROWS)
            rest = table.slice(ROW_GROUP_ROWS)
            held, rows = rest.to_batches(), rest.num_rows
    if rows:
        yield pa.Table.from_batches(held)


class _Checked(BaseModel):
    """A part of a manifest. Fields that are not known here are let pass: a later release may have added them."""

    model_config = ConfigDict(strict=True, frozen=True, extra="ignore")


class _Kind(_Checked):
    kind: Any = None
    format_version: Any = None


class _Pattern(_Checked):
    name: str | None
    regex: str = Field(min_length=1)
    unicode_tables: str


class PartFile(_Checked):
    """What the manifest says of one part."""

    file: str = Field(pattern=r"^part-\d{5,}-[0-9a-f]{16}\.parquet$")
    rows: Whole
    sha256: Sha256


class _Selection(_Checked):
    sample: Any = None
    rows: dict[str, Whole] = {}
    files: Whole = 0


class _Manifest(_Checked):
    kind: Literal["count-table"]
    format_version: Literal[1]
    pattern: _Pattern
    normalization: Normalization | None = None
    special_tokens: tuple[Annotated[str, Field(min_length=1)], ...]
    partitions: Annotated[int, Field(ge=1)]
    max_word_bytes: Annotated[int, Field(ge=1)] | None = None
    min_word_count: Annotated[int, Field(ge=1)]
    selection: dict[str, _Selection] = {}
    sources: dict[str, SourceCounts]
    parts: tuple[PartFile, ...]
    checksum: str | None = None


def _read_manifest(path: RunPath) -> tuple[_Manifest, dict[str, Any], str]:
    """A table's manifest, the same as plain values, and its SHA-256.

    Raises:
        RunError: it cannot be read.
        FormatError: it is of another format, or damaged; what gives it away is named.
    """
    try:
        content = path.read_bytes() if isinstance(path, BucketPath) else retried("read", path, path.read_bytes)
    except OSError as error:
        raise RunError(f"{path} cannot be read: {error.strerror or error}.") from error
    except UsageError as error:
        raise RunError(str(error)) from error

    def damaged(what: str) -> FormatError:
        return FormatError(f"{path} is damaged: {what}. Restore it, or count again with --overwrite.")

    try:
        kind = _Kind.model_validate_json(content)
        if kind.kind != "count-table" or kind.format_version != FORMAT_VERSION:
            raise FormatError(
                f"{path} is no count table of format {FORMAT_VERSION}; count again with this version and --overwrite."
            )
        found = _Manifest.model_validate_json(content)
        values = json.loads(content)
    except ValidationError as error:
        problem = error.errors()[0]
        name = ".".join(str(part) for part in problem["loc"])
        raise damaged(f"{name + ': ' if name else ''}{problem['msg']}") from error
    except (ValueError, RecursionError) as error:
        raise damaged(f"it does not hold JSON ({error})") from error
    # Tables of release 0.1 have no checksum.
    if found.checksum is not None and found.checksum != _checksum(values):
        raise damaged("its checksum is another")
    names = list(found.sources)
    if names != sorted(names):
        raise damaged("its sources are not in the order of their names")
    if found.partitions != len(found.parts):
        raise damaged(f"it has {len(found.parts)} parts instead of {found.partitions}")
    for number, part in enumerate(found.parts):
        if part.file != _part_name(number, part.sha256):
            raise damaged(f"the name and the SHA-256 of {part.file} do not fit together")
    rows, told = (sum(part.rows for part in found.parts), sum(source.unique_words for source in found.sources.values()))
    if rows != told:
        raise damaged(f"its parts have {rows:,} rows, and its sources {told:,} unique words")
    try:
        known = find(found.pattern.name or found.pattern.regex)
    except UsageError as error:
        raise FormatError(f"{path}: {error} Count again with this version and --overwrite.") from error
    if found.pattern.name is not None and known.regex != found.pattern.regex:
        raise damaged(f"the pattern {found.pattern.name!r} has another regular expression there")
    return found, values, hashlib.sha256(content).hexdigest()


def _checksum(values: Mapping[str, Any]) -> str:
    """The checksum of a manifest, which is its last entry: of all others."""
    rest = {name: value for name, value in values.items() if name != "checksum"}
    return digest(json.dumps(rest, sort_keys=True).encode())


def _part_name(number: int, content: str) -> str:
    return f"part-{number:05}-{content[:16]}.parquet"


@contextlib.contextmanager
def _reading(path: RunPath) -> Iterator[None]:
    """Errors of a part that is read, as one sentence."""
    try:
        yield
    except FileNotFoundError as error:
        raise FormatError(
            f"{path} is gone, which the manifest beside it names. Restore it, or count again with --overwrite."
        ) from error
    except (OSError, pa.ArrowException) as error:
        reason = (getattr(error, "strerror", None) or str(error)).split("\n")[0].rstrip(".")
        raise FormatError(f"{path} cannot be read: {reason}. Restore it, or count again with --overwrite.") from error


@dataclass(frozen=True, repr=False)
class CountTable(Tabular):
    """A finished count table in a folder; as a table, a row for each word and source, with its count.

    Other libraries that take it through Arrow's PyCapsule interface are given it part by part.

    Attributes:
        folder: holds manifest.json and the parts.
        pattern: the stored pattern text or name; `resolve(pattern)` gives the `Pattern`.
        special_tokens: the texts that were cut out before the pattern ran.
        normalization: the form that the text between them was brought into.
        min_word_count: rarer words were dropped; see `dropped_words`.
        sources: totals by source name, in the order of the names.
        parts: the Parquet files, in order of partition.
        digest: SHA-256 of the manifest: the identity of this table's content.
        max_word_bytes: longer words stand in it in pieces of at most so many bytes.
        files: what the manifest says of each part.
        written: the whole manifest, as plain values.
    """

    folder: RunPath
    pattern: str
    special_tokens: tuple[str, ...]
    normalization: Normalization | None
    min_word_count: int
    sources: dict[str, SourceCounts]
    parts: tuple[RunPath, ...]
    digest: str
    max_word_bytes: int | None = None
    files: tuple[PartFile, ...] = ()
    written: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)
    _seen: set[int] = field(default_factory=set, repr=False, compare=False)

    @classmethod
    def open(cls, folder: str | RunPath) -> "CountTable":
        """Open the table of a run folder (a path, or a URI of an object store), or the folder `counts` itself.

        The manifest is checked now, each part when it is first read.

        Raises:
            RunError: no finished count table there, or a folder that cannot be read.
            FormatError: a manifest of another format version or a damaged one, or parts that are missing.
        """
        folder = parse_path(folder)
        try:
            if not (folder / MANIFEST).exists() and (folder / COUNTS / MANIFEST).exists():
                folder = folder / COUNTS
            path = folder / MANIFEST
            if not path.exists():
                raise RunError(
                    f"{folder} holds no finished count table; make one with `dist-bpe count INPUT… -o {folder}`."
                )
            found, values, content = _read_manifest(path)
            there = sizes(folder)
        except OSError as error:
            raise RunError(f"{folder} cannot be read: {error.strerror or error}.") from error
        missing = [str(folder / part.file) for part in found.parts if part.file not in there]
        if missing:
            raise FormatError(
                f"{folder} lacks {missing[0]}, which its manifest names. Restore it or count again with --overwrite."
            )
        return cls(
            folder=folder,
            pattern=found.pattern.name or found.pattern.regex,
            special_tokens=found.special_tokens,
            normalization=found.normalization,
            min_word_count=found.min_word_count,
            sources=found.sources,
            parts=tuple(folder / part.file for part in found.parts),
            digest=content,
            max_word_bytes=found.max_word_bytes,
            files=found.parts,
            written=values,
        )

    def _described(self) -> str:
        words = sum(source.words for source in self.sources.values())
        return (
            f"<CountTable in {self.folder}: {several(self.rows, 'row')}, {several(words, 'word')} of "
            f"{several(len(self.sources), 'source')}, pattern {self.pattern!r}>"
        )

    def _repr_html_(self) -> str:
        shown = ("documents", "bytes", "words", "unique_words")
        largest = sorted(self.sources.items(), key=lambda row: (-row[1].bytes, row[0]))[:MOST_ROWS]
        rows = [{"source": name, **{what: getattr(source, what) for what in shown}} for name, source in largest]
        return html_table(repr(self), rows, len(self.sources))

    def scan(self) -> Any:
        """The table as a `pyarrow.dataset.Dataset` of word, source and count, to query without loading all of it.

        It is read again for each query, and no further than its filter and columns need; duckdb and polars
        (`scan_pyarrow_dataset`) push theirs down. Each page that is read is checked against its checksum, and not the
        file as a whole: damage that is met is an error of Arrow's. Words are text, sources a dictionary.
        """
        import pyarrow.dataset as ds  # takes as long as the rest of Arrow together

        checked = ds.ParquetFragmentScanOptions(page_checksum_verification=True)
        format = ds.ParquetFileFormat(default_fragment_scan_options=checked)
        if not any(isinstance(path, BucketPath) for path in self.parts):
            return ds.dataset(list(map(str, self.parts)), READ_SCHEMA, format=format)
        fragments = [format.make_fragment(pa.PythonFile(opened(path), "r")) for path in self.parts]
        return ds.FileSystemDataset(fragments, READ_SCHEMA, format)

    def to_arrow(self) -> pa.Table:
        """All rows at once: word as text, source as a dictionary, count.

        Raises:
            FormatError: a part that is damaged or gone.
        """
        return pa.Table.from_batches(self._named(), READ_SCHEMA)

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        reader = pa.RecordBatchReader.from_batches(READ_SCHEMA, self._named())
        return reader.__arrow_c_stream__(requested_schema)

    def _named(self) -> Iterator[pa.RecordBatch]:
        names = of_texts(self.sources)
        for batch in self.batches():
            source = pa.DictionaryArray.from_arrays(batch.column(1).cast(pa.int32()), names)
            yield pa.record_batch([batch.column(0).cast(pa.string()), source, batch.column(2)], schema=READ_SCHEMA)

    @property
    def rows(self) -> int:
        """Rows of all parts: each unique word has one for each source that holds it."""
        return sum(part.rows for part in self.files)

    @property
    def specials(self) -> list[SpecialToken]:
        """The special tokens that were cut out; of roles the table knows none but that of GPT-2's own."""
        return [SpecialToken(text, "eos" if text == DEFAULT_SPECIAL else "other") for text in self.special_tokens]

    def check(self, number: int) -> RunPath:
        """The path of a part, once its bytes are seen to be those that the manifest speaks of; they are read once.

        Raises:
            FormatError: they are others, or cannot be read.
        """
        path = self.parts[number]
        if number not in self._seen:
            with _reading(path):
                content = sha256(path)
            if content != self.files[number].sha256:
                raise FormatError(
                    f"{path} is damaged: its bytes are not those that its manifest names. Restore it, or "
                    "count again with --overwrite."
                )
            self._seen.add(number)
        return path

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The table's rows as batches of (word, source number in the order of `sources`, count), part by part.

        Raises:
            FormatError: a part that is damaged or gone.
        """
        for number in range(len(self.parts)):
            yield from self.part(number, list(self.sources))

    def part(self, number: int, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """The rows of one part, as `batches` gives them, with the number of each source in `names`.

        Raises:
            FormatError: it is damaged or gone.
        """
        path = self.check(number)
        order = of_texts(names)
        # Reading ahead, like decoding in parallel, starts threads that may abort a process that ends at that moment.
        options = {"read_dictionary": ["source"], "pre_buffer": False, "page_checksum_verification": True}
        with _reading(path), pq.ParquetFile(opened(path), **options) as parquet:
            if parquet.metadata.num_rows != self.files[number].rows:
                raise FormatError(
                    f"{path} has {parquet.metadata.num_rows:,} rows, and the manifest beside it says "
                    f"{self.files[number].rows:,}. Restore them, or count again with --overwrite."
                )
            for batch in parquet.iter_batches(batch_size=ROW_GROUP_ROWS >> 3, use_threads=False):
                source = batch.column("source")
                numbers = pc.index_in(source.dictionary, value_set=order).cast(pa.uint32())
                if numbers.null_count:
                    raise FormatError(
                        f"{path} has sources that the manifest beside it does not name. Restore them, or "
                        "count again with --overwrite."
                    )
                column = pc.take(numbers, source.indices)
                yield pa.record_batch([batch.column("word"), column, batch.column("count")], schema=SPILL_SCHEMA)

    def word_bytes_bound(self) -> int:
        """Bytes of all rows' words or a little more, from the footers of the parts alone.

        Raises:
            FormatError: a part that is damaged or gone.
        """
        size = 0
        for number in range(len(self.parts)):
            path = self.check(number)
            with _reading(path):
                metadata = pq.read_metadata(opened(path))
            groups = range(metadata.num_row_groups)
            size += sum(int(metadata.row_group(i).column(0).total_uncompressed_size) for i in groups)
        return size

    def sizes(self, unit: Unit) -> dict[str, int]:
        """The size of each source. Characters are those of the words in it, so one pass over the table.

        Raises:
            UsageError: documents are asked for, and a source was counted elsewhere, where nothing was said of them.
        """
        unknown = next((name for name, source in self.sources.items() if source.words and not source.documents), None)
        if unit == "documents" and unknown is not None:
            raise UsageError(
                f"the table does not know how many documents {unknown!r} had: measure sizes in another unit."
            )
        if unit not in get_args(Unit):
            raise UsageError(f"the unit {unit!r} is none of {', '.join(get_args(Unit))}.")
        if unit != "characters":
            return {name: getattr(source, unit) for name, source in self.sources.items()}
        totals = np.zeros(len(self.sources), np.uint64)
        for batch in self.batches():
            lengths = to_numpy(pc.utf8_length(batch.column(0).cast(pa.string()))).astype(np.uint64)
            # A table's words hold fewer characters than its documents had bytes, whose sum was checked against 2^64.
            np.add.at(totals, to_numpy(batch.column(1)), lengths * to_numpy(batch.column(2)))
        return dict(zip(self.sources, totals.tolist(), strict=True))


def dropped_words(table: CountTable) -> str | None:
    """A sentence on the words that `min_word_count` dropped from a table; None if there are none."""
    dropped = sum(source.dropped_words for source in table.sources.values())
    if not dropped:
        return None
    shares = {
        name: source.dropped_words / source.words for name, source in table.sources.items() if source.dropped_words
    }
    most = max(shares, key=lambda name: (shares[name], name))
    of = f", and {shares[most]:.2%} of those of {most}" if len(table.sources) > 1 else ""
    return (
        f"{dropped:,} words, which are {dropped / sum(source.words for source in table.sources.values()):.2%} of all"
        f"{of}, were dropped when the table was counted: each stood fewer than {table.min_word_count:,} times "
        "(min_word_count). The table knows nothing more of them, and what is measured on it is measured without them."
    )


def word_starts(words: pa.Array) -> Any:
    """The rows of a batch at which another word begins, as numpy indices: the rows of one word stand together."""
    others = to_numpy(pc.indices_nonzero(pc.not_equal(words[1:], words[:-1]))).astype(np.int64) + 1
    return np.append(0, others)[: len(words)]


def manifest(
    options: CountOptions,
    commits: Sequence[dict[str, Any]],
    parts: Sequence[dict[str, Any]],
    selection: dict[str, Any],
) -> dict[str, Any]:
    """What a table's manifest.json holds: equal for equal documents and options, whatever the shards and workers.

    `selection` is what decided which documents took part: see `Plan.selection`.
    """
    pattern = resolve(options.pattern)
    names = sorted({name for commit in commits for name in commit["sources"]})
    sources = {name: SourceCounts() for name in names}
    for commit in commits:
        for name, totals in zip(commit["sources"], commit["totals"], strict=True):
            sources[name].add(totals)
    for part in parts:
        for name, tally in zip(names, part["tallies"], strict=True):
            for what in ("unique_words", "dropped_words", "dropped_unique_words", "mark_words"):
                setattr(sources[name], what, getattr(sources[name], what) + tally[what])
    values = {
        "kind": "count-table",
        "format_version": FORMAT_VERSION,
        "pattern": {"name": pattern.name, "regex": pattern.regex, "unicode_tables": _core.UNICODE_TABLES},
        "normalization": options.normalization,
        "special_tokens": options.special_texts,
        "partitions": len(parts),
        "max_word_bytes": options.max_word_bytes,
        "min_word_count": options.min_word_count,
        "selection": selection,
        "sources": {name: vars(counts) for name, counts in sources.items()},
        "parts": [
            {key: part[key] for key in ("file", "rows", "sha256")}
            for part in sorted(parts, key=lambda p: str(p["file"]))
        ],
    }
    return values | {"checksum": _checksum(values)}


def _added_selections(tables: Sequence[CountTable], selections: Sequence[dict[str, Any]]) -> dict[str, Any]:
    added: dict[str, Any] = {}
    for name in sorted({name for selection in selections for name in selection}):
        pairs = zip(tables, selections, strict=True)
        entries = [selection.get(name, {}) for table, selection in pairs if name in table.sources]
        entry: dict[str, Any] = {}
        samples = [each.get("sample") for each in entries]
        if any(sample != samples[0] for sample in samples):
            raise UsageError(f"the tables hold different samples of the source {name!r}; count it again in one way.")
        if samples[0]:
            entry["sample"] = samples[0]
        reasons = sum((Counter(each.get("rows", {})) for each in entries), Counter[str]())
        if reasons:
            entry["rows"] = dict(sorted(reasons.items()))
        files = sum(each.get("files", 0) for each in entries)
        if files:
            entry["files"] = files
        added[name] = entry
    return added


# What may differ between tables that are added.
_OF_CONTENT = {"sources", "parts", "selection", "checksum"}


def add_tables(tables: Sequence[CountTable], folder: RunPath) -> CountTable:
    """Merge count tables into a new one in `folder`: byte for byte the table of all their documents counted together.

    Raises:
        UsageError: tables that differ in what decides their words; it names what.
        FormatError: a part that is not the file its manifest names.
        CountOverflowError: a sum passes 2^64 - 1.
    """
    manifests = [table.written for table in tables]
    for table, values in zip(tables[1:], manifests[1:], strict=True):
        for what in sorted((values.keys() | manifests[0].keys()) - _OF_CONTENT):
            if values.get(what) != manifests[0].get(what):
                raise UsageError(
                    f"{tables[0].folder} and {table.folder} cannot be added: they differ in {what} "
                    f"({manifests[0].get(what)!r} and {values.get(what)!r}). Count one of them again."
                )
    if tables[0].min_word_count > 1:
        raise UsageError(
            f"tables counted with min_word_count {tables[0].min_word_count} cannot be added: a word that each of them "
            "dropped may be frequent enough in all of them together. Count with 1, and filter while learning."
        )
    for table in tables:
        for number in range(len(table.parts)):
            table.check(number)
    sources = tuple(sorted({name for table in tables for name in table.sources}))
    parts = []
    for partition in range(len(tables[0].parts)):
        # The names are sorted in every table, so its rows stay sorted under the numbers of the new one.
        runs = [table.part(partition, sources) for table in tables]
        merger = _core.Merger(runs, len(sources), 0)
        parts.append(write_part(folder, partition, merger, merger, sources))
    options = CountOptions(
        pattern=tables[0].pattern,
        normalization=tables[0].normalization,
        special_tokens=tables[0].specials,
        max_word_bytes=tables[0].max_word_bytes,
        partitions=len(parts),
    )
    commits = [
        {"sources": list(table.sources), "totals": [vars(source) for source in table.sources.values()]}
        for table in tables
    ]
    selections = _added_selections(tables, [values.get("selection", {}) for values in manifests])
    values = manifests[0] | manifest(options, commits, parts, selections)
    values = {name: value for name, value in values.items() if name != "checksum"}
    write(folder / MANIFEST, to_json(values | {"checksum": _checksum(values)}))
    return CountTable.open(folder)


def write_part(
    folder: RunPath, partition: int, batches: Iterable[pa.RecordBatch], merger: _core.Merger, sources: Sequence[str]
) -> dict[str, Any]:
    """Write what a merger gives, as `batches` hands it on, as a part: {file, rows, sha256, tallies}."""
    rows = 0
    names = of_texts(sources)
    with scratch(folder) as temporary:
        with (
            NewFile(temporary) as sink,
            pq.ParquetWriter(
                sink,
                TABLE_SCHEMA,
                compression="zstd",
                use_dictionary=["source"],
                write_statistics=["word"],
                write_page_checksum=True,
            ) as parquet,
        ):
            # A row group is a fixed number of rows, so that its borders follow from the content alone.
            for table in _row_groups(batches):
                source = pa.DictionaryArray.from_arrays(table["source"].combine_chunks().cast(pa.int32()), names)
                parquet.write_table(
                    pa.table([table["word"], source, table["count"]], schema=TABLE_SCHEMA),
                    row_group_size=ROW_GROUP_ROWS,
                )
                rows += table.num_rows
        content = sha256(temporary)
        file = _part_name(partition, content)
        put(temporary, folder / file)
    return {"file": file, "rows": rows, "sha256": content, "tallies": merger.tallies()}
