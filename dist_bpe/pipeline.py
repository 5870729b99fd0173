"""The whole run, count -> learn -> export, and everything that begins with a finished table."""

import contextlib
import json
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, overload

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dist_bpe import budget, reference
from dist_bpe.balance import Outcome, Retrainer, balance, frontier, held_back, refuse_overlap, search
from dist_bpe.balance import warnings as limits
from dist_bpe.config import LearnConfig, RunConfig, special_token, validate
from dist_bpe.counting import REPORT, RunReport, run_count, warn
from dist_bpe.counts import CountTable
from dist_bpe.documents import to_numpy
from dist_bpe.errors import CountOverflowError, RunError, UsageError
from dist_bpe.evaluate import Corpus
from dist_bpe.export import DEFAULT_LIBRARIES, export
from dist_bpe.formats import (
    BYTES,
    MANIFEST,
    SpecialToken,
    VocabularyData,
    check_special_tokens,
    chosen_formats,
    not_carried,
)
from dist_bpe.merges import Learned, batches_of_mapping, check_memory, learn_merges
from dist_bpe.mixture import Mixture, Weights, sizes_of
from dist_bpe.pretokenize import Normalization, Pattern, normalization_form, resolve
from dist_bpe.progress import Progress, human_bytes
from dist_bpe.remote import RemotePath
from dist_bpe.storage import RunPath, at, read_json, sizes, to_json, write
from dist_bpe.vocabulary import Vocabulary

VOCABULARIES = "vocabularies"


@overload
def learn(
    counts: CountTable | str | RunPath,
    vocab_size: int,
    *,
    special_tokens: Sequence[str | SpecialToken] | None = None,
    progress: str = "auto",
    **options: Any,
) -> Vocabulary: ...


@overload
def learn(
    counts: Mapping[str, int] | Mapping[bytes, int],
    vocab_size: int | None = None,
    *,
    num_merges: int | None = None,
    unit: Literal["byte"] = "byte",
    pattern: str = "gpt2",
    normalization: str | None = None,
    special_tokens: Sequence[str | SpecialToken] | None = None,
    progress: str = "auto",
    **options: Any,
) -> Vocabulary: ...


@overload
def learn(
    counts: Mapping[str, int],
    *,
    num_merges: int | None = None,
    unit: Literal["byte", "character"] = "byte",
    tie_break: Literal["id", "lexicographic", "first-seen"] = "id",
    end_of_word: str | None = None,
    unknown_token: str | None = None,
    min_pair_count: int = 2,
    max_token_bytes: int | None = None,
) -> reference.ReferenceModel[str]: ...


