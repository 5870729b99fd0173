"""Compressed streams to their last byte, lines that are too long, and files that are none of their format."""

import bz2
import gzip
import json
import lzma
import random
from pathlib import Path
from typing import Any

import pytest
from helpers import COMPRESS, run, zstd

from dist_bpe.corpus.documents import Skipped
from dist_bpe.corpus.plan import plan
from dist_bpe.corpus.source import Source
from dist_bpe.errors import DataError, DistBpeError, SourceError


def texts_of(source: Source, skipped: Skipped | None = None, shard_bytes: int | None = None) -> list[Any]:
    shards = plan([source], shard_bytes).shards
    return [text for shard in shards for _, texts, _ in shard.batches(skipped) for text in texts.to_pylist()]


PACK = {".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress, ".zst": zstd}


@pytest.mark.parametrize("end", PACK)
def test_a_second_stream_that_is_damaged_is_no_end(tmp_path: Path, end: str) -> None:
    first, second = PACK[end](b"one\n" * 100), PACK[end](b"two\n" * 100)
    path = tmp_path / f"a.txt{end}"
    source = Source("s", str(path), format="lines")
    path.write_bytes(first + second)
    assert texts_of(source) == [b"one"] * 100 + [b"two"] * 100
    for rest in (bytes([second[0] ^ 1]) + second[1:], second[1:], b"garbage", b"x", second[:5], second[:-1]):
        path.write_bytes(first + rest)
        with pytest.raises(DistBpeError, match=r"a\.txt"):
            texts_of(source)
        skipped = Skipped()
        try:
            found = texts_of(Source("s", str(path), format="lines", on_bad_file="skip"), skipped)
        except SourceError as error:
            assert "left out" in str(error)  # found by the plan
        else:
            assert set(found) <= {b"one", b"two"}
            assert list(skipped.files) == [str(path)]


def test_padding_between_xz_streams(tmp_path: Path) -> None:
    path = tmp_path / "a.txt.xz"
    source = Source("s", str(path), format="lines")
    one, two = lzma.compress(b"one\n"), lzma.compress(b"two\n")
    for data in (one + bytes(4) + two, one + two + bytes(400_000), one + bytes(200_004) + two):
        path.write_bytes(data)
        assert texts_of(source) == [b"one", b"two"]
    path.write_bytes(one + two + bytes(3))
    with pytest.raises(DistBpeError, match="3 zeros follow"):
        texts_of(source)
    path.write_bytes(lzma.compress(b"old\n", lzma.FORMAT_ALONE))
    assert texts_of(source) == [b"old"]


@pytest.mark.parametrize("end", PACK)
def test_a_first_block_larger_than_the_probe(tmp_path: Path, end: str) -> None:
    rng = random.Random(1)
    lines = [json.dumps({"text": f"{rng.getrandbits(4096):x}"}) for _ in range(1200)]
    path = tmp_path / f"a.jsonl{end}"
    path.write_bytes(PACK[end]("\n".join(lines).encode()))
    assert path.stat().st_size > 2 << 18
    assert len(texts_of(Source("s", str(path)))) == 1200


@pytest.mark.parametrize("end", COMPRESS)
@pytest.mark.parametrize("form", ["lines", "jsonl"])
def test_a_line_that_is_too_long_is_a_bad_row(
    tmp_path: Path, end: str, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def line(text: str) -> str:
        return json.dumps({"text": text}) if form == "jsonl" else text

    rows = [line("a"), line("b"), line("x" * 5000), line("c"), line("y" * 2000), line("d" * 900), line("z" * 3000)]
    monkeypatch.setattr("dist_bpe.corpus.readers.lines.LONGEST_LINE_BYTES", 1000)
    for tail in ("", "\n"):
        path = tmp_path / f"a.txt{end}"
        path.write_bytes(COMPRESS[end](("\n".join(rows) + tail).encode()))
        for batch, shard_bytes in ((300, None), (1, None), (64, 700), (999, 1500)):
            monkeypatch.setattr("dist_bpe.corpus.readers.lines.BATCH_BYTES", batch)
            byte = len(rows[0]) + len(rows[1]) + 2
            with pytest.raises(DataError, match=rf"line 3 \(byte {byte}.*\) is longer than 1,000 bytes.*--on-bad-row"):
                texts_of(Source("s", str(path), format=form), shard_bytes=shard_bytes)
            for policy in ("skip", "replace"):
                skipped = Skipped()
                source = Source("s", str(path), format=form, on_bad_row=policy)  # type: ignore[arg-type]
                assert texts_of(source, skipped, shard_bytes) == [b"a", b"b", b"c", b"d" * 900]
                assert skipped.rows == {"longer than 1,000 bytes": 3}
                examples = sorted(skipped.examples["longer than 1,000 bytes"])
                assert [place.split("line ")[1].split(" ")[0] for place in examples] == ["3", "5", "7"]


def test_a_bomb_is_never_held(tmp_path: Path) -> None:
    """A line, and a document, of 1.2 GB in 110 kB: neither is held."""
    import resource

    data = zstd(b"a" * (64 << 20)) * 18
    for name, form in (("a.txt.zst", "lines"), ("b.txt.zst", "text")):
        (tmp_path / name).write_bytes(zstd(b"first\n") + data + zstd(b"\nlast\n"))
        skipped = Skipped()
        found = texts_of(Source("s", str(tmp_path / name), format=form, on_bad_row="skip"), skipped)
        assert found == ([b"first", b"last"] if form == "lines" else [])
        assert skipped.rows == {"longer than 1,073,741,824 bytes": 1}
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < 3_500_000  # kilobytes


STARTS = {
    "lfs": (b"version https://git-lfs.github.com/spec/v1\noid sha256:ab\nsize 5\n", "git lfs pull"),
    "warc": (b"WARC/1.0\r\nWARC-Type: response\r\n", "web archive"),
    "gzip": (gzip.compress(b"x"), "name it .gz"),
    "parquet": (b"PAR1\x15\x04\0", "Parquet"),
    "zip": (b"PK\x03\x04....", "unpack"),
    "pdf": (b"%PDF-1.4\n", "a PDF"),
}


@pytest.mark.parametrize("kind", STARTS)
def test_what_a_file_is_instead_is_said(tmp_path: Path, kind: str) -> None:
    data, message = STARTS[kind]
    for name, form in (
        ("a.txt", "text"),
        ("b.txt", "lines"),
        ("a.jsonl", "jsonl"),
        ("a.jsonl.gz", "jsonl"),
        ("a.arrow", "arrow"),
    ):
        (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith("gz") else data)
        with pytest.raises(SourceError, match=message) as caught:
            plan([Source("s", str(tmp_path / name), format=form)])
        assert name in str(caught.value)
        good = Source("g", documents=["x"])
        left = plan([good, Source("s", str(tmp_path / name), format=form, on_bad_file="skip")]).left_out
        assert [one.bad for one in left] == [True]
    if kind != "parquet":
        (tmp_path / "a.parquet").write_bytes(data)
        with pytest.raises(SourceError, match=message):
            plan([Source("s", str(tmp_path / "a.parquet"))])


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ('[{"text": "a"}, {"text": "b"}]', "a JSON array"),
        ('[\n  {"text": "a"},\n  {"text": "b"}\n]\n', "a JSON array"),
        ('{\n  "text": "a"\n}\n', "an object spread over several lines"),
        ("id,text\n1,a\n2,b\n", "looks like CSV"),
        ("id\ttext\n1\ta\n2\tb\n", "looks like TSV"),
    ],
)
def test_json_that_is_no_json_lines(tmp_path: Path, data: str, message: str) -> None:
    for name in ("a.json", "a.jsonl.gz"):
        (tmp_path / name).write_bytes(gzip.compress(data.encode()) if name.endswith("gz") else data.encode())
        for policy in ("error", "skip"):
            with pytest.raises(SourceError, match=message):
                plan([Source("s", str(tmp_path / name), on_bad_row=policy)])  # type: ignore[arg-type]


def test_text_that_begins_like_something_else_is_text(tmp_path: Path) -> None:
    for text in ("BZh is no word", "ORCHIDS are flowers", "PARE the apples", "<b>bold</b>", "OBJ", "[1] a footnote"):
        (tmp_path / "a.txt").write_text(text)
        assert texts_of(Source("s", str(tmp_path / "a.txt"))) == [text.encode()]


def test_json_nested_by_the_thousand_is_a_bad_line(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    for deep in ('{"text": ' + "[" * 100_000, '{"x": ' + "[" * 100_000 + "]" * 100_000 + ', "text": "b"}'):
        path.write_text(f'{{"text": "a"}}\n{deep}\n')
        with pytest.raises(DataError, match="line 2"):
            texts_of(Source("s", str(path)))
        assert texts_of(Source("s", str(path), on_bad_row="skip"), Skipped()) == [b"a"]


def test_fields_with_lone_surrogates_are_printed(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"\\ud800": "a"}\n')
    ran = run("plan", tmp_path / "a.jsonl")
    assert ran.exit_code == 2
    assert "its fields are: \\ud800" in ran.stderr
