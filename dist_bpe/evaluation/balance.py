"""Balancing: find the weights under which languages cost the same, or nearly, by training again and again.

The words are loaded once; a round changes only their weights, trains to the full size, and counts the tokens of the
development text. Everything is deterministic: equal tables, options and text give equal rounds.

The rule. Let d_ℓ be the equal-document weight of ℓ (each language's documents count the same in all), x_ℓ = log w_ℓ -
log d_ℓ, c_ℓ its cost on the development text, and y_ℓ = log(c_ℓ / mean cost). The dial β asks for the fixed point
x_ℓ = β y_ℓ: 0 is equal documents, ∞ is equal cost. One Newton step with the elasticity e_ℓ = -dx_ℓ/dy_ℓ adds
(β y_ℓ - x_ℓ) / (1 + β / e_ℓ) to x_ℓ, which is e_ℓ y_ℓ for β = ∞. e_ℓ begins at 6 and is the secant through the last two
rounds afterwards, within 2 and 16: a fixed exponent needs three times the rounds, or swings.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from dist_bpe.arrays import to_numpy
from dist_bpe.corpus.heldout import HeldOut, words_of
from dist_bpe.counting.table import CountTable, dropped_words
from dist_bpe.errors import UsageError, several
from dist_bpe.learning.mixture import REST, Temperature
from dist_bpe.learning.trainer import Outcome, Trainer
from dist_bpe.pretokenize.patterns import PATTERNS, find
from dist_bpe.pretokenize.preparation import Normalization
from dist_bpe.storage.files import publish

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


def balance(
    trainer: Trainer,
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


def _bounds(trainer: Trainer, caps: Bounds, floors: Bounds) -> dict[str, tuple[float, float]]:
    """The least and the most leaning of each language."""
    for option, given in (("cap", caps), ("floor", floors)):
        for name in given or {}:
            if name != REST and name not in trainer.languages:
                raise UsageError(f"a {option} names {name!r}; there are: {', '.join(trainer.languages)}.")
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


def bound_warnings(
    trainer: Trainer, leaning: Mapping[str, float], caps: Bounds = None, floors: Bounds = None
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


def frontier(trainer: Trainer, balanced: Outcome, rounds: int = 3) -> list[tuple[str, Outcome]]:
    """What evenness costs: temperatures 1 to 0 by bytes, the dial β from equal documents on, and the balanced mixture.

    Each β begins where the one before it ended, and takes so many rounds at most.
    """
    points = [(f"temperature {alpha:g}", trainer.train(Temperature(alpha))) for alpha in TEMPERATURES]
    leaning: dict[str, float] = {}
    for beta in DIALS:
        outcome, leaning = balance(trainer, beta=beta, rounds=rounds if beta else 1, tolerance=0.02, start=leaning)
        points.append((f"dial {beta:g}" if beta else "equal documents", outcome))
    return [*points, ("balanced", balanced)]


def search(
    trainer: Trainer, reference: str, *, premium: float | None = None, rounds: int = 24
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
    tried = [(f"temperature {alpha:g}", trainer.train(Temperature(alpha))) for alpha in TEMPERATURES]
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


def balance_warnings(table: CountTable, dev: HeldOut | None, outcome: Outcome, reference: str) -> list[str]:
    """What limits a balance: a small development set, a pattern whose floor binds, text that is not translated."""
    found = []
    if dev is None:
        found.append(
            "measured on the training text itself: say how even it is on held-out text by `dist-bpe evaluate`."
        )
        dropped = dropped_words(table)
        if dropped:
            found.append(dropped)
    elif dev.documents is not None:
        expected = UNSEEN / math.sqrt(len(dev.documents))
        if expected > SMALL_GINI:
            found.append(
                f"the development set has {several(len(dev.documents), 'document')} only: on unseen text expect a Gini "
                f"of about {expected:.3f} whatever it is here."
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
        what = "development text" if dev is not None else "words in the table"
        found.append(f"sources without {what} keep their equal-document weight: {', '.join(silent)}.")
    return found


def _same_lines(dev: HeldOut, reference: str) -> dict[str, float]:
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


def _floors(dev: HeldOut, table: CountTable, outcome: Outcome) -> str:
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


def _word_totals(dev: HeldOut, pattern: str, normalization: Normalization | None) -> dict[str, int]:
    totals = [0] * len(dev.texts)
    for batch in words_of(dev, find(pattern), normalization):
        for source, count in zip(to_numpy(batch.column(1)).tolist(), to_numpy(batch.column(2)).tolist(), strict=True):
            totals[source] += count
    return dict(zip(dev.texts, totals, strict=True))


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
