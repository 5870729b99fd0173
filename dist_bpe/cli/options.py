"""Options of models as flags.

A command names the models whose options it takes, and `with_options` gives Typer a flag for each of their fields. What
the user gave comes to the command as a `Given` for each model, which is built there, or merged with a file first.
"""

import functools
import inspect
import os
import types
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from glob import iglob
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, TypeVar, Union, cast, get_args, get_origin

import typer
from pydantic import ByteSize
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined
from typer.core import TyperCommand

from dist_bpe.corpus.source import Source
from dist_bpe.counting.options import CountOptions, WordList
from dist_bpe.engine.options import EngineOptions
from dist_bpe.errors import UsageError
from dist_bpe.evaluation.options import BalanceOptions, MeasureOptions
from dist_bpe.learning.mixture import Mixture
from dist_bpe.learning.options import LearnOptions
from dist_bpe.learning.textbook import LessonOptions
from dist_bpe.options import Location, build, fields_of, flag_name, flag_of, in_python, model_in
from dist_bpe.run.config import ExportOptions, RunConfig, in_file, read_table, read_toml

M = TypeVar("M")
Command = TypeVar("Command", bound=Callable[..., Any])

Inputs = Annotated[
    list[str] | None,
    typer.Argument(metavar="INPUT…", help="Files, folders, globs, URIs or @LIST; NAME=PATH names a source."),
]
InputsOrFile = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="INPUT…",
        help="Files, folders, globs, URIs or @LIST; NAME=PATH names a source. Or one file run.toml; flags beat it.",
    ),
]
Run = Annotated[str, typer.Argument(metavar="RUN", help="A run folder that holds a count table.")]
Output = Annotated[
    str | None,
    typer.Option("--output", "-o", metavar="RUN", help="The run folder: a path, or a URI of an object store."),
]
MixtureFile = Annotated[
    str | None, typer.Option("--mixture", metavar="FILE", help="A TOML file with a [mixture] table.")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
AllSources = Annotated[
    bool, typer.Option("--all-sources", help="Show every source in the tables; not the first 20 alone.")
]


# ---- from models to flags


@dataclass(frozen=True)
class Without:
    """Fields that a command has no flag for."""

    names: tuple[str, ...]

    def __init__(self, *names: str) -> None:
        object.__setattr__(self, "names", names)

    def takes(self, name: str) -> bool:
        """Whether there is a flag for a field."""
        return name not in self.names


class Only(Without):
    """The fields that a command has flags for; it has none for the others."""

    def takes(self, name: str) -> bool:
        """Whether there is a flag for a field."""
        return name in self.names


@dataclass(frozen=True)
class Given(Generic[M]):
    """What the user gave of one model's fields on the command line, as text."""

    model: Callable[..., M]
    values: Mapping[str, Any]

    def build(self, **more: Any) -> M:
        """The model, from these values and more.

        Raises:
            UsageError: an option that cannot work, by its flag.
        """
        return build(self.model, {**self.values, **more}, in_flags(self.model))

    def refuse(self, reason: str, *names: str) -> None:
        """Refuse fields that have no effect in this use of the command; all without names.

        Raises:
            UsageError: one was given.
        """
        for name in names or self.values:
            if name in self.values:
                raise UsageError(f"{flag_name(name, fields_of(self.model)[name])} has no effect {reason}.")


class Sections(TyperCommand):
    """A command whose --help lists the options of each model under a heading, in the order of the data."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write arguments, then the command's own options, then those of each model."""
        for title, records in self.records(ctx).items():
            with formatter.section(title):
                formatter.write_dl(records)

    def records(self, ctx: Any) -> dict[str, list[tuple[str, str]]]:
        """What there is under each heading: how it is written, and what it means."""
        headings: dict[str, str] = getattr(self.callback, "sections", {})
        found: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": []}
        for parameter in self.get_params(ctx):
            title = "Arguments" if parameter.param_type_name == "argument" else "Options"
            if record := parameter.get_help_record(ctx):
                found.setdefault(headings.get(parameter.name or "", title), []).append(record)
        return {title: records for title, records in found.items() if records}


@dataclass(frozen=True)
class _Taken:
    """A flag of a command: the parameter that Typer sees, the field it sets, and whether it empties that instead."""

    parameter: inspect.Parameter
    field: str
    empties: bool = False


def with_options(function: Command) -> Command:
    """Give Typer a command with a flag for each field of the models that a function names as `Given` parameters."""
    plain: list[inspect.Parameter] = []
    taken: dict[str, tuple[Any, list[_Taken]]] = {}
    sections: dict[str, str] = {}
    for parameter in inspect.signature(function, eval_str=True).parameters.values():
        annotated = get_origin(parameter.annotation) is Annotated
        annotation, *notes = get_args(parameter.annotation) if annotated else (parameter.annotation,)
        if get_origin(annotation) is not Given:
            plain.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY))
            continue
        (model,) = get_args(annotation)
        chosen = next((note for note in notes if isinstance(note, Without)), Without())
        flags = [
            flag
            for name, field in fields_of(model).items()
            if flag_of(field).cli and chosen.takes(name)
            for flag in _flags(name, field)
        ]
        taken[parameter.name] = (model, flags)
        title = heading(model).partition(":")[0].rstrip(".")
        sections |= {flag.parameter.name: title for flag in flags}

    @functools.wraps(function)
    def run(**values: Any) -> Any:
        given = {}
        for name, (model, flags) in taken.items():
            found = {flag: values.pop(flag.parameter.name) for flag in flags}
            given[name] = Given(model, _collected(model, found))
        return function(**values, **given)

    parameters = [*plain, *(flag.parameter for _, flags in taken.values() for flag in flags)]
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    run.sections = sections  # type: ignore[attr-defined]
    return cast(Command, run)


