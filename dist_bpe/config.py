"""The configuration of a run: one model for the command line, the API and TOML files; unknown options are errors."""

import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ByteSize,
    ConfigDict,
    Field,
    PlainSerializer,
    SkipValidation,
    ValidationError,
    model_validator,
)

from dist_bpe.counts import DEFAULT_PARTITIONS
from dist_bpe.errors import UsageError, sentence_of, without_secrets
from dist_bpe.formats import BYTES, ROLES, SpecialToken
from dist_bpe.mixture import Mixture
from dist_bpe.pretokenize import Normalization
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
    #: Not shown, since a URI may hold a login.
    paths: Annotated[list[str], BeforeValidator(lambda value: [value] if isinstance(value, str) else value)] = Field(
        default=[], repr=False
    )
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


def _or_none(value: Any) -> Any:
    """TOML has no null, so that "none" says it."""
    return None if value == "none" else value


Specials = list[Annotated[SpecialToken, BeforeValidator(special_token)]]


class CountConfig(_Model):
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


def vocab_sizes(value: Any) -> Any:
    """Sizes from one number, a list of them, or `8000,16000,32000`: each once, the smallest first."""
    if isinstance(value, str):
        if not all(size.strip().isascii() and size.strip().isdigit() for size in value.split(",")):
            raise ValueError("whole numbers are needed, with commas between them")
        value = [int(size) for size in value.split(",")]
    if isinstance(value, int) and not isinstance(value, bool):
        value = [value]
    if not isinstance(value, (list, tuple)) or not value or not all(type(size) is int and size > 0 for size in value):
        raise ValueError("whole numbers above 0 are needed")
    return tuple(sorted(set(value)))


VocabSizes = Annotated[
    tuple[int, ...],
    BeforeValidator(vocab_sizes),
    # One size is written as the number it is.
    PlainSerializer(lambda sizes: sizes[0] if len(sizes) == 1 else list(sizes)),
]


class LearnConfig(_Model):
    """What decides the vocabulary.

    Attributes:
        vocab_size: all tokens: bytes, merges and special tokens. Several sizes make several vocabularies from one
            training to the largest: merges are nested.
        mixture: how much each source counts; in a file it may stand as a table of its own, `[mixture]`.
        parity: instead of a mixture, parity-aware merges on a parallel development set: "dev" (the language whose text
            takes most tokens chooses the next merge), "ratio" (the one whose training text is compressed least, against
            the lengths of parallel text), "window" (dev, but none chooses too often in a row), "hybrid" (dev after half
            the merges).
        min_pair_count: least count of a pair that is merged, in raw counts: see `Weights.least`.
        min_word_count: rarer words take no part in learning.
        max_token_bytes: tokens never grow longer than this.
        special_tokens_first: special tokens get the ids from 0 on instead of the last ones.
        pad_to_multiple: reserved tokens are added until the size is a multiple of this.
        driver_memory: bytes that learning may take, by default what is free: a table that needs more is refused.
    """

    vocab_size: VocabSizes
    mixture: Mixture = Mixture()
    parity: Literal["dev", "ratio", "window", "hybrid"] | None = None
    min_pair_count: int = Field(default=2, ge=1)
    min_word_count: int = Field(default=1, ge=1)
    max_token_bytes: int | None = Field(default=None, ge=2)
    special_tokens_first: bool = False
    pad_to_multiple: int | None = Field(default=None, ge=1)
    driver_memory: ByteSize | None = Field(default=None, ge=1)

    def merges(self, special_tokens: Sequence[SpecialToken]) -> int:
        """How many merges fill the largest vocabulary.

        Raises:
            UsageError: the bytes and special tokens alone are more than the smallest.
        """
        least = BYTES + len(special_tokens)
        if self.vocab_size[0] < least:
            raise UsageError(
                f"vocab_size {self.vocab_size[0]:,} is too small: {BYTES} bytes and {len(special_tokens)} special "
                f"tokens alone take {least:,}. Ask for {least:,} or more."
            )
        return self.largest - least

    @property
    def largest(self) -> int:
        """The largest vocabulary asked for."""
        return self.vocab_size[-1]


