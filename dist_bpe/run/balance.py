"""From a table to a mixture under which languages cost the same, and its file."""

import math
import time
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from dist_bpe import memory
from dist_bpe.corpus.heldout import HeldOut, refuse_overlap
from dist_bpe.counting.table import CountTable
from dist_bpe.errors import UsageError
from dist_bpe.evaluation.balance import balance, balance_warnings, bound_warnings, frontier, search
from dist_bpe.evaluation.options import BalanceOptions
from dist_bpe.learning.memory import check_memory
from dist_bpe.learning.mixture import Mixture
from dist_bpe.learning.options import LearnOptions
from dist_bpe.learning.trainer import Outcome, Trainer
from dist_bpe.progress import Progress, human_bytes
from dist_bpe.storage.files import RunPath, parse_path, to_json, write
from dist_bpe.storage.layout import MIXTURES


class Sets(NamedTuple):
    """What languages' costs are measured on: development text (without it the training text), and a test set."""

    dev: HeldOut | None = None
    test: HeldOut | None = None


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
    learn: LearnOptions,
    options: BalanceOptions,
    sets: Sets,
    output: str | RunPath | None = None,
    progress: Progress | None = None,
) -> BalanceReport:
    """Find the mixture under which languages cost the same (or the best one of a search) and write it as a file.

    Args:
        run: the folder of a count table.
        learn: size and thresholds of the vocabulary; its mixture is not looked at.
        options: how far, how often, within which bounds; with a premium, a mixture is searched for.
        sets: what costs are measured on.
        output: the TOML file for the mixture; a JSON file beside it holds the report. By default
            `mixtures/balanced.toml` in the run folder.
        progress: who is told how it goes.

    Raises:
        UsageError: development and test text overlap, options that cannot work, or too little memory.
    """
    table = CountTable.open(run)
    progress = progress or Progress()
    progress.fields["run"] = str(parse_path(run))
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
    report.file = parse_path(output) if output else table.folder.parent / MIXTURES / "balanced.toml"
    report.file.parent.mkdir(parents=True, exist_ok=True)
    write(report.file, best.mixture.as_toml().encode())
    write(report.file.with_suffix(".json"), to_json(report.as_json()))
    return report
