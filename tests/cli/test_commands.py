"""The command line as a user meets it: whole runs, and one clear sentence for each thing that cannot work."""

import json
import re
import tomllib
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import Writer, installed_code, installed_languages
from helpers import run
from typer.testing import Result

from dist_bpe.vocabulary.vocabulary import Vocabulary


def train(*arguments: str | Path) -> Result:
    return run("train", *arguments, "--engine", "local", "--workers", "1")


@pytest.fixture
def corpus(write: Writer, documents: list[str]) -> Path:
    return write("corpus/a.parquet", documents, lang=["x", "y", "z"] * 100).parent


def test_train_shows_progress_and_closes_with_a_summary(corpus: Path, tmp_path: Path) -> None:
    ran = train(corpus, "-o", tmp_path / "run", "--vocab-size", "600", "--group-by", "lang", "--verify-transformers")
    assert ran.exit_code == 0, ran.stderr
    lines = ran.stderr.splitlines()
    for stage in ("plan", "start local", "count", "merge", "learn", "export"):
        assert any(re.match(rf"\d\d:\d\d:\d\d {stage}: ", line) for line in lines), lines
    assert "\x1b" not in ran.stderr + ran.stdout
    out = ran.stdout
    for text in (
        "documents",
        "unique words",
        "bytes/token",
        "peak memory",
        "600 tokens",
        "256 bytes",
        "343 merges",
        "1 special",
    ):
        assert text in out, out
    for library in ("tokenizers", "tiktoken", "transformers"):
        assert library in out
    folder = tmp_path / "run" / "vocabularies" / "600"
    assert {file.name for file in folder.iterdir()} >= {
        "vocab.json", "merges.txt", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json",
        "vocab.tiktoken", "tiktoken.json", "merges.parquet", "manifest.json", "report.json",
    }  # fmt: skip
    assert not (tmp_path / "run" / "staging").exists()
    merges = pq.read_table(folder / "merges.parquet").to_pylist()
    assert set(merges[0]["replaced"]) == {"x", "y", "z"}
    assert all(sum(row["replaced"].values()) <= row["count"] for row in merges)
    assert sum(merges[0]["replaced"].values()) == merges[0]["count"]


def test_count_once_learn_twice(corpus: Path, tmp_path: Path) -> None:
    ran = run("count", f"a={corpus}", "-o", tmp_path / "run", "--engine", "local")
    assert ran.exit_code == 0, ran.stderr
    for size in ("400", "500"):
        assert run("learn", tmp_path / "run", "--vocab-size", size).exit_code == 0
    assert train(f"a={corpus}", "-o", tmp_path / "other", "--vocab-size", "500").exit_code == 0
    for file in (tmp_path / "other" / "vocabularies" / "500").iterdir():
        if not file.name.startswith("report"):
            assert file.read_bytes() == (tmp_path / "run" / "vocabularies" / "500" / file.name).read_bytes(), file.name
    report = (tmp_path / "run" / "vocabularies" / "500" / "report.json").read_bytes()
    again = run("learn", tmp_path / "run", "--vocab-size", "500")
    assert (again.exit_code, "500 is there already" in again.stderr, "500 tokens" in again.stdout) == (0, True, True)
    assert (tmp_path / "run" / "vocabularies" / "500" / "report.json").read_bytes() == report
    for more in (["--min-pair-count", "3"], ["--special-token", "<x>"], ["--export-format", "gpt2"]):
        other = run("learn", tmp_path / "run", "--vocab-size", "500", *more)
        assert (other.exit_code, "--overwrite" in other.stderr) == (6, True), more
        assert run("learn", tmp_path / "run", "--vocab-size", "500", *more, "--overwrite").exit_code == 0


