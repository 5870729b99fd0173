"""The native core as Python meets it: what it refuses, what stops it, and when it holds the interpreter lock."""

import _thread
import itertools
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest

from dist_bpe import _core, errors

LEFT, RIGHT = pa.array([64, 256], pa.uint32()), pa.array([65, 66], pa.uint32())  # ab, abc
NONE = pa.array([], pa.uint32())


def batch(*rows: tuple[bytes, int, int]) -> pa.RecordBatch:
    words, sources, counts = zip(*rows, strict=True)
    return pa.record_batch(
        [pa.array(words, pa.binary()), pa.array(sources, pa.uint32()), pa.array(counts, pa.uint64())],
        names=["word", "source", "count"],
    )


def encoder(pattern: str | None = "gpt2", normalization: str | None = None) -> _core.Encoder:
    return _core.Encoder(LEFT, RIGHT, pattern, [], [], 0, normalization)


def test_the_ids_of_single_bytes() -> None:
    assert sorted(_core.byte_ids()) == list(range(_core.BYTES))


COUNTER = _core.Counter(2, "gpt2", [])
TABLE = _core.Table([batch((b"ab", 0, 1), (b"ab", 1, 1))], 2)
MISUSES: list[tuple[Callable[[], Any], str]] = [
    (lambda: COUNTER.count(2, pa.array(["a"])), "no source 2: this counter has 2"),
    (lambda: COUNTER.add_words(7, pa.array(["a"]), pa.array([1], pa.uint64())), "no source 7"),
    (lambda: COUNTER.totals(2), "no source 2"),
    (lambda: COUNTER.add_words(0, pa.array(["a", "b"]), pa.array([1], pa.uint64())), "2 words and 1 counts"),
    (lambda: COUNTER.add_words(0, pa.array(["a"]), pa.array([1])), "the counts are Int64, and should be UInt64"),
    (lambda: COUNTER.add_words(0, pa.array(["a"]), pa.array([None], pa.uint64())), "1 of the counts are null"),
    (lambda: COUNTER.drain(0), "0 partitions"),
    (lambda: TABLE.words([1]), "1 weights were given for 2 sources"),
    (lambda: TABLE.words([1, 2, 3]), "3 weights were given for 2 sources"),
    (lambda: TABLE.replay(LEFT, NONE), "2 left ids and 0 right ids"),
    (lambda: _core.replay(LEFT.cast(pa.int64()), RIGHT, [], 1), "the left ids are Int64"),
    (lambda: _core.Encoder(LEFT, NONE, None, [], [], 0), "2 left ids and 0 right ids"),
    (lambda: _core.Encoder(LEFT, RIGHT, None, ["<s>"], [], 0), "1 special tokens and 0 ids"),
    (lambda: _core.Encoder(LEFT, RIGHT, None, [], [], 2**32 - 257), "do not fit 32 bits"),
    (lambda: _core.Encoder(RIGHT, LEFT[::-1], None, [], [], 0), "uses token 256"),
    (lambda: encoder(None).encode("a"), "no named pattern"),
]


