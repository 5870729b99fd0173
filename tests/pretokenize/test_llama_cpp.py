"""llama.cpp: what its pre-tokenizers cut otherwise than the patterns they are named for, by its own expressions.

They stand here as its engine reads them (src/llama-vocab.cpp and src/unicode.cpp): that one knows no case, so that
`\\p{Lu}` and the others of their kind are all `\\p{L}`. Kimi's is code there, put into an expression here.
"""

import dataclasses
import itertools
import random
from pathlib import Path

import pytest
import regex
from conftest import installed_languages, random_document
from vocabularies import CORPUS, learned

from dist_bpe.pretokenize.checks import PROBES
from dist_bpe.pretokenize.patterns import NONE, PATTERNS, Pattern
from dist_bpe.vocabulary.vocabulary import Vocabulary

PAGE = (Path(__file__).parents[2] / "docs" / "patterns.md").read_text(encoding="utf-8")

CONTRACTION = "(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])"
PREFIX = r"[^\r\n\p{L}\p{N}]?"
SPACES = r"|\s*[\r\n]+|\s+(?!\S)|\s+"
OTHERS = r"| ?[^\s\p{L}\p{N}]+[\r\n]*" + SPACES
HAN = (
    "\u4e00-\u9fff\u3400-\u4dbf\U00020000-\U0002a6df\U0002a700-\U0002b81f\U0002b820-\U0002ebef\uf900-\ufaff"
    "\U0002f800-\U0002fa1f"
)


def cased(letters: str, suffix: str, numbers: str) -> str:
    """o200k and its like: a letter that is no small one of ASCII, one that is no capital of ASCII."""
    upper, lower = rf"((?=[{letters}])([^a-z]))", rf"((?=[{letters}])([^A-Z]))"
    words = f"{PREFIX}{upper}*{lower}+{suffix}|{PREFIX}{upper}+{lower}*{suffix}"
    return rf"{words}|{numbers}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*" + SPACES


LLAMA = {
    "gpt-2": (r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)",),
    "llama-bpe": (rf"{CONTRACTION}|{PREFIX}\p{{L}}+|\p{{N}}{{1,3}}{OTHERS}",),
    "qwen2": (rf"{CONTRACTION}|{PREFIX}\p{{L}}+|\p{{N}}{OTHERS}",),
    "qwen35": (rf"{CONTRACTION}|{PREFIX}[\p{{L}}\p{{M}}]+|\p{{N}}| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+[\r\n]*{SPACES}",),
    "gpt-4o": (cased(r"\p{L}", f"{CONTRACTION}?", r"\p{N}{1,3}"),),
    "granite-embed-multi-97m": (cased(r"\p{L}\p{M}", f"{CONTRACTION}?", r"\p{N}{1,3}"),),
    "tekken": (cased(r"\p{L}", "", r"\p{N}"),),
    "tiny_aya": (
        r"\d{1,3}(?=(?:\d{3})*\b)",
        rf"{PREFIX}[\p{{L}}\p{{M}}]+{CONTRACTION}?|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*{SPACES}",
    ),
    "kimi-k2": (rf"[{HAN}]+|{PREFIX}(?:(?![{HAN}])\p{{L}})+{CONTRACTION}?|\p{{N}}{{1,3}}{OTHERS}",),
    "deepseek-v3": PATTERNS["deepseek3"].tokenizers_regexes,
}
LLAMA["dbrx"] = LLAMA["llama-bpe"]

# What has to be in a text for another cut, or for another one than merges could tell.
CASE = r"(?V1)[[\p{Lu}\p{Ll}\p{Lt}]--[A-Za-z]]|[\p{Lm}\p{Lo}\p{M}][A-Z]"
OTHER_NUMBERS = r"(?V1)[\p{N}--[0-9]]"  # of bytes that letters have too
EXCEPTIONS = {
    "gpt2": "(?!)",
    "cl100k": r"ſ|\s\Z",
    "llama3": "ſ",
    "qwen2": "ſ",
    "qwen3.5": "ſ",
    "o200k": CASE,
    "tekken": CASE + rf"|[\p{{L}}\p{{M}}]'[A-Za-zſ]|{OTHER_NUMBERS}",
    "kimi-k2": CASE + rf"|\p{{M}}|[\p{{Han}}--[{HAN}]]",
    "deepseek3": "(?!)",
}
# Borders of ours that theirs do not have, though no merge crosses them: by the characters on both sides.
JOINED = {"kimi-k2": "[a-z][A-Z]", "tekken": r"\p{N}\p{N}"}
ALIKE = [name for name, pattern in PATTERNS.items() if pattern.llama_cpp]


