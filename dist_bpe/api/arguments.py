"""What the functions of the package share: their arguments become the options and sources of the steps below.

Each option stands in a signature with its type and default, where `inspect.signature`, a notebook's Shift-Tab and type
checkers see it. `tests/api/test_signatures.py` holds these equal to the models.
"""

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, ParamSpec, Protocol, TypeVar

from dist_bpe.corpus.heldout import HeldOut, read_parallel
from dist_bpe.corpus.source import Source
from dist_bpe.counting.table import CountTable
from dist_bpe.errors import UsageError
from dist_bpe.learning.mixture import Mixture
from dist_bpe.options import build, fields_of
from dist_bpe.pretokenize.preparation import SpecialToken, special_token
from dist_bpe.run.config import in_file, read_table
from dist_bpe.storage.bucket import BucketPath
from dist_bpe.storage.files import RunPath

M = TypeVar("M")
P = ParamSpec("P")
R = TypeVar("R")
Style = Literal["auto", "bars", "lines", "json", "silent"]
"""How progress is told."""


class Frame(Protocol):
    """A table of any library that gives it to Arrow: of pyarrow, pandas, polars, duckdb and others."""

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """See the Arrow PyCapsule interface."""


Text = Source | str | Path | Frame
"""What is read: a source, the path of one named corpus, or a table with a column `text`."""
Run = CountTable | str | RunPath
"""A count table, or the folder of its run."""
Parallel = HeldOut | str | Path
"""A parallel set, or its file."""


def public(function: Callable[P, R]) -> Callable[P, R]:
    """Make an unknown keyword a sentence that lists the known ones, as files and the command line have it."""
    parameters = inspect.signature(function).parameters.values()
    known = [each.name for each in parameters if each.kind is not inspect.Parameter.VAR_POSITIONAL]

    @functools.wraps(function)
    def called(*arguments: P.args, **options: P.kwargs) -> R:
        unknown = next((name for name in options if name not in known), None)
        if unknown is not None:
            raise UsageError(f"unknown option {unknown!r}; known here are: {', '.join(known)}.")
        return function(*arguments, **options)

    return called


def options_of(model: Callable[..., M], given: Mapping[str, Any], **more: Any) -> M:
    """A model from those of a function's arguments that are its fields, so that no name is written twice.

    None stands for the default of a field that takes no None, a mixture or a table: Python would share a mutable one.

    Raises:
        UsageError: an option that cannot work.
    """
    values = {
        name: given[name]
        for name, field in fields_of(model).items()
        if name in given and not (given[name] is None and field.default is not None)
    }
    return build(model, values | more)


def special_tokens_of(given: Any) -> list[SpecialToken]:
    """Special tokens from texts, `ROLE=TEXT` and tokens.

    Raises:
        UsageError: one text in place of a list, or something else in it.
    """
    wrong = [given] if isinstance(given, str) else [each for each in given if not isinstance(each, (str, SpecialToken))]
    if wrong:
        raise UsageError(f"special_tokens is a list of texts or SpecialToken: {wrong[0]!r} is neither list nor one.")
    return [special_token(token) for token in given]


def mixture_of(given: Any) -> Mixture:
    """A mixture, or that of the [mixture] table of a file; the natural one of None.

    Raises:
        UsageError: no such file or table, or a mixture that cannot be.
    """
    if given is None or isinstance(given, Mixture):
        return given or Mixture()
    if not isinstance(given, (str, Path, BucketPath)):
        raise UsageError(
            "a mixture is a dist_bpe.Mixture, or the path of a file with a [mixture] table, not "
            f"{type(given).__name__}."
        )
    spelled = in_file(given)
    return build(Mixture, read_table(given, "mixture"), lambda location: str(spelled(("mixture", *location))))


def sources_of(given: Iterable[Any]) -> list[Source]:
    """Sources as they are; paths together, and a table, as one named corpus.

    Raises:
        UsageError: something else.
    """
    sources: list[Source] = []
    paths: list[str] = []
    for each in given:
        if isinstance(each, Source):
            sources.append(each)
        elif isinstance(each, (str, Path)):
            paths.append(str(each))
        elif hasattr(each, "__arrow_c_stream__") or hasattr(each, "__arrow_c_array__"):
            sources.append(Source("corpus", documents=each))
        elif isinstance(each, Mapping):
            raise UsageError(
                "a dict is no source: write a Source for each of its entries, as in "
                "*(Source(name, paths) for name, paths in …items()), or with documents=… for texts in memory."
            )
        else:
            raise UsageError(
                f"a source is a dist_bpe.Source, a path or a table, not {type(each).__name__}: write "
                "Source(name, paths), or Source(name, documents=…) for documents in memory."
            )
    return [*([Source("corpus", paths)] if paths else []), *sources]


def several_of(given: Any) -> Sequence[Any]:
    """One thing or a list of them, as a list."""
    return given if isinstance(given, (list, tuple)) else [given]


def folder_of(run: Run) -> str | RunPath:
    """The folder of a count table."""
    return run.folder if isinstance(run, CountTable) else run


def held_out_of(given: Any, name: str) -> HeldOut | None:
    """A parallel set from itself or its file.

    Args:
        given: either.
        name: the argument it was given as.

    Raises:
        UsageError: something else.
    """
    if not isinstance(given, (HeldOut, str, Path, type(None))):
        raise UsageError(f"{name} is a parallel set, or the path of its file, not {type(given).__name__}.")
    return read_parallel(given) if isinstance(given, (str, Path)) else given
