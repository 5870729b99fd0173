"""The files of a vocabulary: the formats there are, the manifest, writing, publishing, loading."""

import hashlib
import json
import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from dist_bpe import _core
from dist_bpe.errors import FormatError, UsageError
from dist_bpe.pretokenize.patterns import Pattern
from dist_bpe.storage.files import RunPath, publish, publish_folder, sha256, to_json
from dist_bpe.storage.layout import MANIFEST
from dist_bpe.vocabulary.data import VocabularyData
from dist_bpe.vocabulary.formats import gpt2, parquet, tiktoken, tokenizers
from dist_bpe.vocabulary.formats.format import CARRIED, Files, Format

FORMATS: dict[str, Format] = {
    format.name: format for format in (gpt2.FORMAT, tokenizers.FORMAT, tiktoken.FORMAT, parquet.FORMAT)
}
"""The formats by name."""


def chosen_formats(names: Iterable[str] | None) -> list[Format]:
    """The formats of these names, or all.

    Raises:
        UsageError: a name that is none.
    """
    if isinstance(names, str):
        raise TypeError("formats is a list of names, not one string")
    chosen = list(FORMATS) if names is None else list(dict.fromkeys(names))
    for name in chosen:
        if name not in FORMATS:
            raise UsageError(f"unknown format {name!r}; the formats are: {', '.join(FORMATS)}.")
    return [FORMATS[name] for name in chosen]


def write(data: VocabularyData, names: Iterable[str] | None = None) -> tuple[dict[str, bytes], dict[str, str]]:
    """The bytes of the files by name, and for each format that was left out the reason.

    Args:
        data: what to write.
        names: the formats; one that cannot hold the vocabulary is an error. By default all that can hold it.

    Raises:
        UsageError: an unknown format.
        FormatError: a named format cannot hold this vocabulary.
    """
    files: dict[str, bytes] = {}
    left_out: dict[str, str] = {}
    for format in chosen_formats(names):
        try:
            files |= format.write(data)
        except FormatError as error:
            if names is not None:
                raise
            left_out[format.name] = str(error)
    return files, left_out


def not_carried(data: VocabularyData, names: Iterable[str] | None = None) -> list[str]:
    """What the user of each format has to do himself, since its files cannot say it; a sentence each."""
    if data.normalization is None:
        return []
    return [
        f"{' and '.join(format.files)} cannot say that text is to be brought into the form {data.normalization}: do it "
        "before encoding, or use another format."
        for format in chosen_formats(names)
        if "normalization" not in format.carries
    ]


