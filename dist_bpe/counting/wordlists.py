"""Words that were counted elsewhere: lists of (word, count, source) become spills, which a table is merged from.

A list may be Parquet, Arrow, CSV or JSON Lines with named columns, as Spark, Beam or a database write them, or text
with a word and its count a line. Words are taken as they stand there: nothing is stripped, cut or decoded.
"""

import contextlib
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from dist_bpe import _core
from dist_bpe.arrays import of_bytes, of_numpy, of_texts, to_numpy
from dist_bpe.corpus import finding, formats
from dist_bpe.corpus.columns import BATCH_ROWS, checked, is_text
from dist_bpe.corpus.documents import NO_GROUP, Piece, by_group
from dist_bpe.corpus.formats import compression
from dist_bpe.corpus.readers.arrow import Arrow
from dist_bpe.corpus.readers.lines import DAMAGED, decompressed, line_blocks
from dist_bpe.corpus.readers.parquet import Parquet
from dist_bpe.counting.options import WORD_FORMATS, WordList
from dist_bpe.counting.spills import write_spill
from dist_bpe.errors import BadFile, CountOverflowError, DataError, SourceError
from dist_bpe.pretokenize.patterns import Pattern
from dist_bpe.storage.places import File, escaped, said

EXTENSIONS = formats.EXTENSIONS | {".csv": "csv", ".tsv": "tsv", ".txt": "words", ".text": "words", ".vocab": "words"}
#: The column of sources, which is used if it is there, whatever the list is named.
SOURCE_COLUMN = "source"
# Lists that are shorter may be of any words.
FEW_WORDS = 50
# Words whose cut by the pattern is looked at.
PROBED_WORDS = 10_000
# Integers that a double tells from their neighbours.
EXACT_FLOAT = 1 << 53


Where = Callable[[int], str]
"""Says of row i of a batch which file and row it is."""


class _Rows(NamedTuple):
    """Rows of a list as they stand there, and their numbers from 1 on; `sources` may be None."""

    words: Any
    counts: Any
    sources: Any
    numbers: Sequence[int]


def described(lists: Sequence[WordList]) -> list[dict[str, Any]]:
    """What tells lists from others without reading them: their options, and size and time of each file.

    Raises:
        SourceError: no such file.
    """
    found = []
    for words_of in lists:
        there = finding.find(words_of.name, words_of.paths, words_of.format, EXTENSIONS, WORD_FORMATS)
        files = [[path, file.size, file.modified] for path, (file, _) in sorted(there.files.items())]
        options = {name: getattr(words_of, name) for name in ("name", "word", "count", "source", "format")}
        found.append({**options, "files": files})
    return found


def gather(
    lists: Sequence[WordList], staging: Path, partitions: int, table_bytes: int, pattern: Pattern
) -> tuple[list[dict[str, Any]], list[str]]:
    """Write the words of lists as spills, and return commits as `count_shard` makes them, one a source, and warnings.

    Raises:
        SourceError: no such file or column, or a file of another format.
        DataError: a word that is missing or not UTF-8, or a count that is no whole number from 0 to 2^64 - 1.
        CountOverflowError: the words of one source add up to more than 2^64 - 1.
    """
    # A counter for each source, since a list does not tell beforehand which there are.
    counters: dict[str, _core.Counter] = {}
    sizes: dict[str, int] = {}
    runs: dict[str, list[dict[str, Any]]] = {}
    empty = 0
    probed: list[bytes] = []

    def spill() -> None:
        for name, counter in counters.items():
            if counter.unique_words:
                path = staging / f"words-{uuid.uuid4().hex}.run"
                index = write_spill(path, counter.drain(partitions))
                runs.setdefault(name, []).append({"file": path.name, "partitions": index})

    for words_of in lists:
        for name, words, counts in _read(words_of):
            counter = counters.setdefault(name, _core.Counter(1, None, []))
            numbers, lengths = to_numpy(counts), to_numpy(pc.binary_length(words))
            kept = np.flatnonzero((numbers > 0) & (lengths > 0))
            empty += int(np.count_nonzero((numbers > 0) & (lengths == 0)))
            words = words.take(of_numpy(kept))
            try:
                counter.add_words(0, words, of_numpy(numbers[kept]))
            except CountOverflowError as error:
                raise CountOverflowError(str(error).replace("source 0", f"source {name!r}")) from None
            sizes[name] = sizes.get(name, 0) + _bytes(lengths[kept], numbers[kept])
            if len(probed) < PROBED_WORDS:
                probed += words.slice(0, PROBED_WORDS - len(probed)).to_pylist()
            if sum(counter.memory_bytes for counter in counters.values()) > table_bytes:
                spill()
    spill()
    commits = [
        {
            "key": [i],
            "sources": [name],
            "totals": [counters[name].totals(0) | {"bytes": sizes[name], "nulls": 0}],
            "runs": some,
        }
        for i, (name, some) in enumerate(sorted(runs.items()))
    ]
    warnings = _doubts(probed, pattern)
    if empty:
        warnings.append(f"rows that are left out: {empty:,} (the empty word)")
    return commits, warnings


