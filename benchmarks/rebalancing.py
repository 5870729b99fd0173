"""What mixtures cost each of 26 languages, on unseen pages, and how long they take: the tables of docs/rebalancing.md.

    python benchmarks/parallel.py benchmarks/.work/parallel
    python benchmarks/rebalancing.py benchmarks/.work/parallel            # or any folder of that layout

Settings: S1 has all training text. In S2 the n-th language after English, by name, keeps 2 / (n + 1) of its
pages, the first by a hash, and English from elsewhere fills up until English has 85 % of the bytes.
Held-out pages are split into development and test pages by each seed; all figures are of the test pages.

CPU seconds of this process, on the core it is pinned to; counting is not in them.
"""

import argparse
import functools
import hashlib
import json
import os
import re
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from report import table as markdown

import dist_bpe
from dist_bpe import _core
from dist_bpe.corpus.heldout import HeldOut, read_parallel, split
from dist_bpe.counting.table import CountTable
from dist_bpe.evaluation.balance import balance
from dist_bpe.learning.mixture import Mixture
from dist_bpe.learning.options import LearnOptions
from dist_bpe.learning.trainer import Outcome, Trainer
from dist_bpe.pretokenize.patterns import O200K
from dist_bpe.vocabulary.vocabulary import Vocabulary

ROOT = Path(__file__).parent.parent
DOCUMENT = ROOT / "docs" / "rebalancing.md"
BEGIN, END = "<!-- measured: written by benchmarks/rebalancing.py -->\n", "<!-- end of measured -->\n"
ENGLISH = ("en-us", "en-gb")
REFERENCE = "en-us"
KEY = ("setting", "size", "seed", "method")
Texts = dict[str, list[str]]


def size_of(part: Sequence[str]) -> int:
    return sum(len(text.encode()) for text in part)


