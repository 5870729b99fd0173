"""The functions of the package do what the commands do."""

from collections import OrderedDict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers import hashes, quiet, run

import dist_bpe
from dist_bpe.corpus.heldout import HeldOut, read_parallel
from dist_bpe.errors import RunError, SourceError, UsageError

TEXTS = {"de": ["tief tiefer am tiefsten"] * 30, "en": ["low lower lowest slow slower slowest"] * 20}
SILENT: dict[str, Any] = {"progress": "silent"}


@pytest.fixture
def sources() -> list[dist_bpe.Source]:
    return [dist_bpe.Source(name, documents=texts) for name, texts in TEXTS.items()]


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    for name, texts in TEXTS.items():
        pq.write_table(pa.table({"text": texts}), tmp_path / f"{name}.parquet")
    return [f"{name}={tmp_path / name}.parquet" for name in TEXTS]


@pytest.fixture
def parallel(tmp_path: Path) -> Path:
    rows = [(lang, f"d{i}", f"{text} {i}") for lang, (text, *_) in TEXTS.items() for i in range(12)]
    lang, doc, text = zip(*rows, strict=True)
    pq.write_table(pa.table({"lang": lang, "doc": doc, "text": text}), tmp_path / "parallel.parquet")
    return tmp_path / "parallel.parquet"


def test_train_makes_what_the_command_makes(sources: list[dist_bpe.Source], files: list[str], tmp_path: Path) -> None:
    options: dict[str, Any] = {"pattern": "cl100k", "special_tokens": ["bos=<s>"], "min_word_count": 2, "alpha": "0.3"}
    flags = [
        flag
        for name, value in options.items()
        for flag in (f"--{name.replace('_', '-').removesuffix('s')}", value[0] if isinstance(value, list) else value)
    ]
    ran = run("train", *files, "-o", tmp_path / "cli", "--vocab-size", "270,275", "--engine", "local", *map(str, flags))
    assert ran.exit_code == 0, ran.stderr
    options["mixture"] = dist_bpe.Mixture(alpha=options.pop("alpha"))
    report = dist_bpe.train(*sources, output=tmp_path / "python", vocab_size=[270, 275], **options, **SILENT)
    assert hashes(tmp_path / "python" / "vocabularies") == hashes(tmp_path / "cli" / "vocabularies")
    assert hashes(tmp_path / "python" / "counts") == hashes(tmp_path / "cli" / "counts")
    assert (len(report.vocabulary), len(report.folders), report.requested_size) == (275, 2, 275)
    assert dist_bpe.Vocabulary.load(report.folders[-1]) == report.vocabulary
    # What the command made is there already: of the same inputs and options.
    there = [dist_bpe.Source(*file.split("=")) for file in files]
    again = dist_bpe.train(*there, output=tmp_path / "cli", vocab_size=[270, 275], **options, **SILENT)
    assert again.vocabulary == report.vocabulary
    for wrong, message in (
        ({"name": "a/b"}, "name: it may hold letters"),
        ({"vocab_size": 3}, "vocab_size .* is too small"),
        ({"formats": ["gpt3"]}, "formats"),
        ({"parity": "dev"}, "parity and dev go together"),
        ({"mixture": "none.toml"}, "none.toml cannot be read"),
        ({"mixture": 3}, "a mixture is a dist_bpe.Mixture, or the path .* not int"),
        ({"engine": "ray"}, "lie in this process"),
    ):
        with pytest.raises(UsageError, match=message):
            dist_bpe.train(*sources, **{"output": tmp_path / "no", "vocab_size": 270, **SILENT, **wrong})
    with pytest.raises(UsageError, match="name at least one source or path to train on"):
        dist_bpe.train(output="x", vocab_size=300)
    assert not (tmp_path / "no").exists()


