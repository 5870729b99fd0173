"""Pages of the documentation as tests run them: their fenced blocks, their sessions, their commands."""

import doctest
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

from typer.testing import CliRunner

from dist_bpe.cli.main import app

ROOT = Path(__file__).parent.parent


def blocks(page: str) -> list[tuple[str, str]]:
    """The fenced blocks of a page in their order: (language, content)."""
    return re.findall(r"^```(\w*)\n(.*?)^```$", page, re.M | re.S)


def started(command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """A command in a folder, with the `dist-bpe` of this environment; it has to succeed."""
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "COLUMNS": "120"}
    ran = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert ran.returncode == 0, (command, ran.stderr)
    return ran


class Session:
    """The `>>>` examples of a page, one session through all its blocks; what is shown has to be what comes out."""

    def __init__(self, page: str) -> None:
        self.page = page
        self.names: dict[str, object] = {"__name__": "__main__"}

    def run(self, block: str) -> None:
        test = doctest.DocTestParser().get_doctest(block, self.names, self.page, self.page, None)
        assert test.examples
        told: list[str] = []
        flags = doctest.ELLIPSIS
        results = doctest.DocTestRunner(optionflags=flags).run(test, out=told.append, clear_globs=False)
        self.names = test.globs
        assert results.failed == 0, "".join(told)


def masked(line: str) -> str:
    """A line of output without what differs between machines: numbers with their units, and spaces."""
    return " ".join(re.sub(r"\d[\d.,]*(%| [kMG]?B\b)?", "#", line).split())


def shown_by(block: str, folder: Path) -> str:
    """The standard output of a block of commands, the working folder being `folder`; each has to succeed.

    Lines that are plain commands of ours run in this process, which saves each a second or more of imports; a block
    with anything else goes to a shell.
    """
    commands = []
    for line in block.replace("\\\n", " ").splitlines():
        words = shlex.shlex(line, posix=True, punctuation_chars=True)
        words.whitespace_split = True
        commands.append(list(words))
    marks = set("|<>&;()")
    if any(words[:1] != ["dist-bpe"] or any(set(word) <= marks for word in words) for words in commands):
        return started(["bash", "-ec", block], folder).stdout
    shown = ""
    for words in commands:
        ran = CliRunner().invoke(app, words[1:], env={"COLUMNS": "120"})
        assert ran.exit_code == 0, (words, ran.stderr, ran.exception)
        shown += ran.stdout
    return shown


def follow(page: str, folder: Path) -> None:
    """Do what a page of docs/ says, in a folder that is the working one.

    Its commands and its Python in their order; a block of text shows lines of the output before it. Commands that
    install, and those of other programs, are left out.
    """
    session = Session(page)
    output: set[str] = set()
    for language, block in blocks((ROOT / "docs" / page).read_text()):
        if language == "pycon":
            session.run(block)
        elif language == "python":
            started([sys.executable, "-c", block], folder)
        elif language == "toml":
            name = re.match(r"# (\S+\.toml)", block)
            assert name, "a configuration begins with the name of its file"
            (folder / name[1]).write_text(block)
        elif language == "sh" and not block.startswith(("pip ", "uv ", "pipx ", "spm_train ")):
            output = set(map(masked, shown_by(block, folder).splitlines()))
        elif language == "text":
            shown = {masked(line) for line in block.splitlines() if line.strip() != "…"}
            assert shown <= output, shown - output
