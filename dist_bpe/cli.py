"""The command line: one command a function of the package; heavy modules load inside, so that --help is instant."""

import contextlib
import functools
import logging
import math
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from dist_bpe.errors import DistBpeError, UsageError
from dist_bpe.progress import Progress, Tell, human_bytes, json_line

if TYPE_CHECKING:
    from rich.console import Console

    from dist_bpe.balance import Outcome
    from dist_bpe.config import RunConfig
    from dist_bpe.counting import RunReport
    from dist_bpe.evaluate import Evaluation
    from dist_bpe.pipeline import BalanceReport
    from dist_bpe.sources import Plan

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


def _end_at_once(number: int, _: Any) -> None:
    """Kill what this process has started, an embedded Ray with workers that would end their task first, and end."""
    found = [os.getpid()]
    for pid in found:
        for children in Path(f"/proc/{pid}/task").glob("*/children"):
            with contextlib.suppress(OSError):
                found += map(int, children.read_text().split())
    for pid in found[1:]:
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)
    os._exit(128 + number)


def _version(asked: bool) -> None:
    if asked:
        from dist_bpe import __version__

        print(f"dist-bpe {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    pass


class _AsJson(logging.Handler):
    """What Python and other libraries have to say, as events."""

    def emit(self, record: logging.LogRecord) -> None:
        json_line("log", record.getMessage(), record.levelname.lower(), logger=record.name)


@contextlib.contextmanager
def _logging(log_format: str) -> Iterator[Tell]:
    """How this command tells what happens to it."""
    if log_format != "json":
        yield lambda event, text=None, **fields: print(text, file=sys.stderr, flush=True)  # noqa: ARG005
        return
    handler = _AsJson()
    logging.getLogger().addHandler(handler)
    logging.captureWarnings(True)
    try:
        yield json_line
    finally:
        logging.captureWarnings(False)
        logging.getLogger().removeHandler(handler)


@contextlib.contextmanager
def _signals(received: list[int], tell: Tell) -> Iterator[None]:
    """Answer Ctrl-C or SIGTERM by KeyboardInterrupt, which also ends a call into the native core; twice: end at once.

    The number goes into a list, since Ray makes a plain KeyboardInterrupt of whatever a handler raises.
    """

    def first(number: int, _: Any) -> None:
        received.append(number)
        for n in before:
            signal.signal(n, _end_at_once)
        tell("stopping", "stopping; once more to stop at once …", signal=signal.Signals(number).name)
        raise KeyboardInterrupt

    # A signal that was ignored from the start, as in the background of a shell, stays so.
    numbers = [n for n in (signal.SIGINT, signal.SIGTERM) if signal.getsignal(n) is not signal.SIG_IGN]
    if threading.current_thread() is not threading.main_thread():
        numbers = []
    before = {n: signal.getsignal(n) for n in numbers}
    try:
        for n in numbers:
            signal.signal(n, first)
        yield
    finally:
        # After a first signal the process is about to end, and a second one may come at any moment until then.
        for n, handler in before.items() if not received else ():
            signal.signal(n, handler)


def _command(function: Command) -> Command:
    """Make a command; errors of ours become one sentence and their exit code.

    Inside the command, since Typer would turn Ctrl-C into exit code 1 before anything around it could see it.
    """

    @functools.wraps(function)
    def run(*arguments: Any, **options: Any) -> None:
        received: list[int] = []
        log_format = options.get("log_format", "text")
        with _logging(log_format) as tell:
            try:
                with _signals(received, tell):
                    function(*arguments, **options)
            except (KeyboardInterrupt, Exception) as error:
                if received or isinstance(error, KeyboardInterrupt):  # what fails after a signal fails because of it
                    code = 128 + (received or [signal.SIGINT])[0]
                    text = "interrupted: nothing half-written was left; the same command goes on from here."
                    tell("interrupted", text, level="warning", exit_code=code)
                    sys.exit(code)
                if isinstance(error, DistBpeError):
                    sentence = str(error) if log_format == "json" else f"error: {error}"
                    tell("error", sentence, level="error", kind=type(error).__name__, exit_code=error.exit_code)
                    sys.exit(error.exit_code)
                if not isinstance(error, BrokenPipeError):
                    if log_format != "json":
                        raise
                    text = "".join(traceback.format_exception(error))
                    tell("error", text, level="error", kind=type(error).__name__, exit_code=1)
                    sys.exit(1)
                # The reader of our output went away (`| head`). Python would complain once more when it flushes at
                # exit.
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
                sys.exit(1)

    app.command()(run)
    return function


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


def _named(value: str) -> tuple[str, str]:
    """A name and a path from NAME=PATH or PATH."""
    name, equals, path = value.partition("=")
    # A path may hold an equals sign itself (`lang=de/part.parquet`): what exists is a path.
    return ("corpus", value) if not equals or not name or "/" in name or Path(value).exists() else (name, path)


def _sources(inputs: list[str], options: dict[str, Any]) -> list[dict[str, Any]]:
    named: dict[str, list[str]] = {}
    for name, path in map(_named, inputs):
        named.setdefault(name, []).append(path)
    return [{"name": name, "paths": paths, **options} for name, paths in named.items()]


def _source(
    text: str, group_by: str | None, format: str | None, on_bad_file: str | None, on_bad_row: str | None,
    sample_fraction: float | None, max_bytes: int | None, seed: int | None,
) -> dict[str, Any]:  # fmt: skip
    return _given(
        text=text, group_by=group_by, format=format, on_bad_file=on_bad_file, on_bad_row=on_bad_row,
        sample_fraction=sample_fraction, max_bytes=max_bytes, seed=seed,
    )  # fmt: skip


def _numbers(option: str, values: list[str] | None) -> dict[str, str] | None:
    """The dictionary of NAME=NUMBER options; None if there are none."""
    numbers = {}
    for value in values or ():
        name, equals, number = value.rpartition("=")
        if not equals or not name or name in numbers:
            raise UsageError(f"{option} {value} is not NAME=NUMBER, each name once.")
        numbers[name] = number
    return numbers or None


def _progress(log_format: str) -> Progress:
    if log_format not in ("text", "json"):
        raise UsageError(f"--log-format {log_format} is neither text nor json.")
    return Progress("json" if log_format == "json" else "auto")


def _given(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _config(
    inputs: list[str] | None, output: str | None, source: dict[str, Any], special: list[str] | None,
    no_special: bool, engine: str, workers: int | None, address: str | None, memory_per_worker: str | None,
    overwrite: bool, count: dict[str, Any], **more: Any,
) -> "RunConfig":  # fmt: skip
    from dist_bpe.config import RunConfig, validate

    if not inputs:
        raise UsageError("name at least one file, folder, glob or URI to read.")
    if output is None:
        raise UsageError("name the run folder with --output (-o).")
    if special and no_special:
        raise UsageError("--special-token and --no-special-tokens exclude each other.")
    if special or no_special:
        count["special_tokens"] = special or []
    values = {
        "sources": _sources(inputs, source),
        "output": output,
        "overwrite": overwrite,
        "count": count,
        "engine": _given(engine=engine, workers=workers, address=address, memory_per_worker=memory_per_worker),
        **more,
    }
    config: RunConfig = validate(RunConfig, values)
    return config


def _mixture(
    file: Path | None, alpha: str | None, unimax: str | None, unit: str | None,
    share: list[str] | None, multiplier: list[str] | None, cap: list[str] | None,
) -> dict[str, Any]:  # fmt: skip
    from dist_bpe.config import read_table

    given = _given(
        alpha=alpha, unimax=unimax, unit=unit, shares=_numbers("--share", share),
        multipliers=_numbers("--multiplier", multiplier), caps=_numbers("--cap", cap),
    )  # fmt: skip
    if file is None:
        return given
    if given:
        raise UsageError(f"--mixture {file} and other options of the mixture exclude each other.")
    return read_table(file, "mixture")


def _from_file(context: typer.Context, inputs: list[str] | None, *allowed: str) -> "RunConfig | None":
    """The configuration of a run.toml, if INPUT… is one; options beside it, but the allowed ones, are refused."""
    if not inputs or len(inputs) != 1 or not inputs[0].endswith(".toml"):
        return None
    from dist_bpe.config import read_config

    for option in context.command.params:
        source = context.get_parameter_source(option.name or "")
        if source and source.name == "COMMANDLINE" and option.name not in ("inputs", *allowed):
            raise UsageError(f"{option.opts[0]} has no effect beside {inputs[0]}: set it in that file.")
    return read_config(inputs[0])


@_command
def train(
    context: typer.Context,
    inputs: Inputs = None,
    output: Output = None,
    vocab_size: VocabSize = None,
    pattern: Pattern = None,
    normalization: Normalization = None,
    max_word_bytes: MaxWord = None,
    text_column: TextColumn = "text",
    group_by: GroupBy = None,
    format: Format = None,
    on_bad_file: BadFile = None,
    on_bad_row: BadRow = None,
    sample_fraction: Fraction = None,
    max_bytes: MaxBytes = None,
    seed: Seed = None,
    special_token: Special = None,
    no_special_tokens: NoSpecial = False,
    engine: Engine = "ray",
    workers: Workers = None,
    address: Address = None,
    mixture: MixtureFile = None,
    alpha: Alpha = None,
    unimax: UniMax = None,
    share: Share = None,
    multiplier: Multiplier = None,
    cap: Cap = None,
    unit: Unit = None,
    min_pair_count: MinPair = None,
    min_word_count: MinWordLearn = None,
    max_token_bytes: MaxToken = None,
    special_tokens_first: First = False,
    pad_to_multiple: Pad = None,
    partitions: Partitions = None,
    shard_bytes: ShardBytes = None,
    table_bytes: TableBytes = None,
    memory_per_worker: WorkerMemory = None,
    driver_memory: DriverMemory = None,
    name: Name = None,
    overwrite: Overwrite = False,
    restart: Restart = False,
    verify: Verify = True,
    verify_transformers: Transformers = False,
    log_format: LogFormat = "text",
) -> None:
    """Count, learn and export in one go: from INPUT…, or from a file run.toml that names everything."""
    from dist_bpe import pipeline

    config = _from_file(context, inputs, "output", "overwrite", "restart", "log_format")
    if config:
        config = config.model_copy(update=_given(output=output, overwrite=overwrite or None, restart=restart or None))
    else:
        if vocab_size is None:
            raise UsageError("say how large the vocabulary is to be with --vocab-size.")
        learn = _given(
            vocab_size=vocab_size, mixture=_mixture(mixture, alpha, unimax, unit, share, multiplier, cap),
            min_pair_count=min_pair_count, min_word_count=min_word_count,
            max_token_bytes=max_token_bytes, pad_to_multiple=pad_to_multiple,
            special_tokens_first=special_tokens_first, driver_memory=driver_memory,
        )  # fmt: skip
        config = _config(
            inputs, output,
            _source(text_column, group_by, format, on_bad_file, on_bad_row, sample_fraction, max_bytes, seed),
            special_token, no_special_tokens, engine, workers, address, memory_per_worker, overwrite,
            _given(
                pattern=pattern, normalization=normalization, max_word_bytes=max_word_bytes, partitions=partitions,
                shard_bytes=shard_bytes, table_bytes=table_bytes,
            ),
            learn=learn, restart=restart, verify=verify, verify_transformers=verify_transformers, **_given(name=name),
        )  # fmt: skip
    progress = _progress(log_format)
    _summary(pipeline.train(config, progress), progress)


@_command
def count(
    inputs: Inputs = None,
    output: Output = None,
    pattern: Pattern = None,
    normalization: Normalization = None,
    max_word_bytes: MaxWord = None,
    text_column: TextColumn = "text",
    group_by: GroupBy = None,
    format: Format = None,
    on_bad_file: BadFile = None,
    on_bad_row: BadRow = None,
    sample_fraction: Fraction = None,
    max_bytes: MaxBytes = None,
    seed: Seed = None,
    special_token: Special = None,
    no_special_tokens: NoSpecial = False,
    engine: Engine = "ray",
    workers: Workers = None,
    address: Address = None,
    min_word_count: MinWordCount = None,
    partitions: Partitions = None,
    shard_bytes: ShardBytes = None,
    table_bytes: TableBytes = None,
    memory_per_worker: WorkerMemory = None,
    overwrite: Overwrite = False,
    restart: Restart = False,
    log_format: LogFormat = "text",
) -> None:
    """Count words into a table that any number of vocabularies can be learned from."""
    from dist_bpe.counting import RunReport, run_count

    config = _config(
        inputs, output,
        _source(text_column, group_by, format, on_bad_file, on_bad_row, sample_fraction, max_bytes, seed),
        special_token, no_special_tokens, engine, workers, address, memory_per_worker, overwrite,
        _given(
            pattern=pattern, normalization=normalization, max_word_bytes=max_word_bytes, min_word_count=min_word_count,
            partitions=partitions, shard_bytes=shard_bytes, table_bytes=table_bytes,
        ),
        restart=restart,
    )  # fmt: skip
    progress = _progress(log_format)
    report = RunReport(config.output)
    run_count(config, progress, report)
    _summary(report, progress)


@_command
def learn(
    context: typer.Context,
    run: Annotated[str, typer.Argument(metavar="RUN", help="A run folder that holds a count table.")],
    vocab_size: VocabSize = None,
    mixture: MixtureFile = None,
    alpha: Alpha = None,
    unimax: UniMax = None,
    share: Share = None,
    multiplier: Multiplier = None,
    cap: Cap = None,
    unit: Unit = None,
    parity: Annotated[
        str | None, typer.Option(help="Instead of a mixture, parity-aware merges: dev, ratio, window or hybrid.")
    ] = None,
    dev: Annotated[Path | None, typer.Option(metavar="FILE", help="The parallel set for --parity.")] = None,
    counts: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[NAME=]PATH",
            help="Make RUN's table from words counted elsewhere: Parquet, Arrow, CSV, JSON Lines, TSV, text; repeat.",
        ),
    ] = None,
    counts_format: Annotated[
        str | None, typer.Option(help="parquet, arrow, jsonl, csv, tsv or words.  [default: as the extension tells]")
    ] = None,
    word_column: Annotated[str | None, typer.Option(help="The column of words.  [default: word]")] = None,
    count_column: Annotated[str | None, typer.Option(help="The column of counts.  [default: count]")] = None,
    source_column: Annotated[
        str | None, typer.Option(help="The column that names each word's source.  [default: source, if it is there]")
    ] = None,
    pattern: Pattern = None,
    special_token: Special = None,
    no_special_tokens: NoSpecial = False,
    min_pair_count: MinPair = None,
    min_word_count: MinWordLearn = None,
    max_token_bytes: MaxToken = None,
    special_tokens_first: First = False,
    pad_to_multiple: Pad = None,
    driver_memory: DriverMemory = None,
    name: Name = None,
    overwrite: Overwrite = False,
    verify: Verify = True,
    verify_transformers: Transformers = False,
    log_format: LogFormat = "text",
) -> None:
    """Learn and export one more vocabulary: from a kept count table, or from words counted elsewhere (--counts)."""
    from dist_bpe.config import CountConfig, LearnConfig, validate
    from dist_bpe.config import special_token as parse
    from dist_bpe.counting import RunReport, run_import
    from dist_bpe.evaluate import read_parallel
    from dist_bpe.pipeline import learn_and_export
    from dist_bpe.wordlists import WordList

    if special_token and no_special_tokens:
        raise UsageError("--special-token and --no-special-tokens exclude each other.")
    if vocab_size is None:
        raise UsageError("say how large the vocabulary is to be with --vocab-size.")
    specials = [parse(token) for token in special_token or []] if special_token or no_special_tokens else None
    values = _given(
        vocab_size=vocab_size, mixture=_mixture(mixture, alpha, unimax, unit, share, multiplier, cap),
        parity=parity, min_pair_count=min_pair_count,
        min_word_count=min_word_count, max_token_bytes=max_token_bytes, pad_to_multiple=pad_to_multiple,
        special_tokens_first=special_tokens_first, driver_memory=driver_memory,
    )  # fmt: skip
    config: LearnConfig = validate(LearnConfig, values)
    if (parity is None) != (dev is None):
        raise UsageError("--parity and --dev go together: a rule, and the parallel set it looks at.")
    held_out = read_parallel(dev) if dev else None
    progress = _progress(log_format)
    if counts:
        named: dict[str, list[str]] = {}
        for name_, path in map(_named, counts):
            named.setdefault(name_, []).append(path)
        columns = _given(word=word_column, count=count_column, source=source_column, format=counts_format)
        lists = [WordList(name_, tuple(paths), **columns) for name_, paths in named.items()]
        options = validate(CountConfig, _given(pattern=pattern, special_tokens=specials))
        config.merges(options.special_tokens)
        run_import(lists, run, overwrite, options, progress, RunReport(run))
    else:
        from dist_bpe.places import show

        for option in ("counts_format", "word_column", "count_column", "source_column", "pattern"):
            if context.params[option] is not None:
                raise UsageError(
                    f"--{option.replace('_', '-')} has no effect without --counts: {show(run)} has its table."
                )
    report = learn_and_export(run, config, specials, name, overwrite, verify, verify_transformers, held_out, progress)
    _summary(report, progress)


