"""What the functions give back: short in a notebook, and a table to other libraries."""

import html
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from helpers import quiet
from hypothesis import given
from hypothesis import strategies as st

import dist_bpe
from dist_bpe.tables import MOST_ROWS, arrow_table, html_table

EVIL = "<script>alert('x')</script>&\u202e\n\x1b[31m"
TEXTS = {"de": ["tief tiefer am tiefsten"] * 30, EVIL: ["low lower lowest slow slower slowest"] * 20}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("results")


@pytest.fixture(scope="module")
def report(folder: Path) -> Any:
    sources = [dist_bpe.Source(name, documents=texts) for name, texts in TEXTS.items()]
    mixture = dist_bpe.Temperature(0.3)
    return dist_bpe.train(*sources, output=folder / "run", vocab_size=[270, 280], mixture=mixture, progress="silent")


@pytest.fixture(scope="module")
def results(report: Any, folder: Path) -> dict[str, Any]:
    """One of each result that is a table."""
    table, vocabulary = report.table, report.vocabulary
    balanced = dist_bpe.balance(table, 280, output=folder / "balanced.toml", progress="silent")
    return {
        "plan": dist_bpe.plan(*(dist_bpe.Source(name, documents=texts) for name, texts in TEXTS.items())),
        "table": table,
        "report": report,
        "evaluation": dist_bpe.evaluate(vocabulary, table=table),
        "comparison": dist_bpe.compare({"a": vocabulary, EVIL: vocabulary.cut(270)}, table=table),
        "balance": balanced,
        "weights": balanced.mixture.weights(table.sizes("bytes")),
    }


class Outline(HTMLParser):
    """The tags of a page, and its text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert attrs in ([], [("style", "text-align:right")])
        self.tags.add(tag)

    def handle_data(self, data: str) -> None:
        self.text += data


def test_reprs_are_short_and_html_holds_no_markup_of_data(results: dict[str, Any]) -> None:
    for name, result in (results | {"vocabulary": results["report"].vocabulary}).items():
        assert len(repr(result)) < 240, name
        assert not {"\n", "\u202e", "\x1b"} & set(repr(result)), name
        assert repr(result).startswith(f"<{type(result).__name__} "[:-1]), name
        page = result._repr_html_()
        found = Outline(page)
        assert found.tags <= {"div", "p", "table", "thead", "tbody", "tr", "th", "td"}, name
        assert len(page) < 5000, name
        if name != "vocabulary":
            assert "alert('x')" in found.text or name == "balance", name
            assert "\u202e" not in page, name
    assert re.fullmatch(r"<Outcome: Gini 0\.\d+, worst '.*', \d+ tokens>", repr(results["balance"].rounds[0]))
    assert re.fullmatch(r"<RunReport of .*/run: 2 sources, 280 tokens, \d+\.\d s>", repr(results["report"]))
    assert repr(results["table"]).endswith("counts: 10 rows, 240 words of 2 sources, pattern 'gpt2'>")


def test_tables_say_what_the_results_say(results: dict[str, Any]) -> None:
    for name, result in results.items():
        table = result.to_arrow()
        assert pa.table(result) == table, name  # through the capsule, as other libraries do
        assert list(result.to_pandas().columns) == table.column_names, name
    table = results["table"]
    rows = {(row["source"], row["word"]): row["count"] for row in table.to_arrow().to_pylist()}
    names = list(table.sources)
    plain = {
        (names[source], word.decode()): count
        for batch in table.batches()
        for word, source, count in zip(*(column.to_pylist() for column in batch.columns), strict=True)
    }
    assert rows == plain
    assert len(rows) == table.rows == 10
    report = results["report"].to_arrow()
    for row in report.to_pylist():
        source = table.sources[row["source"]]
        assert (row["documents"], row["words"]) == (source.documents, source.words)
        assert row["bytes_per_token"] == results["report"].bytes_per_token[row["source"]]
    evaluation = results["evaluation"]
    for row in evaluation.to_arrow().to_pylist():
        assert row["tokens"] == evaluation.languages[row["language"]].tokens
        assert row["fertility"] == evaluation.languages[row["language"]].ratios()["fertility"]
    comparison = results["comparison"]
    assert [(row["tokenizer"], row["size"]) for row in comparison.to_arrow().to_pylist()] == [
        ("a", 280), ("a", 280), (EVIL, 270), (EVIL, 270)
    ]  # fmt: skip
    assert [each.name for each in comparison] == ["a", EVIL]
    assert len(comparison) == 2
    assert comparison[0].languages == evaluation.languages
    weights = results["weights"]
    assert {row["source"]: row["weight"] for row in weights.to_arrow().to_pylist()} == weights.integers
    assert results["balance"].to_arrow().num_rows == len(results["balance"].rounds)


def test_a_scan_gives_what_the_table_holds(report: Any, tmp_path: Path) -> None:
    table = report.table
    scan = table.scan()
    assert scan.schema == table.to_arrow().schema
    assert scan.to_table().sort_by("word") == table.to_arrow().sort_by("word")
    only = scan.to_table(filter=pc.field("source") == "de", columns=["word", "count"])
    assert dict(zip(*only.to_pydict().values(), strict=True)) == {
        "tief": 30, " tiefer": 30, " am": 30, " tiefsten": 30
    }  # fmt: skip
    assert scan.count_rows() == table.rows  # again, and again
    # Damage in a page is seen when it is read.
    other = quiet(dist_bpe.Source("a", documents=["some words of a text"] * 9), output=tmp_path / "run", partitions=1)
    part = Path(other.parts[0])
    content = bytearray(part.read_bytes())
    counts = pq.read_metadata(part).row_group(0).column(2)
    content[counts.data_page_offset + counts.total_compressed_size - 1] ^= 1
    part.write_bytes(content)
    with pytest.raises(OSError, match=r"CRC|corrupt|checksum"):
        other.scan().to_table()
    assert other.scan().to_table(columns=["word"]).num_rows == other.rows


def test_other_libraries_take_results_as_they_are(results: dict[str, Any]) -> None:
    polars = pytest.importorskip("polars")
    duckdb = pytest.importorskip("duckdb")
    for name, result in results.items():
        assert polars.DataFrame(result).shape == result.to_arrow().shape, name
        # duckdb finds what it is asked about by its name.
        assert duckdb.sql("select count(*) from result").fetchall() == [(result.to_arrow().num_rows,)], name
    table = results["table"]
    asked = polars.scan_pyarrow_dataset(table.scan()).filter(polars.col("source") == "de").collect()
    assert asked["count"].sum() == 120
    scan = table.scan()  # noqa: F841
    assert duckdb.sql("select sum(count) from scan where source = 'de'").fetchall() == [(120,)]


def test_pandas_is_loaded_for_frames_alone(report: Any) -> None:
    code = f"""if True:
        import sys, dist_bpe
        table = dist_bpe.CountTable.open({str(report.table.folder)!r})
        table.to_arrow(), table._repr_html_(), repr(table), table.__arrow_c_stream__()
        evaluation = dist_bpe.evaluate({str(report.folders[-1])!r}, table=table)
        evaluation.to_arrow(), evaluation._repr_html_(), evaluation.__arrow_c_stream__()
        mixture = dist_bpe.Temperature(0.3).weights(table.sizes("bytes"))
        mixture._repr_html_()
        print("pandas" in sys.modules, "IPython" in sys.modules)
        table.to_pandas()
        print("pandas" in sys.modules)"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert ran.stdout == "False False\nTrue\n", ran.stderr