def learn(
    counts: CountTable | str | RunPath | Mapping[str, int] | Mapping[bytes, int],
    vocab_size: int | None = None,
    *,
    num_merges: int | None = None,
    unit: str = "byte",
    tie_break: str = "id",
    end_of_word: str | None = None,
    unknown_token: str | None = None,
    pattern: str = "gpt2",
    normalization: str | None = None,
    special_tokens: Sequence[str | SpecialToken] | None = None,
    progress: str = "auto",
    **options: Any,
) -> Vocabulary | reference.ReferenceModel[str] | reference.ReferenceModel[bytes]:
    """Learn a vocabulary from a count table, a run folder, or a plain {word: count} mapping.

    Args:
        counts: the table, its folder, or the mapping. Words of a mapping are str (taken as UTF-8) or bytes.
        vocab_size: all tokens: 256 bytes, merges, special tokens. Or give:
        num_merges: the number of merges.
        unit: "byte", or "character" for teaching: symbols are characters, and the result is a `ReferenceModel`.
        tie_break: among pairs of equal count: "id" (smallest ids), or for teaching "lexicographic" or "first-seen".
        end_of_word: for teaching: a symbol put after each word.
        unknown_token: for teaching: what a character outside the vocabulary becomes.
        pattern: how the vocabulary of a mapping is to cut text; a table knows its own.
        normalization: what its text is to be brought into first: NFC, NFD, NFKC or NFKD; a table knows its own.
        special_tokens: `TEXT`, `ROLE=TEXT` or `SpecialToken`; by default those cut out when the table was counted.
        progress: "auto", "bars", "lines", "json" or "silent".
        options: the other fields of `LearnConfig`: mixture, min_pair_count, min_word_count, max_token_bytes,
            special_tokens_first, pad_to_multiple, driver_memory.

    Raises:
        UsageError: a size that is too small, or options that do not go together.
        RunError: no finished count table in the folder.
    """
    if (vocab_size is None) == (num_merges is None):
        raise UsageError("give either vocab_size or num_merges.")
    teaching = unit != "byte" or tie_break != "id" or end_of_word is not None or unknown_token is not None
    if teaching:
        if not isinstance(counts, Mapping):
            raise UsageError("unit, tie_break, end_of_word and unknown_token are for plain {word: count} mappings.")
        if num_merges is None:
            raise UsageError("the teaching modes take num_merges, not vocab_size.")
        unknown = options.keys() - {"min_pair_count", "max_token_bytes"}
        if unknown:
            raise UsageError(f"the option {min(unknown)!r} has no effect in the teaching modes: leave it out.")
        return reference.learn(  # type: ignore[call-overload,no-any-return]  # checked inside, with a sentence
            counts,
            num_merges,
            unit=unit,
            tie_break=tie_break,
            end_of_word=end_of_word,
            unknown_token=unknown_token,
            **options,
        )
    if isinstance(counts, (str, Path, RemotePath)):
        counts = CountTable.open(counts)
    if special_tokens is None:
        special_tokens = counts.special_tokens if isinstance(counts, CountTable) else ()
    specials = [special_token(token) for token in special_tokens]
    if vocab_size is None:
        vocab_size = BYTES + (num_merges or 0) + len(specials)
    config: LearnConfig = validate(LearnConfig, {"vocab_size": vocab_size, **options})
    if len(config.vocab_size) > 1:
        raise UsageError("one size is learned at a time here: take the largest, and `Vocabulary.cut` gives the others.")
    steps = Progress(progress)
    report = RunReport("")
    if isinstance(counts, CountTable):
        return run_learn(counts, config, specials, steps, report)[0]
    if config.mixture != Mixture():
        raise UsageError("a {word: count} mapping is one source: a mixture needs a count table.")
    batches = batches_of_mapping(counts)
    learned = _learn(batches, ["words"], config, specials, None, steps, report)
    form = normalization_form(normalization)
    return _vocabulary(learned, resolve(pattern), form, specials, config)


def run_learn(
    table: CountTable,
    config: LearnConfig,
    specials: Sequence[SpecialToken],
    progress: Progress,
    report: RunReport,
    dev: Corpus | None = None,
) -> tuple[Vocabulary, Learned, Weights | None]:
    """Learn from a table; see `learn`. Fills the report's vocabulary and bytes per token. No weights with parity."""
    pattern = resolve(table.pattern)
    for token in specials:
        if token.text not in table.special_tokens:
            warn(
                progress,
                report,
                f"the special token {token.text!r} was not cut out when the table was counted: where it stands in the "
                "text, its pieces were learned as ordinary words.",
            )
    memory = config.driver_memory or budget.available()
    check_memory(table, config.min_word_count, memory, kept=bool(config.parity), apart=bool(config.parity))
    weights = None
    if config.parity:
        learned = _learn_parity(table, config, specials, dev, progress, report)
    else:
        weights = config.mixture.weights(sizes_of(table, config.mixture.unit))
        report.mixture = [] if weights.natural else weights.rows()
        learned = _learn(table.batches, list(table.sources), config, specials, weights, progress, report)
    vocabulary = _vocabulary(learned, pattern, table.normalization, specials, config)
    report.vocabulary = vocabulary
    report.requested_size = config.largest
    for size in config.vocab_size:
        merges = size - BYTES - len(specials)
        for name, source in table.sources.items():
            # A merge takes one token away at each place it replaces, so what later merges took is put back.
            tokens = pc.sum(learned.tokens[name]).as_py() + (pc.sum(learned.replaced[name][merges:]).as_py() or 0)
            if tokens + source.special_tokens:
                report.curve.setdefault(size, {})[name] = source.bytes / (tokens + source.special_tokens)
    report.bytes_per_token = report.curve.get(config.largest, {})
    return vocabulary, learned, weights


