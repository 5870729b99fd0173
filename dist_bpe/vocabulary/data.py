"""What a vocabulary is: bytes, merges, special tokens, padding, and their ids."""

import functools
import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa

from dist_bpe import _core
from dist_bpe.arrays import of_numbers, of_numpy
from dist_bpe.errors import FormatError, UsageError
from dist_bpe.pretokenize.patterns import GPT2, Pattern
from dist_bpe.pretokenize.preparation import ROLES, Normalization, Role, SpecialToken

BYTES = _core.BYTES
MOST_UNUSED = 1 << 20
"""Of padding tokens, and of ids between special tokens that no token has: beyond it a file is damaged, not generous."""


PADDING = "<|reserved_{}|>"
PADDING_NAME = re.compile(r"<\|reserved_(\d+)\|>")
BYTE_TOKENS = tuple(bytes([byte]) for byte in sorted(range(BYTES), key=_core.byte_ids().__getitem__))
"""The base tokens in the order of their ids."""
# The first 188 of them are printable and stand for themselves in vocab.json, the others are U+0100 and up.
CHARACTERS = tuple(chr(token[0]) if i < 188 else chr(256 + i - 188) for i, token in enumerate(BYTE_TOKENS))
TO_BYTE = {character: token[0] for token, character in zip(BYTE_TOKENS, CHARACTERS, strict=True)}


