"""Where files lie: paths and URIs to file systems, listings, and reads that outlive a broken connection.

A path without a scheme is local and taken letter by letter. A URI goes to the file system that pyarrow has for its
scheme, else to the one that fsspec has. Keys in a URI are taken as written, too: only `file://` is percent-decoded.

What may be a secret (the login of a URI, its options) is kept apart from the path that people see. It travels with a
shard to the worker that opens the file, and never enters a message.
"""

import fnmatch
import functools
import io
import os
import re
import time
import urllib.parse
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.fs as fs

from dist_bpe.errors import AccessError, DataError, NetworkError, SourceError, UsageError

R = TypeVar("R")
#: Seconds from the first failure of a request to the moment of giving up.
RETRY_SECONDS = 120.0
FIRST_WAIT_SECONDS = 0.25
LONGEST_WAIT_SECONDS = 15.0
# Requests at once while planning; most of their time is waiting for an answer.
THREADS = 16
# Bytes asked for at a time when a remote file is read: large, since each request waits for a round trip.
READ_BYTES = 8 << 20
# Blocks kept, since a reader of two columns goes back and forth between two places.
KEPT_BLOCKS = 3
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)://(.*)", re.DOTALL)
# Options stand behind a question mark in the form name=value; any other question mark is a wildcard or part of a name.
_OPTIONS = re.compile(r"(.*?)\?([A-Za-z_][A-Za-z0-9_.-]*=.*)", re.DOTALL)
_WILD = re.compile(r"[*?\[]")
_ARROW = {"s3", "gs", "gcs", "hdfs", "viewfs", "abfs", "abfss"}
_ALIASES = {"s3a": "s3", "s3n": "s3"}
_WEB = {"http", "https"}
# Options whose values are no secrets and help to understand an error.
_HARMLESS = {
    "region",
    "scheme",
    "endpoint_override",
    "allow_bucket_creation",
    "tls_ca_file_path",
    "endpoint_url",
    "anon",
}
# Answers of a server that the same request would get again. Everything else from a remote file system is taken for a
# broken connection or a busy server.
_FINAL = re.compile(
    r"ACCESS_DENIED|INVALID_ACCESS_KEY|INVALID_CLIENT_TOKEN|INVALID_SIGNATURE|SIGNATURE_DOES_NOT_MATCH|MISSING_AUTH"
    r"|UNRECOGNIZED_CLIENT|EXPIRED_TOKEN|NO_SUCH_BUCKET|NO_SUCH_KEY|RESOURCE_NOT_FOUND"
    r"|HTTP (status|response code):? 40[0134]|PermissionDenied|Unauthenticated|Forbidden|InvalidAccessKeyId"
    r"|SignatureDoesNotMatch|AccessDenied"
    r"|NoCredentials|Unable to locate credentials|401 Client Error|403 Client Error|404 Client Error|Unexpected query"
)
_DENIED = re.compile(
    r"ACCESS_DENIED|ACCESS_KEY|CLIENT_TOKEN|SIGNATURE|AUTH|UNRECOGNIZED_CLIENT|EXPIRED_TOKEN|40[13]|PermissionDenied"
    r"|Unauthenticated|Forbidden|AccessKeyId|AccessDenied|[Cc]redentials",
)
_KEYS = {
    "s3": "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (or a profile in ~/.aws)",
    "gs": "GOOGLE_APPLICATION_CREDENTIALS",
    "gcs": "GOOGLE_APPLICATION_CREDENTIALS",
    "abfs": "the URI's account and the AZURE_* variables",
    "abfss": "the URI's account and the AZURE_* variables",
    "az": "AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY",
    "hf": "HF_TOKEN (or `hf auth login`)",
}


