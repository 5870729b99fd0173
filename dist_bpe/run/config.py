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
from dist_bpe.options import Location, Options, fields_of, flag_of, in_python, option

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
        example="even",
    )
    overwrite: bool = option(False, "What stands there already is replaced.")
    restart: bool = option(False, "The run begins anew, whatever is in the folder, finished or not.")
    formats: list[FormatName] | None = option(
        None,
        "A format to write: gpt2, tokenizers, tiktoken or parquet.",
        flag="--export-format",
        metavar="FORMAT",
        shown="all that can hold the vocabulary",
        example=["tokenizers"],
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


def json_schema() -> dict[str, Any]:
    """What a file run.toml may hold, as a JSON schema (draft 2020-12), for editors; docs/run.schema.json is this one.

    It is a little narrower than what is read: numbers as texts, which the command line gives, are left out.
    """
    made = RunConfig.model_json_schema()
    models: dict[str, Any] = made.pop("$defs")
    for model, schema in ((RunConfig, made), (Source, models["Source"])):
        for name, declared in fields_of(model).items():
            if not flag_of(declared).file:
                del schema["properties"][name]
    models["CountOptions"]["properties"]["special_tokens"] |= {
        "items": {"anyOf": [{"type": "string"}, {"$ref": "#/$defs/SpecialToken"}]}
    }
    made["properties"]["mixture"] = {"$ref": "#/$defs/Mixture"}
    # Flags may give the rest.
    made["required"] = ["sources"]
    del models["LearnOptions"]["required"]
    plain: dict[str, Any] = _without_null(made | {"$defs": models})
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **plain}


def _without_null(schema: Any) -> Any:
    """A schema without what only Python has: null, titles made of names, docstrings beyond their first paragraph."""
    if isinstance(schema, list):
        return [_without_null(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    made = {name: _without_null(value) for name, value in schema.items() if name not in ("title", "ge", "format")}
    if isinstance(schema.get("properties"), dict):  # names of options, which may be those
        made["properties"] = {name: _without_null(value) for name, value in schema["properties"].items()}
        made["description"] = schema.get("description", "").partition("\n\n")[0].replace("\n", " ")
        made["additionalProperties"] = False
    if made.get("default", 0) in (None, [], {}):
        del made["default"]
    if "anyOf" in made:
        kinds = [kind for kind in made.pop("anyOf") if kind != {"type": "null"}]
        made |= {"anyOf": kinds} if len(kinds) > 1 else kinds[0]
    return made


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
        raise UsageError(f"{without_secrets(str(path))} has no table [{name}]: begin it with that line.")
    return dict(values[name])


def in_file(path: "str | RunPath") -> Any:
    """How an option in a TOML file is spelled in messages: the file, and the names on the way to the key."""
    shown = without_secrets(str(path))

    def spelled(location: Location) -> str:
        return f"{shown}: {in_python(location)}"

    return spelled
