"""Functions that use a vocabulary: export, encode."""

from collections.abc import Sequence
from typing import overload

from dist_bpe.api.arguments import options_of, public
from dist_bpe.run.config import ExportOptions, FormatName
from dist_bpe.run.train import exported
from dist_bpe.storage.files import RunPath
from dist_bpe.vocabulary.vocabulary import Specials, Vocabulary


@public
def export(
    vocabulary: Vocabulary | str | RunPath,
    output: str | RunPath,
    *,
    formats: Sequence[FormatName] | None = None,
    verify: bool = True,
    verify_transformers: bool = False,
    overwrite: bool = False,
) -> dict[str, str]:
    """Write a vocabulary in other formats, and read each file again in its own library.

    `Vocabulary.save` writes the same files, and reads none.

    Args:
        vocabulary: the vocabulary, its folder, or one file of it.
        output: the folder for the files.
        formats: "gpt2", "tokenizers", "tiktoken", "parquet"; by default all that can hold the vocabulary.
        verify: each file is read again in its own library.
        verify_transformers: also in transformers, whose import takes seconds.
        overwrite: replace what is in the folder.

    Returns:
        What was found, in a line each: for "files" and for every library, and why a format was not written.

    Raises:
        ExportError: a library reads a file otherwise than we do; it names library, file, text and both lists of ids.
        FormatError: a damaged vocabulary, or a format asked for by name that cannot hold it.
        RunError: the folder holds something else.
    """
    return exported(_loaded(vocabulary), output, options_of(ExportOptions, locals()))[0]


@overload  # a str is a sequence of them, too: it is one text
def encode(  # type: ignore[overload-overlap]
    vocabulary: Vocabulary | str | RunPath,
    text: str,
    *,
    allowed_special: Specials = (),
    disallowed_special: Specials = "all",
) -> list[int]: ...


@overload
def encode(
    vocabulary: Vocabulary | str | RunPath,
    text: Sequence[str],
    *,
    allowed_special: Specials = (),
    disallowed_special: Specials = "all",
) -> list[list[int]]: ...


@public
def encode(
    vocabulary: Vocabulary | str | RunPath,
    text: str | Sequence[str],
    *,
    allowed_special: Specials = (),
    disallowed_special: Specials = "all",
) -> list[int] | list[list[int]]:
    """The ids of a text, or of each of a list of texts; of many calls load the vocabulary once and use its `encode`.

    Args:
        vocabulary: the vocabulary, its folder, or one file of it.
        text: what to encode.
        allowed_special: texts of special tokens that become their ids, or "all".
        disallowed_special: texts of special tokens that are an error, or "all", which means all that are not allowed.

    Raises:
        UsageError: a disallowed special token, or a lone surrogate, stands in the text; an unknown special token.
        FormatError: a damaged vocabulary.
    """
    loaded = _loaded(vocabulary)
    if isinstance(text, str):
        return loaded.encode(text, allowed_special=allowed_special, disallowed_special=disallowed_special)
    return loaded.encode_batch(text, allowed_special=allowed_special, disallowed_special=disallowed_special)


def _loaded(vocabulary: Vocabulary | str | RunPath) -> Vocabulary:
    return vocabulary if isinstance(vocabulary, Vocabulary) else Vocabulary.load(vocabulary)
