"""The count table: word x source -> 64-bit count, counted shard by shard, merged from sorted spills, kept as Parquet.

A shard is counted into bounded native tables. Full tables leave as *spills*: files of Arrow batches sorted by
(partition, word, source), staged in the run folder. A commit file names a shard's spills and the checksum of each
batch; the first attempt to create it wins, later ones are litter. One merge a partition then makes one Parquet part,
sorted by (word, source), in memory that depends on the number of spills and not on the number of words; it has a
commit, too.
"""

import dataclasses
import fnmatch
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from dist_bpe import _core, memory
from dist_bpe.arrays import of_bytes, of_numpy
from dist_bpe.corpus.documents import Skipped
from dist_bpe.corpus.shard import Shard
from dist_bpe.counting.options import CountOptions
from dist_bpe.counting.spills import SpillSlice, end_of_spill, raise_damaged, read_slice, write_spill
from dist_bpe.counting.table import write_part
from dist_bpe.engine.base import STOP
from dist_bpe.errors import DataError, Stopped
from dist_bpe.pretokenize.checks import resolve
from dist_bpe.pretokenize.patterns import Pattern, PatternTimeoutError
from dist_bpe.progress import peak_memory_bytes
from dist_bpe.storage.files import RunPath, create_if_absent, sealed, sha256, sizes, unsealed
from dist_bpe.storage.places import THREADS, in_threads

# Runs merged at once. Each holds one batch of at most 65,536 words in memory, about 2 MB.
FAN_IN = 64


@dataclass(frozen=True)
class CountTask:
    """Count one shard, or a piece of it. Everything a worker needs, and nothing that does not pickle."""

    shard: Shard
    staging: RunPath
    options: CountOptions
    table_bytes: int
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


@dataclass(frozen=True)
class MergeTask:
    """Merge one partition's slices into a Parquet part in `staging`."""

    partition: int
    slices: tuple[SpillSlice, ...]
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
        """A merge takes memory by the number of spills, not by their size: smaller ones would not help."""
        return []


def count_shard(task: CountTask) -> dict[str, Any]:
    """Count one shard into committed spills and return the commit: {key, sources, totals, skipped, runs, …}.

    Any number of attempts of one shard may run, one after the other or at once: the commit that was created first
    holds, and every attempt returns that one.

    Raises:
        DataError: a text is not UTF-8, or the file cannot be read; names file, row and byte.
    """
    staging = task.staging
    commit = staging / f"{task.name}.json"
    held = unsealed(commit)
    if held and held["key"] == list(task.key):
        return held
    attempt = uuid.uuid4().hex[:12]
    options = task.options
    pattern = resolve(options.pattern)
    names = task.shard.sources()
    number = {name: i for i, name in enumerate(names)}
    nulls = [0] * len(names)
    counter = _core.Counter(
        len(names),
        pattern.name if pattern.native else None,
        options.special_texts,
        normalization=options.normalization,
        max_word_bytes=options.max_word_bytes,
    )
    runs: list[dict[str, Any]] = []

    def spill() -> None:
        path = staging / f"{task.name}-{attempt}-{len(runs)}.run"
        runs.append({"file": path.name, "partitions": {}})
        runs[-1]["partitions"] = write_spill(path, counter.drain(options.partitions))

    def sweep() -> None:
        for run in runs:
            (staging / run["file"]).unlink(missing_ok=True)

    skipped = Skipped()

    def count() -> None:
        # The counter checks each text as it counts it.
        for name, texts, row in task.shard.batches(skipped, check_utf8=False):
            if STOP.is_set():
                raise Stopped("stopped")
            if name not in number:
                raise DataError(
                    f"{task.shard}: the group {name!r} was not there before: the input changes while it is read."
                )
            source = number[name]
            nulls[source] += texts.null_count
            counter.count(source, texts)
            if not pattern.native:
                try:
                    _count_custom(counter, source, texts, pattern, options)
                except PatternTimeoutError as error:
                    raise DataError(f"{task.shard}, in the texts from place {row:,} on: {error}") from error
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
        raise DataError(
            f"{task.shard}: a text is not UTF-8, but was when it was read again: the input changes while it is read."
        ) from None
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
    return unsealed(commit) or raise_damaged(commit, commit)


def committed(staging: RunPath) -> list[dict[str, Any]]:
    """The commits of shards in a staging folder, whole ones before pieces. Those that do not hold are removed.

    A commit is of the shard that its file is named after, and so are the runs that it names. These are checked for
    their size here, and for their content when they are merged.
    """

    def holds(name: str, commit: dict[str, Any]) -> bool:
        key = list(commit["key"])
        own = f"shard-{key[0]:06}" + "".join(f".{piece:02}" for piece in key[1:])
        files = {run["file"]: end_of_spill(run) for run in commit["runs"]}
        return name == f"{own}.json" and all(
            file.rsplit("-", 2)[0] == own and there.get(file) == size for file, size in files.items()
        )

    found = []
    there = sizes(staging)
    names = sorted(name for name in there if fnmatch.fnmatchcase(name, "shard-*.json"))
    paths: list[RunPath] = [staging / name for name in names]
    read: Iterator[dict[str, Any] | None] = in_threads(unsealed, paths)
    for path, commit in zip(paths, read, strict=True):
        if commit and holds(path.name, commit):
            found.append(commit)
        else:
            path.unlink(missing_ok=True)
    return sorted(found, key=lambda commit: (len(commit["key"]), commit["key"]))


