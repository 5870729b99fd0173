"""Measuring: formulas against definitions, tables against text, tokenizers of other libraries; and adding tables."""

import json
import math
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import Writer
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner, Result

import dist_bpe
from dist_bpe import _core, errors
from dist_bpe.cli.main import app
from dist_bpe.corpus.heldout import HeldOut, read_parallel
from dist_bpe.counting.table import CountTable
from dist_bpe.evaluation.evaluate import Evaluation, on_table, on_texts, segment
from dist_bpe.evaluation.tokenizers import Tokenizer, open_tokenizer
from dist_bpe.formulas import gini
from dist_bpe.formulas import renyi_efficiency as renyi
from dist_bpe.learning.mixture import Mixture
from dist_bpe.learning.options import LearnOptions
from dist_bpe.learning.trainer import Trainer
from dist_bpe.vocabulary.data import BYTES, merge_columns
from dist_bpe.vocabulary.vocabulary import Vocabulary


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, list(map(str, arguments)))


@given(st.lists(st.integers(0, 10**9), min_size=1, max_size=30))
def test_gini_is_its_double_sum(costs: list[int]) -> None:
    mean = sum(costs) / len(costs)
    wanted = sum(abs(a - b) for a in costs for b in costs) / (2 * len(costs) ** 2 * mean) if mean else 0
    assert gini(costs) == pytest.approx(wanted, abs=1e-12)


@given(st.lists(st.integers(0, 10**6), min_size=2, max_size=30))
def test_renyi_efficiency_is_its_formula(counts: list[int]) -> None:
    wanted = 0.0
    if total := sum(counts):
        wanted = math.log2(sum((n / total) ** 2.5 for n in counts if n)) / (1 - 2.5) / math.log2(len(counts))
    assert renyi(np.array(counts, np.uint64), len(counts)) == pytest.approx(wanted, abs=1e-9)


def test_words_in_place() -> None:
    text = "It's  fine,\ndon't 3.5 世界 go"
    assert segment(text, "whitespace") == ["It's", " fine,", "don't", " 3.5", " 世界", " go"]
    assert segment(text, "unicode") == ["It's", " fine", "don't", " 3.5", " 世", "界", " go"]


@pytest.fixture
def made(write: Writer, tmp_path: Path, documents: list[str]) -> tuple[CountTable, Path, dict[str, list[str]]]:
    """A table of three sources, the folder of a vocabulary of it, and the documents."""
    texts = {"x": [*documents[:150], "a<|endoftext|>b"], "y": documents[150:200], "z": documents[200:]}
    sources = [dist_bpe.Source(name, str(write(f"{name}.parquet", part))) for name, part in texts.items()]
    table = dist_bpe.count(*sources, output=tmp_path / "run", engine="local", workers=1, progress="silent")
    assert run("learn", tmp_path / "run", "--vocab-size", "700", "--no-verify").exit_code == 0
    return table, tmp_path / "run" / "vocabularies" / "700", texts


def test_a_table_gives_what_all_documents_give(made: tuple[CountTable, Path, dict[str, list[str]]]) -> None:
    table, folder, texts = made
    vocabulary = Vocabulary.load(folder)
    found = on_table(vocabulary, "v", table)
    frequencies = np.zeros(len(vocabulary), np.uint64)
    for name, documents in texts.items():
        parts = [part for text in documents for part in text.split("<|endoftext|>")]
        ids = [i for part in parts for i in vocabulary.encode(part)]
        frequencies += np.bincount(ids, minlength=len(vocabulary)).astype(np.uint64)
        words = [word for part in parts for word in vocabulary.pattern.words(part)]
        assert vars(found.languages[name]) == {
            "documents": len(documents),
            "bytes": sum(len(part.encode()) for part in parts),
            "characters": sum(map(len, parts)),
            "tokens": len(ids),
            "words": len(words),
            "word_tokens": len(ids),
            "continued": sum(len(vocabulary.encode(word.decode())) > 1 for word in words),
            "special_tokens": len(parts) - len(documents),
        }
    assert found.frequencies.tolist() == frequencies[:-1].tolist()
    for size, tokens in found.curve:
        cut = vocabulary.cut(size)
        assert tokens == {
            name: sum(len(cut.encode(part)) for text in documents for part in text.split("<|endoftext|>"))
            for name, documents in texts.items()
        }
    assert not found.notes
    assert [size for size, _ in found.curve] == [512, 700]


