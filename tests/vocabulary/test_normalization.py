"""Normalisation forms and cut words: counted, stored, encoded, exported, and named where a file cannot say them."""

import json
import unicodedata
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import Writer
from hypothesis import given
from vocabularies import CUSTOM, learned, read_back, texts

from dist_bpe import _core, count, learn
from dist_bpe.corpus.source import Source
from dist_bpe.errors import FormatError, UsageError
from dist_bpe.options import build
from dist_bpe.pretokenize.patterns import GPT2, find
from dist_bpe.progress import Progress
from dist_bpe.run.config import RunConfig
from dist_bpe.run.train import train
from dist_bpe.vocabulary.export import export
from dist_bpe.vocabulary.formats.tokenizers import write_tokenizers
from dist_bpe.vocabulary.vocabulary import Vocabulary

FORMS = _core.NORMALIZATIONS
forms = pytest.mark.parametrize("form", FORMS)
# Decomposed and composed letters, a ligature, Hangul, kana with a separate voice mark, marks in the wrong order.
TEXTS = ["e\u0301 é ﬁ", "\u1112\u1161\u11ab 한", "か\u3099<|endoftext|>\u0301が", "q\u0307\u0323 ½", "plain text"]


@given(texts)
def test_forms_are_those_of_the_standard_library(text: str) -> None:
    # Its tables are older: only characters that it knows.
    known = "".join(c for c in text if unicodedata.category(c) != "Cn")
    for form in FORMS:
        assert _core.normalize(known, form) == unicodedata.normalize(form, known)  # type: ignore[arg-type]


def test_the_tables_of_forms_and_of_patterns_are_of_one_version() -> None:
    assert _core.NORMALIZATION_TABLES == "18.0.0"  # the Rust tests compare what is assigned, code point by code point


def words_of(table: Path) -> dict[bytes, int]:
    parts = [pq.read_table(part).to_pylist() for part in sorted(table.glob("counts/*.parquet"))]
    return {row["word"]: row["count"] for part in parts for row in part}


@forms
@pytest.mark.parametrize("pattern", ["gpt2", CUSTOM.regex])
def test_counting_normalises_between_special_tokens(form: str, pattern: str, tmp_path: Path, write: Writer) -> None:
    write("a.parquet", TEXTS)
    source = Source("a", str(tmp_path / "a.parquet"))
    table = count(
        source, output=tmp_path / "run", engine="local", pattern=pattern, normalization=form, progress="silent"
    )
    expected: dict[bytes, int] = {}
    for text in TEXTS:
        for piece in text.split("<|endoftext|>"):
            for word in find(pattern).words(unicodedata.normalize(form, piece)):
                expected[word] = expected.get(word, 0) + 1
    assert words_of(tmp_path / "run") == expected
    assert table.normalization == form
    assert table.sources["a"].bytes == sum(len(text.encode()) for text in TEXTS)
    assert json.loads((table.folder / "manifest.json").read_text())["normalization"] == form
    assert learn(table, 260, progress="silent").normalization == form


def test_none_is_the_default_and_has_a_name(tmp_path: Path, write: Writer) -> None:
    write("a.parquet", TEXTS)
    source = Source("a", str(tmp_path / "a.parquet"))
    plain = count(source, output=tmp_path / "plain", engine="local", progress="silent")
    named = count(source, output=tmp_path / "named", engine="local", normalization="none", progress="silent")
    assert plain.normalization is None
    assert plain.digest == named.digest
    assert "e\u0301".encode()[1:] in words_of(tmp_path / "plain")
    with pytest.raises(UsageError, match=r"normalization: it should be 'NFC', 'NFD', 'NFKC' or 'NFKD', not 'nfc'"):
        count(source, output=tmp_path / "x", normalization="nfc")
    with pytest.raises(UsageError, match="the forms are: NFC, NFD"):
        learn({"a": 1}, 260, normalization="C", progress="silent")


@pytest.mark.parametrize("pattern", ["gpt2", "(?:[a-z]|日|é)+| +"])
def test_long_words_are_counted_in_pieces(pattern: str, tmp_path: Path, write: Writer) -> None:
    write("a.parquet", ["abcdefghij ab", "日日日 ab", "éab" * 3])
    source = Source("a", str(tmp_path / "a.parquet"))
    table = count(source, output=tmp_path / "run", engine="local", pattern=pattern, max_word_bytes=5, progress="silent")
    words = words_of(tmp_path / "run")
    assert all(len(word) <= 5 for word in words)
    for word, number in {b"abcde": 1, b"fghij": 1, "日".encode(): 3, "éab".encode(): 3}.items():
        assert words[word] >= number
    assert table.sources["a"].cut_words == 3
    assert table.sources["a"].words == sum(words.values())
    assert table.sources["a"].longest_word_bytes <= 5
    manifest = json.loads((table.folder / "manifest.json").read_text())
    assert (manifest["max_word_bytes"], manifest["sources"]["a"]["cut_words"]) == (5, 3)
    # Encoding does not cut: merges that were learned inside pieces meet across them.
    vocabulary = learn({"ab": 5, "abab": 5}, 258, progress="silent")
    assert vocabulary.encode("ababab") == vocabulary.encode("ab" * 3)


