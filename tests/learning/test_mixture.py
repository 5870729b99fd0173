"""Mixtures: the rules against slow arithmetic, exact weights, and vocabularies that must be equal byte for byte."""

import dataclasses
import json
import random
import tomllib
from collections import Counter
from fractions import Fraction
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import xxhash
from conftest import Writer
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner, Result

import dist_bpe
from dist_bpe import _core, errors
from dist_bpe.cli.main import app
from dist_bpe.counting.spills import SPILL_SCHEMA
from dist_bpe.counting.table import CountTable, SourceCounts
from dist_bpe.learning.merges import learn_merges
from dist_bpe.learning.mixture import Mixture, Temperature, UniMax, Weights
from dist_bpe.learning.options import LearnOptions

FILES = ("vocab.json", "merges.txt", "tokenizer.json", "vocab.tiktoken", "merges.parquet", "manifest.json")


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, list(map(str, arguments)))


@pytest.fixture
def table(write: Writer, tmp_path: Path, documents: list[str]) -> CountTable:
    """Three sources of 200, 80 and 20 documents, the small ones with words of their own."""
    rng = random.Random(3)
    made = {"x": documents[:200], "y": documents[200:280], "z": documents[280:]}
    for source, letters in (("y", "uvwö"), ("z", "klmñ")):
        made[source] = [
            text + " " + " ".join("".join(rng.choices(letters, k=4)) for _ in range(40)) for text in made[source]
        ]
    sources = [dist_bpe.Source(name, str(write(f"{name}.parquet", texts))) for name, texts in made.items()]
    return dist_bpe.count(*sources, output=tmp_path / "run", engine="local", workers=1, progress="silent")


SIZES = st.dictionaries(st.sampled_from("abcdefg"), st.integers(1, 10**13), min_size=1)


@given(SIZES, st.integers(0, 100))
def test_temperature_is_the_formula(sizes: dict[str, int], hundredths: int) -> None:
    weights = Temperature(Fraction(hundredths, 100)).weights(sizes)
    powers = {name: size ** (hundredths / 100) for name, size in sizes.items()}
    for name, _, used, multiplier in weights.rows():
        wanted = powers[name] / sum(powers.values()) / (sizes[name] / sum(sizes.values()))
        # The weight is a whole number of 1/65,536 of the mean, and at least one of them.
        assert multiplier == pytest.approx(wanted, rel=2e-3, abs=2 / 65_536)
        assert used == pytest.approx(multiplier * sizes[name] / sum(sizes.values()))
    assert sum(used for _, _, used, _ in weights.rows()) == pytest.approx(1)


@given(SIZES, st.fractions(Fraction(1, 2), 50))
def test_unimax_shares_evenly_up_to_its_passes(sizes: dict[str, int], passes: Fraction) -> None:
    given = UniMax(passes)._sizes({name: Fraction(size) for name, size in sizes.items()})
    # Slow twin: water is poured evenly until the vessels (passes x size) or the budget are full.
    budget, wanted, open_ = Fraction(sum(sizes.values())), dict.fromkeys(sizes, Fraction(0)), set(sizes)
    while open_ and budget:
        step = min(budget / len(open_), *(sizes[name] * passes - wanted[name] for name in open_))
        for name in open_:
            wanted[name] += step
        budget -= step * len(open_)
        open_ = {name for name in open_ if wanted[name] < sizes[name] * passes}
    assert given == wanted


@given(SIZES, st.fractions(Fraction(1, 1000), 1000), st.data())
def test_a_common_factor_changes_nothing(sizes: dict[str, int], factor: Fraction, data: st.DataObject) -> None:
    multipliers = {name: data.draw(st.fractions(Fraction(1, 50), 50)) for name in sizes}
    weights = Mixture(multipliers=multipliers).weights(sizes)
    assert weights == Mixture(multipliers={name: m * factor for name, m in multipliers.items()}).weights(sizes)
    assert np.gcd.reduce(list(weights.integers.values())) == 1
    assert weights.least(7) == 7 * min(weights.integers.values())


@given(SIZES)
def test_natural_in_all_its_words(sizes: dict[str, int]) -> None:
    natural: list[dict[str, object]] = [
        {}, {"alpha": 1}, {"shares": sizes}, {"multipliers": {"*": "2/7"}}, {"caps": {"*": 10**14}},
        {"shares": {name: size / sum(sizes.values()) for name, size in sizes.items()}},
        {"shares": {"*": 1}},
    ]  # fmt: skip
    for values in natural:
        weights = Mixture(**values).weights(sizes)
        assert weights.natural, values
        assert weights.least(2) == 2


