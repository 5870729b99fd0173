"""Sizes that break readers: minutes of work, for `make test-large`."""

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dist_bpe
from dist_bpe.corpus.source import Source
from dist_bpe.pretokenize.checks import resolve

pytestmark = [pytest.mark.large, pytest.mark.timeout(1800)]


@pytest.mark.parametrize("engine", ["local", "ray"])
def test_one_row_group_of_two_gigabytes_under_one_of_memory(tmp_path: Path, engine: str) -> None:
    """2,200 texts of a mebibyte: past the offsets of 32 bits, and far past the memory of a worker."""
    line = " ".join(f"word{i} текст{i} 字{i}" for i in range(3000)) + "\n"
    text = (line * (1 + (1 << 20) // len(line.encode())))[: 1 << 20]
    # One text in memory, 2,200 in the file: no dictionary tells that they are the same.
    table = pa.table({"text": pa.chunked_array([pa.array([text])] * 2200), "id": range(2200)})
    pq.write_table(table, tmp_path / "a.parquet", 10_000, compression="zstd", use_dictionary=False)
    metadata = pq.read_metadata(tmp_path / "a.parquet")
    assert metadata.num_row_groups == 1
    assert metadata.row_group(0).column(0).total_uncompressed_size > 1 << 31
    command = [sys.executable, "-m", "dist_bpe", "count", tmp_path / "a.parquet", "-o", tmp_path / "run"]
    command += ["--engine", engine, "--workers", "1", "--no-special-tokens"]
    ran = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    found = dist_bpe.CountTable.open(tmp_path / "run").sources["corpus"]
    assert (found.documents, found.bytes, found.nulls) == (2200, 2200 * len(text.encode()), 0)
    assert found.words == 2200 * len(resolve("gpt2").words(text))
    stages = json.loads((tmp_path / "run" / "report.json").read_text())["stages"]
    assert max(max(stage["peak_bytes"], stage["worker_peak_bytes"]) for stage in stages) < 1e9


@pytest.mark.parametrize("form", ["parquet", "jsonl"])
def test_five_thousand_tiny_files(tmp_path: Path, form: str) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    for i in range(5000):
        if form == "parquet":
            pq.write_table(pa.table({"text": [f"document {i}", "more"]}), folder / f"{i}.parquet")
        else:
            (folder / f"{i}.jsonl").write_text(f'{{"text": "document {i}"}}\n{{"text": "more"}}\n')
    start = time.monotonic()
    table: Any = dist_bpe.count(Source("a", str(folder)), output=tmp_path / "run", engine="local", progress="silent")
    assert table.sources["a"].documents == 10_000
    assert time.monotonic() - start < 60
