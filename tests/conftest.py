"""Text and Parquet for the tests: generated, or found in packages installed beside them."""

import contextlib
import gettext
import itertools
import os
import random
import sysconfig
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    import dist_bpe

settings.register_profile("default", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("default")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--seed", type=int, help="replay one simulated world of test_ledger.py")


# Code points on which scanners differ: quotes and contraction letters, every kind of white space, digits and numbers of
# other scripts, combining marks, letters of two, three and four bytes, symbols, U+017F that is an s to (?i:s).
TRICKY = [
    *"'’sdmtlvreSDMTLVREſKaZz09 .,;:!?-_()/\\\"#@^~\t\n\r\x0b\x0c\x1c\x1d\x1e\x1f\x00\x7f",
    *"\u0085\u00a0\u1680\u2000\u2028\u2029\u202f\u205f\u3000\u200b\u200d\ufeff",
    *"\u200c々アー・゛゠\u3099\u3040\u3098²½٣३௧Ⅷ零〇⺀〩𝟘éßøαЖשعहिन्ทีខ្កก中文日本ᄀ한글ﬁ𐐀𝒜𠀀😀🇩🏽́̈‿€",
]


def random_document(rng: random.Random, most: int = 60) -> str:
    """A short document that is hard to cut: runs of tricky code points."""
    number = rng.randint(0, most)
    return "".join(rng.choice(TRICKY) * (rng.randint(2, 5) if rng.random() < 0.15 else 1) for _ in range(number))


def installed_code(most_bytes: int) -> list[str]:
    """Modules of the standard library, up to a size in bytes."""
    return list(_up_to(most_bytes, _modules()))


def installed_languages(most_bytes: int) -> list[str]:
    """Django's message catalogues of a hundred languages, then the same with their words shuffled, up to a size."""
    real = list(_catalogues())
    rng = random.Random(6)
    mixed = (" ".join(rng.sample(words, len(words))) for words in map(str.split, itertools.cycle(real)))
    return list(_up_to(most_bytes, itertools.chain(real, mixed)))


def _modules() -> Iterator[str]:
    for path in sorted(Path(sysconfig.get_paths()["stdlib"]).rglob("*.py")):
        with contextlib.suppress(UnicodeDecodeError):
            yield path.read_text(encoding="utf-8")


def _catalogues() -> Iterator[str]:
    import django

    for path in sorted(Path(django.__file__).parent.rglob("*.mo")):
        with path.open("rb") as file:
            catalogue = gettext.GNUTranslations(file)._catalog  # type: ignore[attr-defined]
        yield "\n".join(text for key, text in catalogue.items() if key and text)


def _up_to(most_bytes: int, texts: Iterable[str]) -> Iterator[str]:
    size = 0
    for text in texts:
        if size >= most_bytes:
            return
        size += len(text.encode())
        yield text


Writer = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Writer:
    """Write documents to a Parquet file below the test's folder: write(name, texts, lang=[…], row_group_size=…)."""

    def write_file(name: str, texts: Iterable[str | None], row_group_size: int = 7, **columns: list[str]) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        table = pa.table({"text": pa.array(list(texts), pa.string()), **columns})
        pq.write_table(table, path, row_group_size=row_group_size)
        return path

    return write_file


@pytest.fixture
def documents() -> list[str]:
    """Three hundred small documents in several scripts with repeated words, enough for 700 tokens and more."""
    rng = random.Random(7)
    words = "the of and straße können été où где привет мир こんにちは 世界 नमस्ते दुनिया สวัสดี 🙂 don't I'll 42".split()
    words += ["1234567", "x_y", "=", "(", ")", "\n", "\n\n", "\t"]
    words += ["".join(rng.choice("abcdeéßжщ日本") for _ in range(rng.randint(2, 9))) for _ in range(150)]
    return [" ".join(rng.choice(words) for _ in range(rng.randint(1, 80))) for _ in range(300)]


SMALL = {"shard_bytes": 2000, "partitions": 3}
"""Options that give many shards of little text."""


@pytest.fixture
def source(write: Writer, documents: list[str], tmp_path: Path) -> "dist_bpe.Source":
    import dist_bpe  # here, since the cluster's tests run where it is not installed

    write("in/a.parquet", documents[:150])
    write("in/b.parquet", documents[150:])
    return dist_bpe.Source("s", str(tmp_path / "in"))


@pytest.fixture
def clean(source: "dist_bpe.Source", tmp_path: Path) -> dict[str, str]:
    """The bytes of an undisturbed local run."""
    from helpers import hashes, quiet  # which needs this file first

    return hashes(quiet(source, output=tmp_path / "clean", **SMALL).folder)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """A head without processors; each test adds the nodes it harms."""
    os.environ.update(RAY_raylet_start_wait_time_s="120", RAY_USAGE_STATS_ENABLED="0")
    from helpers import NODE
    from ray.cluster_utils import Cluster

    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, **NODE})
    yield made
    made.shutdown()
