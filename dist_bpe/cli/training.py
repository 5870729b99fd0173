"""Commands that make tables and vocabularies: plan, train, count, add, learn, status."""

from typing import Annotated

import typer

from dist_bpe.cli.app import command, new_progress
from dist_bpe.cli.options import (
    AllSources,
    Given,
    InputsOrFile,
    Json,
    LogFormat,
    MixtureFile,
    Only,
    Output,
    Run,
    Without,
    mixture_values,
    named_paths,
    run_config,
    with_options,
)
from dist_bpe.cli.show import print_json, show_plan, show_summary
from dist_bpe.corpus.source import Source
from dist_bpe.counting.options import CountOptions, WordList
from dist_bpe.engine.options import EngineOptions
from dist_bpe.errors import UsageError
from dist_bpe.learning.mixture import Mixture
from dist_bpe.learning.options import LearnOptions
from dist_bpe.options import both
from dist_bpe.run.config import ExportOptions

Parallel = Annotated[
    str | None,
    typer.Option("--dev", metavar="FILE", help="The parallel set for --parity: Parquet with lang, doc, text."),
]


@command
@with_options
def plan(
    inputs: InputsOrFile = None,
    json: Annotated[bool, typer.Option("--json", help="Print all of it as JSON, with every file left out.")] = False,
    all_sources: AllSources = False,
    *,
    source: Given[Source],
    count: Annotated[Given[CountOptions], Only("shard_bytes", "table_bytes")],
) -> None:
    """Show what inputs hold, and what will be left out; count nothing."""
    from dist_bpe.corpus.plan import plan as make_plan
    from dist_bpe.storage.files import to_json

    config = run_config(inputs, ".", source=source, count=count)
    planned = make_plan(config.sources, config.count.shard_bytes)
    if json:
        print(to_json(planned.as_json(config.count.table_bytes)).decode(), end="")
    else:
        show_plan(planned, config.count.table_bytes, all_sources)


@command
@with_options
def train(
    inputs: InputsOrFile = None,
    output: Output = None,
    mixture_file: MixtureFile = None,
    dev: Parallel = None,
    log_format: LogFormat = "text",
    all_sources: AllSources = False,
    *,
    source: Given[Source],
    count: Annotated[Given[CountOptions], Without("min_word_count")],
    mixture: Given[Mixture],
    learn: Given[LearnOptions],
    engine: Given[EngineOptions],
    export: Given[ExportOptions],
) -> None:
    """Count, learn and export in one go, from inputs or from a run.toml."""
    from dist_bpe.corpus.heldout import read_parallel
    from dist_bpe.run.train import train as run_train

    config = run_config(
        inputs, output, mixture_file,
        source=source, count=count, mixture=mixture, learn=learn, engine=engine, export=export,
    )  # fmt: skip
    if config.learn is None:
        raise UsageError("say how large the vocabulary is to be with --vocab-size.")
    _refuse_half(config.learn, dev)
    progress = new_progress(log_format)
    show_summary(run_train(config, progress, read_parallel(dev) if dev else None), progress, all_sources)


@command
@with_options
def count(
    inputs: InputsOrFile = None,
    output: Output = None,
    log_format: LogFormat = "text",
    all_sources: AllSources = False,
    *,
    source: Given[Source],
    count: Given[CountOptions],
    engine: Given[EngineOptions],
    export: Annotated[Given[ExportOptions], Only("overwrite", "restart")],
) -> None:
    """Count words into a table that any vocabulary can be learned from."""
    from dist_bpe.run.count import run_count
    from dist_bpe.run.report import RunReport

    config = run_config(inputs, output, source=source, count=count, engine=engine, export=export)
    progress = new_progress(log_format)
    table, left_out = run_count(config, progress)
    report = RunReport(config.output, table, progress.records, warnings=progress.warnings, left_out=left_out)
    show_summary(report, progress, all_sources)


@command
@with_options
def add(
    runs: Annotated[list[str], typer.Argument(metavar="RUN…", help="Run folders that hold count tables.")],
    output: Annotated[str, typer.Option("--output", "-o", metavar="RUN", help="The run folder for the sum.")],
    log_format: LogFormat = "text",
    all_sources: AllSources = False,
    *,
    export: Annotated[Given[ExportOptions], Only("overwrite")],
) -> None:
    """Add count tables, as if all their documents were counted together.

    Their patterns and settings have to be equal.
    """
    from dist_bpe.run.publish import add_runs
    from dist_bpe.run.report import RunReport

    progress = new_progress(log_format)
    table = add_runs(runs, output, export.build().overwrite, progress)
    show_summary(RunReport(output, table, progress.records, warnings=progress.warnings), progress, all_sources)


@command
@with_options
def learn(
    run: Run,
    counts: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[NAME=]PATH",
            help="Make RUN's table from words counted elsewhere: Parquet, Arrow, CSV, JSON Lines, TSV, text; repeat.",
        ),
    ] = None,
    mixture_file: MixtureFile = None,
    dev: Parallel = None,
    log_format: LogFormat = "text",
    all_sources: AllSources = False,
    *,
    words: Given[WordList],
    count: Annotated[
        Given[CountOptions], Only("pattern", "normalization", "special_tokens", "partitions", "table_bytes")
    ],
    mixture: Given[Mixture],
    learn: Given[LearnOptions],
    export: Annotated[Given[ExportOptions], Without("restart")],
) -> None:
    """Learn and export one more vocabulary from a kept count table.

    Or from words counted elsewhere, with --counts.
    """
    from dist_bpe.corpus.heldout import read_parallel
    from dist_bpe.counting.table import CountTable
    from dist_bpe.run.count import Counted
    from dist_bpe.run.publish import run_import
    from dist_bpe.run.train import learn_and_export
    from dist_bpe.storage.places import redacted

    if "vocab_size" not in learn.values:
        raise UsageError("say how large the vocabulary is to be with --vocab-size.")
    options = learn.build(mixture=mixture_values(mixture_file, mixture))
    exporting = export.build()
    _refuse_half(options, dev)
    held_out = read_parallel(dev) if dev else None
    progress = new_progress(log_format)
    if counts:
        lists = [WordList(name, tuple(paths), **words.values) for name, paths in named_paths(counts).items()]
        counting = count.build()
        options.merges(counting.special_tokens)
        table = run_import(lists, run, counting, exporting.overwrite, progress)
        specials = counting.special_tokens
    else:
        reason = f"without --counts: {redacted(run)} has its table"
        words.refuse(reason)
        count.refuse(reason, "pattern", "normalization", "partitions", "table_bytes")
        table = CountTable.open(run)
        specials = count.build().special_tokens if "special_tokens" in count.values else table.specials
    progress.fields["run"] = redacted(run)
    report = learn_and_export(run, Counted(table, {}), options, exporting, specials, held_out, progress)
    show_summary(report, progress, all_sources)


def _refuse_half(options: LearnOptions, dev: str | None) -> None:
    if (options.parity is None) != (dev is None):
        raise UsageError(
            f"{both(LearnOptions, 'parity')} and --dev go together: a rule, and the parallel set it looks at."
        )


@command
def status(
    run: Annotated[str, typer.Argument(metavar="RUN", help="A run folder, also one that is being worked on.")],
    json: Json = False,
) -> None:
    """Say where a run stands, from any machine, and disturb nothing."""
    from dist_bpe.run.status import status as look

    found = look(run)
    if json:
        print_json(found.as_json())
        return
    for line in found.lines():
        print(line)
