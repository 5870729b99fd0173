"""Codecs of vocabulary files, both ways: GPT-2's pair, tokenizer.json, tiktoken's, and our own Parquet.

Everything here is data: a `VocabularyData` to the bytes of files and back. The same data give the same bytes, always.
What each format carries is in `FORMATS`, and in docs/formats.md.
"""

import base64
import contextlib
import functools
import hashlib
import io
import itertools
import json
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, get_args

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dist_bpe import _core
from dist_bpe.errors import FormatError, UsageError
from dist_bpe.pretokenize import GPT2, Normalization, Pattern, find, find_splits, normalization_form
from dist_bpe.storage import RunPath, publish, publish_folder, sha256, to_json

Role = Literal["bos", "eos", "pad", "unk", "other"]
"""What a special token is for: begin and end of text, padding of batches, unknown; `other` is for the user to say."""

ROLES: tuple[Role, ...] = get_args(Role)
BYTES = 256
MANIFEST = "manifest.json"
PADDING = "<|reserved_{}|>"
_PADDING = re.compile(r"<\|reserved_(\d+)\|>")

BYTE_TOKENS = tuple(bytes([byte]) for byte in sorted(range(BYTES), key=_core.byte_ids().__getitem__))
"""The base tokens in the order of their ids."""

# The first 188 of them are printable and stand for themselves in vocab.json, the others are U+0100 and up.
_CHARACTERS = tuple(chr(token[0]) if i < 188 else chr(256 + i - 188) for i, token in enumerate(BYTE_TOKENS))
_TO_KEY = {token[0]: character for token, character in zip(BYTE_TOKENS, _CHARACTERS, strict=True)}
_TO_BYTE = {character: token[0] for token, character in zip(BYTE_TOKENS, _CHARACTERS, strict=True)}


def key_of(token: bytes) -> str:
    """A token as it is written in vocab.json: one printable character a byte (`Ġ` for the space, `Ċ` for a newline)."""
    return "".join(map(_TO_KEY.__getitem__, token))


@dataclass(frozen=True)
class SpecialToken:
    """A token that stands for itself: its text is cut out before the pattern runs, and no merge makes it.

    Attributes:
        text: the string in the text.
        role: what `transformers` is told it is; each role but "other" is for one token.
    """

    text: str
    role: Role = "other"


