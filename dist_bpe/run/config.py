"""The configuration of a run, from TOML, the command line or Python."""

import re
import tomllib
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import AfterValidator, Field, model_validator

from dist_bpe.corpus.source import Source
from dist_bpe.counting.options import CountOptions
from dist_bpe.engine.options import EngineOptions
from dist_bpe.errors import UsageError, without_secrets
from dist_bpe.learning.options import LearnOptions
from dist_bpe.options import Location, Options, in_python, option

if TYPE_CHECKING:
    from dist_bpe.storage.files import RunPath

FormatName = Literal["gpt2", "tokenizers", "tiktoken", "parquet"]


def _plain_name(name: str | None) -> str | None:
    """A name that leads nowhere else."""
    if name is not None and not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", name):
        raise ValueError("it may hold letters, digits, dots, dashes and underscores, and begins with a letter or digit")
    return name


class ExportOptions(Options):
    """What is written, and checked."""

    name: Annotated[str | None, AfterValidator(_plain_name)] = option(
        None,
        "The vocabulary's name in the run folder; with several sizes each size is added to it.",
        shown="the size asked for",
    )
    overwrite: bool = option(False, "What stands there already is replaced.")
    restart: bool = option(False, "The run begins anew, whatever is in the folder, finished or not.")
    formats: list[FormatName] | None = option(
        None,
        "A format to write: gpt2, tokenizers, tiktoken or parquet.",
        flag="--export-format",
        metavar="FORMAT",
        shown="all that can hold the vocabulary",
        repeated=True,
    )
    verify: bool = option(True, "Each exported file is read again in its own library.")
    verify_transformers: bool = option(False, "The files are also read in transformers, whose import takes seconds.")


class RunConfig(ExportOptions):
    """A whole run, as `dist-bpe train run.toml` reads it."""

    sources: list[Source] = Field(min_length=1)
    output: str
    count: CountOptions = Field(default_factory=CountOptions)
    learn: LearnOptions | None = None
    engine: EngineOptions = Field(default_factory=EngineOptions)

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


def read_toml(path: "str | RunPath") -> dict[str, Any]:
    """The values of a TOML file.

    Raises:
        UsageError: no such file, or no TOML.
    """
    from dist_bpe.storage.files import parse_path  # loads Arrow, which --help does without

    shown = without_secrets(str(path))
    try:
        return tomllib.loads(parse_path(path).read_bytes().decode())
    except OSError as error:
        raise UsageError(f"{shown} cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError as error:
        raise UsageError(f"{shown} is no TOML: it is not UTF-8 from byte {error.start:,} on.") from None
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise UsageError(f"{shown} is no TOML: {error}.") from error


def read_table(path: "str | RunPath", name: str) -> dict[str, Any]:
    """One table of a TOML file.

    Raises:
        UsageError: no such file, no TOML, or no such table in it.
    """
    values = read_toml(path)
    if not isinstance(values.get(name), dict):
        raise UsageError(f"{without_secrets(str(path))} has no table [{name}].")
    return dict(values[name])


def in_file(path: "str | RunPath") -> Any:
    """How an option in a TOML file is spelled in messages: the file, and the names on the way to the key."""
    shown = without_secrets(str(path))

    def spelled(location: Location) -> str:
        return f"{shown}: {in_python(location)}"

    return spelled