def test_train_from_a_file(corpus: Path, tmp_path: Path) -> None:
    config = f"""
output = "{tmp_path / "run"}"
[[sources]]
name = "a"
paths = "{corpus}/*.parquet"
[count]
pattern = "cl100k"
special_tokens = ["bos=<s>", "<|endoftext|>"]
[learn]
vocab_size = 500
pad_to_multiple = 64
[engine]
engine = "local"
"""
    tomllib.loads(config)
    (tmp_path / "run.toml").write_text(config)
    ran = run("train", tmp_path / "run.toml")
    assert ran.exit_code == 0, ran.stderr
    vocabulary = Vocabulary.load(tmp_path / "run" / "vocabularies" / "500")
    assert len(vocabulary) == 512
    assert (
        json.loads((tmp_path / "run" / "vocabularies" / "500" / "tokenizer_config.json").read_text())["bos_token"]
        == "<s>"
    )
    beside = run("train", tmp_path / "run.toml", "--vocab-size", "300", "-o", tmp_path / "other")
    assert beside.exit_code == 0, beside.stderr
    assert len(Vocabulary.load(tmp_path / "other" / "vocabularies" / "300")) == 320
    (tmp_path / "run.toml").write_text(config.replace("vocab_size = 500", "vocab_size = 500\nmin_pairs = 3"))
    ran = run("train", tmp_path / "run.toml", "--overwrite")
    assert ran.exit_code == 2
    assert "unknown option 'learn.min_pairs'" in ran.stderr


def test_encode_and_decode_round_trip(corpus: Path, tmp_path: Path) -> None:
    assert train(corpus, "-o", tmp_path / "run", "--vocab-size", "400").exit_code == 0
    folder = tmp_path / "run" / "vocabularies" / "400"
    text = "the straße\u2028\x0b\r\n नमस्ते 🙂\n\n  x".encode()
    encoded = run("encode", folder, stdin=text)
    assert encoded.exit_code == 0, encoded.stderr
    decoded = run("decode", folder, stdin=encoded.stdout_bytes)
    assert decoded.stdout_bytes == text
    lines = run("encode", folder, "--lines", stdin="a\u2028b\nc\rd\n".encode())
    assert len(lines.stdout.splitlines()) == 2
    special = run("encode", folder, stdin=b"a<|endoftext|>")
    assert special.exit_code == 2
    assert "<|endoftext|>" in special.stderr
    allowed = run("encode", folder, "--allow-special", stdin=b"a<|endoftext|>")
    assert allowed.stdout.split()[-1] == "399"
    assert run("decode", folder, stdin=b"400").exit_code == 2
    assert "byte 1" in run("encode", folder, stdin=b"a\xff").stderr


def test_gpt2_layout(tmp_path: Path, write: Writer) -> None:
    write("code/a.parquet", installed_code(20_000_000) + installed_languages(20_000_000))
    ran = train(tmp_path / "code", "-o", tmp_path / "run", "--vocab-size", "50257")
    assert ran.exit_code == 0, ran.stderr
    folder = tmp_path / "run" / "vocabularies" / "50257"
    vocab = json.loads((folder / "vocab.json").read_text())
    assert len(vocab) == 50257
    assert vocab["<|endoftext|>"] == 50256
    assert (vocab["!"], vocab["Ġ"]) == (0, 220)
    merges = (folder / "merges.txt").read_text().splitlines()
    assert len(merges) == 50001
    assert merges[0].startswith("#version")


def test_export_of_chosen_formats(corpus: Path, tmp_path: Path) -> None:
    assert train(corpus, "-o", tmp_path / "run", "--vocab-size", "400").exit_code == 0
    folder = tmp_path / "run" / "vocabularies" / "400"
    ran = run("export", folder, "-o", tmp_path / "out", "--format", "tiktoken")
    assert ran.exit_code == 0, ran.stderr
    names = {file.name for file in (tmp_path / "out").iterdir()}
    assert "vocab.tiktoken" in names
    assert "vocab.json" not in names
    assert run("export", folder, "-o", tmp_path / "no", "--format", "sentencepiece").exit_code == 2
    assert not (tmp_path / "no").exists()


