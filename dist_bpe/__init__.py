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
    from dist_bpe.counting import count, import_counts
    from dist_bpe.counts import CountTable
    from dist_bpe.formats import SpecialToken
    from dist_bpe.mixture import Mixture, Temperature, UniMax
    from dist_bpe.pipeline import learn
    from dist_bpe.sources import Source
    from dist_bpe.vocabulary import Vocabulary

__version__ = "0.1.0"

_HOME = {
    "CountTable": "counts",
    "Mixture": "mixture",
    "Source": "sources",
    "SpecialToken": "formats",
    "Temperature": "mixture",
    "UniMax": "mixture",
    "Vocabulary": "vocabulary",
    "count": "counting",
    "import_counts": "counting",
    "learn": "pipeline",
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
    "count",
    "import_counts",
    "learn",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
    globals()[name] = value
    return value
