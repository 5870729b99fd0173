"""The vocabulary in use: exact encoding, decoding, special tokens, streams, and the texts that have no UTF-8 form."""

import dataclasses
import json
import pickle
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import pyarrow as pa
import pytest
import tiktoken
from hypothesis import given, settings
from hypothesis import strategies as st
from vocabularies import CORPUS, PATTERNS, encode_by_rule, learned, texts, vocabularies

from dist_bpe.errors import FormatError, UsageError
from dist_bpe.pretokenize.checks import PROBES
from dist_bpe.pretokenize.patterns import GPT2, find
from dist_bpe.pretokenize.preparation import SpecialToken
from dist_bpe.vocabulary.data import VocabularyData
from dist_bpe.vocabulary.files import write
from dist_bpe.vocabulary.formats.tiktoken import tiktoken_ranks
from dist_bpe.vocabulary.vocabulary import Vocabulary

SPECIALS = [SpecialToken("<|endoftext|>", "eos"), SpecialToken("<s>"), SpecialToken("<s>!"), SpecialToken("中文")]
VOCABULARIES = {
    name: Vocabulary(learned(CORPUS, 600, pattern, SPECIALS, special_tokens_first=name == "cl100k", padding=2))
    for name, pattern in PATTERNS.items()
}
each = pytest.mark.parametrize("name", VOCABULARIES)
# Texts that are often made of special tokens and parts of them.
parts = st.sampled_from([*(special.text for special in SPECIALS), "<|reserved_1|>", "<s", "|>"])
mixed = st.lists(st.one_of(texts, parts), max_size=5).map("".join)


# ---- exactness


@settings(max_examples=60)
@given(vocabularies(), texts)
def test_encoding_follows_the_rule(data: VocabularyData, text: str) -> None:
    vocabulary = Vocabulary(data)
    ids = vocabulary.encode_ordinary(text)
    assert ids == encode_by_rule(data, text)
    assert vocabulary.decode(ids) == text
    assert vocabulary.decode_bytes(ids) == text.encode()


@each
@given(mixed)
def test_decoding_gives_back_every_text(name: str, text: str) -> None:
    vocabulary = VOCABULARIES[name]
    ordinary = vocabulary.encode_ordinary(text)
    special = vocabulary.encode(text, allowed_special="all")
    assert vocabulary.decode(ordinary, errors="strict") == vocabulary.decode(special) == text
    assert not set(ordinary) & set(vocabulary.special_ids.values())


@each
def test_known_texts_are_cut_into_learned_tokens(name: str) -> None:
    vocabulary = VOCABULARIES[name]
    for text in CORPUS:
        ids = vocabulary.encode(text)
        assert ids == encode_by_rule(vocabulary.data, text)
        if len(text) > 100:
            assert len(ids) < len(text.encode()) * 0.8


def test_every_token_encodes_to_itself() -> None:
    data = learned(merges=600, pattern=find(r"[\s\S]+"))
    vocabulary = Vocabulary(data)
    for i, token in enumerate(data.tokens):
        assert vocabulary.token_bytes(i) == token
        if token.decode(errors="ignore").encode() == token:
            assert vocabulary.encode(token.decode()) == [i]


def test_text_is_never_stripped_or_normalised() -> None:
    vocabulary = VOCABULARIES["gpt2"]
    for text in ["  x ", "\ufeffx", "e\u0301", "\u00e9", "a\r\nb\r", "\x00", "ﬁ", "\u2028\u0085", "\u212b", "\n \n"]:
        assert vocabulary.decode(vocabulary.encode(text)) == text


# ---- special tokens


