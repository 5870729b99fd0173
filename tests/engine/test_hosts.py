"""Separate hosts: `make test-hosts`.

Each host is a network namespace with a hostname, processes and an address of its own, and can only read the disk: what
it writes goes to its own /tmp in memory. So nothing is shared but what goes over the wire. One more namespace is the
switch. Root and iproute2 are needed.
"""

import contextlib
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest
from helpers import SLOW, corpus, hashes

pytestmark = [pytest.mark.hosts, pytest.mark.timeout(900)]

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
PREFIX = f"bpe{os.getpid()}-"
SWITCH = f"{PREFIX}switch"
# Addresses that are nobody's; they are seen in the namespaces alone.
ADDRESSES = {"store": "203.0.113.9", "head": "203.0.113.1", "one": "203.0.113.2", "two": "203.0.113.3"}
CLUSTER = f"{ADDRESSES['head']}:6379"
ENVIRONMENT = os.environ | {
    "PATH": f"{BIN}:{os.environ['PATH']}",
    "RAY_AUTH_MODE": "token",
    "RAY_AUTH_TOKEN": os.urandom(32).hex(),
    "RAY_USAGE_STATS_ENABLED": "0",
    "AWS_ACCESS_KEY_ID": "dist-bpe",
    "AWS_SECRET_ACCESS_KEY": os.urandom(16).hex(),
    "AWS_ENDPOINT_URL": f"http://{ADDRESSES['store']}:8333",
    "AWS_DEFAULT_REGION": "us-east-1",
}

# Run where the store is reached: copies a folder there or back, or prints how many shards are committed.
STORE = """
import os, re, sys, time
import pyarrow.fs as fs
store = fs.S3FileSystem(scheme="http", endpoint_override=os.environ["AWS_ENDPOINT_URL"].removeprefix("http://"))
if sys.argv[1] == "put":
    deadline = time.monotonic() + 60
    while True:
        try:
            store.get_file_info("corpus/text")
            break
        except OSError:  # it is on its way up
            if time.monotonic() > deadline:
                raise
    fs.copy_files(sys.argv[2], sys.argv[3], destination_filesystem=store)
elif sys.argv[1] == "get":
    fs.copy_files(sys.argv[2], sys.argv[3], source_filesystem=store)
else:
    files = fs.FileSelector(sys.argv[2], recursive=True, allow_not_found=True)
    while True:
        found = store.get_file_info(files)
        print(sum(bool(re.search(r"/shard-[0-9]+[.]json$", file.path)) for file in found), flush=True)
        time.sleep(0.1)
"""

READY = """
import sys, time
import ray
while not ray.is_initialized():
    try:
        ray.init(sys.argv[1], logging_level=50)
    except ConnectionError:
        time.sleep(1)
while len(ray.nodes()) < 3:
    time.sleep(0.1)
"""


def run(*command: object) -> str:
    ran = subprocess.run(list(map(str, command)), env=ENVIRONMENT, text=True, capture_output=True)
    assert ran.returncode == 0, f"{shlex.join(map(str, command))}\n{ran.stdout}\n{ran.stderr}"
    return ran.stdout


# The project may lie in /tmp: then it is shown there again.
BEGIN = """
hostname "$1" && cd "$2" && mount -t tmpfs tmpfs /tmp && mount -t tmpfs tmpfs /dev/shm && mkdir -p "$2" &&
mount --no-canonicalize --bind . "$2" && mount -o remount,bind,ro "$2" && mount -o remount,bind,ro / && echo up &&
exec sleep infinity
"""


def ip(command: str) -> None:
    run("ip", *command.split())


