"""Tables on a terminal."""

import sys
from typing import TYPE_CHECKING, Any

from dist_bpe.progress import Progress, human_bytes

if TYPE_CHECKING:
    from rich.console import Console

    from dist_bpe.corpus.plan import Plan
    from dist_bpe.evaluation.evaluate import Evaluation
    from dist_bpe.learning.trainer import Outcome
    from dist_bpe.run.balance import BalanceReport
    from dist_bpe.run.report import RunReport


def show_outcomes(points: "list[tuple[str, Outcome]]", report: "BalanceReport") -> None:
    """Print the rounds and the frontier, and the weights of the best."""
    from rich.box import SIMPLE
    from rich.table import Table

    console = _console()
    table = Table(box=SIMPLE)
    table.add_column("", no_wrap=True)
    columns = (
        "Gini", "mean premium", "worst premium", "max/min", "worst language", "its tokens", "macro bytes/token",
        "all tokens", "seconds",
    )  # fmt: skip
    for column in columns:
        table.add_column(column, justify="right")
    for name, outcome in points:
        premiums = outcome.premiums(report.reference)
        others = [premium for lang, premium in premiums.items() if lang != report.reference] or [1.0]
        table.add_row(
            name, f"{outcome.gini:.4f}", f"{sum(others) / len(others):.3f}", f"{max(premiums.values()):.3f}",
            f"{outcome.max_over_min:.3f}", outcome.worst, f"{outcome.tokens[outcome.worst]:,}",
            f"{outcome.macro_bytes_per_token:.3f}", f"{sum(outcome.tokens.values()):,}", f"{outcome.seconds:.2f}",
        )  # fmt: skip
    console.print(table)
    if report.best:
        name, best = report.best
        console.print(f"kept: {name}; premiums are to {report.reference}")
        table = Table("source", box=SIMPLE)
        table.add_column("multiplier", justify="right")
        table.add_column("tokens", justify="right")
        for lang, multiplier in list(best.mixture.multipliers.items())[:MOST_SOURCES_SHOWN]:
            table.add_row(lang, f"{float(multiplier):.4g}", f"{best.tokens[lang]:,}" if lang in best.tokens else "")
        console.print(table)
    for text in report.warnings:
        console.print(f"warning: {text}", soft_wrap=True, markup=False)
    console.print(f"mixture: {report.file} (dist-bpe learn … --mixture {report.file})", soft_wrap=True, markup=False)


def print_json(value: Any) -> None:
    """Print a value as JSON."""
    import json

    print(json.dumps(value, indent=2, ensure_ascii=False))


def _console() -> "Console":
    from rich.console import Console

    return Console(width=None if sys.stdout.isatty() else 120, highlight=False)


def show_evaluation(evaluation: "Evaluation", dimension: int) -> None:
    """Print one evaluation: a table of languages, the sums, and the size curve."""
    from rich.box import SIMPLE
    from rich.table import Table

    console = _console()
    console.print(f"{evaluation.name}: {evaluation.size:,} tokens, on {evaluation.corpus}", markup=False)
    tokens = {name: measured.tokens for name, measured in evaluation.languages.items()}
    premiums = evaluation.premiums(tokens) if evaluation.reference else {}
    table = Table("language", box=SIMPLE)
    columns = ["tokens", "bytes/token", "characters/token", "tokens/word", "continued words"]
    for column in columns + ([f"premium to {evaluation.reference}", "tokens/document"] if premiums else []):
        table.add_column(column, justify="right")
    order = sorted(evaluation.languages, key=lambda name: (-premiums.get(name, 0), -tokens[name], name))
    for name in order[:MOST_SOURCES_SHOWN]:
        measured = evaluation.languages[name]
        ratios = measured.ratios()
        row = [f"{measured.tokens:,}"]
        row += [f"{ratios[key]:.3f}" if key in ratios else "" for key in _RATIOS[:3]]
        row.append(f"{ratios['continued_words']:.1%}" if "continued_words" in ratios else "")
        if premiums:
            row += [f"{premiums[name]:.3f} ({premiums[name] - 1:+.1%})", f"{measured.tokens / measured.documents:.1f}"]
        table.add_row(name, *row)
    console.print(table)
    table = Table("over all", box=SIMPLE)
    table.add_column("", justify="right")
    for key, value in evaluation.summary().items():
        table.add_row(key.replace("_", " "), f"{value:,.0f}" if key.endswith("tokens") else f"{value:.4f}")
    table.add_row("worst language", evaluation.worst())
    for kind, share in (evaluation.retained or {}).items():
        table.add_row(f"words that are one token, {kind}", f"{share:.1%}")
    console.print(table)
    console.print(f"A word is one of {evaluation.segmenter}.", markup=False, soft_wrap=True)
    curve = evaluation.size_curve(dimension)
    if curve:
        table = Table("size", box=SIMPLE)
        names = ["embedding parameters", "bytes/token", "macro bytes/token"]
        for column in names + (["Gini", "worst premium"] if premiums else []):
            table.add_column(column, justify="right")
        for point in curve:
            row = [f"{point['embedding_parameters']:,}"]
            row += [f"{point['bytes_per_token']:.3f}", f"{point['macro_bytes_per_token']:.3f}"]
            row += [f"{point['gini']:.4f}", f"{point['worst_premium']:.3f}"] if premiums else []
            table.add_row(f"{point['size']:,}", *row)
        console.print(table)


