"""Our figures beside every peer's, on the same text, in the same run.

    make bench              everything, about seventeen minutes on a core that nothing else uses
    make bench-quick        small inputs, one round: shows that all of it runs

Each contestant is a process of its own (contestants.py), pinned to one core, in turns A B A B, medians of the rounds.
Slow ones have one round, and do their whole run on the small English corpus alone. Writes benchmarks/results/NAME.json
(raw), docs/benchmarks.md (tables), docs/benchmarks/*.svg (plots) and the tables of the README.
"""

import argparse
import importlib.metadata
import json
import os
import platform
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from contestants import OURS, PATTERNS, TRAINERS, equal_merges

HERE = Path(__file__).parent
ROOT = HERE.parent
WORK = HERE / ".work"
VOCAB_SIZE = 32_000
TIMEOUT = 600  # seconds of one run
PARTS = ("contests", "documents", "reading", "whole", "hostile", "scaling", "help")
# What cutting text into words and looking each up may cost beside decompression: aims, nanoseconds a byte.
SPLIT, PROBE = 0.5, 0.6
ENVIRONMENT = {
    "RAYON_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "ARROW_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false",
    "PYTHONPATH": str(ROOT),
}  # fmt: skip
Figures = dict[str, Any]


def peers_python() -> Path:
    """The peers' own environment, made on the first call, and again when peers.txt says something else."""
    folder, wanted = WORK / "peers", HERE / "peers.txt"
    python, installed = folder / "bin" / "python", folder / "installed.txt"
    if not installed.exists() or installed.read_text() != wanted.read_text():
        print("installing the peers", flush=True)
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", "-r", wanted], check=True)
        shutil.copy(wanted, installed)
    return python


def contestant(name: str, task: str, *arguments: Any) -> list[Any]:
    """The command of a trainer."""
    python = Path(sys.executable) if name == OURS else peers_python()
    return [python, HERE / "contestants.py", name, task, *arguments]


