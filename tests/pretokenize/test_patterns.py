"""Patterns: what they cut, what is refused before counting, and what the engines of other libraries make of them."""

import json
import pickle
import random
from pathlib import Path

import pytest
import regex
import tiktoken
from conftest import TRICKY, random_document
from hypothesis import given
from hypothesis import strategies as st

from dist_bpe import _core
from dist_bpe.errors import UsageError
from dist_bpe.pretokenize.checks import (
    PROBES,
    differs_in_tiktoken,
    differs_in_tokenizers,
    resolve,
    slow_text,
    syllable_advice,
    warnings_for,
)
from dist_bpe.pretokenize.patterns import O200K, PATTERNS, Pattern, PatternTimeoutError, _safe_length, find
from dist_bpe.pretokenize.preparation import SpecialToken, plain_special_token, special_token

SCRIPTS = """Latin Greek Cyrillic Armenian Georgian Hebrew Arabic Devanagari Bengali Gurmukhi Gujarati Oriya Tamil
Telugu Kannada Malayalam Sinhala Thai Lao Tibetan Myanmar Khmer Ethiopic Cherokee Mongolian Han Hiragana Katakana Hangul
Syriac Nko Tifinagh""".split()

names = pytest.mark.parametrize("name", PATTERNS)
SHAPES = [name for name in PATTERNS if "+" not in name]
tricky = st.lists(st.one_of(st.sampled_from(TRICKY), st.characters(exclude_categories=["Cs"]))).map("".join)


def test_the_probe_texts_hold_what_they_promise() -> None:
    text = "".join(PROBES)
    assert [script for script in SCRIPTS if not regex.search(rf"\p{{Script={script}}}", text)] == []
    for sample in [
        "\n        ",
        "\t\t",
        "\r\n",
        "1234567",
        "\u200d",
        "e\u0301",
        "\u2028",
        "\x1c",
        "\u00a0",
        "🇮🇹",
        "\x00",
    ]:
        assert sample in text
    assert len(set(PROBES)) == len(PROBES)


EXAMPLES = json.loads((Path(__file__).parents[1] / "pattern_words.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", EXAMPLES)
def test_published_examples(name: str) -> None:
    for text, words in EXAMPLES[name].items():
        assert [word.decode() for word in resolve(name).words(text)] == words


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("llama3", "a\n  ", ["a", "\n", "  "]),
        ("cl100k", "a\n  ", ["a", "\n  "]),
        ("llama3", "x12345 don'T", ["x", "123", "45", " don", "'T"]),
        ("qwen2", "x123 ½", ["x", "1", "2", "3", " ", "½"]),
        ("o200k", "camelCase HTMLParser don't", ["camel", "Case", " HTMLParser", " don't"]),
        ("o200k", "हिन्दी ที่//\n", ["हिन्दी", " ที่", "//\n"]),
        ("qwen3.5", "हिन्दी ที่ 12'll!", ["हिन्दी", " ที่", " ", "1", "2", "'ll", "!"]),
        ("tekken", "camelCase don't 12//\n", ["camel", "Case", " don", "'t", " ", "1", "2", "//\n"]),
        ("kimi-k2", "don't 中文ABc 1〇〇//\n/", ["don't", " ", "中文", "ABc", " ", "1〇〇", "//\n", "/"]),
        ("gpt2-marks", "हिन्दी ที่ 12'll", ["हिन्दी", " ที่", " 12", "'ll"]),
        ("gpt2+digits1", "a  12", ["a", " ", " ", "1", "2"]),
        ("gpt2-marks+digits3", "1234", ["123", "4"]),
        ("cl100k+digits3r", "1234567 89", ["1", "234", "567", " ", "89"]),
        ("deepseek3", "(word don't 日本・語  12\n\0\0a", [*"(word| don|'t| |日本|・|語|  |12|\n|\0|\0a".split("|")]),
        ("none", "a b\n1", ["a b\n1"]),
    ],
)
def test_what_tells_the_named_patterns_apart(name: str, text: str, words: list[str]) -> None:
    assert [word.decode() for word in resolve(name).words(text)] == words


