"""Balancing: languages of unequal size and shape come to cost the same; what limits it is told; files reproduce it."""

import dataclasses
import json
import math
import random
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner, Result

import dist_bpe
from dist_bpe import errors
from dist_bpe.cli.main import app
from dist_bpe.corpus.heldout import HeldOut, read_parallel
from dist_bpe.counting.table import CountTable, SourceCounts
from dist_bpe.evaluation.balance import balance, bound_warnings
from dist_bpe.evaluation.balance import balance_warnings as limits
from dist_bpe.learning.mixture import Mixture
from dist_bpe.learning.options import LearnOptions
from dist_bpe.learning.trainer import Trainer
from dist_bpe.vocabulary.vocabulary import Vocabulary

CONFIG = LearnOptions(vocab_size=(1000,))


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, list(map(str, arguments)))


def languages(documents: int) -> dict[str, list[str]]:
    """The same made-up documents in four languages: a dictionary each, of other letters and lengths of words."""
    rng = random.Random(5)
    alphabets = {"en": "aeioubcdfgst", "de": "aeiounrßäöü", "ja": "日本語世界東京大学生", "ru": "аеиоубвгдж"}
    concepts = range(800)
    words = {
        lang: ["".join(rng.choices(letters, k=rng.randint(2, 6) + (lang == "de") * 2)) for _ in concepts]
        for lang, letters in alphabets.items()
    }
    made: dict[str, list[str]] = {lang: [] for lang in words}
    for _ in range(documents):
        meant = rng.choices(concepts, [1 / (i + 2) for i in concepts], k=60)
        for lang, dictionary in words.items():
            made[lang].append(" ".join(dictionary[i] for i in meant))
    return made


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[CountTable, Path, Path]:
    """A table of 700 English, 200 German, 60 Japanese and 60 Russian documents; development and test files."""
    folder = tmp_path_factory.mktemp("balance")
    texts = languages(1000)
    sources = []
    for lang, number in {"en": 700, "de": 200, "ja": 60, "ru": 60}.items():
        pq.write_table(pa.table({"text": texts[lang][:number]}), folder / f"{lang}.parquet")
        sources.append(dist_bpe.Source(lang, str(folder / f"{lang}.parquet")))
    table = dist_bpe.count(*sources, output=folder / "run", engine="local", workers=1, progress="silent")
    rows = [(lang, f"d{i}", part[i]) for lang, part in texts.items() for i in range(700, 1000)]
    lang, doc, text = zip(*rows, strict=True)
    pq.write_table(pa.table({"lang": lang, "doc": doc, "text": text}), folder / "all.parquet")
    assert run("split", folder / "all.parquet", "-o", folder, "--dev", "0.6").exit_code == 0
    return table, folder / "dev.parquet", folder / "test.parquet"


def test_costs_become_equal_and_the_file_reproduces_it(made: tuple[CountTable, Path, Path], tmp_path: Path) -> None:
    table, dev, test = made
    outputs = []
    for i in range(2):
        ran = run(
            "balance", table.folder.parent, "--vocab-size", 1000, "--dev", dev, "--test", test, "-o",
            tmp_path / f"{i}.toml",
        )  # fmt: skip
        assert ran.exit_code == 0, ran.stderr
        assert "round 1" in ran.stdout
        assert "max/min" in ran.stdout
        outputs.append((tmp_path / f"{i}.toml").read_bytes())
    assert outputs[0] == outputs[1]
    report = json.loads((tmp_path / "0.json").read_text())
    rounds = report["rounds"]
    assert rounds[0]["gini"] > 0.02
    assert report["best"]["gini"] == min(found["gini"] for found in rounds) < 0.004
    assert report["test"]["gini"] < 0.01
    assert report["best"]["reference"] == "en"
    # The mixture file gives, by learn, the vocabulary of the best round.
    options = ["--vocab-size", "1000", "--mixture", str(tmp_path / "0.toml"), "--no-verify", "--overwrite"]
    assert run("learn", table.folder.parent, *options).exit_code == 0
    vocabulary = Vocabulary.load(table.folder.parent / "vocabularies" / "1000")
    corpus = read_parallel(dev)
    tokens = {lang: sum(map(len, vocabulary.encode_batch(texts))) for lang, texts in corpus.texts.items()}
    assert tokens == report["best"]["tokens"]