def test_special_text_is_refused_unless_said_otherwise() -> None:
    vocabulary = VOCABULARIES["gpt2"]
    text = "ab <|endoftext|> c"
    with pytest.raises(UsageError, match=r"'<\|endoftext\|>' at character 3; allow it with allowed_special="):
        vocabulary.encode(text)
    end = vocabulary.special_ids["<|endoftext|>"]
    assert vocabulary.encode(text, allowed_special={"<|endoftext|>"}).count(end) == 1
    assert end not in vocabulary.encode(text, disallowed_special=())
    assert vocabulary.encode(text, disallowed_special={"<s>"}) == vocabulary.encode_ordinary(text)
    with pytest.raises(UsageError, match="'<s>' at character 18"):
        vocabulary.encode(text + "<s>", allowed_special={"<|endoftext|>"})
    with pytest.raises(UsageError, match=r"<\|reserved_0\|>"):
        vocabulary.encode("<|reserved_0|>")


@each
def test_the_longest_special_token_wins_at_the_leftmost_place(name: str) -> None:
    vocabulary = VOCABULARIES[name]
    ids = vocabulary.special_ids
    assert vocabulary.encode("<s>!", allowed_special="all") == [ids["<s>!"]]
    assert vocabulary.encode("<s>!", allowed_special={"<s>"}, disallowed_special=()) == [
        ids["<s>"], *vocabulary.encode("!"),
    ]  # fmt: skip
    with pytest.raises(UsageError, match="'<s>!' at character 0"):
        vocabulary.encode("<s>!", allowed_special={"<s>"})


@each
@given(mixed, st.sets(st.sampled_from(range(3))))
def test_special_tokens_are_handled_as_in_tiktoken(name: str, text: str, chosen: set[int]) -> None:
    # Without the special token that begins another, which tiktoken cannot hold.
    data = dataclasses.replace(VOCABULARIES[name].data, special_tokens=tuple(s for s in SPECIALS if s.text != "<s>!"))
    vocabulary = Vocabulary(data)
    theirs = reader(data)
    some = {data.special_tokens[i].text for i in chosen}
    attempts: list[dict[str, Any]] = [
        {},
        {"allowed_special": "all"},
        {"allowed_special": some},
        {"disallowed_special": ()},
        {"disallowed_special": some},
        {"allowed_special": some, "disallowed_special": ()},
    ]
    for options in attempts:
        try:
            wanted = theirs.encode(text, **options)
        except ValueError:
            with pytest.raises(UsageError, match="the text holds the special token"):
                vocabulary.encode(text, **options)
        else:
            assert vocabulary.encode(text, **options) == wanted
            assert vocabulary.encode_batch([text, "x", text], **options) == [wanted, theirs.encode("x"), wanted]


def reader(data: VocabularyData, made: dict[VocabularyData, tiktoken.Encoding] = {}) -> tiktoken.Encoding:  # noqa: B006
    """The vocabulary as tiktoken has it, made once each."""
    if data not in made:
        files, _ = write(data, ["tiktoken"])
        ranks = tiktoken_ranks(files["vocab.tiktoken"])
        made[data] = tiktoken.Encoding(**json.loads(files["tiktoken.json"]), mergeable_ranks=ranks)
    return made[data]


def test_unknown_special_tokens_are_an_error() -> None:
    vocabulary = VOCABULARIES["gpt2"]
    for options in ({"allowed_special": {"<x>"}}, {"disallowed_special": ["<x>"]}):
        with pytest.raises(UsageError, match="'<x>' is no special token of this vocabulary; it has: <"):
            vocabulary.encode("a", **options)
    with pytest.raises(TypeError, match="not the string '<s>'"):
        vocabulary.encode("a", allowed_special="<s>")


def test_special_tokens_first_shift_all_others() -> None:
    data = learned(merges=50, special_tokens=SPECIALS[:2])
    last, first = Vocabulary(data), Vocabulary(dataclasses.replace(data, special_tokens_first=True))
    for text in PROBES:
        assert first.encode(text) == [i + 2 for i in last.encode(text)]
        assert first.decode(first.encode(text)) == text
    assert first.special_ids == {"<|endoftext|>": 0, "<s>": 1}
    assert [first.token_bytes(i) for i in (0, 1, 2)] == [b"<|endoftext|>", b"<s>", b"!"]