@_command
def export(
    vocabulary: Annotated[str, typer.Argument(help="A vocabulary's folder, or one file of it.")],
    output: Annotated[str, typer.Option("--output", "-o", help="The folder for the files.")],
    format: Annotated[list[str] | None, typer.Option(help="A format; repeat for more.  [default: all]")] = None,
    overwrite: Overwrite = False,
    verify: Verify = True,
    verify_transformers: Transformers = False,
) -> None:
    """Write a vocabulary in other formats, and check each file in its own library."""
    from dist_bpe.pipeline import export_vocabulary

    for line in export_vocabulary(vocabulary, output, format, overwrite, verify, verify_transformers):
        print(line)


@_command
def add(
    runs: Annotated[list[str], typer.Argument(metavar="RUN…", help="Run folders that hold count tables.")],
    output: Annotated[str, typer.Option("--output", "-o", metavar="RUN", help="The run folder for the sum.")],
    overwrite: Overwrite = False,
    log_format: LogFormat = "text",
) -> None:
    """Add count tables of equal pattern and settings: the same as counting all their documents together."""
    from dist_bpe.counting import RunReport, add_runs

    report = RunReport(output)
    progress = _progress(log_format)
    add_runs(runs, output, overwrite, progress, report)
    _summary(report, progress)


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


