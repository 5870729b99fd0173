"""Spills, the sorted pieces of a table on their way: written by one task, read and checked by another."""

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dist_bpe.arrays import of_numpy
from dist_bpe.errors import DamagedRunError
from dist_bpe.storage.bucket import BucketPath
from dist_bpe.storage.files import NewFile, RunPath, digest, flush, put, ranges, scratch

SPILL_SCHEMA = pa.schema([("word", pa.binary()), ("source", pa.uint32()), ("count", pa.uint64())])


# Where a batch lies in a run file: offset, bytes, checksum.
Frame = tuple[int, int, str]


@dataclass(frozen=True)
class SpillSlice:
    """The batches of one partition inside one run file, and its source numbers as numbers of the whole table."""

    path: RunPath
    commit: RunPath
    frames: tuple[Frame, ...]
    sources: tuple[int, ...]


def write_spill(path: RunPath, batches: Iterable[tuple[int, pa.RecordBatch]]) -> dict[str, list[list[Any]]]:
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
                with pa.ipc.new_stream(sink, SPILL_SCHEMA, options=options) as writer:
                    writer.write_batch(batch)
                data = sink.getvalue()
                index.setdefault(str(partition), []).append([file.tell(), len(data), digest(data)])
                file.write(data)
        if isinstance(path, Path):
            flush(path)
        else:
            put(local, path)
    return index


def raise_damaged(path: RunPath, commit: RunPath) -> NoReturn:
    """Take back the commit that names a damaged file, so that its shard is counted again, and say so.

    Raises:
        DamagedRunError: always.
    """
    commit.unlink(missing_ok=True)
    raise DamagedRunError(f"{path} is damaged or gone: what it held is counted again.")


def end_of_spill(run: dict[str, Any]) -> int:
    """The bytes that a spill's file has, from its index."""
    return max(int(frames[-1][0] + frames[-1][1]) for frames in run["partitions"].values())


def read_slice(run: SpillSlice, pool: ThreadPoolExecutor) -> Iterator[pa.RecordBatch]:
    """The batches of a slice, with source numbers of the whole table.

    Raises:
        DamagedRunError: the file is gone, or a batch is not what was written.
    """
    mapping = of_numpy(np.array(run.sources, np.uint32))
    # Asked for at once, and not when the merge comes to it: the first batches of all spills are on their way together.
    ahead = _fetched(run, pool)

    def batches() -> Iterator[pa.RecordBatch]:
        try:
            for (_, _, checksum), data in zip(run.frames, ahead, strict=True):
                if digest(data) != checksum:
                    raise_damaged(run.path, run.commit)
                batch = pa.ipc.open_stream(data).read_next_batch()
                yield batch.set_column(1, "source", pc.take(mapping, batch.column(1)))
        except FileNotFoundError:
            raise_damaged(run.path, run.commit)

    return batches()


def _fetched(run: SpillSlice, pool: ThreadPoolExecutor) -> Iterator[bytes]:
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
    path: BucketPath, frames: Sequence[tuple[int, int]], pool: ThreadPoolExecutor, first: "Future[bytes]"
) -> Iterator[bytes]:
    ahead = first
    for offset, size in frames[1:]:
        data = ahead.result()
        ahead = pool.submit(path.read_range, offset, size)
        yield data
    yield ahead.result()
