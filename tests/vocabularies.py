"""Small vocabularies for the tests, learned from text; and the rule of encoding, spelled out as its slow twin."""

from collections import Counter
from collections.abc import Iterable

import regex
from conftest import TRICKY
from hypothesis import strategies as st

from dist_bpe.learning.merges import batches_of_mapping, learn_merges
from dist_bpe.learning.options import LearnOptions
from dist_bpe.pretokenize.checks import PROBES, resolve
from dist_bpe.pretokenize.patterns import GPT2, Pattern, find
from dist_bpe.pretokenize.preparation import SpecialToken
from dist_bpe.vocabulary.data import BYTE_TOKENS, VocabularyData
from dist_bpe.vocabulary.files import FORMATS
from dist_bpe.vocabulary.formats.format import Files

CUSTOM = resolve(r"[\p{L}\p{M}]+| ?\p{N}{1,2}|\s|[^\s\p{L}\p{M}\p{N}]+")
PATTERNS = {name: resolve(name) for name in ("gpt2", "cl100k", "o200k", "deepseek3")} | {"custom": CUSTOM}

CORPUS = [
    *PROBES,
    *("the cat sat on the mat; the dogs don't. " * n for n in (1, 3)),
    "#version #version: ## #\n\n\n\u00a0\u00a0#include <a.h>\n    for i in range(10):\n        print(i)\n" * 4,
    "नमस्ते दुनिया हिन्दी हिन्दी ที่ ที่ วันนี้ мир мира 世界 世界 🙂🙂 e\u0301e\u0301 \r\n\r\n \t\t\t" * 5,
]


def learned(
    texts: Iterable[str] = CORPUS,
    merges: int = 400,
    pattern: Pattern = GPT2,
    special_tokens: Iterable[SpecialToken] = (),
    special_tokens_first: bool = False,
    padding: int = 0,
) -> VocabularyData:
    """A vocabulary learned from texts, with counts for two sources, both the same texts."""
    counts = Counter(word for text in texts for word in pattern.words(text))
    batches = list(batches_of_mapping(counts)())
    found = learn_merges(lambda: batches, ["a"], merges, LearnOptions(vocab_size=(256 + merges,)))
    left, right, count = (column.to_pylist() for column in found.merges.columns)
    return VocabularyData(
        tuple(zip(left, right, strict=True)),
        pattern,
        tuple(special_tokens),
        special_tokens_first,
        padding,
        None,
        tuple(count),
        {name: tuple(found.replaced["a"].to_pylist()) for name in ("a", "Ünï cödé")},
    )


def versioned() -> VocabularyData:
    """A vocabulary with a merge whose line in merges.txt begins with #version."""
    data = learned([" #version1" * 9 + "#version2" * 5] * 4, merges=40, pattern=find(r" |[^ ]+"))
    assert any(data.tokens[left].startswith(b"#version") for left, _ in data.merges)
    return data


def encode_by_rule(data: VocabularyData, text: str) -> list[int]:
    """Cut by the `regex` module, then replace every pair, rank by rank and from left to right."""
    numbers = {token: i for i, token in enumerate(BYTE_TOKENS)}
    ids = []
    for match in regex.finditer(data.pattern.regex, text):
        parts = [numbers[bytes([byte])] for byte in match.group().encode()]
        for rank, pair in enumerate(data.merges):
            at = 0
            while at + 1 < len(parts):
                if (parts[at], parts[at + 1]) == pair:
                    parts[at : at + 2] = [256 + rank]
                at += 1
        ids += parts
    return [data.first_id + i for i in ids]


# Letters newer than the tables of other libraries are unassigned to Python too; ʕ has changed (docs/patterns.md).
characters = st.one_of(st.sampled_from(TRICKY), st.characters(exclude_categories=["Cs", "Cn"], exclude_characters="ʕ"))
texts = st.lists(st.one_of(characters, st.sampled_from(CORPUS).map(lambda text: text[:30]))).map("".join)
special_texts = st.sampled_from(["<|endoftext|>", "<s>", "<|a|>", "<|ab|>", "中文", " sp ", "[INST]", "\n" * 9, "ÿþ€"])


@st.composite
def vocabularies(draw: st.DrawFn) -> VocabularyData:
    """Any small vocabulary that was learned from something."""
    specials = draw(st.lists(special_texts, unique=True, max_size=4))
    roles = draw(st.permutations(["bos", "eos", "pad", "unk", "other", "other", "other", "other"]))
    return learned(
        [*draw(st.lists(texts, max_size=4)), "abcabc abcabc"],
        draw(st.integers(0, 30)),
        draw(st.sampled_from(list(PATTERNS.values()))),
        [SpecialToken(text, role) for text, role in zip(specials, roles, strict=False)],
        draw(st.booleans()),
        draw(st.integers(0, 5)),
    )


def read_back(format: str, *contents: bytes, pattern: Pattern | None = None) -> VocabularyData:
    """The vocabulary in the files of a format, given in the order of `Format.files`."""
    named = dict(zip(FORMATS[format].files, contents, strict=False))
    return FORMATS[format].read(Files(named, {name: name for name in named}), pattern)