@_command
def evaluate(
    vocabulary: Annotated[str, typer.Argument(metavar="VOCABULARY", help="A folder, a file, or a tiktoken encoding.")],
    table: Table = None,
    text: Texts = None,
    parallel: Parallel = None,
    reference: Reference = None,
    text_column: TextColumn = "text",
    group_by: GroupBy = None,
    segmenter: Segmenter = "whitespace",
    word_list: WordList = None,
    pattern: Pattern = None,
    dimension: Dimension = 4096,
    json: Json = False,
) -> None:
    """Measure what a vocabulary costs: on a count table, on text, on a parallel set."""
    evaluations = _evaluate(
        [vocabulary], table, text, parallel, reference, text_column, group_by, segmenter, word_list, pattern
    )
    if json:
        _print_json([evaluation.as_json(dimension) for evaluation in evaluations])
        return
    for evaluation in evaluations:
        _show(evaluation, dimension)


@_command
def compare(
    vocabularies: Annotated[
        list[str], typer.Argument(metavar="VOCABULARY…", help="Folders, files, or tiktoken encodings.")
    ],
    table: Table = None,
    text: Texts = None,
    parallel: Parallel = None,
    reference: Reference = None,
    text_column: TextColumn = "text",
    group_by: GroupBy = None,
    segmenter: Segmenter = "whitespace",
    word_list: WordList = None,
    pattern: Pattern = None,
    dimension: Dimension = 4096,
    json: Json = False,
) -> None:
    """Measure several vocabularies on the same text, side by side."""
    evaluations = _evaluate(
        vocabularies, table, text, parallel, reference, text_column, group_by, segmenter, word_list, pattern
    )
    if json:
        _print_json([evaluation.as_json(dimension) for evaluation in evaluations])
        return
    for corpus in dict.fromkeys(evaluation.corpus for evaluation in evaluations):
        _show_side_by_side([evaluation for evaluation in evaluations if evaluation.corpus == corpus])


