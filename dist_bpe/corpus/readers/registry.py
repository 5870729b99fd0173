"""The readers, by the name of their format."""

from typing import Any

from dist_bpe.corpus.readers.arrow import Arrow
from dist_bpe.corpus.readers.huggingface import Dataset, Stream, Table
from dist_bpe.corpus.readers.iterable import Documents
from dist_bpe.corpus.readers.jsonl import JsonLines
from dist_bpe.corpus.readers.lines import Lines, Text
from dist_bpe.corpus.readers.parquet import Parquet

READERS: dict[str, Any] = {
    "parquet": Parquet,
    "arrow": Arrow,
    "jsonl": JsonLines,
    "text": Text,
    "lines": Lines,
    "documents": Documents,
    "dataset": Dataset,
    "stream": Stream,
    "table": Table,
}
