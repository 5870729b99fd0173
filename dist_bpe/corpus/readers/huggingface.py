"""Datasets of the `datasets` library: saved ones, streams, and those of a hub."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from dist_bpe.corpus.columns import BATCH_BYTES, BATCH_ROWS, checked, locate, values_of
from dist_bpe.corpus.documents import Batch, Inspected, Piece, Reading, Sample, Skipped, documents_of
from dist_bpe.errors import SourceError
from dist_bpe.storage import places

# Rows whose size stands for that of all rows of a dataset.
PROBE_ROWS = 1000
_HUB = places.Place("hf", "hf://")


def _columns(table: Any, piece: Piece, reading: Reading) -> tuple[Any, Any]:
    text = locate(table.schema, reading.text, piece.name)
    return text, locate(table.schema, reading.group_by, piece.name, "group") if reading.group_by else None


def _from_table(
    table: Any, first: int, piece: Piece, sample: Sample, reading: Reading, skipped: Skipped
) -> Iterator[Batch]:
    text, group = _columns(table, piece, reading)
    for batch in table.to_batches():
        checked(batch.select(list(dict.fromkeys(c.names[0] for c in (text, group) if c))), piece.name)

        def fault(i: int, byte: int, first: int = first) -> str:
            row = (first + i) % (1 << 40)
            return f"{piece.name}: row {row:,} of column {reading.text!r} is not UTF-8 from byte {byte:,} on"

        groups = values_of(batch.column(group.names[0]), group.names[1:])[0] if group else None
        column = batch.column(text.names[0])
        yield from documents_of(column, text.names[1:], groups, first, sample, reading, skipped, fault)
        first += batch.num_rows


def _places_to_cut(rows: int, each: int) -> Inspected:
    # Any row can begin a shard; a thousand at a time are enough places to cut.
    return Inspected([(min(PROBE_ROWS, rows - i), each * PROBE_ROWS) for i in range(0, rows, PROBE_ROWS)])


def _batches(piece: Piece, length: int) -> Iterator[tuple[int, int]]:
    """The first and the last row (exclusive) of each batch of a piece; the dataset has `length` rows."""
    stop = min(piece.last * PROBE_ROWS, length)
    rows = min(BATCH_ROWS, max(1, BATCH_BYTES * (piece.rows or 1) // max(1, piece.bytes)))
    for start in range(piece.first * PROBE_ROWS, stop, rows):
        yield start, min(stop, start + rows)


class Dataset:
    """A `datasets.Dataset`, read through the library: its rows are not its files once it was filtered or shuffled."""

    @staticmethod
    def _of(documents: Any) -> Any:
        return documents.open() if isinstance(documents, SavedDataset) else documents

    @classmethod
    def inspect(cls, documents: Any, reading: Reading) -> Inspected:
        """Check the columns; the first rows stand for the size of all."""
        data = cls._of(documents).with_format("arrow")
        probe = data[: min(PROBE_ROWS, len(data))]
        text, _ = _columns(probe, Piece("dataset", None, f"source {reading.source!r}", 0, 0), reading)
        size = sum(values_of(chunk, text.names[1:])[0].nbytes for chunk in probe.column(text.names[0]).chunks)
        each = size // max(1, len(probe))
        return _places_to_cut(len(data), each)

    @classmethod
    def read(cls, piece: Piece, reading: Reading, skipped: Skipped) -> Iterator[Batch]:
        """The documents of some thousands of rows."""
        sample = Sample(reading, piece.name)
        data = cls._of(piece.documents).with_format("arrow")
        for start, stop in _batches(piece, len(data)):
            yield from _from_table(data[start:stop], start, piece, sample, reading, skipped)


class Table:
    """A table in memory: of pyarrow, pandas, polars, or anything else that speaks Arrow's C interface."""

    @staticmethod
    def inspect(documents: Any, reading: Reading) -> Inspected:
        """Check the columns."""
        text, _ = _columns(documents, Piece("table", None, f"source {reading.source!r}", 0, 0), reading)
        column = documents.column(text.names[0])
        return _places_to_cut(len(documents), column.nbytes // max(1, len(documents)))

    @staticmethod
    def read(piece: Piece, reading: Reading, skipped: Skipped) -> Iterator[Batch]:
        """The documents of some thousands of rows."""
        sample = Sample(reading, piece.name)
        for start, stop in _batches(piece, len(piece.documents)):
            part = piece.documents.slice(start, stop - start)
            yield from _from_table(part, start, piece, sample, reading, skipped)


class Stream:
    """A `datasets.IterableDataset`, or a split of the Hub that only the library itself can read."""

    @staticmethod
    def _of(documents: Any) -> Any:
        return documents.open() if isinstance(documents, HubSplit) else documents

    @classmethod
    def inspect(cls, documents: Any, reading: Reading) -> Inspected:
        """Shards are the dataset's own; their sizes are unknown."""
        data = cls._of(documents)
        if data.features is not None:
            schema = data.features.arrow_schema
            locate(schema, reading.text, f"source {reading.source!r}")
            if reading.group_by:
                locate(schema, reading.group_by, f"source {reading.source!r}", "group")
        return Inspected([(None, 0)] * data.num_shards)

    @classmethod
    def read(cls, piece: Piece, reading: Reading, skipped: Skipped) -> Iterator[Batch]:
        """The documents of some of the dataset's shards."""
        sample = Sample(reading, piece.name)
        data = cls._of(piece.documents)
        for index in range(piece.first, piece.last):
            part = data.shard(num_shards=data.num_shards, index=index) if data.num_shards > 1 else data
            row = index << 40
            for table in part.with_format("arrow").iter(batch_size=PROBE_ROWS):
                yield from _from_table(table, row, piece, sample, reading, skipped)
                row += table.num_rows


@dataclass(frozen=True)
class SavedDataset:
    """A `save_to_disk` folder with an indices mapping, whose rows are not its files."""

    folder: str

    def open(self) -> Any:
        """The dataset."""
        import datasets

        return datasets.load_from_disk(self.folder)


@dataclass(frozen=True)
class HubSplit:
    """A split of a dataset by its name: what a worker needs to stream it."""

    name: str
    config: str | None
    split: str
    revision: str | None = None

    def open(self) -> Any:
        """The stream."""
        import datasets

        return datasets.load_dataset(self.name, self.config, split=self.split, revision=self.revision, streaming=True)


def hub_split(name: str, config: str | None, split: str | None, revision: str | None) -> tuple[HubSplit, Sequence[str]]:
    """A dataset's split by name, and the paths of its files if they are Parquet, which are read directly.

    Raises:
        SourceError: no such dataset, configuration or split.
        NetworkError: no answer within the deadline.
    """
    import datasets
    from datasets.packaged_modules.parquet.parquet import Parquet

    def load() -> Any:
        try:
            return datasets.load_dataset_builder(name, config, revision=revision)
        except Exception as error:  # whatever its hub client, file system or script loader raises
            if places.network_fault(error):
                raise
            text = " ".join(str(error).split())
            if "OfflineMode" in repr(error) or "HF_HUB_OFFLINE" in text:
                text += " The environment says HF_HUB_OFFLINE: unset it, or name local files."
            raise SourceError(f"the dataset {name!r} cannot be opened by `datasets`: {text}") from error

    builder = places.with_retries(load, _HUB, f"datasets/{name}")
    files = builder.config.data_files or {}
    known = list(files) or list(builder.info.splits or {})
    split = split or ("train" if "train" in known or not known else known[0] if len(known) == 1 else None)
    if split is None or (known and split not in known):
        raise SourceError(
            f"the dataset {name!r} has no split {split or 'train'!r}; its splits are: {', '.join(map(str, known))}. "
            "Name one with ?split=…"
        )
    found = HubSplit(name, config, split, revision)
    return found, [str(path) for path in files[split]] if isinstance(builder, Parquet) else []
