"""Many trainings from one table in memory, and merges chosen for the language that is worst off."""

import json
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from fractions import Fraction
from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dist_bpe import _core
from dist_bpe.counting.spills import SPILL_SCHEMA
from dist_bpe.errors import CountOverflowError, UsageError

Counts = Mapping[bytes, Sequence[int]]
"""Word -> its count in each language."""


def rows(words: Counts) -> pa.RecordBatch:
    """The rows of a count table; counts of 0 have none."""
    listed = [(word, source, n) for word, counts in words.items() for source, n in enumerate(counts) if n]
    return pa.record_batch(
        [pa.array([row[i] for row in listed], field.type) for i, field in enumerate(SPILL_SCHEMA)], schema=SPILL_SCHEMA
    )


def merges_of(words: _core.Words, merges: int) -> list[list[int]]:
    return [column.to_pylist() for column in _core.learn_merges(words, merges, 1).columns]


LETTERS = st.text("ab", min_size=1, max_size=9) | st.text("abcé", min_size=1, max_size=7)
TWO_LANGUAGES = st.dictionaries(LETTERS.map(str.encode), st.tuples(*[st.integers(0, 30)] * 2).filter(any), max_size=10)


@settings(max_examples=150)
@given(TWO_LANGUAGES, st.tuples(*[st.integers(0, 2**30)] * 2), st.integers(0, 30))
def test_a_table_gives_what_the_stream_gives(words: Counts, weights: tuple[int, int], least: int) -> None:
    table = _core.Table([rows(words)], 2)
    assert len(table) == len(words)
    streamed = merges_of(_core.Words([rows(words)], weights, least), 20)
    assert merges_of(table.words(weights, least), 20) == streamed
    left, right = (pa.array(column, pa.uint32()) for column in streamed[:2])
    assert table.replay(left, right) == _core.replay(left, right, [rows(words)], 2)


