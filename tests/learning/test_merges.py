"""The learner: known right answers, its slow twins, Hugging Face's trainer, and the faults that others had."""

import json
import random
from collections import Counter
from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path

import pyarrow as pa
import pytest
import regex
from conftest import Writer, installed_code, installed_languages
from helpers import quiet
from hypothesis import given, settings
from hypothesis import strategies as st

import dist_bpe
from dist_bpe import _core, errors
from dist_bpe.corpus.heldout import HeldOut
from dist_bpe.counting.spills import SPILL_SCHEMA
from dist_bpe.learning import textbook
from dist_bpe.learning.merges import batches_of_mapping, learn_merges
from dist_bpe.learning.mixture import Weights
from dist_bpe.learning.options import LearnOptions
from dist_bpe.pretokenize.checks import resolve
from dist_bpe.progress import Progress
from dist_bpe.run.learn import run_learn

EXAMPLES = json.loads((Path(__file__).parents[1] / "worked_examples.json").read_text())


def native(
    words: Mapping[bytes, int], merges: int, plain: bool = False, **options: object
) -> list[tuple[int, int, int]]:
    """(left, right, count) of each merge by the native core."""
    loaded = _core.Words(batches_of_mapping(words)(), [1], 1)
    batch = _core.learn_merges(loaded, merges, plain=plain, **options)  # type: ignore[arg-type]
    return list(zip(*(column.to_pylist() for column in batch.columns), strict=True))


def twin(words: Mapping[bytes, int], merges: int, **options: object) -> list[tuple[int, int, int]]:
    """The same by the reference, which counts all pairs anew at each step."""
    model = textbook.learn(words, merges, **options)  # type: ignore[call-overload]
    ids = {piece: i for i, piece in enumerate(model.vocabulary)}
    return [(ids[left], ids[right], n) for (left, right), n in zip(model.merges, model.counts, strict=True)]


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example["name"])
def test_worked_examples(example: dict) -> None:  # type: ignore[type-arg]
    model = dist_bpe.learn(
        example["word_counts"],
        num_merges=len(example["merges"]),
        unit=example["unit"],
        tie_break=example["tie_break"],
        end_of_word=example["end_of_word"],
    )
    assert [list(pair) for pair in model.merges] == example["merges"]
    assert model.counts == example["merge_counts"]
    assert model.symbols == example["symbols_after_each_merge"]
    for word, pieces in example["encode"].items():
        assert model.tokenize(word) == pieces
    for word, unknown in example.get("unknown_characters", {}).items():
        known = set(model.vocabulary)
        assert [piece for piece in model.tokenize(word) if piece not in known] == unknown
    if "vocabulary" in example:
        assert model.vocabulary == example["vocabulary"]


def test_unknown_token_stands_for_characters_never_seen() -> None:
    model = dist_bpe.learn({"ab": 3}, num_merges=1, unit="character", unknown_token="<unk>")
    assert model.tokenize("abxa") == ["ab", "<unk>", "a"]
    assert dist_bpe.learn({"ab": 3}, num_merges=1, unit="character").tokenize("abxa") == ["ab", "x", "a"]


TABLES = st.dictionaries(
    st.text("ab", min_size=1, max_size=9).map(str.encode) | st.text("abc", min_size=1, max_size=12).map(str.encode),
    st.integers(1, 30) | st.integers(2**20, 2**45),
    max_size=10,
)


@settings(max_examples=1500)
@given(TABLES, st.integers(0, 40), st.integers(1, 4))
def test_equals_the_reference_on_tiny_tables(words: dict[bytes, int], merges: int, least: int) -> None:
    wanted = twin(words, merges, min_pair_count=least)
    assert native(words, merges, min_pair_count=least) == wanted
    assert native(words, merges, plain=True, min_pair_count=least) == wanted


