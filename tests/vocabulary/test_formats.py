"""Vocabulary files: the layout of ids, round trips, what is refused, and files that others made."""

import base64
import dataclasses
import hashlib
import io
import itertools
import json
import os
import subprocess
import sys
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from vocabularies import CORPUS, CUSTOM, PATTERNS, encode_by_rule, learned, read_back, versioned, vocabularies

import dist_bpe
from dist_bpe.errors import ExportError, FormatError, RunError, UsageError
from dist_bpe.pretokenize.patterns import GPT2, find
from dist_bpe.pretokenize.preparation import SpecialToken
from dist_bpe.vocabulary.data import BYTE_TOKENS, CHARACTERS, VocabularyData, check_special_tokens
from dist_bpe.vocabulary.files import FORMATS, load, manifest, publish_files, read, refuse_foreign, table, write
from dist_bpe.vocabulary.formats.format import shown
from dist_bpe.vocabulary.formats.tiktoken import PUBLISHED, recover_merges
from dist_bpe.vocabulary.vocabulary import Vocabulary

END = SpecialToken("<|endoftext|>", "eos")


def save(data: VocabularyData, folder: Path) -> Path:
    files, left_out = write(data)
    publish_files(folder, files | {"manifest.json": manifest(data, files, left_out)})
    return folder


# ---- the layout


def key_of(token: bytes) -> str:
    """A token as it is written in vocab.json, byte by byte."""
    return "".join(CHARACTERS[BYTE_TOKENS.index(bytes([byte]))] for byte in token)


def test_keys_are_the_byte_level_alphabet() -> None:
    from tokenizers import pre_tokenizers

    assert list(CHARACTERS) == sorted(pre_tokenizers.ByteLevel.alphabet())
    data = learned(merges=300)
    assert data.token_keys == tuple(map(key_of, data.tokens))
    assert [key_of(token) for token in (b" ", b"\n", b"!", "\u00a0".encode(), b"#", "é".encode())] == [
        "Ġ", "Ċ", "!", "Âł", "#", "Ã©",
    ]  # fmt: skip


def test_ids_are_bytes_merges_specials_padding() -> None:
    data = learned(merges=30, special_tokens=[END, SpecialToken("<s>", "bos")], padding=3)
    keys = data.keys()
    assert list(keys.values()) == list(range(len(data))) == list(range(256 + 30 + 2 + 3))
    assert (keys["!"], keys["Ġ"]) == (0, 220)
    assert list(keys)[286:] == ["<|endoftext|>", "<s>", "<|reserved_0|>", "<|reserved_1|>", "<|reserved_2|>"]
    assert data.sizes == {"bytes": 256, "merges": 30, "special tokens": 2, "padding": 3}
    first = dataclasses.replace(data, special_tokens_first=True)
    assert list(first.keys())[:3] == ["<|endoftext|>", "<s>", "!"]
    assert list(first.keys())[288:] == list(keys)[288:]


def test_gpt2_layout() -> None:
    data = VocabularyData(tuple((i, i % 255) for i in range(50_000)), special_tokens=(END,))
    assert len(data) == 50_257
    assert data.special_ids == {"<|endoftext|>": 50_256}


@pytest.mark.parametrize(("multiple", "size"), [(1, 287), (64, 320), (287, 287), (1000, 1000)])
def test_padding_to_a_multiple(multiple: int, size: int) -> None:
    data = learned(merges=30, special_tokens=[END]).padded(multiple)
    assert len(data) == size
    assert data.padded(multiple) == data
    assert data.padded(1) == dataclasses.replace(data, padding=0)


# ---- round trips


@settings(max_examples=60)
@given(vocabularies())
def test_every_format_gives_back_what_it_carries(data: VocabularyData) -> None:
    files, _ = write(data)
    assert write(data)[0] == files
    for format in FORMATS.values():
        if not set(format.files) <= files.keys():
            continue
        contents = [files[name] for name in format.files]
        back = read_back(format.name, *contents, pattern=data.pattern if format.name == "gpt2" else None)
        wanted = data
        if "roles" not in format.carries:
            wanted = dataclasses.replace(data, special_tokens=tuple(SpecialToken(s.text) for s in data.special_tokens))
        assert back == wanted, format.name
        if "counts" in format.carries:
            assert (back.counts, dict(back.replaced or {})) == (data.counts, dict(data.replaced or {}))