@pytest.mark.parametrize(
    ("other", "name"),
    [
        ("cl100k+digits3", "cl100k"),
        ("llama3+digits1", "qwen2"),
        ("llama3+digits3", "llama3"),
        ("qwen2+digits1", "qwen2"),
        ("qwen2+digits3", "llama3"),
        ("qwen2+digits3r", "llama3+digits3r"),
        ("qwen3.5+digits1", "qwen3.5"),
        ("o200k+digits3", "o200k"),
        ("tekken+digits1", "tekken"),
        ("kimi-k2+digits3", "kimi-k2"),
        ("deepseek3+digits3", "deepseek3"),
    ],
)
def test_a_rule_for_numbers_that_a_pattern_has_already_is_the_pattern_of_that_meaning(other: str, name: str) -> None:
    assert resolve(other) is PATTERNS[name]


def cut_in_turn(pattern: Pattern, text: str) -> list[bytes]:
    """The slow twin of `deepseek3`: one cut after another, as its tokenizer.json asks for."""
    pieces = [text]
    for expression in pattern.tokenizers_regexes:
        pieces = [word.decode() for piece in pieces for word in Pattern(expression).words(piece)]
    return [piece.encode() for piece in pieces]


@pytest.mark.parametrize("name", [name for name in PATTERNS if name.startswith("deepseek3")])
def test_one_expression_says_what_three_cuts_do(name: str) -> None:
    rng = random.Random(4)
    for _ in range(3000 if name in SHAPES else 500):
        document = random_document(rng)
        assert PATTERNS[name].words(document) == cut_in_turn(PATTERNS[name], document)
    if name in SHAPES:
        # All code points where the rules meet, and some of the long stretches of letters and of nothing.
        near = {*range(0x3400), *range(0x4DF0, 0x4E10), *range(0x9F90, 0xA000), *range(0xFE00, 0x10000)}
        points = [chr(i) for i in sorted(near | {*range(0x3400, 0x110000, 101)}) if not 0xD800 <= i < 0xE000]
        for first in range(0, len(points), 512):
            document = "".join(f"a{point}{point}b 日{point}1{point} !{point}(" for point in points[first : first + 512])
            assert PATTERNS[name].words(document) == cut_in_turn(PATTERNS[name], document)


def test_every_native_scanner_has_its_pattern() -> None:
    assert list(PATTERNS) == _core.PATTERNS


@names
def test_a_name_and_every_text_of_it_give_the_same_pattern(name: str) -> None:
    pattern = resolve(name)
    assert pattern.native
    assert pickle.loads(pickle.dumps(pattern)) == pattern  # noqa: S301  # our own bytes
    for text in pattern.texts:
        assert resolve(text) is pattern
        compiled = regex.compile(text, regex.V1 if "&&" in text else regex.V0)
        rng = random.Random(3)
        for document in [*PROBES, *(random_document(rng) for _ in range(3000 if name in SHAPES else 200))]:
            # `$` and {1,3}+ mean to the `regex` module what they mean to us, so all texts can be tried there.
            assert [match.group().encode() for match in compiled.finditer(document)] == pattern.words(document)


def test_the_texts_are_those_that_tiktoken_publishes() -> None:
    from tiktoken_ext import openai_public

    assert PATTERNS["gpt2"].tiktoken_regex == openai_public.r50k_pat_str
    # The others are made by functions that would also download vocabularies, so their source is read.
    source = Path(openai_public.__file__).read_text(encoding="utf-8")
    assert f'"pat_str": r"""{PATTERNS["cl100k"].tiktoken_regex}"""' in source
    body = source[source.index("def o200k_base") :]
    assert PATTERNS["o200k"].tiktoken_regex == "|".join(regex.findall(r'^ +r"""(.*)""",$', body, regex.M))