class EngineConfig(_Model):
    """Where work runs.

    Attributes:
        engine: `ray` (embedded, or the cluster at `address` or RAY_ADDRESS) or `local` threads.
        workers: tasks at once.
        address: the Ray cluster to join.
        stall_seconds: a task of Ray that takes longer, and four times as long as any that finished, is also tried on
            another node.
        memory_per_worker: bytes that a worker may take; by default its share of what is free. On Ray each task asks for
            as much if it is given.
    """

    engine: Literal["ray", "local"] = "ray"
    workers: int | None = Field(default=None, ge=1)
    address: str | None = None
    stall_seconds: float = Field(default=600, gt=0)
    memory_per_worker: ByteSize | None = Field(default=None, ge=1 << 20)


class RunConfig(_Model):
    """A whole run, as `dist-bpe train run.toml` reads it.

    Attributes:
        output: the run folder.
        name: the vocabulary's name below `vocabularies/`; its size by default.
        overwrite: replace a count table that stands in the folder already.
        restart: begin anew, whatever is in the folder, finished or not.
        verify: read every exported file again in its own library.
        verify_transformers: also reload the files in `transformers`, whose import takes seconds.
    """

    sources: list[SourceConfig] = Field(min_length=1)
    output: str
    name: str | None = Field(default=None, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
    overwrite: bool = False
    restart: bool = False
    verify: bool = True
    verify_transformers: bool = False
    count: CountConfig = CountConfig()
    learn: LearnConfig | None = None
    engine: EngineConfig = EngineConfig()

    @model_validator(mode="before")
    @classmethod
    def _mixture_of_its_own(cls, values: Any) -> Any:
        if isinstance(values, dict) and "mixture" in values:
            rest = {name: value for name, value in values.items() if name != "mixture"}
            learn = rest.get("learn", {})
            if "mixture" in learn:
                raise ValueError("[mixture] and [learn.mixture] exclude each other")
            return rest | {"learn": learn | {"mixture": values["mixture"]}}
        return values


def validate(model: type[BaseModel], values: dict[str, Any], where: str = "") -> Any:
    """Build a model from plain values; the first thing wrong becomes one sentence.

    Raises:
        UsageError: an unknown option, a missing one, or a value out of its range.
    """
    try:
        return model.model_validate(values)
    except ValidationError as error:
        message = sentence_of(error.errors()[0], model.model_fields)
        raise UsageError(f"{where + ': ' if where else ''}{message}") from None  # pydantic's would show what was given
    except UsageError as error:  # of a mixture, which says it in a sentence itself
        raise UsageError(f"{where + ': ' if where else ''}{error}") from error


def read_toml(path: str | Path) -> dict[str, Any]:
    """The values of a TOML file.

    Raises:
        UsageError: no such file, or no TOML.
    """
    try:
        with Path(path).open("rb") as file:
            values = tomllib.load(file)
    except OSError as error:
        raise UsageError(f"{without_secrets(str(path))} cannot be read: {error.strerror}.") from None
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{path} is no TOML: {error}.") from error
    return values


def read_table(path: str | Path, name: str) -> dict[str, Any]:
    """One table of a TOML file.

    Raises:
        UsageError: no such file, no TOML, or no such table in it.
    """
    values = read_toml(path)
    if not isinstance(values.get(name), dict):
        raise UsageError(f"{path} has no table [{name}].")
    return dict(values[name])


def read_config(path: str | Path) -> RunConfig:
    """Read a run's TOML file. Relative source paths and the output are relative to the working folder.

    Raises:
        UsageError: no such file, no TOML, an unknown option or a value out of its range.
    """
    values = read_toml(path)
    config: RunConfig = validate(RunConfig, values, str(path))
    return config
