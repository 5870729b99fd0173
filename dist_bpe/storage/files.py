"""Where runs live: files that appear whole or not at all, and names that only one writer can take.

A run lives in a local or shared POSIX folder, or under a prefix of an object store (`bucket`). Presence means done: a
reader never sees half a file. In a folder each is written under a temporary name beside its own, flushed to the disk,
and renamed; every write, flush, link and rename goes through `once` or `retried`, which repeats what may pass, says in
one sentence what will not, and where tests inject faults. A flush that failed is not repeated: the system has given up
the bytes, and the next flush knows nothing of them. The file is written anew, under another name. Objects appear whole
by themselves; large ones are written to a local temporary file first, so that a failed upload can be repeated.
"""

import contextlib
import errno
import hashlib
import io
import json
import os
import re
import shutil
import stat
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from dist_bpe.errors import FULL, FormatError, RunError, UsageError, of_system
from dist_bpe.storage.bucket import BucketPath, bucket_path
from dist_bpe.storage.layout import MANIFEST
from dist_bpe.storage.places import LOCAL, split

R = TypeVar("R")
RunPath = Path | BucketPath
"""Where a run, or something of it, lies."""
#: Seconds from the first failure of a step to the moment of giving up.
RETRY_SECONDS = 60.0
FIRST_WAIT_SECONDS = 0.1
LONGEST_WAIT_SECONDS = 5.0
# What a full disk, a busy one, a network file system out of reach, and a system short of files or memory answer. All
# may pass.
_PASSING = FULL | {
    errno.EINTR, errno.EMFILE, errno.ENFILE, errno.ENOMEM,
    errno.EIO, errno.EAGAIN, errno.EBUSY, errno.ESTALE, errno.ETIMEDOUT, errno.ECONNRESET, errno.ENOTCONN,
    errno.EHOSTDOWN, errno.EHOSTUNREACH, errno.ENETDOWN, errno.ENETUNREACH, errno.EREMOTEIO,
}  # fmt: skip
# What callers want to know themselves.
_ANSWERS = (FileNotFoundError, FileExistsError)
# Of `scratch` and what is published through it; half of a file where a process was killed.
_LITTER = re.compile(r"\.(?:.+\.)?[0-9a-f]{32}\.tmp")
#: Called before each step with its name and path, by tests alone.
inject: Callable[[str, Path], None] | None = None


def parse_path(text: "str | RunPath") -> RunPath:
    """The path of a run folder as a user writes it: a local path, or a URI of an object store.

    Raises:
        UsageError: a URI of a place that cannot hold a run, or what no file can be called.
    """
    if isinstance(text, BucketPath):
        return text
    if not str(text):
        raise UsageError("an empty path names no folder; the working folder is a dot.")
    try:
        unnamable = b"\0" in os.fsencode(text)
    except UnicodeEncodeError:
        unnamable = True
    if unnamable:
        raise UsageError(f"{text} cannot be the name of a file: it holds a character that no name can have.")
    if isinstance(text, Path):
        # A Path made of a URI has lost slashes.
        text = re.sub(r"^file:/(?!/)", "file:///", str(text))
        text = re.sub(r"(?<=[a-z0-9]):/(?!/)", "://", text) if re.match(r"[a-z0-9]{2,}:/", text) else text
    if "://" not in text:
        return Path(text)
    place, key = split(text)
    return Path(key) if place == LOCAL else bucket_path(text)


def uri_of(path: "str | RunPath") -> str:
    """What `at` makes a path from again; a URI with its secrets."""
    path = parse_path(path)
    return path.uri() if isinstance(path, BucketPath) else str(path)


def once(name: str, path: Path, action: Callable[[], R]) -> R:
    """Do one thing to the disk: the place where tests inject faults.

    Raises:
        UsageError, RunError: a failure that would come again, as one sentence.
        OSError: one that may pass, or the answer that a name is missing or taken.
    """
    try:
        if inject:
            inject(name, path)
        return action()
    except _ANSWERS:
        raise
    except OSError as error:
        if error.errno in _PASSING:
            raise
        raise of_system(error, path, _DONE.get(name, "be written")) from error


# What a step of another name than these does is writing.
_DONE = {"open": "be read", "read": "be read", "list": "be read"}