@dataclass(frozen=True)
class VocabularyData:
    """A vocabulary as files hold it.

    Ids go up from 0: the 256 bytes in GPT-2's order, the merges by rank, the special tokens, then reserved padding
    tokens `<|reserved_0|>` and up. With `special_tokens_first` the special tokens come before all others.

    Attributes:
        merges: for each rank the two parts, numbered as the learner does: a byte's place, or 256 + rank. (These are
            the ids too, unless special tokens come first.)
        pattern: how text is cut into words.
        special_tokens: in the order of their ids.
        special_tokens_first: special tokens take the ids from 0 on.
        padding: how many reserved tokens fill up the size.
        normalization: the form that text between special tokens is brought into first; None leaves it as it is.
        counts: for each merge the weighted count of its pair when it was chosen; None if not known.
        replaced: for each source the occurrences that each merge replaced; None if not known.

    Raises:
        UsageError: special tokens that are empty, given twice, without UTF-8 form, named as padding is, or equal to the
            key of another token in vocab.json.
        FormatError: merges that use a later token, or two that make the same bytes.
    """

    merges: tuple[tuple[int, int], ...]
    pattern: Pattern = GPT2
    special_tokens: tuple[SpecialToken, ...] = ()
    special_tokens_first: bool = False
    padding: int = 0
    normalization: Normalization | None = None
    counts: tuple[int, ...] | None = field(default=None, compare=False, repr=False)
    replaced: Mapping[str, tuple[int, ...]] | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        check_special_tokens(self.special_tokens)
        if not self.special_tokens:
            object.__setattr__(self, "special_tokens_first", False)  # the same vocabulary, so it shall be equal
        if self.padding < 0:
            raise UsageError(f"padding of {self.padding} tokens is less than none.")
        for numbers in (self.counts, *(self.replaced or {}).values()):
            if numbers is not None and len(numbers) != len(self.merges):
                raise FormatError(f"{len(numbers):,} counts do not fit {len(self.merges):,} merges.")
        made: dict[bytes, int] = {token: i for i, token in enumerate(self.tokens)}
        if len(made) < len(self.tokens):
            i = next(i for i, token in enumerate(self.tokens) if made[token] != i)
            raise FormatError(
                f"the merges of rank {i - BYTES:,} and {made[self.tokens[i]] - BYTES:,} both make {self.tokens[i]!r}; "
                "a token can have one id only."
            )
        for special in self.special_tokens:
            token = _token_of(special.text)
            if token in made:
                raise UsageError(
                    f"the special token {special.text!r} is also how vocab.json writes the token {token!r} (id "
                    f"{self.first_id + made[token]:,}); choose another string, such as <|{special.text}|>."
                )

    @functools.cached_property
    def tokens(self) -> tuple[bytes, ...]:
        """The bytes of the base tokens and the merges, numbered as in `merges`."""
        tokens = list(BYTE_TOKENS)
        for rank, (left, right) in enumerate(self.merges):
            if not (0 <= left < len(tokens) and 0 <= right < len(tokens)):
                raise FormatError(f"the merge of rank {rank:,} joins {left} and {right}, which no earlier merge makes.")
            tokens.append(tokens[left] + tokens[right])
        return tuple(tokens)

    @functools.cached_property
    def token_keys(self) -> tuple[str, ...]:
        """`tokens` as vocab.json writes them."""
        return tuple(map(key_of, self.tokens))

    @property
    def first_id(self) -> int:
        """Id of the first base token."""
        return len(self.special_tokens) if self.special_tokens_first else 0

    @property
    def first_added_id(self) -> int:
        """Id of the first token behind the merges."""
        return self.first_id + BYTES + len(self.merges)

    @functools.cached_property
    def special_ids(self) -> dict[str, int]:
        """The id of each special token and padding token, by its text, in the order of the ids."""
        first = 0 if self.special_tokens_first else self.first_added_id
        ids = {special.text: first + i for i, special in enumerate(self.special_tokens)}
        first = len(self) - self.padding
        return ids | {PADDING.format(i): first + i for i in range(self.padding)}

    def __len__(self) -> int:
        """All tokens."""
        return BYTES + len(self.merges) + len(self.special_tokens) + self.padding

    @property
    def sizes(self) -> dict[str, int]:
        """How many tokens there are of each kind."""
        return {
            "bytes": BYTES,
            "merges": len(self.merges),
            "special tokens": len(self.special_tokens),
            "padding": self.padding,
        }

    def padded(self, multiple: int) -> "VocabularyData":
        """The same with as much padding as makes the size a multiple of a number."""
        return replace(self, padding=-(len(self) - self.padding) % multiple)

    def keys(self) -> dict[str, int]:
        """The ids of all tokens by their keys in vocab.json, in the order of the ids."""
        ids = {key: self.first_id + i for i, key in enumerate(self.token_keys)}
        ids |= self.special_ids
        return dict(sorted(ids.items(), key=lambda item: item[1]))


def _token_of(key: str) -> bytes | None:
    """The token that a key of vocab.json writes, or None if it has a character that stands for no byte."""
    try:
        return bytes(map(_TO_BYTE.__getitem__, key))
    except KeyError:
        return None


def check_special_tokens(special_tokens: Iterable[SpecialToken]) -> None:
    """Refuse special tokens that no vocabulary can have, whatever it learns; to be called before counting.

    Raises:
        UsageError: one is empty, given twice, equal to the key of a byte in vocab.json, and so on; a role given twice.
    """
    texts: set[str] = set()
    roles: dict[Role, str] = {}
    for special in special_tokens:
        text = special.text
        if not text:
            raise UsageError("a special token is empty; it must have at least one character.")
        if text in texts:
            raise UsageError(f"the special token {text!r} is given twice; leave one out.")
        if text in _TO_BYTE:
            raise UsageError(
                f"the special token {text!r} is how vocab.json writes the byte {_TO_BYTE[text]:#04x}; choose another "
                f"string, such as <|{text}|>."
            )
        if _PADDING.fullmatch(text):
            raise UsageError(f"the special token {text!r} is named as padding tokens are; choose another string.")
        if any("\ud800" <= character <= "\udfff" for character in text):
            raise UsageError(f"the special token {text!r} has a lone surrogate, which UTF-8 cannot write.")
        if special.role not in ROLES:
            raise UsageError(
                f"the special token {text!r} has the role {special.role!r}; the roles are: {', '.join(ROLES)}."
            )
        if special.role in roles:
            raise UsageError(f"both {roles[special.role]!r} and {text!r} have the role {special.role}; one can.")
        texts.add(text)
        if special.role != "other":
            roles[special.role] = text


# What can be in a file, in the order of the columns of docs/formats.md.
CARRIED = ("ids", "merges", "pattern", "normalization", "special tokens", "roles", "counts")


