"""Learning many times from a table in memory, and parity-aware merges."""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dist_bpe import _core
from dist_bpe.arrays import of_numpy
from dist_bpe.corpus.heldout import HeldOut, words_of
from dist_bpe.counting.table import CountTable
from dist_bpe.errors import UsageError
from dist_bpe.formulas import gini
from dist_bpe.learning.mixture import REST, Mixture
from dist_bpe.learning.options import LearnOptions
from dist_bpe.pretokenize.patterns import find
from dist_bpe.pretokenize.preparation import SpecialToken


@dataclass(frozen=True)
class Outcome:
    """One training and what it costs each language on the development text.

    Attributes:
        mixture: what was trained with.
        merges: the result.
        tokens: how many tokens each language's development text takes.
        bytes: how many bytes the same text has.
        costs: what is to be equal: tokens of a parallel set, or tokens per byte times the target.
        seconds: for weighing, training and measuring together.
    """

    mixture: Mixture
    merges: pa.RecordBatch
    tokens: dict[str, int]
    bytes: dict[str, int]
    costs: dict[str, float]
    seconds: float

    def __repr__(self) -> str:
        return f"<Outcome: Gini {self.gini:.4f}, worst {self.worst!r}, {sum(self.tokens.values()):,} tokens>"

    @property
    def gini(self) -> float:
        """The Gini coefficient of the costs."""
        return gini(list(self.costs.values()))

    @property
    def worst(self) -> str:
        """The language that costs most."""
        return max(self.costs, key=lambda name: (self.costs[name], name))

    @property
    def max_over_min(self) -> float:
        """The largest cost over the smallest."""
        return max(self.costs.values()) / min(self.costs.values())

    @property
    def macro_bytes_per_token(self) -> float:
        """The mean of the languages' ratios."""
        return sum(self.bytes[name] / tokens for name, tokens in self.tokens.items()) / len(self.tokens)

    def premiums(self, reference: str) -> dict[str, float]:
        """Each language's cost over the reference's."""
        return {name: cost / self.costs[reference] for name, cost in self.costs.items()}

    def as_json(self, reference: str) -> dict[str, Any]:
        """Everything but the merges, as plain values."""
        premiums = self.premiums(reference)
        return {
            "multipliers": {name: float(value) for name, value in self.mixture.multipliers.items()},
            "alpha": None if self.mixture.alpha is None else float(self.mixture.alpha),
            "tokens": self.tokens,
            "premiums": premiums,
            "reference": reference,
            "gini": self.gini,
            "worst_language": self.worst,
            "worst_tokens": self.tokens[self.worst],
            "worst_premium": max(premiums.values()),
            "max_over_min": self.max_over_min,
            "macro_bytes_per_token": self.macro_bytes_per_token,
            "all_tokens": sum(self.tokens.values()),
            "seconds": self.seconds,
        }


