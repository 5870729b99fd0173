"""The configuration of a run: one model for the command line, the API and TOML files; unknown options are errors."""

import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, SkipValidation, ValidationError

from dist_bpe.counts import DEFAULT_PARTITIONS
from dist_bpe.errors import UsageError
from dist_bpe.formats import BYTES, ROLES, SpecialToken
from dist_bpe.sources import Source

DEFAULT_SPECIAL = "<|endoftext|>"


def special_token(value: Any) -> Any:
    """A special token from `TEXT` or `ROLE=TEXT`; GPT-2's own has the role eos unless said otherwise."""
    if not isinstance(value, str):
        return value
    role, equals, text = value.partition("=")
    if equals and role in ROLES:
        return SpecialToken(text, role)
    return SpecialToken(value, "eos" if value == DEFAULT_SPECIAL else "other")


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, arbitrary_types_allowed=True)


class SourceConfig(_Model):
    """One `[[sources]]` table: see `dist_bpe.Source`."""

    name: str = Field(min_length=1)
    paths: Annotated[list[str], BeforeValidator(lambda value: [value] if isinstance(value, str) else value)] = []
    text: str = "text"
    group_by: str | None = None
    format: str | None = None
    on_bad_file: Literal["error", "skip"] = "error"
    on_bad_row: Literal["error", "skip", "replace"] = "error"
    sample_fraction: float = Field(default=1.0, gt=0, le=1)
    max_bytes: int | None = Field(default=None, ge=1)
    seed: int = 0
    #: For the API alone: documents in memory.
    documents: SkipValidation[Any] = Field(default=None, exclude=True)

    def source(self) -> Source:
        """The source it describes."""
        return Source(**dict(self))


Specials = list[Annotated[SpecialToken, BeforeValidator(special_token)]]


class CountConfig(_Model):
    """What decides the count table.

    Attributes:
        pattern: a named pattern, or any regular expression of the `regex` module.
        special_tokens: cut out of the text before the pattern runs, and added to the vocabulary.
        min_word_count: rarer words are dropped from the table for good; the manifest says how many.
        partitions: parts of the table.
        shard_bytes: text bytes one task counts; by default from the size of the whole.
        table_bytes: memory of a task's word table, beyond which it is written as a sorted run.
    """

    pattern: str = "gpt2"
    special_tokens: Specials = [SpecialToken(DEFAULT_SPECIAL, "eos")]
    min_word_count: int = Field(default=1, ge=1)
    partitions: int = Field(default=DEFAULT_PARTITIONS, ge=1, le=65_536)
    shard_bytes: int | None = Field(default=None, ge=1)
    table_bytes: int = Field(default=1 << 29, ge=1 << 20)


class LearnConfig(_Model):
    """What decides the vocabulary.

    Attributes:
        vocab_size: all tokens: bytes, merges and special tokens.
        min_pair_count: least count of a pair that is merged.
        min_word_count: rarer words take no part in learning.
        max_token_bytes: tokens never grow longer than this.
        special_tokens_first: special tokens get the ids from 0 on instead of the last ones.
        pad_to_multiple: reserved tokens are added until the size is a multiple of this.
    """

    vocab_size: int = Field(ge=1)
    min_pair_count: int = Field(default=2, ge=1)
    min_word_count: int = Field(default=1, ge=1)
    max_token_bytes: int | None = Field(default=None, ge=2)
    special_tokens_first: bool = False
    pad_to_multiple: int | None = Field(default=None, ge=1)

    def merges(self, special_tokens: Sequence[SpecialToken]) -> int:
        """How many merges fill the vocabulary.

        Raises:
            UsageError: the bytes and special tokens alone are more than `vocab_size`.
        """
        least = BYTES + len(special_tokens)
        if self.vocab_size < least:
            raise UsageError(
                f"vocab_size {self.vocab_size:,} is too small: {BYTES} bytes and {len(special_tokens)} special "
                f"tokens alone take {least:,}. Ask for {least:,} or more."
            )
        return self.vocab_size - least


class EngineConfig(_Model):
    """Where work runs: `ray` (embedded, or the cluster at `address` or RAY_ADDRESS) or `local` threads."""

    engine: Literal["ray", "local"] = "ray"
    workers: int | None = Field(default=None, ge=1)
    address: str | None = None


class RunConfig(_Model):
    """A whole run, as `dist-bpe train run.toml` reads it.

    Attributes:
        output: the run folder.
        name: the vocabulary's name below `vocabularies/`; its size by default.
        overwrite: replace a count table that stands in the folder already.
        verify: read every exported file again in its own library.
        verify_transformers: also reload the files in `transformers`, whose import takes seconds.
    """

    sources: list[SourceConfig] = Field(min_length=1)
    output: str
    name: str | None = Field(default=None, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
    overwrite: bool = False
    verify: bool = True
    verify_transformers: bool = False
    count: CountConfig = CountConfig()
    learn: LearnConfig | None = None
    engine: EngineConfig = EngineConfig()


def validate(model: type[BaseModel], values: dict[str, Any], where: str = "") -> Any:
    """Build a model from plain values; the first thing wrong becomes one sentence.

    Raises:
        UsageError: an unknown option, a missing one, or a value out of its range.
    """
    try:
        return model.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(str(part) for part in first["loc"])
        if first["type"] == "extra_forbidden":
            known = ", ".join(model.model_fields)
            message = f"unknown option {name!r}; known here are: {known}."
        elif first["type"] == "missing":
            message = f"the option {name!r} is missing."
        else:
            message = f"{name + ': ' if name else ''}{first['msg']}, not {first['input']!r}."
        raise UsageError(f"{where + ': ' if where else ''}{message}") from error


def read_config(path: str | Path) -> RunConfig:
    """Read a run's TOML file. Relative source paths and the output are relative to the working folder.

    Raises:
        UsageError: no such file, no TOML, an unknown option or a value out of its range.
    """
    try:
        with Path(path).open("rb") as file:
            values = tomllib.load(file)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}.") from error
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{path} is no TOML: {error}.") from error
    config: RunConfig = validate(RunConfig, values, str(path))
    return config
