"""The command line as a process: what the system refuses is one sentence, and what is printed is data."""

import json
import os
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from helpers import hashes

COUNT = ["--engine", "local", "--workers", "1", "--partitions", "2"]


@pytest.fixture
def text(tmp_path: Path) -> Path:
    (tmp_path / "in.txt").write_text("low lower newest widest\n" * 20)
    return tmp_path / "in.txt"


def start(*arguments: object, **options: object) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "dist_bpe", *map(os.fsencode, map(str, arguments))]
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.run(command, **streams | options)  # type: ignore[call-overload,no-any-return]


def last_line(ran: subprocess.CompletedProcess[bytes]) -> str:
    assert b"Traceback" not in ran.stderr, ran.stderr
    return ran.stderr.decode().splitlines()[-1]


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("command", ["count", "status", "plan"])
def test_a_full_standard_output_is_said(text: Path, tmp_path: Path, command: str, unbuffered: str) -> None:
    if command == "status":
        start("count", text, "-o", tmp_path / "run", *COUNT)
    more = {"count": ["-o", tmp_path / "run", *COUNT], "plan": ["--json"], "status": []}[command]
    with Path("/dev/full").open("w") as full:
        where = tmp_path / "run" if command == "status" else text
        ran = start(command, where, *more, stdout=full, env=os.environ | {"PYTHONUNBUFFERED": unbuffered})
    assert ran.returncode == 6
    assert last_line(ran).startswith("error: standard output cannot be used: No space left on device.")


def test_a_full_or_closed_log_stops_nothing(text: Path, tmp_path: Path) -> None:
    with Path("/dev/full").open("w") as full:
        ran = start("count", text, "-o", tmp_path / "full", *COUNT, stderr=full)
    assert ran.returncode == 0

    def close() -> None:
        for number in range(3):
            os.close(number)

    ran = start("count", text, "-o", tmp_path / "closed", *COUNT, preexec_fn=close)
    assert ran.returncode == 0
    assert hashes(tmp_path / "full" / "counts") == hashes(tmp_path / "closed" / "counts")


@pytest.mark.parametrize(
    ("output", "why"),
    [
        (lambda folder: folder / ("n" * 300), "File name too long. Choose a shorter name."),
        (lambda folder: folder / "in.txt" / "run", "Not a directory."),
        (lambda _: "/proc/nowhere/run", "/proc/nowhere/run cannot be written: No such file or directory."),
        (lambda folder: folder / "circle" / "run", "Too many levels of symbolic links."),
    ],
)
def test_an_output_that_cannot_be_made(
    text: Path, tmp_path: Path, output: Callable[[Path], Path | str], why: str
) -> None:
    (tmp_path / "circle").symlink_to("circle")
    before = sorted(tmp_path.iterdir())
    for command in (["count"], ["train", "--vocab-size", "300"]):
        ran = start(*command, text, "-o", output(tmp_path), *COUNT)
        assert ran.returncode == 2, ran.stderr
        assert why in last_line(ran)
    assert sorted(tmp_path.iterdir()) == before


def test_a_configuration_with_a_character_that_no_name_can_have(text: Path, tmp_path: Path) -> None:
    config = tmp_path / "run.toml"
    config.write_text(f'output = "a\\u0000b"\n[[sources]]\nname = "s"\npaths = "{text}"\n[learn]\nvocab_size = 300\n')
    ran = start("train", config, "--engine", "local")
    assert ran.returncode == 2
    assert last_line(ran) == "error: a\\x00b cannot be the name of a file: it holds a character that no name can have."


def test_names_are_data(text: Path, tmp_path: Path) -> None:
    """Not UTF-8, with sequences that act on a terminal, for a terminal that knows ASCII alone."""
    name = os.fsdecode(os.fsencode(tmp_path) + b"/\x1b[31mr\xff\xc3\xbc\n")
    ran = start("status", name)
    assert ran.returncode == 6
    assert last_line(ran) == f"error: there is no run folder {tmp_path}/\\x1b[31mr\\xffü\\n."
    assert start("count", text, "-o", name, *COUNT).returncode == 0
    for encoding in ("ascii", "utf-8"):
        environment = os.environ | {"PYTHONIOENCODING": encoding}
        ran = start("status", name, env=environment)
        assert ran.returncode == 0, ran.stderr
        assert b"finished" in ran.stdout
        assert b"\\udcff" in ran.stdout
        ran = start("status", name, "--json", env=environment)
        assert json.loads(ran.stdout)["run"] == name


def test_little_address_space(text: Path, tmp_path: Path) -> None:
    """`ulimit -v`: whatever is reached first, it is one sentence, or enough."""
    codes = set()
    for size in (1 << 36, 600 << 20, 420 << 20, 401 << 20, 399 << 20, 200 << 20):
        ran = start(
            "count", text, "-o", tmp_path / f"{size}", *COUNT,
            preexec_fn=lambda size=size: resource.setrlimit(resource.RLIMIT_AS, (size, size)),
        )  # fmt: skip
        codes.add(ran.returncode)
        assert ran.returncode in (0, 6), (size, ran.stderr)
        if ran.returncode:
            assert last_line(ran).startswith("error: "), (size, ran.stderr)
    assert 0 in codes


def test_few_open_files(tmp_path: Path) -> None:
    """More spills than files may be open: merged in as many levels as that takes."""
    (tmp_path / "in").mkdir()
    for number in range(90):
        (tmp_path / "in" / f"{number}.txt").write_text(f"low lower newest widest {number} and so on\n" * 9)
    hashed = []
    for files in (4096, 80):
        output = tmp_path / f"{files}"
        ran = start(
            "count", tmp_path / "in", "-o", output, *COUNT, "--shard-bytes", "300",
            preexec_fn=lambda files=files: resource.setrlimit(resource.RLIMIT_NOFILE, (files, files)),
        )  # fmt: skip
        assert ran.returncode == 0, ran.stderr
        hashed.append(hashes(output / "counts"))
    assert hashed[0] == hashed[1]
