"""Mixtures: how much each source counts in learning, as exact integer weights.

A rule gives each source ℓ a share q_ℓ of the whole; its weight is w_ℓ = q_ℓ / p_ℓ with p_ℓ its raw share, so that the
mean weight over the raw text is one. Weights become integers over one common scale (`Weights`), because the learner
adds only integers: so nothing depends on the order of additions, and equal mixtures give equal bytes.
"""

import decimal
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Annotated, Any

import tomli_w
from pydantic import AfterValidator, BeforeValidator, PlainSerializer, WithJsonSchema, model_validator

from dist_bpe.counting.options import Unit
from dist_bpe.errors import CountOverflowError, UsageError, several
from dist_bpe.options import Options, both, fields_of, in_one_sentence, option
from dist_bpe.tables import Tabular, arrow_table

REST = "*"
SCALE = 1 << 16
MOST_DIGITS = 30
#: What is taken exactly as it is written.
Number = int | float | str | Fraction | decimal.Decimal
# Sources that a mixture shows of itself.
MOST_SHOWN = 4


def _ratio(value: Any) -> Fraction:
    """A number from 0 on, exactly as written: 0.3 is 3/10 and not the nearest double; "1/3" is a third."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str, Fraction, decimal.Decimal)):
        raise ValueError("a number is needed, such as 3, 0.25 or '1/3'")  # noqa: TRY004  # pydantic takes ValueError
    try:
        text = str(value)
        # Written out, "1e999999999" would be a gigabyte of digits.
        if any(abs(int(exponent)) > MOST_DIGITS for exponent in re.findall(r"[eE]([+-]?\d+)", text)):
            text = "too large or too small"
        ratio = Fraction(text)
    except (ValueError, ZeroDivisionError) as error:
        raise ValueError("a number is needed, such as 3, 0.25 or '1/3'") from error
    if ratio and not Fraction(1, 10**MOST_DIGITS) <= abs(ratio) <= 10**MOST_DIGITS:
        raise ValueError(f"it must have {MOST_DIGITS} digits at most")
    if ratio < 0:
        raise ValueError("it must not be negative")
    return ratio


def _at_most_one(value: Fraction) -> Fraction:
    if value > 1:
        raise ValueError("it must lie between 0 (all sources alike) and 1 (as they stand)")
    return value


def _some(value: Fraction) -> Fraction:
    if not value:
        raise ValueError("it must allow some passes, more than 0")
    return value


Ratio = Annotated[
    Fraction, BeforeValidator(_ratio), WithJsonSchema({"type": ["number", "string"]}), PlainSerializer(str)
]


@in_one_sentence
class Mixture(Options):
    """How much each source counts: one rule at most (alpha, unimax, shares); the others go with any rule."""

    unit: Unit = option(
        "bytes",
        "The unit of a source's size: bytes, characters (of the words in the table), words or documents.",
    )
    alpha: Annotated[Ratio, AfterValidator(_at_most_one)] | None = option(
        None,
        "Sources take shares in proportion to size^A: 1 is natural, 0 is the same for all.",
        metavar="A",
        example=0.3,
    )
    unimax: Annotated[Ratio, AfterValidator(_some)] | None = option(
        None,
        "All sources take the same share, but none more than N times over; the rest goes to the others.",
        metavar="N",
        example=4,
    )
    shares: dict[str, Ratio] = option(
        {},
        "A source's share; * is for all others together. Sources that are not named share what is left to one in "
        "natural proportion; with all named, or with *, only the proportions count.",
        flag="--share",
        metavar="NAME=S",
        example={"en": 0.5, "*": 0.5},
        repeated=True,
    )
    multipliers: dict[str, Ratio] = option(
        {},
        "A source's factor on top of the rule; * is for all others.",
        flag="--multiplier",
        metavar="NAME=M",
        example={"en": 2},
        repeated=True,
    )
    caps: dict[str, Ratio] = option(
        {},
        "A source counts as if it had been sampled down evenly to N units, before the rule; * is for all others.",
        flag="--cap",
        metavar="NAME=N",
        example={"en": 1_000_000_000},
        repeated=True,
    )
    jitter: bool = option(
        False,
        "Every word's count is multiplied by 0.9 to 1.1, by a stable hash of the word, which takes the many equal "
        "counts of small sources apart.",
        cli=False,
    )
    scale: int = option(
        SCALE, "The integer that a weight of one becomes where weights have to be rounded.", cli=False, ge=1, le=1 << 40
    )

    def __repr__(self) -> str:
        given = {name: getattr(self, name) for name, field in fields_of(Mixture).items()}
        shown = [
            f"{name}={_shown(value)}" for name, value in given.items() if value != fields_of(Mixture)[name].default
        ]
        return f"Mixture({', '.join(shown)})"

    __str__ = __repr__

    if TYPE_CHECKING:

        def __init__(
            self,
            *,
            unit: Unit = "bytes",
            alpha: Number | None = None,
            unimax: Number | None = None,
            shares: Mapping[str, Number] = ...,
            multipliers: Mapping[str, Number] = ...,
            caps: Mapping[str, Number] = ...,
            jitter: bool = False,
            scale: int = SCALE,
        ) -> None: ...

    @model_validator(mode="after")
    def _one_rule(self) -> "Mixture":
        given = [name for name in ("alpha", "unimax", "shares") if getattr(self, name) not in (None, {})]
        if len(given) > 1:
            raise ValueError(f"{' and '.join(both(Mixture, name) for name in given)} exclude each other")
        if not (given or self.multipliers or self.caps):
            idle = next(
                (name for name, as_it_is in (("unit", "bytes"), ("scale", SCALE)) if getattr(self, name) != as_it_is),
                None,
            )
            if idle:
                raise ValueError(
                    f"{both(Mixture, idle)} has no effect by itself: it goes with alpha, unimax, shares, multipliers "
                    "or caps"
                )
        return self

    def as_toml(self) -> str:
        """The `[mixture]` table of a configuration that gives this mixture."""
        return tomli_w.dumps({"mixture": self.model_dump(exclude_defaults=True)})

    def check_names(self, sources: Iterable[str]) -> None:
        """Refuse a rule about a source that is not there.

        Args:
            sources: the names of all.

        Raises:
            UsageError: the mixture names another.
        """
        there = list(sources)
        for what in ("shares", "multipliers", "caps"):
            for name in getattr(self, what):
                if name != REST and name not in there:
                    raise UsageError(
                        f"{both(Mixture, what)} of the mixture name the source {name!r}, which is not there; the "
                        f"sources are: {', '.join(there)}."
                    )

    def weights(self, sizes: Mapping[str, int]) -> "Weights":
        """The integer weight of each source.

        Weights whose smallest common integers do not pass `scale` are taken exactly. Others are brought to a mean of
        `scale` over the raw text and rounded to the nearest integer, at least 1 where the weight is not 0. Both are
        divided by their greatest common divisor. Since the mean is fixed, the weighted text is at most `scale` times
        the raw text, and 2^64 is passed only by some 10^14 words.

        Args:
            sizes: the size of each source, in `unit`.

        Raises:
            UsageError: a source named here is not there, or nothing is left with a weight.
        """
        wrong = next((name for name, size in sizes.items() if type(size) is not int or size < 0), None)
        if wrong is not None:
            raise UsageError(f"the size of source {wrong!r} is {sizes[wrong]!r}: a whole number from 0 on is needed.")
        self.check_names(sizes)
        # Sources without any text weigh nothing and must not disturb the others' common divisor.
        raw = {name: size for name, size in sizes.items() if size}
        if not raw:
            raise UsageError(f"no source holds any {self.unit}: there is nothing to mix.")
        capped = {name: min(Fraction(size), _named(self.caps, name, Fraction(size))) for name, size in raw.items()}
        wanted = self._sizes(capped)
        exact = {name: wanted[name] / raw[name] * _named(self.multipliers, name, Fraction(1)) for name in raw}
        if not any(exact.values()):
            raise UsageError("the mixture gives every source a weight of 0: nothing is left to learn from.")
        integers = _integers(exact, raw, self.scale)
        weighted = sum(integers[name] * raw[name] for name in raw)
        return Weights(
            self.unit,
            dict(sizes),
            {name: integers.get(name, 1) for name in sizes},
            Fraction(weighted, sum(raw.values())),
            self.jitter,
        )

    def _sizes(self, sizes: dict[str, Fraction]) -> dict[str, Fraction]:
        """What the rule makes of sizes; only the proportions count."""
        if self.alpha is not None and self.alpha != 1:
            # Decimal powers are the same on every machine, which those of the C library are not.
            with decimal.localcontext(decimal.Context(prec=40)) as context:
                alpha = context.divide(self.alpha.numerator, self.alpha.denominator)
                return {
                    name: Fraction(context.power(context.divide(size.numerator, size.denominator), alpha))
                    if size
                    else size
                    for name, size in sizes.items()
                }
        if self.unimax is not None:
            budget, given = sum(sizes.values(), Fraction(0)), {}
            for i, (name, size) in enumerate(sorted(sizes.items(), key=lambda item: (item[1], item[0]))):
                given[name] = min(size * self.unimax, budget / (len(sizes) - i))
                budget -= given[name]
            return given
        if self.shares:
            return self._shared(sizes)
        return sizes

    def _shared(self, sizes: dict[str, Fraction]) -> dict[str, Fraction]:
        named = {name: share for name, share in self.shares.items() if name in sizes}
        others = {name: size for name, size in sizes.items() if name not in named}
        if not others:
            return named
        if REST in self.shares:
            left = self.shares[REST]
        else:
            left = Fraction(1 - sum(named.values()))
            if left < 0:
                raise UsageError(
                    f"the shares add up to {float(1 - left):g}, and leave nothing for {several(len(others), 'source')} "
                    "that no share names: keep them below 1, or name the rest with '*'."
                )
        whole = sum(others.values()) or Fraction(1)
        return named | {name: left * size / whole for name, size in others.items()}


def _shown(value: Any) -> str:
    """A field's value in one line: numbers as `_ratio` takes them again, and the first few of a table."""
    if isinstance(value, dict):
        first = [f"{name!r}: {_shown(number)}" for name, number in list(value.items())[:MOST_SHOWN]]
        return f"{{{', '.join(first)}{f', … {len(value):,} in all' if len(value) > MOST_SHOWN else ''}}}"
    if not isinstance(value, Fraction):
        return repr(value)
    if value.denominator == 1:
        return str(value.numerator)
    decimal_ = f"{float(value):.6g}"
    return decimal_ if Fraction(decimal_) == value else repr(str(value))


