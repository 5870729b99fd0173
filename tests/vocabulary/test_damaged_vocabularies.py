"""Damaged files of a vocabulary: equal data or one sentence, never a crash, a hang or other data without a word.

With a manifest beside it every change of a file is found. Without one a change may give another vocabulary, but no
error that is not ours.
"""

import contextlib
import json
import os
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from vocabularies import learned

from dist_bpe.errors import FormatError, UsageError
from dist_bpe.pretokenize.preparation import SpecialToken
from dist_bpe.vocabulary.data import VocabularyData
from dist_bpe.vocabulary.files import load, manifest, publish_files, write
from dist_bpe.vocabulary.vocabulary import Vocabulary

DATA = learned(merges=25, special_tokens=[SpecialToken("<|endoftext|>", "eos"), SpecialToken("<a>")], padding=2)


def _bit(rng: random.Random, content: bytes) -> bytes:
    at = rng.randrange(len(content))
    return content[:at] + bytes([content[at] ^ 1 << rng.randrange(8)]) + content[at + 1 :]


def _byte(rng: random.Random, content: bytes) -> bytes:
    at = rng.randrange(len(content))
    return content[:at] + rng.randbytes(rng.randrange(3)) + content[at + 1 :]


def _cut(rng: random.Random, content: bytes) -> bytes:
    start, end = sorted(rng.choices(range(len(content) + 1), k=2))
    return rng.choice([content[:end], content[start:], content[:start] + content[end:]])


def _doubled(rng: random.Random, content: bytes) -> bytes:
    start, end = sorted(rng.choices(range(len(content) + 1), k=2))
    return content[:end] + content[start:]


def _json(rng: random.Random, content: bytes) -> bytes:
    """A value set, removed, renamed or nested, anywhere; bytes if it is no JSON."""
    try:
        root = [json.loads(content)]
    except ValueError:
        return _byte(rng, content)
    holder: Any = root
    key: Any = 0
    while isinstance(holder[key], (dict, list)) and holder[key] and rng.random() < 0.9:
        holder = holder[key]
        key = rng.choice(list(holder)) if isinstance(holder, dict) else rng.randrange(len(holder))
    match rng.randrange(4):
        case 0:
            holder[key] = rng.choice(
                [None, True, 0, -1, 1.5, 1e400, 2**31, 10**30, "", "x", "\x00", [], {}, [[]], {"": 0}, "\u00ff" * 99]
            )
        case 1:
            del holder[key]
        case 2 if isinstance(holder, dict):
            holder[rng.choice(["", "x", "id", "\u0120", key + "x"])] = holder.pop(key)
        case _:
            for _ in range(rng.choice([1, 3, 5000])):
                if len(json.dumps(root, skipkeys=True)) > 1 << 20:
                    break
                holder[key] = [holder[key]] if rng.random() < 0.5 else {"a": holder[key]}
                if rng.random() < 0.1:
                    break
    return json.dumps(root[0] if root else None).encode()


CHANGES: list[Callable[[random.Random, bytes], bytes]] = [_bit, _byte, _cut, _doubled, _json, _json]


def _check(seed: int, folder: Path, files: dict[str, bytes]) -> None:
    rng = random.Random(seed)
    name = rng.choice(sorted(files))
    changed = rng.choice(CHANGES)(rng, files[name])
    if rng.random() < 0.02:
        changed = b"[" * 50_000 + changed
    path = folder / name
    path.write_bytes(changed)
    try:
        for where in (folder, path):
            if where == path and name.startswith(("manifest", "tokenizer_c", "special_")):
                continue
            with contextlib.suppress(FormatError, UsageError):
                # The files are whole and their checksums too, or it is an error.
                assert _same(load(where), DATA) or changed == files[name], seed
        alone = folder / "manifest.json"
        if name != "manifest.json":
            alone.unlink()
            for where in (folder, path, folder / "tokenizer.json"):
                with contextlib.suppress(FormatError, UsageError):
                    vocabulary = Vocabulary(load(where))
                    assert vocabulary.decode(vocabulary.encode_ordinary("héllo 12\n")) is not None
    except Exception as error:
        raise AssertionError(f"seed {seed}, {name}") from error
    finally:
        for each in (name, "manifest.json"):
            (folder / each).write_bytes(files[each])


def _same(found: VocabularyData, wanted: VocabularyData) -> bool:
    """Equal in what each format carries: roles, and so on, are not in all of them."""
    return found.keys() == wanted.keys() and found.merges == wanted.merges


def _files(folder: Path) -> dict[str, bytes]:
    files, left_out = write(DATA)
    publish_files(folder, files | {"manifest.json": manifest(DATA, files, left_out)})
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_some_damaged_files(tmp_path: Path) -> None:
    files = _files(tmp_path / "v")
    for seed in range(400):
        _check(seed, tmp_path / "v", files)


@pytest.mark.fuzz
@pytest.mark.timeout(0)
def test_many_damaged_files(tmp_path: Path) -> None:
    files = _files(tmp_path / "v")
    end = time.monotonic() + float(os.environ.get("FUZZ_SECONDS", "600"))
    seed = random.SystemRandom().randrange(1 << 40)
    while time.monotonic() < end:
        seed += 1
        _check(seed, tmp_path / "v", files)
