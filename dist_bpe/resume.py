"""What a run was planned with, and whether another command may go on with it: all that changes counts must be the same.

Policies for bad files and rows may be relaxed from `error`: what was finished under it held nothing bad.
"""

import hashlib
from collections.abc import Iterator
from typing import Any

from dist_bpe import _core
from dist_bpe.counts import FORMAT_VERSION
from dist_bpe.sources import SPLIT, Plan, Source

MOST_SHOWN = 5
PATTERN = "pattern"


def fingerprint(planned: Plan, sources: list[Source], options: dict[str, Any]) -> dict[str, Any] | None:
    """All that decides a count table, as plain values without secrets; None if documents in memory cannot be compared.

    Args:
        planned: the files with size and time, and the borders of the shards.
        sources: how they are read.
        options: those of counting that decide the table, by name.
    """
    borders = hashlib.sha256()
    for shard in planned.shards:
        for piece in shard.pieces:
            borders.update(f"{shard.index} {piece.format} {piece.name} {piece.first} {piece.last}\n".encode())
    memory: dict[str, str] = {}
    for shard in planned.shards:
        for piece in shard.pieces:
            if piece.documents is not None:
                # `open` is that of our own stand-ins for datasets, which name a folder or a revision of the Hub.
                known = getattr(piece.documents, "_fingerprint", None)
                if known is None and hasattr(piece.documents, "open"):
                    known = repr(piece.documents)
                if known is None:
                    return None
                memory[piece.name] = str(known)
    return {
        "count format": FORMAT_VERSION,
        "Unicode tables": _core.UNICODE_TABLES,
        "options": options,
        "sources": {
            source.name: {
                "text": source.text,
                "group_by": source.group_by,
                "sample_fraction": source.sample_fraction,
                "max_bytes": source.max_bytes,
                "seed": source.seed,
            }
            for source in sources
        },
        "files": {
            file.path: {"source": file.source, "format": file.format, "size": file.size, "modified": file.modified}
            for file in planned.files
        },
        "datasets": memory,
        "shards": {"number": len(planned.shards), "borders": borders.hexdigest(), "pieces when split": SPLIT},
        "policies": {
            source.name: {"on_bad_file": source.on_bad_file, "on_bad_row": source.on_bad_row} for source in sources
        },
    }


def differences(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """What keeps a run planned with `old` from going on with `new`, a phrase each; empty if nothing does."""
    found = list(_differences(old, new, ""))
    # The borders of shards follow from the rest, and say something only where nothing else does.
    return [text for text in found if not text.startswith("shards ")] or found


def _differences(old: Any, new: Any, name: str) -> Iterator[str]:
    if isinstance(old, dict) and isinstance(new, dict):
        for key in [*old, *(key for key in new if key not in old)]:
            inner = key if name in ("", "options", "files", "datasets", "sources") else f"{name} {key}"
            if key not in new:
                yield f"{inner} is gone"
            elif key not in old:
                yield f"{inner} is new"
            else:
                yield from _differences(old[key], new[key], inner)
    elif old != new and not (name.rpartition(" ")[2].startswith("on_bad_") and old == "error"):
        yield f"{name} was {old!r} and is {new!r}"


def shown(texts: list[str]) -> str:
    """Some differences in one phrase."""
    more = len(texts) - MOST_SHOWN
    return "; ".join(texts[:MOST_SHOWN]) + (f"; and {more:,} more" if more > 0 else "")
