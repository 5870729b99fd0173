"""The count table: word x source -> 64-bit count, counted shard by shard, merged from sorted runs, kept as Parquet.

A shard is counted into bounded native tables. Full tables leave as *runs*: Arrow IPC files sorted by (partition,
word, source), staged in the run folder. A commit file names a shard's runs; the first attempt to create it wins, later
ones are litter. One merge a partition then makes one Parquet part, sorted by (word, source), in memory that depends on
the number of runs and not on the number of words.
"""

import json
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dist_bpe import _core
from dist_bpe.documents import Skipped
from dist_bpe.engine import STOP
from dist_bpe.errors import CountOverflowError, FormatError, RunError, UsageError
from dist_bpe.pretokenize import Normalization, Pattern, resolve
from dist_bpe.progress import peak_memory_bytes
from dist_bpe.sources import Shard
from dist_bpe.storage import create_if_absent, publish, read_json, sha256, to_json

FORMAT_VERSION = 1
DEFAULT_PARTITIONS = 16
# Runs merged at once. Each holds one batch of at most 65,536 words in memory, about 2 MB.
FAN_IN = 64
ROW_GROUP_ROWS = 1 << 20

RUN_SCHEMA = pa.schema([("word", pa.binary()), ("source", pa.uint32()), ("count", pa.uint64())])
TABLE_SCHEMA = pa.schema(
    [("word", pa.binary()), ("source", pa.dictionary(pa.int32(), pa.string())), ("count", pa.uint64())]
)


class Stopped(RunError):
    """Raised inside a worker thread that was told to give up."""


@dataclass(frozen=True)
class CountTask:
    """Count one shard. Everything a worker needs, and nothing that does not pickle."""

    shard: Shard
    staging: str
    pattern: str
    special_tokens: tuple[str, ...]
    partitions: int
    table_bytes: int
    normalization: Normalization | None = None
    max_word_bytes: int | None = None

    def __str__(self) -> str:
        return str(self.shard)


@dataclass(frozen=True)
class RunSlice:
    """The batches of one partition inside one run file, and its source numbers as numbers of the whole table."""

    path: str
    first: int
    batches: int
    sources: tuple[int, ...]


@dataclass(frozen=True)
class MergeTask:
    """Merge one partition's slices into the Parquet part `path`."""

    partition: int
    slices: tuple[RunSlice, ...]
    sources: tuple[str, ...]
    min_word_count: int
    path: str

    def __str__(self) -> str:
        return f"partition {self.partition} ({len(self.slices)} runs)"


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


