"""A hook of mkdocs: what the pages link to outside of docs/ comes into the site, so that a link works there too.

On GitHub such a link (`../jobs/README.md`) goes to the file. The site has no repository to point to: pages in Markdown
become pages of it, other files are copied, and a link to a folder, which would show nothing, leaves its text.
"""

import os
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files, InclusionLevel

ROOT = Path(__file__).parent.parent
LINK = re.compile(r"(?<!!)\[([^]]*)\]\(([^)#:\s]+)((?:#[^)]*)?)\)")


def place(page: Path, target: str) -> Path:
    """The file that a link on a page leads to; both from the root of the repository."""
    return Path(os.path.normpath(page.parent / target))


def uri(file: Path) -> str:
    """Where a file of the repository lies in the site."""
    return str(file.relative_to("docs") if file.is_relative_to("docs") else "repository" / file)


def on_files(files: Files, config: Any) -> Files:
    """Add every file that a page of docs/ links to, and what those link to in turn."""
    pages = [Path("docs") / page.src_uri for page in files.documentation_pages()]
    known = set(pages)
    while pages:
        page = pages.pop()
        for _, target, _ in LINK.findall((ROOT / page).read_text()):
            file = place(page, target)
            if file in known or file.is_relative_to("docs") or not (ROOT / file).is_file():
                continue
            known.add(file)
            # Said outright, since names with a dot before them would be left out.
            level = InclusionLevel.NOT_IN_NAV if file.suffix == ".md" else InclusionLevel.INCLUDED
            files.append(File.generated(config, uri(file), abs_src_path=str(ROOT / file), inclusion=level))
            if file.suffix == ".md":
                pages.append(file)
    return files


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Turn the links of a page to where their files lie in the site."""
    here = page.file.src_uri
    source = Path(here.removeprefix("repository/")) if here.startswith("repository/") else Path("docs") / here

    def turned(link: re.Match[str]) -> str:
        text, target, anchor = link.groups()
        file = place(source, target)
        if (ROOT / file).is_dir():
            return text
        return f"[{text}]({os.path.relpath(uri(file), Path(here).parent)}{anchor})"

    return LINK.sub(turned, markdown)
