"""How an option is declared, checked and named in messages."""

from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from dist_bpe.errors import UsageError, without_secrets


class Options(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, arbitrary_types_allowed=True)


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


def sentence_of(problem: Mapping[str, Any], known: Iterable[str]) -> str:
    """What pydantic says of one value, as a sentence; `known` are the options there are."""
    name = ".".join(str(part) for part in problem["loc"])
    if problem["type"] == "extra_forbidden":
        return f"unknown option {name!r}; known here are: {', '.join(known)}."
    if problem["type"] == "missing":
        return f"the option {name!r} is missing."
    message = problem["msg"].removeprefix("Value error, ")
    given = problem["input"]
    if isinstance(given, (str, int, float, bool)) or given is None:
        return f"{name + ': ' if name else ''}{message}, not {without_secrets(repr(given))}."
    # A whole table would hide the one thing that is wrong in it.
    return f"{name + ': ' if name else ''}{message}."