def heading(model: Any) -> str:
    """The first sentence of a model's docstring."""
    return inspect.cleandoc(model.__doc__).partition("\n")[0].partition(". ")[0].rstrip(".") + "."


def _flags(name: str, field: FieldInfo) -> Iterable[_Taken]:
    """The flags of a field: one, or two where the second empties a list. Values are text, which pydantic reads."""
    shown = flag_of(field)
    flag = flag_name(name, field)
    yes_or_no = bool in types_in(field.annotation)
    default = shown.shown
    if (
        default is None
        and not field.is_required()
        and not yes_or_no
        and field.default not in (None, (), [], {}, PydanticUndefined)
    ):
        default = str(field.default)
    help = f"{field.description}{f'  [default: {default}]' if default else ''}"
    if yes_or_no:
        spelling = f"{flag}/--no-{flag[2:]}" if field.default is True else flag
        yield _taken(name, bool | None, typer.Option(spelling, help=help, show_default=False), flag)
        return
    kind = list[str] | None if shown.repeated else str | None
    metavar = shown.metavar or _metavar(field.annotation)
    complete = completing(*(shown.choices or choices_of(field.annotation)))
    option = typer.Option(flag, help=help, metavar=metavar, show_default=False, autocompletion=complete)
    yield _taken(name, kind, option, flag)
    if shown.none:
        none = typer.Option(shown.none, help=f"No {flag[2:].replace('-', ' ')} at all.", show_default=False)
        yield _taken(name, bool | None, none, shown.none, empties=True)


def _taken(field: str, kind: Any, option: Any, flag: str, empties: bool = False) -> _Taken:
    parameter = inspect.Parameter(
        flag[2:].replace("-", "_"),
        inspect.Parameter.KEYWORD_ONLY,
        default=None,
        annotation=Annotated[kind, option],
    )
    return _Taken(parameter, field, empties)


def types_in(annotation: Any) -> list[Any]:
    """A type, and those inside Optional and Annotated."""
    if get_origin(annotation) in (Annotated, Union, types.UnionType):
        return [found for part in get_args(annotation) for found in types_in(part)]
    return [annotation]


def choices_of(annotation: Any) -> tuple[str, ...]:
    """The texts that a type allows, if it lists them, also as elements of a list."""
    if get_origin(annotation) is Literal:
        return get_args(annotation)
    return next((found for part in get_args(annotation) if (found := choices_of(part))), ())


def completing(*choices: str) -> Callable[[str], list[str]] | None:
    """What a shell asks for the values of an option; None where it is to name files."""
    # Typer looks at each of these functions: 6 ms of every start, for what only a shell that completes needs.
    if not choices or "_DIST_BPE_COMPLETE" not in os.environ:
        return None
    return lambda incomplete: [choice for choice in choices if choice.startswith(incomplete)]


