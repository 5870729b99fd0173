"""The options that decide the count table."""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from dist_bpe.options import Options
from dist_bpe.pretokenize.preparation import DEFAULT_SPECIAL, Normalization, SpecialToken, special_token


def _or_none(value: Any) -> Any:
    """TOML has no null, so that "none" says it."""
    return None if value == "none" else value


Specials = list[Annotated[SpecialToken, BeforeValidator(special_token)]]


DEFAULT_PARTITIONS = 16


class CountOptions(Options):
    """What decides the count table.

    Attributes:
        pattern: a named pattern, or any regular expression of the `regex` module.
        normalization: the form that text between special tokens is brought into before the pattern runs, in counting
            and in encoding: NFC, NFD, NFKC, NFKD, or "none", which leaves each text as it is.
        special_tokens: cut out of the text before the pattern runs, and added to the vocabulary.
        max_word_bytes: longer words are counted in pieces of at most so many bytes; the manifest says how many were.
        min_word_count: rarer words are dropped from the table for good; the manifest says how many.
        partitions: parts of the table.
        shard_bytes: text bytes one task counts; by default from the size of the whole.
        table_bytes: memory of a task's word table, beyond which it is written as a sorted run.
    """

    pattern: str = "gpt2"
    normalization: Annotated[Normalization | None, BeforeValidator(_or_none)] = None
    special_tokens: Specials = [SpecialToken(DEFAULT_SPECIAL, "eos")]
    max_word_bytes: int | None = Field(default=None, ge=4)
    min_word_count: int = Field(default=1, ge=1)
    partitions: int = Field(default=DEFAULT_PARTITIONS, ge=1, le=65_536)
    shard_bytes: int | None = Field(default=None, ge=1)
    table_bytes: int = Field(default=1 << 29, ge=1 << 20)


Unit = Literal["bytes", "characters", "words", "documents"]
