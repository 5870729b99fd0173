"""Export: every format written, each file read again in its own library, and ids compared before anything is published.

A file that another library reads otherwise is worth less than none, so it never appears: the comparison runs on a
temporary folder, and a difference is an error that names library, file and text.
"""

import contextlib
import functools
import gc
import importlib.metadata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from dist_bpe.errors import ExportError, UsageError
from dist_bpe.pretokenize.checks import (
    PROBES,
    NoEngineError,
    differs_in_tiktoken,
    differs_in_tokenizers,
    panics_as_errors,
)
from dist_bpe.pretokenize.patterns import Pattern, compile_regex
from dist_bpe.storage.files import RunPath, parse_path
from dist_bpe.storage.layout import MANIFEST
from dist_bpe.vocabulary.data import VocabularyData
from dist_bpe.vocabulary.files import FORMATS, chosen_formats, manifest, publish_files, read, write
from dist_bpe.vocabulary.formats.format import NotReadError, Reader
from dist_bpe.vocabulary.vocabulary import Vocabulary

DEFAULT_LIBRARIES = ("tokenizers", "tiktoken")
"""Those asked at each export. `transformers` is asked on request, since its import takes seconds."""
_LIBRARIES = (*DEFAULT_LIBRARIES, "transformers")


def export(
    vocabulary: Vocabulary,
    folder: str | RunPath,
    formats: Iterable[str] | None = None,
    *,
    libraries: Iterable[str] | None = DEFAULT_LIBRARIES,
    fingerprints: Mapping[str, Any] | None = None,
    overwrite: bool = False,
) -> dict[str, str]:
    """Write a vocabulary in several formats, check each in its own library, and publish all files or none.

    The files and manifest.json depend on the vocabulary and the fingerprints alone: no times, no paths.

    Args:
        vocabulary: what to export.
        folder: where to; other files in it stay.
        formats: names of formats; by default all that can hold the vocabulary.
        libraries: those to check with: "tokenizers", "tiktoken", "transformers"; None to read nothing back at all.
        fingerprints: what the vocabulary was made from, for the manifest; plain JSON values.
        overwrite: replace files of the same names that were not written here, or were changed since.

    Returns:
        What was found, in a line each: for "files" and for every library that can read any of the formats, also those
        that are not installed or were not asked, and for formats left out the reason.

    Raises:
        ExportError: a library reads a file otherwise than we do; it names library, file, text and both lists of ids.
        FormatError: a format asked for by name cannot hold this vocabulary.
        RunError: a file is there that was not written here, and `overwrite` is not given.
        UsageError: an unknown format or library, or a folder that cannot be written to.
    """
    asked = None if libraries is None else _known(libraries)
    names = None if formats is None else [format.name for format in chosen_formats(formats)]
    outcome: dict[str, str] = {}

    def check(temporary: Path) -> None:
        if asked is None:
            outcome["files"] = "not read back: verification was switched off"
        else:
            outcome.update(verify(temporary, asked, vocabulary))

    with _uncollected():
        files, left_out = write(vocabulary.data, names)
        content = files | {MANIFEST: manifest(vocabulary.data, files, left_out, fingerprints)}
        publish_files(parse_path(folder), content, check, overwrite)
    return outcome | {name: f"not written: {reason}" for name, reason in left_out.items()}


@contextlib.contextmanager
def _uncollected() -> Iterator[None]:
    """Keep the collector of cycles still. Merges are pairs by the hundred thousand without a cycle among them.

    To look through them again and again took a sixth of an export (32,000 tokens, 2026-12-01).
    """
    running = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if running:
            gc.enable()


