"""Words counted elsewhere: whatever the file, the table and the vocabulary are those of the text itself."""

import gzip
import json
from collections import Counter
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from conftest import Writer
from helpers import run

import dist_bpe
from dist_bpe.counting.wordlists import WordList, _bytes, gather
from dist_bpe.errors import CountOverflowError, DataError, RunError, SourceError, UsageError
from dist_bpe.pretokenize.checks import resolve

Words = list[tuple[str, int]]


def counted(documents: list[str], pattern: str = "gpt2") -> Words:
    found: Counter[str] = Counter()
    for text in documents:
        found.update(word.decode() for word in resolve(pattern).words(text))
    return sorted(found.items())


def as_table(words: Words, **columns: Any) -> pa.Table:
    return pa.table({"word": [word for word, _ in words], "count": [count for _, count in words], **columns})


def write_parquet(path: Path, words: Words) -> None:
    pq.write_table(as_table(words, other=[None] * len(words)), path, row_group_size=50)


def write_arrow(path: Path, words: Words) -> None:
    with pa.ipc.new_stream(str(path), as_table(words).schema) as writer:
        writer.write_table(as_table(words).cast(pa.schema([("word", pa.string()), ("count", pa.int64())])), 77)


def write_csv(path: Path, words: Words) -> None:
    pa.csv.write_csv(as_table(words, other=["x"] * len(words)), path)


def write_jsonl(path: Path, words: Words) -> None:
    path.write_text("".join(json.dumps({"count": count, "x": [1], "word": word}) + "\n" for word, count in words))


def write_tsv(path: Path, words: Words) -> None:
    path.write_text("".join(f"{word}\t{count}\n" for word, count in words), newline="")


def write_words(path: Path, words: Words) -> None:
    path.write_bytes(gzip.compress("".join(f"{word} {count}\n" for word, count in words).encode()))


FORMATS: dict[str, tuple[str, Callable[[Path, Words], None]]] = {
    "parquet": ("w.parquet", write_parquet),
    "arrow": ("w.arrow", write_arrow),
    "csv": ("w.csv", write_csv),
    "jsonl": ("w.jsonl", write_jsonl),
    "tsv": ("w.tsv", write_tsv),
    "words": ("w.txt.gz", write_words),
}
EXCEPT = {"report.json", "manifest.json"}


@pytest.mark.parametrize("form", FORMATS)
def test_words_train_like_the_text_that_they_were_counted_in(form: str, tmp_path: Path, write: Writer) -> None:
    """Field case 4: a folder of part files, each word in several of them, gives the same bytes as the text."""
    columnar = form in ("parquet", "arrow", "csv", "jsonl")
    # What a line cannot hold, no list of lines has.
    documents = [
        f"the  straße {i % 7} “x”\u2028, {i % 3}, 東京 'll" + ('\n\t "q",\r\n' if columnar else "") for i in range(99)
    ]
    write("text/a.parquet", documents)
    train = ["--vocab-size", "330", "--engine", "local", "-o", tmp_path / "text-run"]
    assert run("train", tmp_path / "text", *train).exit_code == 0
    name, writer = FORMATS[form]
    words = counted(documents)
    lists = tmp_path / "lists"
    lists.mkdir()
    for i, part in enumerate((documents[:40], documents[40:41], documents[41:])):
        writer(lists / f"part-{i}-{name}", [*counted(part), ("never", 0)])
    (lists / "_SUCCESS").touch()
    (lists / ".part-0.crc").write_bytes(b"x")
    ran = run("learn", tmp_path / "run", "--counts", lists, "--vocab-size", "330")
    assert ran.exit_code == 0, ran.stderr
    for folder in ("counts", "vocabularies/330"):
        for file in (tmp_path / "text-run" / folder).iterdir():
            if file.name not in EXCEPT:
                assert file.read_bytes() == (tmp_path / "run" / folder / file.name).read_bytes(), file.name
    table = dist_bpe.CountTable.open(tmp_path / "run")
    assert table.sources["corpus"].words == sum(count for _, count in words)
    assert table.sources["corpus"].bytes == sum(len(text.encode()) for text in documents)
    assert table.sources["corpus"].unique_words == len(words)


