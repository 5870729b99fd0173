"""Options stand in the signatures of functions as the models have them: names, defaults, types."""

import ast
import inspect
import typing
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

import pytest
from pydantic import ByteSize
from pydantic_core import PydanticUndefined

import dist_bpe
from dist_bpe.api.arguments import special_tokens_of
from dist_bpe.counting.options import CountOptions
from dist_bpe.engine.options import EngineOptions
from dist_bpe.errors import UsageError
from dist_bpe.evaluation.options import BalanceOptions, MeasureOptions
from dist_bpe.learning import mixture
from dist_bpe.learning.mixture import Mixture, Number
from dist_bpe.learning.options import LearnOptions
from dist_bpe.options import fields_of, plain_type
from dist_bpe.pretokenize.preparation import SpecialToken
from dist_bpe.run.config import ExportOptions, FormatName
from dist_bpe.storage.files import RunPath

COUNT, LEARN, ENGINE = list(fields_of(CountOptions)), list(fields_of(LearnOptions)), list(fields_of(EngineOptions))
LEARN_BALANCED = ["vocab_size", "min_pair_count", "min_word_count", "max_token_bytes", "driver_memory"]
EVALUATED = ["table", "text", "parallel"]

# Of each function: the fields of models that it takes, and its other arguments.
TAKEN: dict[str, tuple[dict[Any, list[str]], list[str]]] = {
    "plan": ({CountOptions: ["shard_bytes"]}, ["sources"]),
    "count": (
        {CountOptions: COUNT, EngineOptions: ENGINE, ExportOptions: ["overwrite", "restart"]},
        ["sources", "output", "progress"],
    ),
    "add": ({ExportOptions: ["overwrite"]}, ["runs", "output", "progress"]),
    "import_counts": (
        # The others are about text.
        {
            CountOptions: [name for name in COUNT if name not in ("max_word_bytes", "shard_bytes")],
            ExportOptions: ["overwrite"],
        },
        ["lists", "output", "progress"],
    ),
    "learn": (
        {LearnOptions: LEARN, CountOptions: ["pattern", "normalization"]},
        [
            "counts", "num_merges", "special_tokens", "dev", "unit", "tie_break", "end_of_word", "unknown_token",
            "progress",
        ],
    ),
    "train": (
        {
            CountOptions: [name for name in COUNT if name != "min_word_count"],  # as on the command line
            LearnOptions: LEARN,
            EngineOptions: ENGINE,
            ExportOptions: list(fields_of(ExportOptions)),
        },
        ["sources", "output", "dev", "progress"],
    ),
    "evaluate": ({MeasureOptions: list(fields_of(MeasureOptions))}, ["vocabulary", *EVALUATED]),
    "compare": ({MeasureOptions: list(fields_of(MeasureOptions))}, ["vocabularies", *EVALUATED]),
    "balance": (
        {
            LearnOptions: LEARN_BALANCED,
            BalanceOptions: list(fields_of(BalanceOptions)),
            ExportOptions: ["overwrite"],
        },
        ["counts", "dev", "text", "test", "output", "progress"],
    ),
    "split": ({ExportOptions: ["overwrite"]}, ["parallel", "output", "dev", "seed"]),
    "export": (
        {ExportOptions: ["formats", "verify", "verify_transformers", "overwrite"]},
        ["vocabulary", "output"],
    ),
    "encode": ({}, ["vocabulary", "text", "allowed_special", "disallowed_special"]),
}  # fmt: skip
# What a user may write in place of what a model holds.
WIDER: dict[Any, Any] = {
    ByteSize | None: int | str | None,
    Mixture: Mixture | str | RunPath | None,
    list[SpecialToken]: Sequence[str | SpecialToken],
    tuple[int, ...]: int | Sequence[int],
    Path | None: Path | str | None,
    list[FormatName] | None: Sequence[FormatName] | None,
    dict[str, float]: Mapping[str, float] | None,
}
# One size, or the number of merges in its place.
OTHERWISE = {("learn", "vocab_size"): (int | None, None), ("balance", "vocab_size"): (int, inspect.Parameter.empty)}