@pytest.mark.parametrize(
    "options",
    [
        {"min_word_count": 5},
        {"normalization": "NFKD"},
        {"max_word_bytes": 4},
        {"special_tokens": ["<|endoftext|>", "the"]},
    ],
    ids=lambda options: next(iter(options)),
)
def test_both_totals_of_a_ratio_are_of_the_words_in_the_table(
    write: Writer, tmp_path: Path, documents: list[str], options: dict[str, object]
) -> None:
    """What a table does not know is in no ratio of it: in the report, in evaluate, and in balance without --dev."""
    rare = " ".join(f"rare{i}" for i in range(3000))
    texts = {"x": [*documents[:200], "ﬁ é <|endoftext|> the"], "y": [*documents[200:], rare]}
    sources = [dist_bpe.Source(name, str(write(f"{name}.parquet", part))) for name, part in texts.items()]
    table = dist_bpe.count(*sources, output=tmp_path / "run", engine="local", progress="silent", **options)  # type: ignore[arg-type]
    ran = run("learn", tmp_path / "run", "--vocab-size", "400,500", "--no-verify")
    assert ran.exit_code == 0, ran.stderr
    folder = tmp_path / "run" / "vocabularies"
    names = list(table.sources)
    rows = [(names[row["source"]], row["word"], row["count"]) for batch in table.batches() for row in batch.to_pylist()]
    for size in (400, 500):
        vocabulary = Vocabulary.load(folder / str(size))
        longest = max(len(vocabulary.token_bytes(i)) for i in range(BYTES + len(vocabulary.merges)))
        encoder = _core.Encoder(*merge_columns(vocabulary.data.merges), None, [], [], 0)
        found = on_table(vocabulary, "v", table)
        report = json.loads((folder / str(size) / "report.json").read_text())
        assert (report["requested_size"], sum(report["sizes"].values())) == (size, size)
        for name in names:
            held = sum(len(word) * n for source, word, n in rows if source == name)
            tokens = sum(len(encoder.encode_word(word)) * n for source, word, n in rows if source == name)
            measured = found.languages[name]
            assert (measured.bytes, measured.tokens) == (held, tokens)
            assert measured.characters == sum(len(word.decode()) * n for source, word, n in rows if source == name)
            assert measured.ratios()["bytes_per_token"] == report["bytes_per_token"][name] == held / tokens <= longest
            assert report["bytes_per_token"][name] == report["curve"][str(size)][name]
    trainer = Trainer(table, LearnOptions(vocab_size=(500,)), list(vocabulary.special_tokens))
    outcome = trainer.train(Mixture())
    assert outcome.costs == {name: m.tokens / m.bytes for name, m in found.languages.items()}
    ran = run("evaluate", folder / "500", "--table", tmp_path / "run")
    assert ("were dropped when the table was counted" in ran.stdout) == ("min_word_count" in options)
    assert ("of more than 4 bytes in pieces" in ran.stdout) == ("max_word_bytes" in options)


def test_options_that_measure_nothing_are_refused() -> None:
    for more, on in (
        (["--segmenter", "unicode"], ["--table", "x"]),
        (["--word-list", "w.txt"], ["--table", "x"]),
        (["--reference", "de"], ["--table", "x"]),
        (["--reference", "de"], ["--text", "x"]),
        (["--group-by", "lang"], ["--table", "x"]),
        (["--group-by", "lang"], ["--parallel", "x"]),
        (["--text-column", "body"], ["--table", "x"]),
    ):
        for command in ("evaluate", "compare"):
            ran = run(command, "nowhere", *on, *more)
            assert (ran.exit_code, f"{more[0]} has no effect here: it goes with --" in ran.stderr) == (2, True), more


def parallel_file(path: Path, texts: dict[str, list[str]]) -> Path:
    rows = [(lang, f"d{i}", text) for lang, part in texts.items() for i, text in enumerate(part)]
    lang, doc, text = zip(*rows, strict=True)
    pq.write_table(pa.table({"lang": lang, "doc": doc, "text": text}), path)
    return path


def test_a_parallel_set(made: tuple[CountTable, Path, dict[str, list[str]]], tmp_path: Path) -> None:
    _, folder, texts = made
    path = parallel_file(tmp_path / "p.parquet", {"en": texts["x"][:40], "de": texts["y"][:40], "fr": texts["z"][:40]})
    vocabulary = Vocabulary.load(folder)
    found = on_texts(Tokenizer.of(vocabulary, "v"), read_parallel(path), segmenter="unicode", word_list=["a", "a a"])
    tokens = {
        name: sum(len(vocabulary.encode_ordinary(text)) for text in texts[part][:40])
        for name, part in (("en", "x"), ("de", "y"), ("fr", "z"))
    }
    assert {name: measured.tokens for name, measured in found.languages.items()} == tokens
    summary = found.summary()
    assert found.premiums(tokens) == {name: n / tokens["en"] for name, n in tokens.items()}
    assert summary["gini"] == gini(list(tokens.values()))
    assert summary["worst_premium"] == max(tokens.values()) / tokens["en"]
    assert summary["mean_premium"] == pytest.approx((tokens["de"] + tokens["fr"]) / 2 / tokens["en"])
    assert found.languages[found.worst()].tokens == max(tokens.values())
    assert found.curve[-1] == (700, tokens)
    assert found.retained == {"bare": 0.5, "after a space": (len(vocabulary.encode_ordinary(" a")) == 1) / 2}


