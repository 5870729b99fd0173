"""Ray as it comes and goes: nodes that come while a run is under way, clusters that are not there, refuse, or die."""

import json
import os
import random
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from conftest import Writer
from helpers import DRIVER, NODE, events_of, finished, hashes, quiet
from servers import free_port, until

import dist_bpe
from dist_bpe.processes import children


def test_work_follows_the_nodes(cluster: Any, write: Writer, tmp_path: Path) -> None:
    """From no node at all to one, then two; a third with another version gets no work, and harms none."""
    rng = random.Random(2)
    write("in/a.parquet", [" ".join(f"{rng.randrange(30_000):x}" for _ in range(4_000)) for _ in range(800)], 5)
    clean = quiet(
        dist_bpe.Source("s", str(tmp_path / "in")), output=tmp_path / "clean", pattern=r"[a-z]+|[0-9]+|\s", partitions=4
    )
    other = tmp_path / "other"
    other.mkdir()
    (other / "sitecustomize.py").write_text("import pyarrow; pyarrow.__version__ = '9.9'")
    output, log = tmp_path / "run", tmp_path / "log"
    command = [sys.executable, "-c", DRIVER, str(tmp_path / "in"), str(output), cluster.address, "4"]
    nodes = []
    with log.open("w") as file:
        process = subprocess.Popen(command, stderr=file, stdout=subprocess.PIPE, text=True)
    try:
        while "nodes_awaited" not in log.read_text():
            assert process.poll() is None, log.read_text()
            assert "stage_ended" not in log.read_text().partition("start ray")[2]
            time.sleep(0.1)
        nodes.append(cluster.add_node(num_cpus=1, **NODE))
        while finished(output, "shard") < 2:
            assert process.poll() is None, log.read_text()
            time.sleep(0.02)
        nodes.append(cluster.add_node(num_cpus=1, **NODE))
        nodes.append(cluster.add_node(num_cpus=1, env_vars={"PYTHONPATH": str(other)}, **NODE))
        assert process.wait(200) == 0, log.read_text()
    finally:
        process.kill()
        process.communicate()
        for node in nodes:
            cluster.remove_node(node, allow_graceful=False)
    events = events_of(log.read_text())
    names = [node.node_id[:8] for node in nodes]
    worked = {event["node"][-9:-1] for event in events if event["event"] == "attempt_finished"}
    assert worked == {names[0], names[1]}
    (refused,) = (event["text"] for event in events if event["event"] == "node_refused")
    assert f"({names[2]}) has pyarrow 9.9, and this driver {pa.__version__}" in refused
    failed = [event for event in events if event["event"] == "attempt_failed"]
    assert {(event["own"], event["then"], event["node"][-9:-1]) for event in failed} == {(False, "again", names[2])}
    assert hashes(output / "counts") == hashes(clean.folder)


def join(address: str, tmp_path: Path, after: float = 0, **environment: str) -> tuple[int, list[str]]:
    """The exit code, and what is said, of a command that is to join a cluster; SIGTERM after some seconds."""
    tmp_path.mkdir(exist_ok=True)
    (tmp_path / "in.txt").write_text("some text")
    command = [sys.executable, "-m", "dist_bpe", "count", str(tmp_path / "in.txt"), "-o", str(tmp_path / "run")]
    process = subprocess.Popen(
        [*command, "--address", address, "--log-format", "json"],
        stderr=subprocess.PIPE, text=True, env=os.environ | environment,
    )  # fmt: skip
    assert process.stderr
    lines = []
    for line in process.stderr:
        lines.append(json.loads(line)["text"] if line.startswith("{") and "text" in line else line)
        if after and "start ray" in line:
            time.sleep(after)
            process.send_signal(signal.SIGTERM)
            after = 0
    return process.wait(60), lines


def test_an_address_without_a_cluster_is_said_within_seconds(tmp_path: Path) -> None:
    """Of several addresses at once, since most of it is waiting for answers."""
    wrong = {
        "127.0.0.1:1": "Connection refused. Check host and port, and that `ray start --head` runs there.",
        "nowhere.invalid:6379": "Check host and port",
        "s3://KEY:VEILED@bucket": "no Ray cluster answers at s3://bucket",
    }
    with socket.create_server(("127.0.0.1", 0)) as silent, ThreadPoolExecutor() as pool:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        asked = [pool.submit(join, each, tmp_path / str(i)) for i, each in enumerate([*wrong, address])]
        # And a signal while it is being waited for.
        stopped = pool.submit(join, address, tmp_path / "stopped", 3)
        *refused, unheard = (each.result() for each in asked)
        for i, ((code, lines), why) in enumerate(zip(refused, wrong.values(), strict=True)):
            assert code == 2
            assert lines[-1].startswith("no Ray cluster answers at ")
            assert why in lines[-1]
            assert "VEILED" not in "".join(lines)
            assert not (tmp_path / str(i) / "run" / "staging").exists()
        code, lines = unheard
        assert (code, lines[-1].partition(":")[0]) == (2, "no Ray cluster answers at 127.0.0.1")
        assert "something listens there" in lines[-1]
        code, lines = stopped.result()
        assert code == 128 + signal.SIGTERM
        assert lines[-1] == "interrupted: nothing half-written was left; give the same command again to go on."


