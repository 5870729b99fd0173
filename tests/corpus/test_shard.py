"""A file may not change while it is read: compared before and after, whatever the policies."""

import errno
import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers import hashes, quiet

from dist_bpe.corpus.documents import Skipped
from dist_bpe.corpus.plan import plan
from dist_bpe.corpus.source import Source
from dist_bpe.errors import DataError, RunError
from dist_bpe.storage.places import File

OLD, NEW = ["old words of a file"] * 50, ["new words of a file"] * 50


def put(path: Path, texts: list[str]) -> None:
    if path.suffix == ".parquet":
        pq.write_table(pa.table({"text": texts}), path, row_group_size=10)
    elif path.suffix == ".arrow":
        with pa.ipc.new_file(str(path), pa.schema([("text", pa.string())])) as writer:
            writer.write_table(pa.table({"text": texts}), max_chunksize=10)
    elif path.suffix == ".jsonl":
        path.write_text("".join(f'{{"text": "{text}"}}\n' for text in texts))
    else:
        path.write_text("\n".join(texts))


@pytest.mark.parametrize("name", ["a.parquet", "a.arrow", "a.jsonl", "a.txt"])
@pytest.mark.parametrize("policy", ["error", "skip"])
def test_a_file_rewritten_at_equal_size_stops_the_run(tmp_path: Path, name: str, policy: str) -> None:
    path = tmp_path / name
    put(path, OLD)
    size = path.stat().st_size
    source = Source("s", str(path), on_bad_file=policy, on_bad_row="skip" if policy == "skip" else "error")  # type: ignore[arg-type]
    shard = plan([source]).shards[0]
    put(path, NEW)
    os.utime(path, ns=(1, 1))
    assert path.stat().st_size == size
    with pytest.raises(DataError, match=rf"{name} was changed after the run was planned.*--restart"):
        list(shard.batches(Skipped()))
    # While it is read: the first batch is out already.
    shard = plan([source]).shards[0]
    batches = shard.batches(Skipped())
    next(batches)
    put(path, OLD)
    with pytest.raises(DataError, match=rf"{name} was changed"):
        list(batches)


def test_a_table_of_old_and_new_words_is_never_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.jsonl"
    put(path, OLD)
    from dist_bpe.counting import tasks

    real = tasks.count_shard
    calls = []

    def count_shard(task: tasks.CountTask) -> dict[str, object]:
        calls.append(task)
        if len(calls) == 3:
            put(path, NEW)
            os.utime(path, ns=(1, 1))
        return real(task)

    monkeypatch.setattr("dist_bpe.run.count.count_shard", count_shard)
    with pytest.raises(DataError, match=r"a\.jsonl was changed"):
        quiet(Source("s", str(path)), output=tmp_path / "run", shard_bytes=200)
    assert len(calls) == 3
    assert not (tmp_path / "run/counts").exists()


def test_a_footer_is_compared_where_times_tell_nothing(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    put(path, OLD)
    then = path.stat().st_mtime_ns
    shard = plan([Source("s", str(path))]).shards[0]
    put(path, NEW)
    os.utime(path, ns=(then, then))
    with pytest.raises(DataError, match=r"a\.parquet was changed after the run was planned: it has another footer"):
        list(shard.batches())
    put(path, OLD)
    os.utime(path, ns=(then, then))
    assert sum(len(batch.texts) for batch in shard.batches()) == 50


def test_a_file_that_shrinks_while_it_is_read_ends_no_process(tmp_path: Path) -> None:
    path = tmp_path / "a.arrow"
    put(path, ["word " * 1000] * 2000)
    batches = plan([Source("s", str(path))]).shards[0].batches()
    next(batches)
    os.truncate(path, 1000)
    with pytest.raises(DataError, match=r"a\.arrow has 1,000 bytes, but had"):
        list(batches)


@pytest.mark.parametrize("name", ["a.parquet", "a.jsonl", "a.txt"])
def test_a_failing_disk_is_no_damage_of_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """No policy leaves a good file out for it: the shard is tried again, and then the run stops."""
    put(tmp_path / name, OLD)
    source = Source("s", str(tmp_path / name), on_bad_file="skip", on_bad_row="skip")
    clean = hashes(quiet(source, output=tmp_path / "clean").folder)
    opened, left = File.open, [0]

    def failing(self: File, *arguments: object) -> object:
        if left[0]:
            left[0] -= 1
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return opened(self, *arguments)

    monkeypatch.setattr(File, "open", failing)
    shard = plan([source]).shards[0]
    left[0] = 1
    with pytest.raises(OSError, match="Input/output error"):
        list(shard.batches(Skipped()))
    left[0] = 1
    with pytest.raises(DataError, match=f"{name} cannot be read, through no fault of its own: .*Input/output error"):
        plan([source])
    monkeypatch.setattr("dist_bpe.run.count.plan", lambda *arguments: (plan(*arguments), left.__setitem__(0, 2))[0])
    assert hashes(quiet(source, output=tmp_path / "run").folder) == clean
    monkeypatch.setattr("dist_bpe.run.count.plan", lambda *arguments: (plan(*arguments), left.__setitem__(0, 99))[0])
    with pytest.raises(RunError, match=r"failed 3 times.*Input/output error"):
        quiet(source, output=tmp_path / "other")