@settings(max_examples=700)
@given(TABLES, st.integers(2, 4))
def test_a_token_length_cap_is_inclusive_and_keeps_counts_exact(words: dict[bytes, int], cap: int) -> None:
    wanted = twin(words, 40, max_token_bytes=cap, min_pair_count=1)
    for plain in (False, True):
        assert native(words, 40, plain=plain, max_token_bytes=cap, min_pair_count=1) == wanted
    model = textbook.learn(words, 40, max_token_bytes=cap, min_pair_count=1)
    assert all(len(left + right) <= cap for left, right in model.merges)


def word_counts(texts: list[str], pattern: str = "gpt2") -> Counter[str]:
    counted: Counter[str] = Counter()
    compiled = regex.compile(resolve(pattern).regex)
    for text in texts:
        counted.update(compiled.findall(text))
    return counted


def generated_text(most_bytes: int) -> list[str]:
    """Made-up words of 28 letters, the n-th about n times rarer than the first."""
    rng = random.Random(4)
    words = [
        "".join(rng.choice("aeioubcdfghklmnprstvwyzäßøж") for _ in range(rng.randint(1, 12))) for _ in range(60_000)
    ]
    weights = [1 / (rank + 3) for rank in range(len(words))]
    texts = []
    while sum(map(len, texts)) < most_bytes:
        texts.append(" ".join(rng.choices(words, weights, k=20_000)))
    return texts


CORPORA = {"code": installed_code, "languages": installed_languages, "generated": generated_text}


@pytest.mark.parametrize("name", CORPORA)
def test_merges_equal_hugging_face_on_real_text(name: str) -> None:
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    texts = CORPORA[name](5_500_000)
    assert sum(len(text.encode()) for text in texts) >= 5_000_000
    theirs = Tokenizer(models.BPE())
    theirs.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=256 + 8000,
        min_frequency=2,
        show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    theirs.train_from_iterator(texts, trainer)
    wanted = [tuple(pair) for pair in json.loads(theirs.to_str())["model"]["merges"]]
    vocabulary = dist_bpe.learn(word_counts(texts), num_merges=8000, progress="silent")
    ours = [tuple(map(_byte_level, pair)) for pair in vocabulary.merges]
    assert len(ours) == len(wanted) == 8000
    assert ours == wanted