def _bytes(lengths: Any, counts: Any) -> int:
    """The sum of length times count, past 64 bits where it has to be."""
    if int(lengths.max(initial=0)) * int(counts.max(initial=0)) * len(counts) < 1 << 63:
        return int(np.dot(lengths.astype(np.uint64), counts))
    return sum(length * count for length, count in zip(lengths.tolist(), counts.tolist(), strict=True))


def _doubts(words: Sequence[bytes], pattern: Pattern) -> list[str]:
    """What words say of how they were made, if it is otherwise than the pattern cuts."""
    texts = [word.decode() for word in words]
    marked = sum(text.startswith(("Ġ", "▁")) for text in texts)
    if 10 * marked > len(texts):
        return [
            f"{marked:,} of the first {len(texts):,} words begin with Ġ or ▁, which is taken as that letter and not as "
            "a space: write the words as they stand in the text."
        ]
    spaced = [word for word in pattern.words("a b") if word.startswith(b" ") and len(word) > 1]
    if spaced and len(texts) >= FEW_WORDS and not any(text.startswith(" ") for text in texts):
        return [
            f"none of the first {len(texts):,} words begins with a space, which the pattern "
            f"{pattern.name or pattern.regex!r} leaves with the word behind it: where the list lost them, text will be "
            "cut into other words than these."
        ]
    cut = [text for text in texts if len(list(pattern.words(text))) > 1]
    if 10 * len(cut) > len(texts):
        return [
            f"{len(cut):,} of the first {len(texts):,} words, such as {cut[0]!r}, are cut further by the pattern "
            f"{pattern.name or pattern.regex!r}: name the one that they were counted with."
        ]
    return []


def _read(words_of: WordList) -> Iterator[tuple[str, Any, Any]]:
    """Yield (source, words, counts) of all files, in the order of their paths."""
    found = finding.find(words_of.name, words_of.paths, words_of.format, EXTENSIONS, WORD_FORMATS)
    if found.objects:
        raise SourceError(f"{words_of.name!r}: a dataset of the Hub is no list of words; name its files.")
    for path in sorted(found.files):
        file, format = found.files[path]
        try:
            for rows in _READERS[format](file, words_of):
                yield from _checked(rows, path, words_of)
        except DAMAGED as error:
            raise DataError(f"{path} is damaged: {said(error)}") from error


def _checked(rows: _Rows, path: str, words_of: WordList) -> Iterator[tuple[str, Any, Any]]:
    def where(i: int) -> str:
        return f"{path}: row {rows.numbers[i]:,}"

    words = rows.words
    if not is_text(words.type) or pa.types.is_null(words.type):
        raise SourceError(f"{path}: the column {words_of.word!r} holds {words.type}, not words.")
    if pa.types.is_dictionary(words.type):
        words = words.dictionary_decode()
    words = words.cast(pa.large_binary())
    if words.null_count:
        raise DataError(f"{where(pc.index(words.is_null(), True).as_py())} has no word.")
    bad = _core.first_invalid_utf8(words)
    if bad:
        raise DataError(f"{where(bad[0])}: the word is not UTF-8 from its byte {bad[1]} on.")
    counts = _whole(rows.counts, where)
    if rows.sources is None:
        yield words_of.name, words, counts
        return
    for name, at in by_group(of_numpy(np.arange(len(words))), rows.sources):
        # A row that names no source is of the list's own.
        yield (words_of.name if name == NO_GROUP else name), words.take(at), counts.take(at)


