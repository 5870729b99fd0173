"""The count table: word x source -> 64-bit count, in Parquet; opened, read, measured, added up."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dist_bpe import _core
from dist_bpe.arrays import of_texts, to_numpy
from dist_bpe.counting.options import CountOptions, Unit
from dist_bpe.counting.spills import SPILL_SCHEMA
from dist_bpe.errors import CountOverflowError, FormatError, RunError, UsageError
from dist_bpe.pretokenize.checks import resolve
from dist_bpe.pretokenize.preparation import DEFAULT_SPECIAL, Normalization, SpecialToken
from dist_bpe.storage.files import (
    NewFile,
    RunPath,
    opened,
    parse_path,
    put,
    read_json,
    scratch,
    sha256,
    sizes,
    to_json,
    write,
)
from dist_bpe.storage.layout import COUNTS, MANIFEST

FORMAT_VERSION = 1


ROW_GROUP_ROWS = 1 << 20


TABLE_SCHEMA = pa.schema(
    [("word", pa.binary()), ("source", pa.dictionary(pa.int32(), pa.string())), ("count", pa.uint64())]
)


@dataclass
class SourceCounts:
    """What one source holds. Sizes in bytes of UTF-8; `digest` identifies the documents whatever their order and files.

    `mark_words` are occurrences of words that begin with a combining mark: the pattern cut inside a syllable.
    `cut_words` are occurrences of words longer than `max_word_bytes`; their pieces are counted in `words`.
    """

    documents: int = 0
    nulls: int = 0
    bytes: int = 0
    words: int = 0
    special_tokens: int = 0
    cut_words: int = 0
    longest_word_bytes: int = 0
    unique_words: int = 0
    dropped_words: int = 0
    dropped_unique_words: int = 0
    mark_words: int = 0
    digest: str = "0" * 32

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


@dataclass(frozen=True)
class CountTable:
    """A finished count table in a folder.

    Attributes:
        folder: holds manifest.json and the parts.
        pattern: the stored pattern text or name; `resolve(pattern)` gives the `Pattern`.
        special_tokens: the texts that were cut out before the pattern ran.
        normalization: the form that the text between them was brought into.
        sources: totals by source name, in the order of the names.
        parts: the Parquet files, in order of partition.
        digest: SHA-256 of the manifest: the identity of this table's content.
    """

    folder: RunPath
    pattern: str
    special_tokens: tuple[str, ...]
    normalization: Normalization | None
    min_word_count: int
    sources: dict[str, SourceCounts]
    parts: tuple[RunPath, ...]
    digest: str

    @classmethod
    def open(cls, folder: str | RunPath) -> "CountTable":
        """Open the table of a run folder (a path, or a URI of an object store), or the folder `counts` itself.

        Raises:
            RunError: no finished count table there.
            FormatError: a manifest of another format version, or parts that are missing.
        """
        folder = parse_path(folder)
        if not (folder / MANIFEST).exists() and (folder / COUNTS / MANIFEST).exists():
            folder = folder / COUNTS
        path = folder / MANIFEST
        if not path.exists():
            raise RunError(
                f"{folder} holds no finished count table; make one with `dist-bpe count INPUT… -o {folder}`."
            )
        manifest = read_json(path)
        if manifest.get("kind") != "count-table" or manifest.get("format_version") != FORMAT_VERSION:
            raise FormatError(f"{path} is no count table of format {FORMAT_VERSION}; count again with this version.")
        parts = tuple(folder / part["file"] for part in manifest["parts"])
        there = sizes(folder)
        missing = [str(part) for part in parts if part.name not in there]
        if missing:
            raise FormatError(f"{folder} lacks {missing[0]}, which its manifest names. Restore it or count again.")
        return cls(
            folder=folder,
            pattern=manifest["pattern"]["name"] or manifest["pattern"]["regex"],
            special_tokens=tuple(manifest["special_tokens"]),
            normalization=manifest.get("normalization"),
            min_word_count=manifest["min_word_count"],
            sources={name: SourceCounts(**values) for name, values in manifest["sources"].items()},
            parts=parts,
            digest=sha256(path),
        )

    @property
    def rows(self) -> int:
        """Rows of all parts."""
        return sum(int(part["rows"]) for part in read_json(self.folder / MANIFEST)["parts"])

    @property
    def specials(self) -> list[SpecialToken]:
        """The special tokens that were cut out; of roles the table knows none but that of GPT-2's own."""
        return [SpecialToken(text, "eos" if text == DEFAULT_SPECIAL else "other") for text in self.special_tokens]

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The table's rows as batches of (word, source number in the order of `sources`, count), part by part."""
        for part in self.parts:
            yield from _read_part(part, list(self.sources))

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
        if unit != "characters":
            return {name: getattr(source, unit) for name, source in self.sources.items()}
        totals = np.zeros(len(self.sources), np.uint64)
        for batch in self.batches():
            lengths = to_numpy(pc.utf8_length(batch.column(0).cast(pa.string()))).astype(np.uint64)
            # A table's words hold fewer characters than its documents had bytes, whose sum was checked against 2^64.
            np.add.at(totals, to_numpy(batch.column(1)), lengths * to_numpy(batch.column(2)))
        return dict(zip(self.sources, totals.tolist(), strict=True))


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
            for field in ("unique_words", "dropped_words", "dropped_unique_words", "mark_words"):
                setattr(sources[name], field, getattr(sources[name], field) + tally[field])
    return {
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


def add_tables(tables: Sequence[CountTable], folder: RunPath) -> CountTable:
    """Merge count tables into a new one in `folder`: byte for byte the table of all their documents counted together.

    Raises:
        UsageError: tables that differ in what decides their words; it names what.
        FormatError: a part that is not the file its manifest names.
        CountOverflowError: a sum passes 2^64 - 1.
    """
    manifests = [read_json(table.folder / MANIFEST) for table in tables]
    for table, values in zip(tables[1:], manifests[1:], strict=True):
        for what in sorted((values.keys() | manifests[0].keys()) - {"sources", "parts", "selection"}):
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
    for table, values in zip(tables, manifests, strict=True):
        for part in values["parts"]:
            if sha256(table.folder / part["file"]) != part["sha256"]:
                raise FormatError(f"{table.folder / part['file']} is not the file that its manifest names.")
    sources = tuple(sorted({name for table in tables for name in table.sources}))
    parts = []
    for partition in range(len(tables[0].parts)):
        # The names are sorted in every table, so its rows stay sorted under the numbers of the new one.
        runs = [_read_part(table.parts[partition], sources) for table in tables]
        merger = _core.Merger(runs, len(sources), 0)
        parts.append(write_part(folder, partition, merger, merger, sources))
    options = CountOptions(
        pattern=tables[0].pattern,
        normalization=tables[0].normalization,
        special_tokens=tables[0].specials,
        max_word_bytes=manifests[0]["max_word_bytes"],
        partitions=len(parts),
    )
    commits = [
        {"sources": list(table.sources), "totals": [vars(source) for source in table.sources.values()]}
        for table in tables
    ]
    selections = _added_selections(tables, [values["selection"] for values in manifests])
    values = manifests[0] | manifest(options, commits, parts, selections)
    write(folder / MANIFEST, to_json(values))
    return CountTable.open(folder)


def _read_part(path: RunPath, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """A part's rows as batches of (word, source number in the order of `names`, count)."""
    order = of_texts(names)
    with pq.ParquetFile(opened(path), read_dictionary=["source"], page_checksum_verification=True) as parquet:
        for batch in parquet.iter_batches(batch_size=ROW_GROUP_ROWS >> 3):
            source = batch.column("source")
            numbers = pc.index_in(source.dictionary, value_set=order).cast(pa.uint32())
            column = pc.take(numbers, source.indices)
            yield pa.record_batch([batch.column("word"), column, batch.column("count")], schema=SPILL_SCHEMA)


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
        file = f"part-{partition:05}-{content[:16]}.parquet"
        put(temporary, folder / file)
    return {"file": file, "rows": rows, "sha256": content, "tallies": merger.tallies()}
