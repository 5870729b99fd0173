"""The options that decide the count table."""

from typing import Annotated, Any, Literal, get_args

from pydantic import AfterValidator, BeforeValidator, ConfigDict, WithJsonSchema
from pydantic.dataclasses import dataclass

from dist_bpe import _core
from dist_bpe.options import MOST, Options, in_one_sentence, option
from dist_bpe.pretokenize.preparation import DEFAULT_SPECIAL, Normalization, SpecialToken, special_token

DEFAULT_PARTITIONS = 16
#: `words` is a word, a space and its count a line, as `subword-nmt get-vocab` prints them.
WORD_FORMATS = ("parquet", "arrow", "jsonl", "csv", "tsv", "words")
Unit = Literal["bytes", "characters", "words", "documents"]


def _or_none(value: Any) -> Any:
    """TOML has no null, so that "none" says it."""
    return None if value == "none" else value


class CountOptions(Options):
    """What decides the count table."""

    pattern: Annotated[
        str, WithJsonSchema({"anyOf": [{"type": "string", "enum": list(_core.PATTERNS)}, {"type": "string"}]})
    ] = option(
        "gpt2",
        "The pattern that cuts text into words: a name, or a regular expression.",
        metavar="NAME|REGEX",
        choices=_core.PATTERNS,
    )
    normalization: Annotated[
        Normalization | None,
        BeforeValidator(_or_none),
        WithJsonSchema({"enum": ["none", *get_args(Normalization)]}),
    ] = option(
        None,
        "The form that text between special tokens is brought into first, in counting and in encoding: NFC, NFD, NFKC "
        "or NFKD.",
        shown="none, each text stays as it is",
    )
    special_tokens: list[Annotated[SpecialToken, BeforeValidator(special_token)]] = option(
        [SpecialToken(DEFAULT_SPECIAL, "eos")],
        "A special token, which is cut out of the text before the pattern runs and added to the vocabulary: TEXT, or "
        "ROLE=TEXT with a role of bos, eos, pad, unk, other.",
        flag="--special-token",
        metavar="TOKEN",
        example=[DEFAULT_SPECIAL],
        shown=DEFAULT_SPECIAL,
        repeated=True,
        none="--no-special-tokens",
    )
    max_word_bytes: int | None = option(
        None,
        "Longer words are counted in pieces of at most so many bytes; the manifest says how many were.",
        example=1000,
        ge=4,
        le=MOST,
    )
    min_word_count: int = option(
        1, "Rarer words are dropped from the table for good; the manifest says how many.", ge=1, le=MOST
    )
    partitions: int = option(DEFAULT_PARTITIONS, "The number of parts of the count table.", ge=1, le=65_536)
    shard_bytes: int | None = option(
        None,
        "The text bytes that one task counts.",
        shown="by the size of the whole",
        example=100_000_000,
        ge=1,
        le=1 << 62,
    )
    table_bytes: int = option(
        1 << 29,
        "The memory of a task's word table in bytes, beyond which it is written as a sorted spill.",
        shown="512 MiB",
        ge=1 << 20,
        le=1 << 62,
    )

    @property
    def special_texts(self) -> list[str]:
        """The texts of the special tokens."""
        return [token.text for token in self.special_tokens]


def _known(format: str | None) -> str | None:
    if format is not None and format not in WORD_FORMATS:
        raise ValueError(f"the formats are {', '.join(WORD_FORMATS)}")
    return format


@in_one_sentence
@dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class WordList:
    """Files of words and counts. For the options see the fields.

    Raises:
        UsageError: an option that is unknown or out of its range.
    """

    name: str = option(help="The source of words that name none.", cli=False, min_length=1)
    paths: tuple[str, ...] = option(help="Files, folders, globs or URIs, as in `Source`.", cli=False, repr=False)
    word: str = option("word", "The column of words, in formats that have columns.", flag="--word-column")
    count: str = option("count", "The column of counts, likewise.", flag="--count-column")
    source: str | None = option(
        None,
        "The column that names each word's source.",
        flag="--source-column",
        shown="source, where a file has it",
    )
    format: Annotated[str | None, AfterValidator(_known)] = option(
        None,
        "The file format: parquet, arrow, jsonl, csv, tsv or words (a word, a space and its count a line).",
        flag="--counts-format",
        metavar="FORMAT",
        choices=WORD_FORMATS,
        shown="as the extension tells",
    )
