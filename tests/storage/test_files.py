"""Files that appear whole or not at all."""

import pickle
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from dist_bpe import errors
from dist_bpe.storage import files


def names(folder: Path) -> list[str]:
    return [file.name for file in folder.iterdir()]


def test_a_failed_write_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "kept").write_text("old")
    with pytest.raises(RuntimeError), files.publish(tmp_path / "kept") as path:
        path.write_text("half")
        raise RuntimeError
    assert [file.name for file in tmp_path.iterdir()] == ["kept"]
    assert (tmp_path / "kept").read_text() == "old"


def test_a_folder_takes_the_place_of_the_old_one(tmp_path: Path) -> None:
    for content in ("1", "2"):
        with files.publish_folder(tmp_path / "f") as folder:
            (folder / content).write_text(content)
    assert names(tmp_path) == ["f"]
    assert names(tmp_path / "f") == ["2"]
    with pytest.raises(RuntimeError), files.publish_folder(tmp_path / "f") as folder:
        (folder / "3").write_text("3")
        raise RuntimeError
    assert names(tmp_path / "f") == ["2"]


def test_one_of_many_writers_wins(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        won = list(pool.map(lambda i: files.create_if_absent(tmp_path / "x", b"%d" % i), range(64)))
    assert sum(won) == 1
    assert (tmp_path / "x").read_bytes() == b"%d" % won.index(True)
    assert names(tmp_path) == ["x"]


def test_every_error_pickles_and_has_its_own_exit_code() -> None:
    values = vars(errors).values()
    kinds = [value for value in values if isinstance(value, type) and issubclass(value, errors.DistBpeError)]
    for kind in kinds:
        copy = pickle.loads(pickle.dumps(kind("what happened")))  # noqa: S301  # our own bytes
        assert (type(copy), str(copy)) == (kind, "what happened")
    codes = [kind.exit_code for kind in kinds if "exit_code" in vars(kind)]
    assert len(set(codes)) == len(codes)
    assert 0 not in codes