def test_shares_multipliers_caps_and_the_rest() -> None:
    sizes = {"a": 600, "b": 300, "c": 100}
    assert Mixture(shares={"c": 0.5}).weights(sizes).integers == {"a": 1, "b": 1, "c": 9}
    assert Mixture(shares={"c": 1, "*": 1}).weights(sizes).integers == {"a": 1, "b": 1, "c": 9}
    assert Mixture(multipliers={"a": 3, "*": 0.5}).weights(sizes).integers == {"a": 6, "b": 1, "c": 1}
    assert Mixture(caps={"a": 300}).weights(sizes).integers == {"a": 1, "b": 2, "c": 2}
    assert Mixture(caps={"*": 100}, alpha=0).weights(sizes).integers == {"a": 1, "b": 2, "c": 6}
    assert Mixture(alpha=0, multipliers={"b": 0}).weights(sizes).integers == {"a": 1, "b": 0, "c": 6}
    rows = Mixture(shares={"c": 0.5}).weights(sizes).rows()
    assert rows[2] == ("c", pytest.approx(0.1), pytest.approx(0.5), pytest.approx(5))
    # A source without text changes nothing for the others.
    assert Mixture(multipliers={"a": 4, "c": 4, "*": 2}).weights({"a": 5, "e": 0, "c": 5}).natural


def test_sizes_in_every_unit(table: CountTable) -> None:
    characters = dict.fromkeys(table.sources, 0)
    for batch in table.batches():
        for row in batch.to_pylist():
            characters[list(table.sources)[row["source"]]] += len(row["word"].decode()) * row["count"]
    assert table.sizes("characters") == characters
    assert table.sizes("documents") == {"x": 200, "y": 80, "z": 20}
    elsewhere = dataclasses.replace(table, sources=table.sources | {"w": SourceCounts(words=3, bytes=9)})
    assert elsewhere.sizes("bytes")["w"] == 9
    with pytest.raises(errors.UsageError, match="does not know how many documents 'w' had"):
        elsewhere.sizes("documents")
    assert table.sizes("bytes")["x"] == table.sources["x"].bytes > table.sizes("words")["x"]


def saved(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in FILES}


def test_equal_mixtures_give_equal_bytes(table: CountTable, tmp_path: Path) -> None:
    bytes_ = table.sizes("bytes")
    total = sum(bytes_.values())
    shares = [f"--share={name}={n}/{total}" for name, n in bytes_.items()]
    commands: dict[str, list[str]] = {
        "plain": [], "alpha": ["--alpha", "1"], "shares": shares, "factor": ["--multiplier", "*=1000"],
        "t": ["--alpha", "0.3"], "t-twice": ["--alpha", "0.3", "--multiplier", "*=2"],
        "m": ["--multiplier", "z=3"], "m-twice": ["--multiplier", "z=6", "--multiplier", "*=2"],
    }  # fmt: skip
    for name, options in commands.items():
        ran = run(
            "learn", table.folder.parent, "--vocab-size", 5000, "--min-pair-count", 5, "--no-verify", "--name", name,
            *options,
        )  # fmt: skip
        assert ran.exit_code == 0, ran.stderr
    # Counting and learning in one go takes the same options.
    paths = [f"{name}={tmp_path / name}.parquet" for name in "xyz"]
    size = ("--vocab-size", 5000, "--min-pair-count", 5, "--alpha", "0.3", "--no-verify", "--name", "t")
    assert run("train", *paths, *size, "--engine", "local", "-o", tmp_path / "one-go").exit_code == 0
    assert saved(tmp_path / "one-go" / "vocabularies" / "t") == saved(table.folder.parent / "vocabularies" / "t")
    folders = {name: saved(table.folder.parent / "vocabularies" / name) for name in commands}
    assert folders["plain"] == folders["alpha"] == folders["shares"] == folders["factor"]
    assert folders["t"] == folders["t-twice"]
    assert folders["m"] == folders["m-twice"]
    assert len({folder["merges.parquet"] for folder in folders.values()}) == 3
    recorded = json.loads(folders["m"]["manifest.json"])["fingerprints"]["mixture"]
    assert recorded["weights"] == {"x": 1, "y": 1, "z": 3}
    assert Fraction(recorded["scale"]) == 1 + 2 * Fraction(bytes_["z"], total)
    # The API gives the same.
    api = dist_bpe.learn(table, vocab_size=5000, min_pair_count=5, mixture=dist_bpe.Temperature(0.3), progress="silent")
    api.save(table.folder.parent / "api")
    assert (table.folder.parent / "api" / "merges.parquet").read_bytes() == folders["t"]["merges.parquet"]


