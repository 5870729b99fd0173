"""From paths to files: globs, folders, lists, saved datasets, datasets by name; and what is left out of them."""

import json
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from dist_bpe.corpus.formats import EXTENSIONS, FORMATS, compression, what_by_name
from dist_bpe.corpus.readers.huggingface import SavedDataset, hub_split
from dist_bpe.errors import SourceError
from dist_bpe.storage import layout, places
from dist_bpe.storage.places import File, Listing, Place, printable, said

HIDDEN = "hidden, or a marker"
OWN_RUN = "a run folder of this package, which holds no documents"
# Names below a run folder, and what of ours lies there.
_RUN_NAMES = {
    layout.COUNTS, layout.LEASE, layout.MIXTURES, layout.STAGING, layout.VOCABULARIES, layout.PLAN, layout.REPORT,
}  # fmt: skip


@dataclass(frozen=True)
class LeftOut:
    """A file that will not be read; `bad` if a policy said so, and not the rules of listing."""

    source: str
    path: str
    reason: str
    bad: bool = False


@dataclass
class Found:
    """What the paths of one source led to.

    Attributes:
        source, format: the source's name, and the format that it asks for.
        extensions, formats: what endings of names tell, and the formats of which a folder's first one is read.
        files: by the path that people see, with their formats.
        objects: (format, name, object) of what is no file.
        skip: whether a file that cannot be read is left out.
        left_out: files that will not be read.
    """

    source: str
    format: str | None
    extensions: dict[str, str] = field(default_factory=lambda: EXTENSIONS)
    formats: Sequence[str] = FORMATS
    skip: bool = False
    files: dict[str, tuple[File, str]] = field(default_factory=dict)
    objects: list[tuple[str, str, Any]] = field(default_factory=list)
    left_out: list[LeftOut] = field(default_factory=list)
    runs: dict[tuple[Place, str], bool] = field(default_factory=dict)

    def leave(self, path: str, reason: str, bad: bool = False) -> None:
        """Note a file that will not be read."""
        left = LeftOut(self.source, printable(path), reason, bad)
        if left not in self.left_out:
            self.left_out.append(left)

    def add(self, file: File, format: str) -> None:
        """Note a file; one that was found before stays as it was."""
        self.files.setdefault(file.path, (file, format))


def find(
    source: str,
    paths: Sequence[str],
    format: str | None,
    extensions: dict[str, str] = EXTENSIONS,
    formats: Sequence[str] = FORMATS,
    skip: bool = False,
) -> Found:
    """Find the files that paths, globs, folders, lists and URIs name; `skip` leaves out those that cannot be read.

    Raises:
        SourceError: one of them leads to nothing, or to a file of an unknown format.
    """
    if not paths:
        raise SourceError(f"source {source!r} names no path.")
    if any("\0" in path for path in paths):
        raise SourceError(f"source {source!r}: a path holds a NUL byte, which no name has.")
    if "" in (path.strip() for path in paths):
        raise SourceError(
            f"source {source!r}: a path is empty. Name a file or folder; . is the working folder. (Is a variable of "
            "the shell unset?)"
        )
    found = Found(source, format, extensions, formats, skip)
    for text in paths:
        _find_path(found, text)
    return found


def _format(path: str, extensions: dict[str, str]) -> str | None:
    name = path.lower().rpartition("/")[2]
    if compression(name):
        name = name.rpartition(".")[0]
        format = extensions.get(os.path.splitext(name)[1])  # noqa: PTH122  # not a local path
        return format if format not in ("parquet", "arrow") else None
    return extensions.get(os.path.splitext(name)[1])  # noqa: PTH122


def _find_path(found: Found, text: str, listed: str = "") -> None:
    name = found.source
    if text.startswith("@") and not Path(text).exists():
        if listed:
            raise SourceError(
                f"source {name!r}: {listed} names another list, {places.redacted(text[1:])}; put its lines in the one."
            )
        _find_listed(found, text[1:])
        return
    place, key = places.split(text)
    if place.scheme == "hf" and _find_dataset(found, place, key):
        return
    file = places.stat(place, key)
    if file:
        format = found.format or _format(file.path, found.extensions)
        if format is None and (what := what_by_name(file.path)):
            raise SourceError(f"source {name!r}: {file.path} is {what}.")
        if format is None:
            raise SourceError(
                f"source {name!r}: the name of {file.path} does not tell its format. Give one: "
                f"{', '.join(found.formats)}."
            )
        if _encodable(found, file):
            found.add(file, format)
        return
    if places.is_folder(place, key):
        _find_folder(found, place, key)
        return
    if not places.has_wildcard(place, key):
        listed = f", which {listed} names" if listed else ""
        if odd := places.odd_kind(place, key):
            raise SourceError(
                f"source {name!r}: {printable(key)} is {odd}. Files are read several times, and by several workers: "
                "name one."
            )
        raise SourceError(f"source {name!r}: no file matches {printable(places.redacted(text))}{listed}.")
    there = places.match(place, key)
    if not there.files and not there.folders:
        passed = [(file.key, HIDDEN) for file in there.hidden] + there.odd
        more = f": {place.uri(passed[0][0])} is left out ({passed[0][1]})" if passed else ""
        raise SourceError(f"source {name!r}: no file matches {place.uri(key)}{more}.")
    _take(found, there, place, key, "")
    for folder in there.folders:
        _find_folder(found, place, folder, alone=False)
    if not found.files and not found.objects:
        raise SourceError(_nothing(found, place.uri(key), 0))