def run(command: list[Any], core: int) -> tuple[Figures, str]:
    """Run one process on one core; its CPU seconds, peak memory and standard output."""
    began = time.monotonic()
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        process = subprocess.Popen(
            ["taskset", "-c", str(core), *map(str, command)], stdout=out, stderr=err, env=os.environ | ENVIRONMENT
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


def in_turns(commands: dict[str, list[Any]], rounds: int, core: int, once: Sequence[str] = ()) -> dict[str, Figures]:
    """Each command in turns; the median of each figure that it prints and that is measured. A failure is named."""
    raw: dict[str, list[Figures]] = {name: [] for name in commands}
    failed: dict[str, str] = {}
    for turn in range(rounds):
        for name, command in commands.items():
            if name in failed or (turn and name in once):
                continue
            try:
                figures, output = run(command, core)
            except RuntimeError as error:
                failed[name] = str(error)
                print(f"  {name}: failed: {error}", flush=True)
                continue
            last = output.strip().splitlines()[-1:]
            raw[name].append(figures | (json.loads(last[0]) if last and last[0].startswith("{") else {}))
            told = {key: value for key, value in raw[name][-1].items() if key != "checkpoints"}
            print(f"  {name}: {json.dumps(told)}", flush=True)
    rows: dict[str, Figures] = {}
    for name, runs in raw.items():
        rows[name] = {"failed": failed[name]} if name in failed else {"rounds": len(runs)}
        for key in runs[0] if name not in failed else ():
            values = [each[key] for each in runs]
            rows[name][key] = statistics.median(values) if isinstance(values[0], float) else values[0]
    return rows


def contest(corpus: Path, pattern: str, who: list[tuple[str, str | None]], rounds: int, core: int) -> list[Figures]:
    """Every contestant on one corpus: count and learn from text in memory."""
    print(f"{corpus.stem}, {pattern}", flush=True)
    commands = {}
    for name, level in who:
        more = ["--pattern", pattern, "--vocab-size", VOCAB_SIZE, *(["--level", level] if level else [])]
        commands[f"{name} {level or ''}".strip()] = contestant(name, "train", corpus, *more)
    found = in_turns(commands, rounds, core, [name for name, _ in who if TRAINERS[name].slow])
    rows = []
    for (name, level), row in zip(who, found.values(), strict=True):
        rows.append({"corpus": corpus.stem, "pattern": pattern, "name": name, "level": level, **row})
        rows[-1]["equal_merges"] = equal_merges(rows[0], row)
    for row in rows:
        row.pop("checkpoints", None)
    return rows


def documents(folder: Path, who: list[str], rounds: int, core: int) -> list[Figures]:
    """Counting documents of 44 bytes, such as the lines of a chat, against the same words in long ones."""
    found = {}
    for length in ("short", "long"):
        print(f"documents: {length}", flush=True)
        commands = {name: contestant(name, "count", folder / f"{length}.parquet") for name in who}
        found[length] = in_turns(commands, rounds, core, [name for name in who if TRAINERS[name].slow])
    sizes = json.loads((folder / "sizes.json").read_text())
    rows = []
    for name in who:
        row: Figures = {"name": name}
        for length, figures in found.items():
            if "failed" in figures[name]:
                row["failed"] = figures[name]["failed"]
            else:
                row["version"] = figures[name]["version"]
                row[length] = figures[name]["count"] / sizes[length]["bytes"] * 1e9
                row["document_bytes"] = sizes["short"]["bytes"] / sizes["short"]["documents"]
        rows.append(row)
    return rows


# The words of a corpus as lines of about 44 bytes, and the same lines joined to long documents.
LINES = """
import json, pathlib, sys, pyarrow as pa, pyarrow.parquet as pq
lines, line = [], ""
with pq.ParquetFile(sys.argv[1]) as file:
    for batch in file.iter_batches(batch_size=500, columns=["text"]):
        for text in batch.column(0).to_pylist():
            for word in text.split():
                line += " " * bool(line) + word
                if len(line) > 38:
                    lines.append(line)
                    line = ""
joined = [" ".join(lines[i:i + 1000]) for i in range(0, len(lines), 1000)]
folder, sizes = pathlib.Path(sys.argv[2]), {}
for name, texts, rows in (("short", lines, 200_000), ("long", joined, 200)):
    pq.write_table(pa.table({"text": texts}), folder / f"{name}.parquet", compression="zstd", row_group_size=rows)
    sizes[name] = {"documents": len(texts), "bytes": sum(len(text.encode()) for text in texts)}
(folder / "sizes.json").write_text(json.dumps(sizes))
"""


# The same documents as one text file, for the peer that reads nothing else. In a process of its own, like all that
# takes memory: a child's peak begins at that of the process it was forked from.
PLAIN_TEXT = """
import sys, pyarrow.parquet as pq
with open(sys.argv[2], "w", encoding="utf-8", newline="\\n") as file:
    for batch in pq.ParquetFile(sys.argv[1]).iter_batches(batch_size=500, columns=["text"]):
        file.writelines(text + "\\n" for text in batch.column(0).to_pylist())
"""


# Zstandard alone: each page of the column is a frame behind a Thrift header, whose first three fields are varints: the
# kind, the size, the compressed size.
UNPACK = """
import sys, time, pyarrow as pa, pyarrow.parquet as pq
def varint(data, at):
    value = shift = 0
    while True:
        value |= (data[at] & 127) << shift
        shift, at = shift + 7, at + 1
        if data[at - 1] < 128:
            return value >> 1, at
frames = []
meta = pq.read_metadata(sys.argv[1])
with open(sys.argv[1], "rb") as file:
    for group in map(meta.row_group, range(meta.num_row_groups)):
        (column,) = (c for c in map(group.column, range(group.num_columns)) if c.path_in_schema == "text")
        begin = column.dictionary_page_offset if column.has_dictionary_page else column.data_page_offset
        file.seek(begin)
        data, at = file.read(column.total_compressed_size), 0
        while at < len(data):
            _, at = varint(data, at + 1)
            size, at = varint(data, at + 1)
            packed, at = varint(data, at + 1)
            at = data.index(b"\\x28\\xb5\\x2f\\xfd", at)
            frames.append((data[at:at + packed], size))
            at += packed
unpack = pa.Codec("zstd").decompress
began = time.process_time()
for frame, size in frames:
    unpack(frame, size)
print(time.process_time() - began, sum(size for _, size in frames))
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


def script(text: str, *arguments: Any, core: int, python: Path = Path(sys.executable)) -> tuple[Figures, str]:
    return run([python, "-c", text, *arguments], core)


def reading(corpora: list[Path], rounds: int, core: int) -> list[Figures]:
    """Counting from zstd Parquet against what no way of counting can do without, and against pyarrow alone."""
    rows = []
    for corpus in corpora:
        times: dict[str, list[float]] = {"unpack": [], "read": [], "count": []}
        size = 0
        for _ in range(rounds):
            seconds, unpacked = script(UNPACK, corpus, core=core)[1].split()
            times["unpack"].append(float(seconds))
            size = int(unpacked)
            times["read"].append(float(script(READ, corpus, core=core)[1]))
            times["count"].append(float(script(COUNT, corpus, "gpt2", core=core)[1]))
        row: Figures = {name: statistics.median(seconds) for name, seconds in times.items()}
        row |= {"corpus": corpus.stem, "bytes": size, "limit": row["unpack"] + (SPLIT + PROBE) * 1e-9 * size}
        print(f"  reading: {row}", flush=True)
        rows.append(row)
    return rows


def whole_runs(corpora: list[Path], who: list[str], rounds: int, core: int) -> list[Figures]:
    """Parquet to exported files, whole processes; ours with and without the verification of the exports."""
    with tempfile.TemporaryDirectory(dir=WORK) as folder:
        train = [Path(sys.executable).parent / "dist-bpe", "train", *(f"{c.stem}={c}" for c in corpora)]
        train += ["--engine", "local", "--workers", 1, "--vocab-size", VOCAB_SIZE, "--overwrite", "-o", f"{folder}/run"]
        commands: dict[str, list[Any]] = {OURS: [*train, "--no-verify"], f"{OURS}, with verification": train}
        for name in who:
            if name != OURS:
                more = ["--vocab-size", VOCAB_SIZE, "--out", folder]
                commands[name] = contestant(name, "whole", *corpora, *more)
        found = in_turns(commands, rounds, core, [name for name in who if TRAINERS[name].slow])
        return [{"name": name, **row} for name, row in found.items()]


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
    parser.add_argument("--only", nargs="*", metavar="CORPUS", help="of that folder, by name")
    parser.add_argument("--peers", nargs="*", choices=TRAINERS, default=list(TRAINERS), help="beside ours")
    parser.add_argument("--megabytes", type=float, default=50, help="text of each corpus in the contests")
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
    corpora, whole = (
        [path for path in sorted(folder.glob("*.parquet")) if path.stem in (arguments.only or [path.stem])]
        for folder in (cut, cut if arguments.quick else full)
    )
    core = arguments.core
    for corpus in {*corpora, *whole}:
        if not corpus.with_suffix(".txt").exists():
            script(PLAIN_TEXT, corpus, corpus.with_suffix(".txt"), core=core)

    small = corpora[min(1, len(corpora) - 1)]  # of ours, English
    lines = WORK / f"lines-{megabytes:g}"
    if not (lines / "sizes.json").exists():
        lines.mkdir(exist_ok=True)
        script(LINES, small, lines, core=core)

    peers = [name for name in TRAINERS if name in arguments.peers and name != OURS]
    levels = script("from dist_bpe import _core; print(*_core.levels())", core=core)[1].split()
    ours: list[tuple[str, str | None]] = [(OURS, level) for level in reversed(levels)]
    name = "quick" if arguments.quick else arguments.name
    file = HERE / "results" / f"{name}.json"
    file.parent.mkdir(exist_ok=True)
    results: Figures = json.loads(file.read_text()) if file.exists() and set(arguments.parts) != set(PARTS) else {}
    results["machine"] = machine() | {"levels": levels, "megabytes": megabytes, "rounds": rounds}
    for part in arguments.parts:
        if part == "contests":
            results[part] = []
            for pattern in PATTERNS:
                able: list[tuple[str, str | None]] = [(x, None) for x in peers if pattern in TRAINERS[x].patterns]
                for corpus in corpora:
                    results[part] += contest(corpus, pattern, [*ours, *able], rounds, core)
        elif part == "documents":
            results[part] = documents(
                lines, [OURS, *(name for name in peers if TRAINERS[name].documents)], rounds, core
            )
        elif part == "reading":
            results[part] = reading([*whole, lines / "short.parquet"], rounds, core)
        elif part == "whole":
            fast = [name for name in peers if not TRAINERS[name].slow]
            results[part] = []
            for inputs, who in (([small], peers), *([] if whole == [small] else [(whole, fast)])):
                size = sum(corpus.with_suffix(".txt").stat().st_size for corpus in inputs) / 1e6
                names = [corpus.stem for corpus in inputs]
                rows = whole_runs(inputs, who, rounds, core)
                results[part].append({"megabytes": size, "corpora": names, "rows": rows})
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
    if missing := set(PARTS) - results.keys():
        print(f"no report: {file} lacks {', '.join(sorted(missing))}")
    elif not arguments.quick:
        subprocess.run([sys.executable, HERE / "report.py", file], check=True)


if __name__ == "__main__":
    main()