@pytest.mark.parametrize(("call", "message"), MISUSES, ids=[message for _, message in MISUSES])
def test_misuse_is_a_value_error(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()


def test_data_that_is_damaged_is_told_from_counts_that_are_too_large() -> None:
    for rows in ([(b"b", 0, 1), (b"a", 0, 1)], [(b"a", 1, 1), (b"a", 0, 1)]):
        with pytest.raises(errors.DamagedRunError, match="a spill is not sorted"):
            list(_core.Merger([[batch(*rows)]], 2, 0))
    with pytest.raises(errors.DamagedRunError, match="a spill has source 2"):
        list(_core.Merger([[batch((b"a", 2, 1))]], 2, 0))
    twice = _core.Words([batch((b"ab", 0, 1), (b"cd", 0, 1), (b"ab", 0, 1))], [1], 0)
    with pytest.raises(errors.FormatError, match='"ab" stands in the table more than once'):
        _core.learn_merges(twice, 9, 1)
    foreign = [batch((b"ab", 3, 1))]
    for call in (
        lambda: _core.Words(foreign, [1], 0),
        lambda: _core.Table(foreign, 1),
        lambda: _core.replay(LEFT, RIGHT, foreign, 1),
    ):
        with pytest.raises(errors.FormatError, match="belongs to source 3"):
            call()
    with pytest.raises(errors.CountOverflowError):
        list(_core.Merger([[batch((b"a", 0, 2**63))], [batch((b"a", 0, 2**63))]], 1, 0))
    with pytest.raises(errors.CountOverflowError):
        _core.replay(LEFT, RIGHT, [batch((b"a", 0, 2**63), (b"b", 0, 1), (b"aa", 0, 2**63))], 1)


def test_nulls_have_no_ids() -> None:
    for texts in ([None, "ab", None, None, "abc", ""], [None], ["ab", None]):
        wanted = [encoder().encode(text) if text is not None else [] for text in texts]
        for ids, offsets in (
            encoder().encode_batch(pa.array(texts, pa.string())),
            encoder().encode_words(pa.array(texts, pa.large_string())),
        ):
            borders = offsets.to_pylist()
            assert [ids.to_pylist()[i:j] for i, j in itertools.pairwise(borders)] == wanted


WORDS = "some words 한글 e\u0301 " * 10


def huge(times: int) -> pa.Array:
    return pa.array([WORDS * times], pa.large_string())


SLOW: dict[str, Callable[[], Any]] = {
    "encode": lambda: encoder(normalization="NFKD").encode(WORDS * 500_000),
    "encode_ordinary": lambda: encoder().encode_ordinary(WORDS * 1_000_000),
    "encode_batch": lambda: encoder(normalization="NFC").encode_batch(pa.array([WORDS * 20] * 50_000)),
    "encode_word": lambda: encoder(None).encode_word(b"abc" * 60_000_000),
    "encode_words": lambda: encoder(None).encode_words(pa.array([b"abcabcabc" * 40] * 1_000_000)),
    "replay": lambda: SLOW_TABLE().replay(LEFT, RIGHT),
    "one document": lambda: _core.Counter(1, "gpt2", [], "scalar").count(0, huge(3_000_000)),
    "one normalised document": lambda: _core.Counter(1, "gpt2", [], None, "NFD").count(0, huge(2_000_000)),
    "normalize": lambda: _core.normalize(WORDS * 3_000_000, "NFKD"),
}
_TABLES: list[_core.Table] = []


def SLOW_TABLE() -> _core.Table:
    if not _TABLES:

        def batches() -> Iterator[pa.RecordBatch]:
            for i in range(200):
                yield batch(*((b"%09d" % (i * 5000 + j) + b"abc" * 300, 0, 1) for j in range(5000)))

        _TABLES.append(_core.Table(batches(), 1))
    return _TABLES[0]


@pytest.mark.large
@pytest.mark.parametrize("name", SLOW)
def test_ctrl_c_ends_a_call(name: str) -> None:
    if name == "replay":
        SLOW_TABLE()
    timer = threading.Timer(1.5, _thread.interrupt_main)
    with pytest.raises(KeyboardInterrupt):  # uninterrupted, it would return
        timer.start()
        SLOW[name]()


UNLOCKED: dict[str, Callable[[], Any]] = {
    "normalize": lambda text: _core.normalize(text, "NFKD"),
    "cut": lambda text: _core.cut(text, ["words", "e"]),
    "first_invalid_utf8": lambda text: [_core.first_invalid_utf8(pa.array([text] * 3)) for _ in range(10)],
    "words": lambda text: _core.words("none", text),
}


@pytest.mark.large
@pytest.mark.parametrize("name", UNLOCKED)
def test_the_interpreter_goes_on_meanwhile(name: str) -> None:
    ticks: list[float] = []
    done = threading.Event()
    text = WORDS * 200_000

    def tick() -> None:
        while not done.is_set():
            ticks.append(time.monotonic())
            time.sleep(0.001)

    thread = threading.Thread(target=tick)
    thread.start()
    time.sleep(0.05)
    start = time.monotonic()
    UNLOCKED[name](text)
    end = time.monotonic()
    done.set()
    thread.join()
    during = [tick for tick in ticks if start < tick < end]
    assert end - start < 0.02 or len(during) > 3, f"{len(during)} ticks in {end - start:.3f} s"
