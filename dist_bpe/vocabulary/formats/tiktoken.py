"""vocab.tiktoken, and a sidecar with what else `tiktoken.Encoding` takes."""

import base64
import itertools
import json
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from dist_bpe import _core
from dist_bpe.errors import FormatError
from dist_bpe.pretokenize.patterns import Pattern, find
from dist_bpe.storage.files import to_json
from dist_bpe.vocabulary.data import BYTE_TOKENS, BYTES, VocabularyData, merge_columns
from dist_bpe.vocabulary.formats.format import Files, Format, Reader, reading, with_specials


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


def read_tiktoken(files: Files, _: Pattern | None = None) -> VocabularyData:
    """Read both files; the merges are found again by encoding each token with those before it.

    Raises:
        FormatError: damaged, or not a byte-level vocabulary with the ids in our order.
    """
    where = files.where()
    with reading(where):
        settings = files.json("tiktoken.json")
        special_ids: dict[str, int] = dict(settings["special_tokens"])
        pattern = find(settings["pat_str"])
        tokens = {i: token for token, i in tiktoken_ranks(files.content["vocab.tiktoken"]).items()}
        ids = sorted([*tokens, *special_ids.values()])
        if ids != list(range(len(ids))) or settings.get("explicit_n_vocab", len(ids)) != len(ids):
            raise FormatError(f"{where}: the ids of the {len(ids):,} tokens are not 0 to {len(ids) - 1:,}, each once.")
        first = min(tokens)
        ordered = [tokens.get(first + i, b"") for i in range(len(tokens))]
        if tuple(ordered[:BYTES]) != BYTE_TOKENS:
            raise FormatError(f"{where}: the first 256 tokens are not the bytes in GPT-2's order.")
        texts = sorted(special_ids, key=special_ids.__getitem__)
        before = sum(i < first for i in special_ids.values())
        return with_specials(texts, before, recover_merges(ordered, where), pattern, {}, where)


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


def _in_tiktoken(folder: Path, _: VocabularyData) -> Reader:
    import tiktoken

    # Its own reader of this file keeps a cache that goes by path, and older releases need one more package for it.
    ranks = tiktoken_ranks((folder / "vocab.tiktoken").read_bytes())
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
)
