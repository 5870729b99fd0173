"""Damaged files of every format: an error of one sentence or a result, never a signal, a traceback or a hang."""

import bz2
import contextlib
import gzip
import hashlib
import io
import json
import lzma
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers import zstd
from mutation import Mutation, campaign

from dist_bpe.corpus.documents import Skipped
from dist_bpe.corpus.heldout import read_parallel
from dist_bpe.corpus.plan import plan
from dist_bpe.corpus.source import Source
from dist_bpe.counting.wordlists import WordList, gather
from dist_bpe.pretokenize.checks import resolve

TEXTS = ["a b", "", "ünïcödé 🙂", None, "line\nline", "z" * 300, *(f"document {i} of some" for i in range(40))]
ROWS = {"text": TEXTS, "lang": ["en", "de"] * (len(TEXTS) // 2), "n": range(len(TEXTS))}


def parquet(table: Any, **options: Any) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink, row_group_size=20, **options)
    return sink.getvalue()


def ipc(table: Any, new: Callable[..., Any] = pa.ipc.new_file, **options: Any) -> bytes:
    sink = pa.BufferOutputStream()
    with new(sink, table.schema, **options) as writer:
        writer.write_table(table, max_chunksize=20)
    return sink.getvalue().to_pybytes()


def table(kind: Any) -> Any:
    values = pa.array(TEXTS)
    column = values.dictionary_encode() if pa.types.is_dictionary(kind) else values.cast(kind)
    return pa.table({**ROWS, "text": column})


LISTS = pa.table({"text": [[text, text] for text in TEXTS]})
VIEWS = pa.table({"text": pa.array([[text, text] for text in TEXTS], pa.list_view(pa.string()))})
INSIDE = pa.table({"text": [{"text": text, "x": [text]} for text in TEXTS]})
LINES = "".join(json.dumps({"id": i, "text": text, "lang": "en"}) + "\n" for i, text in enumerate(TEXTS)).encode()
DICTIONARY = pa.dictionary(pa.int32(), pa.string())
WORDS = pa.table({"word": ["a", " the", "of"] * 5, "count": range(15), "source": ["x"] * 15})

SOURCES: dict[str, tuple[str, bytes]] = {
    "parquet": ("a.parquet", parquet(table(pa.string()), compression="zstd")),
    "parquet-plain": ("a.parquet", parquet(table(pa.string()), compression="none", use_dictionary=False)),
    "parquet-v2": ("a.parquet", parquet(table(pa.string()), data_page_version="2.0", compression="snappy")),
    "parquet-checksums": ("a.parquet", parquet(table(pa.string()), write_page_checksum=True)),
    "parquet-list": ("a.parquet", parquet(LISTS)),
    "parquet-repeats": ("a.parquet", parquet(pa.table({"text": ["x" * 70_000] * 200}))),
    "parquet-dictionary": ("a.parquet", parquet(table(DICTIONARY))),
    "arrow": ("a.arrow", ipc(table(pa.string()))),
    "arrow-large": ("a.arrow", ipc(table(pa.large_string()))),
    "arrow-view": ("a.arrow", ipc(table(pa.string_view()))),
    "arrow-dictionary": ("a.arrow", ipc(table(DICTIONARY))),
    "arrow-list": ("a.arrow", ipc(LISTS)),
    "arrow-list-view": ("a.arrow", ipc(VIEWS)),
    "arrow-lz4": ("a.arrow", ipc(table(pa.string()), options=pa.ipc.IpcWriteOptions(compression="lz4"))),
    "arrow-stream": ("a.arrow", ipc(table(pa.string()), pa.ipc.new_stream)),
    "arrow-stream-view": ("a.arrow", ipc(table(pa.binary_view()), pa.ipc.new_stream)),
    "arrow-stream-dictionary": ("a.arrow", ipc(table(DICTIONARY), pa.ipc.new_stream)),
    "struct": ("a.arrow", ipc(INSIDE)),
    "jsonl": ("a.jsonl", LINES),
    "jsonl.gz": ("a.jsonl.gz", gzip.compress(LINES[:500], mtime=0) + gzip.compress(LINES[500:], mtime=0)),
    "jsonl.zst": ("a.jsonl.zst", zstd(LINES[:500]) + zstd(LINES[500:])),
    "jsonl.bz2": ("a.jsonl.bz2", bz2.compress(LINES[:500]) + bz2.compress(LINES[500:])),
    "jsonl.xz": ("a.jsonl.xz", lzma.compress(LINES[:500]) + lzma.compress(LINES[500:])),
    "text": ("a.txt", LINES),
    "lines": ("a.lines", LINES),
}


def read(name: str, data: bytes, grouped: bool) -> Any:
    """A digest of the documents of a file by each policy, and what it says that it left out."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_bytes(data)
        field = "text.text" if data in (SOURCES["struct"][1],) else "text"
        results = []
        for policy in ("skip", "error"):
            skipped = Skipped()
            source = Source(
                "s", str(path), field, "lang" if grouped else None, format="lines" if name == "a.lines" else None,
                on_bad_file=policy, on_bad_row=policy,  # type: ignore[arg-type]
            )  # fmt: skip
            digest, documents = hashlib.sha256(), 0
            for shard in plan([source]).shards:
                names = shard.sources()
                for batch in shard.batches(skipped):
                    assert batch.source in names
                    documents += len(batch.texts)
                    for text in batch.texts.to_pylist():
                        digest.update(repr(text).encode())
            results.append((documents, digest.hexdigest(), dict(skipped.rows)))
        return results


def grouped(kind: str) -> bool:
    return kind in ("parquet", "arrow", "jsonl", "parquet-v2")


def covered(kind: str) -> Callable[[Mutation], bool]:
    """A checksum covers all of gzip, bz2 and xz but what may follow, or be left out after, a whole stream."""
    end = kind.rpartition(".")[2]
    return lambda made: end in ("gz", "bz2", "xz") and made.kind in ("bit", "byte", "zeros")


def check(kind: str, number: int, seconds: float | None = None, seed: int = 0) -> dict[str, int]:
    name, data = SOURCES[kind]
    ends, faults = campaign(
        data, lambda damaged: read(name, damaged, grouped(kind)), number, seed, seconds, covered(kind)
    )
    assert not faults, f"{len(faults)} faults; {ends}\n" + "\n".join(faults[:5])
    return ends


@pytest.mark.parametrize("kind", SOURCES)
def test_damaged_sources(kind: str) -> None:
    assert sum(check(kind, 24).values()) > 12


def words(name: str, data: bytes) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / name).write_bytes(data)
        found, warnings = gather([WordList("s", (f"{folder}/{name}",))], Path(folder), 2, 1 << 20, resolve("gpt2"))
        return [(commit["sources"], commit["totals"]) for commit in found], warnings


LISTS_OF_WORDS: dict[str, tuple[str, bytes]] = {
    "parquet": ("w.parquet", parquet(WORDS)),
    "arrow": ("w.arrow", ipc(WORDS)),
    "jsonl": ("w.jsonl", "".join(json.dumps(row) + "\n" for row in WORDS.to_pylist()).encode()),
    "csv": ("w.csv", b"word,count,source\n" + b'"a,b",5,x\n the,7,y\n' * 5),
    "tsv": ("w.tsv", b"word\tcount\n" + b" the\t5\tx\nof\t7\n" * 5),
    "words": ("w.txt.gz", gzip.compress(b" the 5\nof 7\n" * 5)),
}


@pytest.mark.parametrize("kind", LISTS_OF_WORDS)
def test_damaged_lists_of_words(kind: str) -> None:
    name, data = LISTS_OF_WORDS[kind]
    ends, faults = campaign(data, lambda damaged: words(name, damaged), 24)
    assert not faults, f"{ends}\n" + "\n".join(faults[:5])


def parallel(data: bytes) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "p.parquet").write_bytes(data)
        return read_parallel(Path(folder) / "p.parquet").texts


PARALLEL = parquet(pa.table({"lang": ["en", "de"] * 10, "doc": [str(i // 2) for i in range(20)], "text": ["a b"] * 20}))


def test_damaged_parallel_sets() -> None:
    ends, faults = campaign(PARALLEL, parallel, 40)
    assert not faults, f"{ends}\n" + "\n".join(faults[:5])


@pytest.mark.fuzz
@pytest.mark.timeout(0)
def test_damaged_files_for_a_long_time() -> None:
    """Every kind of file, for FUZZ_SECONDS together (by default ten minutes), from the seed FUZZ_SEED on."""
    seconds, seed = float(os.environ.get("FUZZ_SECONDS", "600")), int(os.environ.get("FUZZ_SEED", "1000"))
    each = seconds / (len(SOURCES) + len(LISTS_OF_WORDS) + 1)
    faults = []
    for kind, (name, data) in SOURCES.items():
        _, found = campaign(
            data,
            lambda x, name=name, kind=kind: read(name, x, grouped(kind)),
            100,
            seed,
            each,
            covered(kind),  # type: ignore[misc]
        )
        faults += [f"{kind}: {fault}" for fault in found]
    for kind, (name, data) in LISTS_OF_WORDS.items():
        _, found = campaign(data, lambda x, name=name: words(name, x), 100, seed, each)  # type: ignore[misc]
        faults += [f"words {kind}: {fault}" for fault in found]
    faults += campaign(PARALLEL, parallel, 100, seed, each)[1]
    with contextlib.suppress(KeyError):
        Path(os.environ["FUZZ_REPORT"]).write_text("\n\n".join(faults))
    assert not faults, f"{len(faults)} faults\n" + "\n".join(faults[:20])