def test_everything_in_memory_counts_as_its_file_does(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    table = pa.table({"text": TEXTS["en"], "other": range(20)})
    pq.write_table(table, tmp_path / "a.parquet")
    wanted = dist_bpe.count(tmp_path / "a.parquet", output=tmp_path / "file", engine="local", **SILENT).digest
    forms: list[Any] = [
        table,
        pandas.DataFrame({"text": TEXTS["en"]}),
        pandas.Series(TEXTS["en"]),
        pa.RecordBatchReader.from_batches(table.schema, table.to_batches()),
        pa.record_batch({"text": TEXTS["en"]}),
        pa.chunked_array([TEXTS["en"]]),
        pa.array(TEXTS["en"]),
    ]
    for number, form in enumerate(forms):
        counted = dist_bpe.count(form, output=tmp_path / str(number), workers=1, **SILENT)
        assert (list(counted.sources), counted.digest) == (["corpus"], wanted), type(form)
    assert dist_bpe.plan(table).rows == 20
    with pytest.raises(SourceError, match="has no text column 'text'"):
        dist_bpe.plan(pa.table({"body": ["a"]}))
    for wrong in ({"a": "b"}, OrderedDict()):
        with pytest.raises(UsageError, match="a dict is no source: write a Source for each"):
            dist_bpe.count(wrong, output=tmp_path / "no")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="not list: write Source"):
        dist_bpe.count(["a.txt"], output=tmp_path / "no")  # type: ignore[arg-type]
    assert not (tmp_path / "no").exists()


def test_polars_frames_count_as_they_are(tmp_path: Path) -> None:
    polars = pytest.importorskip("polars")
    frame = polars.DataFrame({"text": TEXTS["en"]})
    digests = {
        dist_bpe.count(form, output=tmp_path / str(number), **SILENT).digest
        for number, form in enumerate((frame, frame["text"], pa.table({"text": TEXTS["en"]})))
    }
    assert len(digests) == 1


def test_paths_are_one_corpus(files: list[str], tmp_path: Path) -> None:
    paths = [file.partition("=")[2] for file in files]
    table = dist_bpe.count(*paths, output=tmp_path / "run", engine="local", **SILENT)
    assert {name: source.documents for name, source in table.sources.items()} == {"corpus": 50}
    ran = run("count", *paths, "-o", tmp_path / "run", "--engine", "local")  # which is there already
    assert ran.exit_code == 0, ran.stderr
    with pytest.raises(UsageError, match="two sources are named 'corpus'"):
        dist_bpe.plan(paths[0], pa.table({"text": ["a"]}))
    with pytest.raises(UsageError, match="name at least one source or path to look at"):
        dist_bpe.plan()


def test_tables_add_up(sources: list[dist_bpe.Source], tmp_path: Path) -> None:
    both = quiet(*sources, output=tmp_path / "both")
    parts = [quiet(source, output=tmp_path / source.name) for source in sources]
    assert dist_bpe.add(parts[0], tmp_path / "en", output=tmp_path / "sum", **SILENT).digest == both.digest
    with pytest.raises(UsageError, match="name at least two"):
        dist_bpe.add(both, output=tmp_path / "one", **SILENT)


def test_a_mixture_comes_from_a_file(sources: list[dist_bpe.Source], tmp_path: Path, parallel: Path) -> None:
    table = quiet(*sources, output=tmp_path / "run")
    report = dist_bpe.balance(table, 275, dev=parallel, rounds=2, **SILENT)
    assert report.file == tmp_path / "run" / "mixtures" / "balanced.toml"
    wanted = dist_bpe.learn(table, 275, mixture=report.mixture, **SILENT)
    for mixture in (report.file, str(report.file)):
        assert dist_bpe.learn(table, 275, mixture=mixture, **SILENT) == wanted
    ran = run("learn", tmp_path / "run", "--vocab-size", "275", "--mixture", report.file, "--no-verify")
    assert ran.exit_code == 0, ran.stderr
    assert dist_bpe.Vocabulary.load(tmp_path / "run" / "vocabularies" / "275").merges == wanted.merges
    (tmp_path / "bad.toml").write_text("[mixture]\nalpha = 2\n")
    with pytest.raises(UsageError, match=r"bad\.toml: mixture\.alpha: it must lie between 0"):
        dist_bpe.learn(table, 275, mixture=tmp_path / "bad.toml")
    (tmp_path / "bad.toml").write_text("[learn]\n")
    with pytest.raises(UsageError, match=r"bad\.toml has no table \[mixture\]"):
        dist_bpe.learn(table, 275, mixture=tmp_path / "bad.toml")
    for wrong, message in (
        ({"dev": parallel, "text": parallel}, "dev and text exclude each other"),
        ({"search": True, "beta": 2.0}, "beta has no effect on a search"),
        ({"premium": 2.0, "caps": {"en": 2.0}}, "caps has no effect on a search"),
        ({"vocab_size": [275, 280]}, "at one size"),
        ({"test": 3}, "test is a parallel set, or the path of its file, not int"),
    ):
        with pytest.raises(UsageError, match=message):
            dist_bpe.balance(**{"counts": table, "vocab_size": 275, **SILENT, **wrong})


