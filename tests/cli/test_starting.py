"""init: what it writes is what the flags said, train takes it as it is, and it explains every option there is."""

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from conftest import Writer
from helpers import run

from dist_bpe.cli.options import run_config
from dist_bpe.corpus.source import Source
from dist_bpe.counting.options import CountOptions
from dist_bpe.engine.options import EngineOptions
from dist_bpe.errors import UsageError
from dist_bpe.learning.mixture import Mixture
from dist_bpe.learning.options import LearnOptions
from dist_bpe.options import fields_of, flag_of
from dist_bpe.run.config import ExportOptions, RunConfig, json_schema
from dist_bpe.vocabulary.vocabulary import Vocabulary

ROOT = Path(__file__).parents[2]
SCHEMA = jsonschema.Draft202012Validator(json_schema())
SECTIONS = {
    "export": ExportOptions,
    "source": Source,
    "count": CountOptions,
    "learn": LearnOptions,
    "mixture": Mixture,
    "engine": EngineOptions,
}
EOF = "\x04"
COMMENTED = re.compile(r"^#(?=\w+ = )", re.M)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def written(*flags: str) -> str:
    Path("run.toml").unlink(missing_ok=True)
    ran = run("init", *flags)
    assert ran.exit_code == 0, ran.stderr
    return Path("run.toml").read_text("utf-8")


def all_of(config: RunConfig) -> dict[str, Any]:
    """Its values, however they were given."""
    return config.model_dump() | {"paths": [source.list_of_paths() for source in config.sources], "sources": [
        {**vars(source), "paths": None} for source in config.sources
    ]}  # fmt: skip


def test_train_takes_the_file_as_it_is(write: Writer, documents: list[str]) -> None:
    write("corpus/a.parquet", documents, lang=["x", "y", "z"] * 100)
    flags = ["--group-by", "lang", "--vocab-size", "400", "--engine", "local", "--alpha", "0.5", "--no-verify"]
    text = written("all=corpus", *flags)
    ran = run("train", "run.toml")
    assert ran.exit_code == 0, ran.stderr
    assert len(Vocabulary.load("run/vocabularies/400")) == 400
    for name in ("manifest.json", "merges.txt"):
        made = Path("run/vocabularies/400", name).read_bytes()
        assert run("train", "all=corpus", *flags, "-o", "again", "--overwrite").exit_code == 0
        assert Path("again/vocabularies/400", name).read_bytes() == made
    again = run("init", "x")
    assert (again.exit_code, "run.toml is there already: name another file with" in again.stderr) == (2, True)
    assert Path("run.toml").read_text("utf-8") == text
    assert run("init", "x", "-o", "other.toml", "--no-schema").exit_code == 0
    assert "#:schema" not in Path("other.toml").read_text("utf-8")