class RunWriter:
    """Writes a drained table as one run file, and notes where each partition's batches begin."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.index: dict[int, list[int]] = {}
        self._batches = 0

    def write(self, batches: Iterable[tuple[int, pa.RecordBatch]]) -> "RunWriter":
        """Write (partition, batch) pairs, sorted."""
        options = pa.ipc.IpcWriteOptions(compression="lz4")
        with publish(self.path) as temporary, pa.ipc.new_file(str(temporary), RUN_SCHEMA, options=options) as writer:
            for partition, batch in batches:
                writer.write_batch(batch)
                first_and_number = self.index.setdefault(partition, [self._batches, 0])
                first_and_number[1] += 1
                self._batches += 1
        return self


def count_shard(task: CountTask) -> dict[str, Any]:
    """Count one shard into committed runs and return the commit: {shard, sources, totals, skipped, runs}.

    Any number of attempts of one shard may run, one after the other or at once: the commit that was created first
    holds, and every attempt returns that one.

    Raises:
        DataError: a text is not UTF-8, or the file cannot be read; names file, row and byte.
    """
    commit = Path(task.staging) / f"shard-{task.shard.index:06}.json"
    if commit.exists():
        return read_json(commit)  # type: ignore[no-any-return]
    attempt = uuid.uuid4().hex[:12]
    pattern = resolve(task.pattern)
    names = task.shard.sources()
    number = {name: i for i, name in enumerate(names)}
    nulls = [0] * len(names)
    counter = _core.Counter(
        len(names),
        pattern.name if pattern.native else None,
        list(task.special_tokens),
        normalization=task.normalization,
        max_word_bytes=task.max_word_bytes,
    )
    runs: list[RunWriter] = []

    def spill() -> None:
        path = Path(task.staging) / f"shard-{task.shard.index:06}-{attempt}-{len(runs)}.arrow"
        runs.append(RunWriter(path).write(counter.drain(task.partitions)))

    skipped = Skipped()
    try:
        # The counter checks each text as it counts it.
        for name, texts, _ in task.shard.batches(skipped, check_utf8=False):
            if STOP.is_set():
                raise Stopped("stopped")
            source = number[name]
            nulls[source] += texts.null_count
            counter.count(source, texts)
            if not pattern.native:
                _count_custom(counter, source, texts, pattern, task)
            if counter.memory_bytes > task.table_bytes:
                spill()
    except _core.InvalidUtf8Error:
        for _ in task.shard.batches():
            pass  # raises the error that names file, row and byte
        raise
    if counter.unique_words:
        spill()
    totals = [counter.totals(i) | {"nulls": nulls[i]} for i in range(len(names))]
    result = {
        "shard": task.shard.index,
        "sources": names,
        "totals": totals,
        "skipped": skipped.as_dict(),
        "peak_bytes": peak_memory_bytes(),
        "runs": [{"file": run.path.name, "partitions": run.index} for run in runs],
    }
    if not create_if_absent(commit, json.dumps(result).encode()):
        for run in runs:
            run.path.unlink(missing_ok=True)
    return read_json(commit)  # type: ignore[no-any-return]


def _count_custom(counter: _core.Counter, source: int, texts: pa.Array, pattern: Pattern, task: CountTask) -> None:
    # The words of a custom pattern are Python objects, since the `regex` module makes them; a table for each batch
    # keeps the crossing into the native one down to unique words.
    words: Counter[bytes] = Counter()
    for text in texts.cast(pa.large_string()).drop_null().to_pylist():
        for piece in _core.cut(text, task.special_tokens) if task.special_tokens else (text,):
            words.update(pattern.words(_core.normalize(piece, task.normalization) if task.normalization else piece))
    counter.add_words(source, pa.array(list(words), pa.large_binary()), pa.array(list(words.values()), pa.uint64()))


def merge_tasks(
    commits: Sequence[dict[str, Any]], staging: Path, folder: Path, partitions: int, min_word_count: int
) -> list[MergeTask]:
    """The tasks that turn committed runs into parts, one a partition, whatever the order of the commits."""
    sources = tuple(sorted({name for commit in commits for name in commit["sources"]}))
    number = {name: i for i, name in enumerate(sources)}
    tasks = []
    for partition in range(partitions):
        slices = tuple(
            RunSlice(str(staging / run["file"]), where[0], where[1], tuple(number[name] for name in commit["sources"]))
            for commit in sorted(commits, key=lambda commit: int(commit["shard"]))
            for run in commit["runs"]
            if (where := run["partitions"].get(str(partition)))
        )
        path = folder / f"part-{partition:05}.parquet"
        tasks.append(MergeTask(partition, slices, sources, min_word_count, str(path)))
    return tasks


def _read_slice(run: RunSlice) -> Iterator[pa.RecordBatch]:
    mapping = pa.array(run.sources, pa.uint32())
    with pa.memory_map(run.path) as memory:
        reader = pa.ipc.open_file(memory)
        for i in range(run.first, run.first + run.batches):
            batch = reader.get_batch(i)
            yield batch.set_column(1, "source", pc.take(mapping, batch.column(1)))


def merge_part(task: MergeTask) -> dict[str, Any]:
    """Merge sorted runs into one Parquet part and return {file, rows, sha256, tallies}; tallies are one a source.

    Raises:
        CountOverflowError: the counts of one word add up to more than 2^64 - 1.
    """
    path = Path(task.path)
    intermediate: list[Path] = []
    slices = list(task.slices)
    try:
        # Levels: with more runs than can be open at once, groups of them become longer runs first.
        while len(slices) > FAN_IN:
            group, slices = slices[:FAN_IN], slices[FAN_IN:]
            merger = _core.Merger([_read_slice(run) for run in group], len(task.sources), 0)
            intermediate.append(path.parent / f".merge-{task.partition:05}-{uuid.uuid4().hex}.arrow")
            writer = RunWriter(intermediate[-1]).write((0, batch) for batch in merger)
            slices.append(RunSlice(str(writer.path), 0, sum(n for _, n in writer.index.values()), _same(task.sources)))
        merger = _core.Merger([_read_slice(run) for run in slices], len(task.sources), task.min_word_count)
        rows = 0
        names = pa.array(task.sources, pa.string())
        with (
            publish(path) as temporary,
            pq.ParquetWriter(
                temporary, TABLE_SCHEMA, compression="zstd", use_dictionary=["source"], write_statistics=["word"]
            ) as parquet,
        ):
            # A row group is a fixed number of rows, so that its borders follow from the content alone.
            for table in _row_groups(merger):
                if STOP.is_set():
                    raise Stopped("stopped")
                source = pa.DictionaryArray.from_arrays(table["source"].combine_chunks().cast(pa.int32()), names)
                parquet.write_table(
                    pa.table([table["word"], source, table["count"]], schema=TABLE_SCHEMA),
                    row_group_size=ROW_GROUP_ROWS,
                )
                rows += table.num_rows
        return {
            "file": path.name,
            "rows": rows,
            "sha256": sha256(path),
            "tallies": merger.tallies(),
            "peak_bytes": peak_memory_bytes(),
        }
    finally:
        for file in intermediate:
            file.unlink(missing_ok=True)


def _same(sources: Sequence[str]) -> tuple[int, ...]:
    return tuple(range(len(sources)))


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

    folder: Path
    pattern: str
    special_tokens: tuple[str, ...]
    normalization: Normalization | None
    min_word_count: int
    sources: dict[str, SourceCounts]
    parts: tuple[Path, ...]
    digest: str

    @classmethod
    def open(cls, folder: str | Path) -> "CountTable":
        """Open the table of a run folder, or the folder `counts` itself.

        Raises:
            RunError: no finished count table there.
            FormatError: a manifest of another format version, or parts that are missing.
        """
        folder = Path(folder)
        if not (folder / "manifest.json").exists() and (folder / "counts" / "manifest.json").exists():
            folder = folder / "counts"
        path = folder / "manifest.json"
        if not path.exists():
            raise RunError(
                f"{folder} holds no finished count table; make one with `dist-bpe count INPUT… -o {folder}`."
            )
        manifest = read_json(path)
        if manifest.get("kind") != "count-table" or manifest.get("format_version") != FORMAT_VERSION:
            raise FormatError(f"{path} is no count table of format {FORMAT_VERSION}; count again with this version.")
        parts = tuple(folder / part["file"] for part in manifest["parts"])
        missing = [str(part) for part in parts if not part.exists()]
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
        return sum(pq.ParquetFile(part).metadata.num_rows for part in self.parts)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The table's rows as batches of (word, source number in the order of `sources`, count), part by part."""
        for part in self.parts:
            yield from _read_part(part, list(self.sources))


