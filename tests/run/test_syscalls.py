"""Every call to the system that a small `train` makes fails, with each of some errors, by strace: `make test-syscalls`.

Whatever fails, once or from then on: the run ends with the bytes of an undisturbed one, or with a sentence and nothing
half-written, and the same command then goes on to those bytes. `SYSCALLS_EVERY=1` tries each call; by default it is the
first few of each kind, and then a sample, which takes some ten minutes.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from helpers import hashes

pytestmark = [pytest.mark.faults, pytest.mark.timeout(7200)]

# Processes that are forked when all is imported: what fails is then a call of the run, and each begins at once. A child
# stops before it begins, so that strace can take hold of it.
SERVER = """
import ctypes, importlib, os, signal, subprocess, sys, traceback
folder = sys.argv[1]
command = ["dist-bpe", "train", folder + "/in", "-o", folder + "/run", "--engine", "local", "--workers", "1"]
command += ["--shard-bytes", "4000", "--partitions", "2", "--vocab-size", "300", "--no-verify"]
def streams(name):
    for number, end in ((1, "out"), (2, "err")):
        os.dup2(os.open(f"{folder}/{name}.{end}", os.O_CREAT | os.O_TRUNC | os.O_WRONLY), number)
def run():
    sys.argv = command
    from dist_bpe.cli.main import main
    from dist_bpe.storage import files
    files.RETRY_SECONDS = 1.0
    try:
        main()
        code = 0
    except SystemExit as error:
        code = error.code
    except BaseException:
        traceback.print_exc()
        code = 1
    return code if isinstance(code, int) else 0
if len(sys.argv) > 2:
    streams("warm")
    code = run()
    open(folder + "/modules", "w").write(" ".join(name for name in sys.modules if name != "__main__"))
    os._exit(code)
subprocess.run([sys.executable, "-c", os.environ["SERVER"], folder, "warm"], check=True)
os.rename(folder + "/run", folder + "/clean")
for name in open(folder + "/modules").read().split():
    try:
        importlib.import_module(name)
    except ImportError:
        pass
print("ready", flush=True)
for line in sys.stdin:
    name, stop = line.split()
    child = os.fork()
    if not child:
        ctypes.CDLL(None).prctl(0x59616D61, -1)  # strace may take hold where only parents may
        streams(name)
        if stop == "stop":
            os.kill(os.getpid(), signal.SIGSTOP)
        code = run()
        sys.stdout.flush()
        os._exit(code)
    print(child, flush=True)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""

CALLS = {
    "open": "openat",
    "write": "write,pwrite64",
    "fsync": "fsync",
    "rename": "rename,renameat,renameat2",
    "mkdir": "mkdir,mkdirat",
    "link": "link,linkat",
    "unlink": "unlink,unlinkat",
    "read": "read,pread64",
}
ERRORS = ("EIO", "ENOSPC", "EACCES", "EMFILE")
DENSE = 6
SECONDS = 120.0


@dataclass
class Ended:
    """How a run ended: exit code, standard error, and strace's log."""

    code: int
    text: str
    log: str