@names
def test_every_engine_cuts_by_a_named_pattern_alike(name: str) -> None:
    rng = random.Random(5)
    texts = [*PROBES, *(random_document(rng) for _ in range(400 if name in SHAPES else 40))]
    assert differs_in_tokenizers(resolve(name), texts) is None
    assert differs_in_tiktoken(resolve(name), texts) is None
    for text in texts:
        assert _core.words(name, text) == resolve(name).words(text)


def test_the_published_texts_of_other_models() -> None:
    # Qwen 3.5's stands in `transformers`; Mistral's in its readers, and in llama.cpp; Kimi's in tokenization_kimi.py.
    from transformers.models.qwen3_5 import tokenization_qwen3_5

    assert PATTERNS["qwen3.5"].regex == tokenization_qwen3_5.PRETOKENIZE_REGEX
    upper, lower = r"\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}", r"\p{Ll}\p{Lm}\p{Lo}\p{M}"
    assert PATTERNS["tekken"].regex == (
        rf"[^\r\n\p{{L}}\p{{N}}]?[{upper}]*[{lower}]+|[^\r\n\p{{L}}\p{{N}}]?[{upper}]+[{lower}]*"
        r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    )
    no_han, suffix = r"&&[^\p{Han}]", "(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    assert PATTERNS["kimi-k2"].tiktoken_regex == (
        rf"[\p{{Han}}]+|[^\r\n\p{{L}}\p{{N}}]?[{upper}{no_han}]*[{lower}{no_han}]+{suffix}"
        rf"|[^\r\n\p{{L}}\p{{N}}]?[{upper}{no_han}]+[{lower}{no_han}]*{suffix}"
        r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    )


@pytest.mark.parametrize("name", [name for name in PATTERNS if name.endswith("+digits3r")])
def test_exported_groups_from_the_right_are_those_of_the_pattern(name: str) -> None:
    rng = random.Random(7)
    digits = [*"0123456789٣३½Ⅷ𝟘", " ", "a", ".", "\n"]
    texts = ["".join(rng.choice(digits) * rng.choice((1, 1, 2, 3, 20)) for _ in range(9)) for _ in range(150)]
    assert differs_in_tokenizers(PATTERNS[name], texts) is None
    assert differs_in_tiktoken(PATTERNS[name], texts) is None
    # By a spelling that looks ahead at each group this would take hours.
    number = "7" * 500_000
    encoding = tiktoken.Encoding(
        "", pat_str=PATTERNS[name].tiktoken_regex, mergeable_ranks={b"7": 0, b"77": 1, b"777": 2}, special_tokens={}
    )
    assert encoding.encode_ordinary(number) == [1] + [2] * 166_666
    assert differs_in_tokenizers(Pattern("^77|777", tokenizers=PATTERNS[name].tokenizers), [number]) is None


@given(tricky)
def test_words_join_to_the_text(text: str) -> None:
    for pattern in [*PATTERNS.values(), Pattern(r"\w+"), Pattern(r"(a)|(b)*|(?<=c)d"), Pattern(r"\n|$|^")]:
        words = pattern.words(text)
        assert b"".join(words) == text.encode()
        assert b"" not in words


@given(tricky)
def test_capture_groups_change_nothing(text: str) -> None:
    plain = Pattern(r"\p{L}+| ?\p{N}{1,2}|[^\p{L}\p{N}]")
    grouped = Pattern(r"(\p{L})+|( ?)(\p{N}{1,2})|(?P<other>[^\p{L}\p{N}])")
    assert plain.words(text) == grouped.words(text)


def test_text_between_matches_is_kept_as_tokenizers_keeps_it() -> None:
    pattern = Pattern(r"\d+")
    assert pattern.words("ab12cd, 3") == [b"ab", b"12", b"cd, ", b"3"]
    assert pattern.words("") == []
    assert differs_in_tokenizers(pattern, PROBES) is None