@_command
def balance(
    run: Annotated[str, typer.Argument(metavar="RUN", help="A run folder that holds a count table.")],
    vocab_size: VocabSize = None,
    dev: Annotated[Path | None, typer.Option(metavar="FILE", help="A parallel set to balance on.")] = None,
    test: Annotated[Path | None, typer.Option(metavar="FILE", help="Another, to measure the result on.")] = None,
    text: Texts = None,
    target: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=R", help="Without --dev: bytes per token in relation to others; * for the rest."),
    ] = None,
    reference: Reference = None,
    beta: Annotated[float, typer.Option(help="The dial: 0 is equal documents, inf equal costs.")] = math.inf,
    rounds: Annotated[int | None, typer.Option(help="Trainings at most.  [default: 8, for a search 24]")] = None,
    tolerance: Annotated[float, typer.Option(help="The Gini to stop at.")] = 0.001,
    cap: Annotated[
        list[str] | None, typer.Option(metavar="NAME=X", help="Most weight over that of equal documents.")
    ] = None,
    floor: Annotated[list[str] | None, typer.Option(metavar="NAME=X", help="Least weight, likewise.")] = None,
    frontier: Annotated[bool, typer.Option("--frontier", help="Show what evenness costs, from natural on.")] = False,
    plot: Annotated[Path | None, typer.Option(metavar="FILE", help="Draw the frontier (.png, .svg, .pdf).")] = None,
    search: Annotated[bool, typer.Option("--search", help="Search for the lowest cost of the worst language.")] = False,
    premium: Annotated[
        float | None, typer.Option(help="Search for most bytes per token with no premium above this.")
    ] = None,
    min_pair_count: MinPair = None,
    min_word_count: MinWordLearn = None,
    driver_memory: DriverMemory = None,
    max_token_bytes: MaxToken = None,
    output: Annotated[
        str | None, typer.Option("--output", "-o", metavar="FILE", help="[default: RUN/mixtures/balanced.toml]")
    ] = None,
    json: Json = False,
    log_format: LogFormat = "text",
) -> None:
    """Find the mixture under which languages cost the same; learn takes it with --mixture."""
    from dist_bpe.balance import plot as draw
    from dist_bpe.config import LearnConfig, validate
    from dist_bpe.evaluate import read_parallel, read_texts
    from dist_bpe.pipeline import balance_run
    from dist_bpe.sources import Source

    if vocab_size is None:
        raise UsageError("say how large the vocabulary is to be with --vocab-size.")
    if dev and text:
        raise UsageError("--dev and --text exclude each other.")
    if rounds is not None and rounds < 1:
        raise UsageError(f"--rounds {rounds} is no number of rounds: give 1 or more.")
    if not beta >= 0:
        raise UsageError(f"--beta {beta:g} must be 0 or more.")
    values = _given(
        vocab_size=vocab_size, min_pair_count=min_pair_count, min_word_count=min_word_count,
        driver_memory=driver_memory,
        max_token_bytes=max_token_bytes,
    )  # fmt: skip
    config: LearnConfig = validate(LearnConfig, values)
    held_out = read_parallel(dev) if dev else None
    if text:
        held_out = read_texts([Source(**source) for source in _sources(text, {})])
    steps = _progress(log_format)
    report = balance_run(
        run, config, dev=held_out, test=read_parallel(test) if test else None, reference=reference,
        targets=_floats("--target", target), beta=beta, rounds=rounds, tolerance=tolerance,
        caps=_floats("--cap", cap), floors=_floats("--floor", floor), with_frontier=frontier or plot is not None,
        with_search=search or premium is not None, premium=premium, output=output,
        progress=steps,
    )  # fmt: skip
    if plot is not None:
        draw(report.tried, plot)
    if json:
        _print_json(report.as_json())
        return
    if steps.style == "json":
        best = report.best[1].as_json(report.reference) if report.best else {}
        steps.tell("finished", mixture=str(report.file), gini=best.get("gini"), worst_premium=best.get("worst_premium"))
        return
    points = [(f"round {i}", outcome) for i, outcome in enumerate(report.rounds, 1)] + report.tried
    points += [("on the test set", report.test)] if report.test else []
    _show_outcomes(points, report)


