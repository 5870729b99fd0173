"""What releases promise each other: files that an earlier one wrote are read, and learning gives what it gave then.

`python tests/test_releases.py` writes the files of this release; those of one that is out are never written again.
"""

import importlib.metadata
import json
import random
import re
import sys
from collections import Counter
from pathlib import Path

import pytest

import dist_bpe
from dist_bpe.counting.table import FORMAT_VERSION

ROOT = Path(__file__).parent.parent
GOLDEN = Path(__file__).parent / "golden"
SIZE = 400


def texts() -> dict[str, list[str]]:
    """Two languages that nobody speaks, with digits, marks, signs and special tokens; the same for ever."""
    rng = random.Random(20)
    found = {}
    for name, letters in (("aa", "etaoinshr ldu"), ("bb", "अकिनमरसही ")):
        words = ["".join(rng.choices(letters, k=rng.randint(1, 7))) for _ in range(300)]
        words += ["’s", "12345", "\n\n", "<|endoftext|>", "é", "🙂", "\t=", "…"]
        found[name] = [" ".join(rng.choices(words, k=40)) for _ in range(20)]
    return found


def write(folder: Path) -> None:
    sources = [dist_bpe.Source(name, documents=documents) for name, documents in texts().items()]
    options = {"pattern": "o200k", "special_tokens": ["<|endoftext|>"], "partitions": 2}
    table = dist_bpe.count(*sources, output=folder / "run", engine="local", progress="silent", **options)
    vocabulary = dist_bpe.learn(table, SIZE, progress="silent")
    vocabulary.save(folder / "run" / "vocabularies" / "golden")
    for path in (*folder.glob("run/*.json"), *folder.glob("run/lease/*")):
        path.unlink()  # of this machine and moment
    ids = {name: [vocabulary.encode(text, allowed_special="all") for text in texts()[name]] for name in texts()}
    (folder / "ids.json").write_text(json.dumps(ids) + "\n")


@pytest.mark.parametrize("folder", sorted(GOLDEN.iterdir()), ids=lambda folder: folder.name)
def test_an_earlier_release_is_read(folder: Path, tmp_path: Path) -> None:
    table = dist_bpe.CountTable.open(folder / "run")
    pattern = dist_bpe.Vocabulary.load(folder / "run" / "vocabularies" / "golden").pattern
    expected: Counter[tuple[bytes, str]] = Counter()
    for name, documents in texts().items():
        for text in documents:
            expected.update((word, name) for piece in text.split("<|endoftext|>") for word in pattern.words(piece))
    names = list(table.sources)
    rows = [row for batch in table.batches() for row in batch.to_pylist()]
    assert {(row["word"], names[row["source"]]): row["count"] for row in rows} == expected
    ids = json.loads((folder / "ids.json").read_text())
    then = folder / "run" / "vocabularies" / "golden"
    for path in (then, *(then / name for name in ("merges.parquet", "tokenizer.json", "vocab.tiktoken"))):
        vocabulary = dist_bpe.Vocabulary.load(path)
        for name, documents in texts().items():
            assert [vocabulary.encode(text, allowed_special="all") for text in documents] == ids[name]
    dist_bpe.learn(table, SIZE, progress="silent").save(tmp_path / "now")
    for name in ("vocab.json", "merges.txt", "tokenizer.json", "vocab.tiktoken", "tiktoken.json"):
        assert (tmp_path / "now" / name).read_bytes() == (then / name).read_bytes(), name


def test_the_files_of_this_release_are_among_them() -> None:
    minor = ".".join(dist_bpe.__version__.split(".")[:2])
    manifest = json.loads((GOLDEN / minor / "run" / "counts" / "manifest.json").read_text())
    assert manifest["format_version"] == FORMAT_VERSION


def test_one_version_everywhere() -> None:
    assert importlib.metadata.version("dist_bpe") == dist_bpe.__version__
    cargo = (ROOT / "rust" / "Cargo.toml").read_text()
    assert re.search(r'^version = "(.*)"$', cargo, re.M)[1] == dist_bpe.__version__  # type: ignore[index]


if __name__ == "__main__":
    write(GOLDEN / sys.argv[1])