def _whole(counts: Any, where: Where) -> Any:
    """Counts as uint64. Whole numbers of any type will do, and texts of digits, since some formats have no numbers."""
    if pa.types.is_integer(counts.type) and not counts.null_count:
        with contextlib.suppress(pa.ArrowInvalid):  # a negative one, which is found below
            return counts.cast(pa.uint64())
    return of_numpy(np.array([_whole_one(one, i, where) for i, one in enumerate(counts.to_pylist())], np.uint64))


def _whole_one(value: Any, i: int, where: Where) -> int:
    number = -1
    if isinstance(value, (str, bytes)):
        number = int(value) if value.isascii() and value.isdigit() and len(value) <= 20 else -1
        value = repr(value if isinstance(value, str) else value.decode(errors="replace"))
    elif isinstance(value, (int, float, Decimal)) and not isinstance(value, bool):
        exact = not isinstance(value, float) or abs(value) <= EXACT_FLOAT
        number = int(value) if exact and value == value // 1 else -1
    if not 0 <= number < 1 << 64:
        raise DataError(f"{where(i)}: the count {value} is no whole number from 0 to 2^64 - 1.")
    return number


def _column_names(present: Sequence[str], path: str, words_of: WordList) -> list[str]:
    """The columns to read: word, count, and the source's if there is one."""
    wanted = [words_of.word, words_of.count]
    if words_of.source is not None or SOURCE_COLUMN in present:
        wanted.append(words_of.source or SOURCE_COLUMN)
    for name in wanted:
        if name not in present:
            raise BadFile(f"{path} has no column {name!r}; its columns are: {escaped(', '.join(present))}.")
    return wanted


def _from_batches(batches: Iterable[Any], wanted: Sequence[str]) -> Iterator[_Rows]:
    first = 1
    for batch in batches:
        columns = [batch.column(name) for name in wanted]
        numbers = range(first, first + batch.num_rows)
        yield _Rows(columns[0], columns[1], columns[2] if len(columns) > 2 else None, numbers)
        first += batch.num_rows


def _parquet(file: File, words_of: WordList) -> Iterator[_Rows]:
    with file.open() as handle:
        parquet = Parquet.open(file, handle)
        wanted = _column_names(parquet.schema_arrow.names, file.path, words_of)
        batches = parquet.iter_batches(batch_size=BATCH_ROWS, columns=wanted, use_threads=False)
        yield from _from_batches(batches, wanted)


def _arrow(file: File, words_of: WordList) -> Iterator[_Rows]:
    with file.open() as handle:
        reader = Arrow.reader(handle, file.path)
        wanted = _column_names(reader.schema.names, file.path, words_of)
        if hasattr(reader, "get_batch"):
            batches: Iterable[Any] = (reader.get_batch(i) for i in range(reader.num_record_batches))
        else:
            batches = reader
        yield from _from_batches((checked(batch, file.path) for batch in batches), wanted)


def _csv(file: File, words_of: WordList) -> Iterator[_Rows]:
    """CSV with a header; every field as bytes, since what looks like a number may be a word."""

    def opened(raw: Any, wanted: Sequence[str]) -> Any:
        stream = decompressed(raw, compression(file.key))
        convert = pyarrow.csv.ConvertOptions(
            column_types=dict.fromkeys(wanted, pa.binary()), include_columns=wanted, check_utf8=False
        )
        return pyarrow.csv.open_csv(
            stream if isinstance(stream, pa.NativeFile) else pa.PythonFile(stream, mode="r"),
            read_options=pyarrow.csv.ReadOptions(use_threads=False),
            parse_options=pyarrow.csv.ParseOptions(newlines_in_values=True),
            convert_options=convert,
        )

    with file.open() as raw:
        wanted = _column_names(opened(raw, ()).schema.names, file.path, words_of)
    with file.open() as raw:
        for rows in _from_batches(opened(raw, wanted), wanted):
            yield rows if rows.sources is None else rows._replace(sources=_names(rows.sources.to_pylist()))


