"""Development and test text that was not trained on, parallel or not."""

import hashlib
import itertools
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from dist_bpe import _core
from dist_bpe.corpus.documents import Skipped
from dist_bpe.corpus.plan import plan
from dist_bpe.corpus.readers.parquet import Parquet
from dist_bpe.corpus.source import Source
from dist_bpe.errors import DataError, SourceError, UsageError
from dist_bpe.pretokenize.patterns import Pattern
from dist_bpe.pretokenize.preparation import Normalization
from dist_bpe.storage import places
from dist_bpe.storage.files import publish
from dist_bpe.storage.places import said

_PARALLEL = ("lang", "doc", "text")

# ---- text


@dataclass(frozen=True)
class HeldOut:
    """Held-out text by language, in memory. In a parallel one all languages have the same documents in the same order.

    Attributes:
        name: what to call it.
        texts: the documents of each language.
        documents: names of the aligned documents; None where the text is not parallel.
    """

    name: str
    texts: dict[str, list[str]]
    documents: tuple[str, ...] | None = None

    def digest(self) -> str:
        """SHA-256 of languages, documents and texts."""
        content = json.dumps([self.documents, self.texts], sort_keys=True, ensure_ascii=False)
        return hashlib.sha256(content.encode()).hexdigest()

    def reference(self, named: str | None) -> str:
        """The language to compare with: the one named, else English.

        Raises:
            UsageError: it is not there.
        """
        if named is None:
            named = next((name for name in sorted(self.texts) if name == "en" or name.startswith(("en-", "en_"))), None)
        if named not in self.texts:
            raise UsageError(
                f"{self.name} has no language {named!r}: name one with --reference; there are: {', '.join(self.texts)}."
                if named
                else f"{self.name} has no English: name the language to compare with by --reference; there are: "
                f"{', '.join(self.texts)}."
            )
        return named


# ---- development and test sets


def split(corpus: HeldOut, seed: int = 0, dev: float = 0.5) -> tuple[HeldOut, HeldOut]:
    """Split a parallel set into development and test documents by SHA-256 of seed and document name.

    A document goes to the same side in every language, in every run, and whatever other documents there are.
    """
    assert corpus.documents is not None  # noqa: S101  # checked by those who read it

    def first(document: str) -> bool:
        digest = hashlib.sha256(f"{seed}\n{document}".encode()).digest()
        return int.from_bytes(digest[:8], "big") < dev * 2**64

    sides = []
    for side in (True, False):
        keep = [i for i, document in enumerate(corpus.documents) if first(document) is side]
        texts = {name: [documents[i] for i in keep] for name, documents in corpus.texts.items()}
        sides.append(HeldOut(corpus.name, texts, tuple(corpus.documents[i] for i in keep)))
    if not sides[0].documents or not sides[1].documents:
        raise UsageError(
            f"{corpus.name} has {len(corpus.documents)} documents, which leaves one side without any: take another "
            "seed or share."
        )
    return sides[0], sides[1]


def write_parallel(corpus: HeldOut, path: Path) -> None:
    """Write a parallel set as Parquet with the columns lang, doc, text."""
    rows = [
        (lang, document, text)
        for lang, texts in corpus.texts.items()
        for document, text in zip(corpus.documents or (), texts, strict=True)
    ]
    lang, doc, text = (pa.array(column, pa.string()) for column in zip(*rows, strict=True))
    with publish(path) as temporary:
        pq.write_table(pa.table({"lang": lang, "doc": doc, "text": text}), temporary, compression="zstd")


def refuse_overlap(dev: HeldOut, test: HeldOut) -> None:
    """Raise if a test set shares a document with the development set, by name or by text.

    Raises:
        UsageError: it does.
    """
    shared = sorted(set(dev.documents or ()) & set(test.documents or ()))
    if not shared:
        known = {text for texts in dev.texts.values() for text in texts if text.strip()}
        names = test.documents or range(len(next(iter(test.texts.values()))))
        shared = sorted(
            {
                str(name)
                for texts in test.texts.values()
                for name, text in zip(names, texts, strict=False)
                if text in known
            }
        )
    if shared:
        raise UsageError(
            f"the test set shares {len(shared):,} documents with the development set, such as {shared[0]!r}: weights "
            "were fitted to those. Split one set in two with `dist-bpe split`."
        )


