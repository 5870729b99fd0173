"""Write a real sample corpus as sharded Parquet, from text that is already on this machine.

    python jobs/sample_corpus.py corpus/
    python jobs/sample_corpus.py s3://bucket/corpus

Three kinds of text: this Python's own sources (`python`), its documentation (`english`), and the message catalogues of
an installed Django in many languages (`de`, `ja`, …), left out where there is none. Columns: `text` and `lang`; one
file for each 8 MB of text.
"""

import ast
import gettext
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.fs as fs
import pyarrow.parquet as pq

FILE_BYTES = 8 << 20
ROW_GROUP_ROWS = 500
LANGUAGES = (
    "ar bg bn ca cs da de el es et fa fi fr he hi hr hu hy id is it ja ka kk km ko lt lv mk ml mn my nb ne nl pl pt "
    "ro ru sk sl sq sr sv ta te th tr uk ur vi zh_Hans zh_Hant"
).split()


def python_documents() -> Iterator[tuple[str, str]]:
    """Every module of the standard library as one `python` document, and its docstrings as one `english` document."""
    library = Path(sysconfig.get_paths()["stdlib"])
    for path in sorted(library.rglob("*.py")):
        if "site-packages" in path.parts:
            continue
        try:
            source = path.read_text(encoding="utf-8")
            tree = ast.parse(source)
        except (UnicodeDecodeError, SyntaxError):
            continue  # test files that are broken on purpose
        yield "python", source
        documented = (ast.AsyncFunctionDef, ast.FunctionDef, ast.ClassDef, ast.Module)
        texts = [ast.get_docstring(node) for node in ast.walk(tree) if isinstance(node, documented)]
        text = "\n\n".join(filter(None, texts))
        if text:
            yield "english", text


def manual_documents() -> Iterator[tuple[str, str]]:
    """The topics of the language reference that `help()` shows."""
    from pydoc_data.topics import topics

    for _, text in sorted(topics.items()):
        yield "english", text


def catalogue_documents() -> Iterator[tuple[str, str]]:
    """The translated messages of every Django catalogue, one document a catalogue."""
    try:
        import django
    except ImportError:
        return
    root = Path(django.__file__).parent
    for language in LANGUAGES:
        for path in sorted(root.rglob(f"locale/{language}/LC_MESSAGES/*.mo")):
            with path.open("rb") as file:
                catalogue = gettext.GNUTranslations(file)
            # The public interface looks messages up; only this attribute lists them.
            messages = catalogue._catalog  # type: ignore[attr-defined]
            texts = [message for key, message in messages.items() if key and message]
            if texts:
                yield language, "\n".join(texts)


def main(place: str) -> None:
    """Write the corpus below `place`, a folder or the URI of one."""
    file_system, folder = fs.FileSystem.from_uri(place if "://" in place else Path(place).absolute().as_uri())
    file_system.create_dir(folder)
    rows: list[tuple[str, str]] = []
    size = files = total = documents = 0

    def write() -> None:
        nonlocal rows, size, files
        table = pa.table({"text": [text for _, text in rows], "lang": [lang for lang, _ in rows]})
        path = f"{folder}/part-{files:03}.parquet"
        pq.write_table(table, path, filesystem=file_system, compression="zstd", row_group_size=ROW_GROUP_ROWS)
        rows, size, files = [], 0, files + 1

    for make in (catalogue_documents, manual_documents, python_documents):
        for lang, text in make():
            rows.append((lang, text))
            size += len(text.encode())
            total += len(text.encode())
            documents += 1
            if size >= FILE_BYTES:
                write()
    if rows:
        write()
    print(f"{place}: {documents:,} documents, {total / 1e6:.1f} MB of text, {files} Parquet files", file=sys.stderr)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "corpus")
