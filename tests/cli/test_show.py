"""Tables on a terminal: no number is ever cut, and names are printed as they are."""

import io
import json
import random
import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers import run
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from dist_bpe.cli.show import _print_table, plain

NAMES = ["[/b]", "[red]x", "en[bold]", ":smile:", "日本語", "a\x1b[31mb", "u\u202er", "l" * 50]


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """A run folder whose sources have names that mean something to a terminal, and a parallel set of them."""
    rng = random.Random(4)
    words = [["".join(rng.choices("abcdefgh", k=4)) for _ in range(200)] for _ in NAMES]
    texts = {
        name: [" ".join(rng.choices(own, k=80)) for _ in range(90)] for name, own in zip(NAMES, words, strict=True)
    }
    rows = [(name, text) for name, documents in texts.items() for text in documents[:60]]
    langs, documents = (list(column) for column in zip(*rows, strict=True))
    pq.write_table(pa.table({"lang": langs, "text": documents}), tmp_path / "in.parquet")
    held = [(name, f"d{i}", texts[name][i]) for name in NAMES for i in range(60, 90)]
    lang, doc, text = (list(column) for column in zip(*held, strict=True))
    pq.write_table(pa.table({"lang": lang, "doc": doc, "text": text}), tmp_path / "dev.parquet")
    ran = run(
        "train", tmp_path / "in.parquet", "--group-by", "lang", "--engine", "local", "--vocab-size", "400",
        "--no-verify", "-o", tmp_path / "run", "--alpha", "0.5",
    )  # fmt: skip
    assert ran.exit_code == 0, ran.stderr
    check(ran.stdout, 120)
    return tmp_path


def cut_numbers(shown: str) -> list[str]:
    """The cells beside names that are cut short, and no names themselves."""
    rows = [re.split(r" {2,}", line.strip()) for line in shown.splitlines() if line.startswith("  ")]
    return [cell for row in rows for cell in row[1:] if ("…" in cell or "..." in cell) and not cell[0].isalpha()]


def check(shown: str, width: int) -> None:
    """No number is cut short, all rows fit, every name is there as it is, what moves a terminal is written out."""
    assert not cut_numbers(shown)
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", shown)
    boxed = [line for line in shown.splitlines() if line.startswith("  ")]
    assert boxed
    assert all(len(line) <= width for line in boxed)
    for name in ("[/b]", "[red]x", "en[bold]", ":smile:", "日本語", r"a\x1b[31mb", r"u\u202er"):
        assert name in shown, (name, shown)
    assert re.search("l{8}…l{8}|l{15}", shown)


