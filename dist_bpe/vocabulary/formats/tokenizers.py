"""tokenizer.json, with the two files that `transformers` reads beside it."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from dist_bpe.errors import ExportError, FormatError
from dist_bpe.pretokenize.patterns import GPT2, Pattern, find_splits
from dist_bpe.pretokenize.preparation import Role, normalization_form
from dist_bpe.storage.files import to_json
from dist_bpe.vocabulary.data import VocabularyData
from dist_bpe.vocabulary.formats.format import (
    Files,
    Format,
    Reader,
    compact_json,
    from_keys,
    reader_of_tokenizers,
    reader_of_transformers,
    reading,
    shown,
)

FILES = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json")


def write_tokenizers(data: VocabularyData) -> dict[str, bytes]:
    """tokenizer.json, and tokenizer_config.json and special_tokens_map.json for the roles.

    Merges are written as pairs, not as strings with a space (both are read by every release since 0.20): `tokenizers`
    drops strings that begin with #version. The class named is `PreTrainedTokenizerFast`, which takes tokenizer.json as
    it is; the GPT-2 class would put GPT-2's pattern in place of another.
    """
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
    if data.pattern.byte_level:
        pre_tokenizer: dict[str, Any] = byte_level | {"use_regex": True}
    else:
        steps = [*data.pattern.tokenizers_steps, byte_level | {"use_regex": False}]
        pre_tokenizer = {"type": "Sequence", "pretokenizers": steps}
    plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    keys = data.token_keys
    tokenizer = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": i, "content": text} | plain for text, i in data.special_ids.items()],
        "normalizer": data.normalization and {"type": data.normalization},
        "pre_tokenizer": pre_tokenizer,
        "post_processor": None,
        "decoder": byte_level | {"use_regex": True},
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": data.keys(),
            "merges": [(keys[left], keys[right]) for left, right in data.merges],
        },
    }
    roles = {f"{special.role}_token": special.text for special in data.special_tokens if special.role != "other"}
    config = {
        # Off, since cleaning would change text: " ." to "." and so on.
        "clean_up_tokenization_spaces": False,
        "model_max_length": int(1e30),
        "tokenizer_class": "PreTrainedTokenizerFast",
    }
    return {
        "tokenizer.json": compact_json(tokenizer),
        "tokenizer_config.json": to_json(dict(sorted((config | roles).items()))),
        "special_tokens_map.json": to_json(dict(sorted(roles.items()))),
    }


def read_tokenizers(files: Files, _: Pattern | None = None) -> VocabularyData:
    """Read tokenizer.json, and the roles from tokenizer_config.json or special_tokens_map.json where there is one.

    Raises:
        FormatError: damaged, or it asks for something that encoding here does not do.
    """
    where = files.where("tokenizer.json")
    with reading(where):
        value = files.json("tokenizer.json")
        model = value.get("model") if isinstance(value, dict) else None
        if (
            not isinstance(model, dict)
            or model.get("type", "BPE") != "BPE"
            or not isinstance(model.get("merges"), list)
        ):
            raise FormatError(f"{where}: the model is not BPE, or has no list of merges.")
        if not isinstance(model.get("vocab"), dict):
            raise FormatError(f"{where}: its vocabulary is no object of tokens and ids.")
        normalization = None
        match normalizers := _steps(value.get("normalizer"), "normalizers"):
            case [{"type": "NFC" | "NFD" | "NFKC" | "NFKD" as form}]:
                normalization = normalization_form(form)
        unwanted = {
            "normalizer": value["normalizer"] if normalizers and not normalization else None,
            "byte_fallback": model.get("byte_fallback"),
            "ignore_merges": model.get("ignore_merges"),
            "dropout": model.get("dropout"),
            "continuing_subword_prefix": model.get("continuing_subword_prefix"),
            "end_of_word_suffix": model.get("end_of_word_suffix"),
        }
        if not all(map(_adds_nothing, _steps(value.get("post_processor"), "processors"))):
            unwanted["post_processor"] = value["post_processor"]
        for name, setting in unwanted.items():
            if setting:
                raise FormatError(f"{where}: {name} is {shown(setting)}, which a vocabulary here does not do.")
        pattern = _pattern_of(value.get("pre_tokenizer"), where)
        ids = dict(model["vocab"])
        added_tokens = value.get("added_tokens") or ()
        for token in added_tokens:
            if token.get("lstrip") or token.get("rstrip") or token.get("single_word"):
                raise FormatError(f"{where}: the added token {token['content']!r} strips or bounds what is beside it.")
            ids[token["content"]] = token["id"]
        roles: dict[str, Role] = {}
        settings: dict[str, Any] = next((files.json(name) for name in FILES[1:] if name in files.content), {})
        for role in (
            "eos",
            "bos",
            "pad",
            "unk",
        ):  # GPT-2's files give one token several: it ends the text before all else
            text = settings.get(f"{role}_token")
            if isinstance(text, dict):
                text = text.get("content")
            if isinstance(text, str):
                roles.setdefault(text, role)
        pairs = [pair.split(" ") if isinstance(pair, str) else pair for pair in model["merges"]]
        data = replace(from_keys(ids, pairs, pattern, where, roles), normalization=normalization)
        added = {token["content"] for token in added_tokens}
        for text in data.special_ids:
            if text not in added:
                raise FormatError(f"{where}: no merge makes the token {text!r}, and it is not among the added tokens.")
        return data


def _steps(value: Any, inner: str) -> list[Any]:
    """The steps of a part of tokenizer.json, sequences in sequences made one; empty ones and null are no step.

    Args:
        value: the part.
        inner: under which key a sequence has its steps.
    """
    if value is None:
        return []
    if isinstance(value, dict) and value.get("type") == "Sequence" and isinstance(value.get(inner), list):
        return [step for each in value[inner] for step in _steps(each, inner)]
    return [value]


def _adds_nothing(step: Any) -> bool:
    """Whether a post-processor adds no token: one that moves offsets, or a template of nothing but the text."""
    match step:
        case {"type": "ByteLevel"}:
            return True
        case {"type": "TemplateProcessing", "single": [{"Sequence": {"id": "A"}}], "pair": list(pair)}:
            return all(isinstance(piece, dict) and piece.keys() == {"Sequence"} for piece in pair)
    return False


def _pattern_of(pre_tokenizer: Any, where: str) -> Pattern:
    """The pattern of a pre-tokenizer: `ByteLevel` with its own, or any number of `Split`, perhaps `Digits` one by one,
    and `ByteLevel` without.
    """
    match _steps(pre_tokenizer, "pretokenizers"):
        case [{"type": "ByteLevel", "add_prefix_space": False, **rest}] if rest.get("use_regex", True):
            return GPT2
        case [*splits, {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False}]:
            digits = bool(splits) and splits[-1] == {"type": "Digits", "individual_digits": True}
            splits = splits[: len(splits) - digits]
            isolated = {"type": "Split", "behavior": "Isolated", "invert": False}
            texts = [split.get("pattern", {}).get("Regex") for split in splits if split.items() >= isolated.items()]
            if len(texts) == len(splits) and None not in texts:
                return find_splits(texts, digits)
    raise FormatError(
        f"{where}: the pre-tokenizer {shown(pre_tokenizer, 200)} is neither ByteLevel nor Split by regular expressions "
        "(isolated), perhaps Digits (one by one), and then ByteLevel, without a space added before the text."
    )


def _in_tokenizers(folder: Path, _: VocabularyData) -> Reader:
    from tokenizers import Tokenizer

    return reader_of_tokenizers(Tokenizer.from_file(str(folder / "tokenizer.json")))


def _in_transformers(folder: Path, data: VocabularyData) -> Reader:
    from transformers import PreTrainedTokenizerFast

    tokenizer = PreTrainedTokenizerFast.from_pretrained(str(folder))
    for special in data.special_tokens:
        if special.role != "other" and getattr(tokenizer, f"{special.role}_token") != special.text:
            raise ExportError(f"the {special.role} token is {getattr(tokenizer, f'{special.role}_token')!r} there")
    return reader_of_transformers(tokenizer)


FORMAT = Format(
    "tokenizers",
    FILES,
    frozenset({"ids", "merges", "pattern", "normalization", "special tokens", "roles"}),
    write_tokenizers,
    read_tokenizers,
    {"tokenizers": _in_tokenizers, "transformers": _in_transformers},
    optional=frozenset(FILES[1:]),
)