def read_parallel(path: str | Path) -> HeldOut:
    """A parallel set from a Parquet file with the columns lang, doc, text: each document once in every language.

    Raises:
        SourceError: no such file or column.
        DataError: a document that is missing in a language, is there twice, or is null.
    """
    shown = places.redacted(str(path))
    place, key = places.split(str(path))
    file = places.stat(place, key)
    if file is None:
        raise SourceError(f"{shown} is not there.")
    with file.open() as handle:
        reader, secret, _ = Parquet.whole(file, handle, pre_buffer=False)
        if secret:
            raise SourceError(f"{shown} has an encrypted column. Write it without encryption.")
        present = reader.schema_arrow.names
        lacking = next((name for name in _PARALLEL if name not in present), None)
        if lacking:
            raise SourceError(f"{shown} lacks the column {lacking!r}; a parallel set has lang, doc and text.")
        try:
            table = reader.read(columns=list(_PARALLEL), use_threads=False)
            rows = list(zip(*(table[name].to_pylist() for name in _PARALLEL), strict=True))
        except UnicodeDecodeError as error:
            raise DataError(f"{shown} has a text that is not UTF-8 ({said(error)}).") from error
        except (OSError, KeyError, pa.ArrowException) as error:
            raise SourceError(f"{shown} cannot be read as Parquet: {said(error)}.") from error
    found: dict[str, dict[str, str]] = {}
    for lang, doc, text in rows:
        if lang is None or doc is None or text is None:
            raise DataError(f"{shown} has a null in the row of language {lang!r}, document {doc!r}.")
        if not isinstance(text, str):
            raise DataError(f"{shown}: the column 'text' holds {type(text).__name__}, not text.")
        if str(doc) in found.setdefault(str(lang), {}):
            raise DataError(f"{shown} has the document {doc!r} of language {lang!r} twice.")
        found[str(lang)][str(doc)] = text
    if not found:
        raise SourceError(f"{shown} has no rows.")
    documents = sorted(set().union(*found.values()))
    for lang, texts in found.items():
        lacking = next((doc for doc in documents if doc not in texts), None)
        if lacking is not None:
            raise DataError(f"{shown} is not parallel: language {lang!r} lacks the document {lacking!r}.")
    return HeldOut(shown, {lang: [found[lang][doc] for doc in documents] for lang in sorted(found)}, tuple(documents))


def read_texts(sources: Sequence[Source]) -> HeldOut:
    """Held-out text of any format that `count` reads."""
    planned = plan(list(sources))
    texts: dict[str, list[str]] = {}
    for shard in planned.shards:
        for name, array, _ in shard.batches(Skipped()):
            texts.setdefault(name, []).extend(array.drop_null().cast(pa.large_string()).to_pylist())
    if not any(itertools.chain.from_iterable(texts.values())):
        raise SourceError("no text found to measure on.")
    return HeldOut(", ".join(file.path for file in planned.files[:3]), dict(sorted(texts.items())))


def words_of(corpus: HeldOut, pattern: Pattern, normalization: Normalization | None) -> list[pa.RecordBatch]:
    """A corpus as the rows of a count table, its languages numbered in their order; special tokens mean nothing."""
    native = pattern.name if pattern.native else None
    counter = _core.Counter(len(corpus.texts), native, [], normalization=normalization)
    for number, texts in enumerate(corpus.texts.values()):
        counter.count(number, pa.array(texts, pa.large_string()))
        if native is None:
            normal = (_core.normalize(text, normalization) if normalization else text for text in texts)
            words = pa.array([word for text in normal for word in pattern.words(text)], pa.large_binary())
            counter.add_words(number, words, pa.array(np.ones(len(words), np.uint64)))
    return [batch for _, batch in counter.drain(1)]