class Host:
    """A machine, as far as its processes can tell."""

    def __init__(self, name: str, log: IO[str]) -> None:
        self.name = f"{PREFIX}{name}"
        self._log = log
        ip(f"netns add {self.name}")
        ip(f"link add {self.name} netns {SWITCH} type veth peer eth0 netns {self.name}")
        ip(f"-n {SWITCH} link set {self.name} master bridge up")
        ip(f"-n {self.name} address add {ADDRESSES[name]}/24 dev eth0")
        ip(f"-n {self.name} link set lo up")
        ip(f"-n {self.name} link set eth0 up")
        own = f"ip netns exec {self.name} unshare --mount --uts --ipc --pid --fork --mount-proc --kill-child".split()
        self._machine = subprocess.Popen(
            [*own, "sh", "-c", BEGIN, "host", name, ROOT], stdout=subprocess.PIPE, stderr=log, text=True
        )
        assert self._machine.stdout
        assert self._machine.stdout.readline() == "up\n", f"{name} did not start"
        self._init = Path(f"/proc/{self._machine.pid}/task/{self._machine.pid}/children").read_text().strip()

    def start(self, *command: object, stdout: IO[str] | None = None) -> "subprocess.Popen[str]":
        inside = f"nsenter --target={self._init} --mount --uts --ipc --net --pid --".split()
        return subprocess.Popen(
            [*inside, *map(str, command)], env=ENVIRONMENT, stdout=stdout or self._log, stderr=self._log, text=True
        )

    def unplug(self) -> None:
        ip(f"-n {SWITCH} link set {self.name} down")

    def close(self) -> None:
        self._machine.kill()
        self._machine.wait()


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[dict[str, Host]]:
    """A store, and a head and two workers that join its cluster, with one processor each."""
    assert os.geteuid() == 0, "network namespaces need root"
    assert shutil.which("ip"), "apt-get install iproute2"
    with contextlib.ExitStack() as stack:
        log = stack.enter_context((tmp_path / "log").open("w"))
        ip(f"netns add {SWITCH}")
        stack.callback(ip, f"netns delete {SWITCH}")
        ip(f"-n {SWITCH} link add bridge type bridge")
        ip(f"-n {SWITCH} link set bridge up")
        made: dict[str, Host] = {}
        for name in ADDRESSES:
            stack.callback(subprocess.run, ["ip", "netns", "delete", f"{PREFIX}{name}"])  # at the end, whatever fails
            made[name] = Host(name, log)
            stack.callback(made[name].close)
        weed = "weed mini -dir=/tmp -bucket=corpus,runs -ip.bind=0.0.0.0 -webdav=false -admin.ui=false"
        weed += " -s3.port.iceberg=0 -s3.port.lance=0 -master.telemetry=false"
        made["store"].start(*weed.split(), f"-ip={ADDRESSES['store']}")
        node = "--num-cpus=1 --memory=2000000000 --object-store-memory=80000000 --block"
        for name in ("head", "one", "two"):
            role = "--head --port=6379 --include-dashboard=false" if name == "head" else f"--address={CLUSTER}"
            made[name].start("ray", "start", *role.split(), *node.split(), f"--node-ip-address={ADDRESSES[name]}")
        yield made


def on_store(*arguments: object) -> list[str]:
    return ["ip", "netns", "exec", f"{PREFIX}store", sys.executable, "-c", STORE, *map(str, arguments)]


def test_a_host_is_cut_off_and_the_bytes_are_those_of_a_local_run(hosts: dict[str, Host], tmp_path: Path) -> None:
    mine = "/tmp/mine"  # noqa: S108  # of each host
    assert hosts["head"].start("touch", mine).wait() == 0
    assert hosts["one"].start("test", "-e", mine).wait() == 1
    assert hosts["one"].start("touch", ROOT / "everybodys").wait() == 1
    text = corpus(tmp_path / "corpus")
    run(*on_store("put", text, "corpus/text"))
    assert hosts["head"].start(sys.executable, "-c", READY, CLUSTER).wait(120) == 0
    with (tmp_path / "driver").open("w") as log:
        driver = hosts["head"].start(
            "dist-bpe", "train", "s3://corpus/text", *SLOW, "-o", "s3://runs/run", "--address", CLUSTER, stdout=log
        )
    with subprocess.Popen(on_store("watch", "runs/run"), env=ENVIRONMENT, stdout=subprocess.PIPE, text=True) as watch:
        assert watch.stdout
        for line in watch.stdout:
            assert driver.poll() is None, (tmp_path / "log").read_text()
            if (finished := int(line)) >= 5:
                break
        hosts["two"].unplug()
        watch.kill()
    assert finished < 60
    assert driver.wait(600) == 0, (tmp_path / "log").read_text()
    assert re.search(r"^the node two \(\w+\) is lost$", (tmp_path / "log").read_text(), re.MULTILINE)

    run(*on_store("get", "runs/run", tmp_path / "run"))
    run("dist-bpe", "train", text, *SLOW, "-o", tmp_path / "local", "--engine", "local")
    for part in ("counts", "vocabularies"):
        found = hashes(tmp_path / "run" / part)
        assert found
        assert found == hashes(tmp_path / "local" / part)