@dataclass(frozen=True)
class VocabularyData:
    """A vocabulary as files hold it.

    Ids go up from 0: the 256 bytes in GPT-2's order, the merges by rank, the special tokens, then reserved padding
    tokens `<|reserved_0|>` and up. With `special_tokens_first` the special tokens come before all others. Vocabularies
    of others may have some before and some behind, with unused ids between them: `special_places`.

    Attributes:
        merges: for each rank the two parts, numbered as the learner does: a byte's place, or 256 + rank. (These are
            the ids too, unless special tokens come first.)
        pattern: how text is cut into words.
        special_tokens: in the order of their ids.
        special_tokens_first: special tokens take the ids from 0 on.
        padding: how many reserved tokens fill up the size.
        normalization: the form that text between special tokens is brought into first; None leaves it as it is.
        special_places: the ids of the special tokens, rising, where they are neither all first nor all behind the
            merges without a gap; () where they are.
        counts: for each merge the weighted count of its pair when it was chosen, as an Arrow array of uint64 (other
            sequences of whole numbers are taken, too); None if not known.
        replaced: for each source the occurrences that each merge replaced, likewise; None if not known.

    Equal are vocabularies with the same ids; counts are not looked at.

    Raises:
        UsageError: special tokens that are empty, given twice, without UTF-8 form, named as padding is, or equal to the
            key of another token in vocab.json; more than a million padding tokens.
        FormatError: merges that use a later token, or two that make the same bytes; counts that do not fit.
    """

    merges: tuple[tuple[int, int], ...]
    pattern: Pattern = GPT2
    special_tokens: tuple[SpecialToken, ...] = ()
    special_tokens_first: bool = False
    padding: int = 0
    normalization: Normalization | None = None
    counts: Any = field(default=None, compare=False, repr=False)
    replaced: Mapping[str, Any] | None = field(default=None, compare=False, repr=False)
    special_places: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        check_special_tokens(self.special_tokens)
        if not self.special_tokens:
            object.__setattr__(self, "special_tokens_first", False)  # the same vocabulary, so it shall be equal
        self._place()
        if self.padding < 0:
            raise UsageError(f"padding of {self.padding} tokens is less than none.")
        if self.padding > MOST_UNUSED:
            raise UsageError(f"padding of {self.padding:,} tokens is more than the {MOST_UNUSED:,} that there can be.")
        if self.counts is not None:
            object.__setattr__(self, "counts", self._counts_of(self.counts))
        if self.replaced is not None:
            kept = {_source_name(name): self._counts_of(numbers) for name, numbers in self.replaced.items()}
            object.__setattr__(self, "replaced", kept)
        made: dict[bytes, int] = {token: i for i, token in enumerate(self.tokens)}
        if len(made) < len(self.tokens):
            i = next(i for i, token in enumerate(self.tokens) if made[token] != i)
            raise FormatError(
                f"the merges of rank {i - BYTES:,} and {made[self.tokens[i]] - BYTES:,} both make {self.tokens[i]!r}; "
                "a token can have one id only."
            )
        for special in self.special_tokens:
            token = token_of(special.text)
            if token in made:
                raise UsageError(
                    f"the special token {special.text!r} is also how vocab.json writes the token {token!r} (id "
                    f"{self.first_id + made[token]:,}); choose another string, such as <|{special.text}|>."
                )

    def _place(self) -> None:
        """Check `special_places`, and forget them where they are one of our own two orders."""
        places = tuple(self.special_places)
        object.__setattr__(self, "special_places", places)
        if not places:
            return
        if (
            len(places) != len(self.special_tokens)
            or places[0] < 0
            or any(a >= b for a, b in itertools.pairwise(places))
        ):
            raise FormatError(
                f"the ids {list(places)[:9]} are not those of {len(self.special_tokens):,} special tokens."
            )
        object.__setattr__(self, "special_tokens_first", False)
        before = self.first_id
        behind = places[before:]
        if behind and behind[0] < self.first_added_id:
            raise FormatError(f"the special token of id {behind[0]:,} stands among the bytes and merges.")
        if behind and behind[-1] - self.first_added_id - len(behind) >= MOST_UNUSED:
            raise FormatError(
                f"the special token of id {behind[-1]:,} leaves more than {MOST_UNUSED:,} ids behind the merges unused."
            )
        if not behind or (not before and behind[-1] == self.first_added_id + len(behind) - 1):
            object.__setattr__(self, "special_places", ())
            object.__setattr__(self, "special_tokens_first", not behind)

    def _counts_of(self, numbers: Any) -> pa.Array:
        """Counts of the merges as an array."""
        try:
            array = numbers if isinstance(numbers, pa.Array) else of_numbers(numbers, np.uint64)
        except (OverflowError, TypeError, ValueError) as error:
            raise FormatError(
                f"the counts of the merges are not whole numbers from 0 to 2^64 - 1 ({error})."
            ) from error
        if array.type != pa.uint64() or array.null_count:
            raise FormatError(f"the counts of the merges are {array.type} with {array.null_count:,} nulls, not uint64.")
        if len(array) != len(self.merges):
            raise FormatError(f"{len(array):,} counts do not fit {len(self.merges):,} merges.")
        return array

    @functools.cached_property
    def tokens(self) -> tuple[bytes, ...]:
        """The bytes of the base tokens and the merges, numbered as in `merges`."""
        tokens = list(BYTE_TOKENS)
        for number, (left, right) in enumerate(self.merges, BYTES):
            if not (0 <= left < number and 0 <= right < number):
                raise FormatError(
                    f"the merge of rank {number - BYTES:,} joins {left} and {right}, which no earlier merge makes."
                )
            tokens.append(tokens[left] + tokens[right])
        return tuple(tokens)

    @functools.cached_property
    def token_keys(self) -> tuple[str, ...]:
        """`tokens` as vocab.json writes them: one printable character a byte (`Ġ` for the space, `Ċ` for a newline)."""
        keys = list(CHARACTERS)
        for left, right in self.merges:
            keys.append(keys[left] + keys[right])
        return tuple(keys)

    @property
    def first_id(self) -> int:
        """Id of the first base token."""
        if self.special_places:
            return leading(self.special_places)
        return len(self.special_tokens) if self.special_tokens_first else 0

    @property
    def first_added_id(self) -> int:
        """Id of the first token behind the merges."""
        return self.first_id + BYTES + len(self.merges)

    @functools.cached_property
    def special_ids(self) -> dict[str, int]:
        """The id of each special token and padding token, by its text, in the order of the ids."""
        first = 0 if self.special_tokens_first else self.first_added_id
        places = self.special_places or range(first, first + len(self.special_tokens))
        ids = {special.text: place for special, place in zip(self.special_tokens, places, strict=True)}
        first = len(self) - self.padding
        return ids | {PADDING.format(i): first + i for i in range(self.padding)}

    def __len__(self) -> int:
        """One more than the highest id: all tokens, and the unused ids between special tokens."""
        if self.special_places:
            return self.special_places[-1] + 1 + self.padding
        return BYTES + len(self.merges) + len(self.special_tokens) + self.padding

    @property
    def unused(self) -> int:
        """How many ids between special tokens no token has."""
        return len(self) - BYTES - len(self.merges) - len(self.special_tokens) - self.padding

    @property
    def sizes(self) -> dict[str, int]:
        """How many tokens there are of each kind, and how many ids without one if there are any."""
        return {
            "bytes": BYTES,
            "merges": len(self.merges),
            "special tokens": len(self.special_tokens),
            "padding": self.padding,
            **({"unused": self.unused} if self.unused else {}),
        }

    def padded(self, multiple: int) -> "VocabularyData":
        """The same with as much padding as makes the size a multiple of a number."""
        return replace(self, padding=-(len(self) - self.padding) % multiple)

    def keys(self) -> dict[str, int]:
        """The ids of all tokens by their keys in vocab.json, in the order of the ids."""
        before = {text: i for text, i in self.special_ids.items() if i < self.first_id}
        return before | dict(zip(self.token_keys, itertools.count(self.first_id))) | self.special_ids


