"""The configuration of a run, from TOML, the command line or Python."""

import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, SkipValidation, model_validator

from dist_bpe.corpus.source import Source
from dist_bpe.counting.options import CountOptions
from dist_bpe.engine.options import EngineOptions
from dist_bpe.errors import UsageError, without_secrets
from dist_bpe.learning.options import LearnOptions
from dist_bpe.options import Options, validate


class SourceConfig(Options):
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


class RunConfig(Options):
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
    count: CountOptions = CountOptions()
    learn: LearnOptions | None = None
    engine: EngineOptions = EngineOptions()

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