# ---- batches


@each
@given(st.lists(mixed, max_size=8))
def test_a_batch_is_its_texts_one_by_one(name: str, batch: list[str]) -> None:
    vocabulary = VOCABULARIES[name]
    for allowed in ("all", (), {"<s>"}):
        options: dict[str, Any] = {"allowed_special": allowed, "disallowed_special": ()}
        wanted = [vocabulary.encode(text, **options) for text in batch]
        assert vocabulary.encode_batch(batch, **options) == wanted
        assert vocabulary.encode_batch(pa.array(batch, pa.string()), **options) == wanted


def test_a_batch_refuses_what_a_text_refuses() -> None:
    vocabulary = VOCABULARIES["gpt2"]
    with pytest.raises(UsageError, match="special token '<s>' at character 1"):
        vocabulary.encode_batch(["a", "b<s>"])
    assert vocabulary.encode_batch([]) == []
    assert vocabulary.encode_batch(["", ""]) == [[], []]


@each
def test_a_string_where_texts_are_expected_is_a_type_error(name: str) -> None:
    vocabulary = VOCABULARIES[name]
    wrong: list[Any] = ["abc", b"abc", ["a", None], ["a", b"b"], pa.array(["a", None])]
    for batch in wrong:
        with pytest.raises(TypeError, match=r"not one text|is a str, not"):
            vocabulary.encode_batch(batch)
    for text in (b"abc", None, ["a"]):
        with pytest.raises(TypeError, match="a text is a str, not"):
            vocabulary.encode(text)  # type: ignore[arg-type]


# ---- lone surrogates


@each
@pytest.mark.parametrize("text", ["ab\ud800", "ab\udfffc", "ab\ud83d <s>"])
def test_a_lone_surrogate_is_one_error_on_every_way(name: str, text: str) -> None:
    vocabulary = VOCABULARIES[name]
    ways = [
        lambda: vocabulary.encode(text, disallowed_special=()),
        lambda: vocabulary.encode(text, allowed_special="all"),
        lambda: vocabulary.encode(text, allowed_special={"<s>"}),
        lambda: vocabulary.encode_ordinary(text),
        lambda: vocabulary.encode_batch(["x", text], allowed_special="all"),
        lambda: vocabulary.encode_batch(["x", text], disallowed_special=()),
        lambda: vocabulary.tokenize(text, allowed_special="all"),
    ]
    for way in ways:
        with pytest.raises(UsageError, match=r"a lone surrogate, U\+D[0-9A-F]{3}, at character 2, which"):
            way()


# ---- decoding


@each
def test_ids_that_are_none(name: str) -> None:
    vocabulary = VOCABULARIES[name]
    ways: list[Callable[[int], object]] = [
        lambda wrong: vocabulary.decode([0, wrong]),
        lambda wrong: vocabulary.decode_bytes(iter([wrong])),
        vocabulary.token_bytes,
        vocabulary.stream().push,
    ]
    for wrong in (-1, len(vocabulary), 10**12):
        for way in ways:
            with pytest.raises(UsageError, match=rf"no token {wrong}: ids go from 0 to {len(vocabulary) - 1:,}"):
                way(wrong)
    assert vocabulary.decode([]) == ""


def test_ids_of_other_kinds() -> None:
    vocabulary = VOCABULARIES["gpt2"]
    ids = vocabulary.encode("the cat")
    for given_ids in (numpy.array(ids), tuple(ids), iter(ids)):
        assert vocabulary.decode(given_ids) == "the cat"


def test_decoding_of_half_a_character() -> None:
    vocabulary = Vocabulary(VocabularyData(()))
    ids = vocabulary.encode("é🙂")
    assert vocabulary.decode(ids[:-1]) == "é\ufffd"
    assert vocabulary.decode_bytes(ids[:1]) == b"\xc3"
    with pytest.raises(UnicodeDecodeError):
        vocabulary.decode(ids[1:], errors="strict")
    assert vocabulary.decode(ids[1:], errors="ignore") == "🙂"