def test_jitter_is_a_tenth_by_the_hash_of_the_word() -> None:
    # Words of two bytes, so that each is a pair of its own.
    words = {bytes([i // 200, 50 + i % 200]): (1000, 0) for i in range(2000)}
    left, right, counts = merges_of(_core.Table([rows(words)], 2).words([7, 1], 1, jitter=True), 2000)
    byte_of = {number: byte for byte, number in enumerate(_core.byte_ids())}
    weighted = {bytes([byte_of[a], byte_of[b]]): n for a, b, n in zip(left, right, counts, strict=True)}
    assert weighted.keys() == words.keys()
    assert all(900 * 7000 <= count <= 1100 * 7000 and count % 7000 == 0 for count in weighted.values())
    assert len(set(weighted.values())) == 201
    # A stored number: a mixture found with jitter must be found again with any version.
    assert weighted[b"\x07A"] == 6755000


Merge = tuple[int, int, int, int | None]
"""Left id, right id, count, language."""


def parity(words: Counts, merges: int, languages: int = 2, dev: Counts | None = None, **options: object) -> list[Merge]:
    """Merges by the native core."""
    table = _core.Table([rows(words)], languages)
    text = None if dev is None else _core.Table([rows(dev)], languages)
    batch = _core.learn_parity(table, merges, dev=text, **options)  # type: ignore[arg-type]
    return list(zip(*(column.to_pylist() for column in batch.columns), strict=True))


def parity_twin(
    words: Counts,
    merges: int,
    languages: int = 2,
    dev: Counts | None = None,
    ratios: Sequence[int] = (),
    window: int = 0,
    alpha: tuple[int, int] = (2, 1),
    summed_merges: int = 0,
    min_pair_count: int = 2,
    stop_at_ties: bool = False,
) -> list[Merge]:
    """The same by the definitions of the paper, everything counted anew before each merge."""
    train = {word: [_core.byte_ids()[byte] for byte in word] for word in words}
    text = {word: [_core.byte_ids()[byte] for byte in word] for word in (words if dev is None else dev)}

    def tokens(language: int) -> int:
        return sum(len(text[word]) * counts[language] for word, counts in (words if dev is None else dev).items())

    before = [tokens(language) for language in range(languages)]
    found: list[Merge] = []
    chosen: list[int] = []
    left = set(range(languages))
    while len(found) < merges and left:
        rate = {i: Fraction(before[i], max(tokens(i), 1)) / ratios[i] if ratios else -tokens(i) for i in left}
        worst_first = sorted(left, key=lambda i: (rate[i], i))
        most = Fraction(*alpha) / languages
        welcome = [i for i in worst_first if not window or Fraction(chosen[-window:].count(i), window) <= most]
        language = None if len(found) < summed_merges else [*welcome, *worst_first][0]
        pairs: Counter[tuple[int, int]] = Counter()
        for word, counts in words.items():
            for pair in pairwise(train[word]):
                pairs[pair] += sum(counts) if language is None else counts[language]
        count = max(pairs.values(), default=0)
        if count < max(min_pair_count, 1):
            left -= left if language is None else {language}
            continue
        best = sorted(pair for pair in pairs if pairs[pair] == count)
        if stop_at_ties and len(best) > 1:
            break
        for splits in (train, text):
            for word, split in splits.items():
                splits[word] = merged(split, best[0], 256 + len(found))
        found.append((*best[0], count, language))
        chosen += [] if language is None else [language]
    return found


def merged(split: list[int], pair: tuple[int, int], token: int) -> list[int]:
    out: list[int] = []
    for symbol in split:
        if out and (out[-1], symbol) == pair:
            out[-1] = token
        else:
            out.append(symbol)
    return out


RULES = st.fixed_dictionaries(
    {"min_pair_count": st.integers(0, 3), "summed_merges": st.sampled_from([0, 0, 3])},
    optional={"window": st.integers(0, 6), "alpha": st.tuples(st.integers(0, 4), st.integers(1, 3))},
)


@settings(max_examples=250)
@given(TWO_LANGUAGES, TWO_LANGUAGES | st.none(), st.tuples(*[st.integers(1, 9)] * 2), st.integers(0, 15), RULES)
def test_equals_the_definitions(
    words: Counts, dev: Counts | None, ratios: tuple[int, int], merges: int, options: dict[str, object]
) -> None:
    rule = {"ratios": ratios} if dev is None else {"dev": dev}
    wanted = parity_twin(words, merges, **rule, **options)  # type: ignore[arg-type]
    assert parity(words, merges, **rule, **options) == wanted  # type: ignore[arg-type]
    assert parity(words, merges, plain=True, **rule, **options) == wanted  # type: ignore[arg-type]


def three_languages(seed: int, number: int, most: int) -> dict[bytes, tuple[int, int, int]]:
    """Words of three languages that share some letters; few are in two of them."""
    rng = random.Random(seed)
    words: dict[bytes, list[int]] = {}
    for _ in range(number):
        language = rng.randrange(3)
        letters = ["abcdefgh", "efghijkl", "aeimnopq"][language]
        word = "".join(rng.choice(letters[: rng.randint(1, 8)]) for _ in range(rng.randint(1, 8))).encode()
        words.setdefault(word, [0, 0, 0])[language] += rng.randint(1, most)
    return {word: (a, b, c) for word, (a, b, c) in words.items()}


@pytest.mark.parametrize(
    "options",
    [{}, {"window": 30}, {"window": 30, "alpha": (3, 2), "summed_merges": 15}, {"ratios": (30, 31, 32)}],
    ids=["dev", "window", "hybrid and window", "ratios"],
)
def test_equals_hugging_face_until_counts_tie(options: dict[str, object]) -> None:
    # Among pairs of equal count theirs takes the greatest strings, ours the smallest ids.
    tokenizers = pytest.importorskip("tokenizers", minversion="0.23.3")
    words, dev = three_languages(2, 400, 900), three_languages(12, 150, 9)
    rule = options if "ratios" in options else {"dev": dev, **options}
    wanted = parity_twin(words, 120, 3, min_pair_count=1, stop_at_ties=True, **rule)  # type: ignore[arg-type]
    assert len(wanted) >= 45
    assert {language for *_, language in wanted} >= {0, 1, 2}
    assert parity(words, len(wanted), 3, min_pair_count=1, **rule) == wanted  # type: ignore[arg-type]

    def texts(counted: Counts) -> list[list[str]]:
        return [[f"{word.decode()} " * counts[i] for word, counts in counted.items()] for i in range(3)]

    alpha = options.get("alpha", (2, 1))
    trainer = tokenizers.trainers.ParityBpeTrainer(
        num_merges=len(wanted),
        variant="window" if "window" in options else "base",
        window_size=options.get("window", 1),
        alpha=alpha[0] / alpha[1],  # type: ignore[index]
        global_merges=options.get("summed_merges", 0),
        ratio=options.get("ratios") and [*map(float, options["ratios"])],  # type: ignore[call-overload]
        show_progress=False,
    )
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    dev_texts = None if "ratios" in options else [*map(iter, texts(dev))]
    trainer.train_from_iterator(tokenizer, [*map(iter, texts(words))], dev_iterators=dev_texts)
    pieces = {number: chr(byte) for byte, number in enumerate(_core.byte_ids())}
    for rank, (left, right, *_) in enumerate(wanted):
        pieces[256 + rank] = pieces[left] + pieces[right]
    ours = [[pieces[left], pieces[right]] for left, right, *_ in wanted]
    assert json.loads(tokenizer.to_str())["model"]["merges"] == ours


def test_options_that_do_not_fit_are_refused() -> None:
    words = {b"ab": (3, 3)}
    for rule in ({}, {"dev": words, "ratios": [1, 1]}, {"ratios": [1]}, {"ratios": [1, 0]}):
        with pytest.raises(UsageError, match="2 positive numbers"):
            parity(words, 5, **rule)
    with pytest.raises(UsageError, match="denominator"):
        parity(words, 5, dev=words, window=3, alpha=(1, 0))
    with pytest.raises(CountOverflowError, match="source 1 have more than"):
        parity(words, 5, dev={b"ab": (1, 2**63)})
    with pytest.raises(OverflowError):
        parity(words, 5, ratios=[1, -1])


def test_progress_is_told_and_can_stop() -> None:
    rng = random.Random(3)
    words = {rng.randbytes(rng.randint(3, 12)): (rng.randint(1, 9), rng.randint(1, 9)) for _ in range(60_000)}
    seen: list[int] = []

    def stop(done: int) -> None:
        seen.append(done)
        raise KeyError(done)

    with pytest.raises(KeyError):
        parity(words, 20_000, dev=words, progress=stop)
    assert len(seen) == 1
