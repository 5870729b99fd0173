"""Documents in memory: tables and columns are taken for what they are, and what cannot be read again is not."""

from collections import Counter, OrderedDict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from helpers import quiet

from dist_bpe.corpus.plan import plan
from dist_bpe.corpus.source import Source
from dist_bpe.errors import DataError, RunError, SourceError, UsageError

TEXTS = ["a b", None, "ünï", "c"] * 700


def read(source: Source, shard_bytes: int | None = None) -> list[tuple[str, Any]]:
    shards = plan([source], shard_bytes).shards
    return [
        (batch.source, None if text is None else text.decode())
        for shard in shards
        if shard.sources()
        for batch in shard.batches()
        for text in batch.texts.to_pylist()
    ]


class Capsule:
    """What another library's frame is to Arrow."""

    columns = ("text",)

    def __init__(self, table: Any) -> None:
        self._table = table

    def __arrow_c_stream__(self, schema: object = None) -> object:
        return self._table.__arrow_c_stream__(schema)


def test_tables_give_their_text_column() -> None:
    import pandas as pd

    lang = ["x", "y"] * (len(TEXTS) // 2)
    table = pa.table({"other": range(len(TEXTS)), "text": TEXTS, "lang": lang})
    for data in (table, pd.DataFrame({"text": TEXTS, "lang": lang}), Capsule(table), pa.record_batch({"text": TEXTS})):
        assert [text for _, text in read(Source("s", documents=data))] == TEXTS
        assert [text for _, text in read(Source("s", documents=data), 500)] == TEXTS
        assert plan([Source("s", documents=data)]).in_memory == ["s"]
        with pytest.raises(SourceError, match=r"source 's' has no text column 'body'; its columns are: .*text"):
            plan([Source("s", text="body", documents=data)])
    assert {name for name, _ in read(Source("s", documents=table, group_by="lang"))} == {"x", "y"}
    for column in (pa.array(TEXTS), pa.chunked_array([TEXTS]), pd.Series(TEXTS), np.array(TEXTS, object)):
        assert [text for _, text in read(Source("s", documents=column))] == TEXTS
    with pytest.raises(SourceError, match="holds int64, not text"):
        plan([Source("s", documents=pd.DataFrame({"text": [1, 2]}))])


def test_a_table_counts_as_its_file_does(tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    table = pa.table({"text": [f"some text {i} " * 20 for i in range(3000)]})
    pq.write_table(table, tmp_path / "a.parquet")
    digests = {
        quiet(source, output=tmp_path / name, shard_bytes=100_000).digest
        for name, source in (("t", Source("s", documents=table)), ("f", Source("s", str(tmp_path / "a.parquet"))))
    }
    assert len(digests) == 1


def test_a_column_of_a_dataset() -> None:
    import datasets

    data = datasets.Dataset.from_dict({"text": TEXTS})
    assert [text for _, text in read(Source("s", documents=data["text"]))] == TEXTS
    assert [text for _, text in read(Source("s", documents=data.to_iterable_dataset()["text"]))] == TEXTS


@pytest.mark.parametrize("data", [{"a": "b"}, OrderedDict(a="b"), Counter("ab")])
def test_mappings_are_refused(data: Any) -> None:
    with pytest.raises(TypeError, match=r"whose keys would be read as text. Give its values"):
        Source("s", documents=data)


def failing(after: int) -> Iterator[str]:
    yield from ["a text"] * after
    raise ValueError("the first cause")


class Again:
    """Gives the same used-up generator each time, which no look at it can tell."""

    def __init__(self, documents: Iterator[Any]) -> None:
        self.documents = documents

    def __iter__(self) -> Iterator[Any]:
        yield from self.documents


@pytest.mark.parametrize("workers", [1, 2])
def test_a_generator_that_raises_is_not_read_again(tmp_path: Path, workers: int) -> None:
    for documents in (failing(5), failing(0), failing(100_000), map(str.upper, failing(5)), Again(failing(5))):
        with pytest.raises((DataError, RunError), match="the first cause"):
            quiet(Source("s", documents=documents), output=tmp_path / "run", workers=workers)
        assert not (tmp_path / "run").exists()


def test_a_bad_document_of_a_generator_is_named(tmp_path: Path) -> None:
    for bad, message in ((b"\xff", "document 2 is not UTF-8 from byte 0"), (3, "document 2 is int")):
        for documents in ((x for x in ["a", "b", bad]), iter(["a", "b", bad]), Again(iter(["a", "b", bad]))):
            with pytest.raises(DataError, match=message):
                quiet(Source("s", documents=documents), output=tmp_path / "run")
    with pytest.raises(UsageError, match="no text found"):
        quiet(Source("s", documents=iter([])), output=tmp_path / "run")


def test_what_can_begin_again_is_tried_again(tmp_path: Path) -> None:
    class Flaky:
        turns = 0

        def __iter__(self) -> Iterator[str]:
            self.turns += 1
            return failing(3) if self.turns == 1 else iter(["a text"] * 5)

    flaky = Flaky()
    table = quiet(Source("s", documents=flaky), output=tmp_path / "run")
    assert flaky.turns == 2
    assert table.sources["s"].documents == 5
