"""What a worker does: merges of more runs than may be open at once."""

from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
import pytest
from conftest import Writer
from helpers import hashes, quiet

import dist_bpe
from dist_bpe.arrays import of_bytes
from dist_bpe.counting import tasks
from dist_bpe.counting.spills import SPILL_SCHEMA, SpillSlice, write_spill
from dist_bpe.errors import DataError
from dist_bpe.pretokenize.checks import slow_text
from dist_bpe.pretokenize.patterns import find
from dist_bpe.storage.files import RunPath


def spills(folder: Path, number: int) -> tuple[SpillSlice, ...]:
    """Runs of one partition, each with words of its own and one that all have, and of different sizes."""
    folder.mkdir()
    made = []
    for i in range(number):
        words = sorted([b"all", *(b"%d %d" % (i, j) for j in range(i % 7))])
        columns = [of_bytes(words), pa.array([0] * len(words), pa.uint32()), pa.array([1] * len(words), pa.uint64())]
        path = folder / f"{i}.run"
        frames = write_spill(path, [(0, pa.record_batch(columns, schema=SPILL_SCHEMA))])["0"]
        made.append(SpillSlice(path, path, tuple(map(tuple, frames)), (0,)))
    return tuple(made)


@pytest.mark.parametrize(
    ("number", "fan_in", "rewritten"),
    # Of 65 runs, two become one; of 128, another 64 do; a fan-in of two writes all but two words anew each time.
    [(64, 64, 0), (65, 64, 2), (66, 64, 3), (127, 64, 64), (128, 64, 66), (5, 2, 6), (9, 3, 9)],
)
def test_a_merge_rewrites_as_few_runs_as_it_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, fan_in: int, rewritten: int
) -> None:
    opened: list[int] = []
    read = tasks.read_slice

    def counting(path: RunPath, batches: Iterable[tuple[int, pa.RecordBatch]]) -> object:
        found = write_spill(path, batches)
        opened.append(0)
        return found

    def reading(run: SpillSlice, pool: object) -> object:
        opened[-1] += 1
        return read(run, pool)  # type: ignore[arg-type]

    runs = spills(tmp_path / "runs", number)
    made = []
    for name, most in (("whole", 1000), ("levels", fan_in)):
        (tmp_path / name).mkdir()
        opened[:] = [0]
        with monkeypatch.context() as patch:
            patch.setattr("dist_bpe.counting.tasks.write_spill", counting)
            patch.setattr("dist_bpe.counting.tasks.read_slice", reading)
            tasks.merge_part(tasks.MergeTask(0, runs, ("s",), 1, tmp_path / name, most))
        made.append({file: sha for file, sha in hashes(tmp_path / name).items() if file.endswith(".parquet")})
        assert sorted(path.suffix for path in (tmp_path / name).iterdir()) == [".json", ".parquet"]
    assert made[0] == made[1]
    *levels, last = opened
    assert sum(levels) == rewritten
    assert last == min(fan_in, number)
    assert max(opened) <= fan_in


def test_a_pattern_that_tries_without_end_names_the_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: Writer
) -> None:
    monkeypatch.setattr("dist_bpe.pretokenize.patterns.seconds_for", lambda _: 0.2)
    for module in ("run.count", "counting.tasks", "counting.table"):
        monkeypatch.setattr(f"dist_bpe.{module}.resolve", find)  # the probes at the start would tell it, too
    pattern = r"(a|aa)+$|[\s\S]"
    write("a.parquet", ["fine", slow_text(find(pattern))])
    source = dist_bpe.Source("s", str(tmp_path / "a.parquet"))
    with pytest.raises(
        DataError, match=r"a\.parquet.*, in the texts from place 0 on: the pattern .*took more than 0.2 s"
    ):
        quiet(source, output=tmp_path / "run", pattern=pattern)