def manifest(
    pattern: Pattern,
    special_tokens: Sequence[str],
    normalization: Normalization | None,
    max_word_bytes: int | None,
    min_word_count: int,
    commits: Sequence[dict[str, Any]],
    parts: Sequence[dict[str, Any]],
    selection: dict[str, Any],
) -> dict[str, Any]:
    """What a table's manifest.json holds: equal for equal documents and options, whatever the shards and workers.

    `selection` is what decided which documents took part: see `sources.Plan.selection`.
    """
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
        "normalization": normalization,
        "special_tokens": list(special_tokens),
        "partitions": len(parts),
        "max_word_bytes": max_word_bytes,
        "min_word_count": min_word_count,
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


def add_tables(tables: Sequence[CountTable], folder: Path) -> CountTable:
    """Merge count tables into a new one in `folder`: byte for byte the table of all their documents counted together.

    Raises:
        UsageError: tables that differ in what decides their words; it names what.
        FormatError: a part that is not the file its manifest names.
        CountOverflowError: a sum passes 2^64 - 1.
    """
    manifests = [read_json(table.folder / "manifest.json") for table in tables]
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
        parts.append(_write_part(folder / f"part-{partition:05}.parquet", merger, sources))
    values = manifests[0] | manifest(
        resolve(tables[0].pattern),
        tables[0].special_tokens,
        tables[0].normalization,
        manifests[0]["max_word_bytes"],
        tables[0].min_word_count,
        [
            {"sources": list(table.sources), "totals": [vars(source) for source in table.sources.values()]}
            for table in tables
        ],
        parts,
        _added_selections(tables, [values["selection"] for values in manifests]),
    )
    with publish(folder / "manifest.json") as temporary:
        temporary.write_bytes(to_json(values))
    return CountTable.open(folder)


def _read_part(path: Path, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """A part's rows as batches of (word, source number in the order of `names`, count)."""
    order = pa.array(names, pa.string())
    with pq.ParquetFile(path, read_dictionary=["source"]) as file:
        for batch in file.iter_batches(batch_size=ROW_GROUP_ROWS >> 3):
            source = batch.column("source")
            numbers = pc.index_in(source.dictionary, value_set=order).cast(pa.uint32())
            column = pc.take(numbers, source.indices)
            yield pa.record_batch([batch.column("word"), column, batch.column("count")], schema=RUN_SCHEMA)


def _write_part(path: Path, merger: _core.Merger, sources: Sequence[str]) -> dict[str, Any]:
    """Write merged rows as a part, as `merge_part` does."""
    rows = 0
    names = pa.array(sources, pa.string())
    with (
        publish(path) as temporary,
        pq.ParquetWriter(
            temporary, TABLE_SCHEMA, compression="zstd", use_dictionary=["source"], write_statistics=["word"]
        ) as parquet,
    ):
        for table in _row_groups(merger):
            source = pa.DictionaryArray.from_arrays(table["source"].combine_chunks().cast(pa.int32()), names)
            parquet.write_table(
                pa.table([table["word"], source, table["count"]], schema=TABLE_SCHEMA), row_group_size=ROW_GROUP_ROWS
            )
            rows += table.num_rows
    return {"file": path.name, "rows": rows, "sha256": sha256(path), "tallies": merger.tallies()}
