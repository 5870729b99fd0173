"""What a format is, and what the readers of several share."""

import contextlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from dist_bpe.errors import FormatError, UsageError
from dist_bpe.pretokenize.patterns import Pattern
from dist_bpe.pretokenize.preparation import Role, SpecialToken
from dist_bpe.vocabulary.data import BYTES, CHARACTERS, PADDING, PADDING_NAME, TO_BYTE, VocabularyData

# What can be in a file, in the order of the columns of docs/formats.md.
CARRIED = ("ids", "merges", "pattern", "normalization", "special tokens", "roles", "counts")


#: A file opened in its own library: text to ids, and ids to text.
Reader = tuple[Callable[[str], Iterable[int]], Callable[[list[int]], str]]


class NotReadError(Exception):
    """The release of a library that is installed has no reader for files of a format; its text is a reason."""


class Files(NamedTuple):
    """The files of one format as they were found: their bytes, and their names for messages, by their usual names."""

    content: Mapping[str, bytes]
    names: Mapping[str, str]

    def where(self, *files: str) -> str:
        """These files for a message; all without any."""
        return " and ".join(self.names[name] for name in files or self.content)

    def text(self, name: str) -> str:
        """A file's text.

        Raises:
            FormatError: it is not UTF-8.
        """
        try:
            return self.content[name].decode()
        except UnicodeDecodeError as error:
            raise FormatError(
                f"{self.names[name]} is damaged: it is not UTF-8 from byte {error.start:,} on."
            ) from error

    def json(self, name: str) -> Any:
        """A file's JSON value.

        Raises:
            FormatError: it holds none.
        """
        return parsed(self.content[name], self.names[name])


@dataclass(frozen=True)
class Format:
    """A way to write a vocabulary.

    Attributes:
        name: as the user says it.
        files: what it writes; the first tells that a folder holds the format.
        carries: which of `CARRIED` can be read back from these files.
        write: the files' bytes by name; raises FormatError, naming the token, for a vocabulary it cannot hold.
        read: the vocabulary in the files; takes the pattern where they carry none. Raises FormatError.
        libraries: by the name of each library that reads the files, the function that opens a folder's there.
        optional: files that may be missing.
    """

    name: str
    files: tuple[str, ...]
    carries: frozenset[str]
    write: Callable[[VocabularyData], dict[str, bytes]]
    read: Callable[[Files, Pattern | None], VocabularyData]
    libraries: Mapping[str, Callable[[Path, VocabularyData], Reader]]
    optional: frozenset[str] = frozenset()


def parsed(content: bytes, where: str) -> Any:
    """A JSON value; `where` names its file.

    Raises:
        FormatError: there is none, or it is nested too deep for any file of ours.
    """
    try:
        return json.loads(content)
    except RecursionError as error:
        raise FormatError(f"{where} is damaged: its JSON is nested hundreds of levels deep.") from error
    except ValueError as error:
        raise FormatError(f"{where} is damaged: it does not hold JSON ({error}).") from error


def shown(value: Any, most: int = 80) -> str:
    """A value in a message: as JSON where that is short, else by its kind and size, never cut in the middle."""
    try:
        text = json.dumps(value, ensure_ascii=False)
    except RecursionError:
        return "nested hundreds of levels deep"
    if len(text) <= most:
        return text
    match value:
        case {"type": str(kind)} if len(kind) <= most // 2:
            return f"{kind} (with settings of {len(text):,} characters)"
        case str():
            return f"a text of {len(value):,} characters"
        case dict():
            return f"an object of {len(value):,} keys"
        case list():
            return f"a list of {len(value):,} items"
    return f"a number of {len(text):,} digits"


def compact_json(value: Any) -> bytes:
    """The compact form, for files with a line a token would make long."""
    return (json.dumps(value, ensure_ascii=False, separators=(",", ":")) + "\n").encode()


@contextlib.contextmanager
def reading(where: str) -> Iterator[None]:
    """Whatever trips over a file that is built otherwise than it should be becomes one error that names the file."""
    try:
        yield
    except UsageError as error:
        raise FormatError(f"{where}: {error}") from error
    except (
        ArithmeticError, AttributeError, LookupError, TypeError, ValueError, RecursionError, MemoryError, OSError,
        NotImplementedError,
    ) as error:  # fmt: skip
        reason = f"{type(error).__name__}: {error}"
        reason = reason if len(reason) <= 200 else f"{reason[:200]}…"
        raise FormatError(f"{where} is damaged or of another layout ({reason}).") from error