@pytest.mark.parametrize(
    "flags",
    [
        [],
        ["data", "--max-bytes", "10GB", "--seed", "3", "--on-bad-row", "replace", "--format", "lines"],
        ["en=a", "en=b", "de=c", "--vocab-size", "8000,16000", "--special-token", "bos=<s>", "--special-token", "</s>"],
        ["x", "--no-special-tokens", "--unimax", "1/3", "--cap", "en=1e9", "--cap", "a.b=0.25", "--strict"],
        ["x", "--pattern", r"\w+|'[^\s\"]", "--normalization", "NFC", "--export-format", "gpt2", "--name", "12"],
        ["x", "--no-verify", "--memory-per-worker", "2GB", "--stall-seconds", "1e3", "--workers", "3", "--run", "s3://b/run"],
        ["x", "--share", "en=0.30000000000000000000001", "--share", "*=1", "--driver-memory", "1000000"],
        ["x", "--multiplier", "\U0001f642 \"=2", "--sample-fraction", "0.5"],
    ],
)  # fmt: skip
def test_the_file_says_what_the_flags_said(flags: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[RunConfig] = []

    def recorded(*arguments: Any, **given: Any) -> RunConfig:
        said.append(run_config(*arguments, **given))
        return said[0]

    monkeypatch.setattr("dist_bpe.cli.starting.run_config", recorded)
    text = written(*flags)
    values = tomllib.loads(text)
    SCHEMA.validate(values)
    assert all_of(run_config(["run.toml"], None)) == all_of(said[0])


def test_every_option_stands_there_with_its_default_and_a_comment() -> None:
    text = written("data")
    lines = text.splitlines()
    for model in SECTIONS.values():
        for name, field in fields_of(model).items():
            there = [number for number, line in enumerate(lines) if re.match(rf"#?{name} = ", line)]
            wanted = flag_of(field).file and (model, name) != (LearnOptions, "mixture")
            assert bool(there) == wanted, name
            assert all(lines[number - 1].startswith("# ") for number in there), name
    assert max(map(len, lines)) <= 110


def test_each_comment_can_be_made_an_option() -> None:
    """The defaults together change nothing; examples, where the default is none, are each a value that can be."""
    text = written("data")
    plain = run_config(["run.toml"], None)
    commented = COMMENTED.findall(text)
    assert len(commented) > 40
    defaults, number = text, 0
    for found in list(COMMENTED.finditer(text))[::-1]:
        with_it = text[: found.start()] + text[found.end() :]
        SCHEMA.validate(tomllib.loads(with_it))
        Path("run.toml").write_text(with_it)
        try:
            config = run_config(["run.toml"], None)
        except UsageError as error:
            assert "no effect" in str(error), error  # by itself
            continue
        if all_of(config) == all_of(plain):
            defaults = defaults[: found.start()] + defaults[found.end() :]
            number += 1
        else:
            comment = text[: found.start()].rpartition("\n\n")[2]
            assert "Default: " in comment.replace("\n# ", " "), comment
    Path("run.toml").write_text(defaults)
    assert all_of(run_config(["run.toml"], None)) == all_of(plain)
    assert number > 20


def test_the_schema_is_made_from_the_models_and_lies_beside() -> None:
    published = json.loads((ROOT / "docs" / "run.schema.json").read_text("utf-8"))
    assert published == json_schema(), "run `make man`"
    jsonschema.Draft202012Validator.check_schema(published)
    text = written("data")
    assert text.startswith("#:schema ./run.schema.json\n")
    assert json.loads(Path("run.schema.json").read_text("utf-8")) == published
    named = set(re.findall(r"^#?(\w+) = ", text, re.M))
    inside = [published, *published["$defs"].values()]
    assert named <= {name for schema in inside for name in schema["properties"]}
    for values in ({"sources": []}, {"sources": [{"name": "a", "path": "b"}]}, {"learn": {"vocab_size": "x"}}):
        assert not SCHEMA.is_valid(values), values
    Path("run.toml").unlink()
    Path("run.schema.json").write_text("{}")
    ran = run("init", "data")
    assert (ran.exit_code, "another one: remove it, or give --no-schema" in ran.stderr) == (2, True)
    assert not Path("run.toml").exists()


def test_what_cannot_work_is_said_and_nothing_written() -> None:
    for flags, said in (
        (["x", "--alpha", "1", "--unimax", "2"], "alpha (--alpha) and unimax (--unimax) exclude each other"),
        (["x", "--vocab-size", "no"], "--vocab-size: "),
        (["run.toml"], "run.toml describes a whole run already"),
        ([""], "an input is empty"),
    ):
        ran = run("init", *flags)
        assert (ran.exit_code, said in ran.stderr) == (2, True), ran.stderr
    assert not list(Path().iterdir())


@pytest.mark.parametrize("end", ["\n", EOF])
def test_on_a_terminal_it_asks(end: str) -> None:
    ours, theirs = os.openpty()
    code = f"import sys; sys.path.insert(0, {str(ROOT)!r})\nfrom dist_bpe.__main__ import main\nmain()\n"
    command = [sys.executable, "-c", code, "init", "--vocab-size", "9000"]
    process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=subprocess.PIPE)
    os.write(ours, f"en=a 'de=b c'\n{'' if end == EOF else 'lang'}{end}{end}local{end}{end}".encode())
    assert process.stderr
    told = process.stderr.read().decode()
    if end == EOF:
        assert (process.wait(), "error: the questions were not answered" in told) == (2, True), told
        assert not Path("run.toml").exists()
        return
    assert process.wait() == 0, told
    config = run_config(["run.toml"], None)
    assert [(source.name, source.paths, source.group_by) for source in config.sources] == [
        ("en", "a", "lang"), ("de", "b c", "lang"),
    ]  # fmt: skip
    assert config.learn
    assert (config.learn.vocab_size, config.count.pattern, config.engine.engine) == ((9000,), "gpt2", "local")
    assert config.output == "run"
