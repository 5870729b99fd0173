"""A clean parallel set of 26 languages, as Parquet with lang, doc, text: train/LANG.parquet and held-out.parquet.

Beside it english.parquet, a kernel's documentation: English from elsewhere, for mixtures that are mostly English.

    python benchmarks/parallel.py benchmarks/.work/parallel     # from Debian packages (apt-get download)

One manual, page by page. Much of some translations is English still, which would make every vocabulary look fairer than
it is: so training pages keep lines that the English page does not have (English keeps all), and held-out pages (30 %,
by a hash of the page's name) keep the lines that are translated in every language, of pages that have as many lines in
all. Hindi is left out, since most of it is not translated. The texts are other people's work and stay in the folder.
"""

import argparse
import hashlib
import html
import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from corpora import LANGUAGES, MARKUP, english, package

HELD_OUT = 0.3
Pages = dict[str, list[str]]


def pages(language: str, work: Path) -> Pages:
    """The lines of each page, as they stand in its source: so those of translations stay aligned."""
    found = {}
    for path in sorted((package(f"libreoffice-help-{language}", work) / "usr/share").rglob("*.html")):
        name = str(path).partition("/text/")[2]
        text = html.unescape(MARKUP.sub(" ", path.read_text(encoding="utf-8", errors="replace")))
        lines = (re.sub(r"[ \t]+", " ", line) for line in text.split("\n"))
        found[name] = [line for line in lines if line.strip()]
    return found


def is_held_out(page: str) -> bool:
    return hashlib.sha256(page.encode()).digest()[0] < HELD_OUT * 256


def write(path: Path, rows: list[tuple[str, str, str]]) -> None:
    lang, doc, text = (list(column) for column in zip(*rows, strict=True))
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"lang": lang, "doc": doc, "text": text}), path, compression="zstd")
    print(f"{path}: {len(rows):,} rows, {sum(len(t.encode()) for t in text) / 1e6:.1f} MB")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path)
    parser.add_argument("--packages", type=Path, default=Path(__file__).parent / ".work" / "packages")
    arguments = parser.parse_args()
    languages = {language: pages(language, arguments.packages) for language in sorted({*LANGUAGES, "vi"} - {"hi"})}
    source = languages["en-us"]
    common = sorted(set.intersection(*(set(found) for found in languages.values())))
    known = {page: {line.strip() for line in source[page]} for page in common}
    held_out = []
    for language, found in languages.items():
        kept = []
        for page in common:
            if not is_held_out(page):
                lines = [x for x in found[page] if language.startswith("en") or x.strip() not in known[page]]
                if lines:
                    kept.append((language, page, "\n".join(lines)))
        write(arguments.output / "train" / f"{language}.parquet", kept)
    for page in filter(is_held_out, common):
        if len({len(found[page]) for found in languages.values()}) > 1:
            continue
        translated = [
            i
            for i in range(len(source[page]))
            if all(k.startswith("en") or found[page][i].strip() not in known[page] for k, found in languages.items())
        ]
        if translated:
            held_out += [(k, page, "\n".join(found[page][i] for i in translated)) for k, found in languages.items()]
    write(arguments.output / "held-out.parquet", sorted(held_out))
    texts = [text for _, text in english(arguments.packages) if text]
    write(arguments.output / "english.parquet", [("en-us", f"kernel {i}", text) for i, text in enumerate(texts)])


if __name__ == "__main__":
    main()