def test_a_lone_surrogate_is_refused_with_its_place() -> None:
    for pattern in (*PATTERNS.values(), Pattern(r"(\w)+")):
        with pytest.raises(UsageError, match=r"U\+D83D, at character 3"):
            pattern.words("abc\ud83d!")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty"),
        ("gpt3", "unknown pattern 'gpt3'; the known names are: gpt2, gpt2-marks, cl100k, llama3"),
        ("o200k+digits4", r"unknown pattern .* all but none and kimi-k2 with \+digits1, \+digits3, \+digits3r behind"),
        ("none+digits1", "unknown pattern"),
        ("kimi-k2+digits1", "unknown pattern"),
        ("gpt2+digits1+digits3", "unknown pattern"),
        ("o200k_base", "unknown pattern"),
        (r"(\w+", r"does not compile: missing \) at position 4"),
        (r"\p{Klingon}", "does not compile"),
        (r"a{1", None),
        ("a literal that never matches", "matches nothing"),
        (r"\b", "matches nothing"),
        (r"(?s:.)+", "splits nothing"),
        (r"(?r)\w+", "searches backwards"),
    ],
)
def test_patterns_that_cannot_work_are_refused(text: str, message: str | None) -> None:
    with pytest.raises(UsageError, match=message):
        resolve(text)


def test_a_pattern_can_be_read_back_though_it_would_be_refused_anew() -> None:
    assert find("a literal that never matches").name is None


def test_custom_patterns_warn_of_what_other_engines_do() -> None:
    assert warnings_for(resolve("gpt2")) == []
    assert warnings_for(resolve(r"[\p{L}\p{M}]+| ?\p{N}|\s|[^\s\p{L}\p{M}\p{N}]+")) == []
    assert warnings_for(resolve(r"(\p{L})+|([\s\S])")) == []
    bounded = warnings_for(resolve(r"\p{N}{1,3}+|\p{L}+|[\s\S]"))
    assert [text.split()[0] for text in bounded] == ["`tokenizers`"]
    assert "١٢٣٤" in bounded[0]
    gaps = warnings_for(resolve(r"\p{L}+|\s+"))
    assert len(gaps) == 1
    assert r"`tiktoken` drops it; end the pattern with |[\s\S]" in gaps[0]
    escaped_twice = warnings_for(resolve(PATTERNS["gpt2"].regex.replace("\\", "\\\\")))
    assert "probe texts whole" in escaped_twice[0]
    whole = warnings_for(resolve(r"\n+|[^\n]+"))
    assert len(whole) == 1
    assert "probe texts whole" in whole[0]
    unread = warnings_for(resolve(r"\X"))
    assert "`tiktoken` cannot read the pattern" in unread[-1]


def test_a_border_that_moves_shows_in_tiktoken_ids() -> None:
    # One-letter words of one-byte tokens are the hard case: uncut they would have the same ids without border tokens.
    assert differs_in_tiktoken(Pattern(r"[\s\S]", tiktoken=r"[\s\S]{1,2}"), ["a", "ab"]) == "ab"
    assert differs_in_tiktoken(Pattern(r"[\s\S]{1,2}", tiktoken=r"[\s\S]"), ["a", "ab"]) == "ab"
    assert differs_in_tiktoken(Pattern(r"[\s\S]{1,2}", tiktoken=r"^[\s\S]|[\s\S]{1,2}"), ["a", "aaa"]) == "aaa"
    assert differs_in_tiktoken(Pattern(r"[\s\S]{1,2}"), ["a", "ab", "abc", "aaaa"]) is None


# ---- expressions that try without end

ENDLESS = [r"(a|aa)+$|[\s\S]", r"(\w+\s?)+$|\w|\W", r"(x+x+)+y|[\s\S]", r"(?:a*)*b|[\s\S]"]


