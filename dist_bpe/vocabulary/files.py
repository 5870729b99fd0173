"""The files of a vocabulary: the formats there are, the manifest, writing, publishing, loading."""

import contextlib
import fcntl
import hashlib
import os
import re
import shutil
import tempfile
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from dist_bpe import _core
from dist_bpe.errors import FormatError, RunError, UsageError
from dist_bpe.pretokenize.patterns import Pattern
from dist_bpe.storage.files import RunPath, publish_folder, sha256, to_json, write_new
from dist_bpe.storage.files import write as write_file
from dist_bpe.storage.layout import MANIFEST, REPORT
from dist_bpe.vocabulary.data import VocabularyData
from dist_bpe.vocabulary.formats import gpt2, parquet, tiktoken, tokenizers
from dist_bpe.vocabulary.formats.format import CARRIED, Files, Format, parsed, shown

FORMATS: dict[str, Format] = {
    format.name: format for format in (gpt2.FORMAT, tokenizers.FORMAT, tiktoken.FORMAT, parquet.FORMAT)
}
"""The formats by name."""


def chosen_formats(names: Iterable[str] | None) -> list[Format]:
    """The formats of these names, or all.

    Raises:
        UsageError: a name that is none, or no name at all.
    """
    if isinstance(names, str):
        raise TypeError("formats is a list of names, not one string")
    chosen = list(FORMATS) if names is None else list(dict.fromkeys(names))
    if not chosen:
        raise UsageError(f"no format is named: name one of {', '.join(FORMATS)}, or leave formats out for all.")
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


class _Model(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True)


class _File(_Model):
    bytes: int = Field(ge=0)
    sha256: str = Field(pattern="^[0-9a-f]{64}$")


class _Pattern(_Model):
    name: str | None
    regex: str


class _Special(_Model):
    text: str
    role: str
    id: int


class Manifest(_Model):
    """manifest.json as it is read; what later releases add to it is passed over."""

    format: Literal["dist_bpe vocabulary"]
    version: Literal[1]
    fingerprints: dict[str, Any]
    sizes: dict[str, int]
    pattern: _Pattern
    special_tokens: list[_Special]
    normalization: str | None
    left_out: dict[str, str]
    files: dict[str, _File]


def read_manifest(folder: RunPath) -> Manifest | None:
    """A vocabulary's manifest; None where there is none, or one of something else.

    Raises:
        FormatError: it is damaged.
    """
    path = folder / MANIFEST
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise FormatError(f"{path} cannot be read: {error.strerror or error}.") from error
    try:
        value = parsed(content, str(path))
    except FormatError as error:
        raise FormatError(f"{error} {_WAY_OUT}") from error
    if not isinstance(value, dict) or not value:
        raise FormatError(f"{path} is damaged: it holds no entries. {_WAY_OUT}")
    if value.get("format") != "dist_bpe vocabulary":
        return None
    if type(value.get("version")) is int and value["version"] > 1:
        raise FormatError(f"{path} is of version {shown(value['version'])}; this release reads version 1.")
    try:
        return Manifest.model_validate(value)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise FormatError(f"{path} is damaged at {place} ({first['msg']}). {_WAY_OUT}") from error


_WAY_OUT = f"Restore it, or remove this {MANIFEST} to have the other files read unchecked."


def is_ours(folder: RunPath, manifest: Manifest | None, name: str, content: bytes | None = None) -> bool:
    """Whether a file in a folder is one that we wrote and may take away: the one rule for that.

    Ours is what our manifest in the folder lists with the checksum that it has, if we write files of that name at all;
    the manifest itself, and the report beside one; and what already holds the very bytes that are to be written. A
    name makes nothing ours.

    Args:
        folder: where the file lies.
        manifest: the folder's manifest, if it is one of ours.
        name: the file's.
        content: what is to be written in its place, if anything.
    """
    path = folder / name
    try:
        if content is not None and path.read_bytes() == content:
            return True
        if manifest is None:
            return False
        if name in (MANIFEST, REPORT):
            return True
        listed = manifest.files.get(name)
        return name in _NAMES and listed is not None and sha256(path) == listed.sha256
    except (OSError, ValueError):
        return False


