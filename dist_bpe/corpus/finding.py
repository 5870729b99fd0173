"""From paths to files: globs, folders, lists, saved datasets, datasets by name; and what is left out of them."""

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dist_bpe.corpus.formats import EXTENSIONS, FORMATS, compression
from dist_bpe.corpus.readers.huggingface import SavedDataset, hub_split
from dist_bpe.errors import SourceError
from dist_bpe.storage import places
from dist_bpe.storage.places import File, Place


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
        left_out: files that will not be read.
    """

    source: str
    format: str | None
    extensions: dict[str, str] = field(default_factory=lambda: EXTENSIONS)
    formats: Sequence[str] = FORMATS
    files: dict[str, tuple[File, str]] = field(default_factory=dict)
    objects: list[tuple[str, str, Any]] = field(default_factory=list)
    left_out: list[LeftOut] = field(default_factory=list)

    def leave(self, path: str, reason: str) -> None:
        """Note a file that will not be read."""
        self.left_out.append(LeftOut(self.source, path, reason))

    def add(self, file: File, format: str) -> None:
        """Note a file; one that was found before stays as it was."""
        self.files.setdefault(file.path, (file, format))


def find(
    source: str,
    paths: Sequence[str],
    format: str | None,
    extensions: dict[str, str] = EXTENSIONS,
    formats: Sequence[str] = FORMATS,
) -> Found:
    """Find the files that paths, globs, folders, lists and URIs name.

    Raises:
        SourceError: one of them leads to nothing, or to a file of an unknown format.
    """
    if not paths:
        raise SourceError(f"source {source!r} names no path.")
    found = Found(source, format, extensions, formats)
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
        if format is None:
            raise SourceError(
                f"source {name!r}: the name of {file.path} does not tell its format. Give one: "
                f"{', '.join(found.formats)}."
            )
        found.add(file, format)
        return
    if places.is_folder(place, key):
        _find_folder(found, place, key)
        return
    if not places.has_wildcard(place, key):
        listed = f", which {listed} names" if listed else ""
        raise SourceError(f"source {name!r}: no file matches {places.redacted(text)}{listed}.")
    files, folders = places.match(place, key)
    if not files and not folders:
        raise SourceError(f"source {name!r}: no file matches {place.uri(key)}.")
    _take(found, files, place.uri(key), "")
    for folder in folders:
        _find_folder(found, place, folder)


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


def _find_folder(found: Found, place: Place, folder: str) -> None:
    files, _ = places.listing(place, folder, recursive=True)
    prefix = folder.rstrip("/") + "/"
    by_name = {file.key.removeprefix(prefix): file for file in files}
    if "dataset_dict.json" in by_name or "state.json" in by_name:
        _find_saved(found, place, prefix, by_name)
        return
    _take(found, files, place.uri(folder), prefix)


def _find_saved(found: Found, place: Place, prefix: str, by_name: dict[str, File]) -> None:
    def read(name: str) -> Any:
        try:
            return json.loads(places.read_all(by_name[name]))
        except (KeyError, ValueError) as error:
            raise SourceError(
                f"{place.uri(prefix)} is no `save_to_disk` folder that can be read: {name}: {error}."
            ) from error

    split = ""
    if "dataset_dict.json" in by_name:
        splits = read("dataset_dict.json")["splits"]
        if "train" not in splits and len(splits) != 1:
            raise SourceError(
                f"{place.uri(prefix)} has no split 'train'; name the folder of one of: {', '.join(splits)}."
            )
        split = ("train" if "train" in splits else splits[0]) + "/"
        for other in splits:
            if other + "/" != split:
                found.leave(place.uri(prefix + other), "another split than the one that is read")
    state = read(split + "state.json")
    if state.get("_indices_data_files"):
        if not place.local:
            raise SourceError(f"{place.uri(prefix)} has an indices mapping, which `datasets` reads from local folders.")
        saved = SavedDataset(prefix + split)
        found.objects.append(("dataset", prefix + split, saved))
        return
    for entry in state["_data_files"]:
        name = split + entry["filename"]
        if name not in by_name:
            raise SourceError(f"{place.uri(prefix + name)} is missing, which its state.json names.")
        found.add(by_name[name], "arrow")


def _take(found: Found, files: Sequence[File], where: str, prefix: str) -> None:
    """Take the files of a folder or glob that hold documents: those of one format, the first of the table's."""
    wanted = found.format
    kept: dict[str, list[File]] = {}
    for file in files:
        name = file.key.removeprefix(prefix) if prefix else file.key.rpartition("/")[2]
        if any(part.startswith((".", "_")) for part in name.split("/")):
            found.leave(file.path, "hidden, or a marker")
        elif file.size == 0:
            found.leave(file.path, "empty: no bytes")
        else:
            format = wanted or _format(file.key, found.extensions)
            if format is None:
                found.leave(file.path, "its name tells no known format")
            else:
                kept.setdefault(format, []).append(file)
    if not kept:
        left = "".join(f"; {left.path} is left out ({left.reason})" for left in found.left_out[-3:])
        known = ", ".join(sorted(found.extensions))
        raise SourceError(
            f"source {found.source!r}: {where} holds no *.parquet file, nor another that can be read ({known}){left}."
        )
    chosen = next(format for format in found.formats if format in kept)
    for format, some in kept.items():
        for file in some:
            if format == chosen:
                found.add(file, format)
            else:
                found.leave(file.path, f"{format}, beside files of {chosen}")


def relative_names(paths: Sequence[str]) -> list[str]:
    """Paths below the deepest folder that holds all of them."""
    parents = [path.split("/")[:-1] for path in paths]
    common = 0
    while parents and all(len(p) > common and p[common] == parents[0][common] for p in parents):
        common += 1
    return ["/".join(path.split("/")[common:]) for path in paths]
