"""`python -m dist_bpe`: the command line."""

from dist_bpe.cli.main import main

if __name__ == "__main__":
    main()