@dataclass(frozen=True)
class Place:
    """A file system and how to reach it. Pickles with its secrets, prints without them.

    Attributes:
        scheme: "" for local files.
        shown: what stands before a key when people see it, as in `s3://` or `abfs://container@account/`.
        host: bucket, container or server, as the URI names it.
        login: `user:password` of the URI, percent-encoded.
        options: `name=value&…` of the URI, percent-encoded.
    """

    scheme: str = ""
    shown: str = ""
    host: str = ""
    login: str = field(default="", repr=False)
    options: str = field(default="", repr=False)

    @property
    def local(self) -> bool:
        """Whether files are read as local paths."""
        return not self.scheme

    def uri(self, key: str) -> str:
        """How people see a key: the local path, or a URI without login and options."""
        if self.scheme in _WEB:
            return f"{self.scheme}://{key.split('://', 1)[-1].split('?', 1)[0].rsplit('@', 1)[-1]}"
        return self.shown + key

    def parsed_options(self) -> dict[str, str]:
        """The options of the URI, decoded."""
        return dict(urllib.parse.parse_qsl(self.options))

    def file_system(self) -> Any:
        """The pyarrow file system, made once a process.

        Raises:
            UsageError: an unknown scheme or option, or a package that is not installed.
        """
        return _file_system(self)

    def safe(self, error: BaseException) -> str:
        """The text of an error without anything of the login and options in it."""
        text = " ".join(str(error).split()) or type(error).__name__
        values = [value for name, value in urllib.parse.parse_qsl(self.options) if name not in _HARMLESS]
        parts = [self.login, *self.login.split(":"), *values]
        forms = {form for part in parts for form in (part, urllib.parse.unquote(part), urllib.parse.quote(part))}
        for form in sorted(forms - {""}, key=len, reverse=True):
            text = text.replace(form, "…")
        return text

    def translate(self, error: BaseException, key: str) -> DataError | SourceError:
        """What a failed request means to the user, in one sentence."""
        uri, text = self.uri(key), self.safe(error)
        if isinstance(error, (DataError, SourceError)):
            return error
        if not self.local and (isinstance(error, PermissionError) or (_FINAL.search(text) and _DENIED.search(text))):
            keys = _KEYS.get(self.scheme, "the credentials of that place")
            return AccessError(f"{uri}: access denied. Check {keys}, and that they may read here ({text}).")
        if isinstance(error, FileNotFoundError):
            return SourceError(f"{uri} is not there.")
        if not self.local and transient(error):
            return NetworkError(f"{uri}: no answer for {RETRY_SECONDS:.0f} seconds; the last error was: {text}")
        return SourceError(f"{uri} cannot be read: {text}")


LOCAL = Place()


@functools.lru_cache(maxsize=64)
def _file_system(place: Place) -> Any:
    if place.local:
        return fs.LocalFileSystem()
    try:
        if place.scheme in _ARROW:
            return fs.FileSystem.from_uri(_address(place) + "/" + ("?" + place.options if place.options else ""))[0]
        import fsspec

        options = fsspec.get_filesystem_class(place.scheme)._get_kwargs_from_urls(_address(place))
        options |= urllib.parse.parse_qsl(place.options)
        return fs.PyFileSystem(fs.FSSpecHandler(fsspec.filesystem(place.scheme, **options)))
    except ImportError as error:
        raise UsageError(f"{place.scheme}:// needs a package that is not installed: {place.safe(error)}") from error
    except (ValueError, TypeError, OSError) as error:
        raise UsageError(f"{place.shown or place.scheme}: no such place: {place.safe(error)}") from None


def _address(place: Place) -> str:
    return f"{place.scheme}://{place.login}{'@' if place.login else ''}{place.host}"


def split(text: str) -> tuple[Place, str]:
    """Split a path or URI as a user writes it into its place and the key there.

    Raises:
        UsageError: a URI without a host or path, or of an unknown scheme.
    """
    match = _SCHEME.fullmatch(text)
    if not match:
        return LOCAL, os.path.abspath(text)  # noqa: PTH100  # not resolve(): the name given is the name to show
    scheme, rest = match[1].lower(), match[2]
    scheme = _ALIASES.get(scheme, scheme)
    if scheme == "file":
        return LOCAL, urllib.parse.unquote("/" + rest.partition("/")[2])
    if scheme in _WEB:
        return Place(scheme), f"{scheme}://{rest}"
    found = _OPTIONS.fullmatch(rest)
    rest, options = (found[1], found[2]) if found else (rest, "")
    host, slash, path = rest.partition("/")
    login, _, host = host.rpartition("@")
    if scheme in ("abfs", "abfss") and login:
        # In `container@account` the login is the container; a password follows it behind a colon.
        container = login.partition(":")[0]
        return Place(scheme, f"{scheme}://{host}/", host, login, options), _key(container, path)
    if scheme in ("hdfs", "viewfs"):
        return Place(scheme, f"{scheme}://{host}", host, login, options), "/" + path
    if scheme not in _ARROW:
        return _with_fsspec(scheme, host, slash + path, login, options)
    if not host:
        raise UsageError(f"{scheme}:// names no {'container' if scheme.startswith('abfs') else 'bucket'}.")
    return Place(scheme, f"{scheme}://", host, login, options), _key(host, path)


def _key(bucket: str, path: str) -> str:
    return f"{bucket}/{path}" if path else bucket


def _with_fsspec(scheme: str, host: str, path: str, login: str, options: str) -> tuple[Place, str]:
    import fsspec

    try:
        key = fsspec.get_filesystem_class(scheme)._strip_protocol(f"{scheme}://{host}{path}")
    except (ValueError, ImportError) as error:
        raise UsageError(f"{scheme}:// cannot be read: {error}") from error
    url = f"{scheme}://{host}{path}"
    shown = url[: -len(key)] if key and url.endswith(key) else f"{scheme}://"
    return Place(scheme, shown, host, login, options), key