def _show_outcomes(points: "list[tuple[str, Outcome]]", report: "BalanceReport") -> None:
    """Print the rounds and the frontier, and the weights of the best."""
    from rich.box import SIMPLE
    from rich.table import Table

    console = _console()
    table = Table(box=SIMPLE)
    table.add_column("", no_wrap=True)
    columns = (
        "Gini", "mean premium", "worst premium", "max/min", "worst language", "its tokens", "macro bytes/token",
        "all tokens", "seconds",
    )  # fmt: skip
    for column in columns:
        table.add_column(column, justify="right")
    for name, outcome in points:
        premiums = outcome.premiums(report.reference)
        others = [premium for lang, premium in premiums.items() if lang != report.reference] or [1.0]
        table.add_row(
            name, f"{outcome.gini:.4f}", f"{sum(others) / len(others):.3f}", f"{max(premiums.values()):.3f}",
            f"{outcome.max_over_min:.3f}", outcome.worst, f"{outcome.tokens[outcome.worst]:,}",
            f"{outcome.macro_bytes_per_token:.3f}", f"{sum(outcome.tokens.values()):,}", f"{outcome.seconds:.2f}",
        )  # fmt: skip
    console.print(table)
    if report.best:
        name, best = report.best
        console.print(f"kept: {name}; premiums are to {report.reference}")
        table = Table("source", box=SIMPLE)
        table.add_column("multiplier", justify="right")
        table.add_column("tokens", justify="right")
        for lang, multiplier in list(best.mixture.multipliers.items())[:MOST_SOURCES_SHOWN]:
            table.add_row(lang, f"{float(multiplier):.4g}", f"{best.tokens[lang]:,}" if lang in best.tokens else "")
        console.print(table)
    for text in report.warnings:
        console.print(f"warning: {text}", soft_wrap=True, markup=False)
    console.print(f"mixture: {report.file} (dist-bpe learn … --mixture {report.file})", soft_wrap=True, markup=False)


