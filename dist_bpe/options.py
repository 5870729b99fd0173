"""How an option is declared, checked and named in messages.

An option is one field of one model, which stands beside the step that uses it. Its type, limits, default and help text
are said there alone: flags of the command line, keys of TOML files, keywords of Python, messages and docs/options.md
follow from the model.
"""

import functools
import inspect
import operator
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.fields import FieldInfo

from dist_bpe.errors import UsageError, without_secrets

Location = tuple[str | int, ...]
"""Where an option stands: the names of the fields on the way to it, with indices and keys of tables."""


class Options(BaseModel):
    """The options of one step. Unknown ones are errors, and none can be set afterwards."""

    # Validators are built when they are first used: --help needs the fields alone.
    model_config = ConfigDict(extra="forbid", frozen=True, arbitrary_types_allowed=True, defer_build=True)


#: What the native core takes for a count.
MOST = (1 << 64) - 1
M = TypeVar("M")
T = TypeVar("T", bound=type[Any])


@dataclass(frozen=True)
class Flag:
    """How the command line shows a field.

    Attributes:
        name: the flag, with its dashes; None for `--the-field`.
        metavar: what stands for its value in --help.
        shown: the default in words, where the value says nothing.
        repeated: the flag is given once for each element of a list, or as NAME=VALUE once for each entry of a table.
        none: another flag, which empties the list.
        cli: whether there is a flag at all.
        choices: values that a shell completes, where the type does not list them.
        file: whether it can stand in a TOML file.
        example: a value that may stand there, for an option whose default is none.
    """

    name: str | None = None
    metavar: str | None = None
    shown: str | None = None
    repeated: bool = False
    none: str | None = None
    cli: bool = True
    choices: tuple[str, ...] = ()
    file: bool = True
    example: Any = None

    def __call__(self, schema: dict[str, Any]) -> None:
        """Leave the JSON schema as it is; pydantic keeps a callable with each field for this purpose alone."""


def option(
    default: Any = ...,
    help: str = "",
    *,
    flag: str | None = None,
    metavar: str | None = None,
    shown: str | None = None,
    repeated: bool = False,
    none: str | None = None,
    cli: bool = True,
    choices: Sequence[str] = (),
    file: bool = True,
    example: Any = None,
    **limits: Any,
) -> Any:
    """Declare an option: its default, its meaning in a sentence, how the command line shows it (see `Flag`), limits.

    The limits are those of `pydantic.Field`, such as ge=1.
    """
    extra = Flag(flag, metavar, shown, repeated, none, cli, tuple(choices), file, example)
    # An instance as the default would have its model's validator built at once; a `default_factory` waits.
    defaults = {} if "default_factory" in limits else {"default": default}
    return Field(**defaults, description=help, json_schema_extra=extra, **limits)


def fields_of(model: Any) -> Mapping[str, FieldInfo]:
    """The fields of a model or a pydantic dataclass."""
    found: Mapping[str, FieldInfo] = getattr(model, "__pydantic_fields__", None) or model.model_fields
    return found


def flag_of(field: FieldInfo) -> Flag:
    """How the command line shows a field."""
    extra = field.json_schema_extra
    return extra if isinstance(extra, Flag) else Flag(cli=False)


def flag_name(name: str, field: FieldInfo) -> str:
    """The flag of a field: --the-name, unless it has another."""
    return flag_of(field).name or f"--{name.replace('_', '-')}"


def model_in(annotation: Any) -> Any:
    """The model in a field's type, inside Optional, lists and Annotated; None if it is a plain value."""
    if isinstance(annotation, type) and hasattr(annotation, "__pydantic_fields__"):
        return annotation
    return next((found for part in get_args(annotation) if (found := model_in(part)) is not None), None)


def both(model: Any, name: str) -> str:
    """An option in a message that does not know how it was given: its name in Python and files, and its flag."""
    field = fields_of(model)[name]
    return f"{name} ({flag_name(name, field)})" if flag_of(field).cli else name


def in_python(location: Location) -> str:
    """How Python spells an option: by its keyword, or by the names on the way to it."""
    return ".".join(map(str, location))