BAD = {
    "no such file": (["missing.parquet"], "no file matches missing.parquet"),
    "no such column": (["{corpus}", "--text-column", "body"], "its columns are: text, lang"),
    "no such group": (["{corpus}", "--group-by", "language"], "no group column 'language'"),
    "a folder without Parquet": (["{empty}"], "holds no file that can be read"),
    "no text at all": (["{nulls}"], "no text found"),
    "no rows": (["{norows}"], "no text found"),
    "no Parquet": (["{html}"], "cannot be read as Parquet"),
    "zero bytes": (["{zero}"], "cannot be read as Parquet"),
    "no text in the column": (["{numbers}"], "holds int64, not text"),
    "too small": (["{corpus}", "--vocab-size", "256"], "257 or more"),
    "unknown pattern": (["{corpus}", "--pattern", "gpt3"], "gpt3"),
    "a pattern that does not compile": (["{corpus}", "--pattern", "(\\w+"], "compile"),
    "a pattern that never matches": (["{corpus}", "--pattern", "qzxqzx"], "qzxqzx"),
    "unknown engine": (["{corpus}", "--engine", "spark"], "'ray' or 'local'"),
    "unknown option": (["{corpus}", "--vocabulary", "3"], "No such option"),
    "bad number": (["{corpus}", "--min-pair-count", "0"], "--min-pair-count: it should be greater than or equal to 1"),
    "two equal specials": (["{corpus}", "--special-token", "<a>", "--special-token", "<a>"], "<a>"),
    "a special that is a byte": (["{corpus}", "--special-token", "Ċ"], "Ċ"),
    "nothing to read": ([], "name at least one"),
    "bad name": (["{corpus}", "--name", "../up"], "--name: "),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_sentence_and_leaves_nothing(case: str, corpus: Path, tmp_path: Path, write: Writer) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "html.parquet").write_text("<html>not found</html>")
    (tmp_path / "zero.parquet").touch()
    write("nulls.parquet", [None, "", None])
    write("norows.parquet", [])
    pq.write_table(pa.table({"text": [1, 2]}), tmp_path / "numbers.parquet")
    names = {"corpus": corpus, "empty": tmp_path / "empty"}
    names |= {name: tmp_path / f"{name}.parquet" for name in ("html", "zero", "nulls", "norows", "numbers")}
    arguments, message = BAD[case]
    filled = [argument.format(**names) if argument.startswith("{") else argument for argument in arguments]
    if "--vocab-size" not in filled:
        filled += ["--vocab-size", "400"]
    if "--engine" not in filled:
        filled += ["--engine", "local"]
    ran = run("train", *filled, "-o", tmp_path / "run")
    assert ran.exit_code == 2, ran.stderr
    error = ran.stderr
    assert "Traceback" not in error
    assert message in " ".join(error.replace("│", " ").split())
    assert not (tmp_path / "run").exists()


def test_two_runs_do_not_mix(corpus: Path, tmp_path: Path) -> None:
    assert train(corpus, "-o", tmp_path / "run", "--vocab-size", "400").exit_code == 0
    again = train(corpus, "-o", tmp_path / "run", "--vocab-size", "400")
    assert (again.exit_code, "400 is there already" in again.stderr) == (0, True)
    other = train(corpus, "-o", tmp_path / "run", "--vocab-size", "400", "--pattern", "cl100k")
    assert (other.exit_code, "--overwrite" in other.stderr) == (6, True)
    assert train(corpus, "-o", tmp_path / "run", "--vocab-size", "400", "--overwrite").exit_code == 0
    assert run("learn", tmp_path / "nothing", "--vocab-size", "400").exit_code == 6


def test_a_pattern_that_leaves_documents_whole_is_told(write: Writer, tmp_path: Path) -> None:
    write("w.parquet", ["a b c", "d e f", "g h i"])
    ran = train(tmp_path / "w.parquet", "-o", tmp_path / "run", "--vocab-size", "300", "--pattern", r"[\s\S]+")
    assert ran.exit_code in (0, 2)
    assert "splits nothing" in ran.stderr


def test_help_of_every_command() -> None:
    listed = run("--help").stdout
    for command in ("train", "count", "plan", "learn", "export", "encode", "decode"):
        assert command in listed
        assert run(command, "--help").exit_code == 0
