"""Commands that use a vocabulary: export, encode, decode."""

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from typing import Annotated, get_args

import typer

from dist_bpe.cli.app import command
from dist_bpe.cli.options import Given, Without, completing, with_options
from dist_bpe.errors import UsageError
from dist_bpe.run.config import ExportOptions, FormatName

Vocabulary = Annotated[str, typer.Argument(metavar="VOCABULARY", help="A vocabulary's folder, or one file of it.")]


@command
@with_options
def export(
    vocabulary: Vocabulary,
    output: Annotated[str, typer.Option("--output", "-o", help="The folder for the files.")],
    format: Annotated[
        list[str] | None,
        typer.Option(
            help="A format: gpt2, tokenizers, tiktoken or parquet; repeat.  [default: all]",
            autocompletion=completing(*get_args(FormatName)),
        ),
    ] = None,
    *,
    export: Annotated[Given[ExportOptions], Without("name", "restart", "formats")],
) -> None:
    """Write a vocabulary in other formats, and check each file.

    Each is read again in its own library, and has to give the same ids.
    """
    from dist_bpe.run.train import export_vocabulary

    try:
        lines = export_vocabulary(vocabulary, output, export.build(formats=format or None))
    except OSError as error:
        raise UsageError(f"the folder {output} cannot be used: {error.strerror or error}.") from error
    with _output() as put:
        # A path need not be UTF-8: it is printed as it is.
        put("".join(f"{line}\n" for line in lines).encode("utf-8", "surrogateescape"))


@command
def encode(
    vocabulary: Vocabulary,
    lines: Annotated[bool, typer.Option("--lines", help="Each line is a document, without its line end.")] = False,
    allow_special: Annotated[bool, typer.Option("--allow-special", help="Special-token text becomes its id.")] = False,
    ordinary: Annotated[
        bool, typer.Option("--ordinary", help="Special-token text is text like any other.  [default: an error]")
    ] = False,
    pieces: Annotated[bool, typer.Option("--pieces", help="Print each id with what it stands for.")] = False,
) -> None:
    """Read text from standard input and print ids."""
    from dist_bpe.vocabulary.vocabulary import Vocabulary as Loaded

    if allow_special and ordinary:
        raise UsageError("--allow-special and --ordinary exclude each other; give one.")
    loaded = Loaded.load(vocabulary)
    with _output() as put:
        for where, document in _documents(lines):
            try:
                text = document.decode()
            except UnicodeDecodeError as error:
                raise UsageError(f"{where} is not UTF-8 at byte {error.start:,}.") from error
            found = None if allow_special or ordinary else loaded.find_special(text)
            if found:
                raise UsageError(
                    f"{where} holds the special token {found[0]!r} at character {found[1]:,}: give --allow-special to "
                    "have its id, or --ordinary to take it as text like any other."
                )
            ids = loaded.encode(text, allowed_special="all" if allow_special else (), disallowed_special=())
            # The text of a token can hold a space or a line end; its representation shows where each ends.
            shown = (f"{i}:{loaded.piece(i)!r}" for i in ids) if pieces else map(str, ids)
            put(" ".join(shown).encode() + b"\n")


@command
def decode(vocabulary: Vocabulary) -> None:
    """Read ids from standard input and print the text.

    White space separates them.
    """
    from dist_bpe.vocabulary.vocabulary import Vocabulary as Loaded

    loaded = Loaded.load(vocabulary)
    ids = []
    for _, document in _documents(lines=False):
        for word in document.split():
            if not word.isdigit() or len(word) > 20:
                shown = f"'{word[:40].decode('utf-8', 'surrogateescape')}{'…' if len(word) > 40 else ''}'"
                raise UsageError(
                    f"{shown} on standard input is no id of this vocabulary: ids go from 0 to {len(loaded) - 1:,}."
                )
            ids.append(int(word))
    with _output() as put:
        put(loaded.decode_bytes(ids))


def _documents(lines: bool) -> Iterator[tuple[str, bytes]]:
    """What standard input holds, whole or line by line, and where it stands, for messages.

    Only \\n ends a line: what Python calls lines would also break at U+2028, form feeds and lone \\r.
    """
    if sys.stdin is None:
        raise UsageError("standard input is closed: give the text there.")
    try:
        if not lines:
            yield "standard input", sys.stdin.buffer.read()
            return
        for number, line in enumerate(sys.stdin.buffer, 1):
            yield f"line {number:,} of standard input", line.removesuffix(b"\n")
    except OSError as error:  # a folder, or a disk that fails
        raise UsageError(f"standard input cannot be read: {error.strerror or error}.") from error


@contextlib.contextmanager
def _output() -> Iterator[Callable[[bytes], object]]:
    """Standard output for bytes, all of which are out at the end.

    Raises:
        UsageError: it cannot be written, for a full disk.
    """
    try:
        yield sys.stdout.buffer.write
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        # What is still in the buffer would fail once more when the process ends, with other words and exit code.
        with contextlib.suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise UsageError(f"standard output cannot be written: {error.strerror or error}.") from error
