"""From a table to a mixture under which languages cost the same, and its file."""

import hashlib
import json
import math
import time
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pyarrow as pa

from dist_bpe import memory
from dist_bpe.corpus.heldout import HeldOut, refuse_overlap
from dist_bpe.counting.table import CountTable
from dist_bpe.errors import RunError, UsageError, several
from dist_bpe.evaluation.balance import balance, balance_warnings, bound_warnings, frontier, search
from dist_bpe.evaluation.options import BalanceOptions
from dist_bpe.learning.memory import check_memory
from dist_bpe.learning.mixture import Mixture
from dist_bpe.learning.options import LearnOptions
from dist_bpe.learning.trainer import Outcome, Trainer
from dist_bpe.progress import Progress, human_bytes
from dist_bpe.run.resume import claimed
from dist_bpe.storage.files import RunPath, make_folder, parse_path, to_json, write
from dist_bpe.storage.layout import MIXTURES
from dist_bpe.tables import Tabular, arrow_table


class Sets(NamedTuple):
    """What languages' costs are measured on: development text (without it the training text), and a test set."""

    dev: HeldOut | None = None
    test: HeldOut | None = None


class Target(NamedTuple):
    """Where the mixture goes: a TOML file, by default `mixtures/balanced.toml` in the run; and what it may replace."""

    output: str | RunPath | None = None
    overwrite: bool = False


@dataclass(repr=False)
class BalanceReport(Tabular):
    """What `balance` found: the rounds, what else was tried, the mixture's file, and what limits it.

    As a table, a row for each round and whatever else was tried.
    """

    reference: str
    rounds: list[Outcome] = field(default_factory=list)
    tried: list[tuple[str, Outcome]] = field(default_factory=list)
    best: tuple[str, Outcome] | None = None
    test: Outcome | None = None
    file: RunPath | None = None
    warnings: list[str] = field(default_factory=list)

    @property
    def mixture(self) -> Mixture:
        """The mixture that was kept.

        Raises:
            RunError: nothing was tried.
        """
        if self.best is None:
            raise RunError("no mixture was found.")
        return self.best[1].mixture

    def _described(self) -> str:
        tried = several(len(self.rounds) + len(self.tried), "training")
        if self.best is None:
            return f"<BalanceReport: {tried}>"
        name, best = self.best
        worst = max(best.premiums(self.reference).values())
        return (
            f"<BalanceReport: {name} after {tried}, Gini {best.gini:.4f}, worst premium {worst:.3f} to "
            f"{self.reference}; mixture in {self.file}>"
        )

    def to_arrow(self) -> pa.Table:
        """A row for each training, and for the test set: its name, evenness, bytes per token, tokens and seconds."""
        named = [(f"round {i}", outcome) for i, outcome in enumerate(self.rounds, 1)] + self.tried
        named += [("on the test set", self.test)] if self.test else []
        values = [outcome.as_json(self.reference) for _, outcome in named]
        columns = (
            "gini", "worst_premium", "max_over_min", "worst_language", "worst_tokens", "macro_bytes_per_token",
            "all_tokens", "seconds",
        )  # fmt: skip
        return arrow_table(
            {"name": [name for name, _ in named], **{column: [value[column] for value in values] for column in columns}}
        )

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
    learn: LearnOptions,
    options: BalanceOptions,
    sets: Sets,
    target: Target | None = None,
    progress: Progress | None = None,
) -> BalanceReport:
    """Find the mixture under which languages cost the same (or the best one of a search) and write it as a file.

    Args:
        run: the folder of a count table.
        learn: size and thresholds of the vocabulary; its mixture is not looked at.
        options: how far, how often, within which bounds; with a premium, a mixture is searched for.
        sets: what costs are measured on.
        target: the TOML file for the mixture; a JSON file beside it holds the report. The mixture of the same table
            and options that is there already is made again, to the same bytes; any other one is left alone unless it
            may be replaced, and one that was edited, or was not made here, in any case.
        progress: who is told how it goes.

    Raises:
        UsageError: development and test text overlap, options that cannot work, or too little memory.
        RunError: another mixture is there, or another process makes one of this name at this moment.
    """
    table = CountTable.open(run)
    progress = progress or Progress()
    progress.fields["run"] = str(parse_path(run))
    target = target or Target()
    file = parse_path(target.output) if target.output else table.folder.parent / MIXTURES / "balanced.toml"
    if file.suffix != ".toml":
        raise UsageError(f"{file} is no name for a mixture, which is a TOML file: end it in .toml.")
    made_from = {
        "table": table.digest,
        "learn": learn.model_dump(mode="json", exclude={"mixture", "driver_memory"}),
        "balance": options.model_dump(mode="json"),
        **({"development": sets.dev.digest()} if sets.dev else {}),
        **({"test": sets.test.digest()} if sets.test else {}),
    }
    run, name = table.folder.parent, file.name.removesuffix(".toml")
    with claimed(run, MIXTURES, [name], progress) if file.parent == run / MIXTURES else nullcontext():
        _refuse_other(file, json.loads(to_json(made_from)), target.overwrite)
        report = _balanced(table, learn, options, sets, progress)
        report.file = file
        make_folder(file.parent, parents=True)
        content = report.best[1].mixture.as_toml().encode() if report.best else b""
        made = {"mixture": hashlib.sha256(content).hexdigest(), "made_from": made_from}
        write(file, content)
        write(file.with_suffix(".json"), to_json(report.as_json() | made))
    return report


