"""Patterns: what they cut, what is refused before counting, and what the engines of other libraries make of them."""

import json
import pickle
import random
from pathlib import Path

import pytest
import regex
from conftest import TRICKY, random_document
from hypothesis import given
from hypothesis import strategies as st

from dist_bpe import _core
from dist_bpe.errors import UsageError
from dist_bpe.pretokenize import (
    PATTERNS,
    PROBES,
    Pattern,
    differs_in_tiktoken,
    differs_in_tokenizers,
    find,
    resolve,
    warnings_for,
)

SCRIPTS = """Latin Greek Cyrillic Armenian Georgian Hebrew Arabic Devanagari Bengali Gurmukhi Gujarati Oriya Tamil
Telugu Kannada Malayalam Sinhala Thai Lao Tibetan Myanmar Khmer Ethiopic Cherokee Mongolian Han Hiragana Katakana Hangul
Syriac Nko Tifinagh""".split()

names = pytest.mark.parametrize("name", PATTERNS)
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


EXAMPLES = json.loads((Path(__file__).parent / "pattern_words.json").read_text(encoding="utf-8"))


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
    ],
)
def test_what_tells_the_named_patterns_apart(name: str, text: str, words: list[str]) -> None:
    assert [word.decode() for word in resolve(name).words(text)] == words


def test_every_native_scanner_has_its_pattern() -> None:
    assert list(PATTERNS) == _core.PATTERNS


@names
def test_a_name_and_every_text_of_it_give_the_same_pattern(name: str) -> None:
    pattern = resolve(name)
    assert pattern.native
    assert pickle.loads(pickle.dumps(pattern)) == pattern  # noqa: S301  # our own bytes
    for text in pattern.texts:
        assert resolve(text) is pattern
        compiled = regex.compile(text)
        rng = random.Random(3)
        for document in [*PROBES, *(random_document(rng) for _ in range(3000))]:
            # `$` and {1,3}+ mean to the `regex` module what they mean to us, so all texts can be tried there.
            assert [match.group().encode() for match in compiled.finditer(document)] == pattern.words(document)


def test_the_texts_are_those_that_tiktoken_publishes() -> None:
    from tiktoken_ext import openai_public

    assert PATTERNS["gpt2"].tiktoken_regex == openai_public.r50k_pat_str
    # The others are made by functions that would also download vocabularies, so their source is read.
    source = Path(openai_public.__file__).read_text(encoding="utf-8")
    assert f'"pat_str": r"""{PATTERNS["cl100k"].tiktoken_regex}"""' in source
    body = source[source.index("def o200k_base") : source.index("def o200k_harmony")]
    assert PATTERNS["o200k"].tiktoken_regex == "|".join(regex.findall(r'r"""(.*)""",', body))


@names
def test_every_engine_cuts_by_a_named_pattern_alike(name: str) -> None:
    rng = random.Random(5)
    texts = [*PROBES, *(random_document(rng) for _ in range(400))]
    assert differs_in_tokenizers(resolve(name), texts) is None
    assert differs_in_tiktoken(resolve(name), texts) is None
    for text in texts:
        assert _core.words(name, text) == resolve(name).words(text)


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
        ("gpt3", "unknown pattern 'gpt3'; the known names are: gpt2, cl100k, llama3"),
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
