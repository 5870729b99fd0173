"""Options stand once, in models; flags, files, keywords, messages and docs/options.md follow from them."""

import dataclasses
import re
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import Writer
from helpers import quiet, run

import dist_bpe
from dist_bpe.cli.options import document
from dist_bpe.corpus.documents import Reading
from dist_bpe.corpus.source import Source
from dist_bpe.counting.options import CountOptions, WordList
from dist_bpe.engine.options import EngineOptions
from dist_bpe.errors import UsageError
from dist_bpe.evaluation.options import BalanceOptions, MeasureOptions
from dist_bpe.learning.mixture import Mixture
from dist_bpe.learning.options import LearnOptions
from dist_bpe.learning.textbook import LessonOptions
from dist_bpe.options import fields_of, flag_of
from dist_bpe.run.config import ExportOptions, RunConfig
from dist_bpe.vocabulary.vocabulary import Vocabulary

MODELS = (
    Source, CountOptions, WordList, EngineOptions, Mixture, LearnOptions, LessonOptions, MeasureOptions, BalanceOptions,
    ExportOptions,
)  # fmt: skip
PAGE = Path(__file__).parents[2] / "docs" / "options.md"


def test_the_page_of_options_is_made_from_the_models() -> None:
    head, mark, tables = PAGE.read_text(encoding="utf-8").partition("<!-- made from the models -->\n")
    assert head
    assert mark
    assert tables == document()


def test_every_option_says_what_it_means_in_a_sentence() -> None:
    for model in MODELS:
        for name, field in fields_of(model).items():
            assert field.description, (model, name)
            assert re.fullmatch(r"[\w@|'].*[.?]", field.description), (model, name)
            assert flag_of(field).cli or flag_of(field).name is None, (model, name)


def test_workers_read_as_the_source_says() -> None:
    """`Reading` is what of a source goes to workers: the same options, without paths and the secrets in them."""
    own = {"source", "threshold", "check_utf8"}
    reading = {field.name: field.default for field in dataclasses.fields(Reading) if field.name not in own}
    source = {name: field.default for name, field in fields_of(Source).items()}
    assert reading.items() <= source.items()
    assert source.keys() - reading.keys() == {"name", "paths", "documents", "format", "sample_fraction", "max_bytes"}


@pytest.fixture
def corpus(write: Writer, documents: list[str]) -> Path:
    return write("corpus/a.parquet", documents, lang=["x", "y", "z"] * 100).parent


def test_a_flag_beats_the_file_beats_the_default(corpus: Path, tmp_path: Path) -> None:
    file = tmp_path / "run.toml"
    file.write_text(
        f'output = "{tmp_path}/run"\nverify = false\n[[sources]]\nname = "a"\npaths = "{corpus}"\n'
        '[count]\npattern = "cl100k"\npartitions = 2\n[learn]\nvocab_size = 400\nmin_pair_count = 5\n'
        '[mixture]\nalpha = 0.5\ncaps = {x = 9}\n[engine]\nengine = "local"\n'
    )
    flags = ["--partitions", "3", "--vocab-size", "300", "--group-by", "lang", "--alpha", "0.3", "--name", "v"]
    ran = run("train", file, *flags, "-o", tmp_path / "other")
    assert ran.exit_code == 0, ran.stderr
    assert not (tmp_path / "run").exists()
    table = dist_bpe.CountTable.open(tmp_path / "other")
    assert (table.pattern, len(table.parts), list(table.sources)) == ("cl100k", 3, ["x", "y", "z"])
    made = Vocabulary.load(tmp_path / "other" / "vocabularies" / "v")
    wanted = dist_bpe.learn(
        table, 300, min_pair_count=5, mixture=dist_bpe.Temperature(0.3), special_tokens=["<|endoftext|>"],
        progress="silent",
    )  # fmt: skip
    assert made.merges == wanted.merges


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--engine", "locl"], "error: --engine: it should be 'ray' or 'local', not 'locl'."),
        (["--stall-seconds", "0"], "error: --stall-seconds: it should be greater than 0, not '0'."),
        (["--on-bad-row", "no"], "error: --on-bad-row: it should be 'error', 'skip' or 'replace', not 'no'."),
        (["--memory-per-worker", "much"], "error: --memory-per-worker: "),
        (["--share", "x=some"], "error: --share x: a number is needed, such as 3, 0.25 or '1/3', not 'some'."),
        (["--share", "x"], "error: --share x is not NAME=NUMBER, each name once."),
        (["--alpha", "1", "--unimax", "2"], "error: alpha (--alpha) and unimax (--unimax) exclude each other."),
        (["--alpha", "2"], "error: --alpha: it must lie between 0 (all sources alike) and 1 (as they stand), not '2'."),
        (["--engine", "local", "--address", "h:1"], "error: address (--address) has no effect with the engine local"),
        (["--vocab-size", "100"], "error: vocab_size (--vocab-size) is too small with 100: 256 bytes and 1 special "),
        (["--parity", "dev"], "error: parity (--parity) and --dev go together"),
        (["--share", "nosuch=1"], "error: shares (--share) of the mixture name the source 'nosuch', which is not "),
        (["--special-token", "a", "--no-special-tokens"], "error: --special-token and --no-special-tokens exclude"),
    ],
)
def test_messages_name_the_flag(corpus: Path, tmp_path: Path, given: list[str], said: str) -> None:
    ran = run("train", corpus, "-o", tmp_path / "run", "--vocab-size", "300", *given)
    assert (ran.exit_code, ran.stderr.startswith(said)) == (2, True), ran.stderr
    assert not (tmp_path / "run").exists()