def test_files_do_not_depend_on_the_hash_seed() -> None:
    code = (
        "from vocabularies import *; from dist_bpe.vocabulary.files import *; import hashlib\n"
        "from dist_bpe.pretokenize.preparation import SpecialToken\n"
        "data = learned(special_tokens=[SpecialToken(t) for t in ('<b>', '<a>', '<c>')], padding=2)\n"
        "files, _ = write(data); files['m'] = manifest(data, files)\n"
        "print(hashlib.sha256(b''.join(files.values())).hexdigest())"
    )
    paths = os.pathsep.join([str(Path(__file__).parents[1]), str(Path(dist_bpe.__file__).parents[1])])
    outputs = {
        subprocess.run(
            [sys.executable, "-c", code],
            env=os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": paths},
            check=True,
            capture_output=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(outputs) == 1


def test_merges_parquet_has_a_row_a_merge(tmp_path: Path) -> None:
    data = learned(merges=20, special_tokens=[END], special_tokens_first=True)
    rows = pq.read_table(save(data, tmp_path / "v") / "merges.parquet").to_pylist()
    ids = json.loads((tmp_path / "v" / "vocab.json").read_bytes())
    assert len(rows) == 20
    for rank, row in enumerate(rows):
        assert ids[key_of(row["token"])] == 1 + 256 + rank
        assert data.counts is not None
        assert row["count"] == data.counts[rank].as_py()
        assert set(row["replaced"]) == {"a", "Ünï cödé"}
        tokens = {i: key for key, i in ids.items()}
        assert tokens[row["left"]] + tokens[row["right"]] == key_of(row["token"])


def test_a_vocabulary_without_counts_or_merges() -> None:
    for data in (VocabularyData(()), VocabularyData(((0, 1),), padding=2), VocabularyData((), special_tokens=(END,))):
        files, left_out = write(data)
        assert left_out == {}
        back = read_back("parquet", files["merges.parquet"])
        assert (back, back.counts, back.replaced) == (data, None if data.merges else pa.array([], pa.uint64()), None)


@given(vocabularies())
@settings(max_examples=30)
def test_merges_are_recovered_from_tokens_alone(data: VocabularyData) -> None:
    assert recover_merges(data.tokens) == data.merges


def test_bytes_that_could_break_lines_or_comments() -> None:
    text = "#\u00a0# \n\n\u0085\u0085\u2028\u2028 # # \x0b\x0b\x1c\x1c \r\r\r\r\x00\x00 " * 3
    data = learned([text, text], pattern=find(r"[\s\S]{1,9}"), merges=60)
    assert {b"\n\n", "\u0085".encode(), "\u2028".encode(), b"\r\r"} <= set(data.tokens)
    files, _ = write(data)
    assert read_back("gpt2", files["vocab.json"], files["merges.txt"], pattern=data.pattern) == data
    assert read_back("tiktoken", files["vocab.tiktoken"], files["tiktoken.json"]) == data
    assert len(files["merges.txt"].decode().splitlines()) == 1 + len(data.merges)  # which knows ten line ends


# ---- what is refused


def test_a_merge_that_reads_as_a_comment_is_refused_by_one_format() -> None:
    data = versioned()
    with pytest.raises(FormatError, match=r"#version.*Leave the format gpt2 out; tokenizers, tiktoken and parquet"):
        write(data, ["gpt2"])
    files, left_out = write(data)
    assert list(left_out) == ["gpt2"]
    assert not {"vocab.json", "merges.txt"} & files.keys()
    assert read_back("tokenizers", files["tokenizer.json"]) == data
    # A token with it inside or at its end is none of this.
    inside = learned(["x#version" * 9] * 4, merges=9, pattern=find(r"[\s\S]+|x"))
    assert any(b"#version" in token for token in inside.tokens)
    assert "gpt2" not in write(inside)[1]


@pytest.mark.parametrize(
    ("specials", "message"),
    [
        ([""], "empty"),
        (["<a>", "<b>", "<a>"], "'<a>' is given twice"),
        (["Ċ"], r"'Ċ' is how vocab.json writes the byte 0x0a; choose another string, such as <\|Ċ\|>"),
        (["a"], "writes the byte 0x61"),
        (["é"], "writes the byte 0xe9"),
        (["<|reserved_7|>"], "named as padding"),
        (["<\ud800>"], "lone surrogate"),
    ],
)
def test_special_tokens_no_vocabulary_can_have(specials: list[str], message: str) -> None:
    tokens = tuple(SpecialToken(text) for text in specials)
    with pytest.raises(UsageError, match=message):
        check_special_tokens(tokens)
    with pytest.raises(UsageError, match=message):
        VocabularyData((), special_tokens=tokens)


def test_roles_are_known_and_each_is_for_one_token() -> None:
    with pytest.raises(UsageError, match="both '<a>' and '<b>' have the role eos"):
        check_special_tokens([SpecialToken("<a>", "eos"), SpecialToken("<b>", "eos")])
    with pytest.raises(UsageError, match="the roles are: bos, eos, pad, unk, other"):
        check_special_tokens([SpecialToken("<a>", "mask")])  # type: ignore[arg-type]
    check_special_tokens([SpecialToken("<a>"), SpecialToken("<b>"), END])


def test_a_special_token_that_is_the_key_of_a_learned_one() -> None:
    data = learned(["hello hello hello"], merges=10)
    assert b"hello" in data.tokens
    with pytest.raises(UsageError, match=r"'Ġhello' is also how vocab.json writes the token b' hello' \(id 26"):
        dataclasses.replace(data, special_tokens=(SpecialToken("Ġhello"),))
    dataclasses.replace(data, special_tokens=(SpecialToken(" hello"),))


def test_a_special_token_that_begins_another_is_refused_by_tiktoken() -> None:
    data = learned(merges=5, special_tokens=[SpecialToken(text) for text in ("<a>b", "x<a>", "<a>")])
    with pytest.raises(FormatError, match=r"'<a>' and '<a>b'.*tokenizers takes the longest"):
        write(data, ["tiktoken"])
    assert list(write(data)[1]) == ["tiktoken"]


def test_merges_that_cannot_be() -> None:
    with pytest.raises(FormatError, match="rank 1 joins 300 and 2"):
        VocabularyData(((0, 1), (300, 2)))
    with pytest.raises(FormatError, match="rank 2 and 3 both make"):
        VocabularyData(((0, 1), (1, 2), (256, 2), (0, 257)))
    with pytest.raises(FormatError, match="1 counts do not fit 2 merges"):
        VocabularyData(((0, 1), (1, 2)), counts=(4,))
    a, b, c = (BYTE_TOKENS.index(letter) for letter in (b"a", b"b", b"c"))
    unreachable = VocabularyData(((b, c), (a, b), (257, c)))
    assert encode_by_rule(unreachable, "abc") == [a, 256]
    with pytest.raises(FormatError, match="cannot hold the token b'abc' of rank 2"):
        write(unreachable, ["tiktoken"])
    assert read_back("tokenizers", write(unreachable)[0]["tokenizer.json"]) == unreachable


def test_unknown_formats() -> None:
    with pytest.raises(UsageError, match="unknown format 'sentencepiece'; the formats are: gpt2, tokenizers"):
        write(VocabularyData(()), ["gpt2", "sentencepiece"])
    with pytest.raises(TypeError, match="list of names"):
        write(VocabularyData(()), "gpt2")


# ---- damaged files, and files of another layout

Change = Callable[[dict[str, Any]], object]


def _set(*path: Any) -> Change:
    """A change that sets the last of some keys to a value."""

    def change(value: dict[str, Any]) -> None:
        *keys, last, new = path
        for key in keys:
            value = value[key]
        value[last] = new

    return change


JSON_DAMAGE: list[tuple[str, Change, str]] = [
    ("vocab.json", _set("!", 1), """'!' and '"' have one id, 1"""),
    ("vocab.json", lambda v: v.update({"!": 1, '"': 0}), "0x22 .* should have the id 2"),
    ("vocab.json", _set("!", "0"), "whole numbers"),
    ("vocab.json", lambda v: v.pop("<|endoftext|>") and v.pop("Ā"), "0x00 .* should have the id 188.* and has None"),
    ("tokenizer.json", _set("model", "type", "Unigram"), "not BPE"),
    ("tokenizer.json", _set("model", "byte_fallback", True), "byte_fallback is true"),
    ("tokenizer.json", _set("model", "dropout", 0.1), "dropout is 0.1"),
    ("tokenizer.json", _set("normalizer", {"type": "Lowercase"}), "normalizer is"),
    ("tokenizer.json", _set("post_processor", {"type": "BertProcessing"}), "post_processor is"),
    ("tokenizer.json", _set("pre_tokenizer", None), "pre-tokenizer null"),
    ("tokenizer.json", _set("pre_tokenizer", "add_prefix_space", True), "without a space added"),
    ("tokenizer.json", lambda v: v["model"]["merges"].pop(0), "rank 0 makes .* whose id should be 256"),
    ("tokenizer.json", lambda v: v["model"]["merges"].reverse(), "rank 0"),
    ("tokenizer.json", lambda v: v["model"]["merges"][3].pop(), "rank 3.* is not two earlier tokens"),
    ("tokenizer.json", lambda v: v["added_tokens"][0].update(lstrip=True), "strips"),
    ("tokenizer.json", lambda v: v["added_tokens"].clear(), "no merge makes the token '<.endoftext.>'"),
    ("tokenizer.json", lambda v: v["added_tokens"].append({"content": "<x>", "id": 10**7}), "more than 1,048,576 ids"),
    ("tokenizer.json", lambda v: v["added_tokens"].append({"content": "<x>", "id": 7}), "'<x>' have one id, 7"),
    (
        "tokenizer.json",
        lambda v: v["added_tokens"].append({"content": "<x>", "id": -1}),
        "not those of 2 special tokens",
    ),
    ("tokenizer.json", lambda v: v["model"]["merges"][0].append("x"), "is not two earlier tokens"),
    ("tokenizer.json", _set("model", "merges", 5), "no list of merges"),
    ("tokenizer.json", _set("model", "merges", 0, [1, 2]), "damaged or of another layout"),
    ("tokenizer.json", _set("added_tokens", "x"), "damaged or of another layout"),
    ("tokenizer.json", _set("model", "vocab", []), "no object of tokens and ids"),
    ("tiktoken.json", lambda v: v.pop("pat_str"), "damaged"),
    ("tiktoken.json", _set("pat_str", "(a"), "does not compile"),
    ("tiktoken.json", _set("special_tokens", {}), "there are 276 tokens, and explicit_n_vocab is 277"),
    ("tiktoken.json", _set("explicit_n_vocab", 1), "there are 277 tokens, and explicit_n_vocab is 1"),
    ("tiktoken.json", _set("special_tokens", "<|endoftext|>", 9), "has the id of another token"),
    ("tiktoken.json", _set("special_tokens", "<|endoftext|>", None), "no whole number"),
    ("tiktoken.json", _set("pat_str", ["x"]), "damaged or of another layout"),
]


@pytest.mark.parametrize("case", range(len(JSON_DAMAGE)))
def test_json_of_another_layout(case: int, tmp_path: Path) -> None:
    name, change, message = JSON_DAMAGE[case]
    data = learned(merges=20, special_tokens=[END])
    save(data, tmp_path / "v")
    (tmp_path / "v" / "manifest.json").unlink()
    path = tmp_path / "v" / name
    value = json.loads(path.read_bytes())
    change(value)
    path.write_text(json.dumps(value), encoding="utf-8")
    with pytest.raises(FormatError, match=message):
        load(path)


BYTE_DAMAGE: list[tuple[str, Callable[[bytes], bytes], str]] = [
    ("vocab.json", lambda c: c[:-20], "does not hold JSON"),
    ("vocab.json", lambda _: b"[]", "not an object"),
    ("merges.txt", lambda c: c.replace(b" ", b"  ", 2), "is not two earlier tokens"),
    ("merges.txt", lambda c: c + b"x y z\n", "is not two earlier tokens"),
    ("merges.txt", lambda c: c + b"\xff\n", "not UTF-8 from byte"),
    ("tokenizer.json", lambda _: b"<html>", "does not hold JSON"),
    ("tokenizer.json", lambda _: b"3", "not BPE"),
    ("vocab.tiktoken", lambda c: c[:-3], "damaged|explicit_n_vocab"),
    ("vocab.tiktoken", lambda c: c + b"IQ== 999\n", "stands there twice"),
    ("vocab.tiktoken", lambda c: c.replace(b"IQ== 0", b"IQ= 0"), "damaged"),
    ("vocab.tiktoken", lambda c: c.replace(b"IQ== 0\nIg== 1", b"Ig== 0\nIQ== 1"), "bytes in GPT-2's order"),
    ("merges.parquet", lambda c: c[:-9], "damaged"),
    ("merges.parquet", lambda _: b"", "damaged"),
]


@pytest.mark.parametrize("case", range(len(BYTE_DAMAGE)))
def test_damaged_files(case: int, tmp_path: Path) -> None:
    name, change, message = BYTE_DAMAGE[case]
    save(learned(merges=20, special_tokens=[END]), tmp_path / "v")
    path = tmp_path / "v" / name
    path.write_bytes(change(path.read_bytes()))
    for changed in (tmp_path / "v", path):
        with pytest.raises(FormatError, match=f"{name} is not the file that manifest.json names"):
            load(changed)
    (tmp_path / "v" / "manifest.json").unlink()
    with pytest.raises(FormatError, match=message):
        load(path)


def test_a_parquet_file_that_is_not_ours(tmp_path: Path) -> None:
    save(learned(merges=5), tmp_path / "v")
    (tmp_path / "v" / "manifest.json").unlink()
    path = tmp_path / "v" / "merges.parquet"
    table = pq.read_table(path)
    about = json.loads(table.schema.metadata[b"dist_bpe"])
    for change, message in (
        (None, "not one of ours"),
        (about | {"version": 3}, "version 3"),
        (about | {"pattern": {"name": "gpt2", "regex": "x+"}}, "was 'x\\+' when this vocabulary was made"),
        (about | {"pattern": {"name": "gpt9", "regex": "x+"}}, "unknown pattern 'gpt9'"),
    ):
        pq.write_table(table.replace_schema_metadata(change and {"dist_bpe": json.dumps(change)}), path)
        with pytest.raises(FormatError, match=message):
            load(path)
    tokens = table.column("token").to_pylist()[::-1]
    pq.write_table(table.set_column(table.column_names.index("token"), "token", [tokens]), path)
    with pytest.raises(FormatError, match="its tokens are not what its merges make"):
        load(path)


# ---- files that others made


def test_files_that_tokenizers_trained_and_wrote(tmp_path: Path) -> None:
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

    for pattern in PATTERNS.values():
        splits = [pre_tokenizers.Split(Regex(text), "isolated") for text in pattern.tokenizers_regexes]
        theirs = Tokenizer(models.BPE())
        theirs.pre_tokenizer = pre_tokenizers.Sequence(
            [*splits, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
        )
        theirs.decoder = decoders.ByteLevel()
        theirs.train_from_iterator(
            CORPUS,
            trainers.BpeTrainer(
                vocab_size=700,
                show_progress=False,
                special_tokens=["<s>", "<|endoftext|>"],
                initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            ),
        )
        theirs.save(str(tmp_path / "tokenizer.json"))
        data = load(tmp_path / "tokenizer.json")
        assert data.pattern is pattern or data.pattern == pattern
        assert data.special_tokens_first
        assert data.special_ids == {"<s>": 0, "<|endoftext|>": 1}
        for text in CORPUS:
            assert encode_by_rule(data, text) == theirs.encode(text).ids
        theirs.model.save(str(tmp_path))
        assert load(tmp_path / "vocab.json", pattern) == data
        with_strings = json.loads((tmp_path / "tokenizer.json").read_bytes())
        with_strings["model"]["merges"] = [" ".join(pair) for pair in with_strings["model"]["merges"]]
        (tmp_path / "strings.json").write_text(json.dumps(with_strings), encoding="utf-8")
        assert load(tmp_path / "strings.json") == data


def test_gpt2_published_regex_is_known_in_a_split() -> None:
    tokenizer = json.loads(write(learned(merges=3))[0]["tokenizer.json"])
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    for text in GPT2.texts:
        split = {"type": "Split", "pattern": {"Regex": text}, "behavior": "Isolated", "invert": False}
        tokenizer["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [split, byte_level]}
        assert read_back("tokenizers", json.dumps(tokenizer).encode()).pattern is GPT2


def test_one_token_with_several_roles_as_gpt2_has_it() -> None:
    tokenizer = write(learned(merges=3, special_tokens=[SpecialToken("<|endoftext|>")]))[0]["tokenizer.json"]
    config = {f"{role}_token": "<|endoftext|>" for role in ("bos", "eos", "unk")}
    assert read_back("tokenizers", tokenizer, json.dumps(config).encode()).special_tokens == (END,)
    config = {"pad_token": {"content": "<|endoftext|>", "lstrip": False}}
    several = read_back("tokenizers", tokenizer, json.dumps(config).encode())
    assert several.special_tokens == (SpecialToken("<|endoftext|>", "pad"),)


def test_windows_line_ends_in_merges_txt() -> None:
    data = learned(merges=9)
    files, _ = write(data)
    assert read_back("gpt2", files["vocab.json"], files["merges.txt"].replace(b"\n", b"\r\n")) == data


@pytest.mark.parametrize("padding", [0, 3])
@pytest.mark.parametrize(
    "places", [(0, 1, 290), (0, 286, 287), (286, 287, 289), (286, 300, 301), (1_000, 2_000, 3_000)]
)
def test_special_tokens_anywhere_but_among_the_merges(places: tuple[int, ...], padding: int) -> None:
    tokens = [END, SpecialToken("<a>"), SpecialToken("<b>")]
    places = tuple(place + (places[0] == 0) + (places[1] == 1) if place >= 286 else place for place in places)
    data = dataclasses.replace(learned(merges=30, special_tokens=tokens, padding=padding), special_places=places)
    assert list(data.special_ids.values())[:3] == list(places)
    assert len(data) == places[-1] + 1 + padding == sum(data.sizes.values())
    assert list(data.keys().values()) == sorted(
        {*range(data.first_id, data.first_id + 286), *data.special_ids.values()}
    )
    files, left_out = write(data)
    assert not left_out
    for format in FORMATS.values():
        back = read_back(format.name, *(files[name] for name in format.files if name in files))
        assert back.special_ids == data.special_ids
        assert back.keys() == data.keys()
    unused = next(i for i in range(len(data)) if i not in set(data.keys().values())) if data.unused else None
    if unused is not None:
        with pytest.raises(UsageError, match=f"no token {unused}: .*with gaps between the special tokens"):
            Vocabulary(data).decode([unused])
    small = Vocabulary(data).cut(270)
    assert len(small) == 270
    assert small.data.special_places == ()


def test_places_of_our_own_orders_are_forgotten() -> None:
    data = learned(merges=30, special_tokens=[END, SpecialToken("<a>")])
    assert dataclasses.replace(data, special_places=(286, 287)) == data
    first = dataclasses.replace(data, special_places=(0, 1))
    assert first == dataclasses.replace(data, special_tokens_first=True)
    for places, message in (
        ((286,), "not those of 2"), ((5, 286), "among the bytes"), ((287, 286), "not those of 2"),
        ((286, 286), "not those of 2"), ((-1, 286), "not those of 2"), ((286, 10**12), "more than 1,048,576 ids"),
    ):  # fmt: skip
        with pytest.raises(FormatError, match=message):
            dataclasses.replace(data, special_places=places)


def test_a_folder_saved_by_transformers_is_read(tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    data = learned(merges=50, special_tokens=[END, SpecialToken("<pad>", "pad")])
    save(data, tmp_path / "v")
    theirs = AutoTokenizer.from_pretrained(str(tmp_path / "v"))
    theirs.chat_template = "{% for message in messages %}{{ message.content }}{% endfor %}"
    theirs.save_pretrained(str(tmp_path / "saved"))
    assert load(tmp_path / "saved") == data


def test_post_processors_that_add_nothing() -> None:
    value = json.loads(write(learned(merges=3))[0]["tokenizer.json"])
    a, b = ({"Sequence": {"id": name, "type_id": number}} for number, name in enumerate("AB"))
    template = {"type": "TemplateProcessing", "single": [a], "pair": [a, b], "special_tokens": {}}
    token = {"SpecialToken": {"id": "<s>", "type_id": 0}}
    for processor, reads in (
        (template, True),
        ({"type": "Sequence", "processors": []}, True),
        ({"type": "Sequence", "processors": [{"type": "ByteLevel"}, template]}, True),
        (template | {"single": [token, a]}, False),
        (template | {"single": [a, a]}, False),
        (template | {"pair": [a, token, b]}, False),
        ({"type": "Sequence", "processors": [{"type": "RobertaProcessing"}]}, False),
        ("ByteLevel", False),
    ):
        value["post_processor"] = processor
        content = json.dumps(value).encode()
        if reads:
            assert read_back("tokenizers", content) == learned(merges=3)
        else:
            with pytest.raises(FormatError, match="post_processor is"):
                read_back("tokenizers", content)


def test_pre_tokenizers_in_sequences_of_sequences() -> None:
    for pattern in (GPT2, find("deepseek3"), CUSTOM):
        value = json.loads(write(learned(merges=3, pattern=pattern))[0]["tokenizer.json"])
        inner = value["pre_tokenizer"]
        empty: dict[str, Any] = {"type": "Sequence", "pretokenizers": []}
        value["pre_tokenizer"] = {
            "type": "Sequence",
            "pretokenizers": [empty, {"type": "Sequence", "pretokenizers": [inner]}],
        }
        assert read_back("tokenizers", json.dumps(value).encode()).pattern == pattern


def test_what_a_message_shows_is_never_cut_in_the_middle() -> None:
    value = json.loads(write(learned(merges=3))[0]["tokenizer.json"])
    value["normalizer"] = {"type": "Precompiled", "precompiled_charsmap": "A" * 500}
    with pytest.raises(FormatError, match=r"normalizer is Precompiled \(with settings of 5\d\d characters\), which"):
        read_back("tokenizers", json.dumps(value).encode())
    assert shown({"k": 1}) == '{"k": 1}'
    assert [shown(many) for many in (["x"] * 99, {str(i): i for i in range(99)}, "x" * 99, 10**99)] == [
        "a list of 99 items", "an object of 99 keys", "a text of 99 characters", "a number of 100 digits",
    ]  # fmt: skip


def test_ranks_alone(tmp_path: Path) -> None:
    data = learned(merges=40, pattern=CUSTOM)
    ranks = write(data)[0]["vocab.tiktoken"]
    for name in ("mine.tiktoken", "vocab.tiktoken"):
        (tmp_path / name).write_bytes(ranks)
        with pytest.raises(UsageError, match=f"{name} holds tokens alone.*--pattern on the command line"):
            load(tmp_path / name)
        assert load(tmp_path / name, CUSTOM) == data
    for name, pattern in (("cl100k_base", "cl100k"), ("o200k_base", "o200k"), ("r50k_base", "gpt2"), ("gpt2", "gpt2")):
        (tmp_path / f"{name}.tiktoken").write_bytes(ranks)
        # Not the published file, by its size, so its special tokens are not known.
        assert load(tmp_path / f"{name}.tiktoken") == dataclasses.replace(data, pattern=find(pattern))


def test_published_encodings_are_those_of_tiktoken() -> None:
    from tiktoken_ext import openai_public

    for name, published in PUBLISHED.items():
        constructor = openai_public.ENCODING_CONSTRUCTORS[name]
        found: dict[str, Any] = {}
        with pytest.MonkeyPatch.context() as patch:  # which would load the ranks from the net
            patch.setattr(openai_public, "load_tiktoken_bpe", lambda *_, **__: {})
            patch.setattr(openai_public, "data_gym_to_mergeable_bpe_ranks", lambda *_, **__: {})
            found = constructor()
        assert found["special_tokens"] == published.special_tokens
        assert find(found["pat_str"]) == find(published.pattern)
        if "explicit_n_vocab" in found:
            assert found["explicit_n_vocab"] == published.tokens + len(published.special_tokens)


def test_a_published_file_of_full_size_has_its_special_tokens_where_they_belong(tmp_path: Path) -> None:
    tokens = [*BYTE_TOKENS, *(bytes([a, b]) for a in range(256) for b in range(256))]
    triples = [bytes([a, b, c]) for a in range(1) for b in range(256) for c in range(256)]
    tokens = (tokens + triples)[:100_256]
    lines = b"".join(b"%s %d\n" % (base64.b64encode(token), i) for i, token in enumerate(tokens))
    (tmp_path / "cl100k_base.tiktoken").write_bytes(lines)
    vocabulary = Vocabulary.load(tmp_path / "cl100k_base.tiktoken")
    assert (len(vocabulary), vocabulary.data.unused) == (100_277, 16)
    assert vocabulary.encode("<|endoftext|><|endofprompt|>", allowed_special="all") == [100_257, 100_276]
    assert "16 unused" in repr(vocabulary)


def test_merges_that_are_not_the_last_two_parts_are_found_one_by_one() -> None:
    a, b, c = (BYTE_TOKENS.index(letter) for letter in (b"a", b"b", b"c"))
    # `tiktoken` joins b and c first, and then a and bc: the merge is another one than the list was made with.
    tokens = [*BYTE_TOKENS, b"bc", b"ab", b"abc"]
    assert recover_merges(tokens) == ((b, c), (a, b), (a, 256))
    for bad in (b"", b"x", b"xyz"):
        with pytest.raises(FormatError, match="of rank 2 is not made of two earlier ones"):
            recover_merges([*tokens[:-1], bad], "file")


def test_a_chain_of_merges_that_would_fill_all_memory_is_refused() -> None:
    data = learned(merges=3)
    content = write(data)[0]["merges.parquet"]
    table = pq.ParquetFile(io.BytesIO(content)).read()
    numbers = pa.array([0, *range(256, 355)], pa.uint32())
    bomb = pa.table({
        "left": numbers, "right": numbers, "count": pa.nulls(100, pa.uint64()), "token": pa.array([b"!!"] * 100),
    }).replace_schema_metadata(table.schema.metadata)  # fmt: skip
    file = io.BytesIO()
    pq.write_table(bomb, file)
    with pytest.raises(FormatError, match="are not what its merges make, from rank 1 on"):
        read_back("parquet", file.getvalue())


@pytest.mark.parametrize("name", ["vocab.json", "tokenizer.json", "tokenizer_config.json", "tiktoken.json"])
def test_json_nested_by_the_thousand(name: str) -> None:
    files, _ = write(learned(merges=3))
    format = next(format for format in FORMATS.values() if name in format.files)
    for deep in (b"[" * 100_000 + b"]" * 100_000, b'{"a":' * 100_000 + b"1" + b"}" * 100_000):
        with pytest.raises(FormatError, match=f"{name} is damaged: its JSON is nested"):
            read_back(format.name, *(deep if file == name else files[file] for file in format.files))


# ---- folders


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_set("files", "vocab.json", "sha256", 5), r"files.vocab.json.sha256 \(Input should be a valid string\)"),
        (_set("files", "vocab.json", "sha256", "F" * 64), "files.vocab.json.sha256"),
        (_set("files", "vocab.json", "bytes", -1), "files.vocab.json.bytes"),
        (_set("files", []), "at files "),
        (_set("sizes", "total", "7"), "sizes.total"),
        (_set("version", "1"), "at version"),
        (_set("version", 2), "version 2; this release reads version 1"),
        (lambda v: v.pop("files"), "at files "),
        (_set("pattern", None), "at pattern"),
        (_set("special_tokens", 0, 1), "special_tokens.0"),
        (_set("left_out", "x", [1]), "left_out.x"),
    ],
)
def test_a_manifest_of_wrong_types(change: Change, message: str, tmp_path: Path) -> None:
    folder = save(learned(merges=5, special_tokens=[END]), tmp_path / "v")
    value = json.loads((folder / "manifest.json").read_bytes())
    change(value)
    (folder / "manifest.json").write_text(json.dumps(value))
    for path in (folder, folder / "vocab.json"):
        with pytest.raises(FormatError, match=f"manifest.json is .*{message}"):
            load(path)


def test_a_manifest_that_is_damaged_foreign_or_no_file(tmp_path: Path) -> None:
    folder = save(learned(merges=5), tmp_path / "v")
    path = folder / "manifest.json"
    for content in (b"{", b"[" * 100_000, b"\xff{}", b"[]", b"{}", b"null", b"5"):
        path.write_bytes(content)
        with pytest.raises(FormatError, match=r"manifest.json is damaged: .*remove this manifest.json"):
            load(folder)
    path.write_bytes(b'{"format": "other", "files": 5}')
    assert load(folder) == learned(merges=5)
    path.unlink()
    path.mkdir()
    with pytest.raises(FormatError, match=r"manifest.json cannot be read: Is a directory"):
        load(folder)


def test_paths_that_cannot_be(tmp_path: Path) -> None:
    data = learned(merges=2)
    for path in (tmp_path / ("x" * 5000), tmp_path / ("x" * 300) / "tokenizer.json"):
        with pytest.raises(UsageError, match=r"cannot be|no vocabulary at"):
            load(path)
        with pytest.raises(UsageError, match="cannot be written"):
            save(data, path)
    for attempt in (lambda: load(Path("a\0b")), lambda: save(data, Path("a\0b"))):
        with pytest.raises(UsageError, match="NUL"):
            attempt()
    strange = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff"))
    assert load(save(data, strange)) == data
    with pytest.raises(UsageError, match=r"source name .* lone surrogate"):
        VocabularyData((), replaced={"\udcff": []})
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    with pytest.raises(UsageError, match="is no folder"):
        save(data, tmp_path / "link")


def test_a_strangers_file_is_not_replaced(tmp_path: Path) -> None:
    folder = tmp_path / "v"
    folder.mkdir()
    (folder / "tokenizer.json").write_text("theirs")
    (folder / "notes.txt").write_text("notes")
    data = learned(merges=5)
    for attempt in (lambda: save(data, folder), lambda: Vocabulary(data).save(folder), lambda: refuse_foreign(folder)):
        with pytest.raises(RunError, match=r"tokenizer.json is there .*no manifest.json of a vocabulary.*--overwrite"):
            attempt()
    assert sorted(path.name for path in folder.iterdir()) == ["notes.txt", "tokenizer.json"]
    assert (folder / "tokenizer.json").read_text() == "theirs"
    Vocabulary(data).save(folder, overwrite=True)
    assert load(folder) == data
    assert (folder / "notes.txt").read_text() == "notes"
    refuse_foreign(folder)
    # What was changed since it was written is no longer ours.
    (folder / "merges.txt").write_text("mine")
    with pytest.raises(RunError, match=r"merges.txt is there .*does not account for it"):
        save(learned(merges=6), folder)
    assert load(folder / "tokenizer.json") == data
    Vocabulary(learned(merges=6)).save(folder, overwrite=True)
    assert load(folder) == learned(merges=6)


def test_what_only_a_manifest_lists_is_never_deleted(tmp_path: Path) -> None:
    folder = save(versioned(), tmp_path / "v")
    value = json.loads((folder / "manifest.json").read_bytes())
    for name, content in {"thesis.docx": b"years", "vocab.json": b"theirs", "merges.txt": b"theirs, too"}.items():
        (folder / name).write_bytes(content)
        digest = hashlib.sha256(content if name != "merges.txt" else b"").hexdigest()
        value["files"][name] = {"bytes": len(content), "sha256": digest}
    (tmp_path / "outside").write_bytes(b"x")
    value["files"]["../outside"] = {"bytes": 1, "sha256": hashlib.sha256(b"x").hexdigest()}
    (folder / "manifest.json").write_text(json.dumps(value))
    second = learned(merges=30, special_tokens=[SpecialToken("<a>"), SpecialToken("<a>b")], pattern=CUSTOM)
    files, left_out = write(second, ["parquet"])
    publish_files(folder, files | {"manifest.json": manifest(second, files, left_out)}, overwrite=True)
    assert (folder / "thesis.docx").read_bytes() == b"years"
    assert (tmp_path / "outside").exists()
    assert (folder / "merges.txt").read_bytes() == b"theirs, too"
    # A name of ours with the checksum in a manifest of ours: nothing tells it from what was written here.
    assert {path.name for path in folder.iterdir()} == {"thesis.docx", "merges.txt", "merges.parquet", "manifest.json"}


def test_files_that_already_hold_these_bytes_are_no_obstacle(tmp_path: Path) -> None:
    # An object store is filled file by file, the manifest last: the same command goes on after a kill.
    data = learned(merges=5)
    save(data, tmp_path / "whole")
    (tmp_path / "v").mkdir()
    for name in ("tokenizer.json", "merges.parquet"):
        (tmp_path / "v" / name).write_bytes((tmp_path / "whole" / name).read_bytes())
    assert load(save(data, tmp_path / "v")) == data


def test_what_a_killed_process_left_is_swept_and_nothing_else(tmp_path: Path) -> None:
    code = (
        "import os, sys; from pathlib import Path; from vocabularies import learned\n"
        "from dist_bpe.vocabulary.files import publish_files, write, manifest\n"
        "data = learned(merges=9); files, _ = write(data); files['manifest.json'] = manifest(data, files)\n"
        "publish_files(Path(sys.argv[1]), files, lambda _: os._exit(9))"
    )
    paths = os.pathsep.join([str(Path(__file__).parents[1]), str(Path(dist_bpe.__file__).parents[1])])
    for there in (False, True):
        folder = tmp_path / f"v{there}"
        if there:
            save(learned(merges=3), folder)
        command = [sys.executable, "-c", code, str(folder)]
        assert subprocess.run(command, env=os.environ | {"PYTHONPATH": paths}, check=False).returncode == 9
        hidden = folder if there else tmp_path
        assert [path for path in hidden.iterdir() if path.name.startswith(f".{folder.name}.")]
        mine = ".x.tmp", f".{folder.name}.x.tmp", f".{uuid.uuid4().hex}.old", f".{uuid.uuid1().hex}.tmp"
        for name in mine:
            (hidden / name).touch()
        full = tmp_path / f".{folder.name}.{uuid.uuid4().hex}.tmp"
        full.mkdir()
        (full / "thesis.docx").touch()
        if there:
            (folder / f".{uuid.uuid4().hex}.tmp").write_bytes(b"{")  # of a report
        save(learned(merges=4), folder)
        known = {file for format in FORMATS.values() for file in format.files} | {"manifest.json"}
        assert {path.name for path in folder.iterdir()} == known | ({*mine} if there else set())
        assert (full / "thesis.docx").exists()
        left = {path.name for path in tmp_path.iterdir() if path.name.startswith(f".{folder.name}.")}
        assert left == {full.name} | (set() if there else {mine[1]})


def test_the_folder_of_a_living_process_is_not_swept(tmp_path: Path) -> None:
    def look(temporary: Path) -> None:
        save(learned(merges=4), tmp_path / "v")
        assert temporary.is_dir()

    files, _ = write(learned(merges=9))
    save(learned(merges=3), tmp_path / "v")
    publish_files(tmp_path / "v", files, look)
    assert read(tmp_path / "v", "parquet") == learned(merges=9)


def test_a_folder_is_read_by_the_format_that_carries_most(tmp_path: Path) -> None:
    data = learned(merges=20, special_tokens=[END], pattern=CUSTOM)
    save(data, tmp_path / "v")
    for format in ("parquet", "tokenizers", "tiktoken", "gpt2"):
        found = load(tmp_path / "v")
        assert found.keys() == data.keys()
        assert (found.counts is not None) == ("counts" in FORMATS[format].carries)
        assert (found.special_tokens == data.special_tokens) == ("roles" in FORMATS[format].carries)
        assert (found.pattern == data.pattern) == ("pattern" in FORMATS[format].carries)
        for name in FORMATS[format].files:
            (tmp_path / "v" / name).unlink()
    with pytest.raises(UsageError, match="holds no vocabulary"):
        load(tmp_path / "v")
    with pytest.raises(UsageError, match="no such file or folder"):
        load(tmp_path / "w")


def test_files_of_other_names(tmp_path: Path) -> None:
    data = learned(merges=20)
    files, _ = write(data)
    names = {
        "a.parquet": "merges.parquet",
        "b.json": "tokenizer.json",
        "c.tiktoken": "vocab.tiktoken",
        "c.json": "tiktoken.json",
    }
    for name, source in names.items():
        (tmp_path / name).write_bytes(files[source])
    for name in ("a.parquet", "b.json", "c.tiktoken"):
        assert load(tmp_path / name) == data
    (tmp_path / "d.model").touch()
    with pytest.raises(UsageError, match="is no vocabulary file by its name"):
        load(tmp_path / "d.model")
    (tmp_path / "vocab.json").write_bytes(files["vocab.json"])
    with pytest.raises(FormatError, match=r"merges.txt cannot be read: No such file"):
        load(tmp_path / "vocab.json")


def test_another_pattern_than_the_files_own_is_refused(tmp_path: Path) -> None:
    data = learned(merges=20, pattern=CUSTOM)
    save(data, tmp_path / "v")
    assert load(tmp_path / "v", CUSTOM) == data
    with pytest.raises(UsageError, match="another one would cut"):
        load(tmp_path / "v", GPT2)
    assert load(tmp_path / "v" / "vocab.json").pattern is GPT2
    assert load(tmp_path / "v" / "vocab.json", CUSTOM) == data


def test_a_folder_keeps_what_is_not_ours_and_loses_what_is_stale(tmp_path: Path) -> None:
    folder = save(learned(merges=20), tmp_path / "v")
    (folder / "model.safetensors").write_bytes(b"weights")
    second = versioned()
    save(second, folder)
    assert load(folder) == second
    names = {file.name for file in folder.iterdir()}
    assert "model.safetensors" in names
    assert not {"vocab.json", "merges.txt"} & names
    assert "gpt2" in json.loads((folder / "manifest.json").read_bytes())["left_out"]
    assert [path.name for path in tmp_path.iterdir()] == ["v"]


def test_a_failed_check_changes_nothing(tmp_path: Path) -> None:
    def fail(folder: Path) -> None:
        assert read(folder, "tokenizers") == second
        raise ExportError("no")

    first, second = learned(merges=20), learned(merges=21)
    files, _ = write(second)
    with pytest.raises(ExportError):
        publish_files(tmp_path / "v", files, fail)
    assert list(tmp_path.iterdir()) == []
    save(first, tmp_path / "v")
    before = {file.name: file.read_bytes() for file in (tmp_path / "v").iterdir()}
    with pytest.raises(ExportError):
        publish_files(tmp_path / "v", files, fail)
    assert {file.name: file.read_bytes() for file in (tmp_path / "v").iterdir()} == before
    assert [path.name for path in tmp_path.iterdir()] == ["v"]


def test_a_folder_that_cannot_be_written_to(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="cannot be written"):
        save(learned(merges=2), tmp_path / "file")
    with pytest.raises(UsageError, match="cannot be written"):
        save(learned(merges=2), tmp_path / "file" / "v")


def test_the_manifest_names_every_file_and_what_is_in_them() -> None:
    data = learned(merges=20, special_tokens=[END], padding=3)
    files, _ = write(data)
    value = json.loads(manifest(data, files, {}, {"counts": "abc", "b": 1}))
    assert {name: file["sha256"] for name, file in value["files"].items()} == {
        name: hashlib.sha256(content).hexdigest() for name, content in files.items()
    }
    assert value["sizes"] == {"total": 280, "bytes": 256, "merges": 20, "special tokens": 1, "padding": 3}
    assert value["special_tokens"] == [{"text": "<|endoftext|>", "role": "eos", "id": 276}]
    assert value["pattern"]["regex"] == GPT2.regex
    assert value["fingerprints"] == {"b": 1, "counts": "abc"}


def test_docs_have_the_table_of_what_each_format_carries() -> None:
    docs = (Path(__file__).parents[2] / "docs" / "formats.md").read_text(encoding="utf-8")
    assert table() in docs


@given(st.binary())
def test_any_bytes_are_an_error_and_not_a_crash(content: bytes) -> None:
    files, _ = write(learned(["abab"], merges=1))
    for attempt in (
        lambda: read_back("gpt2", content, files["merges.txt"]),
        lambda: read_back("tokenizers", content),
        lambda: read_back("tokenizers", files["tokenizer.json"], b"x" + content),
        lambda: read_back("tiktoken", content, files["tiktoken.json"]),
        lambda: read_back("tiktoken", files["vocab.tiktoken"], content),
        lambda: read_back("parquet", content),
    ):
        with pytest.raises(FormatError):
            attempt()


def test_merges_of_long_tokens_are_recovered_in_good_time() -> None:
    """Lengths double, to a token of 128 KiB. To go through all pairs for each join took minutes."""
    tokens = [*BYTE_TOKENS, *(b"x" * (2 << i) for i in range(17))]
    x = tokens.index(b"x")
    assert recover_merges(tokens) == ((x, x), *((256 + i, 256 + i) for i in range(16)))


@given(st.lists(st.text("ab", min_size=2, max_size=9), unique=True, max_size=12))
def test_tokens_come_down_to_two_parts_by_the_rule(texts: list[str]) -> None:
    tokens = [*BYTE_TOKENS, *(text.encode() for text in texts)]
    numbers = {token: i for i, token in enumerate(tokens)}

    def by_the_rule(i: int) -> tuple[int, int]:
        parts = [tokens[i][at : at + 1] for at in range(len(tokens[i]))]
        while len(parts) > 2:
            rank, at = min((numbers.get(a + b, i), at) for at, (a, b) in enumerate(itertools.pairwise(parts)))
            if rank >= i:
                raise FormatError("")
            parts[at : at + 2] = [tokens[rank]]
        return numbers[parts[0]], numbers[parts[1]]

    try:
        wanted = tuple(by_the_rule(i) for i in range(256, len(tokens)))
    except FormatError:
        with pytest.raises(FormatError, match="is not made of two earlier ones"):
            recover_merges(tokens)
    else:
        assert recover_merges(tokens) == wanted
