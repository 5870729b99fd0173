"""GPT-2's files: vocab.json and merges.txt."""

import tempfile
from pathlib import Path

from dist_bpe.errors import FormatError
from dist_bpe.pretokenize.patterns import GPT2, Pattern
from dist_bpe.pretokenize.preparation import ROLES
from dist_bpe.vocabulary.data import VocabularyData
from dist_bpe.vocabulary.formats.format import (
    Files,
    Format,
    NotReadError,
    Reader,
    compact_json,
    from_keys,
    reader_of_tokenizers,
    reader_of_transformers,
    reading,
)

FILES = ("vocab.json", "merges.txt")


def write_gpt2(data: VocabularyData) -> dict[str, bytes]:
    """vocab.json (key to id) and merges.txt (a merge a line, its two keys with a space between).

    Raises:
        FormatError: a merge whose line would be read as a comment.
    """
    keys = data.token_keys
    lines = ["#version: 0.2", *(f"{keys[left]} {keys[right]}" for left, right in data.merges)]
    # `tokenizers` drops every line that begins so, not only the first.
    rank = next((rank for rank, line in enumerate(lines[1:]) if line.startswith("#version")), None)
    if rank is not None:
        raise FormatError(
            f"merges.txt cannot hold the merge {lines[1 + rank]!r} of rank {rank:,}: readers take a line that begins "
            "with #version for a comment. Leave the format gpt2 out; tokenizers, tiktoken and parquet hold it."
        )
    return {"vocab.json": compact_json(data.keys()), "merges.txt": ("\n".join(lines) + "\n").encode()}


def read_gpt2(files: Files, pattern: Pattern | None = None) -> VocabularyData:
    """Read the pair. It names no pattern (the GPT-2 classes of `transformers` have theirs) and no roles.

    Raises:
        FormatError: damaged, or not a byte-level vocabulary with the ids in our order.
    """
    where = files.where()
    # A line ends at \n and nowhere else; only the first may be the version.
    lines = files.text("merges.txt").split("\n")
    if lines[0].startswith("#version"):
        del lines[0]
    pairs = [line.removesuffix("\r").split(" ") for line in lines if line.strip("\r")]
    with reading(where):
        return from_keys(files.json("vocab.json"), pairs, pattern or GPT2, where)


def _in_tokenizers(folder: Path, data: VocabularyData) -> Reader:
    try:
        from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    except ImportError as error:
        raise NotReadError("since this release reads tokenizer.json alone") from error
    tokenizer = Tokenizer(models.BPE.from_file(str(folder / "vocab.json"), str(folder / "merges.txt")))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(text, normalized=False) for text in data.special_ids])
    return reader_of_tokenizers(tokenizer)


def _in_transformers(folder: Path, data: VocabularyData) -> Reader:
    from transformers import AddedToken, GPT2TokenizerFast

    # Alone in a folder, so that the class cannot fall back on tokenizer.json.
    with tempfile.TemporaryDirectory() as alone:
        for name in FILES:
            (Path(alone) / name).write_bytes((folder / name).read_bytes())
        # The class gives <|endoftext|> three roles of its own accord, and adds it where the vocabulary has none.
        roles = {f"{role}_token": None for role in ROLES if role != "other"}
        tokenizer = GPT2TokenizerFast.from_pretrained(alone, **roles)
    tokenizer.add_tokens([AddedToken(text, normalized=False, special=True) for text in data.special_ids])
    return reader_of_transformers(tokenizer)


FORMAT = Format(
    "gpt2",
    FILES,
    frozenset({"ids", "merges", "special tokens"}),
    write_gpt2,
    read_gpt2,
    {"tokenizers": _in_tokenizers, "transformers": _in_transformers},
)
