"""The documentation as a site: every page in its order, nothing from other hosts, and what the pages say is so."""

import json
import random
import re
from collections.abc import Iterator
from pathlib import Path
from pydoc_data.topics import topics
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from pages import ROOT, follow

import dist_bpe
from dist_bpe import errors
from dist_bpe.learning.memory import learn_bytes
from dist_bpe.progress import human_bytes

DOCS = ROOT / "docs"
SITE = yaml.load((ROOT / "mkdocs.yml").read_text(), yaml.BaseLoader)  # noqa: S506  # leaves tags as they are


def leaves(nav: Any) -> Iterator[str]:
    """The pages of a navigation in their order."""
    for entry in nav.values() if isinstance(nav, dict) else nav:
        if isinstance(entry, str):
            yield entry
        else:
            yield from leaves(entry)


def test_every_page_stands_in_the_navigation_once() -> None:
    assert sorted(leaves(SITE["nav"])) == sorted(page.name for page in DOCS.glob("*.md"))


def test_warnings_end_the_build() -> None:
    assert SITE["strict"] == "true"
    levels = SITE["validation"]
    kinds = [levels["omitted_files"], levels["absolute_links"], levels["unrecognized_links"]]
    assert {*kinds, levels["nav"]["not_found"], levels["links"]["not_found"], levels["links"]["anchors"]} == {"warn"}
    # Under --quiet mkdocs counts no warnings.
    (command,) = re.findall(r"/mkdocs (.*)", (ROOT / "Makefile").read_text())
    assert command == "build --strict"


def test_no_page_loads_anything_from_another_host() -> None:
    assert SITE["theme"]["font"] == "false"
    assert set(SITE["plugins"]) == {"search"}
    assert not {"repo_url", "extra_javascript"} & SITE.keys()
    assert all((DOCS / file).is_file() for file in SITE["extra_css"])
    for page in DOCS.glob("*.md"):
        text = re.sub(r"`[^`\n]*`", "", re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.M | re.S))
        assert not re.findall(r"!\[[^]]*\]\((?:\w+:)?//", text), page
        assert not re.findall(r"<\w[^>]*\s(?:src|href|data)\s*=", text), page
        # Material fetches what draws these.
        assert "```mermaid" not in page.read_text(), page
    for file in [*DOCS.rglob("*.svg"), *DOCS.rglob("*.css")]:
        assert not re.search(r"@import|url\(['\"]?(\w+:)?//|(?:src|href)\s*=\s*['\"](\w+:)?//", file.read_text()), file


def test_the_memory_of_learning_is_what_is_reckoned() -> None:
    for words, size, shown in rows("limits.md", "## Memory"):
        number = int(words.replace(",", ""))
        assert human_bytes(learn_bytes(number, number * int(size))) == shown.strip()


def rows(page: str, heading: str) -> list[list[str]]:
    """The cells of the first table after a heading."""
    table = (DOCS / page).read_text().partition(f"{heading}\n")[2]
    lines = re.search(r"(?:^\|.*\n)+", table, re.M)
    assert lines
    return [re.split(r"(?<!\\)\|", line)[1:-1] for line in lines[0].splitlines()[2:]]


def test_exit_codes_are_those_of_the_errors() -> None:
    shown = {
        (cells[1].strip(), int(cells[0])) for cells in rows("exit-codes.md", "# Exit codes") if "Error" in cells[1]
    }
    public = [getattr(errors, name) for name in dist_bpe.__all__ if name.endswith("Error")]
    assert {name.partition("`, ")[0].strip("`") for name, _ in shown} == {error.__name__ for error in public}
    for error in public:
        assert any(name.startswith(f"`{error.__name__}`") and code == error.exit_code for name, code in shown), error
    # No class, however deep, has a code of its own that the page lacks.
    assert {kind.exit_code for kind in _below(errors.DistBpeError)} == {code for _, code in shown}


def _below(kind: type[errors.DistBpeError]) -> Iterator[type[errors.DistBpeError]]:
    yield kind
    for each in kind.__subclasses__():
        yield from _below(each)


@pytest.mark.parametrize("page", ["exit-codes.md", "migrate-sentencepiece.md", "migrate-tokenizers.md", "notebook.md"])
def test_what_a_page_says_is_what_happens(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "corpus.txt").write_text("\n".join(sorted(topics.values())[:20]))
    follow(page, tmp_path)


