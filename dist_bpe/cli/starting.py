"""A command to begin with: init."""

import contextlib
import dataclasses
import shlex
import sys
import textwrap
from collections.abc import Iterator, Mapping
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any, get_origin

import tomli_w
import typer
from pydantic import ByteSize
from pydantic.fields import FieldInfo

from dist_bpe.cli.app import command
from dist_bpe.cli.options import Given, Without, choices_of, heading, named_paths, run_config, types_in, with_options
from dist_bpe.corpus.source import Source
from dist_bpe.counting.options import CountOptions
from dist_bpe.engine.options import EngineOptions
from dist_bpe.errors import UsageError
from dist_bpe.learning.mixture import Mixture
from dist_bpe.learning.options import LearnOptions
from dist_bpe.options import fields_of, flag_of, model_in
from dist_bpe.pretokenize.preparation import SpecialToken
from dist_bpe.run.config import ExportOptions, json_schema

SCHEMA = "run.schema.json"
DEFAULT_INPUT = "data/"
DEFAULT_SIZE = "32000"
WIDTH = 100


@command
@with_options
def init(
    inputs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="INPUT…",
            help="Files, folders, globs, URIs or @LIST; NAME=PATH names a source.  [default: data/]",
        ),
    ] = None,
    output: Annotated[str, typer.Option("--output", "-o", metavar="FILE", help="The file to write.")] = "run.toml",
    run: Annotated[
        str | None, typer.Option("--run", metavar="RUN", help="The run folder that the file names.  [default: run]")
    ] = None,
    schema: Annotated[
        bool, typer.Option(help=f"Write {SCHEMA} beside it, by which editors complete and check the file.")
    ] = True,
    *,
    source: Given[Source],
    count: Annotated[Given[CountOptions], Without("min_word_count")],
    mixture: Given[Mixture],
    learn: Given[LearnOptions],
    engine: Given[EngineOptions],
    export: Given[ExportOptions],
) -> None:
    """Write a run.toml to begin with, with every option explained.

    Options that are given are set in it; the others stand there as comments, with their defaults. On a terminal it
    asks for what is not given and matters most. `dist-bpe train run.toml` takes the file as it is.
    """
    from dist_bpe.storage.files import create_if_absent, to_json

    file = Path(output)
    if file.exists():  # before any question
        raise UsageError(f"{file} is there already: name another file with --output (-o).")
    if configuration := next((path for path in inputs or () if path.endswith(".toml")), None):
        raise UsageError(f"{configuration} describes a whole run already: name what is to be read.")
    given: dict[str, Given[Any]] = {
        "source": source, "count": count, "mixture": mixture, "learn": learn, "engine": engine, "export": export,
    }  # fmt: skip
    if sys.stdin.isatty() and sys.stdout.isatty():
        inputs, run = _ask(inputs, run, given)
    given["learn"] = _with(given["learn"], "vocab_size", DEFAULT_SIZE)
    inputs, run = inputs or [DEFAULT_INPUT], run or "run"
    run_config(inputs, run, None, **given)  # what cannot work is said now
    files = {file: "".join(f"{line}\n" for line in _configuration(inputs, run, given, schema)).encode()}
    if schema:
        files[file.parent / SCHEMA] = to_json(json_schema())
        old = file.parent / SCHEMA
        if old.exists() and old.read_bytes() != files[old]:
            raise UsageError(f"{old} is there already and another one: remove it, or give --no-schema.")
    for path, content in files.items():
        if not create_if_absent(path, content) and path == file:
            raise UsageError(f"{file} is there already: name another file with --output (-o).")
    print(f"{file} is written. Look through it, and then: dist-bpe train {file}")


def _with(given: Given[Any], name: str, value: str) -> Given[Any]:
    """What was given, and one value more where it was not."""
    return Given(given.model, {name: value, **given.values})