def _learn(
    batches: Callable[[], Iterable[pa.RecordBatch]],
    sources: Sequence[str],
    config: LearnConfig,
    specials: Sequence[SpecialToken],
    weights: Weights | None,
    progress: Progress,
    report: RunReport,
) -> Learned:
    wanted = config.merges(specials)
    with progress.stage("learn", wanted, "merges") as stage, _rescaling(config):
        learned = learn_merges(
            batches,
            sources,
            wanted,
            weights=list(weights.integers.values()) if weights else None,
            jitter=weights is not None and weights.jitter,
            min_pair_count=weights.least(config.min_pair_count) if weights else config.min_pair_count,
            min_word_count=config.min_word_count,
            max_token_bytes=config.max_token_bytes,
            on_words=lambda words, memory: stage.advance(
                0, f"{words:,} unique words, about {human_bytes(memory)} of memory"
            ),
            on_merge=lambda done: stage.advance(done - stage.done),
        )
        stage.advance(len(learned) - stage.done)
    _tell_if_short(learned, config, wanted, progress, report)
    if weights and not weights.natural:
        raw = np.sum([to_numpy(array) for array in learned.replaced.values()], axis=0, dtype=np.uint64)
        few = int((raw < config.min_pair_count).sum())
        if few:
            warn(
                progress,
                report,
                f"{few:,} merges join pairs that stand fewer than {config.min_pair_count} times in the text: their "
                "sources have a weight above one. Raise min_pair_count if that is not wanted.",
            )
    return learned


def _learn_parity(
    table: CountTable,
    config: LearnConfig,
    specials: Sequence[SpecialToken],
    dev: Corpus | None,
    progress: Progress,
    report: RunReport,
) -> Learned:
    if config.mixture != Mixture():
        raise UsageError(
            "parity and a mixture exclude each other: parity looks at each language's counts by themselves."
        )
    wanted = config.merges(specials)
    trainer = Retrainer(table, config, specials, dev)
    with progress.stage("learn", wanted, "merges") as stage:
        merges = trainer.parity(str(config.parity), lambda done: stage.advance(done - stage.done))
        stage.advance(len(merges) - stage.done)
    names = [*trainer.sources, None]
    report.chosen = [names[-1 if i is None else i] for i in merges.column(3).to_pylist()]
    replaced, tokens = trainer.words.replay(merges.column(0), merges.column(1))
    learned = Learned(
        merges.select([0, 1, 2]),
        dict(zip(trainer.sources, replaced, strict=True)),
        dict(zip(trainer.sources, tokens, strict=True)),
        len(trainer.words),
    )
    _tell_if_short(learned, config, wanted, progress, report)
    return learned


def _tell_if_short(learned: Learned, config: LearnConfig, wanted: int, progress: Progress, report: RunReport) -> None:
    if len(learned) < wanted:
        warn(
            progress,
            report,
            f"the text ran out of pairs with a count of {config.min_pair_count} or more at merge {len(learned):,}: the "
            f"vocabulary has {config.largest - wanted + len(learned):,} tokens instead of {config.largest:,}.",
        )


@contextlib.contextmanager
def _rescaling(config: LearnConfig) -> Iterator[None]:
    try:
        yield
    except CountOverflowError as error:
        if config.mixture == Mixture():
            raise
        raise CountOverflowError(
            f"{str(error).rstrip('.')}; in a mixture that is its option scale, now {config.mixture.scale:,}."
        ) from error


