"""The reference learner against worked examples from published course material and against its own definitions."""

import json
from collections import Counter
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dist_bpe.errors import UsageError
from dist_bpe.learning.textbook import BASE_BYTES, learn

EXAMPLES: list[dict[str, Any]] = json.loads((Path(__file__).parents[1] / "worked_examples.json").read_text("utf-8"))


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example["name"])
def test_worked_example(example: dict[str, Any]) -> None:
    model = learn(
        example["word_counts"],
        len(example["merges"]),
        unit=example["unit"],
        end_of_word=example["end_of_word"],
        tie_break=example["tie_break"],
    )
    assert model.merges == [tuple(pair) for pair in example["merges"]]
    assert model.counts == example["merge_counts"]
    assert model.symbols == example["symbols_after_each_merge"]
    assert {word: model.tokenize(word) for word in example["encode"]} == example["encode"]
    assert model.vocabulary == example.get("vocabulary", model.vocabulary)
    for word, unknown in example.get("unknown_characters", {}).items():
        marked = replace(model, unknown_token="?").tokenize(word)
        assert [piece for piece, mark in zip(model.tokenize(word), marked, strict=True) if mark == "?"] == unknown


def test_bytes_stand_in_gpt2_order() -> None:
    assert sorted(BASE_BYTES) == [bytes([byte]) for byte in range(256)]
    assert [BASE_BYTES.index(byte) for byte in (b"!", b"~", b"\xa1", b"\x00", b"\n", b" ")] == [
        0,
        93,
        94,
        188,
        198,
        220,
    ]


def test_overlaps_count_as_windows_and_merge_from_the_left() -> None:
    model = learn({"aaa": 2}, 2)
    assert model.merges == [(b"a", b"a"), (b"aa", b"a")]
    assert model.counts == [4, 2]
    assert model.tokenize(b"aaaaa") == [b"aa", b"aaa"]


def test_second_merge_sees_the_first() -> None:
    assert learn({"pqr": 5, "pq": 1, "xy": 4}, 3).merges == [(b"p", b"q"), (b"pq", b"r"), (b"x", b"y")]


def test_counts_are_exact_at_any_size() -> None:
    model = learn({" " * 80 + "x": 30_000_000, "ab": 1_000}, 1)
    assert (model.merges, model.counts) == ([(b" ", b" ")], [2_370_000_000])
    assert learn({"ab": 2**70}, 1).counts == [2**70]


def test_three_ways_to_break_a_tie() -> None:
    words = {"zb": 3, "ya": 3, "é!": 3}
    assert learn(words, 1).merges == [(b"y", b"a")]
    assert learn(words, 1, tie_break="first-seen").merges == [(b"z", b"b")]
    assert learn(words, 2, tie_break="lexicographic", unit="character").merges == [("y", "a"), ("z", "b")]
    # The space comes after the letters among ids, before them among strings.
    assert learn({"ab": 2, " b": 2}, 1).merges == [(b"a", b"b")]
    assert learn({"ab": 2, " b": 2}, 1, tie_break="lexicographic").merges == [(b" ", b"b")]


def test_max_token_bytes_is_inclusive_and_counts_bytes() -> None:
    assert [left + right for left, right in learn({"abc": 9}, 9, max_token_bytes=2).merges] == [b"ab"]
    assert [left + right for left, right in learn({"abc": 9}, 9, max_token_bytes=3).merges] == [b"ab", b"abc"]
    assert learn({"学习": 9}, 9, unit="character", max_token_bytes=5).merges == []
    assert learn({"学习": 9}, 9, unit="character", max_token_bytes=6).merges == [("学", "习")]


def test_stops_when_no_pair_is_frequent_enough() -> None:
    assert learn({"abc": 1}, 9).merges == []
    assert len(learn({"abc": 1}, 9, min_pair_count=1).merges) == 2
    assert learn({"abc": 0}, 9, min_pair_count=0).merges == []
    assert learn({}, 9).merges == []


