"""The man page, made from the commands: `python -m dist_bpe.cli.manual` prints it, `make man` puts it in its place."""

import inspect
import re
from collections.abc import Iterable, Iterator
from typing import Any

import typer

from dist_bpe import __version__
from dist_bpe.cli import main as _registered  # noqa: F401  # the commands
from dist_bpe.cli.app import app
from dist_bpe.errors import EXIT_CODES

_ESCAPED = {"\\": "\\e", "-": "\\-", "'": "\\(aq", "`": "\\(ga", "^": "\\(ha", "~": "\\(ti"}


def page() -> str:
    """The page in the language of man (groff), the same for everyone: without a date."""
    return "".join(f"{line}\n" for line in _lines())


def _lines() -> Iterator[str]:
    group: Any = typer.main.get_command(app)
    context = group.context_class(group, info_name="dist-bpe", **group.context_settings)
    yield f'.TH DIST\\-BPE 1 "" "dist\\-bpe {_text(__version__)}" "User Commands"'
    summary = group.help.partition(":")[0]
    yield from (".SH NAME", f"dist\\-bpe \\- {_text(summary[:1].lower() + summary[1:])}")
    yield from (".SH SYNOPSIS", f".B {_text('dist-bpe')}", "[OPTIONS] COMMAND [ARGUMENTS]")
    yield from (".SH DESCRIPTION", _text(group.help))
    yield from _list(record for option in group.get_params(context) if (record := option.get_help_record(context)))
    yield ".SH COMMANDS"
    variables: dict[str, str] = {}
    for name, command in group.commands.items():
        inner = command.context_class(command, info_name=name, parent=context)
        yield f'.SS "{_text(" ".join(["dist-bpe", name, *command.collect_usage_pieces(inner)]))}"'
        for paragraph in inspect.cleandoc(command.help).split("\n\n"):
            yield from (".PP", _text(" ".join(paragraph.split())))
        for title, records in command.records(inner).items():
            yield from (".PP", f"{_text(title)}:")
            yield from _list(records)
        for option in command.get_params(inner):
            if option.envvar:
                variables[option.envvar] = f"The default of {option.opts[0]}: {option.help}"
    yield from (".SH ENVIRONMENT", *_list(variables.items()))
    yield from (".SH EXIT STATUS", *_list((str(code), meaning) for code, meaning in EXIT_CODES.items()))


def _list(records: Iterable[tuple[str, str]]) -> Iterator[str]:
    for written, meaning in records:
        yield from (".TP", f".B {_text(written)}", _text(meaning))


def _text(text: str) -> str:
    """A text with nothing in it that the language would act on."""
    text = re.sub(r"[-\\'`^~]", lambda found: _ESCAPED[found[0]], " ".join(text.split()))
    return f"\\&{text}" if text.startswith(".") else text.replace('"', "\\(dq")


if __name__ == "__main__":
    print(page(), end="")