def redacted(text: str) -> str:
    """A path or URI as people may see it: without login and options."""
    place, key = split(text)
    return text if place.local else place.uri(key)


@dataclass(frozen=True)
class File:
    """A file as it was found.

    Attributes:
        path: what people see: an absolute local path, or a URI without login and options.
        size: bytes, or None where the place does not tell.
        modified: nanoseconds since 1970, or None.
        place, key: how to open it.
    """

    path: str
    size: int | None
    modified: int | None
    place: Place = field(default=LOCAL, repr=False)
    key: str = field(default="", repr=False)

    def open(self, block: int = READ_BYTES) -> Any:
        """The file as a pyarrow random-access file; remote ones are read `block` bytes a request, with retries.

        Raises:
            SourceError: it is gone, or may not be read.
            DataError: it has another size than when it was found.
            NetworkError: no answer within the deadline.
        """
        try:
            file: Any = pa.OSFile(self.key) if self.place.local else pa.PythonFile(_Remote(self, block), mode="r")
        except OSError as error:
            raise self.place.translate(error, self.key) from error
        if self.place.local:
            self._compare(file.size())
        return file

    def check_size(self) -> None:
        """Check a local file before something else opens it; `open` checks by itself.

        Raises:
            SourceError: it is gone.
            DataError: it has another size than when it was found.
        """
        if self.place.local:
            try:
                self._compare(os.stat(self.key).st_size)  # noqa: PTH116  # keys are strings
            except OSError as error:
                raise self.place.translate(error, self.key) from error

    def _compare(self, size: int) -> None:
        if self.size is not None and size != self.size:
            raise DataError(f"{self.path} has {size:,} bytes, but had {self.size:,} when the run was planned.")


def transient(error: BaseException) -> bool:
    """Whether an error of a remote file system may pass by itself: a broken connection, a busy server."""
    if isinstance(error, (FileNotFoundError, PermissionError, IsADirectoryError, NotADirectoryError, ImportError)):
        return False
    if isinstance(error, (pa.ArrowInvalid, NotImplementedError, TypeError, AttributeError)):
        return False
    status = getattr(error, "status", None)
    if isinstance(status, int) and 400 <= status < 500 and status not in (408, 425, 429):
        return False
    return not _FINAL.search(str(error))


def with_retries(request: Callable[[], R], place: Place, key: str) -> R:
    """Make a request of a place, again and again while only the network fails, for `RETRY_SECONDS`.

    Raises:
        SourceError: the server's answer is final.
        NetworkError: the deadline passed.
    """
    deadline, wait = 0.0, FIRST_WAIT_SECONDS
    while True:
        try:
            return request()
        except (DataError, UsageError):
            raise
        except Exception as error:  # fsspec's file systems raise what their libraries raise
            now = time.monotonic()
            deadline = deadline or now + RETRY_SECONDS
            if place.local or not transient(error) or now + wait > deadline:
                translated = place.translate(error, key)
                # The cause is shown with a traceback, so it may not hold a secret either.
                raise translated from (error if place.safe(error) == " ".join(str(error).split()) else None)
            time.sleep(wait)
            wait = min(2 * wait, LONGEST_WAIT_SECONDS)


class Blocks(io.RawIOBase):
    """A file read at random, in blocks of which the last few are kept."""

    def __init__(self, block: int, size: int) -> None:
        self._block = block
        self._size = size
        self._position = 0
        self._blocks: list[tuple[int, bytes]] = []

    def _fetch(self, start: int, count: int) -> bytes:
        raise NotImplementedError

    def read(self, count: int = -1, /) -> bytes:
        """Up to `count` bytes from the position on; fewer at the end only."""
        left = max(0, self._size - self._position)
        count = left if count is None or count < 0 else min(count, left)
        pieces = []
        while count:
            for start, data in self._blocks:
                if start <= self._position < start + len(data):
                    piece = data[self._position - start : self._position - start + count]
                    break
            else:
                start = self._position
                data = self._fetch(start, min(max(count, self._block), self._size - start))
                self._blocks = [*self._blocks[1 - KEPT_BLOCKS :], (start, data)]
                piece = data[:count]
            pieces.append(piece)
            self._position += len(piece)
            count -= len(piece)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        """Move the position; see `io.IOBase.seek`."""
        self._position = offset + (0, self._position, self._size)[whence]
        return self._position

    def tell(self) -> int:
        """The position."""
        return self._position

    def readable(self) -> bool:
        """Always."""
        return True

    def seekable(self) -> bool:
        """Always."""
        return True

    def size(self) -> int:
        """The size in bytes."""
        return int(self._size)

    def close(self) -> None:
        """Forget the blocks."""
        self._blocks.clear()
        super().close()