@pytest.mark.parametrize(
    ("words", "options", "part"),
    [
        ({"a": 1}, {"unit": "word"}, "unit = 'word'"),
        ({"a": 1}, {"tie_break": "random"}, "tie_break = 'random'"),
        ({"a": 1}, {"end_of_word": "_"}, 'unit = "character"'),
        ({"a_b": 1}, {"unit": "character", "end_of_word": "_"}, "'a_b'"),
        ({"a": 1}, {"unit": "character", "end_of_word": ""}, "choose another"),
        ({b"a": 1}, {"unit": "character"}, "str"),
        ({"a": -1}, {}, "negative"),
    ],
)
def test_options_that_cannot_work_are_refused(words: Any, options: Any, part: str) -> None:
    with pytest.raises(UsageError, match=part):
        learn(words, 1, **options)


def test_each_step_has_every_pair_that_it_chose_from() -> None:
    words = {"low": 5, "lower": 2, "newest": 6, "widest": 3}
    model = learn(words, 3, unit="character", end_of_word="_", tie_break="first-seen")
    first, second, third = model.steps
    counts = {"lo": 7, "ow": 7, "w_": 5, "we": 8, "er": 2, "r_": 2, "ne": 6, "ew": 6, "es": 9, "st": 9, "t_": 9}
    counts |= {"wi": 3, "id": 3, "de": 3}
    assert first.pairs == {(left, right): count for (left, right), count in counts.items()}
    assert first.equals == [("e", "s"), ("s", "t"), ("t", "_")]
    assert (first.pair, second.pair, third.pair) == (("e", "s"), ("es", "t"), ("est", "_"))
    assert second.pairs[("t", "_")] == 9
    assert third.words == [
        (["l", "o", "w", "_"], 5), (["l", "o", "w", "e", "r", "_"], 2), (["n", "e", "w", "est_"], 6),
        (["w", "i", "d", "est_"], 3),
    ]  # fmt: skip


def test_a_size_counts_the_symbols_at_first() -> None:
    words = {"low": 5, "lower": 2, "newest": 6, "widest": 3}
    for size in (11, 14):
        assert len(learn(words, vocab_size=size, unit="character", end_of_word="_").vocabulary) == size
    assert len(learn(words, vocab_size=258).vocabulary) == 258
    with pytest.raises(UsageError, match="11 symbols before the first merge"):
        learn(words, vocab_size=10, unit="character", end_of_word="_")
    for wrong in ({}, {"num_merges": 1, "vocab_size": 300}):
        with pytest.raises(UsageError, match="give either vocab_size"):
            learn(words, **wrong)


@given(
    words=st.dictionaries(st.text("abc", min_size=1, max_size=8), st.integers(1, 9), max_size=8),
    tie_break=st.sampled_from(["id", "lexicographic", "first-seen"]),
    end_of_word=st.sampled_from([None, "_"]),
    longest=st.none() | st.integers(2, 4),
)
def test_what_a_model_says_of_itself(words: dict[str, int], tie_break: Any, end_of_word: Any, longest: Any) -> None:
    model = learn(
        words,
        50,
        unit="character",
        tie_break=tie_break,
        end_of_word=end_of_word,
        max_token_bytes=longest,
        min_pair_count=1,
    )
    for step, pair, count in zip(model.steps, model.merges, model.counts, strict=True):
        assert (step.pair, step.pairs[pair]) == (pair, count)
        assert pair in step.equals
        assert {step.pairs[equal] for equal in step.equals} == {count}
    if model.steps:
        last = {word: split for word, (split, _) in zip(words, model.steps[-1].words, strict=True)}
        assert last == {word: model.tokenize(word) for word in words}
    assert len(set(model.vocabulary)) == len(model.vocabulary)
    assert model.counts == sorted(model.counts, reverse=True)
    pieces: Counter[str] = Counter()
    for word, count in words.items():
        split = model.tokenize(word)
        assert "".join(split) == word + (end_of_word or "")
        pieces.update({piece: split.count(piece) * count for piece in set(split)})
    assert pieces.total() == model.symbols[-1]
    gains = [before - after for before, after in pairwise(model.symbols)]
    assert all(gain <= count for gain, count in zip(gains, model.counts, strict=True))
    assert all(longest is None or len(left + right) <= longest for left, right in model.merges)
