"""docs/patterns.md: its tables are what the code and the installed libraries do."""

import importlib.metadata
import unicodedata
from pathlib import Path

import pytest
import regex

from dist_bpe import _core
from dist_bpe.pretokenize.patterns import DIGITS, PATTERNS

PAGE = (Path(__file__).parents[2] / "docs" / "patterns.md").read_text(encoding="utf-8")
SHAPES = [name for name in PATTERNS if "+" not in name and name != "none"]
EXAMPLES = {
    "Latin": "don't HTTPServer (x) =  1234",
    "Cyrillic": "Ещё 1234 щуки",
    "Arabic": "السَّلَامُ ١٢٣٤",
    "Hebrew": "עִבְרִית טוֹב",
    "Devanagari": "हिन्दी में १२",
    "Thai": "ที่นี่ ๒๕",
    "Han, kana": "2 月の日本語・カナABC",
    "Hangul": "한국어 12월",
}


def shown(words: list[bytes]) -> str:
    return " · ".join(word.decode().replace(" ", "␣") for word in words)


def examples() -> str:
    """Per script the cuts there are, each with the patterns that make it."""
    rows = "| text | patterns | words |\n| --- | --- | --- |\n"
    for script, text in EXAMPLES.items():
        cuts: dict[str, list[str]] = {}
        for name in SHAPES:
            cuts.setdefault(shown(_core.words(name, text)), []).append(f"`{name}`")
        for number, (cut, names) in enumerate(cuts.items()):
            rows += f"| {f'{script}: {text}' if number == 0 else ''} | {', '.join(names)} | {cut} |\n"
    return rows


def digits() -> str:
    rows = "| | `1234567 12` |\n| --- | --- |\n"
    for name in ("gpt2", *(f"gpt2+{policy}" for policy in DIGITS)):
        rows += f"| `{name}` | {shown(_core.words(name, '1234567 12'))} |\n"
    return rows


@pytest.mark.parametrize("table", [examples, digits])
def test_examples(table) -> None:  # type: ignore[no-untyped-def]
    assert table() in PAGE, f"docs/patterns.md should have:\n{table()}"


def test_every_pattern_is_in_the_table() -> None:
    for name in [*SHAPES, "none"]:
        llama = PATTERNS[name].llama_cpp
        row = next(line for line in PAGE.splitlines() if line.startswith(f"| `{name}`"))
        assert row.split(" | ")[2] == (f"`{llama}`" if llama else "–"), row
    for policy, text in DIGITS.items():
        assert f"`+{policy}`" in PAGE
        assert f"`{text}`" in PAGE


CHARACTERS = "".join(chr(i) for i in range(0x110000) if not 0xD800 <= i < 0xE000)


def in_tokenizers(expression: str) -> set[str]:
    from tokenizers import Regex, pre_tokenizers

    # Runs, and a few thousand at a time, since each piece costs as much as the text is long.
    splitter = pre_tokenizers.Split(Regex(f"{expression}+"), "removed", invert=True)
    texts = (CHARACTERS[first : first + 4096] for first in range(0, len(CHARACTERS), 4096))
    return {character for text in texts for piece, _ in splitter.pre_tokenize_str(text) for character in piece}


def in_tiktoken(expression: str) -> set[str]:
    import tiktoken

    ranks = {bytes([byte]): byte for byte in range(256)}
    encoding = tiktoken.Encoding("classes", pat_str=expression, mergeable_ranks=ranks, special_tokens={})
    return set(bytes(encoding.encode_ordinary(CHARACTERS)).decode())  # what does not match is dropped


@pytest.mark.parametrize("library", ["tokenizers", "tiktoken"])
def test_code_points_that_other_engines_class_otherwise(library: str) -> None:
    ask = {"tokenizers": in_tokenizers, "tiktoken": in_tiktoken}[library]
    version = importlib.metadata.version(library)
    if f"`{library}` {version}" not in PAGE:
        pytest.skip(f"docs/patterns.md tells of another release than {version}")
    numbers = {}
    for name, expression in {"letters": r"\p{L}", "numbers": r"\p{N}", "marks": r"\p{M}", "white space": r"\s"}.items():
        theirs, ours = ask(expression), set(regex.findall(expression, CHARACTERS))
        assert theirs <= ours  # whatever it knows, we know alike
        numbers[name] = len(ours - theirs)
        if name == "letters":
            assert all(unicodedata.category(character) == "Cn" for character in ours - theirs)
    signs = set(regex.findall(r"[\p{P}\p{S}]", CHARACTERS)) ^ ask(r"[\p{P}\p{S}]")
    cells = [*numbers.values(), len(signs)]
    row = f"| `{library}` {version} | {' | '.join(f'{number:,}' for number in cells)} |"
    assert row in PAGE, row


def test_forms_that_tokenizers_has_not() -> None:
    from tokenizers import normalizers

    version = importlib.metadata.version("tokenizers")
    if f"`tokenizers` {version}" not in PAGE:
        pytest.skip(f"docs/patterns.md tells of another release than {version}")
    separated = "\n".join(regex.findall(r"[^\n\p{Cn}\p{Co}]", CHARACTERS))
    cells = []
    for form in _core.NORMALIZATIONS:
        ours = _core.normalize(separated, form).split("\n")
        theirs = getattr(normalizers, form)().normalize_str(separated).split("\n")
        cells.append(f"{form}: {sum(a != b for a, b in zip(ours, theirs, strict=True)):,}")
    assert ", ".join(cells) in PAGE, cells