@dataclass(frozen=True)
class Format:
    """A way to write a vocabulary.

    Attributes:
        name: as the user says it.
        files: what it writes.
        carries: which of `CARRIED` can be read back from these files.
        write: the files' bytes by name; raises FormatError, naming the token, for a vocabulary it cannot hold.
    """

    name: str
    files: tuple[str, ...]
    carries: frozenset[str]
    write: Callable[[VocabularyData], dict[str, bytes]]


def _json(value: Any) -> bytes:
    """The compact form, for files with a line a token would make long."""
    return (json.dumps(value, ensure_ascii=False, separators=(",", ":")) + "\n").encode()


@contextlib.contextmanager
def _reading(where: str) -> Iterator[None]:
    """Whatever trips over a file that is built otherwise than it should be becomes one error that names the file."""
    try:
        yield
    except UsageError as error:
        raise FormatError(f"{where}: {error}") from error
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, RecursionError) as error:
        raise FormatError(f"{where} is damaged or of another layout ({error!r}).") from error


# ---- GPT-2: vocab.json and merges.txt


def write_gpt2(data: VocabularyData) -> dict[str, bytes]:
    """vocab.json (key to id) and merges.txt (a merge a line, its two keys with a space between).

    Raises:
        FormatError: a merge whose line would be read as a comment.
    """
    lines = ["#version: 0.2"]
    for rank, (left, right) in enumerate(data.merges):
        line = f"{data.token_keys[left]} {data.token_keys[right]}"
        # `tokenizers` drops every line that begins so, not only the first.
        if line.startswith("#version"):
            raise FormatError(
                f"merges.txt cannot hold the merge {line!r} of rank {rank:,}: readers take a line that begins with "
                "#version for a comment. Leave the format gpt2 out; tokenizers, tiktoken and parquet hold it."
            )
        lines.append(line)
    return {"vocab.json": _json(data.keys()), "merges.txt": ("\n".join(lines) + "\n").encode()}


def read_gpt2(vocab: bytes, merges: bytes, pattern: Pattern = GPT2) -> VocabularyData:
    """Read the pair. It names no pattern (the GPT-2 classes of `transformers` have theirs) and no roles.

    Raises:
        FormatError: damaged, or not a byte-level vocabulary with the ids in our order.
    """
    where = "vocab.json and merges.txt"
    # A line ends at \n and nowhere else; only the first may be the version.
    lines = _decode(merges, "merges.txt").split("\n")
    if lines[0].startswith("#version"):
        del lines[0]
    pairs = [tuple(line.removesuffix("\r").split(" ")) for line in lines if line.strip("\r")]
    with _reading(where):
        return _from_keys(_load_json(vocab, "vocab.json"), pairs, pattern, where)


def _from_keys(
    ids: Any, pairs: Sequence[tuple[str, ...]], pattern: Pattern, where: str, roles: Mapping[str, Role] | None = None
) -> VocabularyData:
    """Build from keys with ids and merges of keys, checking that they lie in our order."""
    if not isinstance(ids, dict) or not all(type(i) is int for i in ids.values()):
        raise FormatError(f"{where}: the vocabulary is not an object of whole numbers.")
    if sorted(ids.values()) != list(range(len(ids))):
        raise FormatError(f"{where}: the ids of the {len(ids):,} tokens are not 0 to {len(ids) - 1:,}, each once.")
    first = ids.get(_CHARACTERS[0], 0)
    for i, character in enumerate(_CHARACTERS):
        if ids.get(character) != first + i:
            raise FormatError(
                f"{where}: the byte {_TO_BYTE[character]:#04x} (written {character!r}) should have the id {first + i}, "
                f"by GPT-2's order, and has {ids.get(character)}; this is not a byte-level vocabulary of that layout."
            )
    numbers = {character: i for i, character in enumerate(_CHARACTERS)}
    merges = []
    for rank, pair in enumerate(pairs):
        if len(pair) != 2 or pair[0] not in numbers or pair[1] not in numbers:
            raise FormatError(f"{where}: the merge of rank {rank:,}, {' '.join(pair)!r}, is not two earlier tokens.")
        key = pair[0] + pair[1]
        if ids.get(key) != first + BYTES + rank:
            raise FormatError(
                f"{where}: the merge of rank {rank:,} makes {key!r}, whose id should be {first + BYTES + rank:,} "
                f"and is {ids.get(key)}."
            )
        merges.append((numbers[pair[0]], numbers[pair[1]]))
        numbers[key] = BYTES + rank
    others = sorted((i, key) for key, i in ids.items() if key not in numbers)
    return _with_specials([key for _, key in others], first, tuple(merges), pattern, roles or {}, where)


