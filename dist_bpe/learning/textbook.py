"""Byte-pair encoding as one reads it in a textbook: the slow twin that judges the fast learner, and the teaching modes.

Every step counts all pairs of the whole table from scratch, takes the best one, and replaces it everywhere:

    merge 1:  b a s s o   b a s s o t t o   r o s s o      count of (s, s) is the highest
              b a ss o    b a ss o t t o    r o ss o       ... count again

Counts are Python integers, so they are exact whatever their size. The cost is merges times symbols: a few thousand
words and a few hundred merges are comfortable, a corpus is not. The tests hold the fast learner equal to this one.
"""

import functools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice, pairwise
from typing import AnyStr, Generic, Literal, get_args, overload

from dist_bpe.errors import UsageError, several
from dist_bpe.options import MOST, Options, both, option

Unit = Literal["byte", "character"]
TieBreak = Literal["id", "lexicographic", "first-seen"]
_PRINTABLE = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
BASE_BYTES = [bytes([byte]) for byte in [*_PRINTABLE, *(byte for byte in range(256) if byte not in _PRINTABLE)]]
"""The 256 bytes in GPT-2's order, which is the order of their ids: `!` is 0, the space is 220."""


class LessonOptions(Options):
    """How a lesson merges: byte-pair encoding as in a textbook."""

    unit: Unit = option("character", "The symbols that words are made of at first.")
    tie_break: TieBreak = option(
        "id",
        "Which pair goes first among those of equal count: the one with the smallest ids, the first in the order of "
        "strings, or the one met first when the words are read from the beginning.",
    )
    end_of_word: str | None = option(None, "A symbol put after each word, such as _.", metavar="SYMBOL")
    num_merges: int | None = option(
        None, "The number of merges.", flag="--merges", shown="10, if no vocabulary size is given", ge=0
    )
    vocab_size: int | None = option(
        None, "Instead, the number of tokens: the symbols at first, and one for each merge.", ge=1
    )
    min_pair_count: int = option(2, "The least count of a pair that is merged.", ge=1, le=MOST)
    max_token_bytes: int | None = option(None, "No token is longer than this, in bytes.", ge=2)


@dataclass(frozen=True)
class Step(Generic[AnyStr]):
    """One merge, and all that was counted to choose it.

    Attributes:
        pairs: the weighted count of every pair, in the order in which they are met when the words are read.
        equals: the pairs of the highest count that may be merged, in the same order.
        pair: the one of them that the tie-break chose.
        words: each word as it is split after the merge, with its count.
    """

    pairs: dict[tuple[AnyStr, AnyStr], int]
    equals: list[tuple[AnyStr, AnyStr]]
    pair: tuple[AnyStr, AnyStr]
    words: list[tuple[list[AnyStr], int]]


@dataclass(frozen=True)
class _Rule:
    """What a pair must satisfy to be merged, and which of equals goes first."""

    tie_break: TieBreak
    min_pair_count: int
    max_token_bytes: int | None


@dataclass(frozen=True)
class ReferenceModel(Generic[AnyStr]):
    """Merges in rank order and what was counted on the way; pieces are bytes or str, as the unit asks.

    `counts[i]` is the weighted count of merge `i` when it was chosen; overlaps count as windows: `aaa` holds two `aa`.
    `symbols` is the weighted number of symbols before the first merge and after each, hence one longer than `merges`.
    `vocabulary` is the base (all bytes, or the characters in order of first appearance), then one piece a merge.
    `steps` has every pair's count at each merge, and the words after it.
    """

    base: list[AnyStr]
    merges: list[tuple[AnyStr, AnyStr]]
    counts: list[int]
    symbols: list[int]
    end_of_word: AnyStr | None = None
    unknown_token: AnyStr | None = None
    _words: Mapping[AnyStr, int] = field(default_factory=dict, repr=False)
    _rule: _Rule = field(default_factory=lambda: _Rule("id", 1, None), repr=False)

    @functools.cached_property
    def steps(self) -> "list[Step[AnyStr]]":
        """The learning once more, a step for each merge: what the judge of the fast learner need not hold."""
        return list(islice(_steps(self._words, self.base, self.end_of_word, self._rule), len(self.merges)))

    @property
    def vocabulary(self) -> list[AnyStr]:
        """All pieces; the position is the id."""
        return self.base + [left + right for left, right in self.merges]

    def tokenize(self, word: AnyStr) -> list[AnyStr]:
        """Split one word by replaying the merges in rank order.

        A character that is not in the base vocabulary becomes `unknown_token`, or stays itself if that is None.
        """
        pieces = list(_split(word, self.end_of_word))
        for pair in self.merges:
            pieces = _replace(pieces, pair)
        if self.unknown_token is None:
            return pieces
        known = set(self.vocabulary)
        return [piece if piece in known else self.unknown_token for piece in pieces]


