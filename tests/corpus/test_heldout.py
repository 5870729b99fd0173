"""Held-out text: parallel files are read or refused in one sentence; sets are split so that they share nothing."""

import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers import quiet, run
from hypothesis import given, settings
from hypothesis import strategies as st

import dist_bpe
from dist_bpe import errors
from dist_bpe.corpus.heldout import HeldOut, read_parallel, refuse_overlap, split, write_parallel


@settings(max_examples=100)
@given(st.sets(st.text(max_size=5), min_size=2, max_size=40), st.integers(0, 5), st.floats(0.1, 0.9))
def test_a_split_is_stable_and_disjoint(names: set[str], seed: int, share: float) -> None:
    documents = tuple(sorted(names))
    corpus = HeldOut("c", {lang: [f"{lang} {name}" for name in documents] for lang in ("a", "b")}, documents)
    try:
        dev, test = split(corpus, seed, share)
    except errors.UsageError:
        return
    assert sorted((dev.documents or ()) + (test.documents or ())) == list(documents)
    refuse_overlap(dev, test)
    fewer = documents[1:]
    part = HeldOut("c", {lang: [f"{lang} {name}" for name in fewer] for lang in ("a", "b")}, fewer)
    try:
        again, _ = split(part, seed, share)
    except errors.UsageError:
        return
    assert again.documents == tuple(name for name in dev.documents or () if name != documents[0])
    assert again.texts["b"] == [f"b {name}" for name in again.documents]


@settings(max_examples=200)
@given(
    st.lists(st.tuples(st.sampled_from("abcdefgh"), st.sampled_from("abcdxyz ")), min_size=2, max_size=30),
    st.integers(0, 5),
    st.floats(0.1, 0.9),
)
def test_documents_of_equal_text_stay_together(pairs: list[tuple[str, str]], seed: int, share: float) -> None:
    documents = tuple(f"d{i:02}" for i in range(len(pairs)))
    corpus = HeldOut("c", {lang: [pair[i] for pair in pairs] for i, lang in enumerate(("x", "y"))}, documents)
    try:
        dev, test = split(corpus, seed, share)
    except errors.UsageError as error:
        assert "one side without any" in str(error)
        return
    refuse_overlap(dev, test)
    assert sorted((dev.documents or ()) + (test.documents or ())) == list(documents)
    # The order of documents and languages decides nothing.
    turned = HeldOut("c", {lang: texts[::-1] for lang, texts in reversed(corpus.texts.items())}, documents[::-1])
    again, _ = split(turned, seed, share)
    assert again.documents == tuple(reversed(dev.documents or ()))


def test_a_split_of_short_documents_is_one_that_balance_takes(tmp_path: Path) -> None:
    texts = {lang: [f"{lang} {i % 120}" if i % 3 else f"{lang} yes" for i in range(400)] for lang in ("en", "de")}
    corpus = HeldOut("c", texts, tuple(f"d{i}" for i in range(400)))
    write_parallel(corpus, tmp_path / "all.parquet")
    ran = run("split", tmp_path / "all.parquet", "-o", tmp_path / "sets", "--seed", "3")
    assert ran.exit_code == 0, ran.stderr
    dev, test = (read_parallel(tmp_path / "sets" / f"{name}.parquet") for name in ("dev", "test"))
    refuse_overlap(dev, test)
    assert sorted((dev.documents or ()) + (test.documents or ())) == sorted(corpus.documents or ())


