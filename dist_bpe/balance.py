"""Balancing: find the weights under which languages cost the same, or nearly, by training again and again.

The words are loaded once; a round changes only their weights, trains to the full size, and counts the tokens of the
development text. Everything is deterministic: equal tables, options and text give equal rounds.

The rule. Let d_ℓ be the equal-document weight of ℓ (each language's documents count the same in all), x_ℓ = log w_ℓ -
log d_ℓ, c_ℓ its cost on the development text, and y_ℓ = log(c_ℓ / mean cost). The dial β asks for the fixed point
x_ℓ = β y_ℓ: 0 is equal documents, ∞ is equal cost. One Newton step with the elasticity e_ℓ = -dx_ℓ/dy_ℓ adds
(β y_ℓ - x_ℓ) / (1 + β / e_ℓ) to x_ℓ, which is e_ℓ y_ℓ for β = ∞. e_ℓ begins at 6 and is the secant through the last two
rounds afterwards, within 2 and 16: a fixed exponent needs three times the rounds, or swings.
"""

import hashlib
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dist_bpe import _core
from dist_bpe.config import LearnConfig
from dist_bpe.counts import CountTable
from dist_bpe.errors import UsageError
from dist_bpe.evaluate import Corpus, gini, words_of
from dist_bpe.formats import SpecialToken
from dist_bpe.mixture import REST, Mixture, sizes_of
from dist_bpe.pretokenize import PATTERNS, Normalization, find
from dist_bpe.storage import publish

FIRST_ELASTICITY = 6.0
ELASTICITIES = (2.0, 16.0)
# Weights may leave the equal-document ones by this factor unless the user says otherwise; 10^10 would overflow.
SPREAD = 100.0
# Of the mean cost: above it a language's words alone leave merges next to nothing to save.
FLOOR_SHARE = 0.85
SAME_LINES = 0.2
# Gini on unseen text is about this by the root of the development documents: .025 with 5, .010 with 50, .005 with 290.
UNSEEN = 0.07
SMALL_GINI = 0.01


@dataclass(frozen=True)
class Outcome:
    """One training and what it costs each language on the development text.

    Attributes:
        mixture: what was trained with, and `merges` its result.
        tokens: of each language's development text; `bytes` of the same text.
        costs: what is to be equal: tokens of a parallel set, or tokens per byte over the target.
        seconds: weighing, training and measuring together.
    """

    mixture: Mixture
    merges: pa.RecordBatch
    tokens: dict[str, int]
    bytes: dict[str, int]
    costs: dict[str, float]
    seconds: float

    @property
    def gini(self) -> float:
        """Of the costs."""
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


class Retrainer:
    """A count table in memory beside its development text, for many trainings.

    Args:
        table: what is learned from.
        config: size and thresholds; its mixture is not looked at.
        specials: the special tokens of the vocabulary, which take their part of the size.
        dev: a parallel set, whose tokens are the costs. Or any held-out text together with targets, or None to measure
            on the table itself: then a language's cost is its tokens per byte times its target.
        targets: for each language, and `*` for the rest, the bytes per token it is to have in relation to the others;
            1 by default.
        words: the table in memory, where another of these has it already.

    Raises:
        UsageError: a language of the development text that the table does not have; a target that has no language.
    """

    def __init__(
        self,
        table: CountTable,
        config: LearnConfig,
        specials: Sequence[SpecialToken],
        dev: Corpus | None = None,
        targets: Mapping[str, float] | None = None,
        words: _core.Table | None = None,
    ) -> None:
        self.sources = list(table.sources)
        self.table = table
        sizes = sizes_of(table, "bytes")
        # Tables of words that were counted elsewhere know no documents: bytes are the next best measure of content.
        known = all(source.documents or not source.words for source in table.sources.values())
        self.documents = sizes_of(table, "documents") if known else sizes
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
                words_of(Corpus(dev.name, texts), find(table.pattern), table.normalization), len(self.sources)
            )
            self.bytes = {name: sum(len(text.encode()) for text in texts) for name, texts in dev.texts.items()}
        else:
            self.dev = self.words
            self.bytes = {name: sizes[name] for name in self.languages}
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
        weights = mixture.weights(sizes_of(self.table, mixture.unit))
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


