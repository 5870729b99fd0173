"""File formats: their names, extensions and compressions."""

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
