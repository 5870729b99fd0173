"""The package as a whole: its public names, its documents, its commands, and what Ctrl-C leaves."""

import ast
import inspect
import json
import operator
import os
import pkgutil
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pages import Session, blocks, follow, started

import dist_bpe
from dist_bpe import errors
from dist_bpe.cli.main import app
from dist_bpe.counting.table import CountTable
from dist_bpe.storage import layout

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
PAGES = [*ROOT.glob("*.md"), ROOT / "jobs" / "README.md", *(ROOT / "docs").glob("*.md")]


def test_public_names() -> None:
    assert dist_bpe.__all__ == [
        "AccessError", "CountOverflowError", "CountTable", "DataError", "DistBpeError", "ExportError", "FormatError",
        "Mixture", "NetworkError", "RunError", "Source", "SourceError", "SpecialToken", "Temperature", "UniMax",
        "UsageError", "Vocabulary", "WordList", "add", "balance", "compare", "count", "encode", "evaluate", "export",
        "import_counts", "learn", "plan", "split", "train",
    ]  # fmt: skip
    assert set(dist_bpe.__all__) < set(dir(dist_bpe))
    for name in dist_bpe.__all__:
        value = getattr(dist_bpe, name)
        assert value.__doc__, name
        assert callable(value), name
    with pytest.raises(AttributeError, match="no attribute 'lern'"):
        _ = dist_bpe.lern  # type: ignore[attr-defined]


def test_importing_the_package_loads_nothing_heavy() -> None:
    heavy = {"ray", "pyarrow", "rich.console", "regex", "datasets"}
    # Options are models of pydantic's, which the command line cannot do without.
    for modules, more in (("dist_bpe", {"pydantic", "typer"}), ("dist_bpe, dist_bpe.cli.main", {"numpy"})):
        code = f"import sys, {modules}; print([name for name in {sorted(heavy | more)} if name in sys.modules])"
        assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "[]\n", modules


# Commands in one process, each with what is in `sys.modules` after it; the order is theirs, so that what the later ones
# may load is not there before.
WATCHED = """
import json, sys
from typer.testing import CliRunner
from dist_bpe.cli.main import app
for line in sys.stdin:
    ran = CliRunner().invoke(app, json.loads(line), input="1 2 3")
    assert ran.exit_code == 0, (line, ran.output)
    print(json.dumps([name for name in sys.argv[1:] if name in sys.modules]))
"""
# Half a second and more each, or memory, for nothing that these commands do.
HEAVY = "ray pandas datasets matplotlib transformers torch scipy sklearn huggingface_hub aiohttp obstore fsspec".split()