def test_messages_name_the_key_in_the_file(corpus: Path, tmp_path: Path) -> None:
    file = tmp_path / "run.toml"
    whole = f'output = "{tmp_path}/run"\n[[sources]]\nname = "a"\npaths = "{corpus}"\n[learn]\nvocab_size = 300\n'
    for more, said in (
        ('[engine]\nengine = "locl"', "run.toml: engine.engine: it should be 'ray' or 'local', not 'locl'."),
        ("[count]\npartition = 3", "run.toml: unknown option 'count.partition'; known here are: pattern, "),
        ("[engine]\nworkers = 1\n[count]\npartitions = 0", "run.toml: count.partitions: it should be greater than"),
        ("count = 3", "run.toml: "),
        ("[mixture]\nalpha = 2", "run.toml: mixture.alpha: it must lie between 0 "),
        ("[mixture]\nalpha = 1\nunimax = 2", "run.toml: mixture: alpha (--alpha) and unimax (--unimax) exclude"),
    ):
        file.write_text(whole.replace("[[", f"{more}\n[[") if more[0] != "[" else f"{whole}{more}\n")
        ran = run("train", file)
        assert ran.exit_code == 2, ran.stderr
        assert said in ran.stderr
        assert "Traceback" not in ran.stderr
    ran = run("train", file, corpus)
    assert (ran.exit_code, "run.toml describes a whole run: give it alone" in ran.stderr) == (2, True)
    ran = run("train", file, "--partitions", "0")
    assert (ran.exit_code, "Traceback" in ran.stderr) == (2, False)