class _Remote(Blocks):
    """A remote file whose reads are repeated when the network fails.

    The retries sit here, below the readers of formats: an error that comes from this class is the network's, and one
    that a reader raises over bytes that arrived is the file's. No error needs to be understood to tell them apart.
    """

    def __init__(self, file: File, block: int) -> None:
        self._file = file
        self._handle: Any = None
        super().__init__(block, self._retry(lambda: self._opened().size()))
        file._compare(self._size)

    def _opened(self) -> Any:
        if self._handle is None:
            self._handle = self._file.place.file_system().open_input_file(self._file.key)
        return self._handle

    def _retry(self, request: Callable[[], R]) -> R:
        def attempt() -> R:
            try:
                return request()
            except Exception:
                self._handle = None  # a handle that failed once may hold a dead connection
                raise

        return with_retries(attempt, self._file.place, self._file.key)

    def _fetch(self, start: int, count: int) -> bytes:
        def request() -> bytes:
            data: bytes = self._opened().read_at(count, start)
            if len(data) < count:
                raise OSError(f"the connection ended after {len(data):,} of {count:,} bytes")
            return data

        return self._retry(request)

    def close(self) -> None:
        """Forget the blocks and the connection."""
        self._handle = None
        super().close()


def in_threads(function: Callable[[Any], R], values: Sequence[Any]) -> Iterator[R]:
    """`map`, with `THREADS` calls at once; results in the order of the values, and the first error in that order."""
    if len(values) < 2:
        yield from map(function, values)
        return
    with ThreadPoolExecutor(THREADS, thread_name_prefix="dist-bpe-plan") as pool:
        try:
            yield from pool.map(function, values)
        except BaseException:
            pool.shutdown(wait=True, cancel_futures=True)
            raise


def _info(place: Place, key: str) -> Any:
    return with_retries(lambda: place.file_system().get_file_info(key), place, key)


def _file(place: Place, info: Any) -> File:
    return File(place.uri(info.path), info.size, info.mtime_ns, place, info.path)


def stat(place: Place, key: str) -> "File | None":
    """The file of that exact name; None where a folder or nothing has it."""
    info = _info(place, key)
    return _file(place, info) if info.type == fs.FileType.File else None


def is_folder(place: Place, key: str) -> bool:
    """Whether a folder (or a prefix of an object store) has that exact name."""
    return bool(_info(place, key).type == fs.FileType.Directory)


def listing(place: Place, folder: str, recursive: bool = False) -> tuple[list[File], list[str]]:
    """The files and folders in a folder, or all below it, each sorted by key."""
    selector = fs.FileSelector(folder, recursive=recursive)
    infos = with_retries(lambda: place.file_system().get_file_info(selector), place, folder)
    infos = sorted(infos, key=lambda info: info.path)
    files = [_file(place, info) for info in infos if info.type == fs.FileType.File]
    return files, [info.path for info in infos if info.type == fs.FileType.Directory]


def has_wildcard(place: Place, key: str) -> bool:
    """Whether a key can be meant as a glob."""
    return place.scheme not in _WEB and bool(_WILD.search(key))


def match(place: Place, pattern: str) -> tuple[list[File], list[str]]:
    """The files and folders that a glob names: `*`, `?` and `[…]` within a name, `**` for any number of folders.

    Names that begin with a dot are matched only by a pattern that does, as in a shell.
    """
    parts = pattern.split("/")
    fixed = next(i for i, part in enumerate(parts) if _WILD.search(part))
    folders = ["/".join(parts[:fixed]) or ("/" if pattern.startswith("/") else ".")]
    files: list[File] = []
    for i in range(fixed, len(parts)):
        last = i == len(parts) - 1
        part = parts[i]
        found: list[str] = []
        for folder in folders:
            if not is_folder(place, folder):
                continue
            if part == "**":
                below, inner = listing(place, folder, recursive=True)
                found += [folder, *(name for name in inner if not _hidden(name, folder))]
                if last:
                    files += [file for file in below if not _hidden(file.key, folder)]
                continue
            there, inner = listing(place, folder)
            found += [name for name in inner if _matches(name, part)]
            if last:
                files += [file for file in there if _matches(file.key, part)]
        folders = sorted(set(found))
    return files, [] if parts[-1] == "**" else folders


def _hidden(key: str, folder: str) -> bool:
    return any(part.startswith(".") for part in key[len(folder) :].split("/"))


def _matches(key: str, part: str) -> bool:
    name = key.rstrip("/").rpartition("/")[2]
    return fnmatch.fnmatchcase(name, part) and (part.startswith(".") or not name.startswith("."))


def read_all(file: File) -> bytes:
    """The whole content of a small file.

    Raises:
        DataError: see `File.open`.
    """
    with file.open() as handle:
        return bytes(handle.read())
