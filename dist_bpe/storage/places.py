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
import stat as modes
import time
import urllib.parse
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeVar

import pyarrow as pa
import pyarrow.fs as fs

from dist_bpe.errors import AccessError, DataError, NetworkError, SourceError, UsageError, without_secrets

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
# What `pathlib` makes of a URI: one slash where there were two.
_COLLAPSED = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/(?=[^/])")
_WILD = re.compile(r"[*?\[]")
_ARROW = {"s3", "gs", "gcs", "hdfs", "viewfs", "abfs", "abfss"}
_ALIASES = {"s3a": "s3", "s3n": "s3"}
_WEB = {"http", "https"}
# What places call the version of a file's content.
_VERSIONS = ("etag", "generation", "blob_id", "content_md5", "md5hash")
# Names of what clients of HTTP raise over connections.
_NETWORK = {
    "ConnectError", "ConnectTimeout", "ReadError", "ReadTimeout", "RemoteProtocolError", "ClientConnectionError",
    "ClientConnectorError", "ServerDisconnectedError", "LocalEntryNotFoundError", "SSLError", "gaierror", "PoolTimeout",
}  # fmt: skip
CHANGED = "Files may not change while they are read: begin anew, with --restart if a run was begun."
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


def said(error: BaseException) -> str:
    """What an error says, in one line that can be printed: libraries quote bytes of files, line ends and all."""
    return escaped(" ".join(str(error).split()) or type(error).__name__)