def _find_listed(found: Found, text: str) -> None:
    place, key = places.split(text)
    file = places.stat(place, key)
    if not file:
        raise SourceError(f"source {found.source!r}: there is no list {place.uri(key)}.")
    try:
        names = places.read_all(file).decode().split("\n")
    except UnicodeDecodeError as error:
        raise SourceError(f"the list {file.path} is not UTF-8 from byte {error.start:,} on.") from error
    for line in names:
        if line.strip():
            _find_path(found, line.removesuffix("\r"), file.path)


def _find_dataset(found: Found, place: Place, key: str) -> bool:
    """`hf://datasets/NAME` without a path below it is a dataset by name."""
    parts = key.split("/")
    if parts[0] != "datasets" or not 2 <= len(parts) <= 3 or places.has_wildcard(place, key):
        return False
    name, _, revision = "/".join(parts[1:]).partition("@")
    options = place.parsed_options()
    if unknown := options.keys() - {"config", "split"}:
        raise SourceError(f"the dataset {name!r}: {min(unknown)!r} is no option of a dataset by name: config, split.")
    split, files = hub_split(name, options.get("config"), options.get("split"), revision or None)
    if not files:
        found.objects.append(("stream", f"{name} ({split.split})", split))
    for file in places.in_threads(lambda path: places.stat(*places.split(path)), files):
        if file is None:
            raise SourceError(f"a file of the dataset {name!r} is gone while its list says it is there.")
        found.add(file, "parquet")
    return True


def _find_folder(found: Found, place: Place, folder: str, alone: bool = True) -> None:
    there = places.listing(place, folder, recursive=True)
    prefix = folder.rstrip("/") + "/"
    by_name = {file.key.removeprefix(prefix): file for file in there.files}
    if "dataset_dict.json" in by_name or "state.json" in by_name:
        _find_saved(found, place, prefix, by_name)
        return
    _take(found, there, place, folder, prefix, alone)


class _Dict(msgspec.Struct):
    splits: list[str]


class _File(msgspec.Struct):
    filename: str


class _State(msgspec.Struct):
    data: list[_File] = msgspec.field(name="_data_files")
    indices: list[_File] | None = msgspec.field(name="_indices_data_files", default=None)


S = TypeVar("S")


def _find_saved(found: Found, place: Place, prefix: str, by_name: dict[str, File]) -> None:
    def read(name: str, kind: type[S]) -> S:
        if name not in by_name:
            raise SourceError(f"{place.uri(prefix)} is no `save_to_disk` folder that can be read: it has no {name}.")
        try:
            return msgspec.json.decode(places.read_all(by_name[name]), type=kind)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise SourceError(
                f"{place.uri(prefix)} is no `save_to_disk` folder that can be read: {name}: {said(error)}."
            ) from error

    split = ""
    if "dataset_dict.json" in by_name:
        splits = read("dataset_dict.json", _Dict).splits
        if "train" not in splits and len(splits) != 1:
            raise SourceError(
                f"{place.uri(prefix)} has no split 'train'; name the folder of one of: {', '.join(splits)}."
            )
        split = ("train" if "train" in splits else splits[0]) + "/"
        for other in splits:
            if other + "/" != split:
                found.leave(place.uri(prefix + other), "another split than the one that is read")
    state = read(split + "state.json", _State)
    if state.indices:
        if not place.local:
            raise SourceError(f"{place.uri(prefix)} has an indices mapping, which `datasets` reads from local folders.")
        saved = SavedDataset(prefix + split)
        found.objects.append(("dataset", prefix + split, saved))
        return
    for entry in state.data:
        name = split + entry.filename
        if name not in by_name:
            raise SourceError(f"{place.uri(prefix + name)} is missing, which its state.json names.")
        found.add(by_name[name], "arrow")


