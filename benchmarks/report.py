"""From the raw results of bench.py: docs/benchmarks.md, the plots beside it, and the tables of the README.

python benchmarks/report.py benchmarks/results/latest.json
"""

import json
import math
import statistics
import sys
from itertools import groupby
from pathlib import Path
from typing import Any

from bench import PROBE, SPLIT
from contestants import OURS, TRAINERS

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
BEGIN, END = "<!-- measured: written by benchmarks/report.py -->\n", "<!-- end of what was measured -->\n"
CORPORA = {"english": "English", "languages": "26 languages"}
Figures = dict[str, Any]


def table(header: list[str], rows: list[list[str]]) -> str:
    lines = [header, ["---", *["---:"] * (len(header) - 1)], *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def label(row: Figures) -> str:
    level = f", {row['level']}" if row.get("level") else ""
    return f"{row['name']} {row.get('version', '')}".strip() + level


def same_merges(row: Figures, best: Figures) -> str:
    common = row.get("equal_merges")
    if common is None:
        return ""
    if common == best["merges"]:
        return "all"
    return f"the first {common:,}" if common else "not from the start"


def contest_table(rows: list[Figures], best: Figures) -> str:
    lines = []
    for row in rows:
        if "failed" in row:
            lines.append([label(row), f"failed: {row['failed']}", *[""] * 6])
            continue
        note = TRAINERS[row["name"]].note
        lines.append(
            [
                label(row) + (f" ({note})" if note else ""),
                f"{row['count']:.2f}",
                f"{row['count'] / best['count']:.1f}",
                f"{row['learn']:.2f}",
                f"{row['learn'] / best['learn']:.1f}",
                f"{both(row) / both(best):.1f}",
                f"{row['above_text_bytes'] / 1e6:,.0f}",
                same_merges(row, best) if row["name"] != OURS else "",
            ]
        )
    header = [
        "",
        "count, s",
        "× ours",
        "learn, s",
        "× ours",
        "both, × ours",
        "peak above the text, MB",
        "merges as ours",
    ]
    return table(header, lines)


def both(row: Figures) -> float:
    return float(row["count"] + row["learn"])


def best_of(rows: list[Figures]) -> Figures:
    """Ours, by the fastest scanner."""
    return next(row for row in rows if row["name"] == OURS and "failed" not in row)


def documents_table(rows: list[Figures]) -> str:
    lines = []
    for row in rows:
        if "failed" in row:
            lines.append([label(row), f"failed: {row['failed']}", "", ""])
            continue
        lines.append(
            [label(row), *(f"{row[name]:.2f}" for name in ("long", "short")), f"{row['short'] / row['long']:.2f}"]
        )
    return table(["", "long documents, ns a byte", "lines, ns a byte", "lines / long"], lines)


def whole_table(rows: list[Figures]) -> str:
    ours = best_of(rows)
    lines = []
    for row in rows:
        if "failed" in row:
            lines.append([row["name"], f"failed: {row['failed']}", "", "", ""])
            continue
        note = TRAINERS[row["name"]].note if row["name"] in TRAINERS else ""
        figures = [f"{row['cpu']:.1f}", f"{row['cpu'] / ours['cpu']:.1f}", f"{row['wall']:.1f}"]
        lines.append([label(row) + (f" ({note})" if note else ""), *figures, f"{row['peak_bytes'] / 1e6:,.0f}"])
    return table(["", "CPU, s", "× ours", "wall, s", "peak, MB"], lines)


def readme(results: Figures) -> str:
    """Two tables: count + learn under gpt2, and whole runs, on a small corpus beside all peers and on all there is."""
    contests = {corpus: rows for corpus, pattern, rows in groups(results) if pattern == "gpt2"}
    corpora = sorted(contests, key=lambda corpus: [*CORPORA, corpus].index(corpus))
    lines = []
    for row in contests[corpora[0]]:
        if "failed" in row or (row["name"] == OURS and row is not best_of(contests[corpora[0]])):
            continue
        cells, ratio = [], 0.0
        for corpus in corpora:
            best = best_of(contests[corpus])
            found = [x for x in contests[corpus] if (x["name"], x["level"]) == (row["name"], row["level"])]
            if "failed" in found[0]:
                cells.append("failed")
                continue
            figures = f"{found[0]['count']:.2f} + {found[0]['learn']:.2f}"
            ours = row["name"] == OURS
            cells.append(f"**{figures}**" if ours else f"{figures} ({both(found[0]) / both(best):.1f}×)")
            ratio += both(found[0]) / both(best)
        if row["count"]:
            lines.append((ratio, [label(row), *cells]))
    size = f"{results['machine']['megabytes']:g} MB of text"
    header = f"CPU seconds, one core, {size}, `gpt2`, 32,000 tokens: count + learn"
    runs = []
    for row in sorted(results["whole"][0]["rows"], key=lambda row: float(row.get("cpu", math.inf))):
        cells = []
        for whole in results["whole"]:
            run = next((each for each in whole["rows"] if each["name"] == row["name"]), None)
            if run is None or "failed" in run:
                cells.append("failed" if run else "")
                continue
            times = "" if row["name"] == OURS else f" ({run['cpu'] / best_of(whole['rows'])['cpu']:.1f}×)"
            cells.append(f"{run['cpu']:.1f}{times}, {run['peak_bytes'] / 1e6:,.0f} MB")
        note = TRAINERS[row["name"]].note if row["name"] in TRAINERS else ""
        runs.append([label(row) + (f" ({note})" if note else ""), *cells])
    title = "whole process, Parquet to exported files: CPU seconds, peak memory"
    machine = results["machine"]
    return "\n".join(
        [
            table([header, *(CORPORA.get(corpus, corpus) for corpus in corpora)], [line for _, line in sorted(lines)]),
            table([title, *(f"{whole['megabytes']:.0f} MB" for whole in results["whole"])], runs),
            f"One pinned core ({machine['processor']}), every run a process of its own, medians of {machine['rounds']} "
            "rounds, of slow trainers one; ratios are to ours.\n",
        ]
    )


def groups(results: Figures) -> list[tuple[str, str, list[Figures]]]:
    keys = dict.fromkeys((row["corpus"], row["pattern"]) for row in results["contests"])
    return [(*key, [row for row in results["contests"] if (row["corpus"], row["pattern"]) == key]) for key in keys]


def plot(corpus: str, pattern: str, rows: list[Figures], path: Path) -> None:
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "dist_bpe"  # equal figures give equal files
    import matplotlib.pyplot as plt

    shown = [row for row in rows if "failed" not in row][::-1]
    figure, axes = plt.subplots(figsize=(8, 0.4 * len(shown) + 1))
    axes.barh([label(row) for row in shown], [row["count"] for row in shown], label="count")
    axes.barh(
        [label(row) for row in shown],
        [row.get("learn", 0) for row in shown],
        left=[row["count"] for row in shown],
        label="learn",
    )
    axes.set_xscale("symlog", linthresh=1)
    axes.set_xlabel("CPU seconds, one core")
    axes.set_title(f"{corpus}, {pattern}")
    axes.legend()
    figure.savefig(path, metadata={"Date": None}, bbox_inches="tight")
    plt.close(figure)


def main(path: Path) -> None:
    results = json.loads(path.read_text())
    machine = results["machine"]
    plots = ROOT / "docs" / "benchmarks"
    plots.mkdir(exist_ok=True)
    text = [
        "# Benchmarks\n",
        "Made by `make bench`; do not edit. "
        f"{machine['processor']}, {machine['system']}, Python {machine['python']}, pyarrow {machine['pyarrow']}. "
        "One core, pinned; every run a process of its own, contestants in turns, medians of "
        f"{machine['rounds']} rounds (slow peers: one). CPU seconds. Raw figures: `{path.relative_to(ROOT)}`.\n",
        f"## Count and learn to 32,000 tokens, {machine['megabytes']:g} MB of text in memory\n",
        "Count: from text to a word table; for ours from an Arrow array through the Python binding to sorted Arrow "
        "batches. Learn: from the table to the merges, with the index it needs. For trainers that show no table, count "
        "is a training without merges (index included), and learn is what a full training takes longer. Memory is the "
        "peak of both above that of the process with the text. Ours is given for each scanner the processor can run. "
        "A trainer that merges pairs which occur once goes on where ours ends: then the shorter list is compared.\n",
    ]
    for corpus, pattern, rows in groups(results):
        best = best_of(rows)
        plot(corpus, pattern, rows, plots / f"{corpus}-{pattern}.svg")
        text += [
            f"### {corpus}, {pattern}\n",
            contest_table(rows, best),
            f"{best['unique_words']:,.0f} unique words, {best['merges']:,} merges. Where fewer are as ours, other "
            "words were counted: older Unicode tables, or documents joined to one. On equal words the lists are equal "
            "(tests/learning/test_merges.py).\n",
            f"![{corpus}, {pattern}](benchmarks/{corpus}-{pattern}.svg)\n",
        ]
    lines = next(row["document_bytes"] for row in results["documents"] if "document_bytes" in row)
    text += [
        f"## Short documents: lines of {lines:.0f} bytes, and the same in documents of a thousand\n",
        "Counting alone, from text in memory, `gpt2`.\n",
        documents_table(results["documents"]),
        "## Counting from Parquet (zstd), one core\n",
        "The limit is what no way of counting can do without: Zstandard alone on the pages of the column, measured in "
        f"the same run, and {SPLIT} ns a byte to cut and {PROBE} ns a byte to look words up, which are aims. pyarrow: "
        "reading the column alone.\n",
        table(
            ["", "MB", "zstd, s", "limit, s", "pyarrow, s", "count, s", "count, MB/s", "share of the limit"],
            [
                [
                    row["corpus"], f"{row['bytes'] / 1e6:,.0f}", f"{row['unpack']:.2f}", f"{row['limit']:.2f}",
                    f"{row['read']:.2f}", f"{row['count']:.2f}", f"{row['bytes'] / row['count'] / 1e6:,.0f}",
                    f"{row['limit'] / row['count']:.0%}",
                ]
                for row in results["reading"]
            ],
        ),
        "## Whole runs: Parquet to exported files, whole processes\n",
    ]  # fmt: skip
    for whole in results["whole"]:
        text += [f"### {', '.join(whole['corpora'])}: {whole['megabytes']:.0f} MB\n", whole_table(whole["rows"])]
    text += [
        "## One hostile word: count and learn 1,000 merges, seconds\n",
        table(
            ["", "median of all patterns", "the slowest", ""],
            [
                [name, f"{statistics.median(s for s, _ in times):.2f}", f"{max(times)[0]:.2f}", max(times)[1]]
                for name, rows in groupby(results["hostile"], key=lambda row: row[0])
                if (times := [(float(seconds), pattern) for _, pattern, seconds in rows])
            ],
        ),
        "## Learning to 50,257 tokens from many unique words\n",
        table(
            ["unique words", "s", "µs a word", "bytes a word above the table", "merges"],
            [
                [f"{n:,.0f}", f"{s:.2f}", f"{s / n * 1e6:.2f}", f"{b / n:.0f}", f"{m:,.0f}"]
                for n, s, b, m in results["scaling"]
            ],
        ),
        f"`dist-bpe --help`: {results['help']:.2f} s.\n",
    ]  # fmt: skip
    (ROOT / "docs" / "benchmarks.md").write_text("\n".join(text))
    before, _, rest = README.read_text().partition(BEGIN)
    README.write_text(before + BEGIN + "\n" + readme(results) + "\n" + END + rest.partition(END)[2])


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
