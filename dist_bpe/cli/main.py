"""The commands, registered in the order of --help."""

from dist_bpe.cli import measuring, training, using
from dist_bpe.cli.app import app
from dist_bpe.cli.options import Sections

for _command in (
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
):
    app.command(cls=Sections)(_command)


def main() -> None:
    """Run the command line."""
    app()