def _floats(option: str, values: list[str] | None) -> dict[str, float] | None:
    numbers = _numbers(option, values)
    try:
        return {name: float(number) for name, number in numbers.items()} if numbers else None
    except ValueError as error:
        raise UsageError(f"{option}: {error}.") from error


@_command
def split(
    parallel: Annotated[Path, typer.Argument(metavar="FILE", help="A parallel set: Parquet with lang, doc, text.")],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FOLDER", help="For dev.parquet and test.parquet.")],
    dev: Annotated[float, typer.Option(help="The development set's part of the documents.")] = 0.5,
    seed: Annotated[int, typer.Option(help="Another seed gives another split.")] = 0,
    overwrite: Overwrite = False,
) -> None:
    """Split a parallel set into development and test documents, by a stable hash of their names."""
    from dist_bpe import balance
    from dist_bpe.evaluate import read_parallel

    if not 0 < dev < 1:
        raise UsageError(f"--dev {dev:g} must lie between 0 and 1.")
    paths = [output / "dev.parquet", output / "test.parquet"]
    for path in paths:
        if path.exists() and not overwrite:
            raise UsageError(f"{path} is there already; name another folder, or replace it with --overwrite.")
    sides = balance.split(read_parallel(parallel), seed, dev)
    output.mkdir(parents=True, exist_ok=True)
    for path, side in zip(paths, sides, strict=True):
        balance.write_parallel(side, path)
        print(f"{path}: {len(side.documents or ()):,} documents in {len(side.texts)} languages")


def _evaluate(
    names: list[str], table: str | None, text: list[str] | None, parallel: Path | None, reference: str | None,
    text_column: str, group_by: str | None, segmenter: str, word_list: Path | None, pattern: str | None,
) -> "list[Evaluation]":  # fmt: skip
    from dist_bpe.counts import CountTable
    from dist_bpe.evaluate import on_table, on_texts, open_tokenizer, read_parallel, read_texts
    from dist_bpe.sources import Source

    if table is None and not text and parallel is None:
        raise UsageError("say what to measure on: --table RUN, --text PATH or --parallel FILE.")
    words = []
    if word_list is not None:
        try:
            words = word_list.read_text("utf-8").split("\n")
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"{word_list} cannot be read as UTF-8 text: {error}.") from error
    words = [word for word in words if word]
    corpora = (
        [read_texts([Source(**source) for source in _sources(text, _given(text=text_column, group_by=group_by))])]
        if text
        else []
    )
    corpora += [read_parallel(parallel)] if parallel else []
    counts = CountTable.open(table) if table else None
    evaluations = []
    for name in names:
        tokenizer = open_tokenizer(name, pattern)
        if counts is not None:
            if tokenizer.vocabulary is None:
                raise UsageError(f"{name} is read by its own library, which takes no words: measure it on text.")
            evaluations.append(on_table(tokenizer.vocabulary, tokenizer.name, counts))
        evaluations += [
            on_texts(tokenizer, corpus, reference=reference, segmenter=segmenter, word_list=words) for corpus in corpora
        ]
    return evaluations


def _print_json(value: Any) -> None:
    import json

    print(json.dumps(value, indent=2, ensure_ascii=False))


def _console() -> "Console":
    from rich.console import Console

    return Console(width=None if sys.stdout.isatty() else 120, highlight=False)