def subsampled(texts: Texts, more: Sequence[str]) -> Texts:
    """Setting S2; `more` is English."""
    kept = {lang: texts[lang] for lang in ENGLISH}
    for n, lang in enumerate(sorted(set(texts) - set(ENGLISH)), 1):
        order = sorted(texts[lang], key=lambda text: hashlib.sha256(text.encode()).digest())
        kept[lang] = order[: len(order) * 2 // (n + 1)]
    english = sum(size_of(kept[lang]) for lang in ENGLISH)
    left = (sum(map(size_of, kept.values())) - english) * 85 / 15 - english
    kept[REFERENCE] = list(kept[REFERENCE])
    for text in more:
        if left <= 0:
            break
        kept[REFERENCE].append(text)
        left -= size_of([text])
    if left > 0:
        raise SystemExit(f"english.parquet is {left / 1e6:.0f} MB too small for 85 % of English.")
    return dict(sorted(kept.items()))


def counted(texts: Texts, folder: Path) -> CountTable:
    sources = []
    for lang, part in texts.items():
        pq.write_table(pa.table({"text": part}), folder / f"{lang}.parquet")
        sources.append(dist_bpe.Source(lang, str(folder / f"{lang}.parquet")))
    return dist_bpe.count(
        *sources,
        output=folder / "run",
        engine="local",
        workers=1,
        pattern="o200k",
        special_tokens=[],
        progress="silent",
    )


def figures(outcome: Outcome) -> dict[str, Any]:
    premiums = outcome.premiums(REFERENCE)
    return {
        "gini": outcome.gini,
        "mean_premium": statistics.mean(premium for lang, premium in premiums.items() if lang != REFERENCE),
        "worst_premium": max(premiums.values()),
        "max_over_min": outcome.max_over_min,
        "worst": outcome.worst,
        "worst_tokens": outcome.tokens[outcome.worst],
        "macro": outcome.macro_bytes_per_token,
        "all": sum(outcome.tokens.values()),
    }


def peer(texts: Texts, dev: HeldOut, merges: int, **options: Any) -> tuple[pa.RecordBatch, float]:
    """Merges of Hugging Face's ParityBpeTrainer on the same text and pattern, and the seconds beyond its counting."""
    from tokenizers import Regex, Tokenizer, models, pre_tokenizers
    from tokenizers.trainers import ParityBpeTrainer

    def train(merges: int) -> tuple[Any, float]:
        tokenizer = Tokenizer(models.BPE())
        cut = pre_tokenizers.Split(Regex(O200K.tokenizers_regexes[0]), "isolated")
        level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([cut, level])
        trainer = ParityBpeTrainer(
            num_merges=merges,
            min_frequency=2,
            show_progress=False,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            **options,
        )
        began = time.process_time()
        trainer.train_from_iterator(
            tokenizer, [iter(part) for part in texts.values()], dev_iterators=[iter(dev.texts[lang]) for lang in texts]
        )
        return tokenizer, time.process_time() - began

    _, counting = train(1)
    tokenizer, seconds = train(merges)
    with tempfile.TemporaryDirectory() as folder:
        tokenizer.save(str(Path(folder) / "tokenizer.json"))
        found = Vocabulary.load(Path(folder) / "tokenizer.json").data.merges
    left, right = (pa.array(side, pa.uint32()) for side in zip(*found, strict=True))
    return pa.record_batch([left, right], names=["left", "right"]), seconds - counting


Entry = tuple[str, Callable[[], Any]]


def peer_entries(texts: Texts, dev: HeldOut, size: int) -> list[Entry]:
    return [
        (f"ParityBpeTrainer {variant}", functools.partial(peer, texts, dev, size - 256, variant=variant))
        for variant in ("base", "window")
    ]


def _merges(trainer: Trainer, mixture: Mixture) -> pa.RecordBatch:
    return trainer.train(mixture).merges


def entries(trainer: Trainer) -> list[Entry]:
    """Methods by name; each gives the merges it learned, looking at development text alone."""
    mixtures = {
        "natural": Mixture(),
        "temperature 0.3": Mixture(alpha=0.3),
        "equal bytes": Mixture(alpha=0),
        "equal documents": Mixture(alpha=0, unit="documents"),
    }
    found: list[Entry] = [(name, functools.partial(_merges, trainer, mixture)) for name, mixture in mixtures.items()]
    found.append(("balanced", lambda: balance(trainer)[0].merges))
    found += [(f"parity {rule}", functools.partial(trainer.parity, rule)) for rule in ("dev", "window", "hybrid")]
    return found


def contest(
    name: str, texts: Texts, pool: HeldOut, seeds: Sequence[int], sizes: Sequence[int], wanted: str
) -> Iterator[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as folder:
        table = counted(texts, Path(folder))
        for size in sizes:
            config = LearnOptions(vocab_size=(size,))
            for seed in seeds:
                dev, test = split(pool, seed)
                trainer = Trainer(table, config, [], dev)
                judge = Trainer(table, config, [], test)
                for method, learn in entries(trainer) + peer_entries(texts, dev, size):
                    if not re.search(wanted, method):
                        continue
                    began = time.process_time()
                    merges: Any = learn()
                    seconds = time.process_time() - began
                    if isinstance(merges, tuple):
                        merges, seconds = merges
                    outcome = judge.measure(Mixture(), merges, 0.0)
                    row = {"setting": name, "size": size, "seed": seed, "method": method, "seconds": seconds}
                    yield row | {"merges": merges.num_rows} | figures(outcome)


def timings(texts: Texts, pool: HeldOut, repeats: int = 5) -> dict[str, float]:
    """Median CPU seconds at 32,000 tokens: a retraining from the table in memory, and a round with its measuring."""
    found: dict[str, list[float]] = {"load": [], "retraining": [], "round": []}
    with tempfile.TemporaryDirectory() as folder:
        table = counted(texts, Path(folder))
        dev, _ = split(pool)
        for _ in range(repeats):
            began = time.process_time()
            trainer = Trainer(table, LearnOptions(vocab_size=(32_000,)), [], dev)
            found["load"].append(time.process_time() - began)
            mixture = trainer.mixture({})
            numbers = list(mixture.weights(table.sizes("bytes")).integers.values())
            began = time.process_time()
            _core.learn_merges(trainer.words.words(numbers, 1, True), trainer.merges)
            found["retraining"].append(time.process_time() - began)
            began = time.process_time()
            trainer.train(mixture)
            found["round"].append(time.process_time() - began)
    return {name: statistics.median(values) for name, values in found.items()}


def tables(results: dict[str, Any]) -> str:
    lines = []
    rows = results["rows"]
    for setting, size in dict.fromkeys((row["setting"], row["size"]) for row in rows):
        chosen = [row for row in rows if (row["setting"], row["size"]) == (setting, size)]
        body = []
        for method in dict.fromkeys(row["method"] for row in chosen):
            runs = [row for row in chosen if row["method"] == method]

            def shown(key: str, form: str, runs: list[Any] = runs) -> str:
                values = [run[key] for run in runs]
                middle = form.format(statistics.median(values))
                spread = [form.format(min(values)), form.format(max(values))]
                return middle if spread[0] == spread[1] else f"{middle} ({spread[0]}–{spread[1]})"

            body.append(
                [
                    method, shown("gini", "{:.4f}"), shown("mean_premium", "{:.3f}"), shown("worst_premium", "{:.3f}"),
                    shown("max_over_min", "{:.3f}"), "/".join(dict.fromkeys(run["worst"] for run in runs)),
                    f"{statistics.median(run['worst_tokens'] for run in runs):,.0f}", shown("macro", "{:.3f}"),
                    f"{statistics.median(run['all'] for run in runs):,.0f}",
                    f"{statistics.median(run['seconds'] for run in runs):,.1f}",
                ]
            )  # fmt: skip
        lines.append(f"**{setting}, {size:,} tokens**\n")
        header = ["", "Gini", "mean premium", "worst premium", "max/min", "worst", "its tokens", "macro bytes/token"]
        lines.append(markdown([*header, "all tokens", "CPU s"], body))
    took = results["timings"]
    lines.append(
        f"From the table in memory at 32,000 tokens, median of five: {took['retraining']:.2f} s of CPU for a "
        f"retraining, {took['round']:.2f} s for a round with its measuring; {took['load']:.2f} s, once, for loading "
        "table and development text.\n"
    )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="train/*.parquet and held-out.parquet with lang, doc, text")
    parser.add_argument("--settings", nargs="+", default=["S1", "S2"], choices=["S1", "S2"])
    parser.add_argument("--sizes", nargs="+", type=int, default=[32_000, 8_000])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--methods", default="^(?!Parity)", help="a regular expression; '' for the slow peers, too")
    parser.add_argument("--results", type=Path, default=ROOT / "benchmarks" / "results" / "rebalancing.json")
    parser.add_argument("--tables-only", action="store_true", help="write the document from the results that are there")
    arguments = parser.parse_args()
    if not arguments.tables_only:
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
        texts: Texts = {}
        for path in sorted((arguments.folder / "train").glob("*.parquet")):
            for lang, text in zip(*(pq.read_table(path)[name].to_pylist() for name in ("lang", "text")), strict=True):
                texts.setdefault(lang, []).append(text)
        pool = read_parallel(arguments.folder / "held-out.parquet")
        # Rows of earlier runs stay, unless they are measured again.
        results = json.loads(arguments.results.read_text()) if arguments.results.exists() else {"rows": []}
        for setting in arguments.settings:
            more = pq.read_table(arguments.folder / "english.parquet")["text"].to_pylist() if setting == "S2" else []
            chosen = texts if setting == "S1" else subsampled(texts, more)
            for row in contest(setting, chosen, pool, arguments.seeds, arguments.sizes, arguments.methods):
                print(json.dumps(row), flush=True)
                key = [row[name] for name in KEY]
                results["rows"] = [old for old in results["rows"] if [old[name] for name in KEY] != key] + [row]
                arguments.results.write_text(json.dumps(results, indent=1) + "\n")
        results["timings"] = timings(texts, pool)
        arguments.results.write_text(json.dumps(results, indent=1) + "\n")
    results = json.loads(arguments.results.read_text())
    text = DOCUMENT.read_text()
    head, _, rest = text.partition(BEGIN)
    DOCUMENT.write_text(head + BEGIN + "\n" + tables(results) + "\n" + END + rest.partition(END)[2])


if __name__ == "__main__":
    main()
