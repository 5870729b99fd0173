"""tokenizer.json in the library it is made for: what each release line of `tokenizers`, 0.2x and 1.0, makes of it.

The suite runs it with the locked release, `make test-tokenizers-1` with the candidate of 1.0, which shows ids alone and
reads the patterns that it knows.
"""

import importlib.metadata
import json
import os
import random
import re
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import random_document
from vocabularies import CORPUS, learned

import dist_bpe
from dist_bpe.errors import ExportError, UsageError
from dist_bpe.evaluation.tokenizers import open_tokenizer
from dist_bpe.pretokenize.checks import PROBES, NoEngineError, differs_in_tokenizers, warnings_for
from dist_bpe.pretokenize.patterns import PATTERNS, Pattern, find
from dist_bpe.pretokenize.preparation import SpecialToken
from dist_bpe.vocabulary.export import export, refuse_uncarried, verify
from dist_bpe.vocabulary.vocabulary import Vocabulary

VERSION = importlib.metadata.version("tokenizers")
KNOWN = not VERSION.startswith("0.")
"""Whether it reads only what it knows."""
PAGE = (Path(__file__).parents[2] / "docs" / "patterns.md").read_text(encoding="utf-8")
SECTION = PAGE.split("### tokenizers 1.0")[1].split("### llama.cpp")[0]
names = pytest.mark.parametrize("name", PATTERNS)
# Where 1.0.0rc3 cuts otherwise than its own expressions say, by what has to be in a text for it.
FAULTS = {
    **dict.fromkeys(["llama3", "qwen2", "o200k", "o200k+digits1", "kimi-k2"], "ſ"),
    "deepseek3": "[\u3040\u3097\u3098]",
}
HAN_FAULT = "[〇〩⺀]"  # of kimi-k2, behind numbers and signs


def column(name: str) -> str:
    """What docs/patterns.md says of a pattern in 1.0."""
    row = next(line for line in PAGE.splitlines() if line.startswith(f"| `{name}`"))
    return row.split(" | ")[3].rstrip(" |")


@names
def test_the_library_cuts_by_it_as_we_do(name: str) -> None:
    pattern = PATTERNS[name]
    rng = random.Random(17)
    texts = [*PROBES, *(random_document(rng) for _ in range(1500))]
    if KNOWN:
        fault = FAULTS.get(name, "$.") + (f"|{HAN_FAULT}" if name == "kimi-k2" else "")
        texts = [text for text in texts if not re.search(fault, text)]
        assert len(texts) > 500
        try:
            assert differs_in_tokenizers(pattern, texts) is None
            reads = "yes"
        except NoEngineError:
            reads = "–"
        base, _, digits = name.partition("+")
        if digits:
            assert (f"`{name}`" in SECTION) == (reads == "yes"), reads
        else:
            assert column(base).startswith(reads), reads
    else:
        assert differs_in_tokenizers(pattern, texts) is None


@pytest.mark.skipif(not KNOWN, reason="earlier releases have an engine")
def test_faults_of_the_candidate_are_still_there() -> None:
    # Once they are gone, docs/patterns.md has to say less.
    texts = {"ſ": "'ſb a'ſ", "[\u3040\u3097\u3098]": "゠\u3040"}
    for name, fault in FAULTS.items():
        assert differs_in_tokenizers(PATTERNS[name], [texts[fault]]) is not None, name
    assert differs_in_tokenizers(PATTERNS["kimi-k2"], ["9〇", "!⺀"]) == "9〇"
    assert differs_in_tokenizers(PATTERNS["kimi-k2"], ["!⺀"]) is not None


@names
def test_an_export_is_verified_or_says_why_not(name: str, tmp_path: Path) -> None:
    pattern = PATTERNS[name]
    vocabulary = Vocabulary(
        learned(CORPUS, 300, pattern, [SpecialToken("<|endoftext|>", "eos"), SpecialToken("<s>", "bos")])
    )
    if KNOWN and FAULTS.get(name) == "ſ" and re.search("o200k|kimi", name):  # a probe text has it behind a letter
        with pytest.raises(ExportError, match=r"tokenizers cuts .*ſ.* by it otherwise than we do"):
            export(vocabulary, tmp_path / "v")
        with pytest.raises(UsageError, match=r"write the other formats alone: --export-format gpt2"):
            refuse_uncarried(pattern)
        return
    refuse_uncarried(pattern)
    line = export(vocabulary, tmp_path / "v")["tokenizers"]
    assert line.startswith(f"{VERSION}: ")
    told = f"no regex engine and the pattern {name} is none of those that it knows; releases before 1.0 read the file"
    assert ("tokenizer.json gives the same ids" in line) != (told in line)
    if name == "gpt2":
        told_of_pair = "not compared, since this release reads tokenizer.json alone" if KNOWN else "gives the same ids"
        assert f"vocab.json + merges.txt {told_of_pair}" in line
    assert (told in line) == (KNOWN and not reads(pattern))
    assert Vocabulary.load(tmp_path / "v" / "tokenizer.json") == vocabulary
    assert verify(tmp_path / "v")["tokenizers"] == line


def reads(pattern: Pattern) -> bool:
    try:
        differs_in_tokenizers(pattern, ["a"])
    except NoEngineError:
        return False
    return True


def test_a_pattern_of_ones_own() -> None:
    pattern = find(r"[\p{L}\p{M}]+| ?\p{N}{1,2}|\s|[^\s\p{L}\p{M}\p{N}]+")
    warnings = warnings_for(pattern)
    assert len(warnings) == KNOWN
    assert all("has no regex engine and does not know the pattern" in warning for warning in warnings)
    refuse_uncarried(pattern, ["tokenizers"])


def test_a_file_that_only_the_library_reads_can_be_measured(tmp_path: Path) -> None:
    vocabulary = Vocabulary(learned(CORPUS, 100, PATTERNS["llama3"], [SpecialToken("<s>")]))
    export(vocabulary, tmp_path / "v", ["tokenizers"])
    path = tmp_path / "v" / "tokenizer.json"
    value = json.loads(path.read_bytes())
    value["model"]["ignore_merges"] = True  # which encoding here does not do
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(value), encoding="utf-8")
    tokenizer = open_tokenizer(str(path))
    assert tokenizer.vocabulary is None
    assert tokenizer.size == len(vocabulary)
    assert [list(ids) for ids in tokenizer.encode(CORPUS)] == vocabulary.encode_batch(CORPUS)


def test_without_the_library(tmp_path: Path) -> None:
    code = (
        "import sys, importlib.metadata as m\n"
        "version = m.version\n"
        "def none(name):\n"
        "    if name == 'tokenizers': raise m.PackageNotFoundError(name)\n"
        "    return version(name)\n"
        "m.version = none; sys.modules['tokenizers'] = None\n"
        "from vocabularies import learned\n"
        "from dist_bpe.vocabulary.export import export\n"
        "from dist_bpe.vocabulary.vocabulary import Vocabulary\n"
        "print(export(Vocabulary(learned(merges=9)), sys.argv[1])['tokenizers'])"
    )
    tests, package = Path(__file__).parents[1], Path(str(dist_bpe.__file__)).parents[1]
    found = subprocess.run(
        [sys.executable, "-c", code, tmp_path / "v"],
        check=True,
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": f"{tests}:{package}"},
    )
    assert found.stdout.strip() == "not verified: not installed (pip install 'dist_bpe[verify]')"
