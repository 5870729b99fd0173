"""What reading costs beside counting: CPU seconds of one core, from files to documents and to counted words.

    taskset -c 1 python benchmarks/reading.py corpus.parquet … [--rounds 5]

Each corpus (Parquet, column `text`) is read as it is and as JSON Lines in gzip, and each way is set beside what others
do at least: pyarrow reading that column, zlib and the parsing of every line, `Counter(findall)` for a custom pattern.
Rounds alternate, and the best of each is taken, since other work can only slow a process down.
"""

import argparse
import json
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import regex

from dist_bpe.corpus.plan import plan
from dist_bpe.corpus.source import Source
from dist_bpe.counting.options import CountOptions
from dist_bpe.counting.tasks import CountTask, count_shard

PATTERN = r"\w+|[^\w\s]+|\s+"  # no pattern of ours, so that the `regex` module cuts
LINE = msgspec.defstruct("Line", [("text", str)])


def documents(path: Path) -> None:
    """Our readers alone, as the counter asks them."""
    for shard in plan([Source("a", str(path))]).shards:
        for _ in shard.batches(check_utf8=False):
            pass


def counted(path: Path, pattern: str = "gpt2") -> None:
    with tempfile.TemporaryDirectory() as folder:
        for shard in plan([Source("a", str(path))]).shards:
            count_shard(CountTask(shard, Path(folder), CountOptions(pattern=pattern, special_tokens=[]), 1 << 29))


def arrow_alone(path: Path) -> None:
    with pq.ParquetFile(path) as parquet:
        for _ in parquet.iter_batches(columns=["text"], use_threads=False):
            pass


def blocks(path: Path) -> Any:
    with pa.OSFile(str(path)) as raw, pa.CompressedInputStream(raw, "gzip") as stream:
        rest = b""
        while data := stream.read(4 << 20):
            block = rest + data
            end = block.rfind(b"\n") + 1
            rest = block[end:]
            yield block[:end]


def parsed_alone(path: Path) -> None:
    decode = msgspec.json.Decoder(LINE).decode_lines
    for block in blocks(path):
        decode(block)


def found_alone(path: Path) -> None:
    find = regex.compile(PATTERN).findall
    words: Counter[str] = Counter()
    with pq.ParquetFile(path) as parquet:
        for batch in parquet.iter_batches(columns=["text"], use_threads=False):
            for text in batch.column(0).to_pylist():
                words.update(find(text))


def best(works: list[Callable[[], Any]], rounds: int) -> list[float]:
    """CPU seconds of each, the best of some rounds."""
    times: list[list[float]] = [[] for _ in works]
    for _ in range(rounds):
        for work, seconds in zip(works, times, strict=True):
            start = time.process_time()
            work()
            seconds.append(time.process_time() - start)
    return [min(seconds) for seconds in times]


def main() -> None:
    """Print a line a corpus and way: MB/s alone, read, counted, and the two shares."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("corpora", type=Path, nargs="+")
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    print(f"{'':24}{'alone':>12}{'read':>12}{'counted':>12}")
    for corpus in arguments.corpora:
        texts = pq.read_table(corpus, columns=["text"]).column(0)
        size = sum(len(text.as_py().encode()) for text in texts if text.is_valid)
        with tempfile.TemporaryDirectory() as folder:
            lines = Path(folder) / "a.jsonl.gz"
            with pa.CompressedOutputStream(str(lines), "gzip") as stream:
                for i, text in enumerate(texts):
                    row = {"id": i, "url": f"http://example.org/{i}", "text": text.as_py()}
                    stream.write(json.dumps(row, ensure_ascii=False).encode() + b"\n")
            ways: dict[str, list[Callable[[], Any]]] = {
                "Parquet": [partial(arrow_alone, corpus), partial(documents, corpus), partial(counted, corpus)],
                "gzip JSON Lines": [partial(parsed_alone, lines), partial(documents, lines), partial(counted, lines)],
                "custom pattern": [
                    partial(found_alone, corpus), partial(documents, corpus), partial(counted, corpus, PATTERN)
                ],
            }  # fmt: skip
            for name, works in ways.items():
                rounds = arguments.rounds if name != "custom pattern" else min(2, arguments.rounds)
                alone, read, count = best(works, rounds)
                rates = "".join(f"{size / seconds / 1e6:7.0f} MB/s" for seconds in (alone, read, count))
                print(f"{corpus.stem + ' ' + name:24}{rates}   {alone / read:4.0%} {alone / count:4.0%}", flush=True)


if __name__ == "__main__":
    main()
