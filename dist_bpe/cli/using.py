"""Commands that use a vocabulary: export, encode, decode."""

import sys
from typing import Annotated, Any

import typer

from dist_bpe.cli.app import command
from dist_bpe.cli.options import Given, Without, with_options
from dist_bpe.errors import UsageError
from dist_bpe.run.config import ExportOptions

Vocabulary = Annotated[str, typer.Argument(metavar="VOCABULARY", help="A vocabulary's folder, or one file of it.")]


@command
@with_options
def export(
    vocabulary: Vocabulary,
    output: Annotated[str, typer.Option("--output", "-o", help="The folder for the files.")],
    format: Annotated[
        list[str] | None, typer.Option(help="A format: gpt2, tokenizers, tiktoken or parquet; repeat.  [default: all]")
    ] = None,
    *,
    export: Annotated[Given[ExportOptions], Without("name", "restart", "formats")],
) -> None:
    """Write a vocabulary in other formats, and check each file in its own library."""
    from dist_bpe.run.train import export_vocabulary

    for line in export_vocabulary(vocabulary, output, export.build(formats=format or None)):
        print(line)


@command
def encode(
    vocabulary: Vocabulary,
    lines: Annotated[bool, typer.Option("--lines", help="Each line is a document, without its line end.")] = False,
    allow_special: Annotated[bool, typer.Option("--allow-special", help="Special-token text becomes its id.")] = False,
    pieces: Annotated[bool, typer.Option("--pieces", help="Print the tokens' text instead of ids.")] = False,
) -> None:
    """Read text from standard input and print ids."""
    from dist_bpe.vocabulary.vocabulary import Vocabulary as Loaded

    loaded = Loaded.load(vocabulary)
    # Only \n ends a line: what Python calls lines would also break at U+2028, form feeds and lone \r.
    data = sys.stdin.buffer
    documents = (line.removesuffix(b"\n") for line in data) if lines else iter([data.read()])
    allowed: Any = "all" if allow_special else set()
    for number, document in enumerate(documents, 1):
        try:
            text = document.decode()
        except UnicodeDecodeError as error:
            where = f"line {number:,}, byte {error.start:,}" if lines else f"byte {error.start:,}"
            raise UsageError(f"standard input is not UTF-8 at {where}.") from error
        ids = loaded.encode(text, allowed_special=allowed)
        print(*([repr(loaded.decode([i])) for i in ids] if pieces else ids))


@command
def decode(vocabulary: Vocabulary) -> None:
    """Read ids from standard input, separated by white space, and print the text."""
    from dist_bpe.vocabulary.vocabulary import Vocabulary as Loaded

    loaded = Loaded.load(vocabulary)
    ids = []
    for word in sys.stdin.read().split():
        if not word.isascii() or not word.isdigit() or int(word) >= len(loaded):
            raise UsageError(
                f"{word!r} on standard input is no id of this vocabulary: ids go from 0 to {len(loaded) - 1:,}."
            )
        ids.append(int(word))
    sys.stdout.buffer.write(loaded.decode_bytes(ids))
    sys.stdout.buffer.flush()