@pytest.mark.parametrize("width", [60, 80])
def test_narrow_terminals(table: Path, monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    folder = table / "run" / "vocabularies" / "400"
    mixtures = table / "run" / "mixtures" / "balanced.json"
    dev = table / "dev.parquet"
    for command in (
        ["learn", table / "run", "--vocab-size", "300,400,500", "--alpha", "0.3", "--no-verify", "--name", "n"],
        ["balance", table / "run", "--vocab-size", "400", "--dev", dev, "--reference", "[/b]", "--rounds", "2"],
        ["plan", table / "in.parquet", "--group-by", "lang"],
        ["evaluate", folder, "--table", table / "run", "--parallel", dev, "--reference", "[red]x"],
        ["compare", *[folder] * 5, "--parallel", dev, "--reference", "日本語"],
    ):  # fmt: skip
        ran = run(*command)
        assert ran.exit_code == 0, (command, ran.stderr, ran.exception)
        if command[0] != "plan":  # which does not know the groups yet
            check(ran.stdout, width)
        if command[0] == "balance":
            for outcome in json.loads(mixtures.read_text())["rounds"]:
                for number in (f"{outcome['gini']:.4f}", f"{outcome['worst_tokens']:,}", f"{outcome['all_tokens']:,}"):
                    assert number in ran.stdout


MANY = [f"language-{chr(97 + i % 7)}{chr(97 + i // 7)}-of-a-corpus-with-a-long-name-{i:02}" for i in range(35)]


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run folder and a parallel set of many sources with long names that differ in the middle and at the end."""
    folder = tmp_path_factory.mktemp("many")
    rng = random.Random(5)
    texts = {
        name: [" ".join("".join(rng.choices("abcdef", k=3)) for _ in range(40)) for _ in range(9)] for name in MANY
    }
    rows = [(name, text) for name, documents in texts.items() for text in documents]
    pq.write_table(
        pa.table({"lang": [name for name, _ in rows], "text": [text for _, text in rows]}), folder / "in.parquet"
    )
    held = [(name, f"d{i}", text) for name, documents in texts.items() for i, text in enumerate(documents)]
    lang, doc, text = (list(column) for column in zip(*held, strict=True))
    pq.write_table(pa.table({"lang": lang, "doc": doc, "text": text}), folder / "dev.parquet")
    command = ["count", folder / "in.parquet", "--group-by", "lang", "--engine", "local", "-o", folder / "run"]
    assert run(*command).exit_code == 0
    for name in MANY:
        (folder / name).mkdir()
        (folder / name / "a.txt").write_text("a b")
    return folder


@pytest.mark.parametrize("width", [60, 80])
@pytest.mark.parametrize("command", ["plan", "learn", "evaluate", "compare", "balance"])
def test_many_sources_with_long_names(many: Path, monkeypatch: pytest.MonkeyPatch, command: str, width: int) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    size = ["--vocab-size", "300,330", "--alpha", "0.3", "--no-verify", "--name", "n", "--overwrite"]
    assert run("learn", many / "run", *size).exit_code == 0
    made = many / "run" / "vocabularies" / "n-330"
    on = ["--parallel", many / "dev.parquet", "--reference", MANY[3]]
    given = {
        "plan": ["plan", *(f"{name}={many / name}" for name in MANY)],
        "learn": ["learn", many / "run", *size],
        "evaluate": ["evaluate", made, *on],
        "compare": ["compare", made, made.parent / "n-300", *on],
        "balance": ["balance", many / "run", "--vocab-size", "300", "--dev", many / "dev.parquet", *on[2:],
                    "--rounds", "2", "--overwrite"],
    }[command]  # fmt: skip
    ran = run(*given)
    assert ran.exit_code == 0, (ran.stderr, ran.exception)
    boxed = [line for line in ran.stdout.splitlines() if line.startswith("  ")]
    assert max(map(len, boxed)) <= width
    assert "  … and 15 more: --all-sources shows all" in ran.stdout
    assert not cut_numbers(ran.stdout)
    named = re.compile(r"^  lang\S*\d\d +[\d,.]+ ", re.M)
    every = run(*given, "--all-sources").stdout
    assert "--all-sources" not in every
    for shown, rows in ((ran.stdout, 20), (every, 35)):
        tables = [len(named.findall(table)) for table in re.split(r"^ +─+ *$", shown, flags=re.M)]
        assert {number for number in tables if number} == {rows}, shown


def test_names_that_would_become_one_fold_instead() -> None:
    out = io.StringIO()
    names = ["a" * 40 + "1" + "b" * 40, "a" * 40 + "2" + "b" * 40]
    _print_table(
        Console(file=out, width=60, highlight=False), "source", ["x"] * 4, [[name, *["1234567"] * 4] for name in names]
    )
    assert "…" not in out.getvalue()
    assert re.sub(r"[^ab12]|1234567", "", out.getvalue()).startswith(names[0])


@given(
    st.lists(
        st.tuples(st.text(max_size=60), st.lists(st.integers(0, 10**15), min_size=4, max_size=4)),
        min_size=1,
        max_size=6,
    ),
    st.integers(40, 200),
)
def test_numbers_are_whole_at_any_width(rows: list[tuple[str, list[int]]], width: int) -> None:
    out = io.StringIO()
    console = Console(file=out, width=width, highlight=False)
    cells = [[name, *(f"{number:,}" for number in numbers)] for name, numbers in rows]
    _print_table(console, "source", ["tokens", "all the bytes", "premium to [b]", "x"], cells)
    shown = out.getvalue()
    for row in cells:
        for number in row[1:]:
            assert re.search(rf"(?<![\d,]){number}(?![\d,])", shown)
    for head in ("tokens", "bytes", "premium", "[b]"):
        assert head in shown


def test_the_end_of_a_line_in_a_name_is_written_out() -> None:
    assert plain("a\nb\tc\x1b]0;x\x07\u2028日[red]") == r"a\nb\tc\x1b]0;x\x07\u2028日[red]"