@pytest.mark.parametrize("text", ENDLESS[:2])
def test_an_endless_pattern_is_stopped_and_warned_of(text: str) -> None:
    pattern = find(text)
    slow = slow_text(pattern)
    assert slow is not None
    with pytest.raises(PatternTimeoutError, match=r"took more than 0.1 s for a text of \d") as raised:
        pattern.words(slow, 0.1)
    assert repr(text) in str(raised.value)
    assert raised.value.exit_code == 3
    assert str(pickle.loads(pickle.dumps(raised.value))) == str(raised.value)  # noqa: S301
    assert any("takes more than a second for" in warning for warning in warnings_for(pattern))


@pytest.mark.parametrize("text", [r"[\p{L}\p{M}]+| ?\p{N}{1,2}|\s|[^\s\p{L}\p{M}\p{N}]+", O200K.regex + "|zz", r"\X"])
def test_a_usual_pattern_is_not_slow(text: str) -> None:
    assert slow_text(find(text)) is None


def test_a_pattern_that_is_endless_on_a_probe_is_an_error() -> None:
    with pytest.raises(UsageError, match="took more than 1 s for a text of"):
        resolve(r"(?:\w|\w\w|\W|\W\W)+(?<=[Q-Z]{3})|[\s\S]")


def test_the_clock_runs_where_a_pattern_could_take_long() -> None:
    assert all(
        _safe_length(text) == 0 for text in [*ENDLESS, r"(a)\1", "(?R)", "x{e<=1}", "[[a-z]--[b]]", "(?(1)a|b)", "("]
    )
    assert _safe_length(r"\w+|\s") > _safe_length(r"\w+\s*") > _safe_length(r"\w+\s*\d+") > 100
    assert _safe_length(r"\w++\s*+\d++|[]+*]?|(?i:x)?|a{2,4}") == _safe_length("a") > 10**8
    for pattern in PATTERNS.values():
        text = "ab 12\n" * 400
        assert pattern.pieces(text) == pattern.pieces(text, 100)


def test_ways_to_keep_marks() -> None:
    keeping = ["gpt2-marks", "qwen3.5", "o200k", "tekken", "kimi-k2", "deepseek3"]
    better = f"the patterns {', '.join(keeping[:-1])} and {keeping[-1]} keep marks with their letters."
    for name in PATTERNS:
        kept = name.split("+")[0] in (*keeping, "none")
        assert syllable_advice(find(name)) == (None if kept else better), name
    assert syllable_advice(find(r"\p{L}+|\s|\p{M}+")) == better
    assert syllable_advice(find(r"[\p{L}\p{M}]+|\s")) is None


def test_a_pattern_without_utf8_form() -> None:
    with pytest.raises(UsageError, match="lone surrogate"):
        find("[\ud800]")


# ---- special tokens as they are written


@pytest.mark.parametrize(
    "text",
    ["EOS=</s>", "user=<|user|>", "mask=<mask>", "role2=x", "Bos=<s>", "additional-special=x", " eos=</s>", "x="],
)
def test_a_word_before_an_equals_sign_is_a_role_or_an_error(text: str) -> None:
    with pytest.raises(UsageError, match=r"which is no role: the roles are bos, eos, pad, unk, other") as raised:
        special_token(text)
    assert f"write other={text}" in str(raised.value)
    assert special_token(f"other={text}") == SpecialToken(text) == plain_special_token(text)


def test_special_tokens_with_and_without_roles() -> None:
    assert special_token("eos=</s>") == SpecialToken("</s>", "eos")
    for text in ("<a=b>", "=", "==x", "<|x|>", "a b=c", "<|role|>=x", "1=2"):
        assert special_token(text) == SpecialToken(text)
    assert (
        special_token("<|endoftext|>") == plain_special_token("<|endoftext|>") == SpecialToken("<|endoftext|>", "eos")
    )
    assert special_token("other=<|endoftext|>") == SpecialToken("<|endoftext|>")
    with pytest.raises(UsageError, match="write eos=</s> if that is meant"):
        special_token("EOS=</s>")