def escaped(text: str) -> str:
    """A text with what cannot be printed, or moves the cursor, as escapes."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


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
        return self.shown + printable(key)

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
        text = said(error)
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
        if _offline(error):
            return SourceError(
                f"{uri} cannot be read: the environment says HF_HUB_OFFLINE, so that the Hub is not asked. Unset it, "
                "or name local files."
            )
        if not self.local and transient(error):
            return NetworkError(f"{uri}: no answer for {RETRY_SECONDS:.0f} seconds; the last error was: {text}")
        return SourceError(f"{uri} cannot be read: {text}")


LOCAL = Place()


def printable(path: str) -> str:
    """A path as it can be printed and encoded: bytes of a name that are not UTF-8 as escapes."""
    return path.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


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
    if not text or "\0" in text:
        raise UsageError(f"{'an empty path' if not text else f'the path {text!r}'} names no file or folder.")
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
    except ImportError as error:
        raise UsageError(f"{scheme}:// needs a package that is not installed: {error}") from error
    except ValueError:
        raise UsageError(
            f"{scheme}:// is no place that is known here: give a path, or a URI of {', '.join(sorted(_ARROW))}, hf, "
            "http, https, or another that fsspec knows."
        ) from None
    url = f"{scheme}://{host}{path}"
    shown = url[: -len(key)] if key and url.endswith(key) else f"{scheme}://"
    return Place(scheme, shown, host, login, options), key


def redacted(text: str) -> str:
    """A path or URI as people may see it: without login and options, also where it names no place at all.

    A URI that went through `pathlib` has lost a slash, but not its login.
    """
    text = _COLLAPSED.sub(r"\1://", text, count=1) if _COLLAPSED.match(text) else text
    if not _SCHEME.fullmatch(text):
        return text
    try:
        place, key = split(text)
    except UsageError:
        return without_secrets(text)
    return text if place.local else place.uri(key)


@dataclass(frozen=True)
class File:
    """A file as it was found.

    Attributes:
        path: what people see: an absolute local path, or a URI without login and options.
        size: bytes, or None where the place does not tell.
        modified: nanoseconds since 1970, or None.
        place, key: how to open it.
        version: what the place calls this content (an etag, or a name of its own), or None.
    """

    path: str
    size: int | None
    modified: int | None
    place: Place = field(default=LOCAL, repr=False)
    key: str = field(default="", repr=False)
    version: str | None = field(default=None, repr=False)

    def with_version(self) -> "File":
        """The same file with what its place calls its content, for which a remote one is asked once more."""
        return self if self.place.local else replace(self, version=_version(self.place, self.key))

    def check(self) -> None:
        """Check that the file is still the one that was found.

        Raises:
            DataError: it has another size, time or version.
            SourceError: it is gone.
            NetworkError: no answer within the deadline.
        """
        if self.version is not None:
            found = _version(self.place, self.key)
            if found != self.version:
                raise DataError(f"{self.path} was changed after the run was planned: it has another etag. {CHANGED}")
            return
        now = stat(self.place, self.key)
        if now is None:
            raise SourceError(f"{self.path} is not there.")
        self._compare(now.size or 0)
        if self.modified is not None and now.modified is not None and now.modified != self.modified:
            raise DataError(f"{self.path} was changed after the run was planned: it was written anew. {CHANGED}")

    def open(self, block: int = READ_BYTES) -> Any:
        """The file as a pyarrow random-access file; remote ones are read `block` bytes a request, with retries.

        Raises:
            SourceError: it is gone, or may not be read.
            DataError: it has another size than when it was found.
            NetworkError: no answer within the deadline.
        """
        try:
            file: Any = _os_file(self.key) if self.place.local else pa.PythonFile(_Remote(self, block), mode="r")
        except OSError as error:
            raise self.place.translate(error, self.key) from error
        if self.place.local:
            self._compare(file.size())
        return file

    def _compare(self, size: int) -> None:
        if self.size is not None and size != self.size:
            raise DataError(
                f"{self.path} has {size:,} bytes, but had {self.size:,} when the run was planned. {CHANGED}"
            )


def _os_file(key: str) -> Any:
    try:
        return pa.OSFile(key)
    except UnicodeEncodeError as error:  # a name that is not UTF-8, which Arrow cannot say
        raise OSError(f"its name is not UTF-8 (from character {error.start:,} on). Rename it") from error


def _version(place: Place, key: str) -> str | None:
    """What a remote place calls the content of a file: an etag, a generation, the name of a blob."""

    def ask() -> str | None:
        system = place.file_system()
        handler = getattr(system, "handler", None)
        if handler is None:
            with system.open_input_file(key) as handle:
                values = handle.metadata() or {}
        else:
            values = handler.fs.info(key)
        named = {text_of(name).lower(): value for name, value in values.items()}
        return next((text_of(named[name]) for name in _VERSIONS if named.get(name)), None)

    def text_of(value: Any) -> str:
        return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)

    return with_retries(ask, place, key)


def transient(error: BaseException) -> bool:
    """Whether an error of a remote file system may pass by itself: a broken connection, a busy server."""
    if isinstance(error, (FileNotFoundError, PermissionError, IsADirectoryError, NotADirectoryError, ImportError)):
        return False
    if isinstance(error, (pa.ArrowInvalid, NotImplementedError, TypeError, AttributeError)) or _offline(error):
        return False
    status = getattr(error, "status", None)
    if isinstance(status, int) and 400 <= status < 500 and status not in (408, 425, 429):
        return False
    return not _FINAL.search(str(error))


def _offline(error: BaseException) -> bool:
    """Whether the Hub's library was told not to ask the network: no time will change that."""
    return any(mark in f"{type(error).__name__} {error}" for mark in ("OfflineModeIsEnabled", "HF_HUB_OFFLINE"))