def verify(
    folder: str | Path, libraries: Iterable[str] = DEFAULT_LIBRARIES, vocabulary: Vocabulary | None = None
) -> dict[str, str]:
    """Read each format in a folder again, here and in its own library, and compare the ids of the probe texts.

    Args:
        folder: the vocabulary's folder.
        libraries: see `export`.
        vocabulary: what the files should say; by default what `Vocabulary.load` finds in the folder.

    Returns:
        See `export`.

    Raises:
        ExportError: see `export`.
        FormatError: a file is damaged.
    """
    folder = Path(folder)
    asked = _known(libraries)
    vocabulary = vocabulary or Vocabulary.load(folder)
    present = [format.name for format in FORMATS.values() if (folder / format.files[0]).is_file()]
    for name in present:
        _compare_data(vocabulary.data, folder, name)
    texts = probe_texts(vocabulary)
    expected = [vocabulary.encode(text, allowed_special="all") for text in texts]
    outcome = {"files": f"{', '.join(present)}: each read back with the same merges and ids"}
    for library in _LIBRARIES:
        readable = {name: FORMATS[name].libraries[library] for name in present if library in FORMATS[name].libraries}
        if not readable:
            continue
        if library not in asked:
            outcome[library] = "not verified: not asked"
            continue
        version = _version(library)
        if version is None:
            outcome[library] = "not verified: not installed (pip install 'dist_bpe[verify]')"
            continue
        done = []
        for name, check in readable.items():
            shown = " + ".join(FORMATS[name].files[:2] if name != "tokenizers" else FORMATS[name].files[:1])
            reason = _cannot_compare(vocabulary.data, name)
            carried = "normalization" in FORMATS[name].carries
            given = texts if carried else [vocabulary.normalize(text) for text in texts]
            try:
                if not reason:
                    _compare_cuts(library, shown, vocabulary.pattern)
                    _compare_ids(library, shown, folder, check, vocabulary, given, expected)
            except NoEngineError:
                named = vocabulary.pattern.name or repr(vocabulary.pattern.regex)
                reason = (
                    f"since this release has no regex engine and the pattern {named} is none of those that it knows; "
                    "releases before 1.0 read the file"
                )
            except NotReadError as error:
                reason = str(error)
            if reason:
                done.append(f"{shown} not compared, {reason}")
                continue
            same = "the same ids" if given == texts else f"the same ids for text in {vocabulary.normalization}"
            done.append(f"{shown} gives {same}")
        outcome[library] = f"{version}: {'; '.join(done)} ({len(texts)} texts)"
    return outcome


def probe_texts(vocabulary: Vocabulary) -> list[str]:
    """The texts to compare on: the probes, and the special tokens alone, doubled, inside text and beside each other."""
    specials = list(vocabulary.special_ids)
    # Of a thousand reserved tokens the first and the last few say as much as all.
    shown = specials if len(specials) <= 40 else specials[:20] + specials[-20:]
    texts = list(PROBES)
    for special in shown:
        texts += [special, special * 2, f"a {special} b\n{special}c", f" {special[:-1]} {special[1:]}"]
    return [*texts, "".join(shown), " x ".join(shown)]


def _known(libraries: Iterable[str]) -> list[str]:
    if isinstance(libraries, str):
        raise TypeError("libraries is a list of names, not one string")
    libraries = list(libraries)
    for library in libraries:
        if library not in _LIBRARIES:
            raise UsageError(f"unknown library {library!r}; files can be checked in: {', '.join(_LIBRARIES)}.")
    return libraries


def _cannot_compare(data: VocabularyData, format: str) -> str:
    """Why ids cannot be compared for a format in any library; empty if they can."""
    if format == "gpt2" and not data.pattern.byte_level:
        return "since they hold no pattern and their readers assume gpt2's"
    return ""


def _compare_data(data: VocabularyData, folder: Path, format: str) -> None:
    """Read a format with our own reader and compare what it carries."""
    found = read(folder, format, data.pattern if "pattern" not in FORMATS[format].carries else None)
    for name in ("merges", "special_ids", "first_id", "pattern", "normalization"):
        if name == "normalization" and name not in FORMATS[format].carries:
            continue
        if getattr(found, name) != getattr(data, name):
            raise ExportError(f"{FORMATS[format].files[0]} was read back with other {name} than were written.")