def test_commands_load_nothing_that_they_do_not_need(tmp_path: Path, documents: list[str]) -> None:
    for i, language in enumerate(("en", "de")):
        texts = documents[i * 60 :][:60]
        pq.write_table(pa.table({"text": texts, "lang": [language] * 60}), tmp_path / f"{language}.parquet")
        (tmp_path / f"{language}.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    parallel = {"lang": ["en", "de"] * 30, "doc": [f"d{i // 2}" for i in range(60)], "text": documents[:60]}
    pq.write_table(pa.table(parallel), tmp_path / "parallel.parquet")
    (tmp_path / "words.tsv").write_text("the\t5\nof\t3\n")
    (tmp_path / "words.csv").write_text("word,count\nthe,5\nof,3\n")
    train = "en.parquet de.parquet --group-by lang --engine local --vocab-size 300"
    commands = [
        "plan en.parquet de.jsonl",
        f"train {train} --no-verify -o a",
        "count en.jsonl de.jsonl --engine local -o b",
        "status a",
        "add a b -o sum",
        "learn a --vocab-size 280 --no-verify",
        "learn words --counts words.tsv --vocab-size 258 --no-verify",
        "learn more --counts words.csv --vocab-size 258 --no-verify",
        "learn a --vocab-size 290 --name even --parity dev --dev parallel.parquet --no-verify",
        "balance a --vocab-size 290 --dev parallel.parquet",
        "split parallel.parquet -o sets",
        "encode a/vocabularies/300",
        "decode a/vocabularies/300",
        "evaluate a/vocabularies/300 --table a",
        "evaluate a/vocabularies/300 --text en.jsonl --parallel parallel.parquet",
        "compare a/vocabularies/300 a/vocabularies/280 --table a --text en.parquet",
        "export a/vocabularies/300 -o exported --no-verify",
        # The libraries that files are read back in, and what those load.
        f"train {train} -o c",
        "compare a/vocabularies/300 c/vocabularies/300/tokenizer.json --table a",
    ]
    ran = subprocess.run(
        [sys.executable, "-c", WATCHED, *HEAVY, "tokenizers", "tiktoken"],
        input="".join(json.dumps(command.split()) + "\n" for command in commands),
        cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    loaded = dict(zip(commands, map(json.loads, ran.stdout.splitlines()), strict=True))
    verifying = loaded.popitem()[1]
    assert verifying == loaded.popitem()[1] == ["tokenizers", "tiktoken"]
    assert {command: names for command, names in loaded.items() if names} == {}


def test_every_command_and_the_two_that_set_up_stand_in_the_readme() -> None:
    for command in app.registered_commands:
        assert command.callback
        assert f"dist-bpe {command.callback.__name__}" in README
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"^make (\w+)", README, re.M):
        assert re.search(rf"^{target}:", makefile, re.M), target


def test_links_between_documents_lead_somewhere() -> None:
    for document in PAGES:
        for target, place in re.findall(r"\]\(([^)#:]*)(#[\w-]+)?\)", document.read_text()):
            file = document.parent / target if target else document
            assert file.exists(), (document.name, target)
            if place:
                headings = re.findall(r"^#+ (.*)$", file.read_text(), re.M)
                assert place[1:] in [re.sub(r"[^\w -]", "", line).lower().replace(" ", "-") for line in headings]
    for page in (ROOT / "docs").glob("*.md"):
        assert f"(docs/{page.name})" in README, page.name


def test_documents_name_what_is_there() -> None:
    """Every file and every module that a document names in code type is one of today."""
    makefile = (ROOT / "Makefile").read_text()
    for document in PAGES:
        text = document.read_text()
        for path in re.findall(r"`(?:dist_bpe/)?([\w/]+\.(?:py|rs|pyi))`", text):
            places = [ROOT, ROOT / "dist_bpe", ROOT / "jobs", ROOT / "rust"]
            assert path == "corpus.py" or any((place / path).exists() for place in places), (document.name, path)
        for path in re.findall(r"(?<![\w/])tests/[\w/]+\.py", text):
            assert (ROOT / path).exists(), (document.name, path)
        for name in re.findall(r"`dist_bpe\.([\w.]+)", text):
            assert pkgutil.resolve_name(f"dist_bpe.{name}"), (document.name, name)
        for target in re.findall(r"`make ([\w-]+)", text):
            assert re.search(rf"^(\w[\w -]* )?{target}( [\w -]*)?:", makefile, re.M), (document.name, target)


def test_readme_commands_and_python(tmp_path: Path, documents: list[str]) -> None:
    """What the README's shell block says, on a corpus laid out as it names it."""
    for i, language in enumerate(("en", "de")):
        for j in range(2):
            folder = tmp_path / "data" / language
            folder.mkdir(parents=True, exist_ok=True)
            texts = documents[(2 * i + j) * 70 :][:70]
            pq.write_table(pa.table({"text": texts, "lang": [language] * 70}), folder / f"{j}.parquet")
    for file in (tmp_path / "data").rglob("*.parquet"):
        (tmp_path / "data" / f"{file.parent.name}-{file.name}").hardlink_to(file)
    config = '[[sources]]\nname = "en"\npaths = "data/en"\n[learn]\nvocab_size = 400\n[engine]\nengine = "local"\n'
    (tmp_path / "run.toml").write_text(f'output = "from-file"\n{config}')
    (block,) = (content for language, content in blocks(README) if content.startswith("pip install"))
    for line in block.splitlines()[1:]:
        command = line.split("  #")[0]
        if command.startswith("dist-bpe train") and "engine" not in command and "toml" not in command:
            command = command.rstrip() + " --engine local"
        command = re.sub(r"(vocab-size|vocabularies/)( ?)(\d\d)\d+", r"\1\g<2>3\g<3>", command)
        started(["bash", "-c", command], tmp_path)
    (code,) = (content for language, content in blocks(README) if language == "python")
    started([sys.executable, "-c", code.replace("32_000", "300")], tmp_path)


def test_the_tutorial_says_what_comes_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its commands and Python in their order, in one folder; a block of text shows lines of the output before it."""
    monkeypatch.chdir(tmp_path)
    follow("tutorial.md", tmp_path)


def test_the_page_of_python_names_everything_and_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (ROOT / "docs" / "python.md").read_text()
    monkeypatch.chdir(tmp_path)
    session = Session("python.md")
    shown: dict[str, inspect.Signature] = {}
    for language, block in blocks(page):
        if language == "pycon":
            session.run(block)
        elif language == "python":
            for text in re.split(r"\n(?=\w)", block):
                name, _, parameters = text.partition("(")
                written: dict[str, Any] = {}
                exec(f"def function({parameters.rstrip()}: ...", written)  # noqa: S102  # a signature of our own
                shown[name] = inspect.signature(written["function"])
    for name, signature in shown.items():
        real = dict(inspect.signature(operator.attrgetter(name)(dist_bpe)).parameters)
        real.pop("self", None)
        assert [*signature.parameters] == [*real], name
        for key, parameter in signature.parameters.items():
            assert (parameter.kind, parameter.default) == (real[key].kind, real[key].default), (name, key)
    exceptions = {name for name in dist_bpe.__all__ if name.endswith("Error")}
    undocumented = set(dist_bpe.__all__) - exceptions - {name.partition(".")[0] for name in shown}
    assert not undocumented
    assert set(re.findall(r"^### (\w+)$", page, re.M)) == set(dist_bpe.__all__) - exceptions
    examples = "".join(block for language, block in blocks(page) if language == "pycon")
    for name in set(dist_bpe.__all__) - exceptions:
        assert f"dist_bpe.{name}" in examples, name
    for name in exceptions:
        assert re.search(rf"{name} +exit code {getattr(dist_bpe, name).exit_code}\b", page), name


def test_the_design_shows_every_file() -> None:
    """Its two trees, of the package and of the core: no file more, and none less, in the order of imports."""
    trees = {block.partition("\n")[0]: block for _, block in blocks((ROOT / "docs" / "design.md").read_text())}
    for top, suffixes in (("dist_bpe/", (".py", ".pyi")), ("rust/src/", (".rs",))):
        folders: list[str] = []
        shown = []
        for indent, name, means in re.findall(r"^( *)(\S+)(?: +(.*))?$", trees[top], re.M):
            folders[len(indent) // 2 :] = [name]
            if not name.endswith("/"):
                shown.append("".join(folders))
            assert means or name == top, name
        files = [file for file in (ROOT / top).rglob("*") if file.suffix in suffixes]
        # A folder's own __init__ holds nothing but its sentence.
        inner = {file for file in files if file.name == "__init__.py" and file.parent != ROOT / top}
        assert sorted(shown) == sorted(str(file.relative_to(ROOT)) for file in files if file not in inner)


# Where each library from outside may be imported: anywhere else it would be a second way to the same thing.
OUTSIDE = {
    "ray": "engine/",
    "obstore": "storage/bucket.py",
    "fsspec": "storage/",
    "datasets": "corpus/readers/huggingface.py",
    "tokenizers": "vocabulary/formats/ pretokenize/checks.py evaluation/tokenizers.py",
    "tiktoken": "vocabulary/formats/ pretokenize/checks.py evaluation/tokenizers.py",
    "transformers": "vocabulary/formats/",
    "typer": "cli/",
    "rich": "cli/ progress.py",
    "matplotlib": "evaluation/balance.py",
}


def test_each_library_from_outside_has_its_place() -> None:
    for file in (ROOT / "dist_bpe").rglob("*.py"):
        place = str(file.relative_to(ROOT / "dist_bpe"))
        for node in ast.walk(ast.parse(file.read_text())):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            for name in names:
                allowed = OUTSIDE.get(name.partition(".")[0])
                assert allowed is None or place.startswith(tuple(allowed.split())), f"{place} imports {name}"


def test_the_run_folder_is_spelled_in_one_place() -> None:
    """What lies in it are files and folders of `storage/layout.py`: no path elsewhere is made of such a name."""
    names = "|".join(re.escape(value) for name, value in vars(layout).items() if name.isupper())
    for file in (ROOT / "dist_bpe").rglob("*.py"):
        if file.name != "layout.py":
            found = re.search(rf"""/ ?["']({names})["']|["']({names})["'] ?/""", file.read_text())
            assert not found, f"{file}: {found}"


def start(*arguments: str | Path) -> subprocess.Popen[str]:
    # A shell that runs the tests in the background has Ctrl-C ignored, and so would the process.
    return subprocess.Popen(
        [sys.executable, "-m", "dist_bpe", *map(str, arguments)],
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


def interrupt(process: subprocess.Popen[str], stage: str, number: signal.Signals = signal.SIGINT) -> float:
    """Wait until a stage has begun, send a signal, and return how many seconds the process took to end."""
    assert process.stderr
    for line in process.stderr:
        if f" {stage}: …" in line:
            break
    time.sleep(0.3)
    assert process.poll() is None, "the stage ended too soon to be interrupted"
    process.send_signal(number)
    began = time.monotonic()
    process.wait(timeout=30)
    return time.monotonic() - began


@pytest.mark.parametrize(("workers", "number"), [(1, signal.SIGINT), (2, signal.SIGTERM)])
def test_signals_while_counting(tmp_path: Path, workers: int, number: signal.Signals) -> None:
    text = "".join(f"{i:x} " for i in range(2_000_000))
    pq.write_table(pa.table({"text": [text] * 40}), tmp_path / "a.parquet", row_group_size=2)
    command = ("count", tmp_path / "a.parquet", "-o", tmp_path / "run", "--engine", "local", "--workers", str(workers))
    process = start(*command, "--shard-bytes", "1")
    seconds = interrupt(process, "count", number)
    assert process.returncode == 128 + number
    assert not (tmp_path / "run" / "counts").exists()
    assert seconds < 5  # one batch of a worker, here 14 MB of text, on a machine that may be busy


def test_ctrl_c_while_learning(tmp_path: Path) -> None:
    rng = random.Random(1)
    letters = str.maketrans("0123456789", "ghijklmnop")
    texts = [" ".join(f"{rng.getrandbits(48):x}".translate(letters) for _ in range(20_000)) for _ in range(50)]
    pq.write_table(pa.table({"text": texts}), tmp_path / "a.parquet")
    table = dist_bpe.count(
        dist_bpe.Source("a", str(tmp_path / "a.parquet")), output=tmp_path / "run", engine="local", progress="silent"
    )
    assert table.rows > 900_000
    process = start("learn", tmp_path / "run", "--vocab-size", "200000")
    interrupt(process, "learn")
    assert process.returncode == 130
    assert not (tmp_path / "run" / "vocabularies").exists()
    assert CountTable.open(tmp_path / "run").digest == table.digest


def test_errors_are_documented() -> None:
    assert errors.__doc__
    for name in dist_bpe.__all__:
        if name.endswith("Error"):
            assert name in errors.__doc__