def network_fault(error: BaseException | None) -> bool:
    """Whether an error of a library that says little tells, itself or by its causes, of a connection that failed."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        if _offline(error):
            return False
        status = getattr(getattr(error, "response", None), "status_code", getattr(error, "status", None))
        if isinstance(status, int):
            return status >= 500 or status in (408, 425, 429)
        if isinstance(error, (ConnectionError, TimeoutError)) or type(error).__name__ in _NETWORK:
            return True
        error = error.__cause__ or error.__context__
    return False


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
                raise translated from (error if place.safe(error) == said(error) else None)
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


def _local_file(key: str, info: os.stat_result) -> File:
    return File(printable(key), info.st_size, info.st_mtime_ns, LOCAL, key)


def stat(place: Place, key: str) -> "File | None":
    """The file of that exact name; None where a folder or nothing has it."""
    if place.local:
        try:
            status = os.stat(key)  # noqa: PTH116  # keys are strings
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise place.translate(error, key) from error
        return _local_file(key, status) if modes.S_ISREG(status.st_mode) else None
    info = _info(place, key)
    return _file(place, info) if info.type == fs.FileType.File else None


def is_folder(place: Place, key: str) -> bool:
    """Whether a folder (or a prefix of an object store) has that exact name."""
    if place.local:
        return os.path.isdir(key)  # noqa: PTH112  # keys are strings
    return bool(_info(place, key).type == fs.FileType.Directory)


def odd_kind(place: Place, key: str) -> str | None:
    """Why a local name that is neither file nor folder cannot be read; None where there is no such name."""
    if not place.local:
        return None
    try:
        mode = os.stat(key).st_mode  # noqa: PTH116  # keys are strings
    except FileNotFoundError:
        return BROKEN_LINK if os.path.islink(key) else None  # noqa: PTH114
    except OSError:
        return None
    return _irregular(mode)


def _irregular(mode: int) -> str | None:
    if modes.S_ISREG(mode) or modes.S_ISDIR(mode):
        return None
    kinds = {modes.S_ISFIFO: "a pipe", modes.S_ISSOCK: "a socket", modes.S_ISCHR: "a device", modes.S_ISBLK: "a device"}
    return f"no regular file but {next((kind for test, kind in kinds.items() if test(mode)), 'something else')}"


#: Why names of a listing are no files to read.
BROKEN_LINK = "a link that leads nowhere"
LOOP = "a link to a folder that is listed under its own name"


class Listing(NamedTuple):
    """What a folder, or a glob, holds; each part is sorted by key.

    Attributes:
        files: files.
        folders: keys of folders.
        odd: keys of what cannot be read, each with the reason.
        hidden: files below names that begin with `.` or `_`, which the glob passes over.
    """

    files: list[File]
    folders: list[str]
    odd: list[tuple[str, str]]
    hidden: list[File]


def listing(place: Place, folder: str, recursive: bool = False) -> Listing:
    """The files and folders in a folder, or all below it.

    A link is followed, except one to a folder that is listed anyway: each file is there once. A broken link, a pipe
    and the like are `odd`.
    """
    if place.local:
        return with_retries(lambda: _walk(folder, recursive), place, folder)
    selector = fs.FileSelector(folder, recursive=recursive)
    infos = with_retries(lambda: place.file_system().get_file_info(selector), place, folder)
    infos = sorted(infos, key=lambda info: info.path)
    files = [_file(place, info) for info in infos if info.type == fs.FileType.File]
    return Listing(files, [info.path for info in infos if info.type == fs.FileType.Directory], [], [])


def _walk(root: str, recursive: bool) -> Listing:
    found = Listing([], [], [], [])
    # Real paths of the folders on the way to each folder that is still to be listed.
    todo: list[tuple[str, tuple[str, ...]]] = [(root, (os.path.realpath(root),))]
    while todo:
        folder, above = todo.pop()
        with os.scandir(folder) as entries:
            for entry in entries:
                path = os.path.join(folder, entry.name)  # noqa: PTH118
                try:
                    info = entry.stat()
                except FileNotFoundError:
                    if entry.is_symlink():
                        found.odd.append((path, BROKEN_LINK))
                    continue  # else it went while the folder was listed
                except OSError as error:
                    if not entry.is_symlink():
                        raise
                    found.odd.append((path, f"a link that cannot be followed ({error.strerror})"))
                    continue
                if modes.S_ISREG(info.st_mode):
                    found.files.append(_local_file(path, info))
                elif modes.S_ISDIR(info.st_mode):
                    link = entry.is_symlink()
                    real = os.path.realpath(path) if link else os.path.join(above[-1], entry.name)  # noqa: PTH118
                    if recursive and (real in above or (link and (_below(real, above[0]) or _below(above[0], real)))):
                        found.odd.append((path, LOOP))
                        continue
                    found.folders.append(path)
                    if recursive:
                        todo.append((path, (*above, real)))
                else:
                    found.odd.append((path, _irregular(info.st_mode) or ""))
    return Listing(
        sorted(found.files, key=lambda file: file.key), sorted(found.folders), sorted(found.odd), found.hidden
    )


def _below(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def has_wildcard(place: Place, key: str) -> bool:
    """Whether a key can be meant as a glob."""
    return place.scheme not in _WEB and bool(_WILD.search(key))


def match(place: Place, pattern: str) -> Listing:
    """The files and folders that a glob names: `*`, `?` and `[…]` within a name, `**` for any number of folders.

    Names that begin with a dot or a `_` are matched only by a pattern that does: the first as in a shell, the second
    as those mean them who write `_temporary` and `_SUCCESS`. Files that only this keeps out are `hidden`, unless
    their names begin with a dot.
    """
    parts = pattern.split("/")
    fixed = next(i for i, part in enumerate(parts) if _WILD.search(part))
    folders = ["/".join(parts[:fixed]) or ("/" if pattern.startswith("/") else ".")]
    files: dict[str, File] = {}
    hidden: dict[str, File] = {}
    odd: dict[str, str] = {}
    # Folders that only the rule for hidden names keeps out; what the pattern finds below them is hidden.
    behind: set[str] = set()
    for i in range(fixed, len(parts)):
        last = i == len(parts) - 1
        part = parts[i]
        found: list[str] = []
        for folder in folders:
            if not is_folder(place, folder):
                continue
            there = listing(place, folder, recursive=part == "**")

            def meant(key: str, folder: str = folder, part: str = part) -> bool | None:
                """Whether a key is matched; None where a `_` alone keeps it out."""
                names = key[len(folder) :].strip("/").split("/")
                if part == "**":
                    if any(name.startswith(".") for name in names):
                        return False
                    return None if any(name.startswith("_") for name in names) or folder in behind else True
                name = names[-1]
                if not fnmatch.fnmatchcase(name, part) or (name.startswith(".") and not part.startswith(".")):
                    return False
                outside = folder in behind or (name.startswith("_") and not part.startswith("_"))
                return None if outside else True

            found += [folder] if part == "**" else []
            for key in there.folders:
                how = meant(key)
                if how is not False:
                    found.append(key)
                if how is None:
                    behind.add(key)
            # Links to folders lie where folders do, anywhere in the pattern.
            odd |= {key: reason for key, reason in there.odd if meant(key) and (last or reason == LOOP)}
            if last:
                for file in there.files:
                    how = meant(file.key)
                    if how is not False:
                        (files if how else hidden)[file.key] = file
        folders = sorted(set(found))
        if place.local and part != "**":
            reals = {os.path.realpath(key) for key in folders if not os.path.islink(key)}  # noqa: PTH114
            for key in [key for key in folders if os.path.islink(key)]:  # noqa: PTH114
                real = os.path.realpath(key)
                if real in reals or _below(os.path.realpath(os.path.dirname(key)), real):  # noqa: PTH120
                    folders.remove(key)
                    odd[key] = LOOP
    named = [] if parts[-1] == "**" else [key for key in folders if key not in behind]
    return Listing(
        [files[key] for key in sorted(files)],
        named,
        sorted(odd.items()),
        [hidden[key] for key in sorted(hidden.keys() - files.keys())],
    )


def read_all(file: File) -> bytes:
    """The whole content of a small file.

    Raises:
        DataError: see `File.open`.
    """
    with file.open() as handle:
        return bytes(handle.read())
