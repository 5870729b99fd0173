"""Where runs live: files that appear whole or not at all, and names that only one writer can take.

Everything here is a local or shared POSIX folder. Presence means done: a reader never sees half a file, because each is
written under a temporary name beside its own, flushed to the disk, and renamed.
"""

import contextlib
import hashlib
import json
import os
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dist_bpe.errors import FormatError


def _flush(path: Path) -> None:
    """Force a file or a folder's entries to the disk, so that a crash after the rename cannot show an empty file."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def publish(path: Path) -> Iterator[Path]:
    """Yield a temporary path to write a file to; on success it takes the place of `path`, on failure it is removed."""
    temporary = path.parent / f".{path.name}.{uuid.uuid4().hex}.tmp"
    try:
        yield temporary
        _flush(temporary)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    _flush(path.parent)


@contextlib.contextmanager
def publish_folder(folder: Path) -> Iterator[Path]:
    """Yield a temporary folder; on success it takes the place of `folder`, on failure it is removed."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    temporary = folder.parent / f".{folder.name}.{uuid.uuid4().hex}.tmp"
    temporary.mkdir()
    try:
        yield temporary
        for file in temporary.rglob("*"):
            _flush(file)
        _flush(temporary)
        # A folder cannot be replaced by rename while it has entries: the old one steps aside first.
        old = folder.parent / f".{folder.name}.{uuid.uuid4().hex}.old"
        if folder.exists():
            folder.rename(old)
        temporary.rename(folder)
        shutil.rmtree(old, ignore_errors=True)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    _flush(folder.parent)


def create_if_absent(path: Path, content: bytes) -> bool:
    """Write `path` only if no file has that name; True if this call made it. Of several writers exactly one wins.

    A hard link is the one POSIX step that both fails on an existing name and shows the content whole.
    """
    temporary = path.parent / f".{path.name}.{uuid.uuid4().hex}.tmp"
    try:
        temporary.write_bytes(content)
        _flush(temporary)
        try:
            path.hardlink_to(temporary)
        except FileExistsError:
            return False
    finally:
        temporary.unlink(missing_ok=True)
    _flush(path.parent)
    return True


def sha256(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def to_json(value: Any) -> bytes:
    """The one JSON form of our manifests: two spaces, keys in the order given, UTF-8, a final newline."""
    return (json.dumps(value, ensure_ascii=False, indent=2) + "\n").encode()


def read_json(path: Path) -> Any:
    """Read a JSON file of ours.

    Raises:
        FormatError: the file is not JSON.
    """
    try:
        return json.loads(path.read_bytes())
    except ValueError as error:
        raise FormatError(f"{path} is damaged: it does not hold JSON ({error}). Restore or rebuild it.") from error
