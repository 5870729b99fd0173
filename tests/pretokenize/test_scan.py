"""The native scanners against the `regex` module, word by word."""

import random

import pytest
import regex
from conftest import TRICKY, installed_code, installed_languages, random_document

from dist_bpe import _core
from dist_bpe.pretokenize.checks import resolve

SHAPES = [name for name in _core.PATTERNS if "+" not in name and name != "none"]
VARIANTS = [name for name in _core.PATTERNS if "+" in name]
LEVELS = _core.levels()


def expected(pattern: str, text: str) -> list[bytes]:
    """The slow twin: what the stored regular expression finds."""
    return [match.group().encode() for match in regex.finditer(resolve(pattern).regex, text)]


def check(pattern: str, level: str, text: str) -> None:
    found = _core.words(pattern, text, level)
    if found != expected(pattern, text):
        wanted = expected(pattern, text)
        first = next(i for i, pair in enumerate(zip(found, wanted, strict=False)) if pair[0] != pair[1])
        raise AssertionError(f"{pattern} at {level}: word {first} is {found[first]!r}, not {wanted[first]!r}")


# How gpt2 and cl100k cut digits, indentation, accents, Hindi: known right answers.
KNOWN = {
    "gpt2": {
        "1234": ["1234"],
        "12345": ["12345"],
        "1000000": ["1000000"],
        "3.14159": ["3", ".", "14159"],
        "2024": ["2024"],
        "    x = 1": ["   ", " x", " =", " 1"],
        "        x = 1": ["       ", " x", " =", " 1"],
        "\tx = 1": ["\t", "x", " =", " 1"],
        "strawberry": ["strawberry"],
        "café — naïve — 日本語": ["café", " —", " naïve", " —", " 日本語"],
        "don't DON'T": ["don", "'t", " DON", "'", "T"],
        "a\n\n  b": ["a", "\n\n ", " b"],
        "हिन्दी": ["ह", "ि", "न", "्", "द", "ी"],
        "x  \n\n y ": ["x", "  \n\n", " y", " "],
    },
    "cl100k": {
        "1234": ["123", "4"],
        "12345": ["123", "45"],
        "1000000": ["100", "000", "0"],
        "3.14159": ["3", ".", "141", "59"],
        "2024": ["202", "4"],
        "    x = 1": ["   ", " x", " =", " ", "1"],
        "        x = 1": ["       ", " x", " =", " ", "1"],
        "\tx = 1": ["\tx", " =", " ", "1"],
        "strawberry": ["strawberry"],
        "café — naïve — 日本語": ["café", " —", " naïve", " —", " 日本語"],
        "don't DON'T": ["don", "'t", " DON", "'T"],
        "a\n\n  b": ["a", "\n\n", " ", " b"],
        "हिन्दी": ["ह", "िन", "्द", "ी"],
        "x  \n\n y ": ["x", "  \n\n", " y", " "],
    },
}


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("pattern", KNOWN)
def test_known_words(pattern: str, level: str) -> None:
    for text, words in KNOWN[pattern].items():
        assert [word.decode() for word in _core.words(pattern, text, level)] == words


@pytest.mark.parametrize("pattern", SHAPES)
def test_installed_text_of_20_mb(pattern: str) -> None:
    # Every level on the same pass over `regex`, which is what takes the time.
    for text in installed_code(14_000_000) + installed_languages(6_000_000):
        wanted = expected(pattern, text)
        for level in LEVELS:
            assert _core.words(pattern, text, level) == wanted, text[:80]


@pytest.mark.parametrize("pattern", SHAPES)
def test_adversarial_documents(pattern: str) -> None:
    rng = random.Random(11)
    for _ in range(50_000):
        text = random_document(rng)
        wanted = expected(pattern, text)
        for level in LEVELS:
            assert _core.words(pattern, text, level) == wanted, text


@pytest.mark.parametrize("pattern", VARIANTS)
def test_other_rules_for_numbers(pattern: str) -> None:
    rng = random.Random(13)
    digits = [*"0123456789٣३½Ⅷ𝟘", " ", "a", ".", "\n"]
    for _ in range(1500):
        text = "".join(rng.choice(digits) * rng.choice((1, 1, 2, 3, 40)) for _ in range(rng.randint(0, 20)))
        text += random_document(rng)
        wanted = expected(pattern, text)
        for level in LEVELS:
            assert _core.words(pattern, text, level) == wanted, text


def test_no_cut() -> None:
    for text in ("", "a", "one two\n\n3" * 5000):
        for level in LEVELS:
            assert _core.words("none", text, level) == expected("none", text) == [text.encode()][: len(text)]


@pytest.mark.parametrize("pattern", SHAPES)
def test_adversarial_documents_across_blocks(pattern: str) -> None:
    rng = random.Random(12)
    for _ in range(300):
        text = "".join(rng.choice(TRICKY) * rng.choice((1, 1, 1, 2, 3, 70)) for _ in range(400))
        for level in LEVELS:
            check(pattern, level, text)


# llama3 and qwen2 class characters as cl100k does, by the same code.
@pytest.mark.parametrize("pattern", [name for name in SHAPES if name not in ("llama3", "qwen2")])
def test_every_code_point(pattern: str) -> None:
    points = [chr(i) for i in range(0x110000) if not 0xD800 <= i < 0xE000]
    # Documents of 256 code points each, every one once alone between line ends and once between letters.
    for first in range(0, len(points), 256):
        part = points[first : first + 256]
        for text in ("\n".join(part), "".join(f"a{point}b{point}1{point} " for point in part)):
            wanted = expected(pattern, text)
            for level in LEVELS:
                assert _core.words(pattern, text, level) == wanted, hex(ord(part[0]))
