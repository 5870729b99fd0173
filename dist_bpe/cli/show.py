"""Tables on a terminal."""

import os
import re
import sys
from collections import Counter
from typing import TYPE_CHECKING, Any

from dist_bpe.errors import several
from dist_bpe.progress import Progress, human_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rich.console import Console

    from dist_bpe.corpus.plan import Plan
    from dist_bpe.evaluation.evaluate import Evaluation
    from dist_bpe.learning import textbook
    from dist_bpe.learning.textbook import LessonOptions
    from dist_bpe.learning.trainer import Outcome
    from dist_bpe.run.balance import BalanceReport
    from dist_bpe.run.report import RunReport


_BIDI = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
_CONTROLS = re.compile(f"[\x00-\x1f\x7f-\x9f\u2028\u2029{_BIDI}]")
# Least columns that names get beside numbers, and the width of what is no terminal.
NAME_WIDTH = 24
PLAIN_WIDTH = 120
# A page of a terminal, with the lines round the table.
MOST_SOURCES_SHOWN = 20


def plain(text: str) -> str:
    """Data as it may stand on a terminal: what would move the cursor, colour or turn round the text is written out."""
    return _CONTROLS.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def _print(console: "Console", text: str) -> None:
    """A line of its own, however long, with data in it: none of it is markup."""
    console.print(plain(text), markup=False, emoji=False, soft_wrap=True)


def _print_table(
    console: "Console",
    first: str,
    columns: "Sequence[str]",
    rows: "Sequence[Sequence[str]]",
) -> None:
    """Print rows of a name and numbers: never a number cut short.

    Long names lose their middle, or fold where that would make two of them one. Columns that do not fit beside each
    other go into further tables below, each with the names again.

    Args:
        console: where to.
        first: the head of the names.
        columns: the heads of the numbers.
        rows: a name and as many texts.
    """
    from rich.box import SIMPLE
    from rich.cells import cell_len
    from rich.table import Table
    from rich.text import Text

    first, columns, rows = plain(first), [plain(column) for column in columns], [[*map(plain, row)] for row in rows]
    # A column takes its text, a space on either side and one between columns; the box has one at either end.
    room = console.width - 2

    def widest(texts: "Iterable[str]") -> int:
        return max(map(cell_len, texts), default=0)

    numbers = [widest(row[i] for row in rows) for i in range(1, len(columns) + 1)]
    widths = [max(number, min(cell_len(head), NAME_WIDTH)) for number, head in zip(numbers, columns, strict=True)]
    name = max(widest(row[0] for row in rows), min(cell_len(first), NAME_WIDTH))
    if min(name, NAME_WIDTH) + 3 + sum(width + 3 for width in widths) > room:
        # Heads wrap between words, and what is longer than a name may be folds.
        heads = [min(widest(column.split()), NAME_WIDTH) for column in columns]
        widths = [max(number, head) for number, head in zip(numbers, heads, strict=True)]
    left = room - 3 - sum(width + 3 for width in widths)
    name = max(1, min(name, max(NAME_WIDTH, left), room - 6 - max(widths, default=0)))
    short = {row[0]: _shortened(row[0], name) for row in rows}
    if len({*short.values()}) == len(short):
        rows = [[short[row[0]], *row[1:]] for row in rows]
    at = 0
    while at < len(columns) or not columns:
        taken, end = name + 3, at
        while end < len(columns) and (end == at or taken + widths[end] + 3 <= room):
            taken += widths[end] + 3
            end += 1
        table = Table(box=SIMPLE)
        table.add_column(Text(first), width=name, overflow="fold")
        for i in range(at, end):
            table.add_column(Text(columns[i]), width=widths[i], justify="right", overflow="fold")
        for row in rows:
            table.add_row(*(Text(cell) for cell in [row[0], *row[at + 1 : end + 1]]))
        console.print(table)
        if not columns:
            return
        at = end


