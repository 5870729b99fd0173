"""Where a run stands, read from its folder alone: from any machine, and without a trace."""

import contextlib
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from typing import Any

from dist_bpe.counting.table import CountTable
from dist_bpe.errors import DistBpeError, RunError, several
from dist_bpe.progress import human_bytes
from dist_bpe.run.lease import BEAT_SECONDS, holder, unfinished
from dist_bpe.storage.files import RunPath, parse_path, read_json, unsealed
from dist_bpe.storage.layout import COUNTS, MANIFEST, PLAN, VOCABULARIES

SUMS = ("documents", "bytes", "words")


@dataclass
class Driver:
    """Who works on the run, or did last.

    `state` is "works", "ended", "gone" (its process is), "silent", or "unknown" where the lease cannot be read.
    """

    host: str
    pid: int
    since: str | None
    state: str


@dataclass
class Status:
    """Where a run stands.

    Attributes:
        run: its folder.
        stage: "planned", "counting", "merging", "finished" or "empty".
        shards: how many are finished, and `of` how many there are; None where the plan is not known. A shard that was
            split is finished when all its pieces are; until then these are counted in `pieces`.
        counted: documents, bytes and words of finished shards and pieces.
        parts: of the table, finished and `of` how many.
        table: the finished table's sources, documents, bytes, words and unique words.
        vocabularies: tokens by name.
        driver: see `Driver`; None where nobody ever worked.
        damaged: a sentence for each file that should tell and cannot be read.
    """

    run: str
    stage: str = "empty"
    shards: dict[str, int | None] = field(default_factory=dict)
    counted: dict[str, int] = field(default_factory=dict)
    parts: dict[str, int | None] = field(default_factory=dict)
    table: dict[str, int] = field(default_factory=dict)
    vocabularies: dict[str, int] = field(default_factory=dict)
    driver: Driver | None = None
    damaged: list[str] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        """The status as plain values."""
        return asdict(self)

    def lines(self) -> Iterator[str]:
        """The status for people."""
        if self.stage in ("planned", "counting", "merging"):
            yield f"{self.run}: {self.stage}, {_of(self.shards)} shards, {human_bytes(self.counted['bytes'])} of text"
            if self.shards["pieces"]:
                yield f"pieces of split shards that are finished: {self.shards['pieces']:,}"
            if self.stage == "merging":
                yield f"parts: {_of(self.parts)}"
        else:
            yield f"{self.run}: {self.stage}"
        if self.table:
            yield (
                f"table: {several(self.table['documents'], 'document')} of {several(self.table['sources'], 'source')}, "
                f"{human_bytes(self.table['bytes'])}, {several(self.table['words'], 'word')}, "
                f"{several(self.table['unique_words'], 'row')} (one for each unique word of each source)"
            )
        for name, tokens in self.vocabularies.items():
            yield f"vocabulary {name}: {tokens:,} tokens"
        for text in self.damaged:
            yield f"warning: {text}"
        if self.driver and self.driver.state != "unknown":
            since = f" since {self.driver.since}" if self.driver.since and self.driver.state == "works" else ""
            says = {"silent": "gives no sign of life", "gone": "is gone and did not say that it ended"}
            state = says.get(self.driver.state, self.driver.state) + since
            yield f"driver: process {self.driver.pid} on {self.driver.host} {state}"


def _of(numbers: dict[str, int | None]) -> str:
    finished, of = numbers["finished"] or 0, numbers["of"]
    return f"{finished:,} of {of:,}" if of is not None else f"{finished:,}"


