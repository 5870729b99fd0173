"""File formats: their names, extensions and compressions; what other files are."""

import urllib.parse

#: Formats of files. Of those that one folder holds, the first is read and the others are left out.
FORMATS = ("parquet", "arrow", "jsonl", "text", "lines")
EXTENSIONS = {
    ".parquet": "parquet", ".pq": "parquet",
    ".arrow": "arrow", ".ipc": "arrow", ".feather": "arrow", ".arrows": "arrow",
    ".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl",
    ".txt": "text", ".text": "text", ".md": "text",
}  # fmt: skip


_CODECS = {".gz": "gzip", ".gzip": "gzip", ".bgz": "gzip", ".zst": "zstd", ".zstd": "zstd", ".bz2": "bz2", ".xz": "xz"}


def compression(path: str) -> str | None:
    """The codec that a file's extension names."""
    return next((codec for end, codec in _CODECS.items() if path.lower().endswith(end)), None)


# What files are that people take for documents, by extension, and what to do with them.
_OTHERS = {
    (".csv", ".tsv", ".psv"): "CSV, of which no field can be named: convert it to Parquet, as with "
    'pyarrow.parquet.write_table(pyarrow.csv.read_csv("a.csv"), "a.parquet")',
    (".orc",): "ORC: convert it to Parquet, as with "
    'pyarrow.parquet.write_table(pyarrow.orc.read_table("a.orc"), "a.parquet")',
    (".warc", ".wet", ".wat"): "a web archive: extract its text first, to Parquet or JSON Lines",
    (".html", ".htm", ".xml", ".xhtml"): "a page of markup: extract its text first, to Parquet or JSON Lines",
    (".avro", ".tfrecord", ".tfrecords", ".h5", ".npy", ".npz", ".pkl", ".pickle", ".pt", ".mds", ".beton"): "of a "
    "format that is not read: convert it to Parquet or JSON Lines",
    (".xls", ".xlsx", ".doc", ".docx", ".pdf", ".epub", ".odt"): "an office document: extract its text first, to "
    "Parquet or JSON Lines",
    (".zip", ".tar", ".tgz", ".7z", ".rar", ".lz4", ".br", ".lzma", ".snappy"): "an archive, or compressed in a way "
    "that is not read: unpack it, or compress it with gzip, zstd, bzip2 or xz",
    (".db", ".sqlite", ".sqlite3", ".duckdb"): "a database: write its text to Parquet or JSON Lines",
}
# The same by the bytes that a file begins with.
_STARTS = (
    (b"version https://git-lfs.github.com/spec/", "a pointer of Git LFS and not the file itself: fetch that with "
     "`git lfs pull`"),
    (b"WARC/1.", _OTHERS[".warc", ".wet", ".wat"]),
    (b"ORC", _OTHERS[(".orc",)]),
    (b"PAR1", "Parquet: name it .parquet, or ask for the format parquet"),
    (b"PARE", "Parquet with an encrypted footer: decrypt it first"),
    (b"ARROW1", "an Arrow IPC file: name it .arrow, or ask for the format arrow"),
    (b"\x1f\x8b", "compressed by gzip: name it .gz"),
    (b"\x28\xb5\x2f\xfd", "compressed by zstd: name it .zst"),
    (b"BZh", "compressed by bzip2: name it .bz2"),
    (b"\xfd7zXZ\0", "compressed by xz: name it .xz"),
    (b"PK\x03\x04", "a ZIP archive: unpack it"),
    (b"%PDF-", "a PDF: extract its text first, to Parquet or JSON Lines"),
    (b"SQLite format 3\0", "a database: write its text to Parquet or JSON Lines"),
    (b"Obj\x01", "Avro: convert it to Parquet or JSON Lines"),
    (b"\x80\x04\x95", "a pickle of Python: write its text to Parquet or JSON Lines"),
    (b"\x93NUMPY", "an array of NumPy: write its text to Parquet or JSON Lines"),
    (b"\x89HDF", "HDF5: convert it to Parquet or JSON Lines"),
)  # fmt: skip
# Those that text could begin with.
_WORDS = (b"ORC", b"PAR1", b"PARE", b"ARROW1")


def what_by_name(path: str) -> str | None:
    """What a file that no format reads is by its extension, and what to do with it."""
    name = path.lower().rpartition("/")[2]
    if compression(name):
        name = name.rpartition(".")[0]
    return next((what for ends, what in _OTHERS.items() if name.endswith(ends)), None)


def what_by_start(start: bytes, markup: bool = True) -> str | None:
    """What a file is by its first bytes, if it is nothing that is read as it stands there, and what to do with it.

    `ORC` and the like begin texts, too, so that some more of the file has to agree; `markup`: a web page is none of
    those either.
    """
    for magic, what in _STARTS:
        if start.startswith(magic):
            if magic == b"BZh" and start[4:10] not in (b"1AY&SY", b"\x17rE8P\x90"):
                continue
            if magic in _WORDS and not any(byte < 9 for byte in start[len(magic) : 256]):
                continue
            return what
    head = start.lstrip()[:40]
    if markup and head[:1] == b"<":
        return f"what looks like a web page and begins with {head!r}: fetch the file itself, or extract its text"
    return None


def partition_of(path: str, column: str) -> str | None:
    """The value that a folder of a path names, as in `lang=en/part-0.parquet`; "" for null, None where none does.

    Hive, Spark, DuckDB and `datasets` write such folders and leave the column out of the files.
    """
    for folder in reversed(path.split("/")[:-1]):
        name, equals, value = folder.partition("=")
        if equals and urllib.parse.unquote(name) == column:
            value = urllib.parse.unquote(value, errors="surrogateescape")
            return "" if value == "__HIVE_DEFAULT_PARTITION__" else value
    return None
