"""vocab.tiktoken, and a sidecar with what else `tiktoken.Encoding` takes."""

import binascii
import heapq
import itertools
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dist_bpe import _core
from dist_bpe.arrays import of_bytes, to_numpy
from dist_bpe.errors import FormatError, UsageError
from dist_bpe.pretokenize.patterns import Pattern, find
from dist_bpe.storage.files import to_json
from dist_bpe.vocabulary.data import BYTE_TOKENS, BYTES, VocabularyData, merge_columns
from dist_bpe.vocabulary.formats.format import Files, Format, Reader, reading, shown, with_specials


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
    apart = np.diff(_encoded(data.merges, data.tokens)[1]) != 1
    if apart.any():
        i = int(apart.argmax())
        raise FormatError(
            f"tiktoken cannot hold the token {data.tokens[i]!r} of rank {i - BYTES:,}: earlier merges take its "
            "bytes apart, and the file has no merges to say otherwise. Leave the format tiktoken out."
        )
    lines = [
        b"%s %d\n" % (binascii.b2a_base64(token, newline=False), i)
        for i, token in enumerate(data.tokens, data.first_id)
    ]
    sidecar = {
        "name": "dist_bpe",
        "pat_str": data.pattern.tiktoken_regex,
        "special_tokens": data.special_ids,
        # It takes this for the number of tokens and for that of ids.
        **({} if data.unused else {"explicit_n_vocab": len(data)}),
    }
    return {"vocab.tiktoken": b"".join(lines), "tiktoken.json": to_json(sidecar)}


def read_tiktoken(files: Files, pattern: Pattern | None = None) -> VocabularyData:
    """Read both files, or vocab.tiktoken alone; the merges are found again from the tokens.

    A file without the other one has no pattern and no special tokens: it needs `pattern`, unless it bears the name of
    an encoding that `tiktoken` publishes and has as many tokens (`PUBLISHED`).

    Raises:
        FormatError: damaged, or not a byte-level vocabulary with the ids in our order.
        UsageError: the pattern is missing.
    """
    where = files.where()
    with reading(where):
        tokens = {i: token for token, i in tiktoken_ranks(files.content["vocab.tiktoken"]).items()}
    if "tiktoken.json" not in files.content:
        name = files.names["vocab.tiktoken"].removesuffix(".tiktoken")
        published = PUBLISHED.get(name)
        if pattern is None and published is None:
            raise UsageError(
                f"{where} holds tokens alone, and no file with its pattern lies beside it: name its pattern, such as "
                "cl100k or o200k (--pattern on the command line, pattern= in Python)."
            )
        with reading(where):
            named = published is not None and len(tokens) == published.tokens
            specials = dict(published.special_tokens) if published and named else {}
            return _of_tokens(tokens, specials, pattern or find(str(published and published.pattern)), where)
    with reading(where):
        settings = files.json("tiktoken.json")
        special_ids: dict[str, int] = dict(settings["special_tokens"])
        number = len(tokens) + len(special_ids)
        said = settings.get("explicit_n_vocab")
        if said not in (None, number):
            raise FormatError(f"{where}: there are {number:,} tokens, and explicit_n_vocab is {shown(said)}.")
        return _of_tokens(tokens, special_ids, find(settings["pat_str"]), where)


def _of_tokens(tokens: dict[int, bytes], special_ids: dict[str, int], pattern: Pattern, where: str) -> VocabularyData:
    """A vocabulary from its tokens and special tokens by id."""
    first = min(tokens, default=0)
    if sorted(tokens) != list(range(first, first + len(tokens))):
        raise FormatError(f"{where}: the ids of the {len(tokens):,} tokens are not one after another, each once.")
    if any(type(i) is not int for i in special_ids.values()) or len({*special_ids.values()} - tokens.keys()) < len(
        special_ids
    ):
        raise FormatError(f"{where}: a special token has the id of another token, or one that is no whole number.")
    ordered = [tokens[first + i] for i in range(len(tokens))]
    if tuple(ordered[:BYTES]) != BYTE_TOKENS:
        raise FormatError(f"{where}: the first 256 tokens are not the bytes in GPT-2's order.")
    return with_specials(special_ids, first, recover_merges(ordered, where), pattern, {}, where)


class Published(NamedTuple):
    """An encoding that is published as ranks alone: the rest of it stands in the code of `tiktoken`."""

    pattern: str
    tokens: int
    special_tokens: Mapping[str, int]


PUBLISHED = {
    "gpt2": Published("gpt2", 50_256, {"<|endoftext|>": 50_256}),
    "r50k_base": Published("gpt2", 50_256, {"<|endoftext|>": 50_256}),
    "cl100k_base": Published(
        "cl100k",
        100_256,
        {
            "<|endoftext|>": 100_257, "<|fim_prefix|>": 100_258, "<|fim_middle|>": 100_259, "<|fim_suffix|>": 100_260,
            "<|endofprompt|>": 100_276,
        },
    ),
    "o200k_base": Published("o200k", 199_998, {"<|endoftext|>": 199_999, "<|endofprompt|>": 200_018}),
}  # fmt: skip
"""By the name of the file, without its ending."""