def status(run: str | RunPath) -> Status:
    """Look at a run folder; writes nothing. Waits some seconds for the heartbeat of a driver on another machine.

    Raises:
        RunError: no run was ever there.
        UsageError: the folder cannot be read.
    """
    run = parse_path(run)
    if not run.exists():
        raise RunError(f"there is no run folder {run}.")
    found = Status(str(run))
    found.driver = _driver(run, found)
    for _ in range(3):  # a takeover or the end of the run may move files under our eyes
        try:
            _staged(run, found)
            break
        except FileNotFoundError:
            time.sleep(1)
    manifest = run / COUNTS / MANIFEST
    if manifest.exists():
        with _damage(manifest, found):
            sources = CountTable.open(run).sources.values()
            table = {"sources": len(sources)}
            table |= {name: sum(getattr(source, name) for source in sources) for name in (*SUMS, "unique_words")}
            found.table = table
        if found.stage == "empty":
            found.stage = "finished" if found.table else "damaged"
    elif (run / COUNTS).exists() and found.stage == "empty":
        found.stage = "damaged"
        found.damaged.append(f"{run / COUNTS} has no {MANIFEST}: restore it, or count again with --overwrite.")
    if (run / VOCABULARIES).is_dir():
        folders: list[RunPath] = list((run / VOCABULARIES).iterdir())
        for folder in sorted(folders, key=lambda folder: folder.name):
            if not folder.name.startswith(".") and (folder / MANIFEST).exists():
                with _damage(folder / MANIFEST, found):
                    found.vocabularies[folder.name] = int(read_json(folder / MANIFEST)["sizes"]["total"])
    if found.stage == "empty" and not found.driver and not found.vocabularies and not found.damaged:
        raise RunError(f"{run} holds no run: it has neither a table nor the traces of a driver.")
    return found


@contextlib.contextmanager
def _damage(path: RunPath, found: Status) -> Iterator[None]:
    """Note that a file does not say what it should, and go on."""
    try:
        yield
    except FileNotFoundError:
        raise
    except DistBpeError as error:
        found.damaged.append(str(error))
    except OSError as error:
        found.damaged.append(f"{path} cannot be read: {error.strerror or error}.")
    except (TypeError, KeyError, ValueError, AttributeError, IndexError, OverflowError):
        found.damaged.append(f"{path} is damaged: it does not hold what a run writes there.")


def _staged(run: RunPath, found: Status) -> None:
    """What an unfinished run has staged, if there is one."""
    staging = unfinished(run)
    if staging is None:
        return
    found.stage, found.shards, found.counted = (
        "planned",
        {"finished": 0, "of": None, "pieces": 0},
        dict.fromkeys(SUMS, 0),
    )
    with _damage(staging, found):
        plan = unsealed(staging / PLAN)
        if plan is None and (staging / PLAN).exists():
            found.damaged.append(f"{staging / PLAN} is damaged: the same command begins this run anew.")
        plan = plan or {}
        with ThreadPoolExecutor(16) as pool:
            commits = [commit for commit in pool.map(unsealed, sorted(staging.glob("shard-*.json"))) if commit]
        whole = {commit["key"][0] for commit in commits if len(commit["key"]) == 1}
        pieces = [commit for commit in commits if len(commit["key"]) == 2 and commit["key"][0] not in whole]
        counted = [commit for commit in commits if len(commit["key"]) == 1] + pieces
        shards = plan.get("shards", {})
        found.shards = {"finished": len(whole), "of": shards.get("number"), "pieces": len(pieces)}
        found.counted = {name: sum(totals[name] for commit in counted for totals in commit["totals"]) for name in SUMS}
        parts = len(list(staging.glob("part-*.json")))
        found.parts = {"finished": parts, "of": plan.get("options", {}).get("partitions")}
        merging = parts or len(whole) == shards.get("number")
        found.stage = "merging" if merging else "counting" if commits else "planned"


def _driver(run: RunPath, found: Status) -> Driver | None:
    first = holder(run)
    if first is None:
        return None
    if first.damaged:
        found.damaged.append(f"{first.damaged}: who works there, if anybody does, is not known.")
        return Driver(first.host, first.pid, None, "unknown")
    state = "ended" if first.released else "works" if first.lives else "gone" if first.here else ""
    deadline = time.monotonic() + 2 * BEAT_SECONDS + 1
    while not state:
        now = holder(run)
        if now and now.beat != first.beat:
            first, state = now, "ended" if now.released else "works"
        elif time.monotonic() > deadline:
            state = "silent"
        else:
            time.sleep(0.5)
    return Driver(first.host, first.pid, first.since, state)