def _metavar(annotation: Any) -> str:
    for kind in types_in(annotation):
        if get_origin(kind) is Literal:
            return "|".join(get_args(kind))
        if kind in (int, float, ByteSize):
            return {int: "N", float: "X"}.get(kind, "SIZE")
    return "TEXT"


def _collected(model: Any, found: Mapping[_Taken, Any]) -> dict[str, Any]:
    """The values of fields from those of flags, where they were given."""
    values: dict[str, Any] = {}
    for flag, value in found.items():
        if value is None or value == []:
            continue
        field = fields_of(model)[flag.field]
        if flag.empties:
            if flag.field in values:
                raise UsageError(f"{flag_name(flag.field, field)} and {flag_of(field).none} exclude each other.")
            value = []
        elif get_origin(field.annotation) is dict:
            value = _entries(flag_name(flag.field, field), value)
        values[flag.field] = value
    return values


def _entries(flag: str, values: Iterable[str]) -> dict[str, str]:
    """The table of NAME=NUMBER options."""
    numbers: dict[str, str] = {}
    for value in values:
        name, equals, number = value.rpartition("=")
        if not equals or not name or name in numbers:
            raise UsageError(f"{flag} {value} is not NAME=NUMBER, each name once.")
        numbers[name] = number
    return numbers


def in_flags(model: Any) -> Callable[[Location], str]:
    """How the command line spells an option of a model, or of the models in it: by its flag."""

    def spelled(location: Location) -> str:
        at, flag = model, ""
        for place, part in enumerate(location):
            if isinstance(part, int):
                continue
            field = fields_of(at).get(part) if at else None
            if field is None:
                rest = [str(each) for each in location[place:] if not isinstance(each, int)]
                return " ".join([flag, *rest]) if flag else in_python(location)
            at = model_in(field.annotation)
            # A model has no flag: what is said of it as a whole names the options itself.
            flag = flag_name(part, field) if flag_of(field).cli else "" if at and part != "sources" else part
        return flag

    return spelled


# ---- what commands share


def _matches(pattern: str) -> bool:
    return any(True for _ in iglob(pattern))  # noqa: PTH207  # a path that may be absolute, or hold links


def named_path(value: str) -> tuple[str, str]:
    """A name and a path from NAME=PATH or PATH.

    Raises:
        UsageError: the name or the path is empty, as where a variable of the shell is not set.
    """
    name, equals, path = value.partition("=")
    # A path may hold an equals sign itself (`lang=de/part.parquet`, `lang=*/*.parquet`): what is there is a path.
    if (
        not equals
        or any(sign in name for sign in ("/", "*", "?", "[", "://"))
        or Path(value).exists()
        or _matches(value)
    ):
        if not value:
            raise UsageError("an input is empty: name a file, folder, glob or URI.")
        return "corpus", value
    if not name or not path:
        raise UsageError(f"{value!r} has no {'path' if name else 'name'}: write NAME=PATH, or a path.")
    return name, path


def named_paths(values: Iterable[str]) -> dict[str, list[str]]:
    """The paths of each name."""
    named: dict[str, list[str]] = {}
    for name, path in map(named_path, values):
        named.setdefault(name, []).append(path)
    return named