def _refuse_other(file: RunPath, made_from: dict[str, Any], overwrite: bool) -> None:
    """Refuse to replace a mixture or report that is not ours, is not what it was, or was made of something else.

    Raises:
        RunError: it is one of these.
    """
    beside = file.with_suffix(".json")
    if not file.exists() and not beside.exists():
        return
    try:
        told = json.loads(beside.read_bytes())
        ours = hashlib.sha256(file.read_bytes()).hexdigest() == told["mixture"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        told, ours = {}, False
    if not ours:
        raise RunError(
            f"{file} or {beside.name} beside it was edited since, or was not made here, and is not replaced: name "
            "another file with --output, or move these away."
        )
    if told.get("made_from") != made_from and not overwrite:
        raise RunError(
            f"{file} is there already, made from another table or by other options: name another file with --output, "
            "or replace it with --overwrite."
        )


def _balanced(
    table: CountTable, learn: LearnOptions, options: BalanceOptions, sets: Sets, progress: Progress
) -> BalanceReport:
    specials, dev, test = table.specials, sets.dev, sets.test
    reference, rounds, caps, floors = options.reference, options.rounds, options.caps, options.floors
    if dev is not None and test is not None:
        refuse_overlap(dev, test)
    if dev is not None and dev.documents is not None:
        reference = dev.reference(reference)
    check_memory(table, learn.min_word_count, learn.driver_memory or memory.available(), kept=True)
    with progress.stage("load", unit="words") as stage:
        trainer = Trainer(table, learn, specials, dev, options.targets)
        stage.advance(len(trainer.words), f"{human_bytes(trainer.words.memory_bytes)} of memory")
    if reference is None:
        outcome = trainer.train(Mixture())
        reference = min(outcome.costs, key=lambda name: (outcome.costs[name], name))
    elif reference not in trainer.languages:
        raise UsageError(f"there is no language {reference!r}; there are: {', '.join(trainer.languages)}.")
    report = BalanceReport(reference)
    if options.search or options.premium is not None:
        with progress.stage("search", unit="mixtures") as stage:
            name, best, report.tried = search(trainer, reference, premium=options.premium, rounds=rounds or 24)
            stage.advance(len(report.tried))
    else:
        with progress.stage("balance", rounds or 8, "rounds") as stage:

            def on_round(_: int, outcome: Outcome) -> None:
                report.rounds.append(outcome)
                stage.advance(1, f"Gini {outcome.gini:.4f}, worst {outcome.worst}")

            best, leaning = balance(
                trainer, beta=options.beta, rounds=rounds or 8, tolerance=options.tolerance, caps=caps, floors=floors,
                on_round=on_round,
            )  # fmt: skip
        report.warnings = bound_warnings(trainer, leaning, caps, floors)
        name = "balanced" if math.isinf(options.beta) else f"dial {options.beta:g}"
        if options.frontier:
            with progress.stage("frontier", unit="mixtures") as stage:
                report.tried = frontier(trainer, best)
                stage.advance(len(report.tried))
    report.best = (name, best)
    report.warnings += balance_warnings(table, dev, best, reference)
    for text in report.warnings:
        progress.warn(text)
    if test is not None:
        judge = Trainer(table, learn, specials, test, words=trainer.words)
        report.test = judge.measure(best.mixture, best.merges, time.perf_counter())
    return report