def token_of(key: str) -> bytes | None:
    """The token that a key of vocab.json writes, or None if it has a character that stands for no byte."""
    try:
        return bytes(map(TO_BYTE.__getitem__, key))
    except KeyError:
        return None


def check_special_tokens(special_tokens: Iterable[SpecialToken]) -> None:
    """Refuse special tokens that no vocabulary can have, whatever it learns; to be called before counting.

    Raises:
        UsageError: one is empty, given twice, equal to the key of a byte in vocab.json, and so on; a role given twice.
    """
    texts: set[str] = set()
    roles: dict[Role, str] = {}
    for special in special_tokens:
        text = special.text
        if not text:
            raise UsageError("a special token is empty; it must have at least one character.")
        if text in texts:
            raise UsageError(f"the special token {text!r} is given twice; leave one out.")
        if text in TO_BYTE:
            raise UsageError(
                f"the special token {text!r} is how vocab.json writes the byte {TO_BYTE[text]:#04x}; choose another "
                f"string, such as <|{text}|>."
            )
        if PADDING_NAME.fullmatch(text):
            raise UsageError(f"the special token {text!r} is named as padding tokens are; choose another string.")
        if any("\ud800" <= character <= "\udfff" for character in text):
            raise UsageError(f"the special token {text!r} has a lone surrogate, which UTF-8 cannot write.")
        if special.role not in ROLES:
            raise UsageError(
                f"the special token {text!r} has the role {special.role!r}; the roles are: {', '.join(ROLES)}."
            )
        if special.role in roles:
            raise UsageError(f"both {roles[special.role]!r} and {text!r} have the role {special.role}; one can.")
        texts.add(text)
        if special.role != "other":
            roles[special.role] = text


def leading(places: Sequence[int]) -> int:
    """How many of some ids, rising, are 0, 1, 2 and so on: those of the tokens before the bytes."""
    return next((i for i, place in enumerate(places) if place != i), len(places))


def _source_name(name: str) -> str:
    if any("\ud800" <= character <= "\udfff" for character in name):
        raise UsageError(
            f"the source name {name!r} has a lone surrogate, which UTF-8 cannot write; give it another one."
        )
    return name


def merge_columns(merges: Sequence[tuple[int, int]]) -> tuple[pa.Array, pa.Array]:
    """Merges as the native core takes them: their left and right ids."""
    both = np.fromiter(itertools.chain.from_iterable(merges), np.uint32, 2 * len(merges))
    return of_numpy(both[0::2].copy()), of_numpy(both[1::2].copy())


def described(sizes: Mapping[str, int]) -> str:
    """Sizes by kind in words: "256 bytes, 1 merge, 1 special token"."""
    return ", ".join(
        f"{number:,} {kind.removesuffix('s') if number == 1 else kind}" for kind, number in sizes.items() if number
    )