@overload
def learn(
    words: Mapping[bytes, int] | Mapping[str, int],
    num_merges: int | None = None,
    *,
    vocab_size: int | None = None,
    unit: Literal["byte"] = "byte",
    end_of_word: None = None,
    tie_break: TieBreak = "id",
    min_pair_count: int = 2,
    max_token_bytes: int | None = None,
) -> ReferenceModel[bytes]: ...


@overload
def learn(
    words: Mapping[str, int],
    num_merges: int | None = None,
    *,
    vocab_size: int | None = None,
    unit: Literal["character"],
    end_of_word: str | None = None,
    unknown_token: str | None = None,
    tie_break: TieBreak = "id",
    min_pair_count: int = 2,
    max_token_bytes: int | None = None,
) -> ReferenceModel[str]: ...


def learn(
    words: Mapping[bytes, int] | Mapping[str, int],
    num_merges: int | None = None,
    *,
    vocab_size: int | None = None,
    unit: Unit = "byte",
    end_of_word: str | None = None,
    unknown_token: str | None = None,
    tie_break: TieBreak = "id",
    min_pair_count: int = 2,
    max_token_bytes: int | None = None,
) -> ReferenceModel[bytes] | ReferenceModel[str]:
    """Learn at most `num_merges` merges from words and their counts; fewer if no pair reaches `min_pair_count`.

    vocab_size       instead of `num_merges`: how long `vocabulary` is to be, base and merges
    unit             the symbols to start from: the bytes of the word (text is taken as UTF-8), or its characters
    end_of_word      a symbol put after each word's characters, such as `_`
    unknown_token    what the model makes of a character that the words do not have
    tie_break        among pairs of equal count: `id`, the smallest (left id, right id);
                     `lexicographic`, the smallest (left string, right string), by code points or bytes;
                     `first-seen`, the one met first when the words, in the given order and as they are split by
                     now, are read from the beginning
    max_token_bytes  pairs whose token would be longer, in bytes of UTF-8, are never chosen

    Raises `UsageError` for options that cannot work together, a size below the base, and negative counts.
    """
    if (num_merges is None) == (vocab_size is None):
        raise UsageError(f"give either {both(LessonOptions, 'vocab_size')} or {both(LessonOptions, 'num_merges')}.")
    if negative := [word for word, count in words.items() if count < 0]:
        raise UsageError(f"the count of {negative[0]!r} is negative: counts are numbers of occurrences")
    if tie_break not in get_args(TieBreak):
        raise UsageError(f"tie_break = {tie_break!r} is not known: use one of {', '.join(get_args(TieBreak))}")
    rule = _Rule(tie_break, max(min_pair_count, 1), max_token_bytes)
    if unit == "byte":
        for name, value in (("end_of_word", end_of_word), ("unknown_token", unknown_token)):
            if value is not None:
                raise UsageError(f'{name} = {value!r} has no place among bytes: use unit = "character"')
        table: dict[bytes, int] = {}
        for word, count in words.items():  # a word may stand there twice, as str and as bytes
            key = word.encode() if isinstance(word, str) else word
            table[key] = table.get(key, 0) + count
        return _learn(table, BASE_BYTES, None, _merges(num_merges, vocab_size, BASE_BYTES), rule)
    if unit != "character":
        raise UsageError(f'unit = {unit!r} is not known: use "byte" or "character"')
    text = {word: count for word, count in words.items() if isinstance(word, str)}
    if len(text) < len(words):
        raise UsageError('unit = "character" takes words as str, not as bytes')
    if end_of_word is not None and (clash := [word for word in text if not end_of_word or end_of_word in word]):
        raise UsageError(f"the word {clash[0]!r} holds the end-of-word marker {end_of_word!r}: choose another marker")
    base = list(dict.fromkeys(symbol for word in text for symbol in _split(word, end_of_word)))
    model = _learn(text, base, end_of_word, _merges(num_merges, vocab_size, base), rule)
    return replace(model, unknown_token=unknown_token)