def _take(found: Found, there: Listing, place: Place, key: str, prefix: str, alone: bool = True) -> None:
    """Take the files of a folder or glob that hold documents: those of one format, the first of the table's.

    `prefix` is that of a folder's keys, "" for a glob; `alone` unless a glob names the folder.
    """
    wanted = found.format
    where = place.uri(key)
    before = len(found.left_out)
    runs: set[str] = set()
    kept: dict[str, list[File]] = {}
    for file in there.hidden:
        found.leave(file.path, HIDDEN)
    for odd, reason in there.odd:
        found.leave(odd, reason)
    for file in there.files:
        name = file.key.removeprefix(prefix)
        if run := _run_of(found, place, file.key, prefix or key):
            runs.add(run)
        elif prefix and any(part.startswith((".", "_")) for part in name.split("/")):
            found.leave(file.path, HIDDEN)
        elif file.size == 0:
            found.leave(file.path, "empty: no bytes")
        else:
            format = wanted or _format(file.key, found.extensions)
            if format is None:
                found.leave(file.path, "its name tells no known format")
            elif _encodable(found, file):
                kept.setdefault(format, []).append(file)
    for run in sorted(runs):
        found.leave(place.uri(run), OWN_RUN)
    if not kept:
        if (there.folders and not prefix) or (runs and not alone):
            return
        raise SourceError(_nothing(found, where, before))
    chosen = next(format for format in found.formats if format in kept)
    for format, some in kept.items():
        for file in some:
            if format == chosen:
                found.add(file, format)
            else:
                found.leave(file.path, f"{format}, beside files of {chosen}")


def _nothing(found: Found, where: str, before: int) -> str:
    """That a place holds nothing to read, and some of what it holds instead."""
    left = found.left_out[before:]
    shown = "".join(f"; {one.path} is left out ({one.reason})" for one in left[-3:])
    what = next((f". {one.path} is {what}" for one in left if (what := what_by_name(one.path))), "")
    known = ", ".join(sorted(found.extensions))
    return f"source {found.source!r}: {where} holds no file that can be read ({known}){shown}{what}."


def _encodable(found: Found, file: File) -> bool:
    """Whether a file's name can be told at all; one that cannot is bad."""
    try:
        file.key.encode()
    except UnicodeEncodeError:
        reason = f"{file.path} cannot be read: its name is not UTF-8. Rename it."
        if not found.skip:
            raise SourceError(f"source {found.source!r}: {reason}") from None
        found.leave(file.path, reason, bad=True)
        return False
    return True


def _run_of(found: Found, place: Place, key: str, named: str) -> str | None:
    """The run folder of ours that a file lies in, if it lies at or below what the user named and is no list of words.

    A folder is ours by what is in it and not by its name: a plan that we sealed, or the manifest of a table.
    """
    if found.formats is not FORMATS:
        return None
    # Of a glob, that is all below its first wildcard.
    fixed = named if not places.has_wildcard(place, named) else re.split(r"[*?\[]", named, maxsplit=1)[0]
    parts = key.split("/")
    for i, part in enumerate(parts):
        folder = "/".join(parts[:i])
        if part not in _RUN_NAMES or len(folder) + 1 < len(fixed.rpartition("/")[0] + "/"):
            continue
        if (place, folder) not in found.runs:
            found.runs[place, folder] = _is_run(place, folder)
        if found.runs[place, folder]:
            return folder
    return None


def _is_run(place: Place, folder: str) -> bool:
    looked = [f"{folder}/{layout.PLAN}", f"{folder}/{layout.COUNTS}/{layout.MANIFEST}"]
    staging = f"{folder}/{layout.STAGING}"
    if places.is_folder(place, staging):
        looked += [f"{number}/{layout.PLAN}" for number in places.listing(place, staging).folders]
    for key in looked:
        file = places.stat(place, key)
        if file is None:
            continue
        try:
            value = json.loads(places.read_all(file))
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict) and (
            value.get("kind") == "count-table" or {"count format", "Unicode tables", "checksum"} <= value.keys()
        ):
            return True
    return False


def relative_names(paths: Sequence[str]) -> list[str]:
    """Paths below the deepest folder that holds all of them."""
    parents = [path.split("/")[:-1] for path in paths]
    common = 0
    while parents and all(len(p) > common and p[common] == parents[0][common] for p in parents):
        common += 1
    return ["/".join(path.split("/")[common:]) for path in paths]
