"""Exports: every file loaded in its own library gives our ids on any text; what differs is never published."""

import dataclasses
import gc
import importlib.metadata
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
from conftest import installed_code, installed_languages
from hypothesis import given, settings
from hypothesis import strategies as st
from vocabularies import CORPUS, CUSTOM, PATTERNS, learned, texts, versioned

from dist_bpe import _core
from dist_bpe.errors import ExportError, FormatError, UsageError
from dist_bpe.pretokenize.checks import PROBES
from dist_bpe.pretokenize.patterns import find
from dist_bpe.pretokenize.preparation import SpecialToken
from dist_bpe.vocabulary.data import VocabularyData
from dist_bpe.vocabulary.export import _LIBRARIES, _cannot_compare, export, probe_texts, refuse_uncarried, verify
from dist_bpe.vocabulary.files import FORMATS
from dist_bpe.vocabulary.formats.format import Reader
from dist_bpe.vocabulary.formats.tiktoken import tiktoken_ranks
from dist_bpe.vocabulary.vocabulary import Vocabulary

LIBRARIES = ["tokenizers", "tiktoken", "transformers"]
SPECIALS = [
    SpecialToken("<|endoftext|>", "eos"), SpecialToken("<s>", "bos"), SpecialToken("[PAD]", "pad"),
    SpecialToken("<unk>", "unk"), SpecialToken("中文"), SpecialToken(" sp "), SpecialToken("\n\n\n\n\n\n\n"),
]  # fmt: skip
VOCABULARIES = {
    f"{name} {order}": Vocabulary(learned(CORPUS, 700, pattern, SPECIALS, order == "first", padding=3))
    for name, pattern in PATTERNS.items()
    for order in (("last", "first") if name in ("gpt2", "custom") else ("last",))
}
each = pytest.mark.parametrize("name", VOCABULARIES)
mixed = st.lists(st.one_of(texts, st.sampled_from([s.text for s in SPECIALS])), max_size=4).map("".join)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Each vocabulary exported, checked in all libraries."""
    found = {}
    for name, vocabulary in VOCABULARIES.items():
        found[name] = tmp_path_factory.mktemp("exported") / "v"
        outcome = export(vocabulary, found[name], libraries=LIBRARIES)
        assert set(outcome) == {"files", *LIBRARIES}
        assert not any("not verified" in line for line in outcome.values())
    return found


@pytest.fixture(scope="module")
def long_texts() -> list[str]:
    """Beginnings of modules and message catalogues."""
    return [text[:4000] for text in installed_code(300_000) + installed_languages(300_000)]


@each
def test_all_files_are_there_and_say_the_same(name: str, folders: dict[str, Path]) -> None:
    vocabulary = VOCABULARIES[name]
    names = {file.name for file in folders[name].iterdir()}
    assert names == {"manifest.json", *(file for format in FORMATS.values() for file in format.files)}
    assert Vocabulary.load(folders[name]) == vocabulary
    for format in ("tokenizers", "parquet"):
        assert Vocabulary.load(folders[name] / FORMATS[format].files[0]) == vocabulary
    assert len(json.loads((folders[name] / "vocab.json").read_bytes())) == len(vocabulary)


@each
@settings(max_examples=150)
@given(mixed)
def test_ids_are_ours_in_every_library_on_any_text(name: str, folders: dict[str, Path], text: str) -> None:
    wanted = VOCABULARIES[name].encode(text, allowed_special="all")
    for (library, format), (encode, decode) in readers(name, folders[name]).items():
        ids = list(encode(text))
        assert ids == wanted, (library, format)
        assert decode(ids) == text, (library, format)


@each
def test_ids_are_ours_in_every_library_on_long_texts(
    name: str, folders: dict[str, Path], long_texts: list[str]
) -> None:
    wanted = VOCABULARIES[name].encode_batch(long_texts, disallowed_special=(), allowed_special="all")
    for (library, format), (encode, _) in readers(name, folders[name]).items():
        assert [list(encode(text)) for text in long_texts] == wanted, (library, format)


_READERS: dict[str, dict[tuple[str, str], Reader]] = {}


def readers(name: str, folder: Path) -> dict[tuple[str, str], Reader]:
    """The files of a vocabulary loaded in every library that can say what they carry; loaded once each."""
    if name not in _READERS:
        data = VOCABULARIES[name].data
        _READERS[name] = {
            (library, format): load(folder, data)
            for format, kind in FORMATS.items()
            for library, load in kind.libraries.items()
            if not _cannot_compare(data, format)
        }
        assert len(_READERS[name]) == (5 if name.startswith("gpt2") else 3)
    return _READERS[name]


def test_auto_tokenizer_takes_the_folder(folders: dict[str, Path]) -> None:
    from transformers import AutoTokenizer

    for name, folder in folders.items():
        tokenizer = AutoTokenizer.from_pretrained(str(folder))
        assert tokenizer.eos_token == "<|endoftext|>"
        assert tokenizer.pad_token_id == VOCABULARIES[name].special_ids["[PAD]"]
        assert len(tokenizer) == len(VOCABULARIES[name])
        for text in CORPUS:
            ids = tokenizer(text)["input_ids"]
            assert ids == VOCABULARIES[name].encode(text)
            assert tokenizer.decode(ids) == text


@pytest.mark.parametrize("name", [name for name in _core.PATTERNS if name not in PATTERNS])
def test_libraries_read_every_other_pattern_alike(name: str, tmp_path: Path) -> None:
    vocabulary = Vocabulary(learned(CORPUS, 200, find(name), SPECIALS))
    outcome = export(vocabulary, tmp_path / "v")
    assert "tokenizer.json gives the same ids" in outcome["tokenizers"]
    assert "gives the same ids" in outcome["tiktoken"]
    for file in ("tokenizer.json", "vocab.tiktoken", "merges.parquet"):
        assert Vocabulary.load(tmp_path / "v" / file).pattern is vocabulary.pattern
    assert Vocabulary.load(tmp_path / "v") == vocabulary


def test_files_depend_on_the_vocabulary_and_fingerprints_alone(tmp_path: Path) -> None:
    vocabulary = VOCABULARIES["cl100k last"]
    prints = {"counts": "c0ffee", "weights": {"en": 1, "de": 2}}
    for folder in ("one", "deeper/two"):
        export(vocabulary, tmp_path / folder, fingerprints=prints)
    first, second = ({file.name: file.read_bytes() for file in (tmp_path / f).iterdir()} for f in ("one", "deeper/two"))
    assert first == second
    manifest = json.loads(first["manifest.json"])
    assert manifest["fingerprints"] == prints
    assert set(manifest["files"]) == set(first) - {"manifest.json"}
    assert str(tmp_path) not in first["manifest.json"].decode()


# ---- what differs


def test_a_pattern_that_a_library_reads_otherwise_is_not_published(tmp_path: Path) -> None:
    # {1,3}+ is unbounded to the engine of `tokenizers`.
    vocabulary = Vocabulary(learned(CORPUS, 300, find(r"\p{N}{1,3}+|\p{L}+|[\s\S]")))
    with pytest.raises(
        ExportError, match=r"the pattern in tokenizer.json is .*: tokenizers cuts '.*١٢٣٤.*' by it otherwise"
    ):
        export(vocabulary, tmp_path / "v")
    assert list(tmp_path.iterdir()) == []
    outcome = export(vocabulary, tmp_path / "v", ["tiktoken", "gpt2"])
    assert "gives the same ids" in outcome["tiktoken"]
    assert "not compared, since they hold no pattern" in outcome["tokenizers"]


def test_text_that_tiktoken_would_drop_is_seen(tmp_path: Path) -> None:
    vocabulary = Vocabulary(learned(CORPUS, 300, find(r"\p{L}+|\s+")))
    with pytest.raises(ExportError, match=r"the pattern in vocab.tiktoken \+ tiktoken.json .*: tiktoken cuts"):
        export(vocabulary, tmp_path / "v")
    export(vocabulary, tmp_path / "v", ["tokenizers", "parquet"])
    assert Vocabulary.load(tmp_path / "v") == vocabulary


def test_a_pattern_that_a_library_cannot_read(tmp_path: Path) -> None:
    vocabulary = Vocabulary(learned(CORPUS, 100, find(r"\X")))
    with pytest.raises(ExportError, match=r"vocab.tiktoken \+ tiktoken.json .*: tiktoken cannot read it"):
        export(vocabulary, tmp_path / "v", ["tiktoken"])


@pytest.mark.parametrize(
    ("pattern", "refused"),
    [
        (r"\p{N}{1,3}+|\p{L}+|[\s\S]", {"tokenizers"}),
        (r"\p{L}+|\s+", {"tiktoken"}),
        (r"(\w+)|x*", {"tokenizers", "tiktoken"}),
        (r"(\w+\s?)+$|\w|\W", {"tokenizers"}),  # on which the engine of `tokenizers` panics
        (CUSTOM.regex, set()),
    ],
)
def test_what_no_export_could_carry_is_known_before_anything_is_counted(pattern: str, refused: set[str]) -> None:
    left = [name for name in FORMATS if name not in refused]
    if refused:
        with pytest.raises(UsageError) as raised:
            refuse_uncarried(find(pattern))
        for name in left:
            assert f"--export-format {name}" in str(raised.value)
        for name in refused:
            with pytest.raises(UsageError, match=r"Choose another pattern\.$"):
                refuse_uncarried(find(pattern), [name])
            assert f"--export-format {name}" not in str(raised.value)
    refuse_uncarried(find(pattern), left)
    refuse_uncarried(find(pattern), None, None)


def test_the_early_check_says_what_the_export_finds(tmp_path: Path) -> None:
    for pattern in (r"\p{N}{1,3}+|\p{L}+|[\s\S]", r"\p{L}+|\s+", r"\X", CUSTOM.regex):
        vocabulary = Vocabulary(learned(CORPUS, 60, find(pattern)))
        for name in FORMATS:
            early = _passes(lambda: refuse_uncarried(vocabulary.pattern, [name]))  # noqa: B023  # called at once
            late = _passes(lambda: export(vocabulary, tmp_path / f"{len(pattern)}-{name}", [name]))  # noqa: B023
            assert early == late, (pattern, name)


def _passes(attempt: Callable[[], object]) -> bool:
    try:
        attempt()
    except (ExportError, UsageError):
        return False
    return True


def test_a_failed_export_leaves_an_older_one_alone(tmp_path: Path) -> None:
    export(VOCABULARIES["gpt2 last"], tmp_path / "v")
    with pytest.raises(ExportError):
        export(Vocabulary(learned(CORPUS, 100, find(r"\p{L}+|\s+"))), tmp_path / "v")
    assert Vocabulary.load(tmp_path / "v") == VOCABULARIES["gpt2 last"]
    assert verify(tmp_path / "v")["files"].startswith("gpt2, tokenizers, tiktoken, parquet")


def test_verify_finds_a_changed_file(tmp_path: Path) -> None:
    vocabulary = VOCABULARIES["cl100k last"]
    export(vocabulary, tmp_path / "v")
    path = tmp_path / "v" / "tokenizer.json"
    good = path.read_text(encoding="utf-8")
    path.write_text(good.replace(r"\\p{N}{1,3}", r"\\p{N}{1,2}"), encoding="utf-8")
    with pytest.raises(FormatError, match=r"is not the file that manifest.json names"):
        verify(tmp_path / "v")
    (tmp_path / "v" / "manifest.json").unlink()
    with pytest.raises(ExportError, match=r"tokenizer.json was read back with other pattern"):
        verify(tmp_path / "v")


def test_ids_that_differ_are_told_with_both_lists(tmp_path: Path) -> None:
    export(VOCABULARIES["gpt2 last"], tmp_path / "v")
    path = tmp_path / "v" / "tokenizer.json"
    value = json.loads(path.read_bytes())
    # Something that our reader passes over, since it is for batches and not for words.
    value["truncation"] = {"direction": "Right", "max_length": 30, "strategy": "LongestFirst", "stride": 0}
    path.write_text(json.dumps(value), encoding="utf-8")
    (tmp_path / "v" / "manifest.json").unlink()
    with pytest.raises(ExportError) as raised:
        verify(tmp_path / "v")
    message = str(raised.value)
    text = next(text for text in PROBES if len(VOCABULARIES["gpt2 last"].encode(text)) > 30)
    ids = VOCABULARIES["gpt2 last"].encode(text)
    assert message.startswith(f"tokenizers encodes {text!r} with tokenizer.json as […, {ids[18]}, {ids[19]}, ")
    assert f"{ids[29]}], and we as […, {ids[18]}, " in message
    assert f", {ids[30]}" in message


def test_an_export_in_the_place_of_an_older_one_is_checked_anew(tmp_path: Path) -> None:
    for merges in (100, 101):
        export(Vocabulary(learned(CORPUS, merges)), tmp_path / "v", libraries=LIBRARIES)


def test_tiktoken_reads_the_file_with_its_own_reader(
    folders: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tiktoken.load import load_tiktoken_bpe

    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))
    for folder in folders.values():
        path = folder / "vocab.tiktoken"
        assert load_tiktoken_bpe(str(path)) == tiktoken_ranks(path.read_bytes())


@settings(max_examples=60)
@given(text=mixed)
def test_gaps_between_special_tokens_in_every_library(text: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    global _GAPS
    if _GAPS is None:
        data = learned(CORPUS, 300, special_tokens=SPECIALS[:3])
        at = len(data) - 3
        vocabulary = Vocabulary(dataclasses.replace(data, special_places=(0, at + 9, at + 20), padding=2))
        folder = tmp_path_factory.mktemp("gaps") / "v"
        outcome = export(vocabulary, folder)
        assert "gives the same ids" in outcome["tokenizers"]
        assert "gives the same ids" in outcome["tiktoken"]
        assert all(Vocabulary.load(folder / FORMATS[name].files[0]) == vocabulary for name in ("parquet", "tokenizers"))
        assert Vocabulary.load(folder / "vocab.tiktoken").special_ids == vocabulary.special_ids
        assert Vocabulary.load(folder / "vocab.json").special_ids == vocabulary.special_ids
        readers_ = [load(folder, vocabulary.data) for kind in FORMATS.values() for load in kind.libraries.values()]
        _GAPS = vocabulary, readers_
    vocabulary, found = _GAPS
    ids = vocabulary.encode(text, allowed_special="all")
    assert vocabulary.decode(ids) == text
    for encode, decode in found:
        assert (list(encode(text)), decode(ids)) == (ids, text)


_GAPS: tuple[Vocabulary, list[Reader]] | None = None


@pytest.mark.parametrize("collecting", [True, False])
def test_the_collector_of_cycles_is_left_as_it_was(collecting: bool, tmp_path: Path) -> None:
    vocabulary = Vocabulary(learned(CORPUS, 300, find(r"\p{N}{1,3}+|\p{L}+|[\s\S]")))
    try:
        if not collecting:
            gc.disable()
        with pytest.raises(ExportError):
            export(vocabulary, tmp_path / "v")
        export(vocabulary, tmp_path / "w", ["parquet"])
        assert gc.isenabled() == collecting
    finally:
        gc.enable()


# ---- what is left out or not verified


def test_formats_that_cannot_hold_a_vocabulary_are_told(tmp_path: Path) -> None:
    data = dataclasses.replace(versioned(), special_tokens=(SpecialToken("<a>"), SpecialToken("<a>b")))
    outcome = export(Vocabulary(data), tmp_path / "v")
    assert outcome["gpt2"].startswith("not written: merges.txt cannot hold the merge")
    assert outcome["tiktoken"].startswith("not written: tiktoken cannot hold the special tokens '<a>' and '<a>b'")
    assert {file.name for file in (tmp_path / "v").iterdir()} == {
        "manifest.json", "merges.parquet", *FORMATS["tokenizers"].files,
    }  # fmt: skip
    with pytest.raises(FormatError, match=r"merges.txt cannot hold"):
        export(Vocabulary(data), tmp_path / "w", ["gpt2"])
    assert not (tmp_path / "w").exists()


def test_a_prefix_of_another_special_token_is_longest_in_tokenizers(tmp_path: Path) -> None:
    specials = [SpecialToken(text) for text in ("<a>", "<a>b", "a>", "<")]
    outcome = export(Vocabulary(learned(CORPUS, 40, special_tokens=specials[:3])), tmp_path / "v", libraries=LIBRARIES)
    assert "gives the same ids" in outcome["tokenizers"]
    assert "gives the same ids" in outcome["transformers"]


def test_libraries_that_are_not_asked_or_not_there_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    vocabulary = VOCABULARIES["gpt2 last"]
    outcome = export(vocabulary, tmp_path / "v")
    assert outcome["transformers"] == "not verified: not asked"
    assert outcome["tokenizers"].startswith(importlib.metadata.version("tokenizers"))
    monkeypatch.setattr("dist_bpe.vocabulary.export._LIBRARIES", (*_LIBRARIES, "a-library-nobody-has"))
    reader = FORMATS["gpt2"].libraries["tokenizers"]
    monkeypatch.setitem(cast("dict[str, Any]", FORMATS["gpt2"].libraries), "a-library-nobody-has", reader)
    outcome = export(vocabulary, tmp_path / "v", libraries=["a-library-nobody-has"])
    assert outcome["a-library-nobody-has"].startswith("not verified: not installed")
    assert outcome["tiktoken"] == "not verified: not asked"
    outcome = export(vocabulary, tmp_path / "w", ["parquet"])
    assert list(outcome) == ["files"]
    with pytest.raises(UsageError, match="unknown library 'sentencepiece'; files can be checked in: tokenizers"):
        export(vocabulary, tmp_path / "x", libraries=["sentencepiece"])
    with pytest.raises(UsageError, match="unknown format"):
        export(vocabulary, tmp_path / "x", ["sentencepiece"])
    with pytest.raises(TypeError):
        export(vocabulary, tmp_path / "x", libraries="tiktoken")
    assert not (tmp_path / "x").exists()


def test_importing_the_module_imports_no_library() -> None:
    code = f"import sys, dist_bpe.vocabulary.export; print([name for name in {LIBRARIES} if name in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert found.stdout.strip() == "[]"


def test_many_padding_tokens_are_probed_at_both_ends() -> None:
    vocabulary = Vocabulary(VocabularyData(((0, 1),), padding=5000))
    texts = probe_texts(vocabulary)
    assert "<|reserved_0|>" in texts
    assert "<|reserved_4999|>" in texts
    assert len(texts) < 300
