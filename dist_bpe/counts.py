"""The count table: word x source -> 64-bit count, counted shard by shard, merged from sorted runs, kept as Parquet.

A shard is counted into bounded native tables. Full tables leave as *runs*: files of Arrow batches sorted by (partition,
word, source), staged in the run folder. A commit file names a shard's runs and the checksum of each batch; the first
attempt to create it wins, later ones are litter. One merge a partition then makes one Parquet part, sorted by (word,
source), in memory that depends on the number of runs and not on the number of words; it has a commit, too.
"""

import contextlib
import dataclasses
import fnmatch
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dist_bpe import _core
from dist_bpe.documents import Skipped, of_bytes, of_numpy, of_texts, to_numpy
from dist_bpe.engine import STOP
from dist_bpe.errors import CountOverflowError, DamagedRunError, FormatError, RunError, UsageError
from dist_bpe.places import THREADS, in_threads
from dist_bpe.pretokenize import Normalization, Pattern, resolve
from dist_bpe.progress import peak_memory_bytes
from dist_bpe.remote import RemotePath
from dist_bpe.sources import Shard
from dist_bpe.storage import (
    NewFile,
    RunPath,
    at,
    create_if_absent,
    digest,
    flush,
    opened,
    put,
    ranges,
    read_json,
    scratch,
    sealed,
    sha256,
    sizes,
    to_json,
    unsealed,
    write,
)

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
    """Count one shard, or a piece of it. Everything a worker needs, and nothing that does not pickle."""

    shard: Shard
    staging: RunPath
    pattern: str
    special_tokens: tuple[str, ...]
    partitions: int
    table_bytes: int
    normalization: Normalization | None = None
    max_word_bytes: int | None = None
    piece: int | None = None

    def __str__(self) -> str:
        return str(self.shard)

    @property
    def key(self) -> tuple[int, ...]:
        """See `ledger.Unit`."""
        return (self.shard.index,) if self.piece is None else (self.shard.index, self.piece)

    def split(self) -> "list[CountTask]":
        """See `ledger.Unit`."""
        shards = self.shard.split()
        return [dataclasses.replace(self, shard=shard, piece=i) for i, shard in enumerate(shards)]

    @property
    def name(self) -> str:
        """What its staged files begin with."""
        return f"shard-{self.shard.index:06}" + ("" if self.piece is None else f".{self.piece:02}")


# Where a batch lies in a run file: offset, bytes, checksum.
Frame = tuple[int, int, str]


@dataclass(frozen=True)
class RunSlice:
    """The batches of one partition inside one run file, and its source numbers as numbers of the whole table."""

    path: RunPath
    commit: RunPath
    frames: tuple[Frame, ...]
    sources: tuple[int, ...]


@dataclass(frozen=True)
class MergeTask:
    """Merge one partition's slices into a Parquet part in `staging`."""

    partition: int
    slices: tuple[RunSlice, ...]
    sources: tuple[str, ...]
    min_word_count: int
    staging: RunPath
    fan_in: int = FAN_IN

    def __str__(self) -> str:
        return f"partition {self.partition} ({len(self.slices)} runs)"

    @property
    def key(self) -> tuple[int, ...]:
        """See `ledger.Unit`."""
        return (self.partition,)

    def split(self) -> "list[MergeTask]":
        """A merge takes memory by the number of runs, not by their size: smaller ones would not help."""
        return []


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


def write_run(path: RunPath, batches: Iterable[tuple[int, pa.RecordBatch]]) -> dict[str, list[list[Any]]]:
    """Write batches as a run file; returns where those of each partition lie.

    Each batch is an Arrow stream of its own (400 bytes more), so that a merge reads and checks just the ones it needs.
    """
    options = pa.ipc.IpcWriteOptions(compression="lz4")
    index: dict[str, list[list[Any]]] = {}
    # A run's name is of one attempt alone, and nobody reads it before its commit: in a folder it is written in place.
    with contextlib.nullcontext(path) if isinstance(path, Path) else scratch(path.parent) as local:
        with NewFile(local) as file:
            for partition, batch in batches:
                sink = pa.BufferOutputStream()
                with pa.ipc.new_stream(sink, RUN_SCHEMA, options=options) as writer:
                    writer.write_batch(batch)
                data = sink.getvalue()
                index.setdefault(str(partition), []).append([file.tell(), len(data), digest(data)])
                file.write(data)
        if isinstance(path, Path):
            flush(path)
        else:
            put(local, path)
    return index