def test_the_libraries_measure_alike(made: tuple[CountTable, Path, dict[str, list[str]]], tmp_path: Path) -> None:
    _, folder, texts = made
    (tmp_path / "alone").mkdir()
    alone = tmp_path / "alone" / "ranks.tiktoken"
    alone.write_bytes((folder / "vocab.tiktoken").read_bytes())
    # A tokenizer.json that is none of ours: it lowers text first, so its own library must read it.
    foreign = json.loads((folder / "tokenizer.json").read_text())
    foreign["normalizer"] = {"type": "Lowercase"}
    (tmp_path / "alone" / "tokenizer.json").write_text(json.dumps(foreign))
    corpus = HeldOut("held out", {name: [text.lower() for text in part[:50]] for name, part in texts.items()})
    ours = on_texts(open_tokenizer(str(folder)), corpus)
    for path, pattern in (
        (alone, "gpt2"),
        (tmp_path / "alone" / "tokenizer.json", None),
        (folder / "tokenizer.json", None),
    ):
        theirs = on_texts(open_tokenizer(str(path), pattern), corpus)
        assert theirs.languages == ours.languages, path
    with pytest.raises(errors.UsageError, match="name its pattern"):
        open_tokenizer(str(alone))
    with pytest.raises(errors.UsageError, match=r"no tiktoken encoding either.*o200k_base"):
        open_tokenizer("nothing-there")


def test_evaluate_and_compare_on_the_command_line(
    made: tuple[CountTable, Path, dict[str, list[str]]], tmp_path: Path
) -> None:
    table, folder, texts = made
    assert run("learn", table.folder.parent, "--vocab-size", "400", "--alpha", "0", "--no-verify").exit_code == 0
    path = parallel_file(tmp_path / "p.parquet", {"en": texts["x"][:40], "de": texts["y"][:40]})
    ran = run(
        "evaluate", folder, "--table", table.folder.parent, "--parallel", path, "--text", f"h={tmp_path}/x.parquet"
    )
    assert ran.exit_code == 0, ran.stderr
    for text in ("premium to en", "gini", "worst language", "embedding parameters", "2,097,152", "renyi observed"):
        assert text in ran.stdout, ran.stdout
    ran = run("compare", folder, folder.parent / "400", "--parallel", path, "--json")
    values = json.loads(ran.stdout)
    assert [value["size"] for value in values] == [700, 400]
    assert values[0]["languages"]["de"]["surcharge"] == values[0]["languages"]["de"]["premium"] - 1
    assert values[0]["curve"][0]["embedding_parameters"] == 512 * 4096
    ran = run("compare", folder, folder.parent / "400", "--parallel", path)
    assert ran.exit_code == 0, ran.stderr
    assert "premium to en" in ran.stdout


def test_what_cannot_be_measured(made: tuple[CountTable, Path, dict[str, list[str]]], tmp_path: Path) -> None:
    table, folder, texts = made
    other = dist_bpe.learn({"ab": 3}, num_merges=1, pattern="o200k", progress="silent")
    other.save(tmp_path / "o")
    path = parallel_file(tmp_path / "p.parquet", {"xx": texts["x"][:4], "de": texts["y"][:3]})
    for arguments, message in (
        ([folder], "say what to measure on"),
        ([tmp_path / "o", "--table", table.folder.parent], "measure it on text instead"),
        ([folder, "--parallel", path], "language 'de' lacks the document 'd3'"),
        ([folder, "--parallel", tmp_path / "x.parquet"], "lang"),
        (
            [folder, "--text", tmp_path / "x.parquet", "--segmenter", "mecab"],
            "--segmenter: it should be 'whitespace' or 'unicode', not 'mecab'",
        ),
    ):
        ran = run("evaluate", *arguments)
        assert ran.exit_code in (2, 3)
        assert message in ran.stderr, ran.stderr
    path = parallel_file(tmp_path / "p.parquet", {"xx": texts["x"][:3], "de": texts["y"][:3]})
    assert "no English" in run("evaluate", folder, "--parallel", path).stderr
    assert "no language 'fr'" in run("evaluate", folder, "--parallel", path, "--reference", "fr").stderr