@given(
    st.dictionaries(
        st.text(max_size=4),
        st.one_of(
            st.lists(st.none() | st.text(st.characters(codec="utf-8"), max_size=4), min_size=3, max_size=3),
            st.lists(st.none() | st.integers(0, 2**64 - 1), min_size=3, max_size=3),
            st.lists(st.none() | st.floats(allow_nan=False), min_size=3, max_size=3),
        ),
        max_size=4,
    )
)
def test_columns_are_what_arrow_makes_of_them(columns: dict[str, list[Any]]) -> None:
    assert arrow_table(columns).to_pydict() == columns
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    assert Outline(html_table("", rows)).tags <= {"div", "p", "table", "thead", "tbody", "tr", "th", "td"}


def test_long_tables_are_cut() -> None:
    page = html_table("of many", [{"n": i} for i in range(MOST_ROWS)], 1234)
    assert "… and 1,214 more rows" in html.unescape(page)


def test_mixtures_show_what_was_given() -> None:
    mixture = dist_bpe.Mixture(alpha=0.3, multipliers={"a": 2, "b": "1/3"})
    assert repr(mixture) == str(mixture) == "Mixture(alpha=0.3, multipliers={'a': 2, 'b': '1/3'})"
    assert eval(repr(mixture), {"Mixture": dist_bpe.Mixture}) == mixture  # noqa: S307
    many = dist_bpe.Mixture(shares={f"l{i}": "0.01" for i in range(50)}, jitter=True)
    assert repr(many) == ("Mixture(shares={'l0': 0.01, 'l1': 0.01, 'l2': 0.01, 'l3': 0.01, … 50 in all}, jitter=True)")
    assert repr(dist_bpe.Mixture()) == "Mixture()"
    assert repr(mixture.weights({"a": 5, "b": 5})) == "<Weights of 2 sources: a 85.7% (× 1.71), b 14.3% (× 0.286)>"
    assert repr(dist_bpe.Mixture().weights({"a": 5})) == "<Weights of 1 source: natural>"