def test_evaluate_and_compare_take_tokenizers_of_other_libraries(
    sources: list[dist_bpe.Source], tmp_path: Path, parallel: Path
) -> None:
    tokenizers = pytest.importorskip("tokenizers")
    tiktoken = pytest.importorskip("tiktoken")
    report = dist_bpe.train(*sources, output=tmp_path / "run", vocab_size=275, **SILENT)
    ours, folder = report.vocabulary, report.folders[0]
    ranks = {ours.token_bytes(i): i for i in range(len(ours) - 1)}
    encoding = tiktoken.Encoding(
        "mine", pat_str=ours.pattern.tiktoken_regex, mergeable_ranks=ranks, special_tokens={"<|endoftext|>": 274}
    )
    theirs = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    forms = {"ours": ours, "folder": folder, "text": str(folder), "tiktoken": encoding, "tokenizers": theirs}
    compared = dist_bpe.compare(forms, parallel=parallel, reference="en", dimension=64)
    assert [evaluation.name for evaluation in compared] == list(forms)
    for evaluation in compared:
        assert evaluation.languages == compared[0].languages
        assert evaluation.evenness({n: m.tokens for n, m in evaluation.languages.items()}) == compared[0].evenness(
            {n: m.tokens for n, m in compared[0].languages.items()}
        )
        # What a size costs in parameters is known of any tokenizer; of smaller sizes nothing is, of others.
        assert evaluation.size_curve() == [compared[0].size_curve()[-1]]
        assert evaluation.size_curve()[-1]["embedding_parameters"] == 275 * 64
        assert evaluation.size_curve(2)[-1]["embedding_parameters"] == 275 * 2
    # The text of a special token is text like any other in all of them, and the user's object is as it was.
    marked = dist_bpe.Source("x", documents=["low<|endoftext|>low tief"])
    costs = {each.languages["x"].tokens for each in dist_bpe.compare(forms, text=marked)}
    assert costs == {len(ours.encode_ordinary("low<|endoftext|>low tief"))}
    assert theirs.encode("<|endoftext|>").ids == [274]
    held_out = read_parallel(parallel)
    assert dist_bpe.evaluate(theirs, parallel=held_out, reference="en").name == "tokenizers.Tokenizer"
    assert dist_bpe.compare([ours], parallel=held_out)[0].name == "vocabulary of 275"
    on_text = dist_bpe.evaluate(ours, text=sources, segmenter="unicode")
    assert on_text.languages["en"].documents == 20
    assert dist_bpe.evaluate(ours, text=pa.table({"text": TEXTS["en"]})).languages["corpus"].documents == 20
    on_table = dist_bpe.evaluate(ours, table=tmp_path / "run")
    assert on_table.languages["de"].tokens == on_text.languages["de"].tokens
    for wrong, message in (
        ({}, r"say what to measure on: table=, text= or parallel=\."),
        ({"table": report.table, "text": "x"}, "one of them and not table and text"),
        ({"table": report.table, "segmenter": "unicode"}, "segmenter has no effect on a count table"),
        ({"text": "x", "reference": "en"}, "reference has no effect on text"),
        ({"vocabulary": theirs, "table": report.table}, "tokenizers.Tokenizer is read by its own library"),
        ({"vocabulary": 3, "table": report.table}, "a tokenizer is a dist_bpe.Vocabulary, .* not int"),
        ({"text": sources, "word_list": "none.txt"}, "none.txt cannot be read"),
    ):
        with pytest.raises(UsageError, match=message):
            dist_bpe.evaluate(**{"vocabulary": ours, **wrong})
    with pytest.raises(UsageError, match="vocabularies is a list of them"):
        dist_bpe.compare(folder, table=report.table)  # type: ignore[arg-type]


