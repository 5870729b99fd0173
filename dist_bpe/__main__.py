"""`python -m dist_bpe`: the command line."""

import sys


def main() -> None:
    """Run the command line. Ctrl-C while it is being loaded, before it answers signals itself, is no traceback."""
    try:
        from dist_bpe.cli.main import main as run

        run()
    except KeyboardInterrupt:
        print("interrupted.", file=sys.stderr)
        sys.exit(130)


if __name__ == "__main__":
    main()