def _with_specials(
    texts: list[str],
    first: int,
    merges: tuple[tuple[int, int], ...],
    pattern: Pattern,
    roles: Mapping[str, Role],
    where: str,
) -> VocabularyData:
    """Put apart special tokens and padding among the texts that are neither bytes nor merges, in the order of ids."""
    padding = 0
    if texts and (found := _PADDING.fullmatch(texts[-1])):
        number = int(found[1]) + 1
        if texts[-number:] == [PADDING.format(i) for i in range(number)]:
            padding = number
    if first not in (0, len(texts) - padding):
        raise FormatError(
            f"{where}: {first} of the tokens that no merge makes come before the bytes and {len(texts) - first} behind "
            "the merges; special tokens are either all first or all last."
        )
    specials = tuple(SpecialToken(text, roles.get(text, "other")) for text in texts[: len(texts) - padding])
    return VocabularyData(merges, pattern, specials, first > 0, padding)


# ---- tokenizer.json, with the two files `transformers` reads beside it


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
        splits = [
            {"type": "Split", "pattern": {"Regex": text}, "behavior": "Isolated", "invert": False}
            for text in data.pattern.tokenizers_regexes
        ]
        pre_tokenizer = {"type": "Sequence", "pretokenizers": [*splits, byte_level | {"use_regex": False}]}
    plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
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
            "merges": [[data.token_keys[left], data.token_keys[right]] for left, right in data.merges],
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
        "tokenizer.json": _json(tokenizer),
        "tokenizer_config.json": to_json(dict(sorted((config | roles).items()))),
        "special_tokens_map.json": to_json(dict(sorted(roles.items()))),
    }


def read_tokenizers(tokenizer: bytes, config: bytes | None = None) -> VocabularyData:
    """Read tokenizer.json, and the roles from tokenizer_config.json or special_tokens_map.json where there is one.

    Raises:
        FormatError: damaged, or it asks for something that encoding here does not do.
    """
    where = "tokenizer.json"
    with _reading(where):
        value = _load_json(tokenizer, where)
        model = value.get("model") if isinstance(value, dict) else None
        if not isinstance(model, dict) or model.get("type", "BPE") != "BPE" or "merges" not in model:
            raise FormatError(f"{where}: the model is not BPE.")
        normalizer = value.get("normalizer")
        match normalizer:
            case {"type": "NFC" | "NFD" | "NFKC" | "NFKD" as form}:
                normalization = normalization_form(form)
            case _:
                normalization = None
        unwanted = {
            "normalizer": None if normalization else normalizer,
            "byte_fallback": model.get("byte_fallback"),
            "ignore_merges": model.get("ignore_merges"),
            "dropout": model.get("dropout"),
            "continuing_subword_prefix": model.get("continuing_subword_prefix"),
            "end_of_word_suffix": model.get("end_of_word_suffix"),
        }
        post_processor = value.get("post_processor")
        if post_processor and post_processor.get("type") != "ByteLevel":  # that one only moves offsets
            unwanted["post_processor"] = post_processor
        for name, setting in unwanted.items():
            if setting:
                raise FormatError(
                    f"{where}: {name} is {json.dumps(setting)[:80]}, which a vocabulary here does not do."
                )
        pattern = _pattern_of(value.get("pre_tokenizer"), where)
        ids = dict(model.get("vocab", {}))
        for token in value.get("added_tokens", ()):
            if token.get("lstrip") or token.get("rstrip") or token.get("single_word"):
                raise FormatError(f"{where}: the added token {token['content']!r} strips or bounds what is beside it.")
            ids[token["content"]] = token["id"]
        roles: dict[str, Role] = {}
        settings = _load_json(config, "tokenizer_config.json") if config else {}
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
        pairs = [tuple(pair.split(" ")) if isinstance(pair, str) else tuple(pair) for pair in model["merges"]]
        data = replace(_from_keys(ids, pairs, pattern, where, roles), normalization=normalization)
        added = {token["content"] for token in value.get("added_tokens", ())}
        for text in data.special_ids:
            if text not in added:
                raise FormatError(f"{where}: no merge makes the token {text!r}, and it is not among the added tokens.")
        return data


def _pattern_of(pre_tokenizer: Any, where: str) -> Pattern:
    """The pattern of a pre-tokenizer: `ByteLevel` with its own, or any number of `Split` and `ByteLevel` without."""
    steps = pre_tokenizer.get("pretokenizers", [pre_tokenizer]) if isinstance(pre_tokenizer, dict) else []
    match steps:
        case [{"type": "ByteLevel", "add_prefix_space": False, **rest}] if rest.get("use_regex", True):
            return GPT2
        case [*splits, {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False}]:
            isolated = {"type": "Split", "behavior": "Isolated", "invert": False}
            texts = [split.get("pattern", {}).get("Regex") for split in splits if split.items() >= isolated.items()]
            if len(texts) == len(splits) and None not in texts:
                return find_splits(texts)
    shown = json.dumps(pre_tokenizer, ensure_ascii=False)
    raise FormatError(
        f"{where}: the pre-tokenizer {shown[:200]} is neither ByteLevel nor Split by regular expressions (isolated) "
        "and then ByteLevel, without a space added before the text."
    )


