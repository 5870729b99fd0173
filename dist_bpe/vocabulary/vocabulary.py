"""The vocabulary in use: text to ids and back, exactly; loaded from files and saved to them."""

import codecs
import dataclasses
import functools
import itertools
import re
import threading
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Literal

import pyarrow as pa

from dist_bpe import _core
from dist_bpe.arrays import of_bytes, to_numpy
from dist_bpe.errors import UsageError
from dist_bpe.pretokenize.patterns import Pattern, find, surrogate_error
from dist_bpe.pretokenize.preparation import Normalization, SpecialToken
from dist_bpe.storage.files import RunPath, parse_path
from dist_bpe.storage.layout import MANIFEST
from dist_bpe.tables import html_table
from dist_bpe.vocabulary.data import BYTES, VocabularyData, described, merge_columns
from dist_bpe.vocabulary.files import load, manifest, publish_files, write

Specials = Literal["all"] | Collection[str]
"""Texts of special tokens, or all of them."""


class Vocabulary:
    """A byte-level BPE vocabulary: bytes, merges, special tokens and padding, each with an id from 0 up.

    Every text can be encoded, and decoding gives it back byte for byte (if the vocabulary has a normalisation form, in
    that form; see `normalize`). Texts are `str`; one with a lone surrogate has
    no UTF-8 form and is refused by every method, with its place. Texts of special tokens (the padding tokens are such)
    are refused by default, as `tiktoken` does, because text from outside must not speak with a special token's voice;
    see `encode`.

    Two vocabularies are equal when they have the same merges, pattern, special tokens and padding. Safe to share
    between threads, and to pickle.
    """

    def __init__(self, data: VocabularyData):
        self.data = data
        self._lock = threading.Lock()

    @classmethod
    def load(cls, path: str | RunPath, pattern: str | None = None) -> "Vocabulary":
        """Load from a folder, or from one file of any format (tokenizer.json, vocab.json, vocab.tiktoken, …).

        Args:
            path: the folder or file.
            pattern: a name or regular expression for vocab.json and merges.txt, which hold none; GPT-2's by default.

        Raises:
            UsageError: nothing there, or another pattern than the file's own is given.
            FormatError: a file is missing, damaged, changed since it was written, or of another layout.
        """
        return cls(load(parse_path(path), None if pattern is None else find(pattern)))

    def save(self, path: str | RunPath, formats: Iterable[str] | None = None, overwrite: bool = False) -> None:
        """Save to a folder, with manifest.json; `vocabulary.export.export` also checks the files in other libraries.

        Args:
            path: the folder; other files in it stay, a vocabulary that was saved there before is replaced.
            formats: "gpt2", "tokenizers", "tiktoken", "parquet"; by default all that can hold this vocabulary.
            overwrite: replace files of the same names that were not written here, or were changed since.

        Raises:
            UsageError: an unknown format, or a folder that cannot be written to.
            RunError: such a file is there, and `overwrite` is not given.
            FormatError: a named format cannot hold this vocabulary.
        """
        files, left_out = write(self.data, formats)
        publish_files(parse_path(path), files | {MANIFEST: manifest(self.data, files, left_out)}, overwrite=overwrite)

    def cut(self, vocab_size: int) -> "Vocabulary":
        """The vocabulary that training to `vocab_size` tokens would have given: the first merges, without padding.

        Merges are nested, so one training to the largest size holds all smaller ones.

        Raises:
            UsageError: more tokens than there are, or fewer than bytes and special tokens.
        """
        merges = vocab_size - BYTES - len(self.special_tokens)
        if not 0 <= merges <= len(self.data.merges):
            least = BYTES + len(self.special_tokens)
            raise UsageError(
                f"a vocabulary of {vocab_size:,} tokens cannot be cut out of this one: it has from {least:,} to "
                f"{least + len(self.data.merges):,}."
            )
        return Vocabulary(
            dataclasses.replace(
                self.data,
                merges=self.data.merges[:merges],
                padding=0,
                counts=None if self.data.counts is None else self.data.counts[:merges],
                replaced=self.data.replaced and {k: v[:merges] for k, v in self.data.replaced.items()},
                special_places=(),
                # Places are those of a larger vocabulary; in a smaller one the tokens in front stay there at most.
                special_tokens_first=self.data.first_id == len(self.special_tokens),
            )
        )

    @property
    def pattern(self) -> Pattern:
        """How text is cut into words."""
        return self.data.pattern

    @property
    def normalization(self) -> Normalization | None:
        """The form that text is brought into before it is cut; None leaves it as it is."""
        return self.data.normalization

    @functools.cached_property
    def merges(self) -> tuple[tuple[bytes, bytes], ...]:
        """The merges in order of rank, as pairs of bytes."""
        tokens = self.data.tokens
        return tuple((tokens[left], tokens[right]) for left, right in self.data.merges)

    @property
    def special_tokens(self) -> tuple[SpecialToken, ...]:
        """The special tokens, without padding, in the order of their ids."""
        return self.data.special_tokens

    @property
    def special_ids(self) -> dict[str, int]:
        """The id of each special token and padding token by its text."""
        return dict(self.data.special_ids)

    @property
    def sizes(self) -> dict[str, int]:
        """How many tokens there are of each kind: bytes, merges, special tokens, padding."""
        return self.data.sizes

    def __len__(self) -> int:
        return len(self.data)

    def __eq__(self, other: object) -> bool:
        return self.data == other.data if isinstance(other, Vocabulary) else NotImplemented

    __hash__ = None  # type: ignore[assignment]  # equality goes over a million numbers; hash what you need of it

    def __repr__(self) -> str:
        pattern = self.pattern.name or self.pattern.regex
        return f"<Vocabulary of {len(self):,} tokens ({described(self.sizes)}), pattern {pattern!r}>"

    def _repr_html_(self) -> str:
        return html_table(repr(self), [{"kind": kind, "tokens": number} for kind, number in self.sizes.items()])

    def __getstate__(self) -> VocabularyData:
        return self.data

    def __setstate__(self, data: VocabularyData) -> None:
        self.__init__(data)  # type: ignore[misc]  # all that is not data is made anew

    # ---- ids to bytes

    @functools.cached_property
    def _table(self) -> list[bytes | None]:
        """The bytes of every id; None for those that no token has."""
        table: list[bytes | None] = [None] * len(self)
        table[self.data.first_id : self.data.first_added_id] = self.data.tokens
        for text, i in self.data.special_ids.items():
            table[i] = text.encode()
        return table

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes of one id; a special token's are its text.

        Raises:
            UsageError: no such id.
        """
        return self.decode_bytes((token_id,))

    def id_to_token(self, token_id: int) -> str | None:
        """One id as vocab.json writes its token; None if no token has it.

        That is a printable character for each byte, `Ġ` for the space and `Ċ` for a newline, as `tokenizers` and
        `transformers` give and take them: "Ġthe", and "æĹ¥" for 日. A special token is its own text. `token_bytes`
        gives the bytes, and `piece` the text.
        """
        keys = self._keys_by_id
        return keys[token_id] if 0 <= token_id < len(keys) else None

    def token_to_id(self, token: str | bytes) -> int | None:
        """The id of a token; None if it has none.

        Args:
            token: a str as vocab.json writes it, see `id_to_token`; or the bytes themselves, b" the" or
                "日".encode(), of which a special token has none.
        """
        if isinstance(token, bytes):
            return self._ids_of_bytes.get(token)
        return self._keys.get(token)

    def get_vocab(self) -> dict[str, int]:
        """The id of every token by its str in vocab.json, see `id_to_token`, in the order of the ids."""
        return dict(self._keys)

    @functools.cached_property
    def _keys(self) -> dict[str, int]:
        return self.data.keys()

    @functools.cached_property
    def _keys_by_id(self) -> list[str | None]:
        keys: list[str | None] = [None] * len(self)
        for key, i in self._keys.items():
            keys[i] = key
        return keys

    @functools.cached_property
    def _ids_of_bytes(self) -> dict[bytes, int]:
        return {token: self.data.first_id + i for i, token in enumerate(self.data.tokens)}

    def decode_bytes(self, ids: Iterable[int]) -> bytes:
        """The bytes of ids, joined; they need not be UTF-8 if the ids were cut somewhere.

        Raises:
            UsageError: no such id.
        """
        ids = list(ids)
        try:
            # A negative id would count from the end.
            if not ids or min(ids) >= 0:
                return b"".join(map(self._table.__getitem__, ids))  # type: ignore[arg-type]  # None is caught
        except (IndexError, TypeError):
            pass
        wrong = next((i for i in ids if not 0 <= i < len(self) or self._table[i] is None), None)
        if wrong is None:
            raise TypeError(f"ids are whole numbers, not {next(i for i in ids if not hasattr(i, '__index__'))!r}.")
        between = "" if not 0 <= wrong < len(self) else ", with gaps between the special tokens"
        raise UsageError(f"there is no token {wrong}: ids go from 0 to {len(self) - 1:,}{between}.")

    def decode(self, ids: Iterable[int], errors: str = "replace") -> str:
        """The text of ids.

        Args:
            ids: what to decode.
            errors: what becomes of bytes that are not UTF-8: "replace" (U+FFFD), "strict" (an error), or any other way
                that `bytes.decode` knows.

        Raises:
            UsageError: no such id.
            UnicodeDecodeError: the bytes are not UTF-8, and errors is "strict".
        """
        return self.decode_bytes(ids).decode("utf-8", errors)

    def stream(self, errors: str = "replace") -> "StreamDecoder":
        """A decoder for ids that come one after another."""
        return StreamDecoder(self, errors)

    # ---- text to ids

    @functools.cached_property
    def _encoder(self) -> _core.Encoder:
        left, right = merge_columns(self.data.merges)
        specials = self.data.special_ids
        name = self.pattern.name if self.pattern.native else None
        return _core.Encoder(
            left, right, name, list(specials), list(specials.values()), self.data.first_id, self.normalization
        )

    def encode(self, text: str, *, allowed_special: Specials = (), disallowed_special: Specials = "all") -> list[int]:
        """The ids of a text.

        The text of an allowed special token becomes its id, leftmost and longest first. The text of a disallowed one is
        an error. The text of one that is neither is encoded as any other.

        Args:
            text: what to encode.
            allowed_special: texts of special tokens, or "all".
            disallowed_special: texts of special tokens, or "all", which means all that are not allowed. With () none is
                refused.

        Raises:
            UsageError: a disallowed special token, or a lone surrogate, stands in the text; an unknown special token.
        """
        if not isinstance(text, str):
            raise TypeError(f"a text is a str, not {type(text).__name__}; decode bytes first.")
        allowed, disallowed = self._specials(allowed_special, disallowed_special)
        _refuse(text, disallowed)
        return self._encode(text, allowed)

    def normalize(self, text: str) -> str:
        """A text in the vocabulary's normalisation form, as decoding its ids gives it back.

        The texts of special tokens stay as they are. For libraries whose file cannot say the form, such as `tiktoken`.

        Raises:
            UsageError: a lone surrogate stands in the text.
        """
        if self.normalization is None:
            return text
        specials = frozenset(self.data.special_ids)
        pieces = []
        end = 0
        for match in _search(specials).finditer(text) if specials else ():
            pieces += [_normal(text[end : match.start()], self.normalization), match.group()]
            end = match.end()
        return "".join([*pieces, _normal(text[end:], self.normalization)])

    def encode_ordinary(self, text: str) -> list[int]:
        """The ids of a text in which special tokens mean nothing: their texts are encoded as any other.

        Raises:
            UsageError: a lone surrogate stands in the text.
        """
        return self.encode(text, disallowed_special=())

    def encode_batch(
        self, texts: Sequence[str] | pa.Array, *, allowed_special: Specials = (), disallowed_special: Specials = "all"
    ) -> list[list[int]]:
        """The ids of each of some texts; the same as `encode` on each, in one call to the native core.

        Args:
            texts: a list of texts, or an Arrow array of strings without nulls.
            allowed_special: see `encode`.
            disallowed_special: see `encode`.

        Raises:
            UsageError: see `encode`.
        """
        if isinstance(texts, (str, bytes)):
            raise TypeError("texts is a list of texts, not one text: it would be taken letter by letter.")
        if isinstance(texts, (pa.Array, pa.ChunkedArray)):
            texts = texts.to_pylist()
        for text in texts:
            if not isinstance(text, str):
                raise TypeError(f"a text is a str, not {type(text).__name__}; decode bytes first.")
        allowed, disallowed = self._specials(allowed_special, disallowed_special)
        if disallowed:
            for text in texts:
                _refuse(text, disallowed)
        if not self.pattern.native or allowed not in (frozenset(), frozenset(self.data.special_ids)):
            return [self._encode(text, allowed) for text in texts]
        try:
            array = of_bytes([text.encode() for text in texts])
        except UnicodeEncodeError as error:
            raise surrogate_error(next(text for text in texts if not _is_utf8(text))) from error
        array = array.cast(pa.large_binary()).view(pa.large_string())
        with self._lock:
            ids, ends = self._encoder.encode_batch(array, bool(allowed))
        return list(_ragged(ids, ends))

    def tokenize(
        self, text: str, *, allowed_special: Specials = (), disallowed_special: Specials = "all"
    ) -> list[str | bytes]:
        """The pieces of a text: each token as `str`, or as `bytes` where it is not UTF-8 by itself.

        Raises:
            UsageError: see `encode`.
        """
        ids = self.encode(text, allowed_special=allowed_special, disallowed_special=disallowed_special)
        return [self.piece(i) for i in ids]

    def piece(self, token_id: int) -> str | bytes:
        """What one id stands for: as `str`, or as `bytes` where it is not UTF-8 by itself.

        Raises:
            UsageError: no such id.
        """
        return _shown(self.token_bytes(token_id))

    def find_special(self, text: str, specials: Specials = "all") -> tuple[str, int] | None:
        """The first special token in a text, and at which character it stands; None if there is none.

        Args:
            text: where to look.
            specials: texts of special tokens, or "all".

        Raises:
            UsageError: an unknown special token.
        """
        sought, _ = self._specials(specials, ())
        match = _search(sought).search(text) if sought else None
        return match and (match.group(), match.start())

    def _specials(self, allowed: Specials, disallowed: Specials) -> tuple[frozenset[str], frozenset[str]]:
        """Both as sets, checked."""
        known = self.data.special_ids.keys()
        for given in (allowed, disallowed):
            if given == "all":
                continue
            if isinstance(given, str):
                raise TypeError(f"special tokens are 'all' or a set of texts, not the string {given!r}.")
            for text in given:
                if text not in known:
                    raise UsageError(
                        f"{text!r} is no special token of this vocabulary; it has: {', '.join(known) or '-'}."
                    )
        allowed = frozenset(known if allowed == "all" else allowed)
        return allowed, frozenset(known - allowed if disallowed == "all" else disallowed)

    def _encode(self, text: str, allowed: frozenset[str]) -> list[int]:
        """Encode with the special tokens in `allowed`; the texts of others are ordinary."""
        try:
            if self.pattern.native and not allowed:
                with self._lock:
                    return self._encoder.encode_ordinary(text)
            if self.pattern.native and len(allowed) == len(self.data.special_ids):
                with self._lock:
                    return self._encoder.encode(text)
        except UnicodeEncodeError as error:
            raise surrogate_error(text) from error
        if not allowed:
            return self._encode_words(text)
        ids = []
        end = 0
        for match in _search(allowed).finditer(text):
            ids += self._encode(text[end : match.start()], frozenset())
            ids.append(self.data.special_ids[match.group()])
            end = match.end()
        return ids + self._encode(text[end:], frozenset())

    def _encode_words(self, text: str) -> list[int]:
        """Cut by a custom pattern, which only the `regex` module can read, and encode the words in one call.

        A dictionary from words to ids on this side does not pay: 3 MB in 28 languages took 1.6 to 2.1 s with it and 1.3
        to 1.6 s without, of which 0.5 s go to the pattern either way. (The native core has such a table.)
        """
        words = self.pattern.words(_normal(text, self.normalization) if self.normalization else text)
        with self._lock:
            ids, _ = self._encoder.encode_words(of_bytes(words))
        return _numbers(ids).tolist()


class StreamDecoder:
    """Text from ids as they come: a character is held back until all its bytes are there.

    `push` gives what has become whole, `finish` the rest; joined they are what `Vocabulary.decode` gives for all ids.
    """

    def __init__(self, vocabulary: Vocabulary, errors: str = "replace"):
        self._vocabulary = vocabulary
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors)

    def push(self, token_id: int) -> str:
        """The text that one more id completes; often empty inside a character of several tokens.

        Raises:
            UsageError: no such id.
            UnicodeDecodeError: the bytes cannot be UTF-8, and errors is "strict".
        """
        return self._decoder.decode(self._vocabulary.token_bytes(token_id))

    def finish(self) -> str:
        """What an unfinished character at the end becomes; the decoder is as new after it."""
        text = self._decoder.decode(b"", final=True)
        self._decoder.reset()
        return text


def _numbers(ids: pa.Array) -> "memoryview[int]":
    """The numbers of a uint32 array of the native core, which are ten times as fast to list this way."""
    return memoryview(ids.buffers()[1] or b"").cast("B").cast("I")[: len(ids)]


def _ragged(ids: pa.Array, ends: pa.Array) -> Iterator[list[int]]:
    """The rows of ids that go from one end to the next."""
    numbers = _numbers(ids)
    borders = to_numpy(ends).tolist()
    for start, end in itertools.pairwise(borders):
        yield numbers[start:end].tolist()


def _shown(token: bytes) -> str | bytes:
    try:
        return token.decode()
    except UnicodeDecodeError:
        return token


def _normal(text: str, form: Normalization) -> str:
    try:
        return _core.normalize(text, form)
    except UnicodeEncodeError as error:
        raise surrogate_error(text) from error


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


@functools.lru_cache(maxsize=64)
def _search(specials: frozenset[str]) -> re.Pattern[str]:
    """Finds special tokens leftmost and longest first: an alternation takes the first that matches."""
    longest_first = sorted(specials, key=lambda text: (-len(text), text))
    return re.compile("|".join(map(re.escape, longest_first)))


def _refuse(text: str, disallowed: frozenset[str]) -> None:
    """Raise if a disallowed special token stands in a text."""
    if disallowed and (match := _search(disallowed).search(text)):
        token = match.group()
        raise UsageError(
            f"the text holds the special token {token!r} at character {match.start():,}; allow it with "
            f"allowed_special={{{token!r}}}, or take it as ordinary text with disallowed_special=()."
        )