def retried(name: str, path: Path, action: Callable[[], R]) -> R:
    """Do one thing to the disk, and again while it fails by what may pass, for `RETRY_SECONDS`.

    Raises:
        RunError: it failed until then: the disk is full, or out of reach.
        UsageError: it fails by what will not pass, such as missing rights.
        FileNotFoundError, FileExistsError: the name is missing or taken.
    """
    return _repeated(name, path, lambda: once(name, path, action))


def _repeated(name: str, path: Path, action: Callable[[], R]) -> R:
    deadline, wait = 0.0, FIRST_WAIT_SECONDS
    while True:
        try:
            return action()
        except _ANSWERS:
            raise
        except OSError as error:
            if error.errno not in _PASSING:
                raise of_system(error, path, "be written") from error
            now = time.monotonic()
            deadline = deadline or now + RETRY_SECONDS
            if now + wait > deadline:
                raise RunError(
                    f"{path}: {name} failed for {RETRY_SECONDS:.0f} seconds: {error.strerror or error}. "
                    + ("Free some space there; " if error.errno in FULL else "")
                    + ("Raise the limit of open files (ulimit -n); " if error.errno == errno.EMFILE else "")
                    + "what was finished is kept, and the same command goes on from there."
                ) from error
        time.sleep(wait)
        wait = min(2 * wait, LONGEST_WAIT_SECONDS)


def flush(path: Path) -> None:
    """Force a file or a folder's entries to the disk, so that a crash after the rename cannot show an empty file.

    Raises:
        OSError: the bytes of a file may be lost. Flushing again would not bring them back, although it would succeed:
            the file must be written anew.
        RunError: the entries of a folder could not be flushed for `RETRY_SECONDS`.
    """
    descriptor = retried("open", path, lambda: os.open(path, os.O_RDONLY | os.O_CLOEXEC))
    try:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            _flush_folder(path, descriptor)
        else:
            once("fsync", path, lambda: os.fsync(descriptor))
    finally:
        os.close(descriptor)


def _flush_folder(path: Path, descriptor: int) -> None:
    failed = False

    def attempt() -> None:
        nonlocal failed
        if failed:
            # An entry made and removed gives the next flush the folder to write once more.
            touched = path / f".{uuid.uuid4().hex}.tmp"
            touched.touch()
            touched.unlink()
        failed = True
        once("fsync", path, lambda: os.fsync(descriptor))

    _repeated("fsync", path, attempt)


def move(source: Path, target: Path) -> None:
    """Rename a file or folder, durably. What has the new name is replaced if it is a file or an empty folder."""
    retried("rename", target, lambda: source.rename(target))
    flush(target.parent)


def make_folder(path: RunPath, parents: bool = False, exist_ok: bool = True) -> None:
    """Make a folder, as `Path.mkdir` does; nothing in an object store.

    Raises:
        UsageError: it cannot be made there, or a file has its name.
        FileExistsError: it is there, unless that is `exist_ok`.
    """
    if isinstance(path, BucketPath):
        return
    try:
        retried("mkdir", path, lambda: path.mkdir(parents=parents, exist_ok=exist_ok))
    except FileExistsError as error:
        if exist_ok:
            raise UsageError(f"{path} cannot be written: it is a file. Name a folder.") from error
        raise


def is_litter(name: str) -> bool:
    """Whether a file's name is of those that hold half of a file until it is published."""
    return bool(_LITTER.fullmatch(name))