# ---- tiktoken: vocab.tiktoken and a sidecar


def write_tiktoken(data: VocabularyData) -> dict[str, bytes]:
    """vocab.tiktoken (base64 of a token and its id a line) and tiktoken.json, what else `tiktoken.Encoding` takes.

    Raises:
        FormatError: a special token that begins another, or a token that cannot be found from its bytes alone.
    """
    # Its search takes the first alternative that matches, in the order of a hash table.
    texts = sorted(data.special_ids)
    for shorter, longer in itertools.pairwise(texts):
        if longer.startswith(shorter):
            raise FormatError(
                f"tiktoken cannot hold the special tokens {shorter!r} and {longer!r}: it may take either. "
                "Leave the format tiktoken out (tokenizers takes the longest, as we do), or rename one."
            )
    # The file has tokens only, and `tiktoken` merges whatever two pieces make one. That is the same as our merges when
    # every token's own bytes encode to it, as they do in every list that was learned.
    encoder = _core.Encoder(*merge_columns(data.merges), None, [], [], 0)
    _, ends = encoder.encode_words(pa.array(data.tokens, pa.large_binary()))
    for i, (start, end) in enumerate(itertools.pairwise(ends.to_pylist())):
        if end - start != 1:
            raise FormatError(
                f"tiktoken cannot hold the token {data.tokens[i]!r} of rank {i - BYTES:,}: earlier merges take its "
                "bytes apart, and the file has no merges to say otherwise. Leave the format tiktoken out."
            )
    lines = (b"%s %d\n" % (base64.b64encode(token), data.first_id + i) for i, token in enumerate(data.tokens))
    sidecar = {
        "name": "dist_bpe",
        "pat_str": data.pattern.tiktoken_regex,
        "special_tokens": data.special_ids,
        "explicit_n_vocab": len(data),
    }
    return {"vocab.tiktoken": b"".join(lines), "tiktoken.json": to_json(sidecar)}


def merge_columns(merges: Sequence[tuple[int, int]]) -> tuple[pa.Array, pa.Array]:
    """Merges as the native core takes them: their left and right ids."""
    lefts, rights = zip(*merges, strict=True) if merges else ((), ())
    return pa.array(lefts, pa.uint32()), pa.array(rights, pa.uint32())


def read_tiktoken(ranks: bytes, sidecar: bytes) -> VocabularyData:
    """Read both files; the merges are found again by encoding each token with those before it.

    Raises:
        FormatError: damaged, or not a byte-level vocabulary with the ids in our order.
    """
    where = "vocab.tiktoken and tiktoken.json"
    with _reading(where):
        settings = _load_json(sidecar, "tiktoken.json")
        special_ids: dict[str, int] = dict(settings["special_tokens"])
        pattern = find(settings["pat_str"])
        tokens = {i: token for token, i in tiktoken_ranks(ranks).items()}
        ids = sorted([*tokens, *special_ids.values()])
        if ids != list(range(len(ids))) or settings.get("explicit_n_vocab", len(ids)) != len(ids):
            raise FormatError(f"{where}: the ids of the {len(ids):,} tokens are not 0 to {len(ids) - 1:,}, each once.")
        first = min(tokens)
        ordered = [tokens.get(first + i, b"") for i in range(len(tokens))]
        if tuple(ordered[:BYTES]) != BYTE_TOKENS:
            raise FormatError(f"{where}: the first 256 tokens are not the bytes in GPT-2's order.")
        texts = sorted(special_ids, key=special_ids.__getitem__)
        before = sum(i < first for i in special_ids.values())
        return _with_specials(texts, before, recover_merges(ordered, where), pattern, {}, where)


def tiktoken_ranks(content: bytes) -> dict[bytes, int]:
    """The tokens and their ids in vocab.tiktoken, as `tiktoken.Encoding` takes them."""
    rows = (line.split() for line in content.splitlines() if line)
    return {base64.b64decode(token, validate=True): int(i) for token, i in rows}