def run_config(
    inputs: list[str] | None, output: str | None, mixture_file: str | None = None, **given: Given[Any]
) -> RunConfig:
    """The configuration of a run, from INPUT… and flags, or from a file run.toml, whose values flags replace.

    Args:
        inputs: the paths, or the one TOML file.
        output: the run folder.
        mixture_file: a TOML file with a [mixture] table.
        given: what was given of `source`, `count`, `engine`, `learn`, `mixture` and `export`, where a command has them.

    Raises:
        UsageError: nothing to read, no run folder, or an option that cannot work; it is named as it was written.
    """
    file = inputs[0] if inputs and len(inputs) == 1 and inputs[0].endswith(".toml") else None
    if not inputs:
        raise UsageError("name at least one file, folder, glob or URI to read.")
    if not file and (configuration := next((path for path in inputs if path.endswith(".toml")), None)):
        raise UsageError(
            f"{configuration} describes a whole run: give it alone, and the other inputs in its [[sources]]."
        )
    values: dict[str, Any] = read_toml(file) if file else {}
    own_table = "mixture" in values  # and not one of [learn]
    flags: set[Location] = set()
    for section in ("count", "engine", "learn"):
        if section in given and (more := given[section].values):
            values[section] = {**_table(values, section), **more}
            flags |= {(section, name) for name in more}
    if mixture := mixture_values(mixture_file, given.get("mixture")):
        values.pop("mixture", None)
        values["learn"] = _table(values, "learn") | {"mixture": mixture}
        flags.add(("learn", "mixture"))
    if "export" in given:
        values |= given["export"].values
        flags |= {(name,) for name in given["export"].values}
    if output is not None:
        values["output"] = output
    elif "output" not in values:
        raise UsageError("name the run folder with --output (-o).")
    reading = given["source"].values if "source" in given else {}
    if not file:
        values["sources"] = [{"name": name, "paths": paths} for name, paths in named_paths(inputs).items()]
    if isinstance(values.get("sources"), list):
        values["sources"] = [
            {**source, **reading} if isinstance(source, dict) else source for source in values["sources"]
        ]
    by_flag, by_key = in_flags(RunConfig), in_file(file) if file else in_flags(RunConfig)

    def spelled(location: Location) -> str:
        in_source = location[:1] == ("sources",) and location[-1] in reading
        as_flag = in_source or location[:1] in flags or location[:2] in flags
        if location[:2] == ("learn", "mixture") and own_table and not as_flag:
            location = location[1:]
        return by_flag(location) if as_flag else by_key(location)

    return build(RunConfig, values, spelled)


def _table(values: Mapping[str, Any], name: str) -> dict[str, Any]:
    """A table of a file, to be changed; what is none is left to pydantic to complain of."""
    table = values.get(name, {})
    return dict(table) if isinstance(table, Mapping) else {name: table}


def mixture_values(file: str | None, given: Given[Mixture] | None) -> dict[str, Any]:
    """The values of a mixture, from a file or from flags.

    Raises:
        UsageError: both, or a mixture that cannot be.
    """
    if given is None:
        return {}
    if file is None:
        given.build()
        return dict(given.values)
    given.refuse(f"beside --mixture {file}: a mixture comes from a file or from flags")
    values = read_table(file, "mixture")
    build(Mixture, values, lambda location: in_file(file)(("mixture", *location)))
    return values


LogFormat = Annotated[
    str,
    typer.Option(
        help="text, or json: one event a line on standard error.",
        envvar="DIST_BPE_LOG_FORMAT",
        autocompletion=completing("text", "json"),
    ),
]


# ---- docs/options.md


def document() -> str:
    """The tables of docs/options.md: every option with its flag, its key in a file, its default, and what it means."""
    sections: list[tuple[str, str, Any]] = [
        ("[[sources]]", "Source", Source),
        ("[count]", "count, import_counts", CountOptions),
        ("[mixture]", "Mixture", Mixture),
        ("[learn]", "learn", LearnOptions),
        ("[engine]", "count", EngineOptions),
        ("", "WordList", WordList),
        ("", "learn", LessonOptions),
        ("", "", ExportOptions),
        ("", "", MeasureOptions),
        ("", "", BalanceOptions),
    ]
    text = ""
    for table, function, model in sections:
        text += f"\n## {heading(model)}\n\n"
        places = [f"`{table}` in a file"] if table else ["The top of a file"] if model is ExportOptions else []
        places += [", ".join(f"`dist_bpe.{name}`" for name in function.split(", "))] if function else []
        if places:
            text += f"{'; '.join(places)}.\n\n"
        text += "| name | flag | default | meaning |\n|---|---|---|---|\n"
        for name, field in fields_of(model).items():
            shown = flag_of(field)
            flag = f"`{flag_name(name, field)}`" if shown.cli else ""
            flag += f", `{shown.none}`" if shown.none else ""
            default = "" if field.is_required() else shown.shown or _as_toml(field.default)
            row = (f"`{name}`", flag, default, field.description or "")
            text += f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |\n"
    return text


def _as_toml(value: Any) -> str:
    if value in (None, (), [], {}, PydanticUndefined):
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)