def _vocabulary(
    learned: Learned,
    pattern: Pattern,
    normalization: Normalization | None,
    specials: Sequence[SpecialToken],
    config: LearnConfig,
) -> Vocabulary:
    left, right, counts = (tuple(column.to_pylist()) for column in learned.merges.columns)
    data = VocabularyData(
        tuple(zip(left, right, strict=True)),
        pattern,
        tuple(specials),
        special_tokens_first=config.special_tokens_first,
        normalization=normalization,
        counts=counts,
        replaced={name: tuple(array.to_pylist()) for name, array in learned.replaced.items()},
    )
    return Vocabulary(data.padded(config.pad_to_multiple) if config.pad_to_multiple else data)


def train(config: RunConfig, progress: Progress | None = None) -> RunReport:
    """The whole run: count, learn, export, and reload every file in its own library.

    Raises:
        UsageError: an option or input that cannot work; found before counting, and nothing is written then.
        ExportError: a library reads a file otherwise than we do.
    """
    if config.learn is None:
        raise UsageError("the run has no [learn] table; say at least how large the vocabulary is to be: vocab_size.")
    config.learn.merges(config.count.special_tokens)
    progress = progress or Progress()
    report = RunReport(config.output)
    table = run_count(config, progress, report)
    _learn_and_export(table, config.learn, config.count.special_tokens, config, progress, report)
    return report


def learn_and_export(
    run: str | RunPath,
    config: LearnConfig,
    special_tokens: Sequence[SpecialToken] | None = None,
    name: str | None = None,
    overwrite: bool = False,
    verify: bool = True,
    verify_transformers: bool = False,
    dev: Corpus | None = None,
    progress: Progress | None = None,
) -> RunReport:
    """Learn one more vocabulary from a run folder's table and export it beside the others.

    With `config.parity` on the parallel set `dev`.
    """
    table = CountTable.open(run)
    if special_tokens is None:
        special_tokens = [special_token(text) for text in table.special_tokens]
    else:
        check_special_tokens(special_tokens)
    progress = progress or Progress()
    progress.fields["run"] = str(at(run))
    report = RunReport(str(at(run)), table)
    options = _ExportOptions(run, name, overwrite, verify, verify_transformers)
    _learn_and_export(table, config, special_tokens, options, progress, report, dev)
    return report


@dataclass(frozen=True)
class _ExportOptions:
    """The part of a `RunConfig` that exporting looks at."""

    output: str | RunPath
    name: str | None
    overwrite: bool
    verify: bool
    verify_transformers: bool


def _learn_and_export(
    table: CountTable,
    config: LearnConfig,
    specials: Sequence[SpecialToken],
    options: "RunConfig | _ExportOptions",
    progress: Progress,
    report: RunReport,
    dev: Corpus | None = None,
) -> None:
    config.merges(specials)
    one = len(config.vocab_size) == 1
    folders = {}
    for size in config.vocab_size:
        name = str(size) if options.name is None else options.name if one else f"{options.name}-{size}"
        folders[size] = at(options.output) / VOCABULARIES / name
    if not options.overwrite:
        weights = None if config.parity else config.mixture.weights(sizes_of(table, config.mixture.unit))
        _refuse_finished(folders, lambda size: _fingerprints(table, _of_size(config, size), weights, dev))
    largest, learned, weights = run_learn(table, config, specials, progress, report, dev)
    with progress.stage("export", unit="files") as stage:
        for size, folder in folders.items():
            vocabulary = largest
            if size < config.largest:
                vocabulary = largest.cut(min(size, config.largest - config.merges(specials) + len(learned)))
                if config.pad_to_multiple:
                    vocabulary = Vocabulary(vocabulary.data.padded(config.pad_to_multiple))
            report.verification = export(
                vocabulary,
                folder,
                libraries=_libraries(options.verify, options.verify_transformers),
                fingerprints=_fingerprints(table, _of_size(config, size), weights, dev),
            )
            stage.advance(len(sizes(folder)))
            report.folders.append(folder)
    for text in not_carried(largest.data):
        warn(progress, report, text)
    report.stages = progress.records
    for folder in report.folders:
        write(folder / REPORT, to_json(report.as_json()))