@each
@given(st.data())
def test_a_stream_gives_what_decode_gives(name: str, data: st.DataObject) -> None:
    vocabulary = VOCABULARIES[name]
    ids = data.draw(st.lists(st.integers(0, len(vocabulary) - 1)))
    decoder = vocabulary.stream()
    pieces = [decoder.push(i) for i in ids] + [decoder.finish()]
    assert "".join(pieces) == vocabulary.decode(ids)
    text = data.draw(texts)
    for i in vocabulary.encode_ordinary(text):
        assert "\ufffd" not in decoder.push(i) or "\ufffd" in text
    assert decoder.finish() == ""


def test_a_stream_holds_back_an_unfinished_character() -> None:
    vocabulary = Vocabulary(VocabularyData(()))
    decoder = vocabulary.stream()
    assert [decoder.push(i) for i in vocabulary.encode("aé🙂")] == ["a", "", "é", "", "", "", "🙂"]
    assert decoder.push(vocabulary.encode("é")[0]) == ""
    assert decoder.finish() == "\ufffd"
    strict = vocabulary.stream("strict")
    strict.push(vocabulary.encode("é")[0])
    with pytest.raises(UnicodeDecodeError):
        strict.push(vocabulary.encode("a")[0])


# ---- the rest


def test_tokenize_shows_the_pieces() -> None:
    vocabulary = Vocabulary(learned(["the the the", "é é é é"], merges=9, special_tokens=SPECIALS))
    assert vocabulary.tokenize("the é<s>🙂", allowed_special="all") == [
        "the", " é", "<s>", b"\xf0", b"\x9f", b"\x99", b"\x82",
    ]  # fmt: skip
    assert vocabulary.tokenize("") == []
    with pytest.raises(UsageError, match="<s>"):
        vocabulary.tokenize("the<s>")


def test_sizes_and_merges() -> None:
    vocabulary = Vocabulary(learned(["the the the"], merges=2, special_tokens=SPECIALS[:1], padding=5))
    assert vocabulary.merges == ((b"h", b"e"), (b"t", b"he"))
    assert vocabulary.sizes == {"bytes": 256, "merges": 2, "special tokens": 1, "padding": 5}
    assert len(vocabulary) == sum(vocabulary.sizes.values()) == 264
    assert repr(vocabulary) == (
        "<Vocabulary of 264 tokens (256 bytes, 2 merges, 1 special token, 5 padding), pattern 'gpt2'>"
    )
    assert vocabulary.special_tokens == tuple(SPECIALS[:1])
    assert list(vocabulary.special_ids.values()) == list(range(258, 264))


def test_equality() -> None:
    data = learned(merges=20, special_tokens=SPECIALS)
    assert Vocabulary(data) == Vocabulary(dataclasses.replace(data, counts=None, replaced=None))
    for change in (
        {"merges": data.merges[:-1], "counts": None, "replaced": None},
        {"pattern": PATTERNS["cl100k"]},
        {"special_tokens": data.special_tokens[::-1]},
        {"special_tokens_first": True},
        {"padding": 1},
    ):
        assert Vocabulary(data) != Vocabulary(dataclasses.replace(data, **change))
    assert Vocabulary(data) != data
    with pytest.raises(TypeError, match="unhashable"):
        hash(Vocabulary(data))


@each
def test_pickles(name: str) -> None:
    vocabulary = VOCABULARIES[name]
    copy = pickle.loads(pickle.dumps(vocabulary))  # noqa: S301  # our own bytes
    assert copy == vocabulary
    assert copy.encode(CORPUS[0]) == vocabulary.encode(CORPUS[0])