def balance(
    trainer: Retrainer,
    *,
    beta: float = math.inf,
    rounds: int = 8,
    tolerance: float = 0.001,
    caps: "Bounds" = None,
    floors: "Bounds" = None,
    start: Mapping[str, float] | None = None,
    on_round: Callable[[int, Outcome], None] | None = None,
) -> tuple[Outcome, dict[str, float]]:
    """Find the fixed point of the dial β, equal costs by default; see the head of this module.

    The best round is kept: that of the lowest Gini, or for a finite β the one nearest its fixed point. Rounds end when
    they are used up, when Gini (or the largest step still to go) is no more than `tolerance`, or when three in a row
    brought nothing better.

    Args:
        trainer: what is trained.
        beta: the dial, from 0.
        rounds: trainings at most.
        tolerance: where to stop.
        caps: for each language, and `*` for the rest, the most its weight may be over its equal-document weight.
        floors: the least, likewise; 100 and 1/100 by default.
        start: leanings (x_ℓ) to begin with; none by default.
        on_round: told of each round as it ends, from 1.

    Returns:
        The best round, and its leanings.
    """
    bounds = _bounds(trainer, caps, floors)
    x = {name: (start or {}).get(name, 0.0) for name in trainer.languages}
    elasticity = dict.fromkeys(x, FIRST_ELASTICITY)
    best: tuple[float, Outcome, dict[str, float]] | None = None
    before: tuple[dict[str, float], dict[str, float]] | None = None
    since = 0
    for number in range(1, rounds + 1):
        # Only proportions count; a mean leaning of nothing is what the bounds are relative to.
        centre = sum(x.values()) / len(x)
        x = {name: min(max(value - centre, bounds[name][0]), bounds[name][1]) for name, value in x.items()}
        outcome = trainer.train(trainer.mixture(x))
        mean = sum(outcome.costs.values()) / len(x)
        y = {name: math.log(cost / mean) for name, cost in outcome.costs.items()}
        if before is not None:
            for name in x:
                moved, answered = x[name] - before[0][name], y[name] - before[1][name]
                if abs(moved) > 1e-4 and moved * answered < 0:
                    elasticity[name] = min(max(-moved / answered, ELASTICITIES[0]), ELASTICITIES[1])
        before = (x, y)
        if math.isinf(beta):
            step = {name: elasticity[name] * y[name] for name in x}
            distance = outcome.gini
        else:
            step = {name: (beta * y[name] - x[name]) / (1 + beta / elasticity[name]) for name in x}
            distance = max(map(abs, step.values()))
        if on_round:
            on_round(number, outcome)
        since += 1
        if best is None or distance < best[0]:
            best, since = (distance, outcome, x), 0
        if best[0] <= tolerance or since >= 3:
            break
        x = {name: x[name] + step[name] for name in x}
    assert best is not None  # noqa: S101  # there is one round at least
    return best[1], best[2]


Bounds = Mapping[str, float] | None


def _bounds(trainer: Retrainer, caps: Bounds, floors: Bounds) -> dict[str, tuple[float, float]]:
    """The least and the most leaning of each language."""
    bounds = {}
    for name in trainer.languages:
        low, high = (
            (given or {}).get(name, (given or {}).get(REST, default))
            for given, default in ((floors, 1 / SPREAD), (caps, SPREAD))
        )
        for value in (low, high):
            if not 0 < value < math.inf:
                raise UsageError(f"the bound {value:g} of {name!r} must be a number above 0.")
        if low > high:
            raise UsageError(f"the floor {low:g} of {name!r} is above its cap {high:g}.")
        bounds[name] = (math.log(low), math.log(high))
    return bounds


def held_back(
    trainer: Retrainer, leaning: Mapping[str, float], caps: Bounds = None, floors: Bounds = None
) -> list[str]:
    """Sentences on languages whose weight stands at a bound, so that their costs may not be equal."""
    bounds = _bounds(trainer, caps, floors)
    found = []
    for side, option in enumerate(("floor", "cap")):
        names = [name for name, value in leaning.items() if abs(value - bounds[name][side]) < 1e-9]
        if names:
            found.append(
                f"the {option} holds the weight of {', '.join(names)}: their cost is as even as the bound lets it be."
            )
    return found


TEMPERATURES = (1.0, 0.7, 0.5, 0.3, 0.0)
DIALS = (0.0, 1.0, 2.0, 4.0, 8.0)


def frontier(trainer: Retrainer, balanced: Outcome, rounds: int = 3) -> list[tuple[str, Outcome]]:
    """What evenness costs: temperatures 1 to 0 by bytes, the dial β from equal documents on, and the balanced mixture.

    Each β begins where the one before it ended, and takes so many rounds at most.
    """
    points = [(f"temperature {alpha:g}", trainer.train(Mixture(alpha=alpha))) for alpha in TEMPERATURES]
    leaning: dict[str, float] = {}
    for beta in DIALS:
        outcome, leaning = balance(trainer, beta=beta, rounds=rounds if beta else 1, tolerance=0.02, start=leaning)
        points.append((f"dial {beta:g}" if beta else "equal documents", outcome))
    return [*points, ("balanced", balanced)]


