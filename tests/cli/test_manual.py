"""The man page, exit codes, --help and completion: made from the commands, and equal to what is published."""

import itertools
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from helpers import run

from dist_bpe import errors
from dist_bpe.cli.main import app
from dist_bpe.cli.manual import page

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "dist_bpe.data" / "data" / "share" / "man" / "man1" / "dist-bpe.1"
COMMANDS = [command.callback.__name__ for command in app.registered_commands if command.callback]


def test_the_man_page_is_made_from_the_commands() -> None:
    assert PAGE.read_text("utf-8") == page(), "run `make man`"
    data = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["maturin"]["data"]
    assert PAGE.is_relative_to(ROOT / data / "data")


def test_the_man_page_is_what_man_reads() -> None:
    known = {".TH", ".SH", ".SS", ".PP", ".TP", ".B"}
    lines = page().splitlines()
    assert {line.split()[0] for line in lines if line.startswith((".", "'"))} == known
    for before, line in itertools.pairwise(lines):
        assert before != ".TP" or line.startswith(".B ")
        assert line
        # Whatever follows a backslash is one of these; a bare hyphen would be typeset as another character.
        assert "-" not in re.sub(r"\\(e|-|&|\((aq|ga|ha|ti|dq))", "", line), line
        assert "\\" not in re.sub(r"\\(e|-|&|\((aq|ga|ha|ti|dq))", "", line), line
    headings = [line[4:] for line in lines if line.startswith(".SH ")]
    assert headings == ["NAME", "SYNOPSIS", "DESCRIPTION", "COMMANDS", "ENVIRONMENT", "EXIT STATUS"]
    if not shutil.which("man"):
        return
    command = ["man", "--warnings", "-E", "UTF-8", "-l", "-Tutf8", "-"]
    ran = subprocess.run(command, input=page().encode(), capture_output=True, check=False)
    assert (ran.returncode, ran.stderr) == (0, b"")
    shown = re.sub(r"\x1b\[[\d;]*m|.\x08", "", ran.stdout.decode())
    for name in COMMANDS:
        assert f"dist-bpe {name} " in shown
    assert "--min-pair-count" in shown


def test_exit_codes_stand_once() -> None:
    table = dict(errors.EXIT_CODES)
    classes = [value for value in vars(errors).values() if isinstance(value, type) and hasattr(value, "exit_code")]
    assert {each.exit_code for each in classes} | {0, 130, 143} == table.keys()
    for name, code in re.findall(r"(\w+) +exit code (\d)", errors.__doc__ or ""):
        assert getattr(errors, name).exit_code == int(code), name
    shown = " ".join(run("--help").stdout.partition("Exit codes:")[2].split())
    assert shown == " ".join(f"{code} {meaning}" for code, meaning in table.items())
    document = (ROOT / "docs" / "command-line.md").read_text("utf-8")
    assert re.findall(r"^\| (\d+) \| (.*) \|$", document, re.M) == [(str(code), text) for code, text in table.items()]


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """An environment in which `dist-bpe` is this package."""
    script = tmp_path_factory.mktemp("bin") / "dist-bpe"
    code = f"import sys; sys.path.insert(0, {str(ROOT)!r})\nfrom dist_bpe.__main__ import main\nmain()\n"
    script.write_text(f"#!{sys.executable}\n{code}")
    script.chmod(0o755)
    return os.environ | {"PATH": f"{script.parent}:{os.environ['PATH']}"}


COMPLETED = {
    "tr": "train",
    "train --engine ''": "ray local",
    "count --pattern gpt2-": "gpt2-marks gpt2-marks+digits1 gpt2-marks+digits3 gpt2-marks+digits3r",
    "learn run --export-format t": "tokenizers tiktoken",
    "export v --format p": "parquet",
    "train --format l": "lines",
    "train --log-format ''": "text json",
    "train --min-pair": "--min-pair-count",
}


def test_bash_completes(shell: dict[str, str]) -> None:
    script = 'eval "$(_DIST_BPE_COMPLETE=source_bash dist-bpe)"\n'
    for words in COMPLETED:
        script += f"COMP_WORDS=(dist-bpe {words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))\n"
        script += '_dist_bpe_completion dist-bpe; echo "${COMPREPLY[@]}"\n'
    ran = subprocess.run(["bash", "--norc", "-c", script], env=shell, capture_output=True, text=True, check=True)
    assert dict(zip(COMPLETED, ran.stdout.splitlines(), strict=True)) == COMPLETED, ran.stderr


def test_other_shells_have_their_scripts(shell: dict[str, str]) -> None:
    for name, words in (("zsh", "#compdef dist-bpe"), ("fish", "complete --command dist-bpe")):
        environment = shell | {"_DIST_BPE_COMPLETE": f"source_{name}"}
        ran = subprocess.run(["dist-bpe"], env=environment, capture_output=True, text=True, check=True)
        assert words in ran.stdout
        environment = shell | {"_DIST_BPE_COMPLETE": f"complete_{name}", "_TYPER_COMPLETE_FISH_ACTION": "get-args"}
        environment |= {"_TYPER_COMPLETE_ARGS": "dist-bpe train --engine l"}
        ran = subprocess.run(["dist-bpe"], env=environment, capture_output=True, text=True, check=True)
        assert "local" in ran.stdout


@pytest.mark.parametrize("width", [60, 80])
def test_summaries_are_whole(shell: dict[str, str], width: int) -> None:
    environment = shell | {"COLUMNS": str(width)}
    ran = subprocess.run(["dist-bpe", "--help"], env=environment, capture_output=True, text=True, check=True)
    assert "..." not in ran.stdout.partition("Commands:")[2]
    assert max(map(len, ran.stdout.splitlines())) <= width
    listed = ran.stdout.partition("Commands:\n")[2].partition("\n\n")[0].splitlines()
    assert [line.split()[0] for line in listed if line[2] != " "] == COMMANDS
    assert width < 80 or len(listed) == len(COMMANDS)  # a line each