def test_sources_come_from_a_column_or_from_names(tmp_path: Path) -> None:
    pq.write_table(as_table([("a", 1), ("b", 2), ("a", 3)], source=["x", "y", "x"]), tmp_path / "a.parquet")
    (tmp_path / "b.tsv").write_text("word\tcount\tsource\na\t1\tx\nb\t2\ty\r\n\na\t3\tx\n")
    (tmp_path / "c.csv").write_text("source,count,word\nx,1,a\ny,2,b\nx,3,a\n")
    (tmp_path / "d.jsonl").write_text('{"word":"a","count":4.0,"source":"x"}\n{"word":"b","count":2,"source":"y"}\n')
    digests = set()
    for name in ("a.parquet", "b.tsv", "c.csv", "d.jsonl"):
        table = dist_bpe.import_counts(tmp_path / name, output=tmp_path / f"run-{name}")
        assert [(s, v.words, v.bytes) for s, v in table.sources.items()] == [("x", 4, 4), ("y", 2, 2)]
        digests.add(table.digest)
    assert len(digests) == 1
    lists = [WordList(lang, (str(tmp_path / "a.parquet"),), source=None) for lang in ("de", "en")]
    assert list(dist_bpe.import_counts(lists, output=tmp_path / "two").sources) == ["x", "y"]
    (tmp_path / "none.jsonl").write_text('{"word":"a","count":1,"source":"x"}\n{"word":"b","count":1}\n')
    unnamed = dist_bpe.import_counts([WordList("own", (str(tmp_path / "none.jsonl"),))], output=tmp_path / "none")
    assert list(unnamed.sources) == ["own", "x"]
    (tmp_path / "e.txt").write_text("a 1\n")
    ran = run(
        "learn", tmp_path / "named", "--counts", f"de={tmp_path / 'e.txt'}", "--counts", f"en={tmp_path / 'e.txt'}",
        "--vocab-size", "257",
    )  # fmt: skip
    assert ran.exit_code == 0, ran.stderr
    assert list(dist_bpe.CountTable.open(tmp_path / "named").sources) == ["de", "en"]
    (tmp_path / "f.csv").write_text("lang,n,token\nx,1,a\n")
    named = WordList("w", (str(tmp_path / "f.csv"),), "token", "n", "lang")
    assert list(dist_bpe.import_counts([named], output=tmp_path / "f").sources) == ["x"]


@pytest.mark.parametrize(
    ("kind", "fine"),
    [
        (pa.int8(), True), (pa.uint64(), True), (pa.float64(), True), (pa.decimal128(38, 0), True),
        (pa.decimal128(10, 2), True), (pa.string(), True), (pa.bool_(), False),
    ],
    ids=str,
)  # fmt: skip
def test_types_of_counts(tmp_path: Path, kind: Any, fine: bool) -> None:
    decimals = pa.types.is_decimal(kind)
    values = pa.array([Decimal(1), Decimal(2)], kind) if decimals else pa.array([1, 2]).cast(kind)
    pq.write_table(pa.table({"word": ["a", "b"], "count": values}), tmp_path / "a.parquet")
    if fine:
        assert dist_bpe.import_counts(tmp_path / "a.parquet", output=tmp_path / "run").sources["corpus"].words == 3
    else:
        with pytest.raises(DataError, match=r"a\.parquet: row 1: the count True is no whole number"):
            dist_bpe.import_counts(tmp_path / "a.parquet", output=tmp_path / "run")
        assert not (tmp_path / "run").exists()


BAD: dict[str, tuple[str, str, str]] = {
    "negative": ("a.tsv", "a\t1\nb\t-2\n", "row 2: the count '-2' is no whole number from 0 to"),
    "fraction": ("a.csv", "word,count\na,1\nb,2\nc,1.5\n", "row 3: the count '1.5' is no whole number"),
    "a probability": ("a.vocab", "▁the\t-2.1\n", "row 1 is not a word, a space and its count"),
    "too large": ("a.txt", "a 18446744073709551616\n", "row 1: the count '18446744073709551616' is no whole"),
    "not exact": ("a.jsonl", '{"word": "a", "count": 1e17}\n', "row 1: the count 1e+17 is no whole number"),
    "negative in JSON": ("a.jsonl", '\n{"word": "a", "count": -1}\n', "row 2: the count -1 is no whole number"),
    "no count": ("a.txt", "a 1\nword\n", "row 2 is not a word, a space and its count: b'word'"),
    "no number": ("a.txt", "a x1\n", "row 1: the count 'x1' is no whole number"),
    "four fields": ("a.tsv", "a\tb\t1\tx\n", "row 1 is not a word, a tab and its count"),
    "no such column": ("a.csv", "token,n\na,1\n", "has no column 'word'; its columns are: token, n"),
    "no object": ("a.jsonl", '{"word": "a", "count": 1}\n[1]\n', "row 2 is no object of a word and its count"),
    "no text": ("a.jsonl", '{"word": 3, "count": 1}\n', "row 1 is no object of a word and its count"),
    "unknown": ("a.xyz", "a 1\n", "does not tell its format. Give one: parquet, arrow, jsonl, csv, tsv, words"),
    "nothing": ("a.txt", "a 0\n", "no words found"),
    "not UTF-8": ("a.txt", "a 1\n\udcff 2\n", "row 2: the word is not UTF-8 from its byte 0 on"),
}


@pytest.mark.parametrize("case", BAD)
def test_what_is_no_count_is_named_and_nothing_is_left(case: str, tmp_path: Path) -> None:
    name, text, message = BAD[case]
    (tmp_path / name).write_bytes(text.encode(errors="surrogateescape"))
    ran = run("learn", tmp_path / "run", "--counts", tmp_path / name, "--vocab-size", "300")
    assert ran.exit_code in (2, 3), ran.stderr
    assert message in ran.stderr
    assert name in ran.stderr or case == "nothing"
    assert not (tmp_path / "run").exists()