def test_a_run_says_how_many_words_it_cut_and_which_files_lack_the_form(tmp_path: Path, write: Writer) -> None:
    write("a.parquet", ["abcdefgh e\u0301e\u0301 " * 3])
    config = build(
        RunConfig,
        {
            "sources": [{"name": "a", "paths": str(tmp_path / "a.parquet")}],
            "output": str(tmp_path / "run"),
            "count": {"normalization": "NFC", "max_word_bytes": 6},
            "learn": {"vocab_size": 262},
            "engine": {"engine": "local"},
        },
    )
    report = train(config, Progress("silent"))
    assert any("counted in pieces, in: a (3)" in text for text in report.warnings)
    missing = [text for text in report.warnings if "cannot say" in text]
    assert [text.split(" cannot")[0] for text in missing] == [
        "vocab.json and merges.txt",
        "vocab.tiktoken and tiktoken.json",
    ]
    assert all("NFC: do it before encoding" in text for text in missing)
    assert "for text in NFC" in report.verification["tiktoken"]


@forms
@given(text=texts)
def test_decoding_gives_the_form_of_the_text(form: str, text: str) -> None:
    for vocabulary in VOCABULARIES[form]:
        normal = vocabulary.normalize(text)
        assert vocabulary.decode(vocabulary.encode(text, disallowed_special=())) == _core.normalize(text, form)
        assert vocabulary.decode(vocabulary.encode(text, allowed_special="all")) == normal
        assert vocabulary.encode(normal, allowed_special="all") == vocabulary.encode(text, allowed_special="all")
        assert vocabulary.encode_batch([text], allowed_special="all") == [
            vocabulary.encode(text, allowed_special="all")
        ]


def vocabulary(form: str, pattern: str) -> Vocabulary:
    counts = {word: 3 for text in TEXTS * 2 for word in find(pattern).words(unicodedata.normalize(form, text))}
    special = ["<|endoftext|>", "ﬁ"]
    return learn(counts, 300, pattern=pattern, normalization=form, special_tokens=special, progress="silent")


VOCABULARIES = {form: [vocabulary(form, pattern) for pattern in ("gpt2", "o200k", CUSTOM.regex)] for form in FORMS}


def test_special_tokens_are_cut_out_of_the_text_as_it_was_given() -> None:
    nfkc = VOCABULARIES["NFKC"][0]
    assert nfkc.normalize("ﬁ＜|endoftext|＞ﬀ") == "ﬁ<|endoftext|>ff"
    # What only looks like a special token once it is normalised is ordinary text, and never gets its id.
    ids = nfkc.encode("＜|endoftext|＞")
    assert not set(ids) & set(nfkc.special_ids.values())
    assert nfkc.decode(ids) == "<|endoftext|>"
    with pytest.raises(UsageError, match="lone surrogate, U\\+D800, at character 1"):
        VOCABULARIES["NFC"][2].encode("a\ud800")


@forms
def test_exports_carry_the_form_and_libraries_agree(form: str, tmp_path: Path) -> None:
    for number, vocabulary in enumerate(VOCABULARIES[form]):
        folder = tmp_path / str(number)
        outcome = export(vocabulary, folder)
        assert f"gives the same ids for text in {form}" in outcome["tiktoken"]
        assert Vocabulary.load(folder) == vocabulary
        assert Vocabulary.load(folder / "tokenizer.json").normalization == form
        assert Vocabulary.load(folder / "vocab.tiktoken").normalization is None
        assert json.loads((folder / "manifest.json").read_text())["normalization"] == form


def test_normalizers_of_other_kinds_are_refused() -> None:
    tokenizer = json.loads(write_tokenizers(learned(merges=5, pattern=GPT2))["tokenizer.json"])
    two = [{"type": "NFC"}, {"type": "Lowercase"}]
    for normalizer in ({"type": "Lowercase"}, {"type": "Sequence", "normalizers": two}):
        tokenizer["normalizer"] = normalizer
        with pytest.raises(FormatError, match="normalizer is"):
            read_back("tokenizers", json.dumps(tokenizer).encode())


def test_normalizers_that_mean_the_same_in_other_words() -> None:
    tokenizer = json.loads(write_tokenizers(learned(merges=5, pattern=GPT2))["tokenizer.json"])
    empty = {"type": "Sequence", "normalizers": []}  # as DeepSeek's file has it
    nested = {"type": "Sequence", "normalizers": [empty, {"type": "Sequence", "normalizers": [{"type": "NFC"}]}]}
    for normalizer, form in ((empty, None), (nested, "NFC")):
        tokenizer["normalizer"] = normalizer
        assert read_back("tokenizers", json.dumps(tokenizer).encode()).normalization == form


def test_arrays_of_any_kind_are_cut_and_normalised() -> None:
    for kind in (pa.string(), pa.large_string(), pa.binary()):
        counter = _core.Counter(1, "gpt2", [], normalization="NFC", max_word_bytes=4)
        counter.count(0, pa.array(["e\u0301" * 3], kind))
        assert counter.totals(0)["cut_words"] == 1
        assert counter.totals(0)["longest_word_bytes"] == 4
    with pytest.raises(UsageError, match="up to 4 bytes"):
        _core.Counter(1, "gpt2", [], max_word_bytes=3)
    with pytest.raises(UsageError, match="unknown normalization"):
        _core.Counter(1, "gpt2", [], normalization="nfc")