def test_dropped_words_do_not_turn_the_order_of_costs_round(tmp_path: Path) -> None:
    """With words dropped, bytes of all text over tokens of kept words called the dearest language the cheapest."""
    rng = random.Random(8)
    common = ["".join(rng.choices("abcdefgh", k=5)) for _ in range(40)]
    texts = {
        "aa": [" ".join(rng.choices(common, k=50)) for _ in range(60)],
        # Three of four of its words stand there once; the others are Georgian, dear in bytes by any measure.
        "bb": [
            " ".join([*rng.choices(["აბ", "გდ", "ევ"], k=12), *(f"{rng.random():.14f}" for _ in range(36))])
            for _ in range(60)
        ],
    }
    for lang, documents in texts.items():
        pq.write_table(pa.table({"text": documents}), tmp_path / f"{lang}.parquet")
    sources = [dist_bpe.Source(lang, str(tmp_path / f"{lang}.parquet")) for lang in texts]
    options = {"engine": "local", "progress": "silent"}
    table = dist_bpe.count(*sources, output=tmp_path / "run", min_word_count=3, **options)  # type: ignore[arg-type]
    outcome = Trainer(table, LearnOptions(vocab_size=(300,)), []).train(Mixture())
    held = dict.fromkeys(texts, 0)
    for batch in table.batches():
        for row in batch.to_pylist():
            held[list(texts)[row["source"]]] += len(row["word"]) * row["count"]
    assert outcome.bytes == held
    assert outcome.costs == {name: outcome.tokens[name] / size for name, size in held.items()}
    assert outcome.macro_bytes_per_token <= max(outcome.bytes[name] / outcome.tokens[name] for name in texts)
    ran = run("balance", tmp_path / "run", "--vocab-size", 300, "--rounds", 1)
    assert ran.exit_code == 0, ran.stderr
    assert "were dropped when the table was counted" in ran.stdout
    # A source of which nothing is left costs nothing, and is named.
    everything = dist_bpe.count(*sources, output=tmp_path / "few", min_word_count=40, **options)  # type: ignore[arg-type]
    few = dataclasses.replace(everything, sources=everything.sources | {"cc": SourceCounts(documents=1, bytes=9)})
    trainer = Trainer(few, LearnOptions(vocab_size=(300,)), [])
    assert "cc" not in trainer.languages
    told = limits(few, None, trainer.train(Mixture()), "aa")
    assert any("sources without words in the table" in text and "cc" in text for text in told)


def test_the_dial_lies_between(made: tuple[CountTable, Path, Path]) -> None:
    table, dev, _ = made
    trainer = Trainer(table, CONFIG, [], read_parallel(dev))
    equal_documents = trainer.train(Mixture(alpha=0, unit="documents", jitter=True))
    start, _ = balance(trainer, beta=0, rounds=1)
    assert start.tokens == equal_documents.tokens
    middle, leaning = balance(trainer, beta=2, tolerance=0.01)
    balanced, _ = balance(trainer)
    assert equal_documents.gini > middle.gini > balanced.gini
    # At the fixed point a language's leaning is β times the log of its cost over the mean; only differences count.
    mean = sum(middle.costs.values()) / 4
    offsets = [leaning[name] - 2 * math.log(cost / mean) for name, cost in middle.costs.items()]
    assert max(offsets) - min(offsets) < 0.1
    # The bounds hold.
    bounded, leaning = balance(trainer, rounds=4, caps={"*": 1.5}, floors={"de": 0.9})
    assert all(math.exp(value) <= 1.5 + 1e-9 for value in leaning.values())
    assert math.exp(leaning["de"]) >= 0.9 - 1e-9
    assert bounded.gini > balanced.gini
    assert "the cap holds the weight of" in bound_warnings(trainer, leaning, {"*": 1.5}, {"de": 0.9})[0]
    with pytest.raises(errors.UsageError, match="above its cap"):
        balance(trainer, caps={"de": 0.5}, floors={"de": 0.9})
    with pytest.raises(errors.UsageError, match="a floor names 'dr'; there are: de, en, ja, ru"):
        balance(trainer, floors={"dr": 0.9})
    for more in (["--cap", "en=2"], ["--floor", "en=1"], ["--beta", "1"], ["--tolerance", "0.1"], ["--frontier"],
                 ["--plot", "p.svg"]):  # fmt: skip
        for search in (["--search"], ["--premium", "1.1"]):
            ran = run("balance", "nowhere", "--vocab-size", "300", *search, *more)
            assert (ran.exit_code, f"{more[0]} has no effect on a search" in ran.stderr) == (2, True), ran.stderr