def _show(evaluation: "Evaluation", dimension: int) -> None:
    """Print one evaluation: a table of languages, the sums, and the size curve."""
    from rich.box import SIMPLE
    from rich.table import Table

    console = _console()
    console.print(f"{evaluation.name}: {evaluation.size:,} tokens, on {evaluation.corpus}", markup=False)
    tokens = {name: measured.tokens for name, measured in evaluation.languages.items()}
    premiums = evaluation.premiums(tokens) if evaluation.reference else {}
    table = Table("language", box=SIMPLE)
    columns = ["tokens", "bytes/token", "characters/token", "tokens/word", "continued words"]
    for column in columns + ([f"premium to {evaluation.reference}", "tokens/document"] if premiums else []):
        table.add_column(column, justify="right")
    order = sorted(evaluation.languages, key=lambda name: (-premiums.get(name, 0), -tokens[name], name))
    for name in order[:MOST_SOURCES_SHOWN]:
        measured = evaluation.languages[name]
        ratios = measured.ratios()
        row = [f"{measured.tokens:,}"]
        row += [f"{ratios[key]:.3f}" if key in ratios else "" for key in _RATIOS[:3]]
        row.append(f"{ratios['continued_words']:.1%}" if "continued_words" in ratios else "")
        if premiums:
            row += [f"{premiums[name]:.3f} ({premiums[name] - 1:+.1%})", f"{measured.tokens / measured.documents:.1f}"]
        table.add_row(name, *row)
    console.print(table)
    table = Table("over all", box=SIMPLE)
    table.add_column("", justify="right")
    for key, value in evaluation.summary().items():
        table.add_row(key.replace("_", " "), f"{value:,.0f}" if key.endswith("tokens") else f"{value:.4f}")
    table.add_row("worst language", evaluation.worst())
    for kind, share in (evaluation.retained or {}).items():
        table.add_row(f"words that are one token, {kind}", f"{share:.1%}")
    console.print(table)
    console.print(f"A word is one of {evaluation.segmenter}.", markup=False, soft_wrap=True)
    curve = evaluation.size_curve(dimension)
    if curve:
        table = Table("size", box=SIMPLE)
        names = ["embedding parameters", "bytes/token", "macro bytes/token"]
        for column in names + (["Gini", "worst premium"] if premiums else []):
            table.add_column(column, justify="right")
        for point in curve:
            row = [f"{point['embedding_parameters']:,}"]
            row += [f"{point['bytes_per_token']:.3f}", f"{point['macro_bytes_per_token']:.3f}"]
            row += [f"{point['gini']:.4f}", f"{point['worst_premium']:.3f}"] if premiums else []
            table.add_row(f"{point['size']:,}", *row)
        console.print(table)


_RATIOS = ("bytes_per_token", "characters_per_token", "fertility", "continued_words")


def _show_side_by_side(evaluations: "list[Evaluation]") -> None:
    """Print evaluations on one corpus: the sums, and each language's cost, a column each."""
    from rich.box import SIMPLE
    from rich.table import Table

    console = _console()
    console.print(f"on {evaluations[0].corpus}", markup=False)
    parallel = evaluations[0].reference is not None
    table = Table("", box=SIMPLE)
    for evaluation in evaluations:
        table.add_column(evaluation.name, justify="right", overflow="fold")
    table.add_row("size", *(f"{evaluation.size:,}" for evaluation in evaluations))
    sums = [evaluation.summary() for evaluation in evaluations]
    for key in dict.fromkeys(key for values in sums for key in values):
        cells = [values.get(key) for values in sums]
        shown = "{:,.0f}" if key.endswith("tokens") else "{:.4f}"
        table.add_row(key.replace("_", " "), *("" if cell is None else shown.format(cell) for cell in cells))
    table.add_row("worst language", *(evaluation.worst() for evaluation in evaluations))
    for kind in evaluations[0].retained or ():
        table.add_row(f"one token, {kind}", *(f"{(evaluation.retained or {})[kind]:.1%}" for evaluation in evaluations))
    table.add_section()
    for name in list(evaluations[0].languages)[:MOST_SOURCES_SHOWN]:
        cells = [
            evaluation.premiums({n: m.tokens for n, m in evaluation.languages.items()})[name]
            if parallel
            else evaluation.languages[name].ratios().get("bytes_per_token", 0.0)
            for evaluation in evaluations
        ]
        what = f"premium to {evaluations[0].reference}" if parallel else "bytes/token"
        table.add_row(f"{name}, {what}", *(f"{cell:.3f}" for cell in cells))
    console.print(table)


Vocab = Annotated[str, typer.Argument(metavar="VOCABULARY", help="A vocabulary's folder, or one file of it.")]


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