def test_production_and_one_more_language(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second page goes on with the run of the first; the first page of all has the same corpus.

    The words are random, a few hundred of each language.
    """
    monkeypatch.chdir(tmp_path)
    rng = random.Random(5)
    parallel = []
    for language in ("en", "de", "sw"):
        folder = tmp_path / "data" / language
        folder.mkdir(parents=True)
        words = ["".join(rng.choices("etaoinshrdlu" + language, k=rng.randint(2, 9))) for _ in range(300)]
        for shard in range(2):
            texts = [" ".join(rng.choices(words, k=60)) for _ in range(30)]
            pq.write_table(pa.table({"text": texts, "lang": [language] * len(texts)}), folder / f"{shard}.parquet")
        parallel += [(language, f"d{i}", " ".join(rng.choices(words, k=40))) for i in range(20) if language != "sw"]
    columns = dict(zip(("lang", "doc", "text"), map(list, zip(*parallel, strict=True)), strict=True))
    pq.write_table(pa.table(columns), tmp_path / "parallel.parquet")
    follow("production.md", tmp_path)
    follow("one-more-language.md", tmp_path)
    (tmp_path / "index").mkdir()
    (tmp_path / "data").rename(tmp_path / "index" / "data")
    monkeypatch.chdir(tmp_path / "index")
    follow("index.md", tmp_path / "index")
    monkeypatch.chdir(tmp_path)
    together = dist_bpe.count(
        *(dist_bpe.Source(language, f"index/data/{language}") for language in ("en", "de", "sw")),
        output="together", pattern="o200k", special_tokens=["<|endoftext|>", "pad=<|pad|>"], engine="local",
        progress="silent",
    )  # fmt: skip
    assert dist_bpe.CountTable.open("more").digest == together.digest


def test_every_option_of_their_trainer_is_answered() -> None:
    from tokenizers import normalizers, pre_tokenizers, trainers

    page = (DOCS / "migrate-tokenizers.md").read_text()
    state = json.loads(trainers.BpeTrainer().__getstate__())["BpeTrainer"]
    answered = [re.match(r" `(\w+)", cells[0]) for cells in rows("migrate-tokenizers.md", "## Options of `BpeTrainer`")]
    assert {found[1] for found in answered if found} == state.keys() - {"words"}
    for module, bases in ((pre_tokenizers, {"PreTokenizer"}), (normalizers, {"Normalizer", "NORMALIZERS"})):
        for name in set(filter(lambda name: name[0].isupper(), dir(module))) - bases:
            assert re.search(rf"`[^`]*\b{name}\b[^`]*`", page), name


def _merges(file: Path) -> list[list[str]]:
    """The merges of a tokenizer.json, in the letters of the byte-level alphabet."""
    return list(json.loads(file.read_text())["model"]["merges"])


def test_what_is_said_of_their_trainer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Length, special tokens, fixed pieces, digits on random text: what is no example on the page."""
    from conftest import random_document
    from tokenizers import Regex, Tokenizer, models, pre_tokenizers, trainers

    monkeypatch.chdir(tmp_path)
    texts = sorted(topics.values())[:60]
    gpt2 = pre_tokenizers.ByteLevel(add_prefix_space=False)
    plain = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)

    def theirs(texts: list[str], cut: Any, **options: Any) -> list[list[str]]:
        tokenizer = Tokenizer(models.BPE())
        tokenizer.pre_tokenizer = cut
        options |= {"initial_alphabet": pre_tokenizers.ByteLevel.alphabet(), "vocab_size": 600, "min_frequency": 2}
        tokenizer.train_from_iterator(texts, trainers.BpeTrainer(show_progress=False, **options))
        tokenizer.save("theirs.json")
        return _merges(tmp_path / "theirs.json")

    def ours(texts: list[str], pattern: str, **options: Any) -> list[list[str]]:
        source = dist_bpe.Source("s", documents=texts)
        counting: dict[str, Any] = {"pattern": pattern, "special_tokens": [], "engine": "local", "overwrite": True}
        table = dist_bpe.count(source, output="run", progress="silent", **counting)
        learned = dist_bpe.learn(table, vocab_size=600, progress="silent", **options)
        learned.save("ours", formats=["tokenizers"], overwrite=True)
        return _merges(tmp_path / "ours" / "tokenizer.json")

    for most in (3, 6, 16):
        assert theirs(texts, gpt2, max_token_length=most) == ours(texts, "gpt2", max_token_bytes=most - 1)
    assert ["<", "|"] in theirs(["ab<|endoftext|>"] * 9, gpt2, special_tokens=["<|endoftext|>"])
    fixed = pre_tokenizers.Sequence([pre_tokenizers.FixedLength(5), plain])
    assert theirs(texts, fixed) == ours(texts, r"[\s\S]{1,5}")

    # Their two cuts, one after the other, are one expression.
    page = (DOCS / "migrate-tokenizers.md").read_text()
    expression = re.search(r'>>> digits = r"(.*)"', page)
    assert expression
    for individual, regex in ((True, expression[1]), (False, expression[1].replace(r"|\p{N}|", r"|\p{N}+|"))):
        two = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=individual), gpt2])
        one = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(regex), "isolated"), plain])
        rng = random.Random(3)
        for _ in range(3000):
            text = random_document(rng)
            assert two.pre_tokenize_str(text) == one.pre_tokenize_str(text), text
