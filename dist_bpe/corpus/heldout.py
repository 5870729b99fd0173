"""Development and test text that was not trained on, parallel or not."""

import hashlib
import itertools
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from dist_bpe import _core
from dist_bpe.arrays import of_bytes, of_numpy, of_texts
from dist_bpe.corpus.columns import is_text
from dist_bpe.corpus.documents import Skipped
from dist_bpe.corpus.plan import plan
from dist_bpe.corpus.readers.parquet import Parquet
from dist_bpe.corpus.source import Source
from dist_bpe.errors import DataError, RunError, SourceError, UsageError, several
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

    def __repr__(self) -> str:
        documents = "" if self.documents is None else f", {several(len(self.documents), 'aligned document')}"
        return f"<HeldOut {self.name!r}: {several(len(self.texts), 'language')}{documents}>"

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

    Documents that share a text, in whatever languages, stay together: the smallest of their names speaks for them all.
    Any other document goes to the same side in every run, and whatever other documents there are.

    Raises:
        UsageError: one side has no document.
    """
    assert corpus.documents is not None  # noqa: S101  # checked by those who read it
    spokesman = _spokesmen(corpus)

    def first(document: str) -> bool:
        digest = hashlib.sha256(f"{seed}\n{document}".encode()).digest()
        return int.from_bytes(digest[:8], "big") < dev * 2**64

    sides = []
    for side in (True, False):
        keep = [i for i, document in enumerate(spokesman) if first(document) is side]
        texts = {name: [documents[i] for i in keep] for name, documents in corpus.texts.items()}
        sides.append(HeldOut(corpus.name, texts, tuple(corpus.documents[i] for i in keep)))
    if not sides[0].documents or not sides[1].documents:
        groups = len(set(spokesman))
        together = f", {groups:,} when those that share a text are taken together" if groups < len(spokesman) else ""
        raise UsageError(
            f"{corpus.name} has {several(len(corpus.documents), 'document')}{together}, which leaves one side "
            "without any: take another seed or share."
        )
    return sides[0], sides[1]


def _spokesmen(corpus: HeldOut) -> list[str]:
    """For each document the smallest name among those that it shares a text with, directly or through others."""
    documents = corpus.documents or ()
    parent = list(range(len(documents)))

    def root(i: int) -> int:
        while parent[i] != i:
            parent[i] = parent[parent[i]]
            i = parent[i]
        return i

    seen: dict[str, int] = {}
    for texts in corpus.texts.values():
        for i, text in enumerate(texts):
            if text.strip():
                a, b = root(i), root(seen.setdefault(text, i))
                # The one of the smaller name stays on top.
                low, high = (a, b) if documents[a] <= documents[b] else (b, a)
                parent[high] = low
    return [documents[root(i)] for i in range(len(documents))]


def write_parallel(corpus: HeldOut, path: Path) -> None:
    """Write a parallel set as Parquet with the columns lang, doc, text."""
    rows = [
        (lang, document, text)
        for lang, texts in corpus.texts.items()
        for document, text in zip(corpus.documents or (), texts, strict=True)
    ]
    lang, doc, text = (of_texts(column) for column in zip(*rows, strict=True))
    with publish(path) as temporary:
        pq.write_table(
            pa.table({"lang": lang, "doc": doc, "text": text}), temporary, compression="zstd", write_page_checksum=True
        )


def save_split(sides: tuple[HeldOut, HeldOut], folder: Path, overwrite: bool = False) -> list[Path]:
    """Write the sides of a split to dev.parquet and test.parquet in a folder; the same split is left as it is.

    Returns:
        The two paths.

    Raises:
        RunError: another split is there, and is not to be replaced.
    """
    paths = [folder / "dev.parquet", folder / "test.parquet"]
    there = [path for path in paths if path.exists()]
    if there and not overwrite:
        found = [(held.texts, held.documents) for held in map(read_parallel, there)]
        if found != [(side.texts, side.documents) for path, side in zip(paths, sides, strict=True) if path in there]:
            raise RunError(f"{there[0]} is there already; name another folder, or replace it with --overwrite.")
    folder.mkdir(parents=True, exist_ok=True)
    for path, side in zip(paths, sides, strict=True):
        write_parallel(side, path)
    return paths


# Documents that a message about two sets names.
MOST_NAMED = 3


def refuse_overlap(dev: HeldOut, test: HeldOut) -> None:
    """Raise if a test set shares a document with the development set, by name or by text.

    Raises:
        UsageError: it does; names some of them on both sides.
    """
    shared = [(name, name) for name in sorted(set(dev.documents or ()) & set(test.documents or ()))]
    what = "by name"
    if not shared:
        what = "by text"
        known: dict[str, str] = {}
        for name, text in _named_texts(dev):
            known[text] = min(name, known.get(text, name))
        found: dict[str, str] = {}
        for name, text in _named_texts(test):
            if text in known:
                found[name] = min(known[text], found.get(name, known[text]))
        shared = sorted(found.items())
    if shared:
        named = ", ".join(
            f"{there!r} (there {here!r})" if there != here else f"{there!r}" for there, here in shared[:MOST_NAMED]
        )
        more = ", …" if len(shared) > MOST_NAMED else ""
        said = several(len(shared), "document")
        raise UsageError(
            f"{test.name} shares {said} with the development set {dev.name}, {what}: "
            f"{named}{more}. Weights were fitted to those. Split one set in two with `dist-bpe split`, which keeps "
            "documents of equal text on one side."
        )


def _named_texts(corpus: HeldOut) -> Iterator[tuple[str, str]]:
    """The texts that are not blank, each with the name of its document, or its place where there are no names."""
    for lang, texts in corpus.texts.items():
        names = corpus.documents or [f"{lang} {i:,}" for i in range(1, len(texts) + 1)]
        for name, text in zip(names, texts, strict=True):
            if text.strip():
                yield name, text


def read_parallel(path: str | Path) -> HeldOut:
    """A parallel set from a Parquet file with the columns lang, doc, text: each document once in every language.

    Args:
        path: a local path, or a URI of any place that text is read from.

    Raises:
        SourceError: no such file or column, or a column of another type.
        DataError: a document that is missing in a language, is there twice, is null, or is no UTF-8.
    """
    # A Path made of a URI has lost a slash.
    text = re.sub(r"^([a-z0-9]{2,}):/(?!/)", r"\1://", str(path))
    shown = places.redacted(text)
    place, key = places.split(text)
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
        except (OSError, KeyError, pa.ArrowException) as error:
            raise SourceError(f"{shown} cannot be read as Parquet: {said(error)}.") from error
    found: dict[str, dict[str, str]] = {}
    for lang, doc, text in zip(*(_values(table[name], name, shown) for name in _PARALLEL), strict=True):
        if lang is None or doc is None or text is None:
            raise DataError(f"{shown} has a null in the row of language {lang!r}, document {doc!r}.")
        if doc in found.setdefault(lang, {}):
            raise DataError(f"{shown} has the document {doc!r} of language {lang!r} twice.")
        found[lang][doc] = text
    if not found:
        raise SourceError(f"{shown} has no rows.")
    documents = sorted(set().union(*found.values()))
    for lang, texts in found.items():
        lacking = next((doc for doc in documents if doc not in texts), None)
        if lacking is not None:
            raise DataError(f"{shown} is not parallel: language {lang!r} lacks the document {lacking!r}.")
    return HeldOut(shown, {lang: [found[lang][doc] for doc in documents] for lang in sorted(found)}, tuple(documents))


def _values(column: pa.ChunkedArray, name: str, path: str) -> list[str | None]:
    """A column of a parallel set as text; names of documents may be whole numbers."""
    kind = column.type
    if name == "doc" and pa.types.is_integer(kind):
        return [None if value is None else str(value) for value in column.to_pylist()]
    if not is_text(kind) or pa.types.is_null(kind):
        raise SourceError(f"{path}: the column {name!r} holds {kind}, not text.")
    values: list[str | None] = []
    for chunk in column.chunks:
        plain = chunk.dictionary_decode() if pa.types.is_dictionary(kind) else chunk
        raw = plain.cast(pa.large_binary())
        bad = _core.first_invalid_utf8(raw)
        if bad:
            raise DataError(
                f"{path}: row {len(values) + bad[0]:,} of the column {name!r} is not UTF-8 from its byte {bad[1]} on."
            )
        values += raw.cast(pa.large_string()).to_pylist()
    return values


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
        counter.count(number, of_bytes(list(map(str.encode, texts))))
        if native is None:
            normal = (_core.normalize(text, normalization) if normalization else text for text in texts)
            words = of_bytes([word for text in normal for word in pattern.words(text)])
            counter.add_words(number, words, of_numpy(np.ones(len(words), np.uint64)))
    return [batch for _, batch in counter.drain(1)]
