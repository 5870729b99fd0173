"""Runs that were stopped: the same command goes on, another one is refused, and one driver works at a time."""

import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
from conftest import SMALL, Writer
from helpers import hashes, quiet, stop_after
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test

import dist_bpe
from dist_bpe import errors
from dist_bpe.counting.tasks import CountTask, MergeTask, merge_part
from dist_bpe.counting.tasks import count_shard as tasks_count_shard
from dist_bpe.options import build
from dist_bpe.progress import Progress
from dist_bpe.run.config import RunConfig
from dist_bpe.run.count import run_count
from dist_bpe.run.train import train as train_train


def test_the_same_call_goes_on_with_any_number_of_workers(
    source: dist_bpe.Source, clean: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = tmp_path / "run"
    counted: list[object] = []
    for shards, workers in ((1, 1), (2, 3), (0, 2)):
        stop_after(monkeypatch, shards)
        with pytest.raises(KeyboardInterrupt):
            quiet(source, output=output, workers=workers, **SMALL)
        assert not (output / "counts").exists()
        counted = sorted(path.name for path in output.glob("staging/*/shard-*.json"))
        assert counted
    real = tasks_count_shard
    again: list[str] = []

    def count_shard(task: CountTask) -> dict[str, object]:
        again.append(f"{task.name}.json")
        return real(task)

    monkeypatch.setattr("dist_bpe.run.count.count_shard", count_shard)
    table = quiet(source, output=output, workers=2, **SMALL)
    assert hashes(table.folder) == clean
    assert not set(again) & set(counted)
    assert {path.name for path in output.iterdir()} == {"counts", "lease", "plan.json", "report.json"}
    # And once more: there is nothing to do.
    again.clear()
    assert quiet(source, output=output, **SMALL).digest == table.digest
    assert not again


def test_a_change_of_what_counts_is_refused_and_named(
    source: dist_bpe.Source, tmp_path: Path, write: Writer, documents: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    output = tmp_path / "run"
    stop_after(monkeypatch, 2)
    with pytest.raises(KeyboardInterrupt):
        quiet(source, output=output, **SMALL)

    def refused(match: str, given: dist_bpe.Source = source, **options: object) -> None:
        with pytest.raises(errors.RunError, match=match):
            quiet(given, output=output, **SMALL | options)
        assert len(list(output.glob("staging/*/shard-*.json"))) == 2

    refused("pattern was .* and is .*--restart", pattern="cl100k")
    refused(r"special_tokens was .*endoftext.* and is \[\]", special_tokens=[])
    refused("partitions was 3 and is 4", partitions=4)
    refused("min_word_count was 1 and is 2", min_word_count=2)
    refused("shard_bytes was 2000 and is 3000", shard_bytes=3000)
    refused("s is gone; t is new", dist_bpe.Source("t", source.paths))
    refused("s sample_fraction was 1.0 and is 0.5", dist_bpe.Source("s", source.paths, sample_fraction=0.5))
    refused(r"b.parquet is gone", dist_bpe.Source("s", str(tmp_path / "in" / "a.parquet")))
    quiet(source, output=tmp_path / "other", workers=3, table_bytes=1 << 21, **SMALL)  # these change nothing
    os.utime(tmp_path / "in" / "b.parquet", (1, 1))
    refused(r"b.parquet modified was '2\d{3}-.*Z' and is '1970-01-01T00:00:01.000Z'")
    write("in/b.parquet", documents[150:200])
    refused(r"b.parquet size was \d+ and is \d+")
    table = quiet(source, output=output, restart=True, **SMALL)
    assert table.sources["s"].documents == 200
    with pytest.raises(errors.RunError, match=r"holds a count table already of another run.*pattern was.*--overwrite"):
        quiet(source, output=output, pattern="cl100k", **SMALL)
    assert quiet(source, output=output, pattern="cl100k", overwrite=True, **SMALL).pattern == "cl100k"


def test_policies_may_be_relaxed(tmp_path: Path, write: Writer, documents: list[str]) -> None:
    write("in/a.parquet", documents[:150])
    (tmp_path / "in" / "b.jsonl").write_bytes(b'{"text": "good"}\n{"text": "b\xffd"}\n')
    paths = str(tmp_path / "in")
    strict = dist_bpe.Source("s", [f"{paths}/a.parquet", f"{paths}/b.jsonl"])
    relaxed = dist_bpe.Source("s", strict.paths, on_bad_row="skip")
    clean = quiet(relaxed, output=tmp_path / "clean", **SMALL)
    with pytest.raises(errors.DataError, match=r"b.jsonl: line 2"):
        quiet(strict, output=tmp_path / "run", **SMALL)
    assert list((tmp_path / "run").glob("staging/*/shard-*.json"))
    assert hashes(quiet(relaxed, output=tmp_path / "run", **SMALL).folder) == hashes(clean.folder)
    with pytest.raises(errors.RunError, match="policies s on_bad_row was 'skip' and is 'error'"):
        quiet(strict, output=tmp_path / "run", **SMALL)


@pytest.mark.parametrize("what", ["a flipped byte", "cut short", "gone", "a damaged commit", "a damaged part"])
def test_damaged_staging_is_made_again(
    what: str, source: dist_bpe.Source, clean: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = tmp_path / "run"
    with monkeypatch.context() as patch:
        patch.setattr("dist_bpe.run.count.publish_table", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            quiet(source, output=output, **SMALL)
    (staging,) = (output / "staging").iterdir()
    if what != "a damaged part":
        for part in staging.glob("part-*"):
            part.unlink()
    kind = {"a damaged commit": "shard-*.json", "a damaged part": "part-*.parquet"}.get(what, "shard-*.run")
    path = sorted(staging.glob(kind))[1]
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data[:-1] if what == "cut short" else data)
    if what == "gone":
        path.unlink()
    assert hashes(quiet(source, output=output, **SMALL).folder) == clean


def test_what_this_driver_made_itself_is_not_told_as_resumed(
    source: dist_bpe.Source, clean: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Damage is found when a part was merged already: neither its shards nor that part are an earlier driver's."""
    real, merged = merge_part, []

    def damaging(task: MergeTask) -> dict[str, object]:
        if len(merged) == 1:
            merged.append(task.partition)
            path = next(run.path for run in task.slices)
            assert isinstance(path, Path)
            path.write_bytes(bytes(path.stat().st_size))
        merged.append(task.partition)
        return real(task)

    monkeypatch.setattr("dist_bpe.run.count.merge_part", damaging)
    told: list[tuple[str, dict[str, object]]] = []
    steps = Progress("silent")
    steps.listeners.append(lambda event, fields: told.append((event, fields)))
    sources = [{"name": "s", "paths": source.paths}]
    values = {"sources": sources, "output": str(tmp_path / "run"), "engine": {"engine": "local", "workers": 1}}
    config = build(RunConfig, values | {"count": SMALL})
    table = run_count(config, steps).table
    assert len(merged) > 4  # three parts, one of them again
    assert hashes(table.folder) == clean  # type: ignore[arg-type]
    assert not [fields for event, fields in told if event == "run_resumed"]


def test_credentials_stay_out_of_the_plan(write: Writer, tmp_path: Path, documents: list[str]) -> None:
    write("in/a.parquet", documents)
    import fsspec

    memory = fsspec.filesystem("memory")
    memory.pipe("/corpus/a.parquet", (tmp_path / "in" / "a.parquet").read_bytes())
    source = dist_bpe.Source("s", "memory://corpus/a.parquet?token=veiled-secret")
    quiet(source, output=tmp_path / "run")
    plan = json.loads((tmp_path / "run" / "plan.json").read_bytes())
    assert any("corpus/a.parquet" in path for path in plan["files"])
    for file in (tmp_path / "run").rglob("*"):
        assert not file.is_file() or b"veiled-secret" not in file.read_bytes()


def test_learning_is_free_and_goes_on_from_the_counts(
    source: dist_bpe.Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def train(size: int, **more: object) -> Any:
        values = {
            "sources": [{"name": "s", "paths": source.paths}],
            "output": str(tmp_path / "run"),
            "count": SMALL,
            "learn": {"vocab_size": size, **more},
            "engine": {"engine": "local", "workers": 1},
            "verify": False,
        }
        return train_train(build(RunConfig, values), Progress("silent"))

    stop_after(monkeypatch, 2)
    with pytest.raises(KeyboardInterrupt):
        train(400)
    with monkeypatch.context() as patch:
        patch.setattr("dist_bpe.run.learn.learn_merges", lambda *_, **__: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            train(450, min_pair_count=3)  # goes on with the count, and is stopped while it learns
    monkeypatch.setattr("dist_bpe.run.count.count_shard", None)  # nothing is counted any more
    assert len(train(500).vocabulary or ()) == 500
    assert sorted(path.name for path in (tmp_path / "run" / "vocabularies").iterdir()) == ["500"]


def test_outputs_that_are_no_folder_are_refused(source: dist_bpe.Source, tmp_path: Path) -> None:
    with pytest.raises(errors.UsageError, match="hdfs://host/run cannot hold a run: name a folder") as caught:
        quiet(source, output="hdfs://key:veiled@host/run")
    assert "veiled" not in str(caught.value)
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(errors.UsageError, match="file is a file; name a folder"):
        quiet(source, output=tmp_path / "file")


def test_a_full_disk_is_waited_for_then_named(
    source: dist_bpe.Source, clean: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Field case 32, and storage that answers with an error for a while."""
    import errno

    monkeypatch.setattr("dist_bpe.storage.files.FIRST_WAIT_SECONDS", 0.001)
    failures = 5

    def full(name: str, path: Path) -> None:
        nonlocal failures
        if name == "write" and path.suffix == ".run" and failures:
            failures -= 1
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("dist_bpe.storage.files.inject", full)
    assert hashes(quiet(source, output=tmp_path / "passes", **SMALL).folder) == clean
    assert failures == 0
    monkeypatch.setattr("dist_bpe.storage.files.RETRY_SECONDS", 0.05)
    failures = 10**9
    with pytest.raises(errors.RunError, match=r"\.run: write failed.*No space left.*the same command goes on"):
        quiet(source, output=tmp_path / "run", **SMALL)
    failures = 0
    assert hashes(quiet(source, output=tmp_path / "run", **SMALL).folder) == clean


def test_a_shard_that_keeps_failing_is_split_then_named(
    source: dist_bpe.Source, clean: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Field cases 29 and 38: attempts are bounded, then smaller slices, then a stop with the first cause."""
    # A row group cannot be entered in the middle: the shards hold several.
    real = tasks_count_shard
    tried: list[tuple[int, ...]] = []
    hopeless = False

    def count_shard(task: CountTask) -> dict[str, object]:
        tried.append(task.key)
        if task.key == (1,) or (hopeless and task.key[0] == 1):
            raise MemoryError(f"attempt {len(tried)}: no 3 GB left")
        return real(task)

    monkeypatch.setattr("dist_bpe.run.count.count_shard", count_shard)
    assert hashes(quiet(source, output=tmp_path / "run", partitions=3, shard_bytes=10_000).folder) == clean
    assert tried.count((1,)) == 3
    assert len([key for key in tried if len(key) == 2]) > 1
    hopeless = True
    with pytest.raises(errors.RunError, match=r"shard 1 \(.*parquet, rows .*failed 3 times.*first cause: MemoryError"):
        quiet(source, output=tmp_path / "stopped", partitions=3, shard_bytes=10_000)
    assert list((tmp_path / "stopped").glob("staging/*/shard-*.json"))
    hopeless = False
    assert hashes(quiet(source, output=tmp_path / "stopped", partitions=3, shard_bytes=10_000).folder) == clean


class Runs(RuleBasedStateMachine):
    """Count, stop, go on, change options, inputs and workers, begin anew: in any order, against a model."""

    texts = ("one two three", "drei zwei eins zwei", "один два", "x1 y2 z3 " * 5)

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.begun: tuple[object, ...] | None = None  # what the unfinished run was begun with, and shards it has
        self.done: tuple[object, ...] | None = None  # what the table was made of
        self.shards = 0
        self.clean: dict[tuple[object, ...], dict[str, str]] = {}
        (self.folder / "in").mkdir()
        self.inputs = -1
        self.change_inputs(0)

    def teardown(self) -> None:
        shutil.rmtree(self.folder)

    @rule(inputs=st.integers(0, 1))
    def change_inputs(self, inputs: int) -> None:
        if inputs != self.inputs:
            for i, text in enumerate(self.texts):
                path = self.folder / "in" / f"{i}.txt"
                path.write_text(text * (2 if i == inputs else 1))
                os.utime(path, (inputs, inputs))
        self.inputs = inputs

    def count(self, output: str, pattern: str, partitions: int, **options: object) -> Path:
        source = dist_bpe.Source("s", str(self.folder / "in"))
        options |= {"pattern": pattern, "partitions": partitions, "shard_bytes": 1}
        return quiet(source, output=self.folder / output, **options).folder

    @rule(
        pattern=st.sampled_from(["gpt2", "gpt2", "cl100k"]),
        partitions=st.sampled_from([2, 2, 3]),
        workers=st.integers(1, 3),
        stop=st.sampled_from([None, 0, 1, 2]),
        force=st.sampled_from(["", "", "", "restart", "overwrite"]),
    )
    def run(self, pattern: str, partitions: int, workers: int, stop: int | None, force: str) -> None:
        wanted = (pattern, partitions, self.inputs)
        options: dict[str, object] = {"workers": workers} | ({force: True} if force else {})
        refused = (self.begun not in (None, wanted) and force != "restart") or (
            self.begun is None and self.done not in (None, wanted) and not force
        )
        if refused:
            with pytest.raises(errors.RunError, match=r"with --restart|--overwrite"):
                self.count("run", pattern, partitions, **options)
            return
        if self.begun != wanted or force == "restart":
            self.shards = 0
        nothing_to_do = self.begun is None and self.done == wanted and not force
        with pytest.MonkeyPatch.context() as patch:
            if stop is not None and stop < len(self.texts) - self.shards and not nothing_to_do:
                stop_after(patch, stop)
                with pytest.raises(KeyboardInterrupt):
                    self.count("run", pattern, partitions, **options)
                # With more threads than one, others may finish their shard meanwhile.
                self.shards = len(list(self.folder.glob("run/staging/*/shard-*.json")))
                self.begun = wanted if self.shards else None
                return
            folder = self.count("run", pattern, partitions, **options)
        if wanted not in self.clean:
            self.clean[wanted] = hashes(self.count(f"clean{len(self.clean)}", pattern, partitions))
        assert hashes(folder) == self.clean[wanted]
        self.begun, self.done, self.shards = None, wanted, 0


def test_any_order_of_stops_changes_and_workers() -> None:
    run_state_machine_as_test(Runs, settings=settings(max_examples=8, stateful_step_count=8, deadline=None))


@pytest.mark.faults
def test_any_order_of_stops_changes_and_workers_at_length() -> None:
    run_state_machine_as_test(Runs, settings=settings(max_examples=150, stateful_step_count=20, deadline=None))