def _shortened(text: str, width: int) -> str:
    """A text without as much of its middle as makes it longer than a width in columns."""
    from rich.cells import cell_len

    if cell_len(text) <= width:
        return text
    head, tail = text[: width // 2], text[-(width // 2) :]
    while head and cell_len(f"{head}…{tail}") > width:
        head, tail = (head[:-1], tail) if cell_len(head) >= cell_len(tail) else (head, tail[1:])
    return f"{head}…{tail}"


def _print_sources(
    console: "Console", first: str, columns: "Sequence[str]", rows: "Sequence[Sequence[str]]", every: bool
) -> None:
    """Print a table with a row for each source: the first ones, if there are many, and how many more there are."""
    shown = len(rows) if every else MOST_SOURCES_SHOWN
    _print_table(console, first, columns, rows[:shown])
    if len(rows) > shown:
        _print(console, f"  … and {len(rows) - shown:,} more: --all-sources shows all")


def show_outcomes(points: "list[tuple[str, Outcome]]", report: "BalanceReport", every: bool) -> None:
    """Print the rounds and the frontier, and the weights of the best; of all sources, or of the first."""
    console = _console()
    columns = (
        "Gini", "mean premium", "worst premium", "max/min", "worst language", "its tokens", "macro bytes/token",
        "all tokens", "seconds",
    )  # fmt: skip
    rows = []
    for name, outcome in points:
        premiums = outcome.premiums(report.reference)
        others = [premium for lang, premium in premiums.items() if lang != report.reference] or [1.0]
        rows.append([
            name, f"{outcome.gini:.4f}", f"{sum(others) / len(others):.3f}", f"{max(premiums.values()):.3f}",
            f"{outcome.max_over_min:.3f}", _shortened(outcome.worst, NAME_WIDTH), f"{outcome.tokens[outcome.worst]:,}",
            f"{outcome.macro_bytes_per_token:.3f}", f"{sum(outcome.tokens.values()):,}", f"{outcome.seconds:.2f}",
        ])  # fmt: skip
    _print_table(console, "", columns, rows)
    if report.best:
        name, best = report.best
        _print(console, f"kept: {name}; premiums are to {report.reference}")
        rows = [
            [lang, f"{float(multiplier):.4g}", f"{best.tokens[lang]:,}" if lang in best.tokens else ""]
            for lang, multiplier in best.mixture.multipliers.items()
        ]
        _print_sources(console, "source", ("multiplier", "tokens"), rows, every)
    for text in report.warnings:
        _print(console, f"warning: {text}")
    _print(console, f"mixture: {report.file} (dist-bpe learn … --mixture {report.file})")


def print_json(value: Any) -> None:
    """Print a value as JSON."""
    import json

    print(json.dumps(value, indent=2, ensure_ascii=False))


def _console() -> "Console":
    from rich.console import Console

    known = sys.stdout.isatty() or os.environ.get("COLUMNS", "").isdigit()
    return Console(width=None if known else PLAIN_WIDTH, highlight=False)


def show_evaluation(evaluation: "Evaluation", dimension: int, every: bool) -> None:
    """Print one evaluation: a table of languages (all, or the first), the sums, and the size curve."""
    console = _console()
    _print(console, f"{evaluation.name}: {evaluation.size:,} tokens, on {evaluation.corpus}")
    tokens = {name: measured.tokens for name, measured in evaluation.languages.items()}
    premiums = evaluation.premiums(tokens) if evaluation.reference else {}
    columns = ["tokens", "bytes/token", "characters/token", "tokens/word", "continued words"]
    columns += [f"premium to {evaluation.reference}", "tokens/document"] if premiums else []
    rows = []
    order = sorted(evaluation.languages, key=lambda name: (-premiums.get(name, 0), -tokens[name], name))
    for name in order:
        measured = evaluation.languages[name]
        ratios = measured.ratios()
        row = [f"{measured.tokens:,}"]
        row += [f"{ratios[key]:.3f}" if key in ratios else "" for key in _RATIOS[:3]]
        row.append(f"{ratios['continued_words']:.1%}" if "continued_words" in ratios else "")
        if premiums:
            row += [f"{premiums[name]:.3f} ({premiums[name] - 1:+.1%})", f"{measured.tokens / measured.documents:.1f}"]
        rows.append([name, *row])
    _print_sources(console, "language", columns, rows, every)
    rows = [
        [key.replace("_", " "), f"{value:,.0f}" if key.endswith("tokens") else f"{value:.4f}"]
        for key, value in evaluation.summary().items()
    ]
    rows.append(["worst language", evaluation.worst()])
    rows += [
        [f"words that are one token, {kind}", f"{share:.1%}"] for kind, share in (evaluation.retained or {}).items()
    ]
    _print_table(console, "over all", [""], rows)
    _print(console, f"A word is one of {evaluation.segmenter}.")
    for text in evaluation.notes:
        _print(console, f"note: {text}")
    curve = evaluation.size_curve(dimension)
    if curve:
        columns = ["embedding parameters", "bytes/token", "macro bytes/token"]
        columns += ["Gini", "worst premium"] if premiums else []
        rows = []
        for point in curve:
            row = [f"{point['embedding_parameters']:,}"]
            row += [f"{point['bytes_per_token']:.3f}", f"{point['macro_bytes_per_token']:.3f}"]
            row += [f"{point['gini']:.4f}", f"{point['worst_premium']:.3f}"] if premiums else []
            rows.append([f"{point['size']:,}", *row])
        _print_table(console, "size", columns, rows)


_RATIOS = ("bytes_per_token", "characters_per_token", "fertility", "continued_words")


def show_side_by_side(evaluations: "list[Evaluation]", every: bool) -> None:
    """Print evaluations on one corpus: the sums, and each language's cost (of all, or the first), a column each."""
    console = _console()
    _print(console, f"on {evaluations[0].corpus}")
    parallel = evaluations[0].reference is not None
    rows = [["size", *(f"{evaluation.size:,}" for evaluation in evaluations)]]
    sums = [evaluation.summary() for evaluation in evaluations]
    for key in dict.fromkeys(key for values in sums for key in values):
        cells = [values.get(key) for values in sums]
        shown = "{:,.0f}" if key.endswith("tokens") else "{:.4f}"
        rows.append([key.replace("_", " "), *("" if cell is None else shown.format(cell) for cell in cells)])
    rows.append(["worst language", *(_shortened(evaluation.worst(), NAME_WIDTH) for evaluation in evaluations)])
    for kind in evaluations[0].retained or ():
        shares = [f"{(evaluation.retained or {})[kind]:.1%}" for evaluation in evaluations]
        rows.append([f"one token, {kind}", *shares])
    names = [evaluation.name for evaluation in evaluations]
    _print_table(console, "", names, rows)
    rows = []
    for name in evaluations[0].languages:
        costs = [
            evaluation.premiums({n: m.tokens for n, m in evaluation.languages.items()})[name]
            if parallel
            else evaluation.languages[name].ratios().get("bytes_per_token", 0.0)
            for evaluation in evaluations
        ]
        rows.append([name, *(f"{cost:.3f}" for cost in costs)])
    what = f"premium to {evaluations[0].reference}" if parallel else "bytes/token"
    _print_sources(console, what, names, rows, every)
    for text in dict.fromkeys(text for evaluation in evaluations for text in evaluation.notes):
        _print(console, f"note: {text}")


def show_plan(planned: "Plan", table_bytes: int, every: bool) -> None:
    """Print a plan of all sources, or of the first, on standard output."""
    console = _console()
    rows = []
    for source in planned.by_source():
        number = "?" if source.rows is None else f"{source.rows:,}"
        sample = "all" if source.fraction == 1 else f"{source.fraction:.4%}"
        rows.append([
            source.source, f"{source.files:,}", number, human_bytes(source.bytes), sample, f"{source.shards:,}",
            f"{source.left_out:,}", f"{source.core_seconds / 60:,.1f}",
        ])  # fmt: skip
    columns = ("files", "rows", "text", "sample", "shards", "left out", "core minutes")
    _print_sources(console, "source", columns, rows, every)
    for text in planned.warnings():
        _print(console, text)
    seconds = sum(source.core_seconds for source in planned.by_source())
    _print(
        console,
        f"counting takes about {seconds / 60:,.1f} minutes of one core with a named pattern (others take some hundred "
        f"times as long), and up to {human_bytes(planned.task_memory(table_bytes))} of memory a task.",
    )
    _print(console, "what learning takes follows from the unique words, which counting will tell.")


def show_lesson(model: "textbook.ReferenceModel[Any]", options: "LessonOptions", most_pairs: int) -> None:
    """Print the steps of a lesson: the counts of pairs, the one chosen and why, and the words after the merge."""
    from dist_bpe.learning import textbook

    def shown(*pieces: str | bytes) -> str:
        return " ".join(textbook.shown(piece).replace(" ", "␣") for piece in pieces)

    console = _console()
    ids = {piece: number for number, piece in enumerate(model.vocabulary)}
    _print(
        console, f"{several(len(model.base), 'symbol')} at first; all words together are {model.symbols[0]:,} of them"
    )
    for number, step in enumerate(model.steps, 1):
        piece = step.pair[0] + step.pair[1]
        count = model.counts[number - 1]
        why = "the highest count"
        if len(step.equals) > 1:
            why = f"of the {len(step.equals)} pairs with the highest count the "
            why += {
                "id": f"one with the smallest ids, {ids[step.pair[0]]:,} and {ids[step.pair[1]]:,}",
                "lexicographic": "first in the order of strings",
                "first-seen": "first that is met",
            }[options.tie_break]
        console.print()
        _print(
            console, f"merge {number:,}: {' + '.join(map(shown, step.pair))} → {shown(piece)}, {count:,} times: {why}"
        )
        ranked = sorted(step.pairs, key=lambda pair: (pair != step.pair, pair not in step.equals, -step.pairs[pair]))
        rows = []
        for pair in ranked[:most_pairs]:
            note = "merged" if pair == step.pair else "as many" if pair in step.equals else ""
            if not note and step.pairs[pair] >= count:
                note = "too long"
            rows.append([shown(*pair), f"{step.pairs[pair]:,}", note])
        _print_table(console, "pair", ("count", ""), rows)
        if len(ranked) > most_pairs:
            _print(console, f"  … and {several(len(ranked) - most_pairs, 'other pair')} (--pairs {len(ranked)})")
        changed_first = sorted(step.words, key=lambda word: piece not in word[0])
        few = len(step.words) <= most_pairs
        for split, times in step.words if few else changed_first[:most_pairs]:
            _print(console, f"  {times:>6,} × {shown(*split)}")
        if len(step.words) > most_pairs:
            _print(console, f"  … and {several(len(step.words) - most_pairs, 'other word')}")
    console.print()
    tokens = several(len(model.vocabulary), "token")
    _print(console, f"vocabulary: {tokens}; all words together are {model.symbols[-1]:,} of them")


def show_summary(report: "RunReport", progress: Progress, every: bool) -> None:
    """Print the closing summary, of all sources or the first, on standard output, or tell it."""
    if progress.style == "json":
        _tell_summary(report, progress)
        return
    from dist_bpe.counting.table import dropped_words

    console = _console()
    if report.table:
        sources = sorted(report.table.sources.items(), key=lambda row: -row[1].bytes)
        rows = []
        for name, source in sources:
            ratio = report.bytes_per_token.get(name)
            rows.append([
                name, f"{source.documents:,}", human_bytes(source.bytes), f"{source.words:,}",
                f"{source.unique_words:,}", f"{ratio:.3f}" if ratio else "",
            ])  # fmt: skip
        columns = ("documents", "text", "words", "unique words", "bytes/token")
        _print_sources(console, "source", columns, rows, every)
        if len(sources) > 1:
            rows_told = f"{several(report.table.rows, 'row')}, one for each unique word of each source"
            _print(console, f"table: {rows_told} (a word that several sources have is learned from once)")
    if report.mixture:
        rows = [
            [name, f"{raw:.2%}", f"{used:.2%}", f"{multiplier:.4g}"] for name, raw, used, multiplier in report.mixture
        ]
        _print_sources(console, "source", ("raw share", "used share", "multiplier"), rows, every)
    if report.chosen:
        numbers = Counter(report.chosen).most_common()
        rows = [[name or "all together", f"{number:,}"] for name, number in numbers]
        _print_sources(console, "merges chosen by", ("merges",), rows, every)
    if len(report.curve) > 1:
        rows = [
            [name, *(f"{ratios[name]:.3f}" if name in ratios else "" for ratios in report.curve.values())]
            for name in report.bytes_per_token
        ]
        _print_sources(console, "bytes/token at", [f"{size:,}" for size in report.curve], rows, every)
    if report.stages:
        rows = [
            [
                stage.name, f"{stage.seconds:.2f}", human_bytes(stage.peak_bytes),
                human_bytes(stage.worker_peak_bytes) if stage.worker_peak_bytes else "",
            ]
            for stage in report.stages
        ]  # fmt: skip
        _print_table(console, "stage", ("seconds", "peak memory", "peak of a worker"), rows)
    if report.vocabulary is not None:
        sizes = report.vocabulary.sizes.items()
        parts = ", ".join(f"{number:,} {name.removesuffix('s') if number == 1 else name}" for name, number in sizes)
        _print(console, f"vocabulary: {len(report.vocabulary):,} tokens ({parts})")
    for library, outcome in report.verification.items():
        _print(console, f"{library}: {outcome}")
    dropped = dropped_words(report.table) if report.table else None
    for text in dict.fromkeys([*([dropped] if dropped else []), *report.warnings]):
        _print(console, f"warning: {text}")
    for folder in report.folders:
        _print(console, f"files: {folder}")
    if report.table and not report.folders:
        _print(console, f"files: {report.table.folder}")


def _tell_summary(report: "RunReport", progress: Progress) -> None:
    sources = report.table.sources.values() if report.table else ()
    progress.tell(
        "finished",
        sources=len(sources),
        **{
            name: sum(getattr(source, name) for source in sources)
            for name in ("documents", "bytes", "words", "dropped_words")
        },
        rows=report.table.rows if report.table else 0,
        unique_words=report.table.rows if report.table else 0,  # its name in release 0.1
        vocabulary=len(report.vocabulary) if report.vocabulary is not None else None,
        seconds=round(sum(stage.seconds for stage in report.stages), 3),
        peak_bytes=max((stage.peak_bytes for stage in report.stages), default=0),
        worker_peak_bytes=max((stage.worker_peak_bytes for stage in report.stages), default=0),
        verification=report.verification or None,
        warnings=len(report.warnings),
        files=[str(folder) for folder in report.folders] or [str(report.table.folder)] if report.table else None,
    )