def cut(name: str, text: str) -> list[str]:
    """One expression after another on what those before it have made."""
    pieces = [text]
    for expression in LLAMA[name]:
        pieces = [word.decode() for piece in pieces for word in Pattern(expression).words(piece)]
    return pieces


def ours(name: str, text: str) -> list[str]:
    return [word.decode() for word in PATTERNS[name].words(text)]


@pytest.mark.parametrize("name", ALIKE)
def test_ids_are_the_same_but_for_what_the_page_says(name: str) -> None:
    llama = str(PATTERNS[name].llama_cpp)
    base, _, digits = name.partition("+")
    joined = r"[ \p{N}]\p{N}" if digits else JOINED.get(base, "(?!)")
    data = learned(CORPUS, 700, PATTERNS[name])
    vocabulary, uncut = Vocabulary(data), Vocabulary(dataclasses.replace(data, pattern=NONE))
    rng = random.Random(21)
    documents = (random_document(rng, 25) for _ in range(1500))
    seen = 0
    for text in (*PROBES, *installed_languages(200_000)[:40], *documents):
        if regex.search(EXCEPTIONS[base], text) or (digits and regex.search(OTHER_NUMBERS, text)):
            continue
        seen += 1
        theirs, own = cut(llama, text), ours(name, text)
        borders, wanted = set(itertools.accumulate(map(len, theirs))), set(itertools.accumulate(map(len, own)))
        assert borders <= wanted, text
        assert all(regex.match(joined, text[at - 1 : at + 1]) for at in wanted - borders), text
        ids = [i for piece in theirs for i in uncut.encode(piece)]
        assert ids == vocabulary.encode(text), text
    assert seen > 200


# A text for each difference, and for names that look right and are not.
DIFFERENCES = [
    ("cl100k", "dbrx", "a \n  "),
    ("llama3", "llama-bpe", "'ſt"),
    ("o200k", "granite-embed-multi-97m", "приветМир"),
    ("o200k", "granite-embed-multi-97m", "it'ſ"),
    ("o200k", "gpt-4o", "हिन्दी"),
    ("o200k+digits3r", "tiny_aya", "a  1234 1234b"),
    ("tekken", "granite-embed-multi-97m", "e'tibor"),
    ("tekken", "tekken", "हिन्दी приветМир"),
    ("kimi-k2", "kimi-k2", "हिन्दी"),
    ("kimi-k2", "kimi-k2", "人々"),
]


def shown(text: str) -> str:
    return text.replace(" ", "␣").replace("\n", "⏎")


def differences() -> str:
    rows = "| pattern | there | text | ours | theirs |\n| --- | --- | --- | --- | --- |\n"
    for name, llama, text in DIFFERENCES:
        own, theirs = (" · ".join(map(shown, words)) for words in (ours(name, text), cut(llama, text)))
        assert own != theirs, (name, text)
        rows += f"| `{name}` | `{llama}` | {shown(text)} | {own} | {theirs} |\n"
    return rows


def test_differences_are_told() -> None:
    assert differences() in PAGE, f"docs/patterns.md should have:\n{differences()}"


def test_each_difference_that_is_told_has_its_text() -> None:
    for name, llama, text in DIFFERENCES:
        if PATTERNS[name].llama_cpp == llama:
            assert regex.search(EXCEPTIONS[name], text), (name, text)
    told = {name for name, llama, _ in DIFFERENCES if PATTERNS[name].llama_cpp == llama}
    assert told | {"gpt2", "qwen2", "qwen3.5", "deepseek3"} == set(EXCEPTIONS)  # two of these have llama3's alone