def count_shard(task: CountTask) -> dict[str, Any]:
    """Count one shard into committed runs and return the commit: {key, sources, totals, skipped, runs, …}.

    Any number of attempts of one shard may run, one after the other or at once: the commit that was created first
    holds, and every attempt returns that one.

    Raises:
        DataError: a text is not UTF-8, or the file cannot be read; names file, row and byte.
    """
    staging = task.staging
    commit = staging / f"{task.name}.json"
    if held := unsealed(commit):
        return held
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
    runs: list[dict[str, Any]] = []

    def spill() -> None:
        path = staging / f"{task.name}-{attempt}-{len(runs)}.run"
        runs.append({"file": path.name, "partitions": {}})
        runs[-1]["partitions"] = write_run(path, counter.drain(task.partitions))

    def sweep() -> None:
        for run in runs:
            (staging / run["file"]).unlink(missing_ok=True)

    skipped = Skipped()

    def count() -> None:
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
        if counter.unique_words:
            spill()

    try:
        count()
    except _core.InvalidUtf8Error:
        sweep()
        for _ in task.shard.batches():
            pass  # raises the error that names file, row and byte
        raise
    except BaseException:
        sweep()  # what repeated attempts leave would fill the disk
        raise
    totals = [counter.totals(i) | {"nulls": nulls[i]} for i in range(len(names))]
    result = {
        "key": list(task.key),
        "bytes": task.shard.bytes,
        "sources": names,
        "totals": totals,
        "skipped": skipped.as_dict(),
        "peak_bytes": peak_memory_bytes(),
        "runs": runs,
    }
    if create_if_absent(commit, sealed(result)):
        return result
    sweep()
    return unsealed(commit) or _damaged(commit, commit)


def _damaged(path: RunPath, commit: RunPath) -> NoReturn:
    commit.unlink(missing_ok=True)
    raise DamagedRunError(f"{path} is damaged or gone: what it held is counted again.")


def committed(staging: RunPath) -> list[dict[str, Any]]:
    """The commits of shards in a staging folder, whole ones before pieces. Those that do not hold are removed.

    The runs they name are checked for their size here, and for their content when they are merged.
    """
    found = []
    there = sizes(staging)
    names = sorted(name for name in there if fnmatch.fnmatchcase(name, "shard-*.json"))
    paths: list[RunPath] = [staging / name for name in names]
    read: Iterator[dict[str, Any] | None] = in_threads(unsealed, paths)
    for path, commit in zip(paths, read, strict=True):
        if commit and all(there.get(run["file"]) == _end(run) for run in commit["runs"]):
            found.append(commit)
        else:
            path.unlink(missing_ok=True)
    return sorted(found, key=lambda commit: (len(commit["key"]), commit["key"]))


def _end(run: dict[str, Any]) -> int:
    return max(int(frames[-1][0] + frames[-1][1]) for frames in run["partitions"].values())


def merged(staging: RunPath, folder: RunPath) -> list[dict[str, Any]]:
    """The commits of parts in a staging folder or moved to `folder`. Those that do not hold are removed."""
    found = []
    paths: list[RunPath] = list(staging.glob("part-*.json"))
    for path in sorted(paths, key=str):
        part = unsealed(path)
        places = [where / part["file"] for where in (staging, folder)] if part else []
        if part and any(place.exists() and sha256(place) == part["sha256"] for place in places):
            found.append(part)
        else:
            path.unlink(missing_ok=True)
    return found


def _count_custom(counter: _core.Counter, source: int, texts: pa.Array, pattern: Pattern, task: CountTask) -> None:
    # The words of a custom pattern are Python objects, since the `regex` module makes them; a table for each batch
    # keeps the crossing into the native one down to unique words.
    words: Counter[str] = Counter()
    for text in texts.cast(pa.large_string()).drop_null().to_pylist():
        for piece in _core.cut(text, task.special_tokens) if task.special_tokens else (text,):
            words.update(pattern.pieces(_core.normalize(piece, task.normalization) if task.normalization else piece))
    del words[""]
    counts = np.fromiter(words.values(), np.uint64, len(words))
    counter.add_words(source, of_bytes(list(map(str.encode, words))), of_numpy(counts))


def merge_tasks(
    commits: Sequence[dict[str, Any]], staging: RunPath, partitions: int, min_word_count: int, fan_in: int
) -> list[MergeTask]:
    """The tasks that turn committed runs into parts, one a partition, whatever the order of the commits."""
    sources = tuple(sorted({name for commit in commits for name in commit["sources"]}))
    number = {name: i for i, name in enumerate(sources)}
    tasks = []
    for partition in range(partitions):
        slices = tuple(
            RunSlice(
                staging / run["file"],
                staging / f"{run['file'].rsplit('-', 2)[0]}.json",
                tuple((offset, size, checksum) for offset, size, checksum in frames),
                tuple(number[name] for name in commit["sources"]),
            )
            for commit in sorted(commits, key=lambda commit: commit["key"])
            for run in commit["runs"]
            if (frames := run["partitions"].get(str(partition)))
        )
        tasks.append(MergeTask(partition, slices, sources, min_word_count, staging, fan_in))
    return tasks


def _read_slice(run: RunSlice, pool: ThreadPoolExecutor) -> Iterator[pa.RecordBatch]:
    mapping = of_numpy(np.array(run.sources, np.uint32))
    # Asked for at once, and not when the merge comes to it: the first batches of all runs are on their way together.
    ahead = _fetched(run, pool)

    def batches() -> Iterator[pa.RecordBatch]:
        try:
            for (_, _, checksum), data in zip(run.frames, ahead, strict=True):
                if digest(data) != checksum:
                    _damaged(run.path, run.commit)
                batch = pa.ipc.open_stream(data).read_next_batch()
                yield batch.set_column(1, "source", pc.take(mapping, batch.column(1)))
        except FileNotFoundError:
            _damaged(run.path, run.commit)

    return batches()