def _merges(num_merges: int | None, vocab_size: int | None, base: list[AnyStr]) -> int:
    if vocab_size is None:
        return num_merges or 0
    if vocab_size < len(base):
        raise UsageError(
            f"{both(LessonOptions, 'vocab_size')} is too small with {vocab_size:,}: there are "
            f"{several(len(base), 'symbol')} before the first merge. Ask for {len(base):,} or more."
        )
    return vocab_size - len(base)


def _learn(
    table: Mapping[AnyStr, int], base: list[AnyStr], end_of_word: AnyStr | None, num_merges: int, rule: "_Rule"
) -> ReferenceModel[AnyStr]:
    symbols = sum(len(list(_split(word, end_of_word))) * count for word, count in table.items())
    model = ReferenceModel(list(base), [], [], [symbols], end_of_word, None, table, rule)
    for step in islice(_steps(table, base, end_of_word, rule), num_merges):
        model.merges.append(step.pair)
        model.counts.append(step.pairs[step.pair])
        model.symbols.append(sum(len(split) * count for split, count in step.words))
    return model


def _steps(
    table: Mapping[AnyStr, int], base: list[AnyStr], end_of_word: AnyStr | None, rule: _Rule
) -> Iterator[Step[AnyStr]]:
    """One merge after another, until no pair will do."""
    words = [(list(_split(word, end_of_word)), count) for word, count in table.items()]
    ids = {piece: index for index, piece in enumerate(base)}
    while True:
        pairs = _count_pairs(words)
        equals = _best(pairs, rule)
        pair = _first(equals, ids, rule)
        if pair is None:
            return
        # No two merges make the same piece: the borders around a piece's text were there from the start, so the text
        # between them was always split alike, and the first of the two merges would have joined them all.
        ids[pair[0] + pair[1]] = len(ids)
        words = [(_replace(split, pair), count) for split, count in words]
        yield Step(pairs, equals, pair, words)


def _best(pairs: Mapping[tuple[AnyStr, AnyStr], int], rule: _Rule) -> list[tuple[AnyStr, AnyStr]]:
    """Of the counted pairs that may be merged those of the highest count, in the order in which they were met."""
    longest = rule.max_token_bytes
    fitting = {
        pair: count
        for pair, count in pairs.items()
        if count >= rule.min_pair_count and (longest is None or _size(pair[0]) + _size(pair[1]) <= longest)
    }
    highest = max(fitting.values(), default=0)
    return [pair for pair, count in fitting.items() if count == highest]


def _first(equals: list[tuple[AnyStr, AnyStr]], ids: Mapping[AnyStr, int], rule: _Rule) -> tuple[AnyStr, AnyStr] | None:
    """The one that the tie-break chooses among equals; None if there is none."""
    if not equals:
        return None
    if rule.tie_break == "first-seen":
        return equals[0]
    if rule.tie_break == "lexicographic":
        return min(equals)
    return min(equals, key=lambda pair: (ids[pair[0]], ids[pair[1]]))


def _split(word: AnyStr, end_of_word: AnyStr | None) -> Iterator[AnyStr]:
    for index in range(len(word)):
        yield word[index : index + 1]
    if end_of_word is not None:
        yield end_of_word


def shown(piece: str | bytes) -> str:
    """A piece as people read it: bytes that are no whole characters are written out, as \\xe2."""
    return piece.decode(errors="backslashreplace") if isinstance(piece, bytes) else piece


def _size(piece: str | bytes) -> int:
    return len(piece.encode() if isinstance(piece, str) else piece)


def _count_pairs(words: Iterable[tuple[list[AnyStr], int]]) -> dict[tuple[AnyStr, AnyStr], int]:
    pairs: dict[tuple[AnyStr, AnyStr], int] = {}
    for split, count in words:
        for pair in pairwise(split):
            pairs[pair] = pairs.get(pair, 0) + count
    return pairs


def _replace(split: list[AnyStr], pair: tuple[AnyStr, AnyStr]) -> list[AnyStr]:
    """Join the pair wherever it stands, from left to right: `a a a` becomes `aa a`."""
    joined: list[AnyStr] = []
    index = 0
    while index < len(split):
        if split[index : index + 2] == [*pair]:
            joined.append(pair[0] + pair[1])
            index += 2
        else:
            joined.append(split[index])
            index += 1
    return joined
