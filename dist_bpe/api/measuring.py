"""Functions that measure: evaluate, compare, balance, split."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from dist_bpe.api.arguments import (
    Parallel,
    Run,
    Style,
    Text,
    folder_of,
    held_out_of,
    options_of,
    public,
    several_of,
    sources_of,
)
from dist_bpe.corpus.heldout import HeldOut, read_texts, save_split
from dist_bpe.corpus.heldout import split as split_documents
from dist_bpe.counting.table import CountTable
from dist_bpe.errors import UsageError
from dist_bpe.evaluation.evaluate import Comparison, Evaluation, measure
from dist_bpe.evaluation.options import BalanceOptions, MeasureOptions
from dist_bpe.evaluation.tokenizers import tokenizer_of
from dist_bpe.learning.options import LearnOptions
from dist_bpe.options import fields_of
from dist_bpe.progress import Progress
from dist_bpe.run.balance import BalanceReport, Sets, Target, balance_run
from dist_bpe.storage.files import RunPath
from dist_bpe.vocabulary.vocabulary import Vocabulary

Segmenter = Literal["whitespace", "unicode"]


@public
def evaluate(
    vocabulary: Vocabulary | str | RunPath | Any,
    *,
    table: Run | None = None,
    text: Text | Sequence[Text] | None = None,
    parallel: Parallel | None = None,
    reference: str | None = None,
    segmenter: Segmenter = "whitespace",
    word_list: Path | str | None = None,
    pattern: str | None = None,
    dimension: int = 4096,
) -> Evaluation:
    """Measure what a vocabulary costs: on a count table, on text, or on a parallel set; one of the three.

    Args:
        vocabulary: a `Vocabulary`; a tokenizer of tiktoken, tokenizers or transformers; a folder, a file of any format,
            or the name of a tiktoken encoding.
        table: a count table, or its run: the whole corpus, exactly. It takes words, and so none of another library.
        text: a source, path or table as for `count`, or several.
        parallel: a parallel set, or its Parquet file (lang, doc, text).
        reference: on a parallel set, the language that premiums compare with; by default English.
        segmenter: what a word is for fertility, on text: "whitespace", or "unicode" (UAX 29).
        word_list: a file of words, one a line: how many of them are one token?
        pattern: of a vocabulary whose files name none.
        dimension: the width of the embeddings, for the size curve.

    Returns:
        The costs: a table of the languages, with `summary()`, `size_curve()`, `premiums` and more.

    Raises:
        UsageError: nothing or more than one thing to measure on, or a table that was counted with another pattern.
        FormatError: a damaged file.
    """
    corpus, options, words = _corpus(locals())
    return _measured(vocabulary, corpus, options, words)


@public
def compare(
    vocabularies: Sequence[Vocabulary | str | RunPath | Any] | Mapping[str, Vocabulary | str | RunPath | Any],
    *,
    table: Run | None = None,
    text: Text | Sequence[Text] | None = None,
    parallel: Parallel | None = None,
    reference: str | None = None,
    segmenter: Segmenter = "whitespace",
    word_list: Path | str | None = None,
    pattern: str | None = None,
    dimension: int = 4096,
) -> Comparison:
    """Measure several vocabularies on the same text, side by side.

    Args:
        vocabularies: each as for `evaluate`; a mapping gives them names.
        table: see `evaluate`.
        text: see `evaluate`.
        parallel: see `evaluate`.
        reference: see `evaluate`.
        segmenter: see `evaluate`.
        word_list: see `evaluate`.
        pattern: see `evaluate`.
        dimension: see `evaluate`.

    Returns:
        A table with a row for each vocabulary and language; `evaluations` has what `evaluate` gives of each.

    Raises:
        UsageError: see `evaluate`.
        FormatError: see `evaluate`.
    """
    if not isinstance(vocabularies, (Mapping, list, tuple)):
        raise UsageError(f"vocabularies is a list of them, or a mapping from names, not {type(vocabularies).__name__}.")
    corpus, options, words = _corpus(locals())
    found = [_measured(vocabulary, corpus, options, words) for vocabulary in _values(vocabularies)]
    if isinstance(vocabularies, Mapping):
        for name, evaluation in zip(vocabularies, found, strict=True):
            evaluation.name = str(name)
    return Comparison(found)


def _values(given: Any) -> Sequence[Any]:
    return list(given.values()) if isinstance(given, Mapping) else given


def _corpus(given: Mapping[str, Any]) -> tuple[CountTable | HeldOut, MeasureOptions, list[str]]:
    """What is measured on, and how.

    Raises:
        UsageError: nothing or too much, or an option that has no effect there.
    """
    named = [name for name in ("table", "text", "parallel") if given[name] is not None]
    if len(named) != 1:
        raise UsageError(
            "say what to measure on: table=, text= or parallel="
            + (f", one of them and not {' and '.join(named)}." if named else ".")
        )
    idle = [] if named == ["parallel"] else ["reference"]
    idle += ["segmenter", "word_list"] if named == ["table"] else []
    for name in idle:
        if given[name] != fields_of(MeasureOptions)[name].default:
            raise UsageError(f"{name} has no effect on {'a count table' if named == ['table'] else 'text'}.")
    options = options_of(MeasureOptions, given)
    words = options.words()
    table = given["table"]
    if table is not None:
        return (table if isinstance(table, CountTable) else CountTable.open(table)), options, words
    held_out = held_out_of(given["parallel"], "parallel") or read_texts(sources_of(several_of(given["text"])))
    return held_out, options, words


def _measured(given: Any, corpus: CountTable | HeldOut, options: MeasureOptions, words: Sequence[str]) -> Evaluation:
    return measure(tokenizer_of(given, options.pattern), corpus, options, words)


@public
def balance(
    counts: Run,
    vocab_size: int,
    *,
    dev: Parallel | None = None,
    text: Text | Sequence[Text] | None = None,
    test: Parallel | None = None,
    min_pair_count: int = 2,
    min_word_count: int = 1,
    max_token_bytes: int | None = None,
    driver_memory: int | str | None = None,
    reference: str | None = None,
    targets: Mapping[str, float] | None = None,
    beta: float = math.inf,
    rounds: int | None = None,
    tolerance: float = 0.001,
    caps: Mapping[str, float] | None = None,
    floors: Mapping[str, float] | None = None,
    frontier: bool = False,
    search: bool = False,
    premium: float | None = None,
    output: str | RunPath | None = None,
    overwrite: bool = False,
    progress: Style = "auto",
) -> BalanceReport:
    """Find the mixture under which languages cost the same, and write it as a file; `learn` takes either.

    Args:
        counts: a count table, or its run.
        vocab_size: the size that is balanced.
        dev: the parallel set to balance on, or its file; or give:
        text: held-out text to balance on, as for `evaluate`; without either the training text itself.
        test: another parallel set, to measure the result on.
        min_pair_count: see `learn`.
        min_word_count: see `learn`.
        max_token_bytes: see `learn`.
        driver_memory: see `learn`.
        reference: the language that premiums compare with; by default English with `dev`, else the one of least cost.
        targets: without `dev`: a source's bytes per token in relation to others; "*" is for the rest.
        beta: the dial: 0 is equal documents, inf equal costs.
        rounds: trainings at most; by default 8, for a search 24.
        tolerance: the Gini to stop at.
        caps: a source's most weight, over that of equal documents; "*" is for the rest.
        floors: a source's least weight, likewise.
        frontier: mixtures from natural to balanced are trained, too, to show what evenness costs.
        search: the mixture with the lowest cost of the worst language is searched for.
        premium: the mixture with most bytes per token and no premium above this is searched for.
        output: the TOML file for the mixture; by default `mixtures/balanced.toml` in the run.
        overwrite: replace a mixture of another table or other options.
        progress: "auto", "bars", "lines", "json" or "silent".

    Returns:
        The report: a table of the rounds, with `mixture`, `file`, `warnings` and more.

    Raises:
        UsageError: development and test text overlap, options that cannot work, or too little memory.
        RunError: another mixture is there, or another process makes one of this name at this moment.
    """
    given = locals()
    if dev is not None and text is not None:
        raise UsageError("dev and text exclude each other.")
    if search or premium is not None:
        for name in ("caps", "floors", "beta", "tolerance", "frontier"):
            if given[name] not in (None, fields_of(BalanceOptions)[name].default):
                raise UsageError(f"{name} has no effect on a search, which tries temperatures and dials of its own.")
    learning = options_of(LearnOptions, given)
    if len(learning.vocab_size) > 1:
        raise UsageError("vocab_size: a mixture is balanced at one size; give one.")
    held_out = read_texts(sources_of(several_of(text))) if text is not None else held_out_of(dev, "dev")
    return balance_run(
        folder_of(counts),
        learning,
        options_of(BalanceOptions, given),
        Sets(held_out, held_out_of(test, "test")),
        Target(output, overwrite),
        Progress(progress),
    )


@public
def split(
    parallel: Parallel,
    *,
    output: str | Path | None = None,
    dev: float = 0.5,
    seed: int = 0,
    overwrite: bool = False,
) -> tuple[HeldOut, HeldOut]:
    """Split a parallel set into development and test documents, by a stable hash of their names.

    Args:
        parallel: the set, or its Parquet file (lang, doc, text).
        output: a folder for dev.parquet and test.parquet; without it nothing is written.
        dev: the development set's part of the documents.
        seed: another one gives another split.
        overwrite: replace files of another split.

    Returns:
        The development set and the test set, which `learn`, `balance` and `evaluate` take as they take files.

    Raises:
        UsageError: a part that is none, or one side has no document.
        RunError: another split is there.
    """
    corpus = held_out_of(parallel, "parallel")
    if corpus is None or corpus.documents is None:
        raise UsageError("parallel is a parallel set, or the path of its file: this text has no documents in common.")
    if not 0 < dev < 1:
        raise UsageError(f"dev {dev:g} must lie between 0 and 1.")
    sides = split_documents(corpus, seed, dev)
    if output is not None:
        save_split(sides, Path(output), overwrite)
    return sides
