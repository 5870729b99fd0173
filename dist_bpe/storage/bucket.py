"""Run folders in object stores: the part of pathlib's interface that runs use, over requests that are whole or nothing.

A store has no folders, renames or links. What it has: an object appears whole, a request can ask that its name be free
(`create`), or that nobody has replaced the object since it was looked at (`replace`). The package obstore makes these
requests for S3, Google and Azure alike; pyarrow's file systems cannot make them.
"""

import contextlib
import fnmatch
import functools
import os
import re
import urllib.parse
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.fs as fs

from dist_bpe.errors import UsageError
from dist_bpe.storage import places
from dist_bpe.storage.places import Place

R = TypeVar("R")
_SCHEMES = {"s3", "gs", "gcs", "abfs", "abfss"}
# Options of a URI as pyarrow names them, and what obstore calls them.
_OPTIONS = {
    "s3": {
        "region": "region",
        "access_key": "access_key_id",
        "secret_key": "secret_access_key",
        "session_token": "token",
        "anonymous": "skip_signature",
        "force_virtual_addressing": "virtual_hosted_style_request",
    },
    "gs": {"anonymous": "skip_signature"},
    "abfs": {"account_name": "account_name", "account_key": "account_key", "sas_token": "sas_key"},
}
# S3 takes at most 10,000 parts a file.
_MOST_PARTS = 9_000
_PART_BYTES = 8 << 20
# Answers that the same request would get again.
_REFUSED = re.compile(r"status code: (3\d\d|4(?!08|09|25|29)\d\d)")
# Copied in one request, which has to end within its time. (S3 would copy 5 GiB.)
_COPY_BYTES = 1 << 30
#: Called before each request with its name and path, by tests alone.
inject: Callable[[str, "BucketPath"], None] | None = None


