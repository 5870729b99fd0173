"""A cluster as it is run: `ray start`, token authentication, jobs by the Jobs API, metrics, an autoscaler.

`make test-cluster` runs these in an environment of its own, with `ray[default]` and without this package: the wheel has
to travel.
"""

import contextlib
import hashlib
import json
import os
import random
import re
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import urllib.request
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import ray
from servers import free_port, until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent


def below(pid: int) -> dict[int, str]:
    """The processes that a process has started, and those below them, with their commands."""
    found: dict[int, str] = {}
    with contextlib.suppress(OSError):
        for children in Path(f"/proc/{pid}/task").glob("*/children"):
            for child in map(int, children.read_text().split()):
                with contextlib.suppress(OSError):
                    found[child] = Path(f"/proc/{child}/cmdline").read_text().replace("\0", " ")
                found |= below(child)
    return found


@pytest.fixture(scope="module")
def wheel() -> Path:
    (found,) = (ROOT / "dist").glob("*.whl")
    return found


@pytest.fixture(scope="module")
def unpacked(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package, for those who import it from PYTHONPATH."""
    folder = tmp_path_factory.mktemp("unpacked")
    zipfile.ZipFile(wheel).extractall(folder)
    return folder


@dataclass
class Head:
    """A running `ray start --head`, and the environment to reach it with."""

    process: subprocess.Popen[bytes]
    environment: dict[str, str]
    address: str
    metrics: int

    def run(self, *command: object, **more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            list(map(str, command)), env=self.environment | more, capture_output=True, text=True, timeout=300
        )

    def job(self, action: str, name: str) -> str:
        ran = self.run("ray", "job", action, name)
        assert ran.returncode == 0, ran.stderr
        return ran.stdout


HEAD_NODE = "f" * 51 + "00000"


def autoscaler(port: int) -> dict[str, Any]:
    """An autoscaler whose machines are processes of this one: at most two, of one processor."""
    node = {"CPU": 1, "object_store_memory": 80 << 20}
    lists = "cluster_synced_files initialization_commands setup_commands head_setup_commands worker_setup_commands "
    lists += "head_start_ray_commands worker_start_ray_commands rsync_exclude rsync_filter"
    return {
        "cluster_name": "test",
        "provider": {
            "type": "external",
            "module": "ray.autoscaler._private.fake_multi_node.node_provider.FakeMultiNodeProvider",
            "gcs_address": f"{ray.util.get_node_ip_address()}:{port}",
            "head_node_id": HEAD_NODE,
            "launch_multiple": True,
            "disable_node_updaters": True,
            "disable_launch_config_check": True,
        },
        "max_workers": 2,
        "idle_timeout_minutes": 0.1,
        "available_node_types": {
            "ray.head.default": {"resources": {"CPU": 0}, "node_config": {}, "max_workers": 0},
            "worker": {"resources": node, "node_config": {}, "min_workers": 0, "max_workers": 2},
        },
        "head_node_type": "ray.head.default",
        "upscaling_speed": 1,
        "auth": {},
        "file_mounts": {},
        **{name: [] for name in lists.split()},
    }


@contextlib.contextmanager
def ray_start(*options: str, autoscale: bool = False, **more: str) -> Iterator[Head]:
    """A cluster of its own with a token of its own; ended by a signal to this one process."""
    folder = tempfile.mkdtemp(prefix="ray-")  # short: it holds sockets
    port, dashboard, metrics = free_port(), free_port(), free_port()
    environment = os.environ | {
        "PATH": f"{BIN}:{os.environ['PATH']}",
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": secrets.token_hex(32),
    }
    environment |= {"RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S": "0", **more}
    command = ["ray", "start", "--head", f"--port={port}", f"--dashboard-port={dashboard}", f"--temp-dir={folder}"]
    command += ["--dashboard-host=127.0.0.1", f"--metrics-export-port={metrics}", "--object-store-memory=100000000"]
    if autoscale:
        Path(folder, "autoscaler.json").write_text(json.dumps(autoscaler(port)))
        command.append(f"--autoscaling-config={folder}/autoscaler.json")
    log = Path(folder, "start.log")
    with log.open("wb") as file:
        process = subprocess.Popen(
            [*command, "--block", *options], env=environment, cwd=folder, stdout=file, stderr=file
        )
    head = Head(process, environment, f"127.0.0.1:{port}", metrics)
    head.environment["RAY_ADDRESS"] = f"http://127.0.0.1:{dashboard}"
    started: dict[int, str] = {}
    try:
        until(lambda: head.run("ray", "health-check", "--address", head.address).returncode == 0)
        yield head
    finally:
        started = below(process.pid)
        process.terminate()
        process.wait(60)
        for pid in started:  # what `ray start` left
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def head() -> Iterator[Head]:
    with ray_start("--num-cpus=2") as started:
        # The agents that start jobs are there a little after all else.
        until(lambda: started.run("ray", "job", "submit", "--", "true").returncode == 0)
        yield started


def corpus(folder: Path, rows: int) -> Path:
    rng = random.Random(2)
    texts = [" ".join(f"{rng.randrange(30_000):x}" for _ in range(4_000)) for _ in range(rows)]
    folder.mkdir()
    pq.write_table(pa.table({"text": texts}), folder / "a.parquet", row_group_size=5)
    return folder


CONFIG = """
output = "{output}"
verify = false
[[sources]]
name = "a"
paths = "{source}"
[count]
pattern = '[a-z]+|[0-9]+|\\s|[\\s\\S]'
shard_bytes = 100_000
partitions = 4
[learn]
vocab_size = 400
"""


def hashes(run: Path) -> dict[str, str]:
    """What must be the same for all runs."""
    files = [*(run / "counts").iterdir(), *(run / "vocabularies" / "400").iterdir()]
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in files if file.name != "report.json"}


def local_run(unpacked: Path, config: Path) -> dict[str, str]:
    """The same run on threads of one process, into a folder beside."""
    text = re.sub(r'output = "(.*)"', r'output = "\1-local"', config.read_text())
    path = config.with_name("local.toml")
    path.write_text(text.partition("[engine]")[0] + '[engine]\nengine = "local"\n')
    command = [sys.executable, "-m", "dist_bpe", "train", path]
    ran = subprocess.run(command, env=os.environ | {"PYTHONPATH": str(unpacked)}, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    output = re.search(r'output = "(.*)"', text)
    assert output
    return hashes(Path(output[1]))


def configured(tmp_path: Path, rows: int) -> tuple[Path, Path]:
    """The configuration of a run, and its folder."""
    config = tmp_path / "run.toml"
    config.write_text(CONFIG.format(source=corpus(tmp_path / "in", rows), output=tmp_path / "run"))
    return config, tmp_path / "run"


def test_the_package_is_not_here() -> None:
    ran = subprocess.run([sys.executable, "-c", "import dist_bpe"], cwd="/", capture_output=True, text=True)
    assert "No module named 'dist_bpe'" in ran.stderr


def test_an_embedded_ray_with_everything_installed(unpacked: Path, tmp_path: Path) -> None:
    config, run = configured(tmp_path, 20)
    environment = os.environ | {"PYTHONPATH": str(unpacked), "DIST_BPE_LOG_FORMAT": "json"}
    command = [sys.executable, "-m", "dist_bpe", "train", config]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    assert [json.loads(line)["event"] for line in ran.stderr.splitlines()][-1] == "finished"
    assert ran.stdout == ""
    assert hashes(run) == local_run(unpacked, config)


def test_a_submitted_job_ends_with_the_bytes_of_a_local_run(
    head: Head, wheel: Path, unpacked: Path, tmp_path: Path
) -> None:
    config, run = configured(tmp_path, 100)
    ran = head.run(ROOT / "jobs" / "submit.sh", config, wheel, "whole")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert hashes(run) == local_run(unpacked, config)
    lines = head.job("logs", "whole").splitlines()
    for stage in ("plan", "start ray", "count", "merge", "learn", "export"):
        assert any(f" {stage}: done, " in line for line in lines), lines
    # What Prometheus reads, against the report.
    report = json.loads((run / "report.json").read_text())
    source = report["sources"]["a"]
    found = scraped(head, str(run))
    for name in ("documents", "bytes", "words", "unique_words"):
        assert found[f"{name}_total", ""] == source[name], name
    for stage, tasks in (("count", json.loads((run / "plan.json").read_bytes())["shards"]["number"]), ("merge", 4)):
        states = {state: found["tasks", f"{stage} {state}"] for state in ("waiting", "running", "done")}
        assert states == {"waiting": 0, "running": 0, "done": tasks}
        assert found["attempt_seconds_count", stage] == tasks
    stages = {record["name"]: record for record in report["stages"]}
    for stage in ("plan", "start ray", "count", "merge"):
        assert found["stage_seconds", stage] == pytest.approx(stages[stage]["seconds"], abs=0.001)
    assert found["peak_bytes", "driver"] == stages["merge"]["peak_bytes"]
    assert found["peak_bytes", "worker"] == max(stages[stage]["worker_peak_bytes"] for stage in ("count", "merge"))
    assert found["workers", ""] == 2
    assert not any("failed" in name or "stalled" in name or "skipped" in name for name, _ in found)


def scraped(head: Head, run: str) -> dict[tuple[str, str], float]:
    """Our metrics of one run by name and the rest of our labels, as the agent of the node serves them."""
    with urllib.request.urlopen(f"http://127.0.0.1:{head.metrics}/metrics") as answer:  # our own
        text = answer.read().decode()
    found = {}
    for name, labels, value in re.findall(r"^ray_dist_bpe_(\w+)\{(.*)\} (\S+)$", text, re.M):
        label = dict(re.findall(r'(\w+)="([^"]*)"', labels))
        if label["run"] == run and "le" not in label:
            ours = " ".join(label[key] for key in ("stage", "process", "state") if key in label)
            found[name, ours] = float(value)
    return found


def test_a_stopped_job_is_continued_by_submitting_it_again(
    head: Head, wheel: Path, unpacked: Path, tmp_path: Path
) -> None:
    config, run = configured(tmp_path, 500)
    submit = [ROOT / "jobs" / "submit.sh", config, wheel]
    with subprocess.Popen([*submit, "first"], env=head.environment, stdout=subprocess.DEVNULL) as shown:
        until(lambda: len(list(run.glob("staging/*/shard-*.json"))) > 2)
        assert any("dist_bpe train run.toml" in command for command in below(head.process.pid).values())
        head.job("stop", "first")
        shown.wait(60)
    assert "was stopped" in head.job("status", "first")
    text = head.job("logs", "first")
    kept = re.search(r"count: (\d+) of (\d+) shards are finished and kept", text)
    assert kept, text
    assert 2 < int(kept[1]) < int(kept[2])
    assert "interrupted: nothing half-written was left; give the same command again to go on." in text
    until(lambda: not [command for command in below(head.process.pid).values() if "dist_bpe" in command])
    ran = head.run(*submit, "second")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert f"{kept[1]} of {kept[2]} shards were finished before" in ran.stdout or "count: done" in ran.stdout
    assert hashes(run) == local_run(unpacked, config)
    source = json.loads((run / "report.json").read_text())["sources"]["a"]
    found = scraped(head, str(run))
    assert found["documents_total", ""] >= source["documents"]


def idle(head: Head) -> str:
    """What `ray status` says once no node but the head is there."""
    status = head.run("ray", "status", "--address", head.address).stdout
    return "" if "worker" in status.partition("Recent failures:")[0] else status


@pytest.mark.parametrize("workers", [None, 2])
def test_an_autoscaler_is_asked_for_nodes(unpacked: Path, tmp_path: Path, workers: int | None) -> None:
    """From no node at all to two, and back when the work is done."""
    config, run = configured(tmp_path, 400)
    config.write_text(
        config.read_text() + "[engine]\nstall_seconds = 60\n" + (f"workers = {workers}\n" if workers else "")
    )
    more = {
        "AUTOSCALER_UPDATE_INTERVAL_S": "1",
        "PYTHONPATH": str(unpacked),
        "RAY_FAKE_CLUSTER": "1",
        "RAY_enable_autoscaler_v2": "1",
        "RAY_CLOUD_INSTANCE_ID": HEAD_NODE,
        "RAY_OVERRIDE_NODE_ID_FOR_TESTING": HEAD_NODE,
    }
    with ray_start("--num-cpus=0", autoscale=True, **more) as head:
        command = [sys.executable, "-m", "dist_bpe", "train", config, "--log-format", "json"]
        ran = head.run(*command, RAY_ADDRESS=head.address)
        assert ran.returncode == 0, ran.stderr
        events = [json.loads(line) for line in ran.stderr.splitlines()]
        assert any(event["event"] == "nodes_awaited" for event in events)
        assert [event["workers"] for event in events if event["event"] == "node_joined"][-1] == 2
        assert not any(event["event"] in ("attempt_failed", "attempt_stalled", "node_lost") for event in events)
        assert hashes(run) == local_run(unpacked, config)
        # Nothing that was asked for is left standing, and the nodes go.
        status = until(lambda: idle(head))
        assert re.search(r"From request_resources:\s+\(none\)", status), status
