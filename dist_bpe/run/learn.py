"""From a count table to a vocabulary."""

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from dist_bpe import memory
from dist_bpe.arrays import to_numpy
from dist_bpe.corpus.heldout import HeldOut
from dist_bpe.counting.table import CountTable
from dist_bpe.errors import CountOverflowError, RunError, UsageError
from dist_bpe.learning.memory import check_memory
from dist_bpe.learning.merges import Learned, learn_merges
from dist_bpe.learning.mixture import Mixture, Weights
from dist_bpe.learning.options import LearnOptions
from dist_bpe.learning.trainer import Trainer
from dist_bpe.options import both
from dist_bpe.pretokenize.checks import resolve
from dist_bpe.pretokenize.patterns import Pattern
from dist_bpe.pretokenize.preparation import Normalization, SpecialToken
from dist_bpe.progress import Progress, human_bytes
from dist_bpe.vocabulary.data import BYTES, VocabularyData
from dist_bpe.vocabulary.vocabulary import Vocabulary


@dataclass
class Training:
    """What learning from a table gave.

    Attributes:
        vocabulary: the largest one asked for; the smaller ones are its beginnings.
        learned: its merges, and what each source gave them.
        weights: how much each source counted; None with parity.
        curve: bytes per token by vocabulary size and source, for each size asked for.
        chosen: with parity, the language that chose each merge, None where all did.
    """

    vocabulary: Vocabulary
    learned: Learned
    weights: Weights | None
    curve: dict[int, dict[str, float]] = field(default_factory=dict)
    chosen: list[str | None] = field(default_factory=list)


def run_learn(
    table: CountTable,
    options: LearnOptions,
    specials: Sequence[SpecialToken],
    dev: HeldOut | None,
    progress: Progress,
) -> Training:
    """Learn from a table; see `api.making.learn`."""
    for token in specials:
        if token.text not in table.special_tokens:
            progress.warn(
                f"the special token {token.text!r} was not cut out when the table was counted: where it stands in the "
                "text, its pieces were learned as ordinary words."
            )
    free = options.driver_memory or memory.available()
    check_memory(table, options.min_word_count, free, kept=bool(options.parity), apart=bool(options.parity))
    weights = None
    chosen: list[str | None] = []
    if options.parity:
        learned, chosen = _learn_parity(table, options, specials, dev, progress)
    else:
        weights = options.mixture.weights(table.sizes(options.mixture.unit))
        learned = learn_words(table.batches, list(table.sources), options, weights, specials, progress)
    made = Made(resolve(table.pattern), table.normalization, specials, options)
    training = Training(vocabulary_of(learned, made), learned, weights, chosen=chosen)
    for size in options.vocab_size:
        training.curve[size] = learned.bytes_per_token(size - BYTES - len(specials))
    return training


def learn_words(
    batches: Callable[[], Iterable[pa.RecordBatch]],
    sources: Sequence[str],
    options: LearnOptions,
    weights: Weights | None,
    specials: Sequence[SpecialToken],
    progress: Progress,
) -> Learned:
    """Learn the merges that fill the largest vocabulary asked for; see `learn_merges`."""
    wanted = options.merges(specials)
    with progress.stage("learn", wanted, "merges") as stage, _rescaling(options):
        learned = learn_merges(
            batches,
            sources,
            wanted,
            options,
            weights,
            on_words=lambda words, memory: stage.advance(
                0, f"{words:,} unique words, about {human_bytes(memory)} of memory"
            ),
            on_merge=lambda done: stage.advance(done - stage.done),
        )
        stage.advance(len(learned) - stage.done)
    _warn_if_short(learned, options, wanted, progress)
    if weights and not weights.natural:
        raw = np.sum([to_numpy(array) for array in learned.replaced.values()], axis=0, dtype=np.uint64)
        few = int((raw < options.min_pair_count).sum())
        if few:
            progress.warn(
                f"{few:,} merges join pairs that stand fewer than {options.min_pair_count} times in the text: their "
                f"sources have a weight above one. Raise {both(LearnOptions, 'min_pair_count')} if that is not wanted."
            )
    return learned


def _learn_parity(
    table: CountTable,
    options: LearnOptions,
    specials: Sequence[SpecialToken],
    dev: HeldOut | None,
    progress: Progress,
) -> tuple[Learned, list[str | None]]:
    """Parity-aware merges, and the language that chose each."""
    if options.mixture != Mixture():
        raise UsageError(
            "parity and a mixture exclude each other: parity looks at each language's counts by themselves."
        )
    wanted = options.merges(specials)
    trainer = Trainer(table, options, specials, dev)
    with progress.stage("learn", wanted, "merges") as stage:
        merges = trainer.parity(str(options.parity), lambda done: stage.advance(done - stage.done))
        stage.advance(len(merges) - stage.done)
    names = [*trainer.sources, None]
    chosen = [names[-1 if i is None else i] for i in merges.column(3).to_pylist()]
    replaced, tokens = trainer.words.replay(merges.column(0), merges.column(1))
    learned = Learned(
        merges.select([0, 1, 2]),
        dict(zip(trainer.sources, replaced, strict=True)),
        dict(zip(trainer.sources, tokens, strict=True)),
        len(trainer.words),
    )
    _warn_if_short(learned, options, wanted, progress)
    return learned, chosen


def _warn_if_short(learned: Learned, options: LearnOptions, wanted: int, progress: Progress) -> None:
    """Say that the vocabulary is smaller than the size that was asked for, or with `strict` raise it.

    Raises:
        RunError: it is, and `strict` was asked for.
    """
    if len(learned) >= wanted:
        return
    size = options.largest - wanted + len(learned)
    short = f"the vocabulary has {size:,} tokens instead of the {options.largest:,} that were asked for: "
    reason = (
        f"the text ran out of pairs with a count of {options.min_pair_count:,} or more at merge {len(learned):,}"
        + (f" (no token may have more than {options.max_token_bytes:,} bytes)" if options.max_token_bytes else "")
        + "."
    )
    way_out = f" Count more text, ask for {size:,} tokens or fewer"
    way_out += f", or lower {both(LearnOptions, 'min_pair_count')}." if options.min_pair_count > 1 else "."
    if options.strict:
        raise RunError(
            short
            + reason
            + way_out
            + f" No vocabulary was written, since {both(LearnOptions, 'strict')} was asked for."
        )
    progress.warn(short + reason + " A folder named after a size keeps the one asked for." + way_out)


@contextlib.contextmanager
def _rescaling(options: LearnOptions) -> Iterator[None]:
    try:
        yield
    except CountOverflowError as error:
        if options.mixture == Mixture():
            raise
        raise CountOverflowError(
            f"{str(error).rstrip('.')}; in a mixture that is its option scale, now {options.mixture.scale:,}."
        ) from error


class Made(NamedTuple):
    """What a vocabulary is beside its merges."""

    pattern: Pattern
    normalization: Normalization | None
    specials: Sequence[SpecialToken]
    options: LearnOptions


def vocabulary_of(learned: Learned, made: Made) -> Vocabulary:
    """The vocabulary of some merges."""
    left, right, counts = learned.merges.columns
    data = VocabularyData(
        tuple(zip(to_numpy(left).tolist(), to_numpy(right).tolist(), strict=True)),
        made.pattern,
        tuple(made.specials),
        special_tokens_first=made.options.special_tokens_first,
        normalization=made.normalization,
        counts=counts,
        replaced=learned.replaced,
    )
    return Vocabulary(data.padded(made.options.pad_to_multiple) if made.options.pad_to_multiple else data)
