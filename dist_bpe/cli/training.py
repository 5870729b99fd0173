"""Commands that make tables and vocabularies: train, plan, count, add, learn, status."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dist_bpe.cli.app import command, new_progress
from dist_bpe.cli.options import (
    Address,
    Alpha,
    BadFile,
    BadRow,
    Cap,
    DriverMemory,
    Engine,
    First,
    Format,
    Fraction,
    GroupBy,
    Inputs,
    Json,
    LogFormat,
    MaxBytes,
    MaxToken,
    MaxWord,
    MinPair,
    MinWordCount,
    MinWordLearn,
    MixtureFile,
    Multiplier,
    Name,
    Normalization,
    NoSpecial,
    Output,
    Overwrite,
    Pad,
    Partitions,
    Pattern,
    Restart,
    Seed,
    ShardBytes,
    Share,
    Special,
    TableBytes,
    TextColumn,
    Transformers,
    UniMax,
    Unit,
    Verify,
    VocabSize,
    WorkerMemory,
    Workers,
    config_of,
    from_file,
    given,
    mixture_of,
    named_path,
    source_of,
)
from dist_bpe.cli.show import print_json, show_plan, show_summary
from dist_bpe.errors import UsageError

if TYPE_CHECKING:
    pass


@command
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
    from dist_bpe.run.train import train as train_run

    config = from_file(context, inputs, "output", "overwrite", "restart", "log_format")
    if config:
        config = config.model_copy(update=given(output=output, overwrite=overwrite or None, restart=restart or None))
    else:
        if vocab_size is None:
            raise UsageError("say how large the vocabulary is to be with --vocab-size.")
        learn = given(
            vocab_size=vocab_size, mixture=mixture_of(mixture, alpha, unimax, unit, share, multiplier, cap),
            min_pair_count=min_pair_count, min_word_count=min_word_count,
            max_token_bytes=max_token_bytes, pad_to_multiple=pad_to_multiple,
            special_tokens_first=special_tokens_first, driver_memory=driver_memory,
        )  # fmt: skip
        config = config_of(
            inputs, output,
            source_of(text_column, group_by, format, on_bad_file, on_bad_row, sample_fraction, max_bytes, seed),
            special_token, no_special_tokens, engine, workers, address, memory_per_worker, overwrite,
            given(
                pattern=pattern, normalization=normalization, max_word_bytes=max_word_bytes, partitions=partitions,
                shard_bytes=shard_bytes, table_bytes=table_bytes,
            ),
            learn=learn, restart=restart, verify=verify, verify_transformers=verify_transformers, **given(name=name),
        )  # fmt: skip
    progress = new_progress(log_format)
    show_summary(train_run(config, progress), progress)


@command
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
    from dist_bpe.run.count import run_count
    from dist_bpe.run.report import RunReport

    config = config_of(
        inputs, output,
        source_of(text_column, group_by, format, on_bad_file, on_bad_row, sample_fraction, max_bytes, seed),
        special_token, no_special_tokens, engine, workers, address, memory_per_worker, overwrite,
        given(
            pattern=pattern, normalization=normalization, max_word_bytes=max_word_bytes, min_word_count=min_word_count,
            partitions=partitions, shard_bytes=shard_bytes, table_bytes=table_bytes,
        ),
        restart=restart,
    )  # fmt: skip
    progress = new_progress(log_format)
    report = RunReport(config.output)
    run_count(config, progress, report)
    show_summary(report, progress)


@command
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
    from dist_bpe.corpus.heldout import read_parallel
    from dist_bpe.counting.options import CountOptions as CountConfig
    from dist_bpe.counting.wordlists import WordList
    from dist_bpe.learning.options import LearnOptions as LearnConfig
    from dist_bpe.options import validate
    from dist_bpe.pretokenize.preparation import special_token as parse
    from dist_bpe.run.publish import run_import
    from dist_bpe.run.report import RunReport
    from dist_bpe.run.train import learn_and_export

    if special_token and no_special_tokens:
        raise UsageError("--special-token and --no-special-tokens exclude each other.")
    if vocab_size is None:
        raise UsageError("say how large the vocabulary is to be with --vocab-size.")
    specials = [parse(token) for token in special_token or []] if special_token or no_special_tokens else None
    values = given(
        vocab_size=vocab_size, mixture=mixture_of(mixture, alpha, unimax, unit, share, multiplier, cap),
        parity=parity, min_pair_count=min_pair_count,
        min_word_count=min_word_count, max_token_bytes=max_token_bytes, pad_to_multiple=pad_to_multiple,
        special_tokens_first=special_tokens_first, driver_memory=driver_memory,
    )  # fmt: skip
    config: LearnConfig = validate(LearnConfig, values)
    if (parity is None) != (dev is None):
        raise UsageError("--parity and --dev go together: a rule, and the parallel set it looks at.")
    held_out = read_parallel(dev) if dev else None
    progress = new_progress(log_format)
    if counts:
        named: dict[str, list[str]] = {}
        for name_, path in map(named_path, counts):
            named.setdefault(name_, []).append(path)
        columns = given(word=word_column, count=count_column, source=source_column, format=counts_format)
        lists = [WordList(name_, tuple(paths), **columns) for name_, paths in named.items()]
        options = validate(CountConfig, given(pattern=pattern, special_tokens=specials))
        config.merges(options.special_tokens)
        run_import(lists, run, overwrite, options, progress, RunReport(run))
    else:
        from dist_bpe.storage.places import redacted as show

        for option in ("counts_format", "word_column", "count_column", "source_column", "pattern"):
            if context.params[option] is not None:
                raise UsageError(
                    f"--{option.replace('_', '-')} has no effect without --counts: {show(run)} has its table."
                )
    report = learn_and_export(run, config, specials, name, overwrite, verify, verify_transformers, held_out, progress)
    show_summary(report, progress)


@command
def add(
    runs: Annotated[list[str], typer.Argument(metavar="RUN…", help="Run folders that hold count tables.")],
    output: Annotated[str, typer.Option("--output", "-o", metavar="RUN", help="The run folder for the sum.")],
    overwrite: Overwrite = False,
    log_format: LogFormat = "text",
) -> None:
    """Add count tables of equal pattern and settings: the same as counting all their documents together."""
    from dist_bpe.run.publish import add_runs
    from dist_bpe.run.report import RunReport

    report = RunReport(output)
    progress = new_progress(log_format)
    add_runs(runs, output, overwrite, progress, report)
    show_summary(report, progress)


@command
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
    from dist_bpe.corpus.plan import plan as make_plan
    from dist_bpe.storage.files import to_json

    config = from_file(context, inputs, "as_json")
    if not config:
        source = source_of(text_column, group_by, format, on_bad_file, on_bad_row, sample_fraction, max_bytes, seed)
        options = given(shard_bytes=shard_bytes, table_bytes=table_bytes)
        config = config_of(inputs, ".", source, None, False, "local", None, None, None, True, options)
    planned = make_plan([source.source() for source in config.sources], config.count.shard_bytes)
    if as_json:
        print(to_json(planned.as_json(config.count.table_bytes)).decode(), end="")
    else:
        show_plan(planned, config.count.table_bytes)


@command
def status(
    run: Annotated[str, typer.Argument(metavar="RUN", help="A run folder, also one that is being worked on.")],
    json: Json = False,
) -> None:
    """Say where a run stands, from any machine that sees its folder; disturbs nothing."""
    from dist_bpe.run.status import status as look

    found = look(run)
    if json:
        print_json(found.as_json())
        return
    for line in found.lines():
        print(line)