def merged(staging: RunPath, folder: RunPath) -> list[dict[str, Any]]:
    """The commits of parts in a staging folder or moved to `folder`. Those that do not hold are removed.

    A commit is of the part that its file is named after, and so is the Parquet file that it names.
    """
    found = []
    paths: list[RunPath] = list(staging.glob("part-*.json"))
    for path in sorted(paths, key=str):
        part = unsealed(path)
        name = path.name.removesuffix(".json")
        own = part and name == f"part-{part['partition']:05}" and part["file"].startswith(f"{name}-")
        places = [where / part["file"] for where in (staging, folder)] if part and own else []
        if part and any(place.exists() and sha256(place) == part["sha256"] for place in places):
            found.append(part)
        else:
            path.unlink(missing_ok=True)
    return found


def _count_custom(
    counter: _core.Counter, source: int, texts: pa.Array, pattern: Pattern, options: CountOptions
) -> None:
    # The words of a custom pattern are Python objects, since the `regex` module makes them; a table for each batch
    # keeps the crossing into the native one down to unique words.
    words: Counter[str] = Counter()
    for text in texts.cast(pa.large_string()).drop_null().to_pylist():
        for piece in _core.cut(text, options.special_texts) if options.special_tokens else (text,):
            words.update(
                pattern.pieces(_core.normalize(piece, options.normalization) if options.normalization else piece)
            )
    del words[""]
    counts = np.fromiter(words.values(), np.uint64, len(words))
    counter.add_words(source, of_bytes(list(map(str.encode, words))), of_numpy(counts))


def merge_tasks(
    commits: Sequence[dict[str, Any]], staging: RunPath, options: CountOptions, fan_in: int = FAN_IN
) -> list[MergeTask]:
    """The tasks that turn committed spills into parts, one a partition, whatever the order of the commits."""
    sources = tuple(sorted({name for commit in commits for name in commit["sources"]}))
    number = {name: i for i, name in enumerate(sources)}
    tasks = []
    for partition in range(options.partitions):
        slices = tuple(
            SpillSlice(
                staging / run["file"],
                staging / f"{run['file'].rsplit('-', 2)[0]}.json",
                tuple((offset, size, checksum) for offset, size, checksum in frames),
                tuple(number[name] for name in commit["sources"]),
            )
            for commit in sorted(commits, key=lambda commit: commit["key"])
            for run in commit["runs"]
            if (frames := run["partitions"].get(str(partition)))
        )
        tasks.append(MergeTask(partition, slices, sources, options.min_word_count, staging, fan_in))
    return tasks


def merge_part(task: MergeTask) -> dict[str, Any]:
    """Merge sorted spills into one Parquet part and return its commit; tallies are one a source.

    The commit is {partition, file, rows, sha256, tallies, …}. The name `file` follows from the content, so that two
    attempts leave one file, and a part of another table never takes its place.

    Raises:
        CountOverflowError: the counts of one word add up to more than 2^64 - 1.
        DamagedRunError: a spill is not what was written.
    """
    staging = task.staging
    commit = staging / f"part-{task.partition:05}.json"
    attempt = uuid.uuid4().hex[:12]
    intermediate: list[RunPath] = []
    slices = list(task.slices)
    pool = ThreadPoolExecutor(THREADS, thread_name_prefix="dist-bpe-merge")
    try:
        # Levels: with more spills than can be open at once, groups of them become longer ones first. The first group is
        # just as large as makes all later ones full, and each takes the smallest: the least is written twice.
        fan_in = memory.fan_in_of_files(task.fan_in)
        while len(slices) > fan_in:
            slices.sort(key=lambda run: sum(size for _, size, _ in run.frames))
            number = (len(slices) - fan_in - 1) % (fan_in - 1) + 2
            group, slices = slices[:number], slices[number:]
            merger = _core.Merger([read_slice(run, pool) for run in group], len(task.sources), 0)
            longer = staging / f"merge-{task.partition:05}-{attempt}-{len(intermediate)}.run"
            intermediate.append(longer)
            batches = ((task.partition, batch) for batch in _unless_stopped(merger))
            frames = write_spill(longer, batches).get(str(task.partition), [])
            slices.append(SpillSlice(longer, longer, tuple(map(tuple, frames)), tuple(range(len(task.sources)))))
        merger = _core.Merger([read_slice(run, pool) for run in slices], len(task.sources), task.min_word_count)
        part = write_part(staging, task.partition, _unless_stopped(merger), merger, task.sources)
        result = {**part, "partition": task.partition, "peak_bytes": peak_memory_bytes()}
        if create_if_absent(commit, sealed(result)):
            return result
        return unsealed(commit) or raise_damaged(commit, commit)
    finally:
        pool.shutdown(cancel_futures=True)
        for run in intermediate:
            run.unlink(missing_ok=True)


def _unless_stopped(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        if STOP.is_set():
            raise Stopped("stopped")
        yield batch
