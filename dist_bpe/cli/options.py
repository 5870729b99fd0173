"""Options of the models as flags."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dist_bpe.errors import UsageError

if TYPE_CHECKING:
    from dist_bpe.run.config import RunConfig


Inputs = Annotated[
    list[str] | None,
    typer.Argument(metavar="INPUT…", help="Files, folders, globs, URIs or @LIST; NAME=PATH names a source."),
]
Output = Annotated[
    str | None,
    typer.Option("--output", "-o", metavar="RUN", help="The run folder: a path, or a URI of an object store."),
]
VocabSize = Annotated[
    str | None,
    typer.Option(metavar="N[,N…]", help="All tokens: 256 bytes, merges and special tokens; several sizes at once."),
]
Pattern = Annotated[str | None, typer.Option(help="A named pattern or a regular expression.  [default: gpt2]")]
Normalization = Annotated[str | None, typer.Option(help="NFC, NFD, NFKC or NFKD: bring text into that form first.")]
MaxWord = Annotated[int | None, typer.Option(help="Count longer words in pieces of at most so many bytes.")]
TextColumn = Annotated[str, typer.Option(help="The field that holds the documents, as in text or doc.text.")]
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
MixtureFile = Annotated[
    Path | None, typer.Option("--mixture", metavar="FILE", help="A TOML file with a [mixture] table.")
]
Alpha = Annotated[str | None, typer.Option(metavar="A", help="Shares in proportion to size^A, 0 to 1.")]
UniMax = Annotated[str | None, typer.Option(metavar="N", help="Equal shares, but at most N passes.")]
Share = Annotated[list[str] | None, typer.Option(metavar="NAME=S", help="A source's share; * for the rest.")]
Multiplier = Annotated[
    list[str] | None, typer.Option(metavar="NAME=M", help="A source's factor on top; * for the rest.")
]
Cap = Annotated[
    list[str] | None, typer.Option(metavar="NAME=N", help="A source counts as at most N units; * for the rest.")
]
Unit = Annotated[str | None, typer.Option(help="What sizes are measured in: bytes, characters, words or documents.")]
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
Restart = Annotated[bool, typer.Option("--restart", help="Begin anew, whatever is there, finished or not.")]
Transformers = Annotated[bool, typer.Option("--verify-transformers", help="Reload the files in transformers, too.")]
Verify = Annotated[bool, typer.Option("--verify/--no-verify", help="Read each exported file again in its library.")]
Partitions = Annotated[int | None, typer.Option(help="Parts of the count table.  [default: 16]")]
ShardBytes = Annotated[int | None, typer.Option(help="Text bytes one task counts.  [default: by the whole's size]")]
TableBytes = Annotated[int | None, typer.Option(help="Memory of one task's word table.  [default: 512 MiB]")]
WorkerMemory = Annotated[
    str | None, typer.Option(help="Of one worker, as in 2GB.  [default: its share of what is free]")
]
DriverMemory = Annotated[str | None, typer.Option(help="Of learning, as in 16GB.  [default: what is free]")]
Format = Annotated[
    str | None, typer.Option(help="parquet, arrow, jsonl, text or lines.  [default: as the extension tells]")
]
BadFile = Annotated[str | None, typer.Option(help="error, or skip files that cannot be read.  [default: error]")]
BadRow = Annotated[
    str | None, typer.Option(help="error, or skip rows that are no text, or replace bad bytes.  [default: error]")
]
Fraction = Annotated[float | None, typer.Option(help="The share of each source's rows that takes part.  [default: 1]")]
MaxBytes = Annotated[int | None, typer.Option(help="Text bytes to sample of each source, about.")]
LogFormat = Annotated[
    str, typer.Option(help="text, or json: one event a line on standard error.", envvar="DIST_BPE_LOG_FORMAT")
]
Seed = Annotated[int | None, typer.Option(help="Draws another sample.  [default: 0]")]


def source_of(
    text: str, group_by: str | None, format: str | None, on_bad_file: str | None, on_bad_row: str | None,
    sample_fraction: float | None, max_bytes: int | None, seed: int | None,
) -> dict[str, Any]:  # fmt: skip
    return given(
        text=text, group_by=group_by, format=format, on_bad_file=on_bad_file, on_bad_row=on_bad_row,
        sample_fraction=sample_fraction, max_bytes=max_bytes, seed=seed,
    )  # fmt: skip


def given(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def config_of(
    inputs: list[str] | None, output: str | None, source: dict[str, Any], special: list[str] | None,
    no_special: bool, engine: str, workers: int | None, address: str | None, memory_per_worker: str | None,
    overwrite: bool, count: dict[str, Any], **more: Any,
) -> "RunConfig":  # fmt: skip
    from dist_bpe.options import validate
    from dist_bpe.run.config import RunConfig

    if not inputs:
        raise UsageError("name at least one file, folder, glob or URI to read.")
    if output is None:
        raise UsageError("name the run folder with --output (-o).")
    if special and no_special:
        raise UsageError("--special-token and --no-special-tokens exclude each other.")
    if special or no_special:
        count["special_tokens"] = special or []
    values = {
        "sources": sources_of(inputs, source),
        "output": output,
        "overwrite": overwrite,
        "count": count,
        "engine": given(engine=engine, workers=workers, address=address, memory_per_worker=memory_per_worker),
        **more,
    }
    config: RunConfig = validate(RunConfig, values)
    return config


def from_file(context: typer.Context, inputs: list[str] | None, *allowed: str) -> "RunConfig | None":
    """The configuration of a run.toml, if INPUT… is one; options beside it, but the allowed ones, are refused."""
    if not inputs or len(inputs) != 1 or not inputs[0].endswith(".toml"):
        return None
    from dist_bpe.run.config import read_config

    for option in context.command.params:
        source = context.get_parameter_source(option.name or "")
        if source and source.name == "COMMANDLINE" and option.name not in ("inputs", *allowed):
            raise UsageError(f"{option.opts[0]} has no effect beside {inputs[0]}: set it in that file.")
    return read_config(inputs[0])


Table = Annotated[str | None, typer.Option(metavar="RUN", help="Measure on a count table, exactly.")]
Texts = Annotated[
    list[str] | None, typer.Option(metavar="[NAME=]PATH", help="Measure on files of text; repeat for more.")
]
Parallel = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Measure on a parallel set: Parquet with lang, doc, text.")
]
Reference = Annotated[
    str | None, typer.Option(metavar="LANG", help="The language premiums compare with.  [default: English]")
]
Segmenter = Annotated[str, typer.Option(help="What a word is: whitespace or unicode.")]
WordList = Annotated[Path | None, typer.Option(help="A file of words, one a line: how many are one token?")]
Dimension = Annotated[int, typer.Option(help="Width of the embeddings, for the size curve.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


Vocab = Annotated[str, typer.Argument(metavar="VOCABULARY", help="A vocabulary's folder, or one file of it.")]


def named_path(value: str) -> tuple[str, str]:
    """A name and a path from NAME=PATH or PATH."""
    name, equals, path = value.partition("=")
    # A path may hold an equals sign itself (`lang=de/part.parquet`): what exists is a path.
    return ("corpus", value) if not equals or not name or "/" in name or Path(value).exists() else (name, path)


def sources_of(inputs: list[str], options: dict[str, Any]) -> list[dict[str, Any]]:
    named: dict[str, list[str]] = {}
    for name, path in map(named_path, inputs):
        named.setdefault(name, []).append(path)
    return [{"name": name, "paths": paths, **options} for name, paths in named.items()]


def _numbers(option: str, values: list[str] | None) -> dict[str, str] | None:
    """The dictionary of NAME=NUMBER options; None if there are none."""
    numbers = {}
    for value in values or ():
        name, equals, number = value.rpartition("=")
        if not equals or not name or name in numbers:
            raise UsageError(f"{option} {value} is not NAME=NUMBER, each name once.")
        numbers[name] = number
    return numbers or None


def mixture_of(
    file: Path | None, alpha: str | None, unimax: str | None, unit: str | None,
    share: list[str] | None, multiplier: list[str] | None, cap: list[str] | None,
) -> dict[str, Any]:  # fmt: skip
    from dist_bpe.run.config import read_table

    found = given(
        alpha=alpha, unimax=unimax, unit=unit, shares=_numbers("--share", share),
        multipliers=_numbers("--multiplier", multiplier), caps=_numbers("--cap", cap),
    )  # fmt: skip
    if file is None:
        return found
    if found:
        raise UsageError(f"--mixture {file} and other options of the mixture exclude each other.")
    return read_table(file, "mixture")


def floats(option: str, values: list[str] | None) -> dict[str, float] | None:
    numbers = _numbers(option, values)
    try:
        return {name: float(number) for name, number in numbers.items()} if numbers else None
    except ValueError as error:
        raise UsageError(f"{option}: {error}.") from error