def Temperature(
    alpha: Number,
    *,
    unit: Unit = "bytes",
    multipliers: Mapping[str, Number] | None = None,
    caps: Mapping[str, Number] | None = None,
    jitter: bool = False,
    scale: int = SCALE,
) -> Mixture:
    """The mixture with shares in proportion to size^alpha; the options are the other fields of `Mixture`."""
    return Mixture(alpha=alpha, unit=unit, multipliers=multipliers or {}, caps=caps or {}, jitter=jitter, scale=scale)


def UniMax(
    passes: Number,
    *,
    unit: Unit = "bytes",
    multipliers: Mapping[str, Number] | None = None,
    caps: Mapping[str, Number] | None = None,
    jitter: bool = False,
    scale: int = SCALE,
) -> Mixture:
    """The mixture of equal shares with at most so many passes over a source; options as in `Mixture`."""
    return Mixture(unimax=passes, unit=unit, multipliers=multipliers or {}, caps=caps or {}, jitter=jitter, scale=scale)


def _named(table: Mapping[str, Fraction], name: str, default: Fraction) -> Fraction:
    return table.get(name, table.get(REST, default))


def _integers(weights: Mapping[str, Fraction], sizes: Mapping[str, int], scale: int) -> dict[str, int]:
    common = math.lcm(*(weight.denominator for weight in weights.values()))
    numbers = {name: int(weight * common) for name, weight in weights.items()}
    divisor = math.gcd(*numbers.values())
    if max(numbers.values()) // divisor > scale:
        mean = sum(weights[name] * sizes[name] for name in weights) / sum(sizes.values())
        numbers = {name: max(1, round(w / mean * scale)) if w else 0 for name, w in weights.items()}
        divisor = math.gcd(*numbers.values())
    return {name: number // divisor for name, number in numbers.items()}


@dataclass(frozen=True, repr=False)
class Weights(Tabular):
    """The integer weights of a mixture over some sources; as a table, a row for each source.

    Attributes:
        unit: what sizes are measured in.
        sizes: the raw size of each source.
        integers: the weight of each source, without a common divisor.
        mean: the mean weight over the raw text: the integer scale that stands for a weight of one.
        jitter: see `Mixture.jitter`; weighted counts are in thousandths then.
    """

    unit: Unit
    sizes: dict[str, int]
    integers: dict[str, int]
    mean: Fraction
    jitter: bool = False

    def _described(self) -> str:
        if self.natural:
            return f"<Weights of {several(len(self.integers), 'source')}: natural>"
        rows = sorted(self.rows(), key=lambda row: (-row[2], row[0]))
        shown = ", ".join(f"{name} {used:.1%} (× {factor:.3g})" for name, _, used, factor in rows[:MOST_SHOWN])
        return f"<Weights of {several(len(rows), 'source')}: {shown}{', …' if len(rows) > MOST_SHOWN else ''}>"

    def to_arrow(self) -> Any:
        """A row for each source, the largest raw share first: its size, integer weight, shares, and multiplier."""
        names, raw, used, multiplier = zip(*self.rows(), strict=True)
        return arrow_table(
            {
                "source": names,
                self.unit: [self.sizes[name] for name in names],
                "weight": [self.integers[name] for name in names],
                "raw_share": raw,
                "used_share": used,
                "multiplier": multiplier,
            }
        )

    @property
    def natural(self) -> bool:
        """Whether learning goes as without a mixture."""
        return set(self.integers.values()) == {1} and not self.jitter

    @property
    def scale(self) -> Fraction:
        """What a weighted count is to be divided by to compare it with raw counts."""
        return self.mean * (1000 if self.jitter else 1)

    def least(self, min_pair_count: int) -> int:
        """`min_pair_count`, which is meant in raw counts, in weighted ones: the least so many occurrences can weigh.

        That is the smallest weight that is not 0, times 900 with jitter. So a pair is refused only if it stands fewer
        than `min_pair_count` times in the text, and a common factor of all weights changes nothing. The mean weight in
        its place would refuse frequent pairs of a language that is weighed down, and leave the vocabulary short.

        Raises:
            CountOverflowError: it does not fit into 64 bits.
        """
        smallest = min(weight for name, weight in self.integers.items() if weight and self.sizes[name])
        least = min_pair_count * smallest * (900 if self.jitter else 1)
        if least >= 2**64:
            raise CountOverflowError(
                f"min_pair_count (--min-pair-count) {min_pair_count:,} passes 2^64 - 1 when it is weighted: lower "
                "it, or the mixture's "
                "scale."
            )
        return least

    def rows(self) -> list[tuple[str, float, float, float]]:
        """(source, raw share, used share, multiplier) of each source, the largest raw share first."""
        raw = sum(self.sizes.values())
        rows = [
            (
                name,
                size / raw,
                float(self.integers[name] * size / (self.mean * raw)),
                float(self.integers[name] / self.mean),
            )
            for name, size in self.sizes.items()
        ]
        return sorted(rows, key=lambda row: (-row[1], row[0]))

    def fingerprint(self) -> dict[str, Any]:
        """What the manifest of a vocabulary records: weighted counts / scale are in units of raw counts."""
        return {
            "weights": self.integers,
            "scale": str(self.scale),
            "jitter": self.jitter,
            "unit": self.unit,
            "sizes": self.sizes,
        }