def recover_merges(tokens: Sequence[bytes], where: str = "") -> tuple[tuple[int, int], ...]:
    """The merges of tokens in order of rank, the first 256 being bytes: the two parts a token's bytes come down to.

    Raises:
        FormatError: a token comes down to more than two parts.
    """
    numbers = {token: i for i, token in enumerate(tokens)}
    merges = []
    for i, token in enumerate(tokens[BYTES:], BYTES):
        parts = [token[at : at + 1] for at in range(len(token))]
        ranks = [numbers.get(token[at : at + 2], i) for at in range(len(token) - 1)]
        while len(parts) > 2 and (lowest := min(ranks)) < i:
            at = ranks.index(lowest)
            parts[at : at + 2] = [tokens[lowest]]
            del ranks[at]
            for pair in range(max(at - 1, 0), min(at + 1, len(ranks))):
                ranks[pair] = numbers.get(parts[pair] + parts[pair + 1], i)
        if len(parts) != 2:
            raise FormatError(f"{where}: the token {token!r} of rank {i - BYTES:,} is not made of two earlier ones.")
        merges.append((numbers[parts[0]], numbers[parts[1]]))
    return tuple(merges)


# ---- our own: merges.parquet


def write_parquet(data: VocabularyData) -> dict[str, bytes]:
    """merges.parquet: a row a merge (left and right id, count, replaced per source, token); the rest is metadata."""
    left, right = merge_columns(data.merges)
    first = pa.scalar(data.first_id, pa.uint32())
    columns = {
        "left": pc.add(left, first),
        "right": pc.add(right, first),
        "count": pa.array(data.counts or [None] * len(data.merges), pa.uint64()),
    }
    if data.replaced:
        arrays = [pa.array(numbers, pa.uint64()) for numbers in data.replaced.values()]
        columns["replaced"] = pa.StructArray.from_arrays(arrays, names=list(data.replaced))
    columns["token"] = pa.array(data.tokens[BYTES:], pa.binary())
    about = {
        "version": 1,
        "pattern": {"name": data.pattern.name, "regex": data.pattern.regex},
        "special_tokens": [{"text": special.text, "role": special.role} for special in data.special_tokens],
        "special_tokens_first": data.special_tokens_first,
        "padding": data.padding,
        "normalization": data.normalization,
    }
    table = pa.table(columns).replace_schema_metadata({"dist_bpe": json.dumps(about, ensure_ascii=False)})
    file = io.BytesIO()
    pq.write_table(table, file, compression="zstd", row_group_size=1 << 20)
    return {"merges.parquet": file.getvalue()}


def read_parquet(content: bytes) -> VocabularyData:
    """Read merges.parquet.

    Raises:
        FormatError: damaged, of a later version, or its pattern has another text than ours of that name.
    """
    where = "merges.parquet"
    with _reading(where):
        try:
            table = pq.read_table(io.BytesIO(content))
        except (OSError, pa.ArrowException) as error:  # damaged pages, or none at all
            raise FormatError(f"{where} is damaged ({error}).") from error
        if b"dist_bpe" not in (table.schema.metadata or {}):
            raise FormatError(f"{where} is not one of ours: its metadata have no entry dist_bpe.")
        about = json.loads(table.schema.metadata[b"dist_bpe"])
        if about["version"] != 1:
            raise FormatError(f"{where} is of version {about['version']}; this release reads version 1.")
        name, text = about["pattern"]["name"], about["pattern"]["regex"]
        pattern = find(name or text)
        if pattern.regex != text:
            raise FormatError(
                f"{where}: the pattern {name!r} was {text!r} when this vocabulary was made and is {pattern.regex!r} in "
                "this release; use the release that made it."
            )
        specials = tuple(SpecialToken(special["text"], special["role"]) for special in about["special_tokens"])
        first = len(specials) if about["special_tokens_first"] else 0
        left, right = (table.column(side).to_pylist() for side in ("left", "right"))
        counts = table.column("count")
        data = VocabularyData(
            tuple((a - first, b - first) for a, b in zip(left, right, strict=True)),
            pattern,
            specials,
            about["special_tokens_first"],
            about["padding"],
            normalization_form(about["normalization"]),
            None if counts.null_count else tuple(counts.to_pylist()),
            _replaced(table),
        )
        if list(data.tokens[BYTES:]) != table.column("token").to_pylist():
            raise FormatError(f"{where} is damaged: its tokens are not what its merges make.")
        return data


def _replaced(table: pa.Table) -> dict[str, tuple[int, ...]] | None:
    """The counts per source, where the file has them."""
    if "replaced" not in table.column_names:
        return None
    struct = table.column("replaced").combine_chunks()
    return {column.name: tuple(struct.field(column.name).to_pylist()) for column in struct.type}


