"""Faults in whole runs: a crash at every step that touches the disk, workers and nodes killed and frozen.

The short ones run in `make test`, all of them in `make test-faults`.
"""

import errno
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import Writer
from helpers import DRIVER, NODE, events_of, finished, hashes, quiet

import dist_bpe

# A process of its own, so that each crash is a real end of a process (by fork: importing takes longer than the run).
# `limit` steps are done, and at the next one the process is gone, as by kill -9: before it, or half way in a write.
CRASHER = """
import os, sys
import dist_bpe
from dist_bpe.run import count  # before the forks, since importing takes longer than a run
from dist_bpe.storage import files
source, output, seed = sys.argv[1:4]
def run():
    dist_bpe.count(dist_bpe.Source("s", source), output=output, engine="local", workers=1, progress="silent",
                   shard_bytes=9000, partitions=2)
def crash_at(limit):
    done = 0
    write = os.pwrite
    def inject(name, path):
        nonlocal done
        done += 1
        if done > limit:
            if name == "write":
                os.pwrite = lambda fd, data, at: (write(fd, data[:len(data) // 2], at), os._exit(9))
            else:
                os._exit(9)
    files.inject = inject
for limit in map(int, sys.stdin):
    child = os.fork()
    if not child:
        try:
            crash_at(limit)
            run()
            os._exit(0)
        except BaseException as error:
            print(error, file=sys.stderr)
            os._exit(1)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


class Crasher:
    """Runs of one corpus into one folder, each crashed after a number of steps."""

    def __init__(self, source: Path, output: Path) -> None:
        command = [sys.executable, "-W", "ignore", "-c", CRASHER, str(source), str(output), "0"]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def run(self, steps: int) -> int:
        """The exit code: 9 after a crash, 0 when it ended before."""
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(f"{steps}\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())

    def close(self) -> None:
        self._process.communicate()


def crash_and_resume(write: Writer, tmp_path: Path, documents: list[str], every: int) -> None:
    write("in/a.parquet", documents[:100])
    clean = hashes(quiet(dist_bpe.Source("s", str(tmp_path / "in")), output=tmp_path / "clean", partitions=2).folder)
    output = tmp_path / "run"
    crasher = Crasher(tmp_path / "in", output)
    steps = 0
    while crasher.run(steps) == 9:
        assert not (output / "counts" / "manifest.json").exists() or hashes(output / "counts") == clean
        assert crasher.run(10**9) == 0
        assert hashes(output / "counts") == clean, f"after a crash at step {steps}"
        assert {path.name for path in output.iterdir()} == {"counts", "lease", "plan.json", "report.json"}
        shutil.rmtree(output)
        steps += every
    assert steps > 60
    # And a run that is crashed every few steps, again and again, comes to its end, too.
    rng = random.Random(every)
    for _ in range(200):
        if (code := crasher.run(rng.randint(12, 25))) != 9:
            break
    assert code == 0
    assert hashes(output / "counts") == clean
    crasher.close()


def test_a_crash_at_some_steps(write: Writer, tmp_path: Path, documents: list[str]) -> None:
    """Field case 33."""
    crash_and_resume(write, tmp_path, documents, every=7)


@pytest.mark.faults
def test_a_crash_at_every_write_rename_and_fsync(write: Writer, tmp_path: Path, documents: list[str]) -> None:
    crash_and_resume(write, tmp_path, documents, every=1)


def descendants(pid: int) -> list[int]:
    """A process and all below it."""
    below = [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return [pid, *(process for child in below for process in descendants(child))]


def workers_of(node: Any) -> list[int]:
    """The processes of a node that work on a task of ours."""
    found = descendants(node.all_processes["raylet"][0].process.pid)
    return [pid for pid in found if b"dist_bpe." in Path(f"/proc/{pid}/cmdline").read_bytes()]


def harm_a_run(
    cluster: Any, write: Writer, tmp_path: Path, when: str, harm: Callable[[list[Any]], None] | None
) -> list[dict[str, Any]]:
    """Harm the nodes, or kill the driver and start another, once some shards or parts are finished: the same bytes.

    Returns what the driver told.
    """
    rng = random.Random(2)
    write("in/a.parquet", [" ".join(f"{rng.randrange(30_000):x}" for _ in range(4_000)) for _ in range(120)], 5)
    partitions = 40 if when == "part" else 4
    clean = quiet(
        dist_bpe.Source("s", str(tmp_path / "in")),
        output=tmp_path / "clean",
        pattern=r"[a-z]+|[0-9]+|\s",
        partitions=partitions,
    )
    nodes = [cluster.add_node(num_cpus=1, **NODE) for _ in range(2)]
    output = tmp_path / "run"
    command = [sys.executable, "-c", DRIVER, str(tmp_path / "in"), str(output), cluster.address, str(partitions)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        while finished(output, when) < 2:
            time.sleep(0.02)
            assert process.poll() is None, process.communicate()[1]
        if harm:
            harm(nodes)
        else:
            process.kill()
            process.wait()
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        printed, text = process.communicate(timeout=200)
        assert process.returncode == 0, text
        assert printed == ""
        assert hashes(output / "counts") == hashes(clean.folder)
        return events_of(text)
    finally:
        process.kill()
        for node in nodes:
            for pid in descendants(node.all_processes["raylet"][0].process.pid):
                os.kill(pid, signal.SIGCONT)
            cluster.remove_node(node, allow_graceful=False)


def kill_a_worker(nodes: list[Any]) -> None:
    deadline = time.monotonic() + 20
    while not (found := [pid for node in nodes for pid in workers_of(node)]):
        assert time.monotonic() < deadline
    os.kill(found[0], signal.SIGKILL)


@pytest.mark.faults
@pytest.mark.parametrize("when", ["shard", "part"])
def test_the_driver_is_killed(cluster: Any, write: Writer, tmp_path: Path, when: str) -> None:
    """Field case 33: kill -9, then the same command; its workers may still be at work when it begins."""
    events = {event["event"]: event for event in harm_a_run(cluster, write, tmp_path, when, None)}
    assert events["run_taken_over"]["host"] == events["run_began"]["host"]
    assert events["run_taken_over"]["pid"] != events["run_began"]["pid"]
    assert events["run_began"]["lease"] > 10**8
    assert events["run_resumed"]["finished"] >= 2


def signal_a_node(number: signal.Signals) -> Callable[[list[Any]], None]:
    def harm(nodes: list[Any]) -> None:
        for pid in descendants(nodes[0].all_processes["raylet"][0].process.pid):
            os.kill(pid, number)

    return harm


def test_a_worker_is_killed(cluster: Any, write: Writer, tmp_path: Path) -> None:
    """Field case 30."""
    events = harm_a_run(cluster, write, tmp_path, "shard", kill_a_worker)
    (failed,) = (event for event in events if event["event"] == "attempt_failed")
    assert (failed["attempt"], failed["own"], failed["then"]) == (1, True, "again")
    assert failed["cause"].startswith("WorkerCrashedError")
    assert re.fullmatch(
        r"count: shard \d+ \(.*\), attempt 1 failed: WorkerCrashedError: .*; tried again", failed["text"]
    )
    assert any(event["event"] == "log" and event["text"].startswith("(raylet)") for event in events)
    again = [
        event for event in events if event["event"] == "attempt_finished" and event.get("shard") == failed["shard"]
    ]
    assert [(event["attempt"], event["counts"]) for event in again] == [(2, True)]
    assert re.fullmatch(r".+ \([0-9a-f]{8}\)", again[0]["node"])


PROBE = """
import sys
from pathlib import Path
import dist_bpe
from dist_bpe.engine import ray as engine
from dist_bpe.engine.options import EngineOptions
engine.write = lambda path, content: path.write_bytes(content) if sys.argv[3] == "seen" else None
dist_bpe.__version__ = sys.argv[4] or dist_bpe.__version__
options = EngineOptions(address=sys.argv[2], memory_per_worker=int(sys.argv[5]) if int(sys.argv[5]) > 1 else None)
made = engine.RayEngine(options, 1, lambda *_, **__: None)
made.probe(Path(sys.argv[1]))
"""


@pytest.mark.parametrize(
    ("see", "version", "memory", "message"),
    [
        ("seen", "9.9", 1, r"the node .* has dist_bpe .*, and this driver 9.9. Install the same versions"),
        ("unseen", "", 1, r"does not reach the run folder at .*: No such file"),
        ("seen", "", 1 << 50, r"no node of the Ray cluster has memory_per_worker"),
        ("seen", "", 1, ""),
    ],
)
def test_nodes_are_probed_before_work(
    cluster: Any, tmp_path: Path, see: str, version: str, memory: int, message: str
) -> None:
    """Field case 34."""
    if len(cluster.worker_nodes) == 0:
        cluster.add_node(num_cpus=1, **NODE)
    command = [sys.executable, "-c", PROBE, str(tmp_path), cluster.address, see, version, str(memory)]
    ran = subprocess.run(command, capture_output=True, text=True)
    assert re.search(message, ran.stderr), ran.stderr
    assert ("UsageError" in ran.stderr) == bool(message), ran.stderr
    assert message or re.fullmatch(r"probe-\w+", " ".join(path.name for path in tmp_path.iterdir()))


@pytest.mark.faults
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("times", [1, 2])
def test_signals_leave_no_process(write: Writer, tmp_path: Path, number: signal.Signals, times: int) -> None:
    """Field case 35: seconds, its own exit code, a line that says how to go on, and nothing left running."""
    rng = random.Random(2)
    write("in/a.parquet", [" ".join(f"{rng.randrange(30_000):x}" for _ in range(4_000)) for _ in range(200)], 5)
    command = [sys.executable, "-m", "dist_bpe", "count", str(tmp_path / "in"), "-o", str(tmp_path / "run")]
    command += ["--pattern", r"[a-z]+|[0-9]+|\s", "--shard-bytes", "100000", "--workers", "2"]
    process = subprocess.Popen(
        command, stderr=subprocess.PIPE, text=True, preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)
    )
    while finished(tmp_path / "run", "shard") < 2:
        time.sleep(0.02)
        assert process.poll() is None, process.communicate()[1]
    started = descendants(process.pid)[1:]
    assert len(started) > 3
    began = time.monotonic()
    for _ in range(times):
        process.send_signal(number)
        time.sleep(0.1)
    _, text = process.communicate(timeout=60)
    assert process.returncode == 128 + number, text
    assert times == 2 or re.search(r"\d+ of \d+ shards are finished and kept .* the same command goes on", text)
    assert time.monotonic() - began < 30
    deadline = time.monotonic() + 30
    while left := [pid for pid in started if Path(f"/proc/{pid}").exists()]:
        assert time.monotonic() < deadline, left
        time.sleep(0.1)
    ran = subprocess.run([*command, "--engine", "local"], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    assert "shards were finished before" in ran.stderr or "count: done" in ran.stderr


@pytest.mark.faults
@pytest.mark.parametrize("when", ["shard", "part"])
def test_a_node_is_killed(cluster: Any, write: Writer, tmp_path: Path, when: str) -> None:
    """Field case 31."""
    harm_a_run(cluster, write, tmp_path, when, signal_a_node(signal.SIGKILL))


@pytest.mark.faults
@pytest.mark.parametrize("when", ["shard", "part"])
def test_a_node_freezes_for_good(cluster: Any, write: Writer, tmp_path: Path, when: str) -> None:
    harm_a_run(cluster, write, tmp_path, when, signal_a_node(signal.SIGSTOP))


def test_a_full_disk_is_waited_for_while_learning_and_exporting(
    write: Writer, tmp_path: Path, documents: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As while counting: nothing but time is lost when somebody makes room."""
    write("in/a.parquet", documents[:100])
    table = quiet(dist_bpe.Source("s", str(tmp_path / "in")), output=tmp_path / "run", partitions=2)
    monkeypatch.setattr("dist_bpe.storage.files.FIRST_WAIT_SECONDS", 0.001)
    vocabulary = dist_bpe.learn(table, vocab_size=300)
    vocabulary.save(tmp_path / "clean")
    for step, number in (
        ("write", errno.ENOSPC),
        ("fsync", errno.EIO),
        ("create", errno.EDQUOT),
        ("rename", errno.EIO),
    ):
        for name in ("new", "new"):  # into a new folder, and into one that is there
            left = 9

            def full(what: str, _: Path, step: str = step, number: int = number) -> None:
                nonlocal left
                if what == step and left:
                    left -= 1
                    raise OSError(number, os.strerror(number))

            monkeypatch.setattr("dist_bpe.storage.files.inject", full)
            vocabulary.save(tmp_path / step / name)
            assert left == 0
            assert hashes(tmp_path / step / name) == hashes(tmp_path / "clean")
            assert not list((tmp_path / step).glob(".*"))