def tiktoken_ranks(content: bytes) -> dict[bytes, int]:
    """The tokens and their ids in vocab.tiktoken, as `tiktoken.Encoding` takes them.

    Raises:
        ValueError: a line that is not a token in base64 and its id, or a token that stands there twice.
    """
    ranks: dict[bytes, int] = {}
    for line in content.splitlines():
        if line:
            token, number = line.split()
            # What `base64.b64decode` does, which asks for the type of each token first.
            bytes_of = binascii.a2b_base64(token, strict_mode=True)
            if bytes_of in ranks:
                raise ValueError(f"the token {bytes_of!r} stands there twice")
            ranks[bytes_of] = int(number)
    return ranks


def recover_merges(tokens: Sequence[bytes], where: str = "") -> tuple[tuple[int, int], ...]:
    """The merges of tokens in order of rank, the first 256 being bytes: the two parts a token's bytes come down to.

    Blocks of tokens are encoded by the native core with all merges before them, so that little is left to join. It
    joins what is a merge, where `tiktoken` joins whatever is a token; both are the same if in the end each token's own
    bytes encode to it (the first place where they differ would be inside a token of which the core makes two). If not,
    the tokens are taken apart one by one by the rule.

    Raises:
        FormatError: a token comes down to more than two parts.
    """
    numbers = {token: i for i, token in enumerate(tokens)}
    merges: list[tuple[int, int]] = []
    try:
        while len(merges) < len(tokens) - BYTES:
            done = len(merges)
            block = tokens[BYTES + done : BYTES + done + max(BYTES, done // 4)]
            ids, ends = _encoded(merges, block)
            starts = ends[:-1]
            padded = np.append(ids, [0, 0])  # so that there is a second part behind each start
            parts = list(zip(padded[starts].tolist(), padded[starts + 1].tolist(), strict=True))
            for at in np.flatnonzero(np.diff(ends) != 2).tolist():
                own = ids[ends[at] : ends[at + 1]].tolist()
                parts[at] = _last_two(tokens, numbers, BYTES + done + at, [tokens[i] for i in own])
            merges += parts
        if (np.diff(_encoded(merges, tokens)[1]) == 1).all():
            return tuple(merges)
    except (FormatError, ValueError):
        pass
    return tuple(
        _last_two(tokens, numbers, i, [token[at : at + 1] for at in range(len(token))], where)
        for i, token in enumerate(tokens[BYTES:], BYTES)
    )


def _encoded(merges: Sequence[tuple[int, int]], words: Sequence[bytes]) -> tuple[Any, Any]:
    """Numbers of the tokens of some words by some merges; where each word begins among them, and the last one ends."""
    encoder = _core.Encoder(*merge_columns(merges), None, [], [], 0)
    ids, ends = encoder.encode_words(of_bytes(words))
    return to_numpy(ids), to_numpy(ends)


def _last_two(
    tokens: Sequence[bytes], numbers: Mapping[bytes, int], i: int, parts: list[bytes], where: str = ""
) -> tuple[int, int]:
    """The two parts that some parts of a token come down to, by the tokens before it.

    A queue of pairs by rank and place, since a token of a hundred thousand bytes may come here byte by byte.
    """
    left: list[bytes | None] = [*parts, None]  # a part that was joined to the one before it is None
    number, after, before = len(parts), list(range(1, len(parts) + 1)), list(range(-1, len(parts) - 1))
    queue: list[tuple[int, int]] = []

    def look_at(at: int) -> None:
        first, second = left[at], left[after[at]]
        if first is not None and second is not None and (rank := numbers.get(first + second, i)) < i:
            heapq.heappush(queue, (rank, at))

    for at in range(number):
        look_at(at)
    while queue and number > 2:
        rank, at = heapq.heappop(queue)
        first, second = left[at], left[after[at]]
        if first is None or second is None or first + second != tokens[rank]:
            continue  # one of them has been joined since
        left[at], left[after[at]] = tokens[rank], None
        after[at] = after[after[at]]
        number -= 1
        if after[at] < len(parts):
            before[after[at]] = at
        look_at(at)
        if before[at] >= 0:
            look_at(before[at])
    parts = [part for part in left if part is not None]
    if len(parts) != 2:
        raise FormatError(
            f"{where}: the token {_short(tokens[i])} of rank {i - BYTES:,} is not made of two earlier ones."
        )
    return numbers[parts[0]], numbers[parts[1]]


def _short(token: bytes) -> str:
    return repr(token if len(token) < 40 else token[:40] + b"\xe2\x80\xa6")


def _in_tiktoken(folder: Path, data: VocabularyData) -> Reader:
    import tiktoken

    # Its own reader of vocab.tiktoken keeps a cache that goes by path, and older releases need one more package for it.
    # Ours has read the file already and found these tokens there: a second time it would find them again.
    ranks = {token: i for i, token in enumerate(data.tokens, data.first_id)}
    settings = json.loads((folder / "tiktoken.json").read_bytes())
    encoding = tiktoken.Encoding(**settings, mergeable_ranks=ranks)
    return lambda text: encoding.encode(text, allowed_special="all"), encoding.decode


FORMAT = Format(
    "tiktoken",
    ("vocab.tiktoken", "tiktoken.json"),
    frozenset({"ids", "merges", "pattern", "special tokens"}),
    write_tiktoken,
    read_tiktoken,
    {"tiktoken": _in_tiktoken},
    optional=frozenset({"tiktoken.json"}),
)
