"""From a count table to a vocabulary."""

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dist_bpe import memory
from dist_bpe.arrays import to_numpy
from dist_bpe.corpus.heldout import HeldOut
from dist_bpe.counting.table import CountTable
from dist_bpe.errors import CountOverflowError, UsageError
from dist_bpe.learning.memory import check_memory
from dist_bpe.learning.merges import Learned, learn_merges
from dist_bpe.learning.mixture import Mixture, Weights
from dist_bpe.learning.options import LearnOptions
from dist_bpe.learning.trainer import Trainer
from dist_bpe.pretokenize.checks import resolve
from dist_bpe.pretokenize.patterns import Pattern
from dist_bpe.pretokenize.preparation import Normalization, SpecialToken
from dist_bpe.progress import Progress, human_bytes
from dist_bpe.run.report import RunReport, warn
from dist_bpe.vocabulary.data import BYTES, VocabularyData
from dist_bpe.vocabulary.vocabulary import Vocabulary


def run_learn(
    table: CountTable,
    config: LearnOptions,
    specials: Sequence[SpecialToken],
    progress: Progress,
    report: RunReport,
    dev: HeldOut | None = None,
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
    free = config.driver_memory or memory.available()
    check_memory(table, config.min_word_count, free, kept=bool(config.parity), apart=bool(config.parity))
    weights = None
    if config.parity:
        learned = _learn_parity(table, config, specials, dev, progress, report)
    else:
        weights = config.mixture.weights(table.sizes(config.mixture.unit))
        report.mixture = [] if weights.natural else weights.rows()
        learned = learn_from(table.batches, list(table.sources), config, specials, weights, progress, report)
    vocabulary = vocabulary_of(learned, pattern, table.normalization, specials, config)
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


def learn_from(
    batches: Callable[[], Iterable[pa.RecordBatch]],
    sources: Sequence[str],
    config: LearnOptions,
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
    config: LearnOptions,
    specials: Sequence[SpecialToken],
    dev: HeldOut | None,
    progress: Progress,
    report: RunReport,
) -> Learned:
    if config.mixture != Mixture():
        raise UsageError(
            "parity and a mixture exclude each other: parity looks at each language's counts by themselves."
        )
    wanted = config.merges(specials)
    trainer = Trainer(table, config, specials, dev)
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


def _tell_if_short(learned: Learned, config: LearnOptions, wanted: int, progress: Progress, report: RunReport) -> None:
    if len(learned) < wanted:
        warn(
            progress,
            report,
            f"the text ran out of pairs with a count of {config.min_pair_count} or more at merge {len(learned):,}: the "
            f"vocabulary has {config.largest - wanted + len(learned):,} tokens instead of {config.largest:,}.",
        )


@contextlib.contextmanager
def _rescaling(config: LearnOptions) -> Iterator[None]:
    try:
        yield
    except CountOverflowError as error:
        if config.mixture == Mixture():
            raise
        raise CountOverflowError(
            f"{str(error).rstrip('.')}; in a mixture that is its option scale, now {config.mixture.scale:,}."
        ) from error


def vocabulary_of(
    learned: Learned,
    pattern: Pattern,
    normalization: Normalization | None,
    specials: Sequence[SpecialToken],
    config: LearnOptions,
) -> Vocabulary:
    left, right, counts = learned.merges.columns
    data = VocabularyData(
        tuple(zip(to_numpy(left).tolist(), to_numpy(right).tolist(), strict=True)),
        pattern,
        tuple(specials),
        special_tokens_first=config.special_tokens_first,
        normalization=normalization,
        counts=counts,
        replaced=learned.replaced,
    )
    return Vocabulary(data.padded(config.pad_to_multiple) if config.pad_to_multiple else data)