class NewFile(io.RawIOBase):
    """A new file whose writes are repeated while they fail: each has its place, to be repeated after half of it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._at = 0
        self._descriptor: int = retried(
            "create", path, lambda: os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o666)
        )

    def write(self, data: Any, /) -> int:
        """Append all of it."""
        view = memoryview(data).cast("B")
        done = 0
        while done < len(view):
            rest, at = view[done:], self._at + done
            done += retried("write", self._path, lambda rest=rest, at=at: os.pwrite(self._descriptor, rest, at))  # type: ignore[misc]
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
        try:
            if not self.closed:
                os.close(self._descriptor)
        finally:
            super().close()


def write(path: RunPath, content: bytes) -> None:
    """Publish a small file, in the place of what had its name; again from the beginning while a flush fails."""
    if isinstance(path, BucketPath):
        path.write_bytes(content)
        return

    def attempt() -> None:
        with publish(path) as temporary, NewFile(temporary) as file:
            file.write(content)

    _repeated("fsync", path, attempt)


def write_new(path: Path, content: bytes) -> None:
    """Write a file of a folder that nobody reads yet (see `publish_folder`), and flush it.

    As `write`, but without a rename: a new name would be a new entry each time.
    """

    def attempt() -> None:
        try:
            with NewFile(path) as file:
                file.write(content)
            flush(path)
        except BaseException:
            path.unlink(missing_ok=True)
            raise

    _repeated("fsync", path, attempt)


@contextlib.contextmanager
def scratch(folder: RunPath) -> Iterator[Path]:
    """Yield the path of a new local file, from which `put` can publish into `folder`; it is removed at the end."""
    where = folder if isinstance(folder, Path) else Path(tempfile.gettempdir())
    temporary = where / f".{uuid.uuid4().hex}.tmp"
    try:
        yield temporary
    finally:
        with contextlib.suppress(OSError):  # what keeps it from being written comes first
            temporary.unlink(missing_ok=True)


def put(temporary: Path, path: RunPath) -> None:
    """Publish a file of `scratch`, in the place of what had its name.

    Raises:
        OSError: a flush failed: the file must be written anew.
    """
    if isinstance(path, BucketPath):
        path.upload(temporary)
        return
    flush(temporary)
    retried("rename", path, lambda: temporary.replace(path))
    flush(path.parent)


@contextlib.contextmanager
def publish(path: RunPath) -> Iterator[Path]:
    """Yield a temporary path to write a file to; on success it takes the place of `path`, on failure it is removed.

    Raises:
        OSError: a flush failed: the file must be written anew.
    """
    with scratch(path.parent) as temporary:
        yield temporary
        put(temporary, path)


@contextlib.contextmanager
def publish_folder(folder: RunPath, last: str = MANIFEST) -> Iterator[Path]:
    """Yield a temporary folder; on success it takes the place of `folder`, on failure it is removed.

    In an object store the files replace those of their names one by one, and what was there besides is removed; the
    file `last` is gone first and comes last.
    """
    if isinstance(folder, BucketPath):
        with tempfile.TemporaryDirectory() as name:
            yield Path(name)
            (folder / last).unlink(missing_ok=True)
            files = sorted((file for file in Path(name).iterdir()), key=lambda file: (file.name == last, file.name))
            for file in files:
                (folder / file.name).upload(file)
            names = {file.name for file in files}
            folder.delete([folder / gone for gone in folder.sizes().keys() - names])
        return
    make_folder(folder.parent, parents=True)
    temporary = folder.parent / f".{folder.name}.{uuid.uuid4().hex}.tmp"
    make_folder(temporary, exist_ok=False)
    # A folder cannot be replaced by rename while it has entries: the old one steps aside first.
    old = folder.parent / f".{folder.name}.{uuid.uuid4().hex}.old"
    try:
        yield temporary
        for file in temporary.rglob("*"):
            flush(file)
        flush(temporary)
        if folder.exists():
            retried("rename", old, lambda: folder.rename(old))
        retried("rename", folder, lambda: temporary.rename(folder))
        shutil.rmtree(old, ignore_errors=True)
    except BaseException:
        if old.exists() and not folder.exists():
            with contextlib.suppress(OSError):
                old.rename(folder)
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    flush(folder.parent)


def create_if_absent(path: RunPath, content: bytes) -> bool:
    """Write `path` only if no file has that name; True if this call made it. Of several writers exactly one wins.

    A hard link is the one POSIX step that both fails on an existing name and shows the content whole. (In an object
    store a writer of the very same content wins, too.)
    """
    if isinstance(path, BucketPath):
        return path.create(content)
    return _repeated("fsync", path, lambda: _created(path, content))


def _created(path: Path, content: bytes) -> bool:
    temporary = path.parent / f".{path.name}.{uuid.uuid4().hex}.tmp"

    def link() -> None:
        try:
            path.hardlink_to(temporary)
        except OSError as error:
            if error.errno not in (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS):
                raise
            raise RunError(
                f"{path.parent} lies on a file system without hard links, which a run needs: name another folder."
            ) from error

    try:
        with NewFile(temporary) as file:
            file.write(content)
        flush(temporary)
        try:
            retried("link", path, link)
        except FileExistsError:
            # The answer to a link can be lost on NFS, and its repetition finds the name taken: the links tell by whom.
            if temporary.stat().st_nlink == 1:
                return False
    finally:
        with contextlib.suppress(OSError):  # what keeps it from being written comes first
            temporary.unlink(missing_ok=True)
    flush(path.parent)
    return True


@contextlib.contextmanager
def ranges(path: RunPath) -> Iterator[Callable[[int, int], bytes]]:
    """Yield a function that reads (offset, bytes) of a file.

    Raises:
        FileNotFoundError: it is not there; of an object the function tells it.
    """
    if isinstance(path, BucketPath):
        yield path.read_range
        return
    descriptor = retried("open", path, lambda: os.open(path, os.O_RDONLY | os.O_CLOEXEC))
    try:
        yield lambda offset, size: retried("read", path, lambda: os.pread(descriptor, size, offset))
    finally:
        os.close(descriptor)


def opened(path: RunPath) -> Any:
    """What pyarrow reads a file from."""
    if isinstance(path, BucketPath):
        return path.open()
    # It takes no names that are not UTF-8.
    return path if os.fsencode(path).decode(errors="ignore") == str(path) else path.open("rb")


def sizes(folder: RunPath) -> dict[str, int]:
    """Bytes of each file in a folder, by name."""
    if isinstance(folder, BucketPath):
        return folder.sizes()
    return retried("list", folder, lambda: _sizes(folder))


def _sizes(folder: Path) -> dict[str, int]:
    with os.scandir(folder) as entries:
        return {entry.name: entry.stat().st_size for entry in entries if entry.is_file()}


def remove(folder: RunPath) -> None:
    """Remove a folder and all in it, as far as it can be."""
    if isinstance(folder, BucketPath):
        folder.rmtree()
    else:
        shutil.rmtree(folder, ignore_errors=True)


def sha256(path: RunPath) -> str:
    """SHA-256 of a file, in hexadecimal."""
    if isinstance(path, BucketPath):
        digests, whole = hashlib.sha256(), path.open()
        while data := whole.read(1 << 20):
            digests.update(data)
        return digests.hexdigest()
    return retried("read", path, lambda: _sha256(path))


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sealed(value: dict[str, Any]) -> bytes:
    """A small JSON object with a checksum of itself as its last key."""
    return json.dumps(value | {"checksum": _checksum(value)}, ensure_ascii=False).encode("utf-8", "surrogatepass")


def unsealed(path: RunPath) -> dict[str, Any] | None:
    """Read back what `sealed` gave; None where the file is damaged or missing."""
    try:
        value: dict[str, Any] = json.loads(_content(path).decode("utf-8", "surrogatepass"))
        return value if value.pop("checksum") == _checksum(value) else None
    except (ValueError, KeyError, AttributeError, TypeError, RecursionError, FileNotFoundError):
        return None


def _checksum(value: dict[str, Any]) -> str:
    return digest(json.dumps(value, sort_keys=True).encode())


def digest(data: bytes) -> str:
    """A checksum against accidents: 64 bits of BLAKE2b, which takes a second a gigabyte."""
    return hashlib.blake2b(data, digest_size=8).hexdigest()


def to_json(value: Any) -> bytes:
    """The one JSON form of our manifests: two spaces, keys in the order given, UTF-8, a final newline."""
    return (json.dumps(value, ensure_ascii=False, indent=2) + "\n").encode()


def read_json(path: RunPath) -> Any:
    """Read a JSON file of ours.

    Raises:
        FormatError: the file is not JSON.
    """
    try:
        return json.loads(_content(path))
    except (ValueError, RecursionError) as error:
        raise FormatError(f"{path} is damaged: it does not hold JSON ({error}). Restore or rebuild it.") from error


def _content(path: RunPath) -> bytes:
    return path.read_bytes() if isinstance(path, BucketPath) else retried("read", path, path.read_bytes)