def search(
    trainer: Retrainer, reference: str, *, premium: float | None = None, rounds: int = 24
) -> tuple[str, Outcome, list[tuple[str, Outcome]]]:
    """Of the mixtures tried, the one with most bytes per token (macro) at a worst premium of `premium` or less, or,
    without one, the one whose worst language costs least.

    The rounds are spent on the frontier first: temperatures, then the dial from 1 on, doubled. What is left halves, on
    a logarithmic scale, the gap between the best dial and its better neighbour. Costs need not fall evenly along the
    dial, so this is a search and no proof.

    Returns:
        The name of the best, its outcome, and all that were tried. Under a premium that nothing reached, the best is
        the one of the lowest worst premium.

    Raises:
        UsageError: a premium below 1, or fewer than 12 rounds.
    """
    if premium is not None and premium < 1:
        raise UsageError(f"a premium of {premium:g} cannot be reached: the reference itself has 1.")
    if rounds < 12:
        raise UsageError("a search needs 12 rounds at least.")
    tried = [(f"temperature {alpha:g}", trainer.train(Mixture(alpha=alpha))) for alpha in TEMPERATURES]
    dials: dict[float, tuple[Outcome, dict[str, float]]] = {}
    left = rounds - len(tried)

    def score(outcome: Outcome) -> tuple[float, ...]:
        worst = max(outcome.premiums(reference).values())
        if premium is None:
            return (outcome.costs[outcome.worst], -outcome.macro_bytes_per_token)
        # Those within the premium first, by bytes per token; then the others by how far they are from it.
        return (0.0, -outcome.macro_bytes_per_token) if worst <= premium else (1.0, worst)

    def try_dial(beta: float) -> None:
        nonlocal left
        nearest = min(dials, key=lambda known: abs(math.log(known / beta)), default=None)
        used = 0

        def spend(number: int, _: Outcome) -> None:
            nonlocal used
            used = number

        start = dials[nearest][1] if nearest is not None else None
        dials[beta] = balance(trainer, beta=beta, rounds=min(2, left), tolerance=0.02, start=start, on_round=spend)
        left -= used
        tried.append((f"dial {beta:g}", dials[beta][0]))

    for beta in (1.0, 4.0, 16.0, 64.0):
        if left:
            try_dial(beta)
    while left:
        order = sorted(dials)
        at = order.index(min(order, key=lambda beta: (score(dials[beta][0]), beta)))
        neighbours = [order[i] for i in (at - 1, at + 1) if 0 <= i < len(order)]
        other = min(neighbours, key=lambda beta: (score(dials[beta][0]), beta))
        middle = math.sqrt(order[at] * other)
        if abs(math.log(order[at] / other)) < 0.05:
            break
        try_dial(middle)
    name, outcome = min(tried, key=lambda item: (score(item[1]), item[0]))
    return name, outcome, tried


# ---- what limits it


def warnings(table: CountTable, dev: Corpus | None, outcome: Outcome, reference: str) -> list[str]:
    """What limits a balance: a small development set, a pattern whose floor binds, text that is not translated."""
    found = []
    if dev is None:
        return ["measured on the training text itself: say how even it is on held-out text by `dist-bpe evaluate`."]
    if dev.documents is not None:
        expected = UNSEEN / math.sqrt(len(dev.documents))
        if expected > SMALL_GINI:
            found.append(
                f"the development set has {len(dev.documents):,} documents only: on unseen text expect a Gini of about "
                f"{expected:.3f} whatever it is here."
            )
        same = _same_lines(dev, reference)
        if same:
            found.append(
                f"development text that equals that of {reference} line by line, which is not translated or the same "
                f"language: {', '.join(f'{name} {share:.0%}' for name, share in same.items())}."
            )
        bound = _floors(dev, table, outcome)
        if bound:
            found.append(bound)
    silent = [name for name in table.sources if name not in outcome.tokens]
    if silent:
        found.append(f"sources without development text keep their equal-document weight: {', '.join(silent)}.")
    return found


def _same_lines(dev: Corpus, reference: str) -> dict[str, float]:
    shares = {}
    for name, texts in dev.texts.items():
        if name == reference:
            continue
        same = lines = 0
        for text, other in zip(texts, dev.texts[reference], strict=True):
            known = set(other.split("\n"))
            own = [line for line in text.split("\n") if line.strip()]
            lines += len(own)
            same += sum(line in known for line in own)
        if lines and same / lines > SAME_LINES:
            shares[name] = same / lines
    return shares