def test_a_mixture_is_the_corpus_written_out_so_often(table: CountTable, tmp_path: Path, write: Writer) -> None:
    """Weights 1, 1, 3 are the documents of z three times; case 40: the small source gets its words."""
    thrice = pq.read_table(tmp_path / "z.parquet")["text"].to_pylist() * 3
    sources = [dist_bpe.Source(name, str(tmp_path / f"{name}.parquet")) for name in ("x", "y")]
    written = dist_bpe.count(
        *sources, dist_bpe.Source("z", str(write("z3.parquet", thrice))), output=tmp_path / "out", engine="local",
        workers=1, progress="silent",
    )  # fmt: skip
    wanted = dist_bpe.learn(written, vocab_size=900, min_pair_count=1, progress="silent")
    weighted = dist_bpe.learn(
        table, vocab_size=900, min_pair_count=1, mixture=Mixture(multipliers={"z": 3}), progress="silent"
    )
    assert weighted.merges == wanted.merges
    assert weighted.data.counts == wanted.data.counts


def test_one_training_gives_every_size(table: CountTable) -> None:
    folder = table.folder.parent / "vocabularies"
    options = ["--alpha", "0.3", "--pad-to-multiple", "32", "--no-verify"]
    ran = run("learn", table.folder.parent, "--vocab-size", "900,300,5000,257,100000", "--name", "n", *options)
    assert ran.exit_code == 0, ran.stderr
    assert "bytes/token at" in ran.stdout
    for size in (257, 300, 900, 5000, 100_000):
        assert run("learn", table.folder.parent, "--vocab-size", size, "--name", f"s{size}", *options).exit_code == 0
        assert saved(folder / f"n-{size}") == saved(folder / f"s{size}"), size
        separate = json.loads((folder / f"s{size}" / "report.json").read_text())["bytes_per_token"]
        assert json.loads((folder / f"n-{size}" / "report.json").read_text())["curve"][str(size)] == separate
    whole = dist_bpe.learn(table, vocab_size=900, progress="silent")
    assert whole.cut(300) == dist_bpe.learn(table, vocab_size=300, progress="silent")
    with pytest.raises(errors.UsageError, match="from 257 to 900"):
        whole.cut(901)


ROWS = st.lists(
    st.tuples(st.text("ab", min_size=1, max_size=4).map(str.encode), st.integers(0, 2), st.integers(1, 2**40)),
    max_size=20,
)


def batches_of(rows: list[tuple[bytes, int, int]], size: int) -> list[pa.RecordBatch]:
    summed = Counter[tuple[bytes, int]]()
    for word, source, count in rows:
        summed[word, source] += count
    lines = sorted((word, source, count) for (word, source), count in summed.items())
    parts = [lines[i : i + size] for i in range(0, len(lines), size)]
    return [
        pa.record_batch(
            [pa.array(column, kind.type) for column, kind in zip(zip(*part, strict=True), SPILL_SCHEMA, strict=True)],
            schema=SPILL_SCHEMA,
        )
        for part in parts
    ]


@settings(max_examples=150)
def jittered_weights(integers: dict[str, int]) -> Weights:
    return Weights("bytes", dict.fromkeys(integers, 1), integers, Fraction(1), jitter=True)


@given(ROWS, st.integers(1, 5), st.tuples(*[st.integers(1, 5000)] * 3), st.integers(1, 2**40))
def test_jitter_multiplies_every_word_by_its_own_factor(
    rows: list[tuple[bytes, int, int]], size: int, weights: tuple[int, ...], least: int
) -> None:
    """Jitter against the words written out with their factors, as one source."""
    batches = batches_of(rows, size)
    summed = Counter[bytes]()
    raw = Counter[bytes]()
    for word, source, count in rows:
        raw[word] += count
        summed[word] += weights[source] * count * (900 + xxhash.xxh3_64_intdigest(word) % 201)
    wanted = batches_of([(word, 0, n) for word, n in summed.items() if raw[word] >= least and n], 9)
    given = jittered_weights(dict(zip("abc", weights, strict=True)))
    options = LearnOptions(vocab_size=(286,), min_word_count=least, min_pair_count=1)
    jittered = learn_merges(lambda: batches, "abc", 30, options, given)
    assert jittered.merges.equals(_core.learn_merges(_core.Words(wanted, [1], 1), 30, given.least(1)))