def test_a_missing_token_is_said(tmp_path: Path) -> None:
    port, folder = free_port(), tempfile.mkdtemp(prefix="ray-")  # short: it holds sockets
    token = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32), "RAY_USAGE_STATS_ENABLED": "0"}
    command = [str(Path(sys.executable).parent / "ray"), "start", "--head", "--block", f"--port={port}", "--num-cpus=1"]
    command += [f"--temp-dir={folder}", "--include-dashboard=false", "--object-store-memory=80000000"]
    head = subprocess.Popen(
        command, env=os.environ | token, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        until(lambda: "raylet" in children_of(head.pid))
        other = {"HOME": str(tmp_path), "RAY_AUTH_TOKEN": "", "RAY_AUTH_TOKEN_PATH": ""}
        with ThreadPoolExecutor() as pool:
            asked = [
                pool.submit(join, f"127.0.0.1:{port}", tmp_path / mode, **other, RAY_AUTH_MODE=mode)
                for mode in ("disabled", "token")
            ]
        for code, lines in (each.result() for each in asked):
            assert code == 2, lines
            assert f"the Ray cluster at 127.0.0.1:{port} refuses this process: its authentication token" in lines[-1]
    finally:
        head.terminate()
        head.wait(60)
        shutil.rmtree(folder, ignore_errors=True)


def children_of(pid: int) -> dict[str, int]:
    """The processes that a process has started, by name."""
    found = {}
    for child in children(pid):
        name = Path(f"/proc/{child}/cmdline").read_bytes().partition(b"\0")[0]
        found[name.decode().rpartition("/")[2]] = child
    return found


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_ray_starts_leaves_nothing_of_it(tmp_path: Path, number: signal.Signals) -> None:
    (tmp_path / "in.txt").write_text("some text")
    command = [sys.executable, "-m", "dist_bpe", "count", str(tmp_path / "in.txt"), "-o", str(tmp_path / "run")]
    # A shell that runs the tests in the background has Ctrl-C ignored, and so would the process.
    process = subprocess.Popen(
        command, stderr=subprocess.PIPE, text=True, preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)
    )
    started: list[int] = []
    try:
        until(lambda: "raylet" in children_of(process.pid))
        # What else a head node has is left out.
        assert children_of(process.pid).keys() == {"gcs_server", "raylet"}
        until(lambda: len(children(children_of(process.pid)["raylet"])) == 2)  # its two agents
        started = [each for child in children(process.pid) for each in (child, *children(child))]
        process.send_signal(number)
        _, text = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 128 + number, text
    assert text.endswith("interrupted: nothing half-written was left; give the same command again to go on.\n")
    assert len(started) >= 4
    until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in started))


@pytest.mark.parametrize("victim", ["raylet", "gcs_server"])
def test_an_embedded_ray_that_dies_ends_the_run_in_one_sentence(write: Writer, tmp_path: Path, victim: str) -> None:
    rng = random.Random(2)
    write("in/a.parquet", [" ".join(f"{rng.randrange(30_000):x}" for _ in range(4_000)) for _ in range(1500)], 5)
    command = [sys.executable, "-m", "dist_bpe", "count", str(tmp_path / "in"), "-o", str(tmp_path / "run")]
    command += ["--pattern", r"[a-z]+|[0-9]+|[\s\S]", "--shard-bytes", "100000"]
    process = subprocess.Popen(
        [*command, "--workers", "1"], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
    )
    try:
        while finished(tmp_path / "run", "shard") < 2:
            assert process.poll() is None, process.communicate()[1]
            time.sleep(0.02)
        os.kill(children_of(process.pid)[victim], signal.SIGKILL)
        _, text = process.communicate(timeout=120)
    finally:
        process.kill()
    assert process.returncode == 6, text
    last = text.splitlines()[-1]
    assert last.startswith(f"error: the embedded Ray has ended: its process {victim} is gone")
    assert last.endswith("What was finished is kept, and the same command goes on from there.")
    assert finished(tmp_path / "run", "shard") >= 2
    if victim == "gcs_server":
        return  # what is there is the same, and going on takes a while
    command += ["--engine", "local", "--log-format", "json"]
    again = subprocess.run(command, capture_output=True, text=True)
    assert again.returncode == 0, again.stderr
    (resumed,) = (event for event in events_of(again.stderr) if event["event"] == "run_resumed")
    assert resumed["finished"] >= 2


@pytest.mark.faults
def test_a_cluster_whose_head_dies_ends_the_run_in_one_sentence(write: Writer, tmp_path: Path) -> None:
    from ray.cluster_utils import Cluster

    rng = random.Random(2)
    texts = [" ".join(f"{rng.randrange(30_000):x}" for _ in range(4_000)) for _ in range(1500)]
    for name in "abcdefgh":  # what lasts longer than the head may be silent, on a fast machine, too
        write(f"in/{name}.parquet", texts, 5)
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, **NODE})
    output, log, address = tmp_path / "run", tmp_path / "log", made.address  # which is gone in the end
    try:
        with log.open("w") as file:
            command = [sys.executable, "-m", "dist_bpe", "count", str(tmp_path / "in"), "-o", str(output)]
            command += ["--pattern", r"[a-z]+|[0-9]+|[\s\S]", "--shard-bytes", "100000", "--address", address]
            process = subprocess.Popen(command, stderr=file, stdout=subprocess.DEVNULL)
        while finished(output, "shard") < 2:
            assert process.poll() is None, log.read_text()
            time.sleep(0.02)
        made.head_node.kill_gcs_server()
        assert process.wait(150) == 6, log.read_text()
    finally:
        process.kill()
        made.shutdown()
    last = log.read_text().splitlines()[-1]
    assert last.startswith(f"error: the Ray cluster at {address} is gone: no answer for ")
    assert last.endswith("the same command goes on from there once a cluster answers.")