def _byte_level(token: bytes) -> str:
    """A token in the alphabet of GPT-2's files: printable bytes as they are, the others from U+0100 on."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return "".join(chr(byte) if byte in printable else chr(256 + others.index(byte)) for byte in token)


def test_counts_past_32_bits_do_not_wrap() -> None:
    words = {b" " * 80 + b"x": 30_000_000, b"ab": 1_000}
    space = _core.byte_ids()[ord(" ")]
    for plain in (False, True):
        assert native(words, 1, plain=plain) == [(space, space, 79 * 30_000_000)]


@pytest.mark.parametrize("total", [2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**63 - 1, 2**63, 2**64 - 1])
def test_counts_at_the_borders_of_integers(total: int) -> None:
    ids = _core.byte_ids()
    for plain in (False, True):
        assert native({b"ab": total, b"cd": total - 1}, 2, plain=plain) == [
            (ids[ord("a")], ids[ord("b")], total), (ids[ord("c")], ids[ord("d")], total - 1),
        ]  # fmt: skip


def test_a_sum_past_64_bits_is_an_error() -> None:
    for plain in (False, True):
        with pytest.raises(errors.CountOverflowError):
            native({b"ab": 2**63, b"xab": 2**63}, 1, plain=plain)
    with pytest.raises(errors.CountOverflowError):
        _core.Words(batches_of_mapping({b"ab": 2**63})(), [2], 1)


def test_a_word_longer_than_16_bit_positions() -> None:
    word = bytes(random.Random(2).choice(b"ab") for _ in range(70_000))
    assert native({word: 3, b"ab": 1}, 20) == twin({word: 3, b"ab": 1}, 20)


def test_no_two_merges_from_one_count() -> None:
    model = dist_bpe.learn({"pqr": 5, "pq": 1, "xy": 4}, num_merges=2, progress="silent")
    assert list(model.merges) == [(b"p", b"q"), (b"pq", b"r")]


def test_word_counts_train_as_the_text_written_out(write: Writer, tmp_path: Path, documents: list[str]) -> None:
    path = write("a.parquet", documents)
    table = dist_bpe.count(
        dist_bpe.Source("a", str(path)), output=tmp_path / "run", engine="local", special_tokens=[], progress="silent"
    )
    from_table = dist_bpe.learn(table, vocab_size=600, progress="silent")
    from_words = dist_bpe.learn(word_counts(documents), vocab_size=600, progress="silent")
    from_table.save(tmp_path / "table")
    from_words.save(tmp_path / "words")
    for name in ("vocab.json", "merges.txt", "tokenizer.json", "vocab.tiktoken"):
        assert (tmp_path / "table" / name).read_bytes() == (tmp_path / "words" / name).read_bytes()


def test_replay_counts_what_each_source_gave() -> None:
    rows = [(b"aab", 0, 3), (b"aab", 1, 5), (b"ab", 1, 7)]
    batch = pa.record_batch(
        [
            pa.array([w for w, _, _ in rows]),
            pa.array([s for _, s, _ in rows], pa.uint32()),
            pa.array([n for _, _, n in rows], pa.uint64()),
        ],
        names=["word", "source", "count"],
    )
    learned = learn_merges(lambda: [batch], ["x", "y"], 2, LearnOptions(vocab_size=(258,), min_pair_count=1))
    a, b = _core.byte_ids()[ord("a")], _core.byte_ids()[ord("b")]
    assert learned.merges.to_pylist() == [
        {"left": a, "right": b, "count": 15}, {"left": a, "right": 256, "count": 8},
    ]  # fmt: skip
    assert {name: array.to_pylist() for name, array in learned.replaced.items()} == {"x": [3, 3], "y": [12, 5]}
    assert {name: array.to_pylist()[256:] for name, array in learned.tokens.items()} == {"x": [0, 3], "y": [7, 5]}


@given(
    st.dictionaries(
        st.text("ab €", max_size=6).map(str.encode).filter(bool), st.lists(st.integers(0, 4), min_size=3, max_size=3)
    ),
    st.lists(st.integers(0, 2), min_size=3, max_size=3),
    st.integers(1, 4),
    st.sampled_from([1, 2, 100]),
)
def test_words_as_tokens_are_replayed_as_by_the_encoder(
    table: dict[bytes, list[int]], weights: list[int], min_word_count: int, size: int
) -> None:
    rows = [(word, i, n) for word, counts in sorted(table.items()) for i, n in enumerate(counts) if n]
    batches = [rows_of(rows[first : first + size]) for first in range(0, len(rows), size)]
    words = _core.Words(batches, weights, min_word_count)
    learned, tokenized = _core.learn_tokenized(words, 8, 1)
    assert learned.equals(_core.learn_merges(words, 8, 1))
    left, right, _ = learned.columns
    assert tokenized.replay(batches, 3) == _core.replay(left, right, batches, 3)
    # Also rows that were not learned from, and in another order.
    others = [rows_of([(b"ba\x00", 2, 5), *rows[::-1]])]
    assert tokenized.replay(others, 3) == _core.replay(left, right, others, 3)
    with pytest.raises(errors.FormatError, match="only 2 sources"):
        tokenized.replay([rows_of([(b"a", 2, 1)])], 2)


def rows_of(rows: list[tuple[bytes, int, int]]) -> pa.RecordBatch:
    words, sources, counts = zip(*rows, strict=True) if rows else ((), (), ())
    return pa.record_batch(
        [pa.array(words, pa.binary()), pa.array(sources, pa.uint32()), pa.array(counts, pa.uint64())],
        names=["word", "source", "count"],
    )


@settings(max_examples=300)
@given(
    st.dictionaries(
        st.text("ab", max_size=9).map(str.encode) | st.text("abcé ", min_size=1, max_size=7).map(str.encode),
        st.tuples(st.integers(0, 30), st.integers(0, 30)).filter(any),
        max_size=15,
    ),
    st.tuples(st.integers(0, 9), st.integers(0, 9)).filter(any),
    st.booleans(),
    st.integers(1, 30),
    st.integers(1, 9),
)
def test_all_sizes_of_one_run_are_measured_as_by_the_encoder(
    words: dict[bytes, tuple[int, int]], weights: tuple[int, int], jitter: bool, least: int, width: int
) -> None:
    """Replaying by the encoder is the slow twin. Words that took no part are encoded in both; one run has all sizes."""
    rows = [(word, source, n) for word, counts in words.items() for source, n in enumerate(counts) if n]
    columns = [pa.array([row[i] for row in rows], field.type) for i, field in enumerate(SPILL_SCHEMA)]
    whole = pa.record_batch(columns, schema=SPILL_SCHEMA)
    batches = [whole.slice(at, width) for at in range(0, len(rows), width)]
    given = Weights("bytes", {"x": 1, "y": 1}, dict(zip("xy", weights, strict=True)), Fraction(1), jitter=jitter)
    options = LearnOptions(vocab_size=(280,), min_word_count=least, min_pair_count=1)
    learned = learn_merges(lambda: batches, ["x", "y"], 24, options, given)
    left, right = learned.merges.column(0), learned.merges.column(1)
    replaced, tokens = _core.replay(left, right, batches, 2)
    assert (list(learned.replaced.values()), list(learned.tokens.values())) == (replaced, tokens)
    sizes = {name: sum(len(word) * counts[i] for word, counts in words.items()) for i, name in enumerate("xy")}
    for merges in range(len(learned) + 1):
        _, fewer = _core.replay(left[:merges], right[:merges], batches, 2)
        numbers = {name: sum(array.to_pylist()) for name, array in zip("xy", fewer, strict=True)}
        wanted = {name: sizes[name] / number for name, number in numbers.items() if number}
        assert learned.bytes_per_token(merges) == wanted


def test_bytes_per_token_of_more_tokens_than_64_bits_can_count() -> None:
    learned = learn_merges(
        batches_of_mapping({b"abcd": 2**63}), ["x"], 1, LearnOptions(vocab_size=(257,), min_pair_count=1)
    )
    assert (learned.bytes_per_token(0), learned.bytes_per_token(1)) == ({"x": 1.0}, {"x": 4 / 3})


def test_weights_scale_counts() -> None:
    rows = pa.record_batch(
        [pa.array([b"ab", b"ab", b"cd"]), pa.array([0, 1, 1], pa.uint32()), pa.array([5, 1, 3], pa.uint64())],
        names=["word", "source", "count"],
    )
    weights = Weights("bytes", {"x": 1, "y": 1}, {"x": 1, "y": 10}, Fraction(1))
    learned = learn_merges(lambda: [rows], ["x", "y"], 2, LearnOptions(vocab_size=(258,)), weights)
    assert learned.merges.column("count").to_pylist() == [30, 15]


def test_min_word_count_of_learn_only_filters() -> None:
    vocabulary = dist_bpe.learn({"ab": 9, "cd": 2}, num_merges=5, min_word_count=3, progress="silent")
    assert list(vocabulary.merges) == [(b"a", b"b")]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"vocab_size": 255}, "too small"),
        ({"vocab_size": 257, "special_tokens": ["<a>", "<b>"]}, "258 or more"),
        ({}, "either vocab_size or num_merges"),
        ({"num_merges": 1, "vocabsize": 3}, "unknown option 'vocabsize'"),
        ({"num_merges": 1, "min_pair_count": 0}, "min_pair_count"),
        ({"num_merges": 1, "unit": "syllable"}, "syllable"),
        ({"num_merges": 1, "tie_break": "random"}, "random"),
        ({"num_merges": 1, "unit": "character", "end_of_word": ""}, "marker"),
    ],
)
def test_options_that_cannot_work(options: dict[str, object], message: str) -> None:
    with pytest.raises(errors.UsageError, match=message):
        dist_bpe.learn({"ab": 2}, progress="silent", **options)  # type: ignore[call-overload]


@pytest.mark.parametrize("count", [-1, 1.5, "3", 2**64, True])
def test_counts_that_are_none(count: object) -> None:
    with pytest.raises(errors.UsageError, match="count"):
        dist_bpe.learn({"ab": count}, num_merges=1, progress="silent")  # type: ignore[dict-item]


def test_a_vocabulary_that_stays_short_says_why(capsys: pytest.CaptureFixture[str]) -> None:
    vocabulary = dist_bpe.learn({"abc": 2}, vocab_size=1000, progress="silent")
    assert len(vocabulary) == 258
    told = capsys.readouterr().err
    assert "the vocabulary has 258 tokens instead of the 1,000 that were asked for" in told
    assert "ran out of pairs with a count of 2 or more at merge 2" in told
    assert "ask for 258 tokens or fewer, or lower min_pair_count" in told


def test_a_vocabulary_that_must_not_stay_short(write: Writer, tmp_path: Path, documents: list[str]) -> None:
    write("a.parquet", documents[:3])
    table = quiet(dist_bpe.Source("a", str(tmp_path / "a.parquet")), output=tmp_path / "run")
    progress = Progress("silent")
    config = LearnOptions(vocab_size=(300, 50_000))
    with pytest.raises(errors.RunError, match=r"instead of the 50,000 .* strict \(--strict\) was asked for") as caught:
        run_learn(table, config.model_copy(update={"strict": True}), [], None, progress)
    assert "ran out of pairs" in str(caught.value)
    run_learn(table, LearnOptions(vocab_size=(300,), strict=True), [], None, progress)
    assert progress.warnings == []
    run_learn(table, config, [], None, progress)
    assert "A folder named after a size keeps the one asked for" in progress.warnings[0]
    # The same of parity.
    texts = {"a": documents[3:9]}
    dev = HeldOut("dev", texts, tuple("abcdef"))
    with pytest.raises(errors.RunError, match=r"strict \(--strict\) was asked for"):
        run_learn(table, config.model_copy(update={"parity": "dev", "strict": True}), [], dev, progress)


HOSTILE = {
    "5 MB of one letter": "a" * 5_000_000,
    "1 MB of random ACGT": "".join(random.Random(8).choices("ACGT", k=1_000_000)),
    "two million spaces": " " * 2_000_000 + "x",
    "a million carets": "^" * 1_000_000,
    "a million newlines between spaces": " \n" * 500_000,
    "a million digits": "7" * 1_000_000,
    "a million apostrophes": "'" * 1_000_000,
}


@pytest.mark.timeout(60)  # each takes well under a second; what is quadratic takes hours
@pytest.mark.parametrize("kind", HOSTILE)
@pytest.mark.parametrize("pattern", [*(name for name in _core.PATTERNS if "+" not in name), r"\S+|\s+"])
def test_one_hostile_word_is_no_trouble(kind: str, pattern: str, write: Writer, tmp_path: Path) -> None:
    text = HOSTILE[kind]
    path = write("a.parquet", [text, text])
    table = dist_bpe.count(
        dist_bpe.Source("a", str(path)), output=tmp_path / "run", engine="local", pattern=pattern, progress="silent"
    )
    vocabulary = dist_bpe.learn(table, vocab_size=320, progress="silent")
    ids = vocabulary.encode(text)
    assert vocabulary.decode(ids) == text
    # Where the pattern makes one word of it, it is learned, too; qwen2 cuts digits one by one.
    one_digit_a_word = pattern in ("qwen2", "qwen3.5", "tekken") and kind == "a million digits"
    assert len(ids) < len(text) / 2 or one_digit_a_word
