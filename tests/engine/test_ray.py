"""Nodes that come while a run is under way, on a cluster that begins without any processor."""

import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
from conftest import Writer
from helpers import DRIVER, NODE, events_of, finished, hashes, quiet

import dist_bpe


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