def build(
    model: Callable[..., M],
    values: Mapping[str, Any],
    spelled: Callable[[Location], str] = in_python,
    known: Sequence[str] = (),
) -> M:
    """Build a model from plain values; the first thing wrong becomes one sentence.

    Args:
        model: a model or a pydantic dataclass.
        values: its fields.
        spelled: how the user wrote an option: --min-pair-count, learn.min_pair_count, or min_pair_count.
        known: what else could have been given beside the fields, for the sentence about an unknown one.

    Raises:
        UsageError: an unknown option, a missing one, or a value out of its range.
    """
    try:
        validated = model.__pydantic_validator__.validate_python(dict(values))  # type: ignore[attr-defined]
    except ValidationError as error:
        # Nothing of pydantic's own text stays in the chain: it shows what was given, and that may hold secrets.
        raise UsageError(sentence_of(error, model, spelled, known)) from None
    return validated  # type: ignore[no-any-return]


def in_one_sentence(cls: T) -> T:
    """Make a model or pydantic dataclass say in one sentence what is wrong with its arguments, as a `UsageError`.

    A decorator, and no `__init__` of its own: where the class stands inside another, pydantic tells the place itself.
    """
    make: Callable[..., None] = cls.__init__

    @functools.wraps(make)
    def __init__(self: Any, /, *arguments: Any, **options: Any) -> None:
        try:
            make(self, *arguments, **options)
        except ValidationError as error:
            name = options.get("name", arguments[0] if arguments else "")
            raise UsageError(
                f"{cls.__name__.lower()}{f' {name!r}' if name else ''}: {sentence_of(error, cls)}"
            ) from None

    cls.__init__ = __init__
    if issubclass(cls, BaseModel):
        # pydantic's own comes when the validator is built, and shows the validators in it.
        cls.__signature__ = inspect.Signature(
            [
                inspect.Parameter(
                    name,
                    inspect.Parameter.KEYWORD_ONLY,
                    default=inspect.Parameter.empty if field.is_required() else field.default,
                    annotation=plain_type(field.annotation),
                )
                for name, field in fields_of(cls).items()
            ]
        )
    return cls


def plain_type(annotation: Any) -> Any:
    """A field's type without what pydantic is told of it."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return plain_type(arguments[0])
    if origin in (Union, types.UnionType):
        return functools.reduce(operator.or_, map(plain_type, arguments))
    generic: Any = origin
    return generic[tuple(map(plain_type, arguments))] if isinstance(origin, type) else annotation


def sentence_of(
    error: ValidationError, model: Any, spelled: Callable[[Location], str] = in_python, known: Iterable[str] = ()
) -> str:
    """The first thing that pydantic says of some values, as a sentence."""
    problem = error.errors()[0]
    location = problem["loc"]
    if location and isinstance(location[0], int):  # of a dataclass that was given it by position
        location = (list(fields_of(model))[location[0]], *location[1:])
    # A file's name stands before the sentence, and the key in it.
    where, colon, name = spelled(location).rpartition(": ")
    if problem["type"] in ("extra_forbidden", "unexpected_keyword_argument"):
        names = [*fields_of(_at(model, location[:-1])), *known]
        return f"{where}{colon}unknown option {name!r}; known here are: {', '.join(names)}."
    if problem["type"] in ("missing", "missing_argument"):
        return f"{where}{colon}the option {name!r} is missing."
    if problem["type"] in ("byte_size", "byte_size_unit"):
        problem["msg"] = "it should be a size such as 500MB or 16GB"
    message = problem["msg"].removeprefix("Value error, ").partition(", unable to parse")[0]
    message = f"{where}{colon}{name}{': ' if name else ''}{message.replace('Input should', 'it should')}"
    given = problem["input"]
    if isinstance(given, (str, int, float, bool)) or given is None:
        return f"{message}, not {without_secrets(repr(given))}."
    # A whole table would hide the one thing that is wrong in it.
    return f"{message}."


def _at(model: Any, location: Location) -> Any:
    """The model at a place inside another."""
    for part in location:
        field = fields_of(model).get(str(part)) if not isinstance(part, int) else None
        model = model_in(field.annotation) if field else model
    return model
