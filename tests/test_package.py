"""The package as a whole: its public names, its documents, its commands, and what Ctrl-C leaves."""

import os
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dist_bpe
from dist_bpe import errors
from dist_bpe.cli.main import app
from dist_bpe.counting.table import CountTable

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()


def test_public_names() -> None:
    assert dist_bpe.__all__ == [
        "AccessError", "CountOverflowError", "CountTable", "DataError", "DistBpeError", "ExportError", "FormatError",
        "Mixture", "NetworkError", "RunError", "Source", "SourceError", "SpecialToken", "Temperature", "UniMax",
        "UsageError", "Vocabulary", "WordList", "count", "import_counts", "learn",
    ]  # fmt: skip
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


def test_every_command_and_the_two_that_set_up_stand_in_the_readme() -> None:
    for command in app.registered_commands:
        assert command.callback
        assert f"dist-bpe {command.callback.__name__}" in README
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"^make (\w+)", README, re.M):
        assert re.search(rf"^{target}:", makefile, re.M), target


def test_links_between_documents_lead_somewhere() -> None:
    for document in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]:
        for target in re.findall(r"\]\(([^)#:]+)\)", document.read_text()):
            assert (document.parent / target).exists(), (document.name, target)


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
    block = re.search(r"```sh\npip install.*?```", README, re.S)
    assert block
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    for line in block[0].splitlines()[2:-1]:
        command = line.split("  #")[0]
        if command.startswith("dist-bpe train") and "engine" not in command and "toml" not in command:
            command = command.rstrip() + " --engine local"
        command = re.sub(r"(vocab-size|vocabularies/)( ?)(\d\d)\d+", r"\1\g<2>3\g<3>", command)
        ran = subprocess.run(["bash", "-c", command], cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert ran.returncode == 0, (command, ran.stderr)
    code = re.search(r"```python\n(.*?)```", README, re.S)
    assert code
    text = code[1].replace("32_000", "300")
    ran = subprocess.run([sys.executable, "-c", text], cwd=tmp_path, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr


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
        if line.startswith(f"{stage}: …"):
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