def _of_size(config: LearnConfig, size: int) -> LearnConfig:
    return config.model_copy(update={"vocab_size": (size,)})


def _refuse_finished(folders: Mapping[int, RunPath], fingerprints: Callable[[int], dict[str, Any]]) -> None:
    """Refuse vocabularies that stand there, but not those that this very command left unfinished when it was killed.

    Raises:
        RunError: one was made otherwise, or all were finished: the report comes last.
    """
    whole = 0
    for size, folder in folders.items():
        if (folder / MANIFEST).exists():
            found = read_json(folder / MANIFEST).get("fingerprints")
            whole += (folder / REPORT).exists()
            if found != json.loads(to_json(fingerprints(size))) or whole == len(folders):
                raise RunError(f"{folder} is there already; choose another --name, or replace it with --overwrite.")


@dataclass
class BalanceReport:
    """What `balance` found: the rounds, what else was tried, the mixture's file, and what limits it."""

    reference: str
    rounds: list[Outcome] = field(default_factory=list)
    tried: list[tuple[str, Outcome]] = field(default_factory=list)
    best: tuple[str, Outcome] | None = None
    test: Outcome | None = None
    file: RunPath | None = None
    warnings: list[str] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        """The report as plain values."""
        return {
            "rounds": [outcome.as_json(self.reference) for outcome in self.rounds],
            "tried": [{"name": name} | outcome.as_json(self.reference) for name, outcome in self.tried],
            "best": {"name": self.best[0]} | self.best[1].as_json(self.reference) if self.best else None,
            "test": self.test.as_json(self.reference) if self.test else None,
            "warnings": self.warnings,
        }