def _floors(dev: Corpus, table: CountTable, outcome: Outcome) -> str:
    """A sentence on languages whose words alone cost about as much as others' tokens; empty if there are none."""
    mean = sum(outcome.tokens.values()) / len(outcome.tokens)
    pattern = table.pattern
    words = _word_totals(dev, pattern, table.normalization)
    bound = [name for name, number in words.items() if number > FLOOR_SHARE * mean]
    if not bound:
        return ""
    here = sum(words[name] for name in bound)
    others = {
        name: sum(_word_totals(dev, name, table.normalization)[lang] for lang in bound)
        for name in PATTERNS
        # Rules for digits matter to few languages, and a pattern that cuts nothing sets no floor and no border either.
        if name not in (pattern, "none") and "+" not in name
    }
    least = min(others, key=lambda name: (others[name], name))
    advice = (
        f"the pattern {least} cuts them into {others[least] / here:.0%} as many words"
        if others[least] < 0.9 * here
        else "no named pattern cuts them into fewer"
    )
    return (
        f"the pattern {pattern!r} sets a floor: the words alone of {', '.join(bound)} are "
        f"{min(words[name] for name in bound) / mean:.0%} or more of the mean of all languages' tokens; {advice}."
    )


def _word_totals(dev: Corpus, pattern: str, normalization: Normalization | None) -> dict[str, int]:
    totals = [0] * len(dev.texts)
    for batch in words_of(dev, find(pattern), normalization):
        for source, count in zip(batch.column(1).to_pylist(), batch.column(2).to_pylist(), strict=True):
            totals[source] += count
    return dict(zip(dev.texts, totals, strict=True))


# ---- development and test sets


def split(corpus: Corpus, seed: int = 0, dev: float = 0.5) -> tuple[Corpus, Corpus]:
    """Split a parallel set into development and test documents by SHA-256 of seed and document name.

    A document goes to the same side in every language, in every run, and whatever other documents there are.
    """
    assert corpus.documents is not None  # noqa: S101  # checked by those who read it

    def first(document: str) -> bool:
        digest = hashlib.sha256(f"{seed}\n{document}".encode()).digest()
        return int.from_bytes(digest[:8], "big") < dev * 2**64

    sides = []
    for side in (True, False):
        keep = [i for i, document in enumerate(corpus.documents) if first(document) is side]
        texts = {name: [documents[i] for i in keep] for name, documents in corpus.texts.items()}
        sides.append(Corpus(corpus.name, texts, tuple(corpus.documents[i] for i in keep)))
    if not sides[0].documents or not sides[1].documents:
        raise UsageError(
            f"{corpus.name} has {len(corpus.documents)} documents, which leaves one side without any: take another "
            "seed or share."
        )
    return sides[0], sides[1]


def write_parallel(corpus: Corpus, path: Path) -> None:
    """Write a parallel set as Parquet with the columns lang, doc, text."""
    rows = [
        (lang, document, text)
        for lang, texts in corpus.texts.items()
        for document, text in zip(corpus.documents or (), texts, strict=True)
    ]
    lang, doc, text = (pa.array(column, pa.string()) for column in zip(*rows, strict=True))
    with publish(path) as temporary:
        pq.write_table(pa.table({"lang": lang, "doc": doc, "text": text}), temporary, compression="zstd")


def refuse_overlap(dev: Corpus, test: Corpus) -> None:
    """Raise if a test set shares a document with the development set, by name or by text.

    Raises:
        UsageError: it does.
    """
    shared = sorted(set(dev.documents or ()) & set(test.documents or ()))
    if not shared:
        known = {text for texts in dev.texts.values() for text in texts if text.strip()}
        names = test.documents or range(len(next(iter(test.texts.values()))))
        shared = sorted(
            {
                str(name)
                for texts in test.texts.values()
                for name, text in zip(names, texts, strict=False)
                if text in known
            }
        )
    if shared:
        raise UsageError(
            f"the test set shares {len(shared):,} documents with the development set, such as {shared[0]!r}: weights "
            "were fitted to those. Split one set in two with `dist-bpe split`."
        )


def plot(points: Sequence[tuple[str, Outcome]], path: Path) -> None:
    """Draw the frontier: Gini against macro bytes per token.

    Raises:
        UsageError: matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise UsageError("plots need matplotlib: pip install 'dist_bpe[plots]'.") from error
    figure = Figure(figsize=(7, 5), layout="constrained")
    axes = figure.add_subplot()
    for kind, marker in (("temperature", "o"), ("dial", "s"), ("other", "D")):
        chosen = [p for name, p in points if kind == (name.split()[0] if name[-1].isdigit() else "other")]
        axes.plot([p.gini for p in chosen], [p.macro_bytes_per_token for p in chosen], marker, label=kind)
    for name, outcome in points:
        place = (outcome.gini, outcome.macro_bytes_per_token)
        axes.annotate(name, place, fontsize=7, xytext=(4, 3), textcoords="offset points")
    axes.set_xlabel("Gini of the costs on the development text (0: all pay the same)")
    axes.set_ylabel("bytes per token, mean of the languages")
    axes.legend()
    with publish(path) as temporary:
        figure.savefig(temporary, format=path.suffix.removeprefix(".") or "png")