@each
def test_saved_and_loaded(name: str, tmp_path: Path) -> None:
    vocabulary = VOCABULARIES[name]
    vocabulary.save(tmp_path / "v")
    loaded = Vocabulary.load(tmp_path / "v")
    assert loaded == vocabulary
    assert loaded.encode(CORPUS[0]) == vocabulary.encode(CORPUS[0])
    vocabulary.save(str(tmp_path / "w"), formats=["tokenizers"])
    assert Vocabulary.load(str(tmp_path / "w" / "tokenizer.json")) == vocabulary
    vocabulary.save(tmp_path / "w", formats=["gpt2"])
    pair = Vocabulary.load(tmp_path / "w" / "merges.txt", pattern=vocabulary.pattern.regex)
    assert pair.encode_batch(CORPUS) == vocabulary.encode_batch(CORPUS)
    assert not (tmp_path / "w" / "tokenizer.json").exists()


@each
def test_threads_share_a_vocabulary(name: str) -> None:
    vocabulary = Vocabulary(VOCABULARIES[name].data)
    wanted = [encode_by_rule(vocabulary.data, text) for text in PROBES]
    wrong: list[Any] = []

    def work() -> None:
        try:
            for _ in range(20):
                assert [vocabulary.encode(text) for text in PROBES] == wanted
                assert vocabulary.encode_batch(PROBES) == wanted
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


@pytest.mark.parametrize("text", ["a" * 3_000_000, " " * 1_000_000 + "x", "^" * 1_000_000, "ACGT" * 250_000])
def test_one_word_of_megabytes(text: str) -> None:
    repeated = "aaaaaaaaaaaaaaaa ACGTACGTACGT ^^^^^^^^ " * 20
    vocabulary = Vocabulary(learned([*CORPUS, repeated, " " * 64 + "x"], merges=700))
    assert vocabulary.pattern is GPT2
    ids = vocabulary.encode(text)
    assert len(ids) < len(text) / 3
    assert vocabulary.decode(ids) == text


def test_special_tokens_are_found_and_pieces_shown() -> None:
    vocabulary = Vocabulary(learned(merges=5, special_tokens=[SpecialToken("<a>"), SpecialToken("<a>b")]))
    assert vocabulary.find_special("x<a>b<a>") == ("<a>b", 1)
    assert vocabulary.find_special("x<a>b<a>", ["<a>"]) == ("<a>", 1)
    assert vocabulary.find_special("plain") is None
    assert Vocabulary(learned(merges=5)).find_special("<a>") is None
    with pytest.raises(UsageError, match="no special token of this vocabulary"):
        vocabulary.find_special("x", ["<b>"])
    assert [vocabulary.piece(i) for i in vocabulary.encode_ordinary("\u20ac")] == [b"\xe2", b"\x82", b"\xac"]
    assert vocabulary.tokenize("a<a>", allowed_special="all") == ["a", "<a>"]


def test_counts_are_arrays_and_live_through_pickling_cutting_and_files(tmp_path: Path) -> None:
    vocabulary = Vocabulary(learned(merges=20))
    counts, replaced = vocabulary.data.counts, vocabulary.data.replaced
    assert replaced is not None
    assert counts.type == replaced["a"].type == pa.uint64()
    vocabulary.save(tmp_path / "v")
    for other in (pickle.loads(pickle.dumps(vocabulary)), Vocabulary.load(tmp_path / "v")):  # noqa: S301
        assert other == vocabulary
        assert other.data.counts == counts
        assert other.data.replaced == replaced
    small = vocabulary.cut(266)
    assert small.data.counts == counts[:10]
    assert small.data.replaced == {name: numbers[:10] for name, numbers in replaced.items()}
    assert dataclasses.replace(vocabulary.data, counts=counts.to_pylist()).counts == counts
    for bad in ([-1] * 20, [1 << 64] * 20, [None] * 20, ["x"] * 20, pa.array([1] * 20, pa.int64())):
        with pytest.raises(FormatError):
            dataclasses.replace(vocabulary.data, counts=bad)
    # Equal are vocabularies with the same ids, whatever was counted.
    assert dataclasses.replace(vocabulary.data, counts=None, replaced=None) == vocabulary.data