def _names(values: Iterable[bytes]) -> Any:
    return of_texts(value.decode(errors="replace") for value in values)


def _lines(file: File) -> Iterator[list[tuple[int, bytes]]]:
    """Lines with their numbers and without their ends; empty ones are passed over."""
    first = 1
    for _, block in line_blocks(Piece("lines", file, file.path, 0, file.size or 1 << 63)):
        found = block.removesuffix(b"\n").split(b"\n")
        yield [(i, line) for i, line in enumerate(found, first) if line]
        first += len(found)


def _jsonl(file: File, words_of: WordList) -> Iterator[_Rows]:
    fields: list[Any] = [("word", str), ("count", int | float), ("source", str | None, None)]
    names = {"word": words_of.word, "count": words_of.count, "source": words_of.source or SOURCE_COLUMN}
    decode: Any = msgspec.json.Decoder(msgspec.defstruct("Row", fields, rename=names)).decode
    for block in _lines(file):
        rows = []
        for i, line in block:
            try:
                rows.append(decode(line))
            except (msgspec.MsgspecError, RecursionError) as error:
                text = f"{file.path}: row {i:,} is no object of a word and its count: {said(error)}."
                raise DataError(text) from None
        numbers = [i for i, _ in block]
        # As Python's own numbers: integers past 2^53 beside floats have no one type.
        counts = [_whole_one(row.count, i, lambda i: f"{file.path}: row {numbers[i]:,}") for i, row in enumerate(rows)]  # noqa: B023
        sources = of_texts(row.source for row in rows)
        yield _Rows(
            of_bytes([row.word.encode() for row in rows]),
            of_numpy(np.array(counts, np.uint64)),
            sources if words_of.source is not None or sources.null_count < len(sources) else None,
            numbers,
        )


def _separated(separator: bytes, most: int) -> Any:
    """A reader of lines of a word, a separator, its count, and where there may be three fields its source."""

    def read(file: File, words_of: WordList) -> Iterator[_Rows]:
        header = [words_of.word.encode(), words_of.count.encode()]
        for block in _lines(file):
            rows, numbers = [], []
            for i, line in block:
                # What follows the word is no text: a carriage return there belongs to the line's end.
                fields = line.removesuffix(b"\r").rsplit(separator, most - 1)
                if i == 1 and fields[:2] == header:
                    third = (words_of.source or SOURCE_COLUMN).encode()
                    if len(fields) > 2 and fields[2] != third:
                        raise DataError(
                            f"{file.path}: the third column is {fields[2].decode(errors='replace')!r}; the source of "
                            f"each word is looked for in {third.decode()!r}. Name it (--source-column, "
                            "WordList(source=…)), or leave it out."
                        )
                    continue
                if i == 1 and (words_of.word, words_of.count, words_of.source) != ("word", "count", None):
                    raise DataError(
                        f"{file.path} has no header with the columns {b', '.join(header).decode()!r}: leave their "
                        "names out (--word-column, --count-column, --source-column), its columns go by their order."
                    )
                if len(fields) < 2 or (most > 2 and separator in fields[0]):
                    shown = "a tab" if separator == b"\t" else "a space"
                    raise DataError(f"{file.path}: row {i:,} is not a word, {shown} and its count: {line[:60]!r}.")
                rows.append(fields)
                numbers.append(i)
            named = any(len(fields) > 2 for fields in rows)
            own = words_of.name.encode()
            yield _Rows(
                of_bytes([fields[0] for fields in rows]),
                of_bytes([fields[1] for fields in rows]),
                _names(fields[2] if len(fields) > 2 else own for fields in rows) if named else None,
                numbers,
            )

    return read


_READERS: dict[str, Any] = {
    "parquet": _parquet,
    "arrow": _arrow,
    "jsonl": _jsonl,
    "csv": _csv,
    "tsv": _separated(b"\t", 3),
    "words": _separated(b" ", 2),
}