def balance_run(
    run: str | RunPath,
    config: LearnConfig,
    *,
    dev: Corpus | None = None,
    test: Corpus | None = None,
    reference: str | None = None,
    targets: Mapping[str, float] | None = None,
    beta: float = math.inf,
    rounds: int | None = None,
    tolerance: float = 0.001,
    caps: Mapping[str, float] | None = None,
    floors: Mapping[str, float] | None = None,
    with_frontier: bool = False,
    with_search: bool = False,
    premium: float | None = None,
    output: str | RunPath | None = None,
    progress: Progress | None = None,
) -> BalanceReport:
    """Find the mixture under which languages cost the same (or the best one of a search) and write it as a file.

    Args:
        run: the folder of a count table.
        config: size and thresholds of the vocabulary; its mixture is not looked at.
        dev: see `Retrainer`; and `targets`.
        test: a parallel set that the result is measured on; it may share nothing with `dev`.
        reference: the language premiums compare with; English by default, or the one that costs least without dev.
        beta: see `balance`; and `rounds` (8, for a search 24), `tolerance`, `caps`, `floors`.
        with_frontier: also train temperatures and dials, to show what evenness costs.
        with_search: search instead, see `search`; and `premium`.
        output: the TOML file for the mixture; a JSON file beside it holds the report. By default
            `mixtures/balanced.toml` in the run folder.
        progress: who is told how it goes.

    Raises:
        UsageError: development and test text overlap, options that cannot work, or too little memory.
    """
    table = CountTable.open(run)
    progress = progress or Progress()
    progress.fields["run"] = str(at(run))
    specials = [special_token(text) for text in table.special_tokens]
    if dev is not None and test is not None:
        refuse_overlap(dev, test)
    if dev is not None and dev.documents is not None:
        reference = dev.reference(reference)
    check_memory(table, config.min_word_count, config.driver_memory or budget.available(), kept=True)
    with progress.stage("load", unit="words") as stage:
        trainer = Retrainer(table, config, specials, dev, targets)
        stage.advance(len(trainer.words), f"{human_bytes(trainer.words.memory_bytes)} of memory")
    if reference is None:
        outcome = trainer.train(Mixture())
        reference = min(outcome.costs, key=lambda name: (outcome.costs[name], name))
    elif reference not in trainer.languages:
        raise UsageError(f"there is no language {reference!r}; there are: {', '.join(trainer.languages)}.")
    report = BalanceReport(reference)
    if with_search:
        with progress.stage("search", unit="mixtures") as stage:
            name, best, report.tried = search(trainer, reference, premium=premium, rounds=rounds or 24)
            stage.advance(len(report.tried))
    else:
        with progress.stage("balance", rounds or 8, "rounds") as stage:

            def on_round(_: int, outcome: Outcome) -> None:
                report.rounds.append(outcome)
                stage.advance(1, f"Gini {outcome.gini:.4f}, worst {outcome.worst}")

            best, leaning = balance(
                trainer, beta=beta, rounds=rounds or 8, tolerance=tolerance, caps=caps, floors=floors, on_round=on_round
            )
        report.warnings = held_back(trainer, leaning, caps, floors)
        name = "balanced" if math.isinf(beta) else f"dial {beta:g}"
        if with_frontier:
            with progress.stage("frontier", unit="mixtures") as stage:
                report.tried = frontier(trainer, best)
                stage.advance(len(report.tried))
    report.best = (name, best)
    report.warnings += limits(table, dev, best, reference)
    for text in report.warnings:
        progress.warn(text)
    if test is not None:
        judge = Retrainer(table, config, specials, test, words=trainer.words)
        report.test = judge.measure(best.mixture, best.merges, time.perf_counter())
    report.file = at(output) if output else table.folder.parent / "mixtures" / "balanced.toml"
    report.file.parent.mkdir(parents=True, exist_ok=True)
    write(report.file, best.mixture.as_toml().encode())
    write(report.file.with_suffix(".json"), to_json(report.as_json()))
    return report


def _libraries(verify: bool, transformers: bool) -> tuple[str, ...] | None:
    if not verify:
        return None
    return (*DEFAULT_LIBRARIES, "transformers") if transformers else DEFAULT_LIBRARIES


def _fingerprints(
    table: CountTable, config: LearnConfig, weights: Weights | None, dev: Corpus | None
) -> dict[str, Any]:
    """What the vocabulary was made from: the documents, the table, and the options that decide the result."""
    return {
        "sources": {name: source.digest for name, source in table.sources.items()},
        "counts": table.digest,
        # The weights decide, not the words they were asked for with: equal ones shall give equal bytes.
        "options": config.model_dump(exclude={"driver_memory", "mixture"}),
        **({} if weights is None or weights.natural else {"mixture": weights.fingerprint()}),
        **({"development": dev.digest()} if dev and config.parity else {}),
    }


def export_vocabulary(
    path: str | RunPath,
    output: str | RunPath,
    formats: Sequence[str] | None,
    overwrite: bool,
    verify: bool,
    transformers: bool,
) -> list[str]:
    """Write a saved vocabulary in the given formats (by default all) to another folder; returns a line a library."""
    chosen_formats(formats)
    output = at(output)
    if output.exists() and any(output.iterdir()) and not overwrite:
        raise RunError(f"{output} is not empty; name another folder, or use --overwrite.")
    vocabulary = Vocabulary.load(path)
    outcome = export(vocabulary, output, formats, libraries=_libraries(verify, transformers))
    return [
        *(f"{library}: {text}" for library, text in outcome.items()),
        *(f"warning: {text}" for text in not_carried(vocabulary.data, formats)),
        f"files: {output}",
    ]