def refuse_foreign(folder: RunPath, files: Mapping[str, bytes | None] | None = None) -> None:
    """Refuse to write a vocabulary to a folder where that would replace a file that is not ours, see `is_ours`.

    Args:
        folder: where to; it need not be there.
        files: what is to be written, by name; None for bytes that are not known yet. By default all that there can be.

    Raises:
        RunError: it would; the message names the file.
    """
    manifest = _manifest_if_whole(folder)
    for name, content in sorted((files or dict.fromkeys((*_NAMES, MANIFEST, REPORT))).items()):
        if _exists(folder / name) and not is_ours(folder, manifest, name, content):
            reason = (
                f"the {MANIFEST} there does not account for it"
                if manifest
                else f"there is no {MANIFEST} of a vocabulary beside it"
            )
            raise RunError(
                f"{folder / name} is there and is no file that was written here: {reason}. Name another folder or "
                "vocabulary, or have it replaced (--overwrite, overwrite=True)."
            )


def _manifest_if_whole(folder: RunPath) -> Manifest | None:
    try:
        return read_manifest(folder)
    except FormatError:
        return None  # a damaged one accounts for nothing


def _exists(path: RunPath) -> bool:
    """Whether anything has that name, be it a link that leads nowhere."""
    return os.path.lexists(path) if isinstance(path, Path) else path.exists()


def publish_files(
    folder: RunPath,
    files: Mapping[str, bytes],
    check: Callable[[Path], None] = lambda _: None,
    overwrite: bool = False,
) -> None:
    """Put a vocabulary's files, manifest.json among them, into a folder: all of them, or none.

    They are written to a temporary folder, looked at by `check`, and moved. A new folder appears whole. In one that is
    there already the old manifest goes first, the new one comes last, and files of ours (`is_ours`) that are no more
    are removed; what else lies there (a model, a report) is left alone. So a folder with a manifest is always complete.
    In an object store a new one, too, is put there file by file. What a killed process left of this is removed.

    Args:
        folder: where to.
        files: their bytes by name.
        check: looks at the temporary folder, and raises what is wrong.
        overwrite: replace files that are not ours, too; those that only bear a name in a manifest still stay.

    Raises:
        RunError: a file is there that is not ours, and `overwrite` is not given; nothing is changed.
        UsageError: the files cannot be written there.
    """
    _refuse_nul(folder)
    try:
        if isinstance(folder, Path):
            sweep(folder)
            if not os.path.lexists(folder):
                with publish_folder(folder) as temporary, _in_use(temporary):
                    _write_all(temporary, files)
                    check(temporary)
                return
            if not folder.is_dir():
                raise UsageError(f"the files cannot be written to {folder}: it is no folder.")
        if not overwrite:
            refuse_foreign(folder, files)
        with _temporary(folder) as temporary:
            _write_all(temporary, files)
            check(temporary)
            old = _manifest_if_whole(folder)
            stale = [name for name in (old.files if old else ()) if name not in files and is_ours(folder, old, name)]
            (folder / MANIFEST).unlink(missing_ok=True)
            for name in stale:
                (folder / name).unlink(missing_ok=True)
            for name in sorted(files, key=MANIFEST.__eq__):
                write_file(folder / name, files[name])
        if isinstance(folder, Path):
            sweep(folder)
    except OSError as error:
        raise UsageError(f"the files cannot be written to {folder}: {error.strerror or error}.") from error


def _refuse_nul(path: RunPath) -> None:
    if "\0" in str(path):
        raise UsageError(f"the path {str(path)!r} holds a NUL character, which no file's name can.")


@contextlib.contextmanager
def _temporary(folder: RunPath) -> Iterator[Path]:
    """A folder inside a local one, which may be the only place to write to, or where temporary files lie."""
    if not isinstance(folder, Path):
        with tempfile.TemporaryDirectory() as name:
            yield Path(name)
        return
    temporary = folder / f".{folder.name}.{uuid.uuid4().hex}.tmp"
    temporary.mkdir()
    try:
        with _in_use(temporary):
            yield temporary
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