def test_without_a_parallel_set_bytes_per_token_meet_their_targets(made: tuple[CountTable, Path, Path]) -> None:
    table, _, _ = made
    trainer = Trainer(table, CONFIG, [], targets={"ja": 2, "*": 1})
    natural = trainer.train(Mixture())
    best, _ = balance(trainer)
    ratios = {name: best.bytes[name] / tokens for name, tokens in best.tokens.items()}
    assert best.gini < 0.003 < natural.gini
    assert ratios["ja"] / ratios["en"] == pytest.approx(2, rel=0.02)
    assert ratios["ru"] / ratios["en"] == pytest.approx(1, rel=0.02)


@pytest.mark.parametrize("rule", ["dev", "ratio", "window", "hybrid"])
def test_parity_by_learn(made: tuple[CountTable, Path, Path], rule: str) -> None:
    table, dev, _ = made
    options = ["learn", table.folder.parent, "--no-verify", "--overwrite"]
    ran = run(*options, "--vocab-size", "500,1000", "--parity", rule, "--dev", dev, "--name", rule)
    assert ran.exit_code == 0, ran.stderr
    assert "merges chosen by" in ran.stdout
    folder = table.folder.parent / "vocabularies"
    vocabulary = Vocabulary.load(folder / f"{rule}-1000")
    trainer = Trainer(table, CONFIG, list(vocabulary.special_tokens), read_parallel(dev))
    merges = trainer.parity(rule)
    assert list(vocabulary.data.merges) == list(zip(*(merges.column(i).to_pylist() for i in (0, 1)), strict=True))
    assert vocabulary.data.counts == merges.column(2)
    # Each of several sizes is, to the byte, what it is by itself.
    small = [*options, "--vocab-size", "500", "--parity", rule, "--dev", dev, "--name", "alone"]
    assert run(*small).exit_code == 0
    for file in (folder / "alone").iterdir():
        if file.name != "report.json":
            assert file.read_bytes() == (folder / f"{rule}-500" / file.name).read_bytes(), file.name
    alone, beside = (json.loads((folder / name / "report.json").read_text()) for name in ("alone", f"{rule}-500"))
    for key in ("bytes_per_token", "chosen", "sizes", "requested_size"):
        assert alone[key] == beside[key], key
    chosen = json.loads((folder / f"{rule}-1000" / "report.json").read_text())["chosen"]
    assert [name and trainer.sources.index(name) for name in chosen] == merges.column(3).to_pylist()
    assert "development" in json.loads((folder / f"{rule}-1000" / "manifest.json").read_text())["fingerprints"]
    natural = trainer.train(Mixture())
    assert trainer.measure(Mixture(), merges, 0).gini < natural.gini


def test_frontier_plot_and_search(made: tuple[CountTable, Path, Path], tmp_path: Path) -> None:
    table, dev, _ = made
    options = ["balance", table.folder.parent, "--vocab-size", "600", "--dev", dev, "-o", tmp_path / "b.toml"]
    ran = run(*options, "--rounds", "4", "--plot", tmp_path / "f.png")
    assert ran.exit_code == 0, ran.stderr
    for name in ("temperature 0.3", "temperature 0", "equal documents", "dial 2", "balanced"):
        assert name in ran.stdout, ran.stdout
    assert (tmp_path / "f.png").read_bytes().startswith(b"\x89PNG")
    other = run(*options, "--premium", "1.2", "--rounds", "14", "--json")
    assert (other.exit_code, "--overwrite" in other.stderr) == (6, True)
    ran = run(*options, "--premium", "1.2", "--rounds", "14", "--json", "--overwrite")
    assert ran.exit_code == 0, ran.stderr
    found = json.loads(ran.stdout)
    within = [point for point in found["tried"] if point["worst_premium"] <= 1.2]
    assert found["best"]["macro_bytes_per_token"] == max(point["macro_bytes_per_token"] for point in within)
    ran = run(*options, "--search", "--rounds", "14", "--json", "--overwrite")
    found = json.loads(ran.stdout)
    assert found["best"]["worst_tokens"] == min(point["worst_tokens"] for point in found["tried"])