def refuse_uncarried(
    pattern: Pattern, formats: Iterable[str] | None = None, libraries: Iterable[str] | None = DEFAULT_LIBRARIES
) -> None:
    """Refuse a pattern that a library would read otherwise from one of the files to be written; to be called early.

    What an export would find in the end with whatever vocabulary comes of it.

    Args:
        pattern: the pattern.
        formats: names of formats; by default all.
        libraries: those to ask, see `export`; one that is not installed is not asked.

    Raises:
        UsageError: one does; the message says which formats can be written.
    """
    chosen = chosen_formats(formats)
    refused = {}
    for format in chosen:
        for library in _LIBRARIES:
            asked = libraries is not None and library in libraries and library in format.libraries
            if not asked or "pattern" not in format.carries or _version(library) is None:
                continue
            try:
                reason = _differs(library, pattern)
            except NoEngineError:
                continue
            if reason:
                refused[format.name] = reason
                break
    if not refused:
        return
    left = [format.name for format in chosen if format.name not in refused]
    how = " ".join(f"--export-format {name}" for name in left)
    raise UsageError(
        f"the pattern {pattern.regex!r} cannot be written in the format {' and '.join(refused)}: "
        f"{'; '.join(dict.fromkeys(refused.values()))}. Choose another pattern"
        + (f", or write the other formats alone: {how} (in Python formats={left})." if left else ".")
    )


def _version(library: str) -> str | None:
    """The version of a library; None if it is not installed."""
    try:
        return importlib.metadata.version(library)
    except importlib.metadata.PackageNotFoundError:
        return None


@functools.cache
def _differs(library: str, pattern: Pattern) -> str:
    """How a library's engine cuts the probes otherwise than we do; empty if it does not.

    Raises:
        NoEngineError: it has none for this pattern.
    """
    differs = differs_in_tiktoken if library == "tiktoken" else differs_in_tokenizers
    if library == "tiktoken" and compile_regex(pattern.regex).match("") is not None:
        # It would end in a panic, which prints a page before it can be caught.
        return "tiktoken cannot take matches of no characters"
    try:
        text = differs(pattern, PROBES)
    except NoEngineError:
        raise
    except ValueError as error:
        return f"{library} cannot read it ({error})"
    if text is None:
        return ""
    words = " | ".join(word.decode() for word in pattern.words(text))
    return f"{library} cuts {text!r} by it otherwise than we do, which is {words!r}"


def _compare_cuts(library: str, file: str, pattern: Pattern) -> None:
    """Ask a library's engine how it cuts the probes: ids tell only what this vocabulary's merges bring to light."""
    reason = _differs(library, pattern)
    if reason:
        raise ExportError(
            f"the pattern in {file} is of no use there: {reason}. Leave that format out, or choose a pattern that both "
            "engines read alike."
        )


def _compare_ids(
    library: str,
    file: str,
    folder: Path,
    check: Callable[[Path, VocabularyData], Reader],
    vocabulary: Vocabulary,
    texts: Sequence[str],
    expected: Sequence[Sequence[int]],
) -> None:
    """Load a file in its library and compare the ids of each text, and the text of the ids.

    Raises:
        ExportError: they differ, or the library cannot read the file.
        NotReadError: the library has no reader for such files.
    """
    try:
        with panics_as_errors():
            encode, decode = check(folder, vocabulary.data)
    except NotReadError:
        raise
    except Exception as error:
        raise ExportError(f"{library} cannot read {file}: {error!r}.") from error
    for text, ids in zip(texts, expected, strict=True):
        try:
            with panics_as_errors():
                theirs = list(encode(text))
                back = decode(theirs)
        except Exception as error:
            raise ExportError(f"{library} cannot encode {text!r} with {file}: {error!r}.") from error
        if theirs != list(ids):
            raise ExportError(
                f"{library} encodes {text!r} with {file} as {_around(theirs, ids)}, and we as {_around(ids, theirs)}."
            )
        if back != vocabulary.normalize(text):
            raise ExportError(f"{library} decodes the ids {_around(ids, ())} of {text!r} with {file} as {back!r}.")


def _around(ids: Sequence[int], others: Sequence[int], shown: int = 24) -> str:
    """A list of ids, cut to where it differs from another."""
    first = next((i for i, (a, b) in enumerate(zip(ids, others, strict=False)) if a != b), min(len(ids), len(others)))
    start = max(0, first - shown // 2)
    part = ", ".join(map(str, ids[start : start + shown]))
    return f"[{'…, ' if start else ''}{part}{', …' if start + shown < len(ids) else ''}]"
