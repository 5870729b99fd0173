"""`python -m dist_bpe.cli`, as earlier releases are started."""

from dist_bpe.cli.main import main

if __name__ == "__main__":
    main()