def test_what_limits_it_is_told(made: tuple[CountTable, Path, Path], tmp_path: Path) -> None:
    table, dev, _ = made
    corpus = read_parallel(dev)
    few = HeldOut("few", {lang: texts[:9] for lang, texts in corpus.texts.items()}, (corpus.documents or ())[:9])
    few.texts["de"] = few.texts["en"]
    outcome = Trainer(table, CONFIG, [], few).train(Mixture())
    told = " ".join(limits(table, few, outcome, "en"))
    assert "9 documents only: on unseen text expect a Gini of about 0.023" in told
    assert "line by line" in told
    assert "de 100%" in told
    # Hindi under gpt2: its vowel signs are words of their own.
    hindi = {"en": ["hello world, good morning to you"] * 60, "hi": ["नमस्ते दुनिया हिन्दी में शुभ प्रभात"] * 60}
    for lang, texts in hindi.items():
        pq.write_table(pa.table({"text": texts}), tmp_path / f"{lang}.parquet")
    sources = [dist_bpe.Source(lang, str(tmp_path / f"{lang}.parquet")) for lang in hindi]
    small = dist_bpe.count(*sources, output=tmp_path / "run", engine="local", workers=1, progress="silent")
    parallel = HeldOut(
        "p", {lang: [f"{texts[0]} {i}" for i in range(60)] for lang, texts in hindi.items()}, tuple(map(str, range(60)))
    )
    outcome = Trainer(small, LearnOptions(vocab_size=(600,)), [], parallel).train(Mixture())
    told = " ".join(limits(small, parallel, outcome, "en"))
    assert "sets a floor: the words alone of hi" in told
    assert "the pattern gpt2-marks cuts them into" in told


def test_development_text_is_not_tested_on(made: tuple[CountTable, Path, Path], tmp_path: Path) -> None:
    table, dev, test = made
    options = ["balance", table.folder.parent, "--vocab-size", "600", "-o", tmp_path / "b.toml"]
    ran = run(*options, "--dev", dev, "--test", dev)
    assert ran.exit_code == 2
    assert "shares" in ran.stderr
    # The same text under other names is found, too.
    renamed = pq.read_table(dev).to_pydict() | {"doc": ["x" + doc for doc in pq.read_table(dev)["doc"].to_pylist()]}
    pq.write_table(pa.table(renamed), tmp_path / "renamed.parquet")
    ran = run(*options, "--dev", dev, "--test", tmp_path / "renamed.parquet")
    assert ran.exit_code == 2
    assert "shares" in ran.stderr
    for more, message in (
        (["--dev", dev, "--reference", "xx"], "no language 'xx'"),
        (["--dev", dev, "--target", "en=2"], "targets are for text that is not parallel"),
        (["--target", "en=0"], "above 0"),
        (["--target", "qq=1"], "'qq'"),
        (["--dev", dev, "--cap", "*=-1"], "above 0"),
        (["--dev", dev, "--premium", "0.5"], "cannot be reached"),
        (["--dev", dev, "--beta", "-1"], "--beta: it should be greater than or equal to 0"),
        (["--dev", dev, "--text", test], "exclude each other"),
    ):
        ran = run(*options, *more)
        assert ran.exit_code == 2, message
        assert message in ran.stderr, ran.stderr
    assert not (tmp_path / "b.toml").exists()
    learn = ["learn", table.folder.parent, "--vocab-size", "600", "--name", "none"]
    for more, message in (
        (["--parity", "dev"], "go together"),
        (["--parity", "fair", "--dev", dev], "parity"),
        (["--parity", "dev", "--dev", dev, "--alpha", "0.3"], "exclude each other"),
    ):
        ran = run(*learn, *more)
        assert ran.exit_code == 2, message
        assert message in ran.stderr, ran.stderr
    assert run("split", tmp_path / "renamed.parquet", "-o", dev.parent).exit_code == 6
