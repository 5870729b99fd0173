"""What several files of tests use."""

import bz2
import contextlib
import gzip
import hashlib
import json
import lzma
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner, Result

import dist_bpe
from dist_bpe.cli.main import app
from dist_bpe.counting.tasks import CountTask
from dist_bpe.counting.tasks import count_shard as count_really


def quiet(*sources: dist_bpe.Source, output: Path | str, **options: object) -> dist_bpe.CountTable:
    return dist_bpe.count(*sources, output=output, progress="silent", **{"engine": "local", "workers": 1} | options)  # type: ignore[arg-type]


def hashes(folder: Path) -> dict[str, str]:
    """SHA-256 of every file of the reproducible set below a folder."""
    return {
        str(file.relative_to(folder)): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in sorted(folder.rglob("*"))
        if file.is_file() and not file.name.startswith("report.")
    }


OBSERVING = (Path(__file__).parent.parent / "docs" / "observing.md").read_text()
EVENTS = re.compile(r"^\| `(\w+)` \|.*\|(.*)\|$", re.M)


def events_of(text: str) -> list[dict[str, Any]]:
    """The events in a log, each as docs/observing.md says."""
    events = [json.loads(line) for line in text.splitlines()]
    table, _, attempts = OBSERVING.partition("\nAll attempts have: ")
    documented = {name: set(re.findall(r"`(\w+)`", fields)) for name, fields in EVENTS.findall(table)}
    for name in documented:
        if name.startswith("attempt_"):
            documented[name] |= set(re.findall(r"`(\w+)`", attempts.partition("\n\n")[0]))
    for event in events:
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", event["time"])
        fields = event.keys() - {"time", "level", "event", "run", "text"}
        assert fields <= documented[event["event"]], event
    return events


def run(*arguments: str | Path, stdin: bytes | None = None) -> Result:
    """A command in this process, which saves a second of imports; test_package.py starts real ones."""
    return CliRunner().invoke(app, list(map(str, arguments)), input=stdin)


def stop_after(monkeypatch: pytest.MonkeyPatch, shards: int, error: type[BaseException] = KeyboardInterrupt) -> None:
    """Stop the count of the next run after a number of shards."""
    real, left = count_really, [shards]

    def count_shard(task: CountTask) -> dict[str, object]:
        if not left[0]:
            monkeypatch.setattr("dist_bpe.run.count.count_shard", real)
            raise error("stop")
        left[0] -= 1
        return real(task)

    monkeypatch.setattr("dist_bpe.run.count.count_shard", count_shard)


COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": lambda data: b"".join(gzip.compress(data[i : i + 700]) for i in range(0, len(data), 700)),
    ".zst": lambda data: b"".join(zstd(data[i : i + 700]) for i in range(0, len(data), 700)),
    ".bz2": lambda data: b"".join(bz2.compress(data[i : i + 700]) for i in range(0, len(data), 700)),
    ".xz": lambda data: b"".join(lzma.compress(data[i : i + 700]) for i in range(0, len(data), 700)),
}


def zstd(data: bytes) -> bytes:
    return bytes(pa.Codec("zstd").compress(data, asbytes=True))


def finished(output: Path, what: str) -> int:
    """How many shards or parts of a run are committed. A folder may be renamed under the eyes of a glob."""
    with contextlib.suppress(FileNotFoundError):
        return len(list(output.glob(f"staging/*/{what}-*.json")))
    return 0


NODE = {"object_store_memory": 80 << 20, "include_dashboard": False}


# A driver of a cluster; the pattern is slow, so that there is time to do harm.
DRIVER = """
import sys
from dist_bpe.options import build
from dist_bpe.progress import Progress
from dist_bpe.run.config import RunConfig
from dist_bpe.run.count import run_count
source, output, address, partitions = sys.argv[1:]
config = build(RunConfig, {
    "sources": [{"name": "s", "paths": source}], "output": output,
    "count": {"pattern": r"[a-z]+|[0-9]+|\\s", "shard_bytes": 100_000, "partitions": int(partitions)},
    "engine": {"address": address, "stall_seconds": 5},
})
run_count(config, Progress("json"))
"""


def corpus(folder: Path) -> Path:
    """Eighty files of about a megabyte in two languages."""
    folder.mkdir()
    rng = random.Random(2)
    texts = [" ".join(f"{rng.randrange(30_000):x}" for _ in range(4_000)) for _ in range(100)]
    for number in range(80):
        chosen = rng.choices(texts, k=50)
        table = pa.table({"text": chosen, "lang": rng.choices(["en", "de"], k=len(chosen))})
        pq.write_table(table, folder / f"{number}.parquet")
    return folder


# A slow pattern, so that there is time to do harm.
SLOW = ["--pattern", r"[a-z]+|[0-9]+|[\s\S]", "--shard-bytes", "1000000", "--group-by", "lang", "--vocab-size", "2000"]