FORMATS: dict[str, Format] = {
    format.name: format
    for format in (
        Format(
            "gpt2",
            ("vocab.json", "merges.txt"),
            frozenset({"ids", "merges", "special tokens"}),
            write_gpt2,
        ),
        Format(
            "tokenizers",
            ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"),
            frozenset({"ids", "merges", "pattern", "normalization", "special tokens", "roles"}),
            write_tokenizers,
        ),
        Format(
            "tiktoken",
            ("vocab.tiktoken", "tiktoken.json"),
            frozenset({"ids", "merges", "pattern", "special tokens"}),
            write_tiktoken,
        ),
        Format("parquet", ("merges.parquet",), frozenset(CARRIED), write_parquet),
    )
}
"""The formats by name."""


def chosen_formats(names: Iterable[str] | None) -> list[Format]:
    """The formats of these names, or all.

    Raises:
        UsageError: a name that is none.
    """
    if isinstance(names, str):
        raise TypeError("formats is a list of names, not one string")
    chosen = list(FORMATS) if names is None else list(dict.fromkeys(names))
    for name in chosen:
        if name not in FORMATS:
            raise UsageError(f"unknown format {name!r}; the formats are: {', '.join(FORMATS)}.")
    return [FORMATS[name] for name in chosen]


def write(data: VocabularyData, names: Iterable[str] | None = None) -> tuple[dict[str, bytes], dict[str, str]]:
    """The bytes of the files by name, and for each format that was left out the reason.

    Args:
        data: what to write.
        names: the formats; one that cannot hold the vocabulary is an error. By default all that can hold it.

    Raises:
        UsageError: an unknown format.
        FormatError: a named format cannot hold this vocabulary.
    """
    files: dict[str, bytes] = {}
    left_out: dict[str, str] = {}
    for format in chosen_formats(names):
        try:
            files |= format.write(data)
        except FormatError as error:
            if names is not None:
                raise
            left_out[format.name] = str(error)
    return files, left_out


def not_carried(data: VocabularyData, names: Iterable[str] | None = None) -> list[str]:
    """What the user of each format has to do himself, since its files cannot say it; a sentence each."""
    if data.normalization is None:
        return []
    return [
        f"{' and '.join(format.files)} cannot say that text is to be brought into the form {data.normalization}: do it "
        "before encoding, or use another format."
        for format in chosen_formats(names)
        if "normalization" not in format.carries
    ]


