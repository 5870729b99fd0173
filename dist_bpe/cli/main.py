"""The commands, registered in the order of --help."""

from dist_bpe.cli import measuring, training, using
from dist_bpe.cli.app import app

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
    app.command()(_command)


def main() -> None:
    """Run the command line."""
    app()