def test_columns_that_hold_no_words_or_counts(tmp_path: Path) -> None:
    for words, counts, message in (
        (["a", None], [1, 2], "row 2 has no word"),
        (["a", "b"], [1, None], "row 2: the count None is no whole number"),
        (["a", "b"], [1, -5], "row 2: the count -5 is no whole number"),
        ([1, 2], [1, 2], "the column 'word' holds int64, not words"),
    ):
        pq.write_table(pa.table({"word": words, "count": counts}), tmp_path / "a.parquet")
        with pytest.raises((DataError, SourceError), match=message):
            dist_bpe.import_counts(tmp_path / "a.parquet", output=tmp_path / "run")
    half = 2**63
    (tmp_path / "a.txt").write_text(f"a {half}\na {half}\n")
    with pytest.raises(CountOverflowError):
        dist_bpe.import_counts(tmp_path / "a.txt", output=tmp_path / "run")


def test_options_that_have_no_effect_and_folders_that_are_taken(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("ab 3\n")
    dist_bpe.import_counts(tmp_path / "a.txt", output=tmp_path / "run", special_tokens=[])
    with pytest.raises(RunError, match="holds a count table already"):
        dist_bpe.import_counts(tmp_path / "a.txt", output=tmp_path / "run")
    dist_bpe.import_counts(tmp_path / "a.txt", output=tmp_path / "run", overwrite=True, special_tokens=[])
    for option in ("--pattern", "--word-column", "--counts-format"):
        ran = run("learn", tmp_path / "run", "--vocab-size", "257", option, "gpt2")
        assert (ran.exit_code, f"{option} has no effect without --counts" in ran.stderr) == (2, True)
    assert dist_bpe.learn(tmp_path / "run", 257).encode("abc") == [256, 66]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("Ġthe 5\nĠof 4\n", "2 of the first 2 words begin with Ġ or ▁"),
        ("two_words 5\nx 4\n", "1 of the first 2 words, such as 'two_words', are cut further by the pattern 'gpt2'"),
        ("x 4\n 3\n", "rows that are left out: 1 (the empty word)"),
    ],
)
def test_words_that_look_made_otherwise_are_told(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "a.txt").write_text(text)
    ran = run("learn", tmp_path / "run", "--counts", tmp_path / "a.txt", "--vocab-size", "257")
    assert ran.exit_code == 0, ran.stderr
    assert message in ran.stderr


def test_many_words_leave_in_runs(tmp_path: Path) -> None:
    words = [(f"word{i % 4000}", i) for i in range(9000)]
    write_words(tmp_path / "a.txt.gz", words)
    staging = tmp_path / "staging"
    staging.mkdir()
    lists = [WordList("a", (str(tmp_path / "a.txt.gz"),))] * 2
    commits, _ = gather(lists, staging, 4, 1000, resolve("gpt2"))
    assert len(commits[0]["runs"]) > 1
    assert commits[0]["totals"][0]["words"] == 2 * sum(count for _, count in words)
    large = np.array([2**62, 2**62 + 1], np.uint64)
    assert _bytes(np.array([3, 4]), large) == 3 * 2**62 + 4 * (2**62 + 1)


def test_a_third_column_of_another_name_is_no_source(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("word\tcount\ttotal\nab\t3\t9\n")
    with pytest.raises(
        DataError, match=r"the third column is 'total'; the source of each word is looked for in 'source'"
    ):
        dist_bpe.import_counts(tmp_path / "a.tsv", output=tmp_path / "run", progress="silent")
    named = WordList("a", (str(tmp_path / "a.tsv"),), source="total")
    assert list(dist_bpe.import_counts([named], output=tmp_path / "run", progress="silent").sources) == ["9"]


def test_words_that_lost_their_spaces_are_warned_of(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, space in (("lost", ""), ("kept", " ")):
        (tmp_path / f"{name}.tsv").write_text(
            "".join(f"{space}w{chr(97 + i % 26) * (i + 1)}\t{i + 1}\n" for i in range(60))
        )
        dist_bpe.import_counts(tmp_path / f"{name}.tsv", output=tmp_path / name, progress="silent")
        assert ("none of the first 60 words begins with a space" in capsys.readouterr().err) == (name == "lost")


def test_names_of_columns_without_a_header(tmp_path: Path) -> None:
    (tmp_path / "w.tsv").write_text("hello\t3\n")
    ran = run("learn", tmp_path / "run", "--counts", tmp_path / "w.tsv", "--word-column", "term", "--vocab-size", "300")
    assert ran.exit_code == 3
    assert "w.tsv has no header with the columns 'term, count': leave their names out (--word-column, " in ran.stderr


def test_an_overflow_names_the_source(tmp_path: Path) -> None:
    (tmp_path / "w.tsv").write_text(f"hello\t{2**64 - 1}\nhello\t5\n")
    ran = run("learn", tmp_path / "run", "--counts", f"fr={tmp_path / 'w.tsv'}", "--vocab-size", "300")
    assert ran.exit_code == 7
    assert "the words of source 'fr' past 2^64 - 1" in ran.stderr


def test_a_word_with_half_a_character() -> None:
    with pytest.raises(UsageError, match=r"the word '\\ud800' has a lone surrogate"):
        dist_bpe.learn({"\ud800": 3}, 300)