def test_overflow_says_how_to_rescale() -> None:
    batches = batches_of([(b"ab", 0, 2**50), (b"ab", 1, 2**50)], 9)
    with pytest.raises(errors.CountOverflowError, match="divide the weights"):
        learn_merges(lambda: batches, "ab", 1, LearnOptions(vocab_size=(257,)), jittered_weights({"a": 2**20, "b": 1}))
    with pytest.raises(errors.CountOverflowError, match="lower it, or the mixture's scale"):
        Temperature(0.5, scale=2**40).weights({"a": 7, "b": 3}).least(2**50)
    assert Mixture(multipliers={"a": 9, "b": 0, "c": 2}, jitter=True).weights({"a": 1, "b": 2, "c": 3}).least(5) == 9000


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--alpha", "0.3", "--unimax", "2"], "alpha (--alpha) and unimax (--unimax) exclude each other"),
        (["--alpha", "warm"], "alpha: a number is needed"),
        (["--alpha", "-1"], "must not be negative"),
        (["--share", "q=0.2"], "'q', which is not there; the sources are: x, y, z"),
        (["--share", "x=0.9", "--share", "y=0.2"], "add up to 1.1"),
        (["--share", "x"], "not NAME=NUMBER"),
        (["--multiplier", "*=0"], "nothing is left"),
        (["--unimax", "0"], "more than 0"),
        (["--unit", "lines"], "unit"),
        (["--unit", "words"], "unit (--unit) has no effect by itself: it goes with alpha"),
        (["--alpha", "2"], "--alpha: it must lie between 0 (all sources alike) and 1"),
        (["--alpha", "1e999999999"], "alpha: a number is needed"),
        (["--multiplier", "x=" + "1" * 32], "30 digits at most"),
        (["--mixture", "no.toml"], "cannot be read"),
        (["--mixture", "no.toml", "--alpha", "1"], "--alpha has no effect beside --mixture no.toml"),
    ],
)
def test_mixtures_that_cannot_work(table: CountTable, options: list[str], message: str) -> None:
    ran = run("learn", table.folder.parent, "--vocab-size", 300, *options)
    assert ran.exit_code == 2
    assert message in ran.stderr, ran.stderr
    assert not (table.folder.parent / "vocabularies").exists()


def test_equal_fingerprints_mean_equal_files(table: CountTable) -> None:
    """Special tokens that are others than the table's decide ids and configurations, so they are in the fingerprint."""
    folder = table.folder.parent / "vocabularies"
    found = {}
    for name, options in {
        "plain": [], "same": ["--special-token", "<|endoftext|>"], "other": ["--special-token", "<|endofpage|>"],
        "role": ["--special-token", "bos=<|endoftext|>"], "none": ["--no-special-tokens"],
    }.items():  # fmt: skip
        ran = run("learn", table.folder.parent, "--vocab-size", 300, "--no-verify", "--name", name, *options)
        assert ran.exit_code == 0, ran.stderr
        found[name] = json.loads((folder / name / "manifest.json").read_text())["fingerprints"]
    assert found["plain"] == found["same"]
    assert saved(folder / "plain") == saved(folder / "same")
    assert len({json.dumps(values) for values in found.values()}) == 4


def test_options_that_do_nothing_by_themselves() -> None:
    for values in ({"unit": "documents"}, {"scale": 7}, {"unit": "words", "jitter": True}):
        with pytest.raises(errors.UsageError, match="has no effect by itself"):
            Mixture(**values)
    for values in ({"alpha": 1}, {"caps": {"*": 5}}, {"multipliers": {"x": 2}}, {"unimax": 3}, {"shares": {"x": 0.5}}):
        Mixture(unit="words", scale=7, **values)
    with pytest.raises(errors.UsageError, match="unknown option 'self'"):
        Mixture(self=1)


@given(
    st.dictionaries(
        st.text(st.characters(exclude_categories=["Cs"]), max_size=9),
        st.fractions(0, 9, max_denominator=10**20),
        max_size=4,
    )
)
def test_a_mixture_is_read_back_whatever_its_sources_are_named(multipliers: dict[str, Fraction]) -> None:
    mixture = Mixture(multipliers=multipliers, jitter=True)
    assert Mixture(**tomllib.loads(mixture.as_toml())["mixture"]) == mixture


def test_a_mixture_from_a_file_and_its_table(table: CountTable, tmp_path: Path) -> None:
    file = tmp_path / "mix.toml"
    file.write_text('[mixture]\nalpha = 0.3\nunit = "documents"\njitter = true\ncaps = { x = 100 }\n')
    ran = run("learn", table.folder.parent, "--vocab-size", 600, "--mixture", file)
    assert ran.exit_code == 0, ran.stderr
    lines = [line.split() for line in ran.stdout.splitlines() if "%" in line]
    assert [line[0] for line in lines] == ["x", "y", "z"]
    assert lines[0][1] == "66.67%"
    config = tmp_path / "run.toml"
    config.write_text(
        f'output = "{tmp_path / "second"}"\n[[sources]]\nname = "x"\npaths = "{tmp_path}/*.parquet"\n'
        '[learn]\nvocab_size = [300, 600]\n[mixture]\nalpha = 0.3\n[engine]\nengine = "local"\n'
    )
    assert run("train", config).exit_code == 0
    assert {path.name for path in (tmp_path / "second" / "vocabularies").iterdir()} == {"300", "600"}
    config.write_text(config.read_text().replace("alpha = 0.3", "alfa = 0.3"))
    ran = run("train", config, "--overwrite")
    assert ran.exit_code == 2
    assert "run.toml: unknown option 'mixture.alfa'" in ran.stderr
