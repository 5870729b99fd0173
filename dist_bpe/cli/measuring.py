"""Commands that measure: evaluate, compare, balance, split."""

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dist_bpe.cli.app import command, new_progress
from dist_bpe.cli.options import (
    Dimension,
    DriverMemory,
    GroupBy,
    Json,
    LogFormat,
    MaxToken,
    MinPair,
    MinWordLearn,
    Overwrite,
    Parallel,
    Pattern,
    Reference,
    Segmenter,
    Table,
    TextColumn,
    Texts,
    VocabSize,
    WordList,
    floats,
    given,
    sources_of,
)
from dist_bpe.cli.show import print_json, show_evaluation, show_outcomes, show_side_by_side
from dist_bpe.errors import UsageError

if TYPE_CHECKING:
    from dist_bpe.evaluation.evaluate import Evaluation


@command
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
        print_json([evaluation.as_json(dimension) for evaluation in evaluations])
        return
    for evaluation in evaluations:
        show_evaluation(evaluation, dimension)


@command
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
        print_json([evaluation.as_json(dimension) for evaluation in evaluations])
        return
    for corpus in dict.fromkeys(evaluation.corpus for evaluation in evaluations):
        show_side_by_side([evaluation for evaluation in evaluations if evaluation.corpus == corpus])


@command
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
    from dist_bpe.corpus.heldout import read_parallel, read_texts
    from dist_bpe.corpus.source import Source
    from dist_bpe.evaluation.balance import plot as draw
    from dist_bpe.learning.options import LearnOptions as LearnConfig
    from dist_bpe.options import validate
    from dist_bpe.run.balance import balance_run

    if vocab_size is None:
        raise UsageError("say how large the vocabulary is to be with --vocab-size.")
    if dev and text:
        raise UsageError("--dev and --text exclude each other.")
    if rounds is not None and rounds < 1:
        raise UsageError(f"--rounds {rounds} is no number of rounds: give 1 or more.")
    if not beta >= 0:
        raise UsageError(f"--beta {beta:g} must be 0 or more.")
    values = given(
        vocab_size=vocab_size, min_pair_count=min_pair_count, min_word_count=min_word_count,
        driver_memory=driver_memory,
        max_token_bytes=max_token_bytes,
    )  # fmt: skip
    config: LearnConfig = validate(LearnConfig, values)
    held_out = read_parallel(dev) if dev else None
    if text:
        held_out = read_texts([Source(**source) for source in sources_of(text, {})])
    steps = new_progress(log_format)
    report = balance_run(
        run, config, dev=held_out, test=read_parallel(test) if test else None, reference=reference,
        targets=floats("--target", target), beta=beta, rounds=rounds, tolerance=tolerance,
        caps=floats("--cap", cap), floors=floats("--floor", floor), with_frontier=frontier or plot is not None,
        with_search=search or premium is not None, premium=premium, output=output,
        progress=steps,
    )  # fmt: skip
    if plot is not None:
        draw(report.tried, plot)
    if json:
        print_json(report.as_json())
        return
    if steps.style == "json":
        best = report.best[1].as_json(report.reference) if report.best else {}
        steps.tell("finished", mixture=str(report.file), gini=best.get("gini"), worst_premium=best.get("worst_premium"))
        return
    points = [(f"round {i}", outcome) for i, outcome in enumerate(report.rounds, 1)] + report.tried
    points += [("on the test set", report.test)] if report.test else []
    show_outcomes(points, report)


@command
def split(
    parallel: Annotated[Path, typer.Argument(metavar="FILE", help="A parallel set: Parquet with lang, doc, text.")],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FOLDER", help="For dev.parquet and test.parquet.")],
    dev: Annotated[float, typer.Option(help="The development set's part of the documents.")] = 0.5,
    seed: Annotated[int, typer.Option(help="Another seed gives another split.")] = 0,
    overwrite: Overwrite = False,
) -> None:
    """Split a parallel set into development and test documents, by a stable hash of their names."""
    from dist_bpe.corpus.heldout import read_parallel, write_parallel
    from dist_bpe.corpus.heldout import split as split_documents

    if not 0 < dev < 1:
        raise UsageError(f"--dev {dev:g} must lie between 0 and 1.")
    paths = [output / "dev.parquet", output / "test.parquet"]
    for path in paths:
        if path.exists() and not overwrite:
            raise UsageError(f"{path} is there already; name another folder, or replace it with --overwrite.")
    sides = split_documents(read_parallel(parallel), seed, dev)
    output.mkdir(parents=True, exist_ok=True)
    for path, side in zip(paths, sides, strict=True):
        write_parallel(side, path)
        print(f"{path}: {len(side.documents or ()):,} documents in {len(side.texts)} languages")


def _evaluate(
    names: list[str], table: str | None, text: list[str] | None, parallel: Path | None, reference: str | None,
    text_column: str, group_by: str | None, segmenter: str, word_list: Path | None, pattern: str | None,
) -> "list[Evaluation]":  # fmt: skip
    from dist_bpe.corpus.heldout import read_parallel, read_texts
    from dist_bpe.corpus.source import Source
    from dist_bpe.counting.table import CountTable
    from dist_bpe.evaluation.evaluate import on_table, on_texts
    from dist_bpe.evaluation.tokenizers import open_tokenizer

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
        [read_texts([Source(**source) for source in sources_of(text, given(text=text_column, group_by=group_by))])]
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