def _fetched(run: RunSlice, pool: ThreadPoolExecutor) -> Iterator[bytes]:
    """The frames of a slice as they lie in its file. In an object store the next one is asked for while one is read."""
    frames = [(offset, size) for offset, size, _ in run.frames]
    if isinstance(run.path, Path) or not frames:
        return _fetched_here(run.path, frames)
    return _fetched_there(run.path, frames, pool, pool.submit(run.path.read_range, *frames[0]))


def _fetched_here(path: RunPath, frames: Sequence[tuple[int, int]]) -> Iterator[bytes]:
    with ranges(path) as read:
        for offset, size in frames:
            yield read(offset, size)


def _fetched_there(
    path: RemotePath, frames: Sequence[tuple[int, int]], pool: ThreadPoolExecutor, first: "Future[bytes]"
) -> Iterator[bytes]:
    ahead = first
    for offset, size in frames[1:]:
        data = ahead.result()
        ahead = pool.submit(path.read_range, offset, size)
        yield data
    yield ahead.result()


def merge_part(task: MergeTask) -> dict[str, Any]:
    """Merge sorted runs into one Parquet part and return its commit; tallies are one a source.

    The commit is {partition, file, rows, sha256, tallies, …}. The name `file` follows from the content, so that two
    attempts leave one file, and a part of another table never takes its place.

    Raises:
        CountOverflowError: the counts of one word add up to more than 2^64 - 1.
        DamagedRunError: a run is not what was written.
    """
    staging = task.staging
    commit = staging / f"part-{task.partition:05}.json"
    attempt = uuid.uuid4().hex[:12]
    intermediate: list[RunPath] = []
    slices = list(task.slices)
    pool = ThreadPoolExecutor(THREADS, thread_name_prefix="dist-bpe-merge")
    try:
        # Levels: with more runs than can be open at once, groups of them become longer runs first.
        while len(slices) > task.fan_in:
            group, slices = slices[: task.fan_in], slices[task.fan_in :]
            merger = _core.Merger([_read_slice(run, pool) for run in group], len(task.sources), 0)
            longer = staging / f"merge-{task.partition:05}-{attempt}-{len(intermediate)}.run"
            intermediate.append(longer)
            batches = ((task.partition, batch) for batch in _unless_stopped(merger))
            frames = write_run(longer, batches).get(str(task.partition), [])
            slices.append(RunSlice(longer, longer, tuple(map(tuple, frames)), tuple(range(len(task.sources)))))
        merger = _core.Merger([_read_slice(run, pool) for run in slices], len(task.sources), task.min_word_count)
        part = _write_part(staging, task.partition, merger, task.sources)
        result = {**part, "partition": task.partition, "peak_bytes": peak_memory_bytes()}
        if create_if_absent(commit, sealed(result)):
            return result
        return unsealed(commit) or _damaged(commit, commit)
    finally:
        pool.shutdown(cancel_futures=True)
        for run in intermediate:
            run.unlink(missing_ok=True)


def _unless_stopped(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        if STOP.is_set():
            raise Stopped("stopped")
        yield batch


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
        folder = at(folder)
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
        return sum(int(part["rows"]) for part in read_json(self.folder / "manifest.json")["parts"])

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The table's rows as batches of (word, source number in the order of `sources`, count), part by part."""
        for part in self.parts:
            yield from _read_part(part, list(self.sources))


def word_starts(words: pa.Array) -> Any:
    """The rows of a batch at which another word begins, as numpy indices: the rows of one word stand together."""
    others = to_numpy(pc.indices_nonzero(pc.not_equal(words[1:], words[:-1]))).astype(np.int64) + 1
    return np.append(0, others)[: len(words)]


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


def add_tables(tables: Sequence[CountTable], folder: RunPath) -> CountTable:
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
        parts.append(_write_part(folder, partition, merger, sources))
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
    write(folder / "manifest.json", to_json(values))
    return CountTable.open(folder)


def _read_part(path: RunPath, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """A part's rows as batches of (word, source number in the order of `names`, count)."""
    order = of_texts(names)
    with pq.ParquetFile(opened(path), read_dictionary=["source"], page_checksum_verification=True) as parquet:
        for batch in parquet.iter_batches(batch_size=ROW_GROUP_ROWS >> 3):
            source = batch.column("source")
            numbers = pc.index_in(source.dictionary, value_set=order).cast(pa.uint32())
            column = pc.take(numbers, source.indices)
            yield pa.record_batch([batch.column("word"), column, batch.column("count")], schema=RUN_SCHEMA)


def _write_part(folder: RunPath, partition: int, merger: _core.Merger, sources: Sequence[str]) -> dict[str, Any]:
    """Write merged rows as a part, as `merge_part` does."""
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
            for table in _row_groups(_unless_stopped(merger)):
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
