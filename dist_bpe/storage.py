"""Where runs live: files that appear whole or not at all, and names that only one writer can take.

Everything here is a local or shared POSIX folder. Presence means done: a reader never sees half a file, because each is
written under a temporary name beside its own, flushed to the disk, and renamed. Every write, flush, link and rename
goes through `step`, which repeats what may pass, and where tests inject faults.
"""

import contextlib
import errno
import hashlib
import io
import json
import os
import shutil
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from dist_bpe.errors import FormatError, RunError

R = TypeVar("R")

#: Seconds from the first failure of a step to the moment of giving up.
RETRY_SECONDS = 60.0
FIRST_WAIT_SECONDS = 0.1
LONGEST_WAIT_SECONDS = 5.0
# What a full disk, a busy one, and a network file system out of reach answer. All may pass.
_FULL = {errno.ENOSPC, errno.EDQUOT}
_PASSING = _FULL | {
    errno.EIO, errno.EAGAIN, errno.EBUSY, errno.ESTALE, errno.ETIMEDOUT, errno.ECONNRESET, errno.ENOTCONN,
    errno.EHOSTDOWN, errno.EHOSTUNREACH, errno.ENETDOWN, errno.ENETUNREACH, errno.EREMOTEIO,
}  # fmt: skip

#: Called before each step with its name and path, by tests alone.
inject: Callable[[str, Path], None] | None = None


def step(name: str, path: Path, action: Callable[[], R]) -> R:
    """Do one thing to the disk, and again while it fails by what may pass, for `RETRY_SECONDS`.

    Raises:
        RunError: it failed until then: the disk is full, or out of reach.
        OSError: any other failure.
    """
    deadline, wait = 0.0, FIRST_WAIT_SECONDS
    while True:
        try:
            if inject:
                inject(name, path)
            return action()
        except OSError as error:
            if error.errno not in _PASSING:
                raise
            now = time.monotonic()
            deadline = deadline or now + RETRY_SECONDS
            if now + wait > deadline:
                raise RunError(
                    f"{path}: {name} failed for {RETRY_SECONDS:.0f} seconds: {error.strerror or error}. "
                    + ("Free some space there; " if error.errno in _FULL else "")
                    + "what was finished is kept, and the same command goes on from there."
                ) from error
        time.sleep(wait)
        wait = min(2 * wait, LONGEST_WAIT_SECONDS)


def flush(path: Path) -> None:
    """Force a file or a folder's entries to the disk, so that a crash after the rename cannot show an empty file."""

    def action() -> None:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    step("fsync", path, action)


def move(source: Path, target: Path) -> None:
    """Rename a file or folder, durably. What has the new name is replaced if it is a file or an empty folder."""
    step("rename", target, lambda: source.rename(target))
    flush(target.parent)


class NewFile(io.RawIOBase):
    """A new file whose writes go through `step`: each has its place, so that it can be repeated after half of it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._at = 0
        self._descriptor: int = step(
            "create", path, lambda: os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o666)
        )

    def write(self, data: Any, /) -> int:
        """Append all of it."""
        view = memoryview(data).cast("B")
        done = 0
        while done < len(view):
            rest, at = view[done:], self._at + done
            done += step("write", self._path, lambda rest=rest, at=at: os.pwrite(self._descriptor, rest, at))  # type: ignore[misc]
        self._at += done
        return done

    def tell(self) -> int:
        """Bytes written."""
        return self._at

    def writable(self) -> bool:
        """Always."""
        return True

    def close(self) -> None:
        """Close it; only `publish` flushes it to the disk."""
        if not self.closed:
            os.close(self._descriptor)
        super().close()


def write(path: Path, content: bytes) -> None:
    """Publish a small file, in the place of what had its name."""
    with publish(path) as temporary, NewFile(temporary) as file:
        file.write(content)


@contextlib.contextmanager
def publish(path: Path) -> Iterator[Path]:
    """Yield a temporary path to write a file to; on success it takes the place of `path`, on failure it is removed."""
    temporary = path.parent / f".{path.name}.{uuid.uuid4().hex}.tmp"
    try:
        yield temporary
        flush(temporary)
        step("rename", path, lambda: temporary.replace(path))
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    flush(path.parent)


@contextlib.contextmanager
def publish_folder(folder: Path) -> Iterator[Path]:
    """Yield a temporary folder; on success it takes the place of `folder`, on failure it is removed."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    temporary = folder.parent / f".{folder.name}.{uuid.uuid4().hex}.tmp"
    temporary.mkdir()
    try:
        yield temporary
        for file in temporary.rglob("*"):
            flush(file)
        flush(temporary)
        # A folder cannot be replaced by rename while it has entries: the old one steps aside first.
        old = folder.parent / f".{folder.name}.{uuid.uuid4().hex}.old"
        if folder.exists():
            step("rename", old, lambda: folder.rename(old))
        step("rename", folder, lambda: temporary.rename(folder))
        shutil.rmtree(old, ignore_errors=True)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    flush(folder.parent)


def create_if_absent(path: Path, content: bytes) -> bool:
    """Write `path` only if no file has that name; True if this call made it. Of several writers exactly one wins.

    A hard link is the one POSIX step that both fails on an existing name and shows the content whole.
    """
    temporary = path.parent / f".{path.name}.{uuid.uuid4().hex}.tmp"
    try:
        with NewFile(temporary) as file:
            file.write(content)
        flush(temporary)
        try:
            step("link", path, lambda: path.hardlink_to(temporary))
        except OSError as error:
            if error.errno in (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS):
                raise RunError(
                    f"{path.parent} lies on a file system without hard links, which a run needs: name another folder."
                ) from error
            if not isinstance(error, FileExistsError):
                raise
            # The answer to a link can be lost on NFS, and its repetition finds the name taken: the links tell by whom.
            return temporary.stat().st_nlink > 1
    finally:
        temporary.unlink(missing_ok=True)
    flush(path.parent)
    return True


def sha256(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sealed(value: dict[str, Any]) -> bytes:
    """A small JSON object with a checksum of itself as its last key."""
    return json.dumps(value | {"checksum": _checksum(value)}, ensure_ascii=False).encode("utf-8", "surrogatepass")


def unsealed(path: Path) -> dict[str, Any] | None:
    """Read back what `sealed` gave; None where the file is damaged or missing."""
    try:
        value: dict[str, Any] = json.loads(step("read", path, path.read_bytes).decode("utf-8", "surrogatepass"))
        return value if value.pop("checksum") == _checksum(value) else None
    except (ValueError, KeyError, AttributeError, TypeError, FileNotFoundError):
        return None


def _checksum(value: dict[str, Any]) -> str:
    return digest(json.dumps(value, sort_keys=True).encode())


def digest(data: bytes) -> str:
    """A checksum against accidents: 64 bits of BLAKE2b, which takes a second a gigabyte."""
    return hashlib.blake2b(data, digest_size=8).hexdigest()


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
