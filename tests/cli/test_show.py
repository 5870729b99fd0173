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


def check(shown: str, width: int) -> None:
    """Nothing is cut short, all rows fit, every name is there as it is, what moves a terminal is written out."""
    assert "…" not in shown.replace("learn … --mixture", "")
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", shown)
    boxed = [line for line in shown.splitlines() if line.startswith("  ")]
    assert boxed
    assert all(len(line) <= width for line in boxed)
    for name in ("[/b]", "[red]x", "en[bold]", ":smile:", "日本語", r"a\x1b[31mb", r"u\u202er"):
        assert name in shown, (name, shown)
    assert "l" * 15 in shown


def test_eighty_columns(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
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
            check(ran.stdout, 80)
        if command[0] == "balance":
            for outcome in json.loads(mixtures.read_text())["rounds"]:
                for number in (f"{outcome['gini']:.4f}", f"{outcome['worst_tokens']:,}", f"{outcome['all_tokens']:,}"):
                    assert number in ran.stdout


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