def manifest(
    data: VocabularyData,
    files: Mapping[str, bytes],
    left_out: Mapping[str, str] | None = None,
    fingerprints: Mapping[str, Any] | None = None,
) -> bytes:
    """manifest.json: what the vocabulary is, where it comes from, and the SHA-256 of each file."""
    value = {
        "format": "dist_bpe vocabulary",
        "version": 1,
        "fingerprints": dict(sorted((fingerprints or {}).items())),
        "sizes": {"total": len(data)} | data.sizes,
        "pattern": {
            "name": data.pattern.name,
            "regex": data.pattern.regex,
            "unicode_tables": _core.UNICODE_TABLES,
            "llama_cpp": data.pattern.llama_cpp,
        },
        "special_tokens": [
            {"text": special.text, "role": special.role, "id": data.special_ids[special.text]}
            for special in data.special_tokens
        ],
        "normalization": data.normalization,
        "left_out": dict(left_out or {}),
        "files": {
            name: {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
            for name, content in sorted(files.items())
        },
    }
    return to_json(value)


def publish_files(folder: RunPath, files: Mapping[str, bytes], check: Callable[[Path], None] = lambda _: None) -> None:
    """Put a vocabulary's files, manifest.json among them, into a folder: all of them, or none.

    They are written to a temporary folder, looked at by `check`, and moved. A new folder appears whole. In one that is
    there already the old manifest goes first, the new one comes last, and files of the old one that are no more are
    removed; what else lies there (a model, a report) is left alone. So a folder with a manifest is always complete. In
    an object store a new one, too, is put there file by file.
    """
    try:
        if isinstance(folder, Path) and not folder.exists():
            with publish_folder(folder) as temporary:
                _write_all(temporary, files)
                check(temporary)
            return
        beside = folder.parent if isinstance(folder, Path) else None
        with tempfile.TemporaryDirectory(prefix=f".{folder.name}.", dir=beside) as name:
            _write_all(Path(name), files)
            check(Path(name))
            old = _manifest_files(folder)
            (folder / MANIFEST).unlink(missing_ok=True)
            for gone in old.keys() - files.keys():
                (folder / gone).unlink(missing_ok=True)
            for file in sorted(files, key=MANIFEST.__eq__):
                with publish(folder / file) as path:
                    path.write_bytes(files[file])
    except OSError as error:
        raise UsageError(f"the files cannot be written to {folder}: {error.strerror or error}.") from error


def _write_all(folder: Path, files: Mapping[str, bytes]) -> None:
    for name, content in files.items():
        (folder / name).write_bytes(content)


def _manifest_files(folder: RunPath) -> dict[str, str]:
    """The SHA-256 of each file that a folder's manifest names; empty if there is no manifest of ours."""
    try:
        value = json.loads((folder / MANIFEST).read_bytes())
        if value["format"] != "dist_bpe vocabulary":
            return {}
        # Names of ours only: a manifest from elsewhere must not lead out of its folder.
        return {Path(name).name: str(file["sha256"]) for name, file in value["files"].items()}
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def load(path: RunPath, pattern: Pattern | None = None) -> VocabularyData:
    """Read a vocabulary from its folder, or from one of its files (with those that belong to it beside it).

    Of several formats in a folder the one that carries most is read. Files whose SHA-256 is in the folder's manifest
    must have it.

    Args:
        path: the folder or file.
        pattern: for the format gpt2, which names none; GPT-2's by default.

    Raises:
        UsageError: nothing there, or another pattern than the file's own is given.
        FormatError: a file is missing, damaged, changed since it was written, or of another layout.
    """
    if path.is_dir():
        for name, digest in _manifest_files(path).items():
            file = path / name
            if file.is_file() and sha256(file) != digest:
                raise FormatError(f"{file} is not the file that {MANIFEST} names: it was changed or damaged.")
        there = [format for format in FORMATS.values() if (path / format.files[0]).is_file()]
        if there:
            return read(path, max(there, key=lambda format: len(format.carries)).name, pattern)
        known = ", ".join(file.files[0] for file in FORMATS.values())
        raise UsageError(f"{path} holds no vocabulary: none of {known} is there.")
    if not path.is_file():
        raise UsageError(f"no vocabulary at {path}: there is no such file or folder.")
    for format in FORMATS.values():
        if path.name in format.files:
            return read(path.parent, format.name, pattern)
    # A file of another name is known by its ending; what belongs to it has the same stem.
    match path.suffix:
        case ".parquet":
            return _read(FORMATS["parquet"], {"merges.parquet": path}, pattern)
        case ".json":
            return _read(FORMATS["tokenizers"], {"tokenizer.json": path}, pattern)
        case ".tiktoken":
            sidecar = path.with_suffix(".json")
            return _read(FORMATS["tiktoken"], {"vocab.tiktoken": path, "tiktoken.json": sidecar}, pattern)
    raise UsageError(
        f"{path} is no vocabulary file by its name; it should be one of "
        f"{', '.join(name for format in FORMATS.values() for name in format.files)}."
    )


def read(folder: RunPath, format: str, pattern: Pattern | None = None) -> VocabularyData:
    """Read the files of one format in a folder.

    Args:
        folder: where they lie, under their usual names.
        format: its name.
        pattern: for a format that names none; GPT-2's by default.

    Raises:
        FormatError: a file is missing, damaged or of another layout.
    """
    paths = {name: folder / name for name in FORMATS[format].files}
    return _read(FORMATS[format], paths, pattern)


def _read(format: Format, paths: Mapping[str, RunPath], pattern: Pattern | None) -> VocabularyData:
    content = {}
    for name, path in paths.items():
        if name in format.optional and not path.is_file():
            continue
        try:
            content[name] = path.read_bytes()
        except OSError as error:
            raise FormatError(f"{path} cannot be read: {error.strerror or error}.") from error
    data = format.read(Files(content, {name: paths[name].name for name in content}), pattern)
    if pattern is not None and data.pattern != pattern:
        raise UsageError(
            f"{paths[format.files[0]]} was made with the pattern {data.pattern.name or data.pattern.regex!r}; another "
            "one would cut text into other words than it was learned from."
        )
    return data


def table() -> str:
    """What each format carries, as the Markdown table of docs/formats.md."""
    rows = [["format", "files", *CARRIED], ["---"] * (2 + len(CARRIED))]
    for format in FORMATS.values():
        files = ", ".join(f"`{name}`" for name in format.files)
        rows.append([f"`{format.name}`", files, *("yes" if item in format.carries else "no" for item in CARRIED)])
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)