def manifest(
    data: VocabularyData,
    files: Mapping[str, bytes],
    left_out: Mapping[str, str] | None = None,
    fingerprints: Mapping[str, Any] | None = None,
) -> bytes:
    """manifest.json: what the vocabulary is, where it comes from, and the SHA-256 of each file."""
    value = {
        "format": "dist_bpe vocabulary",
        "version": 1,
        "fingerprints": dict(sorted((fingerprints or {}).items())),
        "sizes": {"total": len(data)} | data.sizes,
        "pattern": {
            "name": data.pattern.name,
            "regex": data.pattern.regex,
            "unicode_tables": _core.UNICODE_TABLES,
            "llama_cpp": data.pattern.llama_cpp,
        },
        "special_tokens": [
            {"text": special.text, "role": special.role, "id": data.special_ids[special.text]}
            for special in data.special_tokens
        ],
        "normalization": data.normalization,
        "left_out": dict(left_out or {}),
        "files": {
            name: {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
            for name, content in sorted(files.items())
        },
    }
    return to_json(value)


def publish_files(folder: RunPath, files: Mapping[str, bytes], check: Callable[[Path], None] = lambda _: None) -> None:
    """Put a vocabulary's files, manifest.json among them, into a folder: all of them, or none.

    They are written to a temporary folder, looked at by `check`, and moved. A new folder appears whole. In one that is
    there already the old manifest goes first, the new one comes last, and files of the old one that are no more are
    removed; what else lies there (a model, a report) is left alone. So a folder with a manifest is always complete. In
    an object store a new one, too, is put there file by file.
    """
    try:
        if isinstance(folder, Path) and not folder.exists():
            with publish_folder(folder) as temporary:
                _write_all(temporary, files)
                check(temporary)
            return
        beside = folder.parent if isinstance(folder, Path) else None
        with tempfile.TemporaryDirectory(prefix=f".{folder.name}.", dir=beside) as name:
            _write_all(Path(name), files)
            check(Path(name))
            old = _manifest_files(folder)
            (folder / MANIFEST).unlink(missing_ok=True)
            for gone in old.keys() - files.keys():
                (folder / gone).unlink(missing_ok=True)
            for file in sorted(files, key=MANIFEST.__eq__):
                with publish(folder / file) as path:
                    path.write_bytes(files[file])
    except OSError as error:
        raise UsageError(f"the files cannot be written to {folder}: {error.strerror or error}.") from error


def _write_all(folder: Path, files: Mapping[str, bytes]) -> None:
    for name, content in files.items():
        (folder / name).write_bytes(content)


def _manifest_files(folder: RunPath) -> dict[str, str]:
    """The SHA-256 of each file that a folder's manifest names; empty if there is no manifest of ours."""
    try:
        value = json.loads((folder / MANIFEST).read_bytes())
        if value["format"] != "dist_bpe vocabulary":
            return {}
        # Names of ours only: a manifest from elsewhere must not lead out of its folder.
        return {Path(name).name: str(file["sha256"]) for name, file in value["files"].items()}
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def load(path: RunPath, pattern: Pattern | None = None) -> VocabularyData:
    """Read a vocabulary from its folder, or from one of its files (with those that belong to it beside it).

    Of several formats in a folder the one that carries most is read. Files whose SHA-256 is in the folder's manifest
    must have it.

    Args:
        path: the folder or file.
        pattern: for the format gpt2, which names none; GPT-2's by default.

    Raises:
        UsageError: nothing there, or another pattern than the file's own is given.
        FormatError: a file is missing, damaged, changed since it was written, or of another layout.
    """
    if path.is_dir():
        for name, digest in _manifest_files(path).items():
            file = path / name
            if file.is_file() and sha256(file) != digest:
                raise FormatError(f"{file} is not the file that {MANIFEST} names: it was changed or damaged.")
        for richest in ("parquet", "tokenizers", "tiktoken", "gpt2"):
            if (path / FORMATS[richest].files[0]).is_file():
                return read(path, richest, pattern)
        known = ", ".join(file.files[0] for file in FORMATS.values())
        raise UsageError(f"{path} holds no vocabulary: none of {known} is there.")
    if not path.is_file():
        raise UsageError(f"no vocabulary at {path}: there is no such file or folder.")
    for format in FORMATS.values():
        if path.name in format.files:
            return read(path.parent, format.name, pattern)
    # A file of another name is known by its ending; what belongs to it has the same stem.
    match path.suffix:
        case ".parquet":
            return read_files([path], "parquet", pattern)
        case ".json":
            return read_files([path], "tokenizers", pattern)
        case ".tiktoken":
            return read_files([path, path.with_suffix(".json")], "tiktoken", pattern)
    raise UsageError(
        f"{path} is no vocabulary file by its name; it should be one of "
        f"{', '.join(name for format in FORMATS.values() for name in format.files)}."
    )


def read(folder: RunPath, format: str, pattern: Pattern | None = None) -> VocabularyData:
    """Read the files of one format in a folder.

    Args:
        folder: where they lie, under their usual names.
        format: its name.
        pattern: for a format that names none; GPT-2's by default.

    Raises:
        FormatError: a file is missing, damaged or of another layout.
    """
    return read_files([folder / name for name in FORMATS[format].files], format, pattern)


def read_files(paths: Sequence[RunPath], format: str, pattern: Pattern | None = None) -> VocabularyData:
    """As `read`, with the paths of the files in the order of `Format.files`."""
    if format == "gpt2":
        data = read_gpt2(_read(paths[0]), _read(paths[1]), pattern or GPT2)
    elif format == "tokenizers":
        config = next((path for path in paths[1:] if path.is_file()), None)
        data = read_tokenizers(_read(paths[0]), _read(config) if config else None)
    elif format == "tiktoken":
        data = read_tiktoken(_read(paths[0]), _read(paths[1]))
    else:
        data = read_parquet(_read(paths[0]))
    if pattern is not None and data.pattern != pattern:
        raise UsageError(
            f"{paths[0]} was made with the pattern {data.pattern.name or data.pattern.regex!r}; another one would cut "
            "text into other words than it was learned from."
        )
    return data


def _read(path: RunPath) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise FormatError(f"{path} cannot be read: {error.strerror or error}.") from error


def _decode(content: bytes, where: str) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise FormatError(f"{where} is damaged: it is not UTF-8 from byte {error.start:,} on.") from error


def _load_json(content: bytes, where: str) -> Any:
    try:
        return json.loads(content)
    except ValueError as error:
        raise FormatError(f"{where} is damaged: it does not hold JSON ({error}).") from error


def table() -> str:
    """What each format carries, as the Markdown table of docs/formats.md."""
    rows = [["format", "files", *CARRIED], ["---"] * (2 + len(CARRIED))]
    for format in FORMATS.values():
        files = ", ".join(f"`{name}`" for name in format.files)
        rows.append([f"`{format.name}`", files, *("yes" if item in format.carries else "no" for item in CARRIED)])
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)