_RATIOS = ("bytes_per_token", "characters_per_token", "fertility", "continued_words")


def show_side_by_side(evaluations: "list[Evaluation]") -> None:
    """Print evaluations on one corpus: the sums, and each language's cost, a column each."""
    from rich.box import SIMPLE
    from rich.table import Table

    console = _console()
    console.print(f"on {evaluations[0].corpus}", markup=False)
    parallel = evaluations[0].reference is not None
    table = Table("", box=SIMPLE)
    for evaluation in evaluations:
        table.add_column(evaluation.name, justify="right", overflow="fold")
    table.add_row("size", *(f"{evaluation.size:,}" for evaluation in evaluations))
    sums = [evaluation.summary() for evaluation in evaluations]
    for key in dict.fromkeys(key for values in sums for key in values):
        cells = [values.get(key) for values in sums]
        shown = "{:,.0f}" if key.endswith("tokens") else "{:.4f}"
        table.add_row(key.replace("_", " "), *("" if cell is None else shown.format(cell) for cell in cells))
    table.add_row("worst language", *(evaluation.worst() for evaluation in evaluations))
    for kind in evaluations[0].retained or ():
        table.add_row(f"one token, {kind}", *(f"{(evaluation.retained or {})[kind]:.1%}" for evaluation in evaluations))
    table.add_section()
    for name in list(evaluations[0].languages)[:MOST_SOURCES_SHOWN]:
        cells = [
            evaluation.premiums({n: m.tokens for n, m in evaluation.languages.items()})[name]
            if parallel
            else evaluation.languages[name].ratios().get("bytes_per_token", 0.0)
            for evaluation in evaluations
        ]
        what = f"premium to {evaluations[0].reference}" if parallel else "bytes/token"
        table.add_row(f"{name}, {what}", *(f"{cell:.3f}" for cell in cells))
    console.print(table)


def show_plan(planned: "Plan", table_bytes: int) -> None:
    """Print a plan on standard output."""
    from rich.box import SIMPLE
    from rich.console import Console
    from rich.table import Table

    console = Console(width=None if sys.stdout.isatty() else 120, highlight=False)
    table = Table("source", box=SIMPLE)
    for column in ("files", "rows", "text", "sample", "shards", "left out", "core minutes"):
        table.add_column(column, justify="right")
    for source in planned.by_source():
        rows = "?" if source.rows is None else f"{source.rows:,}"
        sample = "all" if source.fraction == 1 else f"{source.fraction:.4%}"
        table.add_row(
            source.source, f"{source.files:,}", rows, human_bytes(source.bytes), sample, f"{source.shards:,}",
            f"{source.left_out:,}", f"{source.core_seconds / 60:,.1f}",
        )  # fmt: skip
    console.print(table)
    for text in planned.warnings():
        console.print(text, soft_wrap=True, markup=False)
    seconds = sum(source.core_seconds for source in planned.by_source())
    console.print(
        f"counting takes about {seconds / 60:,.1f} minutes of one core with a named pattern (others take ten times as "
        f"long), and up to {human_bytes(planned.task_memory(table_bytes))} of memory a task.",
        soft_wrap=True,
    )
    console.print("what learning takes follows from the unique words, which counting will tell.")