def test_tokens_have_the_names_that_other_libraries_know(sources: list[dist_bpe.Source], tmp_path: Path) -> None:
    tokenizers = pytest.importorskip("tokenizers")
    table = quiet(*sources, output=tmp_path / "run")
    for options in ({}, {"special_tokens_first": True}, {"pad_to_multiple": 64}):
        ours = dist_bpe.learn(table, 275, **options, **SILENT)  # type: ignore[call-overload]
        ours.save(tmp_path / "mine", overwrite=True)
        theirs = tokenizers.Tokenizer.from_file(str(tmp_path / "mine" / "tokenizer.json"))
        assert ours.get_vocab() == theirs.get_vocab()
        assert list(ours.get_vocab().values()) == list(range(len(ours)))
        for i in range(len(ours)):
            token = ours.id_to_token(i)
            assert token == theirs.id_to_token(i)
            assert token is not None
            assert ours.token_to_id(token) == i
            special = token in ours.special_ids
            assert ours.token_to_id(ours.token_bytes(i)) == (None if special else i)
        assert ours.id_to_token(len(ours)) is ours.id_to_token(-1) is None
        assert ours.token_to_id("Ġnothing") is ours.token_to_id(b" nothing") is theirs.token_to_id("Ġnothing") is None
    ours.get_vocab().clear()  # a copy
    assert ours.token_to_id("Ġ") == ours.token_to_id(b" ") == theirs.token_to_id("Ġ") is not None


def test_encode_and_export(sources: list[dist_bpe.Source], tmp_path: Path) -> None:
    ours = dist_bpe.learn(quiet(*sources, output=tmp_path / "run"), 275, **SILENT)
    outcome = dist_bpe.export(ours, tmp_path / "out", formats=["gpt2", "tiktoken"])
    assert list(outcome) == ["files", "tokenizers", "tiktoken", "transformers"]
    assert dist_bpe.export(ours, tmp_path / "out", formats=["gpt2", "tiktoken"]) == {
        "files": f"{tmp_path / 'out'} has these files already"
    }
    with pytest.raises(RunError, match="is not empty"):
        dist_bpe.export(tmp_path / "out", tmp_path / "out", formats=["gpt2"])
    for vocabulary in (ours, tmp_path / "out", str(tmp_path / "out" / "vocab.tiktoken")):
        assert dist_bpe.encode(vocabulary, "low tief") == ours.encode("low tief")
        assert dist_bpe.encode(vocabulary, ["low", "tief"]) == [ours.encode("low"), ours.encode("tief")]
    with pytest.raises(UsageError, match="holds the special token"):
        dist_bpe.encode(ours, "<|endoftext|>")
    assert dist_bpe.encode(ours, "<|endoftext|>", allowed_special="all") == [274]


def test_a_split_is_that_of_the_command(parallel: Path, tmp_path: Path) -> None:
    dev, test = dist_bpe.split(parallel, output=tmp_path / "python", seed=3)
    ran = run("split", parallel, "-o", tmp_path / "cli", "--seed", "3")
    assert ran.exit_code == 0, ran.stderr
    assert hashes(tmp_path / "python") == hashes(tmp_path / "cli")
    assert dist_bpe.split(read_parallel(parallel), seed=3)[0].texts == dev.texts
    assert read_parallel(tmp_path / "cli" / "test.parquet").texts == test.texts
    assert repr(dev).startswith("<HeldOut ")
    assert repr(dev).endswith(": 2 languages, 3 aligned documents>")
    dist_bpe.split(parallel, output=tmp_path / "python", seed=3)  # is there
    with pytest.raises(RunError, match="is there already"):
        dist_bpe.split(parallel, output=tmp_path / "python", seed=4)
    dist_bpe.split(parallel, output=tmp_path / "python", seed=4, overwrite=True)
    with pytest.raises(UsageError, match="dev 2 must lie between 0 and 1"):
        dist_bpe.split(parallel, dev=2)
    with pytest.raises(UsageError, match="has no documents in common"):
        dist_bpe.split(HeldOut("a", {"x": ["y"]}))
