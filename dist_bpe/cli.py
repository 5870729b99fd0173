"""The command line: one command a pipeline function; heavy modules are imported inside, so that --help is instant."""

import functools
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from dist_bpe.errors import DistBpeError, UsageError

if TYPE_CHECKING:
    from dist_bpe.config import RunConfig
    from dist_bpe.pipeline import RunReport

app = typer.Typer(
    name="dist-bpe",
    help="Train production BPE vocabularies on whole corpora: exact, reproducible, at the speed of reading.",
    no_args_is_help=True,
    rich_markup_mode=None,  # rich help loads a Markdown renderer: half a second for every --help
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Command = TypeVar("Command", bound=Callable[..., None])


def _command(function: Command) -> Command:
    """Make a command; errors of ours become one sentence and their exit code.

    Inside the command, since Typer would turn Ctrl-C into exit code 1 before anything around it could see it.
    """

    @functools.wraps(function)
    def run(*arguments: Any, **options: Any) -> None:
        try:
            function(*arguments, **options)
        except DistBpeError as error:
            print(f"error: {error}", file=sys.stderr)
            sys.exit(error.exit_code)
        except KeyboardInterrupt:
            print("interrupted: nothing half-written was left; the same command begins again.", file=sys.stderr)
            sys.exit(130)
        except BrokenPipeError:
            # The reader of our output went away (`| head`). Python would complain once more when it flushes at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            sys.exit(1)

    app.command()(run)
    return function


Inputs = Annotated[
    list[str] | None,
    typer.Argument(metavar="INPUT…", help="Parquet files, folders or globs; NAME=PATH names a source."),
]
Output = Annotated[Path | None, typer.Option("--output", "-o", metavar="RUN", help="The run folder.")]
VocabSize = Annotated[int | None, typer.Option(help="All tokens: 256 bytes, merges and special tokens.")]
Pattern = Annotated[str | None, typer.Option(help="A named pattern or a regular expression.  [default: gpt2]")]
TextColumn = Annotated[str, typer.Option(help="The column that holds the documents.")]
GroupBy = Annotated[str | None, typer.Option(metavar="COLUMN", help="A column that names each row's source.")]
Special = Annotated[
    list[str] | None,
    typer.Option(
        metavar="TOKEN",
        help="TEXT or ROLE=TEXT with a role of bos, eos, pad, unk, other; repeat for more.  [default: <|endoftext|>]",
    ),
]
NoSpecial = Annotated[bool, typer.Option("--no-special-tokens", help="No special token at all.")]
Engine = Annotated[str, typer.Option(help="ray (embedded, or a cluster) or local (threads of this process).")]
Workers = Annotated[int | None, typer.Option(help="Tasks at once.  [default: one a processor]")]
Address = Annotated[str | None, typer.Option(help="The Ray cluster to join.", envvar="RAY_ADDRESS")]
MinPair = Annotated[int | None, typer.Option(help="Least count of a pair that is merged.  [default: 2]")]
MinWordLearn = Annotated[int | None, typer.Option(help="Rarer words take no part in learning.  [default: 1]")]
MinWordCount = Annotated[
    int | None, typer.Option(help="Rarer words are dropped from the table for good.  [default: 1]")
]
MaxToken = Annotated[int | None, typer.Option(help="No token is longer, in bytes.")]
First = Annotated[bool, typer.Option("--special-tokens-first", help="Special tokens take the ids from 0 on.")]
Pad = Annotated[int | None, typer.Option(help="Add reserved tokens up to a multiple of this.")]
Name = Annotated[str | None, typer.Option(help="The vocabulary's name in the run folder.  [default: its size]")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace what stands there already.")]
Transformers = Annotated[bool, typer.Option("--verify-transformers", help="Reload the files in transformers, too.")]
Verify = Annotated[bool, typer.Option("--verify/--no-verify", help="Read each exported file again in its library.")]
Partitions = Annotated[int | None, typer.Option(help="Parts of the count table.  [default: 16]")]
ShardBytes = Annotated[int | None, typer.Option(help="Text bytes one task counts.  [default: by the whole's size]")]
TableBytes = Annotated[int | None, typer.Option(help="Memory of one task's word table.  [default: 512 MiB]")]


def _sources(inputs: list[str], text: str, group_by: str | None) -> list[dict[str, Any]]:
    named: dict[str, list[str]] = {}
    for value in inputs:
        name, equals, path = value.partition("=")
        # A path may hold an equals sign itself (`lang=de/part.parquet`): what exists is a path.
        if not equals or not name or "/" in name or Path(value).exists():
            name, path = "corpus", value
        named.setdefault(name, []).append(path)
    return [{"name": name, "paths": paths, "text": text, "group_by": group_by} for name, paths in named.items()]


def _given(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _config(
    inputs: list[str] | None, output: Path | None, text: str, group_by: str | None, special: list[str] | None,
    no_special: bool, engine: str, workers: int | None, address: str | None, overwrite: bool, count: dict[str, Any],
    **more: Any,
) -> "RunConfig":  # fmt: skip
    from dist_bpe.config import RunConfig, validate

    if not inputs:
        raise UsageError("name at least one Parquet file, folder or glob to read.")
    if output is None:
        raise UsageError("name the run folder with --output (-o).")
    if special and no_special:
        raise UsageError("--special-token and --no-special-tokens exclude each other.")
    if special or no_special:
        count["special_tokens"] = special or []
    values = {
        "sources": _sources(inputs, text, group_by),
        "output": str(output),
        "overwrite": overwrite,
        "count": count,
        "engine": _given(engine=engine, workers=workers, address=address),
        **more,
    }
    config: RunConfig = validate(RunConfig, values)
    return config


@_command
def train(
    context: typer.Context,
    inputs: Inputs = None,
    output: Output = None,
    vocab_size: VocabSize = None,
    pattern: Pattern = None,
    text_column: TextColumn = "text",
    group_by: GroupBy = None,
    special_token: Special = None,
    no_special_tokens: NoSpecial = False,
    engine: Engine = "ray",
    workers: Workers = None,
    address: Address = None,
    min_pair_count: MinPair = None,
    min_word_count: MinWordLearn = None,
    max_token_bytes: MaxToken = None,
    special_tokens_first: First = False,
    pad_to_multiple: Pad = None,
    partitions: Partitions = None,
    shard_bytes: ShardBytes = None,
    table_bytes: TableBytes = None,
    name: Name = None,
    overwrite: Overwrite = False,
    verify: Verify = True,
    verify_transformers: Transformers = False,
) -> None:
    """Count, learn and export in one go: from INPUT…, or from a file run.toml that names everything."""
    from dist_bpe import pipeline

    if inputs and len(inputs) == 1 and inputs[0].endswith(".toml"):
        from dist_bpe.config import read_config

        for option in context.command.params:
            source = context.get_parameter_source(option.name or "")
            if source and source.name == "COMMANDLINE" and option.name not in ("inputs", "output", "overwrite"):
                raise UsageError(f"{option.opts[0]} has no effect beside {inputs[0]}: set it in that file.")
        config = read_config(inputs[0])
        config = config.model_copy(update=_given(output=str(output) if output else None, overwrite=overwrite or None))
    else:
        if vocab_size is None:
            raise UsageError("say how large the vocabulary is to be with --vocab-size.")
        learn = _given(
            vocab_size=vocab_size, min_pair_count=min_pair_count, min_word_count=min_word_count,
            max_token_bytes=max_token_bytes, pad_to_multiple=pad_to_multiple,
            special_tokens_first=special_tokens_first,
        )  # fmt: skip
        config = _config(
            inputs, output, text_column, group_by, special_token, no_special_tokens, engine, workers, address,
            overwrite, _given(pattern=pattern, partitions=partitions, shard_bytes=shard_bytes, table_bytes=table_bytes),
            learn=learn, verify=verify, verify_transformers=verify_transformers, **_given(name=name),
        )  # fmt: skip
    _summary(pipeline.train(config))


@_command
def count(
    inputs: Inputs = None,
    output: Output = None,
    pattern: Pattern = None,
    text_column: TextColumn = "text",
    group_by: GroupBy = None,
    special_token: Special = None,
    no_special_tokens: NoSpecial = False,
    engine: Engine = "ray",
    workers: Workers = None,
    address: Address = None,
    min_word_count: MinWordCount = None,
    partitions: Partitions = None,
    shard_bytes: ShardBytes = None,
    table_bytes: TableBytes = None,
    overwrite: Overwrite = False,
) -> None:
    """Count words into a table that any number of vocabularies can be learned from."""
    from dist_bpe.pipeline import RunReport, run_count
    from dist_bpe.progress import Progress

    config = _config(
        inputs, output, text_column, group_by, special_token, no_special_tokens, engine, workers, address, overwrite,
        _given(
            pattern=pattern, min_word_count=min_word_count, partitions=partitions, shard_bytes=shard_bytes,
            table_bytes=table_bytes,
        ),
    )  # fmt: skip
    progress = Progress()
    report = RunReport(config.output)
    run_count(config, progress, report)
    report.stages = progress.records
    _summary(report)


@_command
def learn(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder that holds a count table.")],
    vocab_size: Annotated[int, typer.Option(help="All tokens: 256 bytes, merges and special tokens.")],
    special_token: Special = None,
    no_special_tokens: NoSpecial = False,
    min_pair_count: MinPair = None,
    min_word_count: MinWordLearn = None,
    max_token_bytes: MaxToken = None,
    special_tokens_first: First = False,
    pad_to_multiple: Pad = None,
    name: Name = None,
    overwrite: Overwrite = False,
    verify: Verify = True,
    verify_transformers: Transformers = False,
) -> None:
    """Learn and export one more vocabulary from a kept count table."""
    from dist_bpe.config import LearnConfig, validate
    from dist_bpe.config import special_token as parse
    from dist_bpe.pipeline import learn_and_export

    if special_token and no_special_tokens:
        raise UsageError("--special-token and --no-special-tokens exclude each other.")
    specials = [parse(token) for token in special_token or []] if special_token or no_special_tokens else None
    values = _given(
        vocab_size=vocab_size, min_pair_count=min_pair_count, min_word_count=min_word_count,
        max_token_bytes=max_token_bytes, pad_to_multiple=pad_to_multiple,
        special_tokens_first=special_tokens_first,
    )  # fmt: skip
    config: LearnConfig = validate(LearnConfig, values)
    _summary(learn_and_export(run, config, specials, name, overwrite, verify, verify_transformers))


@_command
def export(
    vocabulary: Annotated[Path, typer.Argument(help="A vocabulary's folder, or one file of it.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The folder for the files.")],
    format: Annotated[list[str] | None, typer.Option(help="A format; repeat for more.  [default: all]")] = None,
    overwrite: Overwrite = False,
    verify: Verify = True,
    verify_transformers: Transformers = False,
) -> None:
    """Write a vocabulary in other formats, and check each file in its own library."""
    from dist_bpe.pipeline import export_vocabulary

    for line in export_vocabulary(vocabulary, output, format, overwrite, verify, verify_transformers):
        print(line)


Vocab = Annotated[Path, typer.Argument(metavar="VOCABULARY", help="A vocabulary's folder, or one file of it.")]


@_command
def encode(
    vocabulary: Vocab,
    lines: Annotated[bool, typer.Option("--lines", help="Each line is a document, without its line end.")] = False,
    allow_special: Annotated[bool, typer.Option("--allow-special", help="Special-token text becomes its id.")] = False,
    pieces: Annotated[bool, typer.Option("--pieces", help="Print the tokens' text instead of ids.")] = False,
) -> None:
    """Read text from standard input and print ids."""
    from dist_bpe.vocabulary import Vocabulary

    loaded = Vocabulary.load(vocabulary)
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


@_command
def decode(vocabulary: Vocab) -> None:
    """Read ids from standard input, separated by white space, and print the text."""
    from dist_bpe.vocabulary import Vocabulary

    loaded = Vocabulary.load(vocabulary)
    ids = []
    for word in sys.stdin.read().split():
        if not word.isascii() or not word.isdigit() or int(word) >= len(loaded):
            raise UsageError(
                f"{word!r} on standard input is no id of this vocabulary: ids go from 0 to {len(loaded) - 1:,}."
            )
        ids.append(int(word))
    sys.stdout.buffer.write(loaded.decode_bytes(ids))
    sys.stdout.buffer.flush()


MOST_SOURCES_SHOWN = 60


def _summary(report: "RunReport") -> None:
    """Print the closing summary on standard output."""
    from rich.box import SIMPLE
    from rich.console import Console
    from rich.table import Table

    from dist_bpe.progress import human_bytes

    console = Console(width=None if sys.stdout.isatty() else 120, highlight=False)
    if report.table:
        table = Table("source", box=SIMPLE)
        for column in ("documents", "text", "words", "unique words", "bytes/token"):
            table.add_column(column, justify="right")
        rows = list(report.table.sources.items())
        for name, source in sorted(rows, key=lambda row: -row[1].bytes)[:MOST_SOURCES_SHOWN]:
            ratio = report.bytes_per_token.get(name)
            table.add_row(
                name, f"{source.documents:,}", human_bytes(source.bytes), f"{source.words:,}",
                f"{source.unique_words:,}", f"{ratio:.3f}" if ratio else "",
            )  # fmt: skip
        console.print(table)
        if len(rows) > MOST_SOURCES_SHOWN:
            console.print(f"… and {len(rows) - MOST_SOURCES_SHOWN} smaller sources: see manifest.json there.")
    if report.stages:
        table = Table("stage", box=SIMPLE)
        for column in ("seconds", "peak memory", "peak of a worker"):
            table.add_column(column, justify="right")
        for stage in report.stages:
            worker = human_bytes(stage.worker_peak_bytes) if stage.worker_peak_bytes else ""
            table.add_row(stage.name, f"{stage.seconds:.2f}", human_bytes(stage.peak_bytes), worker)
        console.print(table)
    if report.vocabulary is not None:
        parts = ", ".join(f"{number:,} {name}" for name, number in report.vocabulary.sizes.items())
        console.print(f"vocabulary: {len(report.vocabulary):,} tokens ({parts})")
    for library, outcome in report.verification.items():
        console.print(f"{library}: {outcome}")
    for text in report.warnings:
        console.print(f"warning: {text}", soft_wrap=True, markup=False)
    if report.folder:
        console.print(f"files: {report.folder}", soft_wrap=True, markup=False)
    elif report.table:
        console.print(f"files: {report.table.folder}", soft_wrap=True, markup=False)


def main() -> None:
    """Run the command line."""
    app()


if __name__ == "__main__":
    main()