MOST_SOURCES_SHOWN = 60


def show_summary(report: "RunReport", progress: Progress) -> None:
    """Print the closing summary on standard output, or tell it."""
    if progress.style == "json":
        _tell_summary(report, progress)
        return
    from rich.box import SIMPLE
    from rich.table import Table

    console = _console()
    if report.table:
        table = Table("source", box=SIMPLE)
        for column in ("documents", "text", "words", "unique words", "bytes/token"):
            table.add_column(column, justify="right")
        rows = list(report.table.sources.items())
        for name, source in sorted(rows, key=lambda row: -row[1].bytes)[:MOST_SOURCES_SHOWN]:
            ratio = report.bytes_per_token.get(name)
            table.add_row(
                name, f"{source.documents:,}", human_bytes(source.bytes), f"{source.words:,}",
                f"{source.unique_words:,}", f"{ratio:.3f}" if ratio else "",
            )  # fmt: skip
        console.print(table)
        if len(rows) > MOST_SOURCES_SHOWN:
            console.print(f"… and {len(rows) - MOST_SOURCES_SHOWN} smaller sources: see manifest.json there.")
    if report.mixture:
        table = Table("source", box=SIMPLE)
        for column in ("raw share", "used share", "multiplier"):
            table.add_column(column, justify="right")
        for name, raw, used, multiplier in report.mixture[:MOST_SOURCES_SHOWN]:
            table.add_row(name, f"{raw:.2%}", f"{used:.2%}", f"{multiplier:.4g}")
        console.print(table)
    if report.chosen:
        numbers = {name: report.chosen.count(name) for name in dict.fromkeys(report.chosen)}
        shown = ", ".join(
            f"{name or 'all together'} {number:,}"
            for name, number in sorted(numbers.items(), key=lambda item: -item[1])
        )
        console.print(f"merges chosen by: {shown}", markup=False, soft_wrap=True)
    if len(report.curve) > 1:
        table = Table("bytes/token at", box=SIMPLE)
        for size in report.curve:
            table.add_column(f"{size:,}", justify="right")
        for name in list(report.bytes_per_token)[:MOST_SOURCES_SHOWN]:
            table.add_row(name, *(f"{ratios[name]:.3f}" for ratios in report.curve.values()))
        console.print(table)
    if report.stages:
        table = Table("stage", box=SIMPLE)
        for column in ("seconds", "peak memory", "peak of a worker"):
            table.add_column(column, justify="right")
        for stage in report.stages:
            worker = human_bytes(stage.worker_peak_bytes) if stage.worker_peak_bytes else ""
            table.add_row(stage.name, f"{stage.seconds:.2f}", human_bytes(stage.peak_bytes), worker)
        console.print(table)
    if report.vocabulary is not None:
        parts = ", ".join(f"{number:,} {name}" for name, number in report.vocabulary.sizes.items())
        console.print(f"vocabulary: {len(report.vocabulary):,} tokens ({parts})")
    for library, outcome in report.verification.items():
        console.print(f"{library}: {outcome}")
    for text in report.warnings:
        console.print(f"warning: {text}", soft_wrap=True, markup=False)
    for folder in report.folders:
        console.print(f"files: {folder}", soft_wrap=True, markup=False)
    if report.table and not report.folders:
        console.print(f"files: {report.table.folder}", soft_wrap=True, markup=False)


def _tell_summary(report: "RunReport", progress: Progress) -> None:
    sources = report.table.sources.values() if report.table else ()
    progress.tell(
        "finished",
        sources=len(sources),
        **{
            name: sum(getattr(source, name) for source in sources)
            for name in ("documents", "bytes", "words", "unique_words")
        },
        vocabulary=len(report.vocabulary) if report.vocabulary is not None else None,
        seconds=round(sum(stage.seconds for stage in report.stages), 3),
        peak_bytes=max((stage.peak_bytes for stage in report.stages), default=0),
        worker_peak_bytes=max((stage.worker_peak_bytes for stage in report.stages), default=0),
        verification=report.verification or None,
        warnings=len(report.warnings),
        files=[str(folder) for folder in report.folders] or [str(report.table.folder)] if report.table else None,
    )