def default_of(field: Any) -> Any:
    """A field's default as a signature has it: None in place of what Python would share between calls."""
    if field.is_required():
        return inspect.Parameter.empty
    return None if field.default is PydanticUndefined or field.default == {} else field.default


def functions() -> list[str]:
    return [name for name in dist_bpe.__all__ if inspect.isfunction(getattr(dist_bpe, name)) and name[0].islower()]


def test_every_function_is_looked_at() -> None:
    assert sorted(TAKEN) == functions()


@pytest.mark.parametrize("name", TAKEN)
def test_signatures_are_those_of_the_models(name: str) -> None:
    function = getattr(dist_bpe, name)
    parameters = inspect.signature(function).parameters
    hints = typing.get_type_hints(function)
    models, others = TAKEN[name]
    assert sorted(parameters) == sorted([*others, *(field for fields in models.values() for field in fields)])
    for model, fields in models.items():
        for field in fields:
            wanted = plain_type(fields_of(model)[field].annotation)
            wanted, default = WIDER.get(wanted, wanted), default_of(fields_of(model)[field])
            if (name, field) in OTHERWISE:
                wanted, default = OTHERWISE[name, field]
            given = parameters[field].default
            if field == "special_tokens":
                given = special_tokens_of(given)
            assert (hints[field], given, type(given)) == (wanted, default, type(default)) or (
                (hints[field], given) == (float, default)  # 600 is a float
            ), field
    for parameter in parameters.values():
        assert parameter.annotation is not inspect.Parameter.empty
        assert parameter.kind is not inspect.Parameter.VAR_KEYWORD
        assert f"\n        {parameter.name}: " in function.__doc__ or name == "encode", parameter.name
    assert hints["return"]


def test_overloads_are_parts_of_the_whole() -> None:
    for name in ("learn", "encode"):
        function = getattr(dist_bpe, name)
        whole = inspect.signature(function).parameters
        overloads = typing.get_overloads(function)
        assert len(overloads) == 2
        for overload in overloads:
            for key, parameter in inspect.signature(overload).parameters.items():
                assert (parameter.kind, parameter.default) == (whole[key].kind, whole[key].default), key
                mine, of_all = parameter.annotation, whole[key].annotation
                assert mine == of_all or mine in get_args(of_all) or set(get_args(mine)) < set(get_args(of_all)), key


def test_mixtures_show_their_fields() -> None:
    """To people by `__signature__`, to type checkers by an `__init__` that only they see."""
    fields = fields_of(Mixture)
    shown = inspect.signature(Mixture).parameters
    assert {name: parameter.default for name, parameter in shown.items()} == {
        name: field.default for name, field in fields.items()
    }
    (told,) = [
        node
        for node in ast.walk(ast.parse(inspect.getsource(mixture)))
        if isinstance(node, ast.FunctionDef) and node.name == "__init__"
    ]
    defaults = {
        argument.arg: eval(ast.unparse(default), vars(mixture))  # noqa: S307  # our own source
        for argument, default in zip(told.args.kwonlyargs, told.args.kw_defaults, strict=True)
        if default
    }
    assert defaults == {name: ... if field.default == {} else field.default for name, field in fields.items()}
    for function, name in ((dist_bpe.Temperature, "alpha"), (dist_bpe.UniMax, "unimax")):
        first, *rest = inspect.signature(function).parameters.values()
        assert (first.annotation, first.default) == (Number, inspect.Parameter.empty)
        assert {each.name for each in rest} == fields.keys() - {"alpha", "unimax", "shares"}
        for each in rest:
            assert each.default == default_of(fields[each.name]), (name, each.name)


def test_an_unknown_keyword_lists_the_known_ones() -> None:
    for name in functions():
        known = ", ".join(each for each in inspect.signature(getattr(dist_bpe, name)).parameters)
        known = known.removeprefix("sources, ").removeprefix("runs, ")
        with pytest.raises(UsageError) as caught:
            getattr(dist_bpe, name)(patern="gpt2")
        assert str(caught.value) == f"unknown option 'patern'; known here are: {known}."
