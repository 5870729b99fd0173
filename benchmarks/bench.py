"""Our figures beside every peer's, on the same text, in the same run.

    make bench              everything, about half an hour on two cores
    make bench-quick        small inputs, one round: shows that all of it runs

Each contestant is a process of its own (contestants.py), pinned to one core, in turns A B A B, medians of the rounds.
Writes benchmarks/results/NAME.json (raw), docs/benchmarks.md (tables) and docs/benchmarks/*.svg (plots).
"""

import argparse
import importlib.metadata
import json
import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
ROOT = HERE.parent
WORK = HERE / ".work"
PEERS = ("tokenizers", "rustbpe", "ffbpe", "bpeasy", "gigabpe", "sentencepiece")
SLOW = {"tokenizers", "bpeasy", "rustbpe", "sentencepiece"}  # one round is enough: they are told apart by far more
PATTERNS = ("gpt2", "cl100k")
VOCAB_SIZE = 32_000
TIMEOUT = 600  # seconds of one run
PARTS = ("contests", "reading", "whole", "hostile", "scaling", "help")
ONE_THREAD = {
    "RAYON_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "ARROW_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false",
}  # fmt: skip
Figures = dict[str, Any]


def peers_python() -> Path:
    """The peers' own environment, made on the first call."""
    python = WORK / "peers" / "bin" / "python"
    if not python.exists():
        print("installing the peers", flush=True)
        subprocess.run([sys.executable, "-m", "venv", WORK / "peers"], check=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", "-r", HERE / "peers.txt"], check=True)
    return python


def run(command: list[Any], core: int) -> tuple[Figures, str]:
    """Run one process on one core; its CPU seconds, peak memory and standard output."""
    began = time.monotonic()
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        process = subprocess.Popen(
            ["taskset", "-c", str(core), *map(str, command)], stdout=out, stderr=err, env=os.environ | ONE_THREAD
        )
        alarm = threading.Timer(TIMEOUT, process.kill)
        alarm.start()
        _, status, usage = os.wait4(process.pid, 0)
        alarm.cancel()
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        err.seek(0)
        output, complaint = out.read(), err.read()
    if process.returncode:
        if time.monotonic() - began > TIMEOUT:
            raise RuntimeError(f"took longer than {TIMEOUT} s")
        last = complaint.strip().splitlines()[-1:] or [f"exit code {process.returncode}"]
        raise RuntimeError(last[0][:200])
    figures = {
        "cpu": usage.ru_utime + usage.ru_stime,
        "wall": time.monotonic() - began,
        "peak_bytes": usage.ru_maxrss * 1024,
    }
    return figures, output


def contest(corpus: Path, pattern: str, names: list[tuple[str, str | None]], rounds: int, core: int) -> list[Figures]:
    """Every contestant on one corpus, in turns; a median for each figure. One that fails is named with its error."""
    raw: dict[tuple[str, str | None], list[Figures]] = {name: [] for name in names}
    failed: dict[tuple[str, str | None], str] = {}
    for turn in range(rounds):
        for name in names:
            if name in failed or (turn and name[0] in SLOW):
                continue
            python = Path(sys.executable) if name[0] == "dist_bpe" else peers_python()
            command = [python, HERE / "contestants.py", name[0], "train", corpus, "--pattern", pattern]
            command += ["--vocab-size", VOCAB_SIZE] + (["--level", name[1]] if name[1] else [])
            try:
                figures, output = run(command, core)
            except RuntimeError as error:
                failed[name] = str(error)
                continue
            raw[name].append(figures | json.loads(output.splitlines()[-1]))
            print(f"  {corpus.stem} {pattern} {name[0]} {name[1] or ''}: {raw[name][-1]}", flush=True)
    rows = []
    for who in names:
        row: Figures = {"corpus": corpus.stem, "pattern": pattern, "name": who[0], "level": who[1]}
        if who in failed:
            row["failed"] = failed[who]
        else:
            runs = raw[who]
            row |= {key: value for key, value in runs[0].items() if not isinstance(value, int | float)}
            numbers = {key for key, value in runs[0].items() if isinstance(value, int | float)}
            row |= {key: statistics.median(one[key] for one in runs) for key in numbers}
            row["rounds"] = len(runs)
        rows.append(row)
    return rows


# The same documents as one text file, for the peer that reads nothing else. In a process of its own, like all that
# takes memory: a child's peak begins at that of the process it was forked from.
PLAIN_TEXT = """
import sys, pyarrow.parquet as pq
with open(sys.argv[2], "w", encoding="utf-8", newline="\\n") as file:
    for batch in pq.ParquetFile(sys.argv[1]).iter_batches(batch_size=500, columns=["text"]):
        file.writelines(text + "\\n" for text in batch.column(0).to_pylist())
"""


READ = """
import sys, time, pyarrow.parquet as pq
began = time.process_time()
with pq.ParquetFile(sys.argv[1]) as file:
    for batch in file.iter_batches(batch_size=500, columns=["text"], use_threads=False):
        pass
print(time.process_time() - began)
"""

COUNT = """
import sys, time, tempfile
import dist_bpe
from dist_bpe.corpus.plan import plan
from dist_bpe.counting.options import CountOptions
from dist_bpe.counting.tasks import CountTask, count_shard
from pathlib import Path
with tempfile.TemporaryDirectory() as folder:
    source = dist_bpe.Source("a", sys.argv[1])
    options = CountOptions(pattern=sys.argv[2], special_tokens=[])
    planned = plan([source], 1 << 40)
    began = time.process_time()
    for shard in planned.shards:
        count_shard(CountTask(shard, Path(folder), options, 1 << 30))
    print(time.process_time() - began)
"""

HOSTILE = """
import random, time
import pyarrow as pa
from dist_bpe import _core
texts = {
    "5 MB of a": "a" * 5_000_000,
    "1 MB of random ACGT": "".join(random.Random(8).choices("ACGT", k=1_000_000)),
    "2,000,000 spaces + x": " " * 2_000_000 + "x",
    "1,000,000 ^": "^" * 1_000_000,
}
for name, text in texts.items():
    for pattern in _core.PATTERNS:
        began = time.process_time()
        counter = _core.Counter(1, pattern, [])
        counter.count(0, pa.array([text, text]))
        table = [batch for _, batch in counter.drain(1)]
        _core.learn_merges(_core.Words(table, [1], 1), 1000, 2)
        print(name, pattern, time.process_time() - began, sep="\\t")
"""

SCALING = """
import sys, time
from pathlib import Path
import numpy, pyarrow as pa
from dist_bpe import _core, progress
unique = int(sys.argv[1])
random = numpy.random.default_rng(1)
# Words of syllables drawn by Zipf's law, as unlike each other as those of real text; counts fall as 1 / rank.
syllables = ["".join(random.choice(list("aeioubcdfghklmnprst"), 2 + i % 3)) for i in range(3000)]
seen, words = set(), []
while len(words) < unique:
    picks = (random.zipf(1.3, (unique, 4)) - 1) % 3000
    for row, number in zip(picks.tolist(), random.integers(2, 5, unique).tolist()):
        word = " " + "".join(syllables[i] for i in row[:number])
        if word not in seen:
            seen.add(word)
            words.append(word)
            if len(words) == unique:
                break
del seen
counts = (unique * 20 // numpy.arange(1, unique + 1)).astype("uint64") + 1
batches = [
    pa.record_batch(
        [pa.array(words[i:i + 65536], pa.binary()), pa.array([0] * len(words[i:i + 65536]), pa.uint32()),
         pa.array(counts[i:i + 65536])], ["word", "source", "count"])
    for i in range(0, unique, 65536)
]
del words
table = _core.Words(batches, [1], 1)
del batches
progress._reset_peak_memory()
before = progress.peak_memory_bytes()
began = time.process_time()
merges = _core.learn_merges(table, 50257 - 257, 2)
print(time.process_time() - began, progress.peak_memory_bytes() - before, merges.num_rows, sep="\\t")
"""

HUGGING_FACE = """
import sys, pyarrow.parquet as pq
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
def texts():
    for path in sys.argv[2:]:
        for batch in pq.ParquetFile(path).iter_batches(batch_size=500, columns=["text"], use_threads=False):
            yield batch.column(0).to_pylist()
tokenizer = Tokenizer(models.BPE())
tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
tokenizer.train_from_iterator(texts(), trainers.BpeTrainer(
    vocab_size=32000, min_frequency=2, show_progress=False, special_tokens=["<|endoftext|>"],
    initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
tokenizer.save(sys.argv[1])
"""

GIGABPE = """
import sys, gigabpe
gigabpe.train_tokenizer(sys.argv[2:], 32000, sys.argv[1], special_tokens=["<|endoftext|>"], min_frequency=2,
    pretokenizer="bytelevel", threads=1)
"""


def script(text: str, *arguments: Any, core: int, python: Path = Path(sys.executable)) -> tuple[Figures, str]:
    return run([python, "-c", text, *arguments], core)


def reading(corpora: list[Path], rounds: int, core: int) -> list[Figures]:
    """Counting from zstd Parquet against pyarrow alone reading the same column."""
    rows = []
    for corpus in corpora:
        times: dict[str, list[float]] = {"read": [], "count": []}
        for _ in range(rounds):
            times["read"].append(float(script(READ, corpus, core=core)[1]))
            times["count"].append(float(script(COUNT, corpus, "gpt2", core=core)[1]))
        read, count = (statistics.median(times[name]) for name in ("read", "count"))
        rows.append({"corpus": corpus.stem, "read": read, "count": count, "share": read / count})
    return rows


def whole_runs(corpora: list[Path], rounds: int, core: int) -> list[Figures]:
    """Parquet to exported files, whole processes; ours with and without the verification of the exports."""
    train = [
        Path(sys.executable).parent / "dist-bpe",
        "train",
        *(f"{c.stem}={c}" for c in corpora),
        "--engine",
        "local",
    ]
    train += ["--workers", "1", "--vocab-size", VOCAB_SIZE, "--overwrite", "-o"]
    plain = [corpus.with_suffix(".txt") for corpus in corpora]
    rows: list[Figures] = []
    with tempfile.TemporaryDirectory(dir=WORK) as folder:
        out = Path(folder)
        commands: dict[str, list[Any]] = {
            "dist_bpe, verification left out": [*train, out / "run", "--no-verify"],
            "dist_bpe": [*train, out / "run"],
            "gigabpe, plain text": [peers_python(), "-c", GIGABPE, out / "gigabpe.json", *plain],
            "tokenizers": [peers_python(), "-c", HUGGING_FACE, out / "tokenizers.json", *corpora],
        }
        raw: dict[str, list[Figures]] = {name: [] for name in commands}
        for turn in range(rounds):
            for name, command in commands.items():
                if turn and name in SLOW:
                    continue
                try:
                    raw[name].append(run(command, core)[0])
                    print(f"  whole run, {name}: {raw[name][-1]}", flush=True)
                except RuntimeError as error:
                    rows.append({"name": name, "failed": str(error)})
                    break
        for name, runs in raw.items():
            if runs:
                rows.append({"name": name} | {key: statistics.median(one[key] for one in runs) for key in runs[0]})
    return rows


def machine() -> Figures:
    model = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    return {
        "processor": model[1] if model else platform.processor(),
        "system": platform.system() + " " + platform.machine(),
        "python": platform.python_version(),
        "pyarrow": importlib.metadata.version("pyarrow"),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="3 MB of each corpus, one round")
    parser.add_argument("--corpora", type=Path, help="a folder of Parquet files with a column `text`")
    parser.add_argument("--megabytes", type=float, default=100, help="text of each corpus in the contests")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--unique-words", type=int, nargs="*", default=[1_000_000, 5_000_000, 10_000_000])
    parser.add_argument("--core", type=int, default=max(os.sched_getaffinity(0)))
    parser.add_argument("--name", default="latest", help="of the results file")
    parser.add_argument(
        "--parts", nargs="*", choices=PARTS, default=PARTS, help="of the measurements; keeps the others"
    )
    arguments = parser.parse_args()
    megabytes, rounds = (3.0, 1) if arguments.quick else (arguments.megabytes, arguments.rounds)
    WORK.mkdir(exist_ok=True)
    peers_python()

    full = arguments.corpora or WORK / "corpora"
    if not full.exists():
        subprocess.run([sys.executable, HERE / "corpora.py", full], check=True)
    cut = WORK / f"corpora-{megabytes:g}"
    if not cut.exists():
        given = [f"--parquet={path.stem}={path}" for path in sorted(full.glob("*.parquet"))]
        subprocess.run([sys.executable, HERE / "corpora.py", cut, *given, "--megabytes", str(megabytes)], check=True)
    corpora = sorted(cut.glob("*.parquet"))
    whole = corpora if arguments.quick else sorted(full.glob("*.parquet"))
    core = arguments.core
    for corpus in {*corpora, *whole}:
        if not corpus.with_suffix(".txt").exists():
            script(PLAIN_TEXT, corpus, corpus.with_suffix(".txt"), core=core)

    levels = script("from dist_bpe import _core; print(*_core.levels())", core=core)[1].split()
    ours: list[tuple[str, str | None]] = [("dist_bpe", level) for level in reversed(levels)]
    name = "quick" if arguments.quick else arguments.name
    file = HERE / "results" / f"{name}.json"
    file.parent.mkdir(exist_ok=True)
    results: Figures = json.loads(file.read_text()) if file.exists() and set(arguments.parts) != set(PARTS) else {}
    results["machine"] = machine() | {"levels": levels, "megabytes": megabytes, "rounds": rounds}
    for part in arguments.parts:
        if part == "contests":
            contests = []
            for pattern in PATTERNS:
                peers = [
                    (name, None)
                    for name in PEERS
                    if pattern == "gpt2" or name not in ("gigabpe", "sentencepiece", "bpeasy")
                ]
                for corpus in corpora:
                    contests += contest(corpus, pattern, [*ours, *peers], rounds, core)
            results[part] = contests
        elif part == "reading":
            results[part] = reading(whole, rounds, core)
        elif part == "whole":
            results[part] = whole_runs(whole, rounds, core)
            results["whole_megabytes"] = sum(corpus.with_suffix(".txt").stat().st_size for corpus in whole) / 1e6
        elif part == "hostile":
            results[part] = [line.split("\t") for line in script(HOSTILE, core=core)[1].splitlines()]
        elif part == "scaling":
            results[part] = [
                [unique, *map(float, script(SCALING, unique, core=core)[1].split("\t"))]
                for unique in ((100_000,) if arguments.quick else arguments.unique_words)
            ]
        elif part == "help":
            command = [Path(sys.executable).parent / "dist-bpe", "--help"]
            results[part] = statistics.median(run(command, core)[0]["wall"] for _ in range(5))
        file.write_text(json.dumps(results, indent=1) + "\n")
    if not arguments.quick:
        subprocess.run([sys.executable, HERE / "report.py", file], check=True)


if __name__ == "__main__":
    main()