class Server:
    """Runs of the same command in the same folder."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.number = folder, 0
        command = [sys.executable, "-W", "ignore", "-c", SERVER, str(folder)]
        environment = os.environ | {"SERVER": SERVER, "PYTHONUNBUFFERED": ""}
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )
        assert self.line() == "ready"
        self.clean = self.result(folder / "clean")
        assert {"manifest.json", "vocab.json"} <= {Path(name).name for name in self.clean}

    def line(self) -> str:
        assert self.process.stdout
        return self.process.stdout.readline().strip()

    @staticmethod
    def result(run: Path) -> dict[str, str]:
        """The reproducible set, as far as it is finished."""
        found = {}
        for folder in [run / "counts", *run.glob("vocabularies/[!.]*")]:
            if (folder / "manifest.json").exists():
                found |= {f"{folder.relative_to(run)}/{name}": value for name, value in hashes(folder).items()}
        return {name: value for name, value in found.items() if not Path(name).name.startswith(".")}

    def run(self, *inject: str) -> Ended:
        assert self.process.stdin
        name = f"{self.number:06}"
        self.process.stdin.write(f"{name} {'stop' if inject else 'go'}\n")
        self.process.stdin.flush()
        pid = int(self.line())
        log = self.folder / f"{name}.strace"
        tracer = None
        if inject:
            while "T (stopped)" not in Path(f"/proc/{pid}/status").read_text():
                time.sleep(0.002)
            command = ["strace", "-qq", "-f", "-y", "-o", str(log), "-p", str(pid), *inject]
            tracer = subprocess.Popen(command, stderr=subprocess.DEVNULL)
            while "TracerPid:\t0\n" in Path(f"/proc/{pid}/status").read_text():
                time.sleep(0.002)
                assert tracer.poll() is None
            os.kill(pid, signal.SIGCONT)
        killer = subprocess.Popen(["sh", "-c", f"sleep {SECONDS}; kill -9 {pid}"])
        code = int(self.line())
        killer.kill()
        killer.wait()
        if tracer:
            tracer.wait()
        text = (self.folder / f"{name}.err").read_text()
        found = Ended(code, text, log.read_text() if inject else "")
        for path in self.folder.glob(f"{name}.*"):
            path.unlink()
        return found


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    assert shutil.which("strace"), "this test needs strace: apt-get install strace, and then make test-syscalls"
    folder = tmp_path_factory.mktemp("syscalls")
    (folder / "in").mkdir()
    for name in "ab":
        (folder / "in" / f"{name}.txt").write_text("\n".join(f"{name} low lower {i} newest widest" for i in range(300)))
    made = Server(folder)
    yield made
    assert made.process.stdin
    made.process.stdin.close()
    made.process.wait()


def check(server: Server, inject: str) -> bool:
    """Whether anything was made to fail; whatever it was, the run ended as it should."""
    run = server.folder / "run"
    shutil.rmtree(run, ignore_errors=True)
    calls = inject.partition(":")[0]
    ended = server.run("-e", f"trace={calls}", "-e", f"inject={inject}")
    failed = [line for line in ended.log.splitlines() if "(INJECTED)" in line]
    if not failed:
        assert ended.code == 0, ended.text
        return False
    where = f"{inject}, {len(failed)} calls, the first: {failed[0][:300]}\nexit {ended.code}\n{ended.text}"
    found = server.result(run)
    whole = {name: value for name, value in server.clean.items() if name in found}
    assert found == whole, f"half-written or other bytes: {where}"
    if ended.code == 0:
        assert found == server.clean, f"success without the result: {where}"
    else:
        assert ended.code in (2, 3, 4, 5, 6), where
        assert "Traceback" not in ended.text, where
        if not any(re.search(r"write\(2<", line) for line in failed):  # else it could not be said
            last = ended.text.splitlines()[-1]
            assert re.fullmatch(r"error: \S.*", last), where
        again = server.run()
        assert again.code == 0 or found == server.clean, f"the same command does not go on: {again.text}\n{where}"
        assert server.result(run) == server.clean, f"other bytes the second time: {where}"
    return True


@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("call", CALLS)
def test_each_call_fails_once(server: Server, call: str, error: str) -> None:
    every = int(os.environ.get("SYSCALLS_EVERY", "0"))
    number, tried, problems = 1, 0, []
    while True:
        try:
            if not check(server, f"{CALLS[call]}:error={error}:when={number}"):
                break
        except AssertionError as problem:
            problems.append(str(problem).partition("\nassert ")[0])
        tried += 1
        number += every or (1 if tried <= DENSE else 3 + number // 4)
    assert not problems, f"{len(problems)} of {tried}:\n" + "\n\n".join(problems)
    assert tried


@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("call", CALLS)
def test_all_calls_fail_from_one_on(server: Server, call: str, error: str) -> None:
    """As a disk that stays full, or rights that were taken away."""
    every = int(os.environ.get("SYSCALLS_EVERY", "0"))
    number, tried, problems = 1, 0, []
    while True:
        try:
            if not check(server, f"{CALLS[call]}:error={error}:when={number}+"):
                break
        except AssertionError as problem:
            problems.append(str(problem).partition("\nassert ")[0])
        tried += 1
        number += every or 1 + number
    assert not problems, f"{len(problems)} of {tried}:\n" + "\n\n".join(problems)
    assert tried
