"""lesson: the steps as they are printed; what is given wrongly is one sentence."""

import json
from pathlib import Path

import pytest
from helpers import run

WORDS = ["low:5", "lower:2", "newest:6", "widest:3"]


def test_a_lesson_shows_winners_losers_reasons_and_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    ran = run("lesson", *WORDS, "--end-of-word", "_", "--merges", "2", "--pairs", "4")
    assert ran.exit_code == 0, ran.stderr
    lines = [" ".join(line.split()) for line in ran.stdout.splitlines()]
    chosen = [line for line in lines if line.startswith("merge ")]
    assert len(chosen) == 2
    # Ids follow the first appearance: l o w _ e r n s t.
    assert "of the 3 pairs with the highest count the one with the smallest ids, 4 and 7" in chosen[0]
    for line in ("e s 9 merged", "s t 9 as many", "t _ 9 as many", "w e 8", "… and 10 other pairs (--pairs 14)"):
        assert line in lines, ran.stdout
    assert "6 × n e w es t _" in lines


def test_words_of_a_file_and_bytes(tmp_path: Path) -> None:
    (tmp_path / "words.txt").write_text("ä ä  ä\nab\u2028ab")
    ran = run("lesson", tmp_path / "words.txt", "x:1", "--unit", "byte", "--merges", "1", "--json")
    assert ran.exit_code == 0, ran.stderr
    told = json.loads(ran.stdout)
    assert told["words"] == {"ä": 3, "ab": 2, "x": 1}
    assert len(told["vocabulary"]) == 257
    (step,) = told["steps"]
    assert (step["pair"], step["count"], step["words"][0]) == (["\\xc3", "\\xa4"], 3, [["ä"], 3])
    assert step["pairs"] == [["\\xc3", "\\xa4", 3], ["a", "b", 2]]


def test_a_lesson_ends_where_no_pair_is_left() -> None:
    ran = run("lesson", "abc:2", "--merges", "9")
    assert "No other pair can be merged: 2 merges of 9.\n" in ran.stdout
    assert "No other" not in run("lesson", "abc:2", "--vocab-size", "5").stdout
    ran = run("lesson", "abc:9", "ab:9", "--max-token-bytes", "2", "--merges", "3", "--tie-break", "lexicographic")
    assert ran.exit_code == 0


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["low"], "'low' is no file, and no word with its count: write low:5."),
        ([":5"], "':5' is no file"),
        (["low:x"], "'low:x' is no file"),
        (
            ["low:5", "--merges", "1", "--vocab-size", "9"],
            "give either vocab_size (--vocab-size) or num_merges (--merg",
        ),
        (["low:5", "--vocab-size", "2"], "vocab_size (--vocab-size) is too small with 2: there are 3 symbols"),
        (["low:5", "--tie-break", "no"], "--tie-break: it should be 'id', 'lexicographic' or 'first-seen', not 'no'."),
        (["low:5", "--unit", "byte", "--end-of-word", "_"], "has no place among bytes"),
    ],
)
def test_what_is_given_wrongly(given: list[str], said: str) -> None:
    ran = run("lesson", *given)
    assert (ran.exit_code, said in ran.stderr) == (2, True), ran.stderr