@dataclass(frozen=True)
class BucketPath:
    """An object or prefix. Pickles with the secrets of its URI, prints without them.

    Every request is repeated while the network or the store fails, up to `places.RETRY_SECONDS`.

    Attributes:
        place: the store and how to reach it.
        key: the bucket, and the name in it.

    Raises:
        FileNotFoundError: reading what is not there.
        AccessError, NetworkError, UsageError: any method, when the store refuses or does not answer.
    """

    place: Place
    key: str

    def __str__(self) -> str:
        return self.place.uri(self.key)

    def __lt__(self, other: "BucketPath") -> bool:
        return self.key < other.key

    def __truediv__(self, name: str) -> "BucketPath":
        return BucketPath(self.place, f"{self.key}/{name}")

    @property
    def name(self) -> str:
        """The last part of the key."""
        return self.key.rpartition("/")[2]

    @property
    def suffix(self) -> str:
        """See `pathlib.PurePath.suffix`."""
        return Path(self.name).suffix

    @property
    def parent(self) -> "BucketPath":
        """The prefix it lies under."""
        return BucketPath(self.place, self.key.rpartition("/")[0] or self.key)

    def with_suffix(self, suffix: str) -> "BucketPath":
        """See `pathlib.PurePath.with_suffix`."""
        return self.parent / Path(self.name).with_suffix(suffix).name

    def uri(self) -> str:
        """The URI that `storage.at` makes this path from again, with its secrets."""
        login = f"{self.place.login}@" if self.place.login else ""
        bucket, _, rest = self.key.partition("/")  # which host or login name already
        key = rest if bucket in (self.place.host, self.place.login.partition(":")[0]) else self.key
        options = f"?{self.place.options}" if self.place.options else ""
        return f"{self.place.scheme}://{login}{self.place.host}/{key}{options}"

    def mkdir(self, mode: int = 0o777, parents: bool = False, exist_ok: bool = False) -> None:
        """Nothing: a prefix is there as soon as something has it."""

    def rmdir(self) -> None:
        """Nothing: a prefix is gone with the last object under it."""

    def resolve(self) -> "BucketPath":
        """Itself: it is absolute."""
        return self

    # ---- looking

    def is_file(self) -> bool:
        """Whether an object has that name."""
        return self._head() is not None

    def is_dir(self) -> bool:
        """Whether anything lies under that prefix."""
        return bool(self._request("list", lambda store, key: next(iter(_obstore().list(store, key, chunk_size=1)), [])))

    def exists(self) -> bool:
        """Either of both."""
        return self.is_file() or self.is_dir()

    def iterdir(self) -> Iterator["BucketPath"]:
        """The objects and prefixes one level below."""
        found = self._listed()
        for path in [*found["common_prefixes"], *(entry["path"] for entry in found["objects"])]:
            if path != self._inside:  # some stores list a prefix in itself
                yield BucketPath(self.place, f"{self._bucket}/{path}")

    def glob(self, pattern: str) -> Iterator["BucketPath"]:
        """Those of `iterdir` whose names match."""
        return (path for path in self.iterdir() if fnmatch.fnmatchcase(path.name, pattern))

    def sizes(self) -> dict[str, int]:
        """Bytes of each object one level below, by name."""
        return {entry["path"].rpartition("/")[2]: int(entry["size"]) for entry in self._listed()["objects"]}

    def version(self) -> dict[str, Any] | None:
        """What `replace` compares; None where there is no such object."""
        head = self._head()
        return head and {name: head[name] for name in ("e_tag", "version") if head[name] is not None}

    def _listed(self) -> dict[str, Any]:
        return self._request("list", lambda store, key: dict(_obstore().list_with_delimiter(store, key)))

    def _head(self) -> dict[str, Any] | None:
        try:
            return self._request("head", lambda store, key: dict(_obstore().head(store, key)))
        except FileNotFoundError:
            return None

    # ---- reading

    def read_bytes(self) -> bytes:
        """The object."""
        return self._request("get", lambda store, key: bytes(_obstore().get(store, key).bytes()))

    def read_text(self) -> str:
        """The object as UTF-8."""
        return self.read_bytes().decode()

    def read_range(self, offset: int, size: int) -> bytes:
        """Bytes of the object from an offset on."""
        return self._request(
            "get", lambda store, key: bytes(_obstore().get_range(store, key, start=offset, length=size))
        )

    def open(self) -> Any:
        """The object as a random-access file for pyarrow, read in large blocks."""
        head = self._head()
        if head is None:
            raise FileNotFoundError(f"{self} is not there")
        return pa.PythonFile(_Object(self, int(head["size"])), mode="r")

    # ---- writing

    def write_bytes(self, content: bytes) -> None:
        """Put it in the place of what had its name."""
        self._request("put", lambda store, key: _obstore().put(store, key, content, use_multipart=False))

    def create(self, content: bytes) -> bool:
        """Put it only if no object has the name; True if what lies there is this content.

        Of several writers of different content exactly one gets True, also where an answer was lost on the way.
        """
        return self._conditional(content, "create")

    def replace(self, content: bytes, version: dict[str, Any] | None) -> bool:
        """Put it only if the object still has that version (None: is not there yet); True if it lies there now."""
        return self._conditional(content, version or "create")

    def _conditional(self, content: bytes, mode: Any) -> bool:
        def put(store: Any, key: str) -> bool:
            failed = _obstore().exceptions
            try:
                _obstore().put(store, key, content, mode=mode)
            except (failed.AlreadyExistsError, failed.PreconditionError):
                return False
            return True

        if self._request("put", put):
            return True
        try:
            return self.read_bytes() == content
        except FileNotFoundError:
            return False

    def upload(self, file: Path) -> None:
        """Put a local file, in parts if it is large; it appears whole."""
        part = max(_PART_BYTES, file.stat().st_size // _MOST_PARTS)
        self._request("put", lambda store, key: _obstore().put(store, key, file, chunk_size=part, max_concurrency=4))

    def copy(self, target: "BucketPath") -> None:
        """Copy it to another name in the same bucket, inside the store where it can."""
        head = self._head()
        size = int(head["size"]) if head else 0
        if size <= _COPY_BYTES:
            self._request("copy", lambda store, key: _obstore().copy(store, key, target._inside))
            return
        part = max(_PART_BYTES, size // _MOST_PARTS)
        pieces = (self.read_range(start, min(part, size - start)) for start in range(0, size, part))
        self._request("put", lambda store, _: _obstore().put(store, target._inside, pieces, chunk_size=part))

    def unlink(self, missing_ok: bool = False) -> None:
        """Remove the object."""
        if not missing_ok and not self.is_file():
            raise FileNotFoundError(str(self))
        self.delete([self])

    def delete(self, paths: "list[BucketPath]") -> None:
        """Remove objects of this bucket; those that are gone already do not matter."""
        self._delete([path._inside for path in paths])

    def _delete(self, keys: list[str]) -> None:
        def delete(store: Any, _: str) -> None:
            try:
                _obstore().delete(store, keys)
            except FileNotFoundError:  # Google and Azure say so, and may have left the rest
                for key in keys:
                    with contextlib.suppress(FileNotFoundError):
                        _obstore().delete(store, key)

        if keys:
            self._request("delete", delete)

    def rmtree(self) -> None:
        """Remove everything under the prefix."""
        batches = self._request("list", lambda store, key: [list(each) for each in _obstore().list(store, key)])
        self._delete([entry["path"] for batch in batches for entry in batch])

    @property
    def _bucket(self) -> str:
        return self.key.partition("/")[0]

    @property
    def _inside(self) -> str:
        return self.key.partition("/")[2]

    def _request(self, name: str, action: Callable[[Any, str], R]) -> R:
        missing: list[FileNotFoundError] = []

        def attempt() -> R | None:
            failed = _obstore().exceptions
            try:
                if inject:
                    inject(name, self)
                return action(_store(self.place, self._bucket), self._inside)
            except (failed.BaseError, FileNotFoundError) as error:
                text = str(error).partition("Debug source:")[0].strip()
                if "NoSuchBucket" in text:
                    raise UsageError(f"{self}: there is no such bucket.") from None
                if isinstance(error, FileNotFoundError):
                    missing.append(error)
                    return None
                if isinstance(error, (failed.PermissionDeniedError, failed.UnauthenticatedError)):
                    raise PermissionError(text) from None
                if isinstance(error, (failed.NotSupportedError, failed.InvalidPathError)) or _REFUSED.search(text):
                    raise UsageError(f"{self} cannot hold a run: {self.place.safe(OSError(text))}") from None
                raise OSError(text) from None  # the network's, or a busy store's

        result = places.with_retries(attempt, self.place, self.key)
        if missing:
            raise FileNotFoundError(f"{self} is not there")
        return result  # type: ignore[return-value]


class _Object(places.Blocks):
    """An object, read in blocks."""

    def __init__(self, path: BucketPath, size: int) -> None:
        super().__init__(places.READ_BYTES, size)
        self._path = path

    def _fetch(self, start: int, count: int) -> bytes:
        return self._path.read_range(start, count)


def _obstore() -> Any:
    try:
        import obstore
    except ImportError:
        raise UsageError(
            "a run folder in an object store needs the package obstore: pip install 'dist_bpe[remote]'."
        ) from None
    return obstore


@functools.lru_cache(maxsize=64)
def _store(place: Place, bucket: str) -> Any:
    """The store of a bucket, made once a process.

    Raises:
        UsageError: an option that is not known here.
    """
    _obstore()
    from obstore.store import AzureStore, GCSStore, S3Store

    kind = {"gcs": "gs", "abfss": "abfs"}.get(place.scheme, place.scheme)
    given = place.parsed_options()
    endpoint = given.pop("endpoint_override", "")
    scheme = given.pop("scheme", "https")
    config: dict[str, Any] = {}
    for name, value in given.items():
        if name not in _OPTIONS[kind]:
            raise UsageError(
                f"{place.uri(bucket)}: the option {name!r} has no meaning for a run folder; known are: "
                f"endpoint_override, scheme, {', '.join(_OPTIONS[kind])}."
            )
        config[_OPTIONS[kind][name]] = value
    if endpoint and "://" not in endpoint:
        endpoint = f"{scheme}://{endpoint}"
    user, _, password = map(urllib.parse.unquote, place.login.partition(":"))
    common = {
        # A request that hangs is given up and repeated; one that fails at once is repeated by `places.with_retries`.
        "client_options": {"timeout": "120s", "connect_timeout": "10s", "allow_http": True},
        "retry_config": {"max_retries": 2},
    }
    if kind == "s3":
        if user:
            config |= {"access_key_id": user, "secret_access_key": password}
        endpoint = endpoint or os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or ""
        if endpoint:
            config["endpoint"] = endpoint
        if "region" not in config and not {"AWS_REGION", "AWS_DEFAULT_REGION"} & os.environ.keys():
            config["region"] = "us-east-1" if endpoint else _region(place, bucket)
        return S3Store(bucket, config=config, **common)
    if kind == "gs":
        if endpoint:
            config["base_url"] = endpoint
        return GCSStore(bucket, config=config, **common)
    if user:  # abfs://container@account
        config["account_name"] = place.host.partition(".")[0]
        config |= {"account_key": password} if password else {}
    if endpoint:
        config["endpoint"] = endpoint
    return AzureStore(bucket, config=config, **common)


def _region(place: Place, bucket: str) -> str:
    try:
        return str(fs.resolve_s3_region(bucket))
    except OSError as error:
        raise UsageError(
            f"{place.uri(bucket)}: that bucket's region is not known ({error}); set AWS_REGION, or ?region= in the URI."
        ) from None


def bucket_path(uri: str) -> BucketPath:
    """The path of a URI.

    Raises:
        UsageError: a scheme that runs cannot live under.
    """
    place, key = places.split(uri)
    if place.scheme not in _SCHEMES:
        raise UsageError(
            f"{places.redacted(uri)} cannot hold a run: name a folder that all nodes share, or a URI of s3://, gs:// "
            "or abfs://."
        )
    bucket, _, rest = key.rstrip("/").partition("/")
    if not bucket or not rest or "" in rest.split("/"):
        raise UsageError(
            f"{places.redacted(uri)} cannot hold a run: name a folder in a bucket, without empty names, as in "
            f"{place.scheme}://bucket/run."
        )
    return BucketPath(place, f"{bucket}/{rest}")