@contextlib.contextmanager
def _in_use(folder: Path) -> Iterator[None]:
    """Hold a lock on a temporary folder, which ends with this process, so that no other one takes it for a leftover."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        _try_lock(descriptor)
        yield
    finally:
        os.close(descriptor)


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:  # held by another process, or a file system without such locks
        return False
    return True


def sweep(folder: Path) -> None:
    """Remove what killed processes left of publishing a vocabulary there: temporary folders, and files beside its own.

    Each has a name that only we give; a folder holds nothing but files of ours, and no living process has its lock; a
    file lies beside a manifest of ours.
    """
    with contextlib.suppress(OSError):
        for path in [*folder.parent.iterdir(), *(folder.iterdir() if folder.is_dir() else ())]:
            if re.fullmatch(rf"\.{re.escape(folder.name)}\.{_UNIQUE}\.tmp", path.name) and not path.is_symlink():
                _remove_leftover(path)
    if _manifest_if_whole(folder) is not None:
        with contextlib.suppress(OSError):
            for path in folder.iterdir():
                if re.fullmatch(rf"\.{_UNIQUE}\.tmp", path.name) and path.is_file() and not path.is_symlink():
                    path.unlink(missing_ok=True)


def _remove_leftover(folder: Path) -> None:
    with contextlib.suppress(OSError):
        if any(file.name not in (*_NAMES, MANIFEST) for file in folder.iterdir()):
            return
        descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
        try:
            if _try_lock(descriptor):
                shutil.rmtree(folder, ignore_errors=True)
        finally:
            os.close(descriptor)


_UNIQUE = "[0-9a-f]{12}4[0-9a-f]{3}[89ab][0-9a-f]{15}"  # as uuid4().hex is made


def _write_all(folder: Path, files: Mapping[str, bytes]) -> None:
    for name, content in files.items():
        write_new(folder / name, content)


def load(path: RunPath, pattern: Pattern | None = None) -> VocabularyData:
    """Read a vocabulary from its folder, or from one of its files (with those that belong to it beside it).

    Of several formats in a folder the one that carries most is read. Files whose SHA-256 is in a manifest beside them
    must have it; from a folder, all of them.

    Args:
        path: the folder or file.
        pattern: for the format gpt2, which names none (GPT-2's by default), and for a file of tiktoken's alone.

    Raises:
        UsageError: nothing there, or another pattern than the file's own is given, or none where it is needed.
        FormatError: a file is missing, damaged, changed since it was written, or of another layout.
    """
    _refuse_nul(path)
    try:
        return _load(path, pattern)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror or error}.") from error


def _load(path: RunPath, pattern: Pattern | None) -> VocabularyData:
    if path.is_dir():
        manifest = read_manifest(path)
        there = [format for format in FORMATS.values() if (path / format.files[0]).is_file()]
        if there:
            best = max(there, key=lambda format: len(format.carries))
            for name in manifest.files.keys() - {*best.files} if manifest else ():
                # Names of ours only: a manifest from elsewhere must not lead out of its folder.
                if name in _NAMES and (path / name).is_file():
                    _check(path / name, manifest, sha256(path / name))
            return _read(best, {name: path / name for name in best.files}, pattern, manifest)
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
        FormatError: a file is missing, damaged, changed since it was written, or of another layout.
    """
    paths = {name: folder / name for name in FORMATS[format].files}
    return _read(FORMATS[format], paths, pattern, read_manifest(folder))


def _read(
    format: Format, paths: Mapping[str, RunPath], pattern: Pattern | None, manifest: Manifest | None = None
) -> VocabularyData:
    content = {}
    for name, path in paths.items():
        if name in format.optional and not path.is_file() and not (manifest and name in manifest.files):
            continue
        try:
            content[name] = path.read_bytes()
        except OSError as error:
            raise FormatError(f"{path} cannot be read: {error.strerror or error}.") from error
        _check(path, manifest, hashlib.sha256(content[name]).hexdigest())
    data = format.read(Files(content, {name: paths[name].name for name in content}), pattern)
    if pattern is not None and data.pattern != pattern:
        raise UsageError(
            f"{paths[format.files[0]]} was made with the pattern {data.pattern.name or data.pattern.regex!r}; another "
            "one would cut text into other words than it was learned from."
        )
    return data


def _check(path: RunPath, manifest: Manifest | None, digest: str) -> None:
    if manifest and path.name in manifest.files and manifest.files[path.name].sha256 != digest:
        raise FormatError(
            f"{path} is not the file that {MANIFEST} names: it was changed or damaged. Restore it, export the "
            f"vocabulary again from another of its files with --overwrite, or remove {MANIFEST} if the change is meant."
        )


_NAMES = tuple(name for format in FORMATS.values() for name in format.files)


def table() -> str:
    """What each format carries, as the Markdown table of docs/formats.md."""
    rows = [["format", "files", *CARRIED], ["---"] * (2 + len(CARRIED))]
    for format in FORMATS.values():
        files = ", ".join(f"`{name}`" for name in format.files)
        rows.append([f"`{format.name}`", files, *("yes" if item in format.carries else "no" for item in CARRIED)])
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)
