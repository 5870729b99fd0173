"""From the raw results of bench.py: docs/benchmarks.md, and the plots beside it.

python benchmarks/report.py benchmarks/results/latest.json
"""

import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
Figures = dict[str, Any]


def table(header: list[str], rows: list[list[str]]) -> str:
    lines = [header, ["---", *["---:"] * (len(header) - 1)], *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def label(row: Figures) -> str:
    if "failed" in row:
        return row["name"]  # type: ignore[no-any-return]
    return f"{row['name']} {row['version']}" + (f", {row['level']}" if row["level"] else "")


def contest_table(rows: list[Figures], best: Figures) -> str:
    lines = []
    for row in rows:
        if "failed" in row:
            lines.append([label(row), f"failed: {row['failed']}", "", "", "", "", ""])
            continue
        both = row["count"] + row.get("learn", 0)
        lines.append(
            [
                label(row) + (f" ({row['note']})" if "note" in row else ""),
                f"{row['count']:.2f}",
                f"{row['count'] / best['count']:.1f}",
                f"{row['learn']:.2f}",
                f"{row['learn'] / best['learn']:.1f}",
                f"{both / (best['count'] + best['learn']):.1f}",
                f"{row['peak_bytes'] / 1e6:,.0f}",
            ]
        )
    return table(["", "count, s", "× ours", "learn, s", "× ours", "both, × ours", "peak, MB"], lines)


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
        "is a training without merges (index included), and learn is what a full training takes longer. "
        "Ours is given for each scanner the processor can run.\n",
    ]
    for corpus, pattern, rows in groups(results):
        best = next(row for row in rows if row["name"] == "dist_bpe" and "failed" not in row)
        same = [row["name"] for row in rows if row.get("merges") == best["merges"] and row["name"] != "dist_bpe"]
        plot(corpus, pattern, rows, plots / f"{corpus}-{pattern}.svg")
        text += [
            f"### {corpus}, {pattern}\n",
            contest_table(rows, best),
            f"{best['unique_words']:,.0f} unique words. "
            + (
                f"The merge list is identical to that of {', '.join(same)}.\n"
                if same
                else "No other trainer counted the very same words: their Unicode tables are older, or documents are "
                "joined to one file. On equal words the merge lists are equal (tests/learning/test_merges.py).\n"
            ),
            f"![{corpus}, {pattern}](benchmarks/{corpus}-{pattern}.svg)\n",
        ]
    text += [
        "## Counting from Parquet (zstd), against pyarrow alone reading the column\n",
        table(
            ["", "read, s", "count, s", "share of the reading rate"],
            [[r["corpus"], f"{r['read']:.2f}", f"{r['count']:.2f}", f"{r['share']:.0%}"] for r in results["reading"]],
        ),
        f"## Whole runs, {results['whole_megabytes']:.0f} MB: Parquet to exported files, whole processes\n",
        table(
            ["", "CPU, s", "× ours", "peak, MB"],
            [
                [row["name"], f"failed: {row['failed']}", "", ""]
                if "failed" in row
                else [
                    row["name"], f"{row['cpu']:.1f}", f"{row['cpu'] / results['whole'][0]['cpu']:.1f}",
                    f"{row['peak_bytes'] / 1e6:,.0f}",
                ]
                for row in results["whole"]
            ],
        ),
        "## One hostile word: count and learn 1,000 merges, seconds\n",
        table(["", "pattern", "s"], [[name, pattern, f"{float(s):.2f}"] for name, pattern, s in results["hostile"]]),
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


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