def test_a_misspelt_keyword_lists_what_there_is(corpus: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        quiet(Source("a", str(corpus)), output=tmp_path / "run", patern="gpt2")
    assert str(caught.value).startswith("unknown option 'patern'; known here are: output, pattern, normalization, ")
    assert "stall_seconds" in str(caught.value)
    assert "restart" in str(caught.value)
    assert "sources" not in str(caught.value)
    with pytest.raises(UsageError, match="unknown option 'shard_bytes'; known here are: lists, output, pattern, "):
        dist_bpe.import_counts("words.txt", output="x", shard_bytes=3)  # type: ignore[call-arg]
    with pytest.raises(UsageError, match=r"^partitions: it should be greater than or equal to 1, not 0\.$"):
        quiet(Source("a", str(corpus)), output=tmp_path / "run", partitions=0)
    with pytest.raises(
        UsageError, match="unknown option 'min_pairs'; known here are: counts, vocab_size, num_merges, "
    ):
        dist_bpe.learn({"ab": 3}, 300, min_pairs=3)  # type: ignore[call-overload]


def test_what_is_no_source_and_no_list_of_words(corpus: Path, tmp_path: Path) -> None:
    given: Any = str(corpus)
    assert list(quiet(given, output=tmp_path / "run").sources) == ["corpus"]
    given = ("a", str(corpus))
    with pytest.raises(UsageError, match=r"a source is a dist_bpe\.Source, a path or a table, not tuple"):
        quiet(given, output=tmp_path / "other")
    (tmp_path / "w.txt").write_text("ab 3\n")
    table = dist_bpe.import_counts([tmp_path / "w.txt"], output=tmp_path / "words", progress="silent")
    assert table.sources["corpus"].words == 3
    wrong: Any = [("a", "w.txt")]
    with pytest.raises(UsageError, match=r"a list of words is a dist_bpe\.WordList or a path, not tuple"):
        dist_bpe.import_counts(wrong, output=tmp_path / "none")
    with pytest.raises(UsageError, match="wordlist 'a': format: the formats are parquet"):
        dist_bpe.WordList("a", ("w",), format="doc")
    assert not (tmp_path / "none").exists()


def test_parity_in_python_takes_its_development_set(tmp_path: Path, write: Writer) -> None:
    write("x.parquet", ["low lower lowest " * 9])
    write("y.parquet", ["hoch höher höchst " * 9])
    sources = [Source(name, str(tmp_path / f"{name}.parquet")) for name in "xy"]
    table = quiet(*sources, output=tmp_path / "run")
    dev = tmp_path / "dev.parquet"
    texts = {"lang": ["x", "y"], "doc": ["1", "1"], "text": ["low lowest", "hoch höchst"]}
    pq.write_table(pa.table(texts), dev)
    made = dist_bpe.learn(table, 270, parity="dev", dev=dev, progress="silent")
    ran = run("learn", tmp_path / "run", "--vocab-size", "270", "--parity", "dev", "--dev", dev, "--no-verify")
    assert ran.exit_code == 0, ran.stderr
    assert Vocabulary.load(tmp_path / "run" / "vocabularies" / "270").merges == made.merges
    with pytest.raises(UsageError, match="parity and dev go together"):
        dist_bpe.learn(table, 270, parity="dev", progress="silent")


def test_counts_from_elsewhere_take_the_options_of_a_table(tmp_path: Path) -> None:
    (tmp_path / "w.txt").write_text("ab 30\nabc 9\n")
    options = ["--partitions", "3", "--normalization", "NFC", "--table-bytes", "2000000"]
    command = ["learn", tmp_path / "run", "--counts", f"a={tmp_path / 'w.txt'}", "--vocab-size", "259"]
    ran = run(*command, *options)
    assert ran.exit_code == 0, ran.stderr
    table = dist_bpe.CountTable.open(tmp_path / "run")
    assert (len(table.parts), table.normalization) == (3, "NFC")
    ran = run("learn", tmp_path / "run", "--vocab-size", "258", "--partitions", "3")
    assert (ran.exit_code, "--partitions has no effect without --counts" in ran.stderr) == (2, True)


def test_a_mixture_of_any_names_is_read_back() -> None:
    names = ["𐌲𐌿𐍄", "a.b", "*", 'quo"ted', "back\\slash", "new\nline", "ü \x01"]
    mixture = dist_bpe.Mixture(multipliers={name: f"1/{i}" for i, name in enumerate(names, 3)}, jitter=True)
    assert dist_bpe.Mixture(**tomllib.loads(mixture.as_toml())["mixture"]) == mixture


def test_a_configuration_is_what_was_written() -> None:
    values = {"sources": [{"name": "a", "paths": "x"}], "output": "run", "learn": {"vocab_size": 300}}
    config = RunConfig(**values)  # type: ignore[arg-type]
    assert config.sources == [Source("a", "x")]
    assert "'x'" not in repr(config)  # a path may hold a login
    assert config.learn == LearnOptions(vocab_size=(300,))


HUGE = 10**20


def test_numbers_that_no_core_takes_are_refused_before_anything_is_read(tmp_path: Path) -> None:
    for option in ("--vocab-size", "--min-pair-count", "--min-word-count", "--max-token-bytes", "--pad-to-multiple"):
        ran = run("learn", tmp_path / "nowhere", "--vocab-size", "300", option, str(HUGE))
        assert (ran.exit_code, ran.stderr.startswith(f"error: {option}: ")) == (2, True), ran.stderr
    for option in ("--min-word-count", "--max-word-bytes", "--shard-bytes", "--table-bytes"):
        ran = run("count", tmp_path / "nowhere", "-o", tmp_path / "run", option, str(HUGE))
        assert (ran.exit_code, ran.stderr.startswith(f"error: {option}: ")) == (2, True), ran.stderr
    ran = run("balance", tmp_path / "nowhere", "--vocab-size", "300,400")
    assert (ran.exit_code, "give one" in ran.stderr) == (2, True)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: dist_bpe.count(output="x"), "name at least one source or path"),
        (lambda: dist_bpe.learn(["a"], 300), "counts is a count table, .* not list"),
        (lambda: dist_bpe.learn(None, 300), "counts is a count table, .* not NoneType"),
        (lambda: dist_bpe.learn({"a": 3}, 300, special_tokens="abc"), "special_tokens is a list"),
        (lambda: dist_bpe.learn({"a": 3}, 300, special_tokens=[1]), "special_tokens is a list"),
        (lambda: dist_bpe.learn({"a": 3}, 300, pattern=3), "a pattern is a name"),
        (lambda: dist_bpe.learn({"a": 3}, 300, progress="silly"), "progress is auto, bars, lines, json or silent"),
        (lambda: dist_bpe.learn({"a": 3}, num_merges=-1), "num_merges must be 0 or more"),
        (lambda: dist_bpe.learn({"a": 3}, 300, parity="dev", dev=3), "dev is a parallel set"),
        (lambda: Source("", "x"), "source: name: "),
        (lambda: Source(3, "x"), "source 3: name: "),
    ],
)
def test_what_python_is_given_wrongly_is_one_sentence(call: Any, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        call()
    assert dist_bpe.learn({"ab": np.int64(3)}, num_merges=1, progress="silent").merges == ((b"a", b"b"),)