def _ask(inputs: list[str] | None, run: str | None, given: dict[str, Given[Any]]) -> tuple[list[str], str]:
    """Ask for what was not given and matters most; the answers go into `given`.

    Raises:
        UsageError: the questions were not answered.
    """
    questions = (
        ("source", "group_by", "The column that names each row's source; empty if each input is one", ""),
        ("count", "pattern", "The pattern that cuts text into words", "gpt2"),
        ("learn", "vocab_size", "The number of tokens", DEFAULT_SIZE),
        ("engine", "engine", "Where work runs: ray or local", "ray"),
    )
    try:
        if not inputs:
            text = typer.prompt("What is read: files, folders, globs, URIs, or NAME=PATH", default=DEFAULT_INPUT)
            inputs = shlex.split(text)
        for section, name, question, default in questions:
            if name not in given[section].values:
                answer = typer.prompt(question, default=default, show_default=bool(default))
                if answer:
                    given[section] = _with(given[section], name, answer)
        return inputs, run or typer.prompt("The run folder", default="run")
    except typer.Abort:
        raise UsageError("the questions were not answered; flags answer them, too (--help).") from None
    except ValueError as error:  # a quotation mark without its other
        raise UsageError(f"{text!r} cannot be taken apart: {error}.") from None


def _configuration(inputs: list[str], run: str, given: Mapping[str, Given[Any]], schema: bool) -> Iterator[str]:
    """The lines of the file."""
    if schema:
        yield f"#:schema ./{SCHEMA}"
    yield "# A run of dist-bpe. What stands behind a # without a space is a default, or an example where there is none."
    yield "# A flag of `dist-bpe train` beats this file."
    yield from ("", "# The run folder: a path, or a URI of an object store.", f"output = {_toml(run)}")
    yield from _options(ExportOptions, given["export"].values)
    for number, (name, paths) in enumerate(named_paths(inputs).items()):
        yield from ("", "[[sources]]")
        values = {"name": name, "paths": paths[0] if len(paths) == 1 else paths, **given["source"].values}
        if number == 0:
            yield from _options(Source, values)
        else:  # explained above
            fields = fields_of(Source)
            yield from (f"{key} = {_toml(_typed(fields[key], value))}" for key, value in values.items())
    for section, model in _SECTIONS.items():
        yield from ("", f"# {heading(model)}", f"[{section}]")
        yield from _options(model, given[section].values)


_SECTIONS = {"count": CountOptions, "learn": LearnOptions, "mixture": Mixture, "engine": EngineOptions}


def _options(model: Any, values: Mapping[str, Any]) -> Iterator[str]:
    """Each option of a model: what it means, and its value, or in a comment its default."""
    for name, field in fields_of(model).items():
        declared = flag_of(field)
        if not declared.file or model_in(field.annotation) not in (None, SpecialToken):  # a table of its own
            continue
        help = field.description or ""
        if field.default in (None, {}):
            help += f" Default: {declared.shown or 'none'}."
        yield ""
        yield from textwrap.wrap(help, WIDTH, initial_indent="# ", subsequent_indent="# ", break_on_hyphens=False)
        if name in values:
            yield f"{name} = {_toml(_typed(field, values[name]))}"
        else:
            yield f"#{name} = {_toml(_shown(field))}"


def _shown(field: FieldInfo) -> Any:
    """The default of an option, or an example where it has none."""
    if field.default not in (None, {}) and not field.is_required():
        return field.default
    declared = flag_of(field)
    if declared.example is not None:
        return declared.example
    return next(iter(declared.choices or choices_of(field.annotation)), "")


def _typed(field: FieldInfo, value: Any) -> Any:
    """What a flag was given, as TOML has it: a number where the option takes one, unless that would change it."""
    if isinstance(value, dict):
        return {name: _number(number, exact=True) for name, number in value.items()}
    if not isinstance(value, str):
        return value
    types = types_in(field.annotation)
    if any(get_origin(kind) is tuple for kind in types):  # sizes, with commas between them
        sizes = [_number(size.strip(), exact=True) for size in value.split(",")]
        return sizes if len(sizes) > 1 else sizes[0]
    if any(kind in types for kind in (int, float, ByteSize, Fraction)):
        return _number(value, exact=float not in types)
    return value


def _number(text: str, exact: bool) -> Any:
    for kind in (int, float):
        with contextlib.suppress(ValueError):
            if str(kind(text)) == text or (kind is float and not exact):
                return kind(text)
    return text


def _toml(value: Any) -> str:
    """A value as TOML, in one line."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _toml(dataclasses.asdict(value))
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, dict):
        # A key alone is written by the library, which knows when it needs quotation marks.
        return (
            "{ "
            + ", ".join(
                f"{tomli_w.dumps({key: 0}).removesuffix(' = 0' + chr(10))} = {_toml(v)}" for key, v in value.items()
            )
            + " }"
        )
    return tomli_w.dumps({"x": value}).removeprefix("x = ").rstrip("\n")
