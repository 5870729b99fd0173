"""Commands that measure: evaluate, compare, balance, split."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from dist_bpe.cli.app import command, new_progress
from dist_bpe.cli.options import AllSources, Given, Json, LogFormat, Only, Run, named_paths, with_options
from dist_bpe.cli.show import print_json, show_evaluation, show_outcomes, show_side_by_side
from dist_bpe.corpus.source import Source
from dist_bpe.errors import DistBpeError, UsageError, printable, several
from dist_bpe.evaluation.options import BalanceOptions, MeasureOptions
from dist_bpe.learning.options import LearnOptions
from dist_bpe.progress import Progress
from dist_bpe.run.config import ExportOptions

if TYPE_CHECKING:
    from dist_bpe.evaluation.evaluate import Evaluation

Table = Annotated[str | None, typer.Option(metavar="RUN", help="Measure on a count table, exactly.")]
Texts = Annotated[
    list[str] | None, typer.Option(metavar="[NAME=]PATH", help="Measure on files of text; repeat for more.")
]
Parallel = Annotated[
    str | None, typer.Option(metavar="FILE", help="Measure on a parallel set: Parquet with lang, doc, text.")
]


class _On(NamedTuple):
    """What is measured on."""

    table: str | None
    text: list[str] | None
    parallel: str | None


@command
@with_options
def evaluate(
    vocabulary: Annotated[str, typer.Argument(metavar="VOCABULARY", help="A folder, a file, or a tiktoken encoding.")],
    table: Table = None,
    text: Texts = None,
    parallel: Parallel = None,
    json: Json = False,
    all_sources: AllSources = False,
    log_format: LogFormat = "text",
    *,
    source: Annotated[Given[Source], Only("text", "group_by")],
    measure: Given[MeasureOptions],
) -> None:
    """Measure what a vocabulary costs on tables, text, parallel sets."""
    options = measure.build()
    measured = _evaluated([vocabulary], _On(table, text, parallel), source, measure, new_progress(log_format))
    if json:
        print_json(_as_json(measured, options.dimension))
    else:
        for evaluation in measured.evaluations:
            show_evaluation(evaluation, options.dimension, all_sources)
    measured.complain()


@command
@with_options
def compare(
    vocabularies: Annotated[
        list[str], typer.Argument(metavar="VOCABULARY…", help="Folders, files, or tiktoken encodings.")
    ],
    table: Table = None,
    text: Texts = None,
    parallel: Parallel = None,
    json: Json = False,
    all_sources: AllSources = False,
    log_format: LogFormat = "text",
    *,
    source: Annotated[Given[Source], Only("text", "group_by")],
    measure: Given[MeasureOptions],
) -> None:
    """Measure several vocabularies on the same text, side by side.

    All names and files are looked at before any is measured. Where one fails then, the others are shown all the same,
    and the exit code is that of the first failure.
    """
    measured = _evaluated(vocabularies, _On(table, text, parallel), source, measure, new_progress(log_format))
    evaluations = measured.evaluations
    if json:
        print_json(_as_json(measured, measure.build().dimension))
    else:
        for corpus in dict.fromkeys(evaluation.corpus for evaluation in evaluations):
            show_side_by_side([evaluation for evaluation in evaluations if evaluation.corpus == corpus], all_sources)
    measured.complain()


@dataclass(frozen=True)
class _Measured:
    """What was measured, and what could not be: tokenizer, corpus, and why."""

    evaluations: "list[Evaluation]"
    failures: list[tuple[str, str, DistBpeError]]

    def complain(self) -> None:
        """Raise what failed, as one sentence.

        Raises:
            DistBpeError: something did; of the first one's kind.
        """
        if len(self.failures) == 1 and not self.evaluations:
            raise self.failures[0][2]
        if self.failures:
            told = " ".join(
                f"{name} could not be measured on {corpus}: {error}" for name, corpus, error in self.failures
            )
            raise type(self.failures[0][2])(told)


def _as_json(measured: _Measured, dimension: int) -> list[dict[str, Any]]:
    failures = [
        {"tokenizer": name, "corpus": corpus, "error": printable(str(error))}
        for name, corpus, error in measured.failures
    ]
    return [evaluation.as_json(dimension) for evaluation in measured.evaluations] + failures


def _evaluated(
    names: list[str], on: _On, source: Given[Source], measure: Given[MeasureOptions], progress: Progress
) -> _Measured:
    from dist_bpe.corpus.heldout import HeldOut, read_parallel, read_texts
    from dist_bpe.counting.table import CountTable
    from dist_bpe.evaluation.evaluate import measure as measure_on
    from dist_bpe.evaluation.tokenizers import open_tokenizer

    if on.table is None and not on.text and on.parallel is None:
        raise UsageError("say what to measure on: --table RUN, --text PATH or --parallel FILE.")
    if not on.text:
        source.refuse("here: it goes with --text")
    if not on.text and on.parallel is None:
        measure.refuse("here: it goes with --text or --parallel", "segmenter", "word_list")
    if on.parallel is None:
        measure.refuse("here: it goes with --parallel", "reference")
    options = measure.build()
    words = options.words()
    tokenizers = []
    with progress.stage("open", len(names), "tokenizers") as stage:
        for name in names:
            tokenizers.append(open_tokenizer(name, options.pattern))
            if on.table is not None:
                tokenizers[-1].for_words()
            stage.advance(1, tokenizers[-1].name)
    corpora: list[tuple[str, HeldOut | CountTable]] = []
    if on.table:
        corpora.append((on.table, CountTable.open(on.table)))
    if on.text:
        named = named_paths(on.text)
        texts = read_texts([source.build(name=name, paths=paths) for name, paths in named.items()])
        corpora.append((texts.name, texts))
    if on.parallel:
        parallel = read_parallel(on.parallel)
        parallel.reference(options.reference)
        corpora.append((parallel.name, parallel))
    measured = _Measured([], [])
    with progress.stage("measure", len(names) * len(corpora), "measurements") as stage:
        for tokenizer in tokenizers:
            for where, corpus in corpora:
                stage.advance(0, tokenizer.name)
                try:
                    measured.evaluations.append(measure_on(tokenizer, corpus, options, words))
                except DistBpeError as error:
                    measured.failures.append((tokenizer.name, where, error))
                except Exception as error:  # of another library, in whatever class it likes
                    sentence = f"its library says {type(error).__name__}: {error}".rstrip(".")
                    measured.failures.append((tokenizer.name, where, DistBpeError(f"{sentence}.")))
                stage.advance(1)
    return measured


@command
@with_options
def balance(
    run: Run,
    dev: Annotated[str | None, typer.Option(metavar="FILE", help="A parallel set to balance on.")] = None,
    test: Annotated[str | None, typer.Option(metavar="FILE", help="Another, to measure the result on.")] = None,
    text: Annotated[
        list[str] | None, typer.Option(metavar="[NAME=]PATH", help="Balance on files of text; repeat for more.")
    ] = None,
    plot: Annotated[
        str | None, typer.Option(metavar="FILE", help="Draw the frontier into this file (.png, .svg, .pdf).")
    ] = None,
    output: Annotated[
        str | None,
        typer.Option(
            "--output", "-o", metavar="FILE", help="The file for the mixture.  [default: RUN/mixtures/balanced.toml]"
        ),
    ] = None,
    json: Json = False,
    log_format: LogFormat = "text",
    all_sources: AllSources = False,
    *,
    learn: Annotated[
        Given[LearnOptions],
        Only("vocab_size", "min_pair_count", "min_word_count", "max_token_bytes", "driver_memory"),
    ],
    balance: Given[BalanceOptions],
    export: Annotated[Given[ExportOptions], Only("overwrite")],
) -> None:
    """Find the mixture under which languages cost the same.

    It is a file, which learn takes with --mixture.
    """
    from dist_bpe.corpus.heldout import read_parallel, read_texts
    from dist_bpe.evaluation.balance import plot as draw
    from dist_bpe.run.balance import Sets, Target, balance_run

    if "vocab_size" not in learn.values:
        raise UsageError("say how large the vocabulary is to be with --vocab-size.")
    if dev and text:
        raise UsageError("--dev and --text exclude each other.")
    if "search" in balance.values or "premium" in balance.values:
        reason = "on a search, which tries temperatures and dials of its own"
        balance.refuse(reason, "caps", "floors", "beta", "tolerance", "frontier")
        if plot:
            raise UsageError(f"--plot has no effect {reason}.")
    learning = learn.build()
    if len(learning.vocab_size) > 1:
        raise UsageError("--vocab-size: a mixture is balanced at one size; give one.")
    options = balance.build(**({"frontier": True} if plot else {}))
    held_out = read_parallel(dev) if dev else None
    if text:
        held_out = read_texts([Source(name, paths) for name, paths in named_paths(text).items()])
    sets = Sets(held_out, read_parallel(test) if test else None)
    steps = new_progress(log_format)
    report = balance_run(run, learning, options, sets, Target(output, export.build().overwrite), steps)
    if plot:
        draw(report.tried, Path(plot))
    if json:
        print_json(report.as_json())
        return
    if steps.style == "json":
        best = report.best[1].as_json(report.reference) if report.best else {}
        steps.tell("finished", mixture=str(report.file), gini=best.get("gini"), worst_premium=best.get("worst_premium"))
        return
    points = [(f"round {i}", outcome) for i, outcome in enumerate(report.rounds, 1)] + report.tried
    points += [("on the test set", report.test)] if report.test else []
    show_outcomes(points, report, all_sources)


@command
@with_options
def split(
    parallel: Annotated[Path, typer.Argument(metavar="FILE", help="A parallel set: Parquet with lang, doc, text.")],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FOLDER", help="For dev.parquet and test.parquet.")],
    dev: Annotated[float, typer.Option(help="The development set's part of the documents.")] = 0.5,
    seed: Annotated[int, typer.Option(help="Another seed gives another split.")] = 0,
    *,
    export: Annotated[Given[ExportOptions], Only("overwrite")],
) -> None:
    """Split a parallel set into development and test documents.

    Which is which follows from a stable hash of their names.
    """
    from dist_bpe.corpus.heldout import read_parallel, save_split
    from dist_bpe.corpus.heldout import split as split_documents

    if not 0 < dev < 1:
        raise UsageError(f"--dev {dev:g} must lie between 0 and 1.")
    sides = split_documents(read_parallel(parallel), seed, dev)
    for path, side in zip(save_split(sides, output, export.build().overwrite), sides, strict=True):
        print(f"{path}: {several(len(side.documents or ()), 'document')} in {several(len(side.texts), 'language')}")
