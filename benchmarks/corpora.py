"""Corpora for the benchmarks, as Parquet with the columns text and lang: English, 26 languages, code.

    python benchmarks/corpora.py benchmarks/.work/corpora             # from Debian packages (apt-get download)
    python benchmarks/corpora.py OUT --parquet english=my.parquet …   # from Parquet you have, column `text`

The languages are one manual in 26 translations, the English is a kernel's documentation, the code is this Python's
library. About 500 MB in all. The texts are other people's work: they stay in the folder and are not committed.
"""

import argparse
import gzip
import html
import re
import subprocess
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

LANGUAGES = "cs da de el en-gb en-us es et fi fr hi hu it ja km ko nl pl pt pt-br ru sl sv tr zh-cn zh-tw".split()
MARKUP = re.compile(r"<(script|style)\b.*?</\1>|<[^>]*>", re.DOTALL)
Row = tuple[str, str]


def readable(page: str) -> str:
    """The text of an HTML page, its runs of white space made one."""
    text = html.unescape(MARKUP.sub(" ", page))
    return re.sub(r"\s*\n\s*", "\n", re.sub(r"[ \t]+", " ", text)).strip()


def package(name: str, work: Path) -> Path:
    """Download and unpack a Debian package, once."""
    folder = work / name
    if not folder.exists():
        work.mkdir(parents=True, exist_ok=True)
        subprocess.run(["apt-get", "-qq", "download", name], cwd=work, check=True)
        (archive,) = work.glob(f"{name}_*.deb")
        subprocess.run(["dpkg-deb", "-x", archive, folder], check=True)
        archive.unlink()
    return folder


def languages(work: Path) -> Iterator[Row]:
    for language in LANGUAGES:
        for path in sorted(package(f"libreoffice-help-{language}", work).rglob("*.html")):
            if text := readable(path.read_text(encoding="utf-8", errors="replace")):
                yield language, text


def english(work: Path) -> Iterator[Row]:
    for path in sorted(package("linux-doc-6.1", work).rglob("*")):
        if path.is_file() and path.name.endswith((".rst", ".txt", ".rst.gz", ".txt.gz", ".html")):
            content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
            text = content.decode("utf-8", "replace")
            yield "english", readable(text) if path.suffix == ".html" else text


def code(_: Path) -> Iterator[Row]:
    for root in (sysconfig.get_paths()["stdlib"], sysconfig.get_paths()["purelib"]):
        for path in sorted(Path(root).rglob("*.py")):
            try:
                yield "code", path.read_text(encoding="utf-8")
            except (UnicodeDecodeError, OSError):
                continue  # test files that are broken on purpose


def given(path: Path, name: str) -> Iterator[Row]:
    for batch in pq.ParquetFile(path).iter_batches(columns=["text"]):
        yield from ((name, text) for text in batch.column(0).to_pylist() if text)


def write(path: Path, rows: Iterator[Row], most_bytes: float) -> None:
    """Write rows until their text reaches a size."""
    texts: list[str] = []
    names: list[str] = []
    size = 0
    for name, text in rows:
        if size >= most_bytes:
            break
        texts.append(text)
        names.append(name)
        size += len(text.encode())
    table = pa.table({"text": texts, "lang": names})
    pq.write_table(table, path, compression="zstd", row_group_size=2000)
    print(f"{path}: {len(texts):,} documents, {size / 1e6:.1f} MB", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--parquet", action="append", metavar="NAME=FILE", help="take the text of this file instead")
    parser.add_argument("--megabytes", type=float, default=1000, help="at most this much of each")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    work = arguments.out.parent / "packages"
    if arguments.parquet:
        pairs = [value.partition("=")[::2] for value in arguments.parquet]
        makers = {name: given(Path(path), name) for name, path in pairs}
    else:
        makers = {make.__name__: make(work) for make in (english, languages, code)}
    for name, rows in makers.items():
        write(arguments.out / f"{name}.parquet", rows, arguments.megabytes * 1e6)


if __name__ == "__main__":
    main()
