"""Train production BPE vocabularies on whole corpora: exact, reproducible, at the speed of reading.

    counts = dist_bpe.count(dist_bpe.Source("en", "corpus/en/*.parquet"), output="run/")
    vocabulary = dist_bpe.learn(counts, vocab_size=32_000)
    vocabulary.save("run/vocabularies/32k")

The names load their modules when they are first used, so that importing the package costs nothing.
"""

import importlib
from typing import TYPE_CHECKING, Any

from dist_bpe.errors import (
    AccessError,
    CountOverflowError,
    DataError,
    DistBpeError,
    ExportError,
    FormatError,
    NetworkError,
    RunError,
    SourceError,
    UsageError,
)

if TYPE_CHECKING:
    from dist_bpe.api.making import add, count, import_counts, learn, plan, train
    from dist_bpe.api.measuring import balance, compare, evaluate, split
    from dist_bpe.api.using import encode, export
    from dist_bpe.corpus.source import Source
    from dist_bpe.counting.options import WordList
    from dist_bpe.counting.table import CountTable
    from dist_bpe.learning.mixture import Mixture, Temperature, UniMax
    from dist_bpe.pretokenize.preparation import SpecialToken
    from dist_bpe.vocabulary.vocabulary import Vocabulary

__version__ = "0.1.0"

_HOME = {
    "CountTable": "counting.table",
    "Mixture": "learning.mixture",
    "Source": "corpus.source",
    "SpecialToken": "pretokenize.preparation",
    "Temperature": "learning.mixture",
    "UniMax": "learning.mixture",
    "Vocabulary": "vocabulary.vocabulary",
    "WordList": "counting.options",
    **dict.fromkeys(("add", "count", "import_counts", "learn", "plan", "train"), "api.making"),
    **dict.fromkeys(("balance", "compare", "evaluate", "split"), "api.measuring"),
    **dict.fromkeys(("encode", "export"), "api.using"),
}

__all__ = [
    "AccessError",
    "CountOverflowError",
    "CountTable",
    "DataError",
    "DistBpeError",
    "ExportError",
    "FormatError",
    "Mixture",
    "NetworkError",
    "RunError",
    "Source",
    "SourceError",
    "SpecialToken",
    "Temperature",
    "UniMax",
    "UsageError",
    "Vocabulary",
    "WordList",
    "add",
    "balance",
    "compare",
    "count",
    "encode",
    "evaluate",
    "export",
    "import_counts",
    "learn",
    "plan",
    "split",
    "train",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """The public names, also those that are not loaded yet."""
    return ["__version__", *__all__]