def test_what_is_shared_is_named_on_both_sides() -> None:
    dev = HeldOut("dev", {"en": ["one", "two", " "], "de": ["eins", "zwei", ""]}, ("a", "b", "c"))
    test = HeldOut("test", {"en": ["three", "one", "four"], "de": ["two", "5", ""]}, ("x", "y", "z"))
    with pytest.raises(
        errors.UsageError, match=r"test shares 2 documents .* dev, by text: 'x' \(there 'b'\), 'y' \(there 'a'\)\."
    ):
        refuse_overlap(dev, test)
    with pytest.raises(errors.UsageError, match=r"shares 1 document with the development set dev, by name: 'b'\."):
        refuse_overlap(dev, HeldOut("test", {"en": ["else"]}, ("b",)))
    # Text that is not parallel has no names: its place stands for one.
    with pytest.raises(errors.UsageError, match=r"'x' \(there 'en 2'\)"):
        refuse_overlap(HeldOut("dev", {"en": ["one", "two"]}), HeldOut("test", {"en": ["two"]}, ("x",)))


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"text": pa.array([1, 2])}, "the column 'text' holds int64, not text"),
        ({"lang": pa.array([1.5, 2.5])}, "the column 'lang' holds double, not text"),
        ({"doc": pa.array([[1], [2]])}, "the column 'doc' holds list"),
        ({"text": pa.array([None, None])}, "the column 'text' holds null"),
        ({"text": pa.array([b"fine", b"caf\xe9"])}, "row 1 of the column 'text' is not UTF-8 from its byte 3 on"),
        ({"text": pa.array(["fine", None])}, "null in the row of language 'en', document 'b'"),
    ],
    ids=lambda value: value if isinstance(value, str) else "+".join(value),
)  # fmt: skip
def test_columns_that_hold_no_text_are_named(tmp_path: Path, columns: dict[str, pa.Array], message: str) -> None:
    path = tmp_path / "p.parquet"
    table = {"lang": pa.array(["en", "en"]), "doc": pa.array(["a", "b"]), "text": pa.array(["1", "2"])}
    pq.write_table(pa.table(table | columns), path)
    with pytest.raises(errors.DistBpeError) as caught:
        read_parallel(path)
    assert str(path) in str(caught.value)
    assert message in str(caught.value)


def test_every_text_type_is_read(tmp_path: Path) -> None:
    rows = {"lang": ["de", "de", "en", "en"], "doc": [7, 8, 7, 8], "text": ["ä", "b", "c", "d"]}
    wanted = {"de": ["ä", "b"], "en": ["c", "d"]}
    for kind in (pa.string(), pa.large_string(), pa.binary(), pa.string_view(), pa.dictionary(pa.int32(), pa.string())):
        text = pa.array(rows["text"])
        cast = text.dictionary_encode() if pa.types.is_dictionary(kind) else text.cast(kind)
        pq.write_table(pa.table(rows | {"text": cast}), tmp_path / "p.parquet")
        found = read_parallel(tmp_path / "p.parquet")
        assert (found.texts, found.documents) == (wanted, ("7", "8"))


def test_a_login_in_a_path_is_not_shown() -> None:
    uri = "http://KEY:SECRET@127.0.0.1:1/dev.parquet"
    for path in (uri, Path(uri)):
        with pytest.raises(errors.SourceError, match=r"http://127\.0\.0\.1:1/dev\.parquet") as caught:
            read_parallel(path)
        assert "SECRET" not in str(caught.value)


def test_reading_starts_no_threads_and_no_pandas(tmp_path: Path) -> None:
    """Threads that Arrow started abort a process that ends at that moment; pandas takes half a second."""
    corpus = HeldOut("p", {lang: [f"{lang} {i}" for i in range(9)] for lang in ("de", "en")}, tuple("abcdefghi"))
    write_parallel(corpus, tmp_path / "p.parquet")
    table = quiet(dist_bpe.Source("x", documents=["a b", "c d"]), output=tmp_path / "run")
    code = f"""
import os, sys
from dist_bpe.corpus.heldout import read_parallel, words_of
from dist_bpe.counting.table import CountTable
from dist_bpe.pretokenize.patterns import find
before = len(os.listdir("/proc/self/task"))
words_of(read_parallel({str(tmp_path / "p.parquet")!r}), find("gpt2"), None)
assert sum(batch.num_rows for batch in CountTable.open({str(table.folder)!r}).batches()) == {table.rows}
print(len(os.listdir("/proc/self/task")) - before, "pandas" in sys.modules)
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (ran.stdout, ran.returncode) == ("0 False\n", 0), ran.stderr
