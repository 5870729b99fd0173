"""The commands, registered in the order of --help."""

import os
import sys

from dist_bpe.cli import measuring, starting, teaching, training, using
from dist_bpe.cli.app import app
from dist_bpe.cli.options import Sections

for _command in (
    starting.init,
    training.plan,
    training.train,
    training.count,
    training.add,
    training.learn,
    training.status,
    measuring.evaluate,
    measuring.compare,
    measuring.balance,
    measuring.split,
    using.export,
    using.encode,
    using.decode,
    teaching.lesson,
):
    app.command(cls=Sections)(_command)


def main() -> None:
    """Run the command line; what cannot be written, of --help, too, is one sentence."""
    # Typer makes every flag of every command at each start: 30 ms, unless only the one asked for is there.
    asked = [each for each in app.registered_commands if each.callback and each.callback.__name__ in sys.argv[1:2]]
    app.registered_commands = asked or app.registered_commands
    try:
        try:
            app()
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        if isinstance(error, BrokenPipeError):
            sys.exit(1)
        print(f"error: standard output cannot be written: {error.strerror or error}.", file=sys.stderr)
        sys.exit(6)