class Trainer:
    """A count table in memory beside its development text, for many trainings.

    Args:
        table: what is learned from.
        config: size and thresholds; its mixture is ignored.
        specials: the special tokens of the vocabulary, which count towards the size.
        dev: a parallel set, whose tokens are the costs. Or any held-out text together with targets, or None to measure
            on the table itself: then a language's cost is its tokens per byte times its target, both of the words that
            the table holds: special tokens, and words that were dropped, are in neither.
        targets: for each language, and `*` for the rest, the bytes per token it is to have in relation to the others;
            1 by default.
        words: the table in memory, where another trainer has it already.

    Raises:
        UsageError: a language of the development text that the table does not have; a target that has no language.
    """

    def __init__(
        self,
        table: CountTable,
        config: LearnOptions,
        specials: Sequence[SpecialToken],
        dev: HeldOut | None = None,
        targets: Mapping[str, float] | None = None,
        words: _core.Table | None = None,
    ) -> None:
        self.sources = list(table.sources)
        self.table = table
        sizes = table.sizes("bytes")
        # Tables of words that were counted elsewhere know no documents: bytes are the next best measure of content.
        known = all(source.documents or not source.words for source in table.sources.values())
        self.documents = table.sizes("documents") if known else sizes
        self.config = config
        self.merges = config.merges(specials)
        self.words = words if words is not None else _core.Table(table.batches(), len(self.sources))
        self.languages = [name for name in self.sources if table.sources[name].bytes]
        if dev is not None:
            unknown = next((name for name in dev.texts if name not in self.languages), None)
            if unknown is not None:
                raise UsageError(
                    f"{dev.name} has the language {unknown!r}, which the count table does not have as a source; it "
                    f"has: {', '.join(self.languages)}."
                )
            self.languages = list(dev.texts)
            # Numbered as the table's sources are.
            texts = {name: dev.texts.get(name, []) for name in self.sources}
            self.dev = _core.Table(
                words_of(HeldOut(dev.name, texts), find(table.pattern), table.normalization), len(self.sources)
            )
            self.bytes = {name: sum(len(text.encode()) for text in texts) for name, texts in dev.texts.items()}
        else:
            self.dev = self.words
            # Without any merge each byte is a token, and so these are the bytes of the words that the table holds.
            nothing = of_numpy(np.zeros(0, np.uint32))
            _, left = self.words.replay(nothing, nothing)
            held = {name: pc.sum(array).as_py() or 0 for name, array in zip(self.sources, left, strict=True)}
            self.languages = [name for name in self.languages if held[name]]
            if not self.languages:
                raise UsageError(f"{table.folder} holds no words to measure on.")
            self.bytes = {name: held[name] for name in self.languages}
        empty = next((name for name in self.languages if not self.bytes[name]), None)
        if empty is not None:
            raise UsageError(f"{dev.name if dev else table.folder} has no text of {empty!r} to measure on.")
        self.parallel = dev is not None and dev.documents is not None
        for name in targets or {}:
            if name != REST and name not in self.languages:
                raise UsageError(f"a target names {name!r}; there are: {', '.join(self.languages)}.")
        if targets and self.parallel:
            raise UsageError("a parallel set says itself what is equal: targets are for text that is not parallel.")
        self.targets = {name: (targets or {}).get(name, (targets or {}).get(REST, 1.0)) for name in self.languages}
        bad = next((name for name, target in self.targets.items() if not 0 < target < math.inf), None)
        if bad is not None:
            raise UsageError(f"the target of {bad!r} is {self.targets[bad]:g}; it must be a number above 0.")

    def train(self, mixture: Mixture) -> Outcome:
        """Weigh, train, measure."""
        began = time.perf_counter()
        weights = mixture.weights(self.table.sizes(mixture.unit))
        numbers = list(weights.integers.values())
        words = self.words.words(numbers, self.config.min_word_count, weights.jitter)
        least = weights.least(self.config.min_pair_count)
        merges = _core.learn_merges(words, self.merges, least, self.config.max_token_bytes)
        return self.measure(mixture, merges, began)

    def measure(self, mixture: Mixture, merges: pa.RecordBatch, began: float) -> Outcome:
        """What merges cost each language; `began` is the time to count seconds from."""
        _, left = self.dev.replay(merges.column(0), merges.column(1))
        counted = {name: pc.sum(array).as_py() or 0 for name, array in zip(self.sources, left, strict=True)}
        tokens = {name: counted[name] for name in self.languages}
        costs = {name: float(number) for name, number in tokens.items()}
        if not self.parallel:
            costs = {name: self.targets[name] * number / self.bytes[name] for name, number in tokens.items()}
        return Outcome(mixture, merges, tokens, self.bytes, costs, time.perf_counter() - began)

    def parity(self, rule: str, on_merge: Callable[[int], None] | None = None) -> pa.RecordBatch:
        """Parity-aware merges by one of `PARITY_RULES`, with the language that chose each; see `_core.learn_parity`.

        Raises:
            UsageError: no parallel set, or one that lacks a language of the table.
        """
        missing = next((name for name in self.sources if name not in self.languages), None)
        if not self.parallel or missing is not None:
            raise UsageError(
                "parity needs a parallel set with every language of the table (--dev)"
                + (f": it lacks {missing!r}." if missing is not None else ".")
            )
        options: dict[str, Any] = {"dev": self.dev}
        if rule == "ratio":
            options = {"ratios": [self.bytes[name] for name in self.sources]}
        elif rule == "window":
            options["window"] = 100
        elif rule == "hybrid":
            options["summed_merges"] = self.merges // 2
        return _core.learn_parity(
            self.words,
            self.merges,
            min_pair_count=self.config.min_pair_count,
            min_word_count=self.config.min_word_count,
            max_token_bytes=self.config.max_token_bytes,
            progress=on_merge,
            **options,
        )

    def mixture(self, leaning: Mapping[str, float]) -> Mixture:
        """The mixture of equal-document weights times exp(leaning) for each language, six digits of each.

        Sources without development text keep their equal-document weight.
        """
        mean = sum(self.documents.values()) / len(self.documents)
        multipliers = {
            name: Fraction(f"{mean / documents * math.exp(leaning.get(name, 0.0)):.6g}")
            for name, documents in self.documents.items()
            if documents
        }
        return Mixture(multipliers=multipliers, jitter=True)