@_command
def plan(
    context: typer.Context,
    inputs: Inputs = None,
    text_column: TextColumn = "text",
    group_by: GroupBy = None,
    format: Format = None,
    on_bad_file: BadFile = None,
    on_bad_row: BadRow = None,
    sample_fraction: Fraction = None,
    max_bytes: MaxBytes = None,
    seed: Seed = None,
    shard_bytes: ShardBytes = None,
    table_bytes: TableBytes = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="All of it as JSON, with every file that is left out.")
    ] = False,
) -> None:
    """Show what INPUT…, or the sources of a file run.toml, hold and what will be left out; count nothing."""
    from dist_bpe.sources import plan as make_plan
    from dist_bpe.storage import to_json

    config = _from_file(context, inputs, "as_json")
    if not config:
        source = _source(text_column, group_by, format, on_bad_file, on_bad_row, sample_fraction, max_bytes, seed)
        options = _given(shard_bytes=shard_bytes, table_bytes=table_bytes)
        config = _config(inputs, ".", source, None, False, "local", None, None, None, True, options)
    planned = make_plan([source.source() for source in config.sources], config.count.shard_bytes)
    if as_json:
        print(to_json(planned.as_json(config.count.table_bytes)).decode(), end="")
    else:
        _show_plan(planned, config.count.table_bytes)


@_command
def status(
    run: Annotated[str, typer.Argument(metavar="RUN", help="A run folder, also one that is being worked on.")],
    json: Json = False,
) -> None:
    """Say where a run stands, from any machine that sees its folder; disturbs nothing."""
    from dist_bpe.status import status as look

    found = look(run)
    if json:
        _print_json(found.as_json())
        return
    for line in found.lines():
        print(line)


def _show_plan(planned: "Plan", table_bytes: int) -> None:
    """Print a plan on standard output."""
    from rich.box import SIMPLE
    from rich.console import Console
    from rich.table import Table

    console = Console(width=None if sys.stdout.isatty() else 120, highlight=False)
    table = Table("source", box=SIMPLE)
    for column in ("files", "rows", "text", "sample", "shards", "left out", "core minutes"):
        table.add_column(column, justify="right")
    for source in planned.by_source():
        rows = "?" if source.rows is None else f"{source.rows:,}"
        sample = "all" if source.fraction == 1 else f"{source.fraction:.4%}"
        table.add_row(
            source.source, f"{source.files:,}", rows, human_bytes(source.bytes), sample, f"{source.shards:,}",
            f"{source.left_out:,}", f"{source.core_seconds / 60:,.1f}",
        )  # fmt: skip
    console.print(table)
    for text in planned.warnings():
        console.print(text, soft_wrap=True, markup=False)
    seconds = sum(source.core_seconds for source in planned.by_source())
    console.print(
        f"counting takes about {seconds / 60:,.1f} minutes of one core with a named pattern (others take ten times as "
        f"long), and up to {human_bytes(planned.task_memory(table_bytes))} of memory a task.",
        soft_wrap=True,
    )
    console.print("what learning takes follows from the unique words, which counting will tell.")


MOST_SOURCES_SHOWN = 60


def _summary(report: "RunReport", progress: Progress) -> None:
    """Print the closing summary on standard output, or tell it."""
    if progress.style == "json":
        _tell_summary(report, progress)
        return
    from rich.box import SIMPLE
    from rich.table import Table

    console = _console()
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
    if report.mixture:
        table = Table("source", box=SIMPLE)
        for column in ("raw share", "used share", "multiplier"):
            table.add_column(column, justify="right")
        for name, raw, used, multiplier in report.mixture[:MOST_SOURCES_SHOWN]:
            table.add_row(name, f"{raw:.2%}", f"{used:.2%}", f"{multiplier:.4g}")
        console.print(table)
    if report.chosen:
        numbers = {name: report.chosen.count(name) for name in dict.fromkeys(report.chosen)}
        shown = ", ".join(
            f"{name or 'all together'} {number:,}"
            for name, number in sorted(numbers.items(), key=lambda item: -item[1])
        )
        console.print(f"merges chosen by: {shown}", markup=False, soft_wrap=True)
    if len(report.curve) > 1:
        table = Table("bytes/token at", box=SIMPLE)
        for size in report.curve:
            table.add_column(f"{size:,}", justify="right")
        for name in list(report.bytes_per_token)[:MOST_SOURCES_SHOWN]:
            table.add_row(name, *(f"{ratios[name]:.3f}" for ratios in report.curve.values()))
        console.print(table)
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
    for folder in report.folders:
        console.print(f"files: {folder}", soft_wrap=True, markup=False)
    if report.table and not report.folders:
        console.print(f"files: {report.table.folder}", soft_wrap=True, markup=False)


def _tell_summary(report: "RunReport", progress: Progress) -> None:
    sources = report.table.sources.values() if report.table else ()
    progress.tell(
        "finished",
        sources=len(sources),
        **{
            name: sum(getattr(source, name) for source in sources)
            for name in ("documents", "bytes", "words", "unique_words")
        },
        vocabulary=len(report.vocabulary) if report.vocabulary is not None else None,
        seconds=round(sum(stage.seconds for stage in report.stages), 3),
        peak_bytes=max((stage.peak_bytes for stage in report.stages), default=0),
        worker_peak_bytes=max((stage.worker_peak_bytes for stage in report.stages), default=0),
        verification=report.verification or None,
        warnings=len(report.warnings),
        files=[str(folder) for folder in report.folders] or [str(report.table.folder)] if report.table else None,
    )


def main() -> None:
    """Run the command line."""
    app()


if __name__ == "__main__":
    main()