def test_tables_add_up_to_the_table_of_all(write: Writer, tmp_path: Path, documents: list[str]) -> None:
    """A: x, y; B: y, z. The sum is what counting x, y, z together gives, byte for byte."""
    parts = {"x": documents[:100], "y1": documents[100:150], "y2": documents[150:200], "z": documents[200:]}
    paths = {name: str(write(f"{name}.parquet", part)) for name, part in parts.items()}

    def count(name: str, *sources: dist_bpe.Source, **options: object) -> Path:
        dist_bpe.count(
            *sources, output=tmp_path / name, engine="local", workers=1, partitions=4, progress="silent",
            **options,  # type: ignore[arg-type]
        )  # fmt: skip
        return tmp_path / name

    source = dist_bpe.Source
    a = count("a", source("x", paths["x"]), source("y", paths["y1"]))
    b = count("b", source("z", paths["z"]), source("y", paths["y2"]))
    whole = count("whole", source("x", paths["x"]), source("y", [paths["y1"], paths["y2"]]), source("z", paths["z"]))
    for runs in ([a, b], [b, a]):
        assert run("add", *runs, "-o", tmp_path / "sum", "--overwrite").exit_code == 0
        files = {file.name: file.read_bytes() for file in (tmp_path / "sum" / "counts").iterdir()}
        assert files == {file.name: file.read_bytes() for file in (whole / "counts").iterdir()}
    for name, options, message in (
        ("c", {"pattern": "o200k"}, "differ in pattern"),
        ("d", {"special_tokens": ["<s>"]}, "differ in special_tokens"),
        ("e", {"min_word_count": 2}, "differ in min_word_count"),
    ):
        c = count(name, source("x", paths["x"]), **options)
        ran = run("add", a, c, "-o", tmp_path / "none")
        assert ran.exit_code == 2
        assert message in ran.stderr
        assert not (tmp_path / "none" / "counts").exists()
    assert "frequent enough in all" in run("add", tmp_path / "e", tmp_path / "e", "-o", tmp_path / "none").stderr
    assert run("add", a, b, "-o", whole).exit_code == 6
    assert "is one of the runs to add" in run("add", a, b, "-o", a, "--overwrite").stderr
    part = next((b / "counts").glob("part-00001-*.parquet"))
    part.write_bytes(next((a / "counts").glob("part-00001-*.parquet")).read_bytes())
    assert run("add", a, b, "-o", tmp_path / "none").exit_code == 4


def test_one_that_fails_does_not_take_the_others_with_it(
    made: tuple[CountTable, Path, dict[str, list[str]]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, folder, texts = made
    path = parallel_file(tmp_path / "p.parquet", {"en": texts["x"][:40], "de": texts["y"][:40]})
    real = on_texts

    def failing(tokenizer: Tokenizer, *more: Any, **options: Any) -> Evaluation:
        if tokenizer.name == "other":
            raise ValueError("it cannot read this.")
        return real(tokenizer, *more, **options)

    monkeypatch.setattr("dist_bpe.evaluation.evaluate.on_texts", failing)
    shutil.copytree(folder, tmp_path / "other")
    command = ["compare", tmp_path / "other", folder, "--parallel", path]
    ran = run(*command)
    assert ran.exit_code == 1
    assert (
        f"error: other could not be measured on {path}: its library says ValueError: it cannot read this.\n"
        in ran.stderr
    )
    assert "premium to en" in ran.stdout
    assert re.search(r"\d\d:\d\d:\d\d measure: done, 2 measurements, ", ran.stderr)
    ran = run(*command, "--json")
    assert ran.exit_code == 1
    good, bad = json.loads(ran.stdout)
    assert good["size"] == 700
    assert bad == {
        "tokenizer": "other",
        "corpus": str(path),
        "error": "its library says ValueError: it cannot read this.",
    }
    assert run("evaluate", tmp_path / "other", "--parallel", path).stderr.endswith(
        "error: its library says ValueError: it cannot read this.\n"
    )


def test_all_names_are_looked_at_before_any_is_measured(
    made: tuple[CountTable, Path, dict[str, list[str]]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, folder, texts = made
    path = parallel_file(tmp_path / "p.parquet", {"en": texts["x"][:40]})
    for name in ("on_texts", "on_table"):
        monkeypatch.setattr(f"dist_bpe.evaluation.evaluate.{name}", lambda *_, **__: pytest.fail("measured"))
    for wrong in (
        [folder, "nosuch", "--parallel", path],
        [folder, "--parallel", tmp_path / "nosuch.parquet"],
        [folder, "--parallel", path, "--table", tmp_path / "nosuch"],
        [folder, "--parallel", path, "--reference", "fr"],
    ):
        ran = run("compare", *wrong)
        assert ran.exit_code in (2, 6), ran.stderr
