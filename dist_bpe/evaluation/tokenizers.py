"""Tokenizers of any library, by file or name, behind one face."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dist_bpe.errors import FormatError, UsageError
from dist_bpe.pretokenize.checks import resolve
from dist_bpe.storage.bucket import BucketPath
from dist_bpe.storage.layout import MANIFEST
from dist_bpe.storage.places import redacted
from dist_bpe.vocabulary.formats.tiktoken import tiktoken_ranks
from dist_bpe.vocabulary.vocabulary import Vocabulary

Ids = Sequence[Sequence[int]]


# ---- tokenizers


@dataclass(frozen=True)
class Tokenizer:
    """A tokenizer of any library: its ids of texts. `vocabulary` is set where we read the file ourselves."""

    name: str
    size: int
    encode: Callable[[Sequence[str]], Ids]
    vocabulary: Vocabulary | None = None

    @classmethod
    def of(cls, vocabulary: Vocabulary, name: str) -> "Tokenizer":
        """One of our vocabularies."""

        def encode(texts: Sequence[str]) -> Ids:
            return vocabulary.encode_batch(texts, disallowed_special=())

        return cls(name, len(vocabulary), encode, vocabulary)

    def for_words(self) -> Vocabulary:
        """The vocabulary that encodes the words of a table.

        Raises:
            UsageError: it is a tokenizer of another library.
        """
        if self.vocabulary is None:
            raise UsageError(f"{self.name} is read by its own library, which takes no words: measure it on text.")
        return self.vocabulary


def open_tokenizer(text: str, pattern: str | None = None) -> Tokenizer:
    """A vocabulary's folder or file, any tokenizer.json, a .tiktoken file, or the name of a tiktoken encoding.

    Args:
        text: the path, or `tiktoken:NAME`; names of encodings are known without the prefix, too.
        pattern: for files that name none (.tiktoken alone, vocab.json): a name or a regular expression.

    Raises:
        UsageError: nothing of that name, or the library it needs is not installed.
        FormatError: a damaged file.
    """
    if "://" in text:
        return Tokenizer.of(Vocabulary.load(text, pattern), redacted(text))
    path = Path(text)
    if not path.exists():
        return _tiktoken_encoding(text.removeprefix("tiktoken:"))
    name = path.name if path.is_dir() or path.parent.name in ("", ".") else f"{path.parent.name}/{path.name}"
    file = path / "tokenizer.json" if path.is_dir() and not (path / MANIFEST).is_file() else path
    try:
        return Tokenizer.of(Vocabulary.load(path, None if file.name == "tokenizer.json" else pattern), name)
    except FormatError as error:
        if file.suffix == ".tiktoken" and not file.with_suffix(".json").is_file() and file.name != "vocab.tiktoken":
            return _tiktoken_file(file, name, pattern, error)
        if not file.is_file() or file.suffix != ".json":
            raise
        return _tokenizers_file(file, name, error)


def tokenizer_of(given: Any, pattern: str | None = None) -> Tokenizer:
    """A tokenizer from what Python has of it.

    Args:
        given: a `Vocabulary`, or what another library has loaded: an `Encoding` of tiktoken, a `Tokenizer` of
            tokenizers, a tokenizer of transformers; or a path or name, see `open_tokenizer`.
        pattern: see `open_tokenizer`.

    Raises:
        UsageError: something else.
        FormatError: a damaged file.
    """
    if isinstance(given, Tokenizer):
        return given
    if isinstance(given, Vocabulary):
        return Tokenizer.of(given, f"vocabulary of {len(given):,}")
    if isinstance(given, (str, Path, BucketPath)):
        return open_tokenizer(given.uri() if isinstance(given, BucketPath) else str(given), pattern)
    libraries = {base.__module__.partition(".")[0] for base in type(given).__mro__}
    if "tiktoken" in libraries:
        return Tokenizer(given.name, given.n_vocab, lambda texts: given.encode_ordinary_batch(list(texts)))
    if "tokenizers" in libraries:
        return _of_tokenizers(given, "tokenizers.Tokenizer")
    if "transformers" in libraries:
        name = str(getattr(given, "name_or_path", "") or type(given).__name__)
        if hasattr(given, "backend_tokenizer"):
            return _of_tokenizers(given.backend_tokenizer, name)
        options = {"add_special_tokens": False, "split_special_tokens": True, "verbose": False}
        return Tokenizer(name, len(given), lambda texts: [given(text, **options)["input_ids"] for text in texts])
    raise UsageError(
        "a tokenizer is a dist_bpe.Vocabulary, a path, the name of a tiktoken encoding, or a tokenizer of tiktoken, "
        f"tokenizers or transformers, not {type(given).__name__}."
    )


def _of_tokenizers(theirs: Any, name: str) -> Tokenizer:
    def encode(texts: Sequence[str]) -> Ids:
        # The texts of special tokens are text like any other, as in every tokenizer here. It is the user's object.
        before, theirs.encode_special_tokens = theirs.encode_special_tokens, True
        try:
            return [encoding.ids for encoding in theirs.encode_batch(list(texts), add_special_tokens=False)]
        finally:
            theirs.encode_special_tokens = before

    # Counted here, since releases from 1.0 on do not tell.
    value = json.loads(theirs.to_str())
    entries = value["model"]["vocab"]
    tokens = set(entries) if isinstance(entries, dict) else {entry[0] for entry in entries}
    tokens.update(token["content"] for token in value.get("added_tokens") or ())
    return Tokenizer(name, len(tokens), encode)


def _tokenizers_file(path: Path, name: str, reason: FormatError) -> Tokenizer:
    try:
        from tokenizers import Tokenizer as Theirs
    except ImportError as error:
        raise UsageError(f"{reason} To read it with its own library: pip install 'dist_bpe[verify]'.") from error
    try:
        theirs = Theirs.from_file(str(path))
    except Exception as error:  # the library raises no narrower class
        raise FormatError(f"{path} is no tokenizer.json that `tokenizers` can read: {error}.") from error
    return _of_tokenizers(theirs, name)


def _tiktoken_file(path: Path, name: str, pattern: str | None, reason: FormatError) -> Tokenizer:
    """Ranks alone whose ids are in another order than ours, in the library that they are made for."""
    if pattern is None:
        raise reason
    cut = resolve(pattern)
    try:
        ranks = tiktoken_ranks(path.read_bytes())
        encoding = _tiktoken().Encoding(name, pat_str=cut.tiktoken_regex, mergeable_ranks=ranks, special_tokens={})
        encoding.encode_ordinary("")
    except OSError as error:
        raise FormatError(f"{path} cannot be read: {error.strerror or error}.") from error
    except Exception as error:
        if isinstance(error, UsageError):
            raise
        raise reason from error
    return Tokenizer(name, encoding.n_vocab, lambda texts: [encoding.encode_ordinary(text) for text in texts])


def _tiktoken_encoding(name: str) -> Tokenizer:
    tiktoken = _tiktoken()
    if name not in tiktoken.list_encoding_names():
        raise UsageError(
            f"{name} is no file or folder, and no tiktoken encoding either; those installed are: "
            f"{', '.join(sorted(tiktoken.list_encoding_names()))}."
        )
    try:
        encoding = tiktoken.get_encoding(name)
    except Exception as error:  # it downloads the ranks when they are not in its cache
        raise UsageError(f"tiktoken cannot load its encoding {name}: {error}.") from error
    return Tokenizer(name, encoding.n_vocab, lambda texts: encoding.encode_ordinary_batch(list(texts)))


def _tiktoken() -> Any:
    try:
        import tiktoken
    except ImportError as error:
        raise UsageError("tiktoken is not installed: pip install 'dist_bpe[verify]'.") from error
    return tiktoken