def from_keys(
    ids: Any, pairs: Sequence[Sequence[str]], pattern: Pattern, where: str, roles: Mapping[str, Role] | None = None
) -> VocabularyData:
    """Build from keys with ids and merges of keys, checking that they lie in our order."""
    if not isinstance(ids, dict) or not set(map(type, ids.values())) <= {int}:
        raise FormatError(f"{where}: the vocabulary is not an object of whole numbers.")
    if len(set(ids.values())) < len(ids):
        seen: dict[int, str] = {}
        twice = next((key, seen[i]) for key, i in ids.items() if seen.setdefault(i, key) != key)
        raise FormatError(f"{where}: {twice[1]!r} and {twice[0]!r} have one id, {ids[twice[0]]}.")
    first = ids.get(CHARACTERS[0], 0)
    for i, character in enumerate(CHARACTERS):
        if ids.get(character) != first + i:
            raise FormatError(
                f"{where}: the byte {TO_BYTE[character]:#04x} (written {character!r}) should have the id {first + i}, "
                f"by GPT-2's order, and has {ids.get(character)}; this is not a byte-level vocabulary of that layout."
            )
    numbers = {character: i for i, character in enumerate(CHARACTERS)}
    merges = []
    for number, pair in enumerate(pairs, BYTES):
        if len(pair) != 2 or (left := numbers.get(pair[0])) is None or (right := numbers.get(pair[1])) is None:
            rank = number - BYTES
            raise FormatError(f"{where}: the merge of rank {rank:,}, {' '.join(pair)!r}, is not two earlier tokens.")
        key = pair[0] + pair[1]
        if ids.get(key) != first + number:
            raise FormatError(
                f"{where}: the merge of rank {number - BYTES:,} makes {key!r}, whose id should be {first + number:,} "
                f"and is {ids.get(key)}."
            )
        merges.append((left, right))
        numbers[key] = number
    others = {key: i for key, i in ids.items() if key not in numbers}
    return with_specials(others, first, tuple(merges), pattern, roles or {}, where)


def with_specials(
    ids: Mapping[str, int],
    first: int,
    merges: tuple[tuple[int, int], ...],
    pattern: Pattern,
    roles: Mapping[str, Role],
    where: str,
) -> VocabularyData:
    """Put apart special tokens and padding among the texts that are neither bytes nor merges, by their ids.

    Args:
        ids: the id of each.
        first: the id of the first byte.
        merges: see `VocabularyData`.
        pattern: see `VocabularyData`.
        roles: of those that have one, by their texts.
        where: the file, for messages.

    Raises:
        FormatError: ids before the bytes that no token has, or padding that is not behind all others.
    """
    texts = sorted(ids, key=ids.__getitem__)
    padding = 0
    if texts and (found := PADDING_NAME.fullmatch(texts[-1])) and len(found[1]) < 9:
        number = int(found[1]) + 1
        # Padding stands behind all others without a gap; with other ids these are special tokens as any.
        if number <= len(texts) and texts[-number:] == [PADDING.format(i) for i in range(number)]:
            padding = number
    specials = texts[: len(texts) - padding]
    data = VocabularyData(
        merges,
        pattern,
        tuple(SpecialToken(text, roles.get(text, "other")) for text in specials),
        padding=padding,
        special_places=tuple(ids[text] for text in specials),
    )
    if data.first_id != first:
        raise FormatError(
            f"{where}: no token has the id {data.first_id:,}, which stands before the first byte's, {first:,}; ids "
            "begin at 0 without a gap."
        )
    for text, i in data.special_ids.items():
        if ids[text] != i:
            raise FormatError(
                f"{where}: the token {text!r} should have the id {i:,}, behind all others, not {ids[text]:,}."
            )
    return data


def reader_of_tokenizers(tokenizer: Any) -> Reader:
    """A tokenizer of `tokenizers` as a reader."""
    return (
        lambda text: tokenizer.encode(text, add_special_tokens=False).ids,
        lambda ids: tokenizer.decode(ids, skip_special_tokens=False),
    )


def reader_of_transformers(tokenizer: Any) -> Reader:
    """A tokenizer of `transformers` as a reader."""
    return (
        lambda text: tokenizer.encode(text, add_special_tokens=False),
        lambda ids: tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False),
    )
