"""Files that appear whole or not at all."""

import errno
import os
import pickle
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from conftest import SMALL
from helpers import hashes, quiet

import dist_bpe
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


@pytest.fixture
def fail(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[tuple[str, Path]]]:
    """Let steps to the disk fail: `times` of those of that name, of paths that `which` is true for. Gives all steps."""
    monkeypatch.setattr("dist_bpe.storage.files.FIRST_WAIT_SECONDS", 0.001)

    def start(
        step: str, number: int, times: int, which: Callable[[Path], bool] = lambda _: True
    ) -> list[tuple[str, Path]]:
        steps: list[tuple[str, Path]] = []
        left = times

        def inject(name: str, path: Path) -> None:
            nonlocal left
            steps.append((name, path))
            if name == step and left and which(path):
                left -= 1
                raise OSError(number, os.strerror(number))

        monkeypatch.setattr("dist_bpe.storage.files.inject", inject)
        return steps

    return start


Fail = Callable[..., list[tuple[str, Path]]]


@pytest.mark.parametrize("how", [files.write, files.create_if_absent, files.write_new])
def test_a_failed_flush_is_not_believed(fail: Fail, tmp_path: Path, how: Callable[[Path, bytes], object]) -> None:
    """The system has dropped what it could not write: the file is written anew, and each of its flushes is a first."""
    steps = fail("fsync", errno.EIO, 3, lambda path: path != tmp_path)
    assert how(tmp_path / "x", b"content") in (None, True)
    assert (tmp_path / "x").read_bytes() == b"content"
    assert names(tmp_path) == ["x"]
    flushed = [path for name, path in steps if name == "fsync" and path != tmp_path]
    created = [path for name, path in steps if name == "create"]
    assert flushed == created
    assert len(created) == 4
    assert len(set(created)) == (1 if how is files.write_new else 4)


def test_what_a_caller_has_written_is_for_the_caller_to_write_again(fail: Fail, tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"old")
    steps = fail("fsync", errno.EIO, 1)
    with pytest.raises(OSError, match="Input/output error"), files.publish(tmp_path / "x") as path:
        path.write_bytes(b"new")
    assert [name for name, _ in steps].count("fsync") == 1
    assert names(tmp_path) == ["x"]
    assert (tmp_path / "x").read_bytes() == b"old"


def test_a_run_goes_on_after_a_failed_flush(
    fail: Fail, source: dist_bpe.Source, clean: dict[str, str], tmp_path: Path
) -> None:
    """Of a spill and of a part: each attempt is repeated under names of its own."""
    for suffix in (".run", ".tmp"):
        steps = fail(
            "fsync", errno.EIO, 2, lambda path, suffix=suffix: path.suffix == suffix and "lease" not in path.parts
        )
        assert hashes(quiet(source, output=tmp_path / suffix[1:], **SMALL).folder) == clean
        flushed = [
            path for name, path in steps if name == "fsync" and path.is_file() is False and path.suffix == suffix
        ]
        assert len(set(flushed)) == len(flushed) > 2


def test_the_entries_of_a_folder_are_flushed_again(fail: Fail, tmp_path: Path) -> None:
    steps = fail("fsync", errno.EIO, 2, lambda path: path == tmp_path)
    files.write(tmp_path / "x", b"content")
    assert [path for name, path in steps if name == "fsync"][1:] == [tmp_path] * 3
    assert names(tmp_path) == ["x"]


@pytest.mark.parametrize("number", [errno.EACCES, errno.EROFS, errno.ENAMETOOLONG, errno.ENOTDIR, errno.ELOOP])
@pytest.mark.parametrize("step", ["create", "write", "fsync", "rename"])
def test_what_will_not_pass_is_said_at_once(
    fail: Fail, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, number: int
) -> None:
    monkeypatch.setattr("dist_bpe.storage.files.time.sleep", None)  # nothing is waited for
    fail(step, number, 1)
    with pytest.raises(errors.UsageError, match=rf"^\S+ cannot be written: {os.strerror(number)}\. [A-Z].*\.$"):
        files.write(tmp_path / "x", b"content")
    assert names(tmp_path) == []


def test_what_no_injection_is_needed_for(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()
    (tmp_path / "circle").symlink_to("circle")
    for name, why in (
        ("n" * 300, "File name too long. Choose a shorter name"),
        ("file/x", "Not a directory. Something on the way"),
        ("folder", "Is a directory. It is a folder"),
        ("circle/x", "Too many levels of symbolic links. Its links lead in a circle"),
    ):
        with pytest.raises(errors.UsageError, match=f"{why}.*: name another place|{why}"):
            files.write(tmp_path / name, b"content")
    for name in ("file", "file/x"):
        with pytest.raises(errors.UsageError, match=r"cannot be written: (it is a file|Not a directory)"):
            files.make_folder(tmp_path / name)
    assert sorted(names(tmp_path)) == ["circle", "file", "folder"]


@pytest.mark.parametrize("number", [errno.EIO, errno.EINTR, errno.ENOSPC, errno.EMFILE, errno.ESTALE])
@pytest.mark.parametrize("step", ["create", "write", "rename", "mkdir", "open", "read"])
def test_what_may_pass_is_waited_for(fail: Fail, tmp_path: Path, step: str, number: int) -> None:
    fail(step, number, 3)
    files.make_folder(tmp_path / "a" / "b", parents=True)
    files.write(tmp_path / "a" / "b" / "x", b"{}")
    assert files.read_json(tmp_path / "a" / "b" / "x") == {}
    with files.ranges(tmp_path / "a" / "b" / "x") as read:
        assert read(1, 1) == b"}"


def test_the_old_folder_comes_back_where_the_new_one_cannot_take_its_place(fail: Fail, tmp_path: Path) -> None:
    (tmp_path / "f").mkdir()
    (tmp_path / "f" / "old").touch()
    fail("rename", errno.EACCES, 1, lambda path: path.name == "f")
    with pytest.raises(errors.UsageError, match="f cannot be written"), files.publish_folder(tmp_path / "f") as folder:
        (folder / "new").touch()
    assert names(tmp_path) == ["f"]
    assert names(tmp_path / "f") == ["old"]


def test_names_that_no_file_can_have() -> None:
    for name in ("run\0", Path("a\0b"), "\ud800"):
        with pytest.raises(errors.UsageError, match="a character that no name can have"):
            files.parse_path(name)
    with pytest.raises(errors.UsageError, match="an empty path"):
        files.parse_path("")


def test_json_nested_by_the_thousand_is_damaged(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("[" * 100_000)
    with pytest.raises(errors.FormatError, match="x is damaged"):
        files.read_json(tmp_path / "x")
    assert files.unsealed(tmp_path / "x") is None


def test_half_of_a_file_is_known_by_its_name(fail: Fail, tmp_path: Path) -> None:
    steps = fail("none", 0, 0)
    files.write(tmp_path / "x", b"")
    files.create_if_absent(tmp_path / "y", b"")
    for name in {path.name for name, path in steps if name == "create"}:
        assert files.is_litter(name)
    for name in (".x.tmp", "x.tmp", f".{'0' * 31}.tmp", f"{'0' * 32}.tmp"):
        assert not files.is_litter(name)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("s3://KEY:SECRET@bucket/x?a=SECRET is odd", "s3://bucket/x is odd"),
        ("s3:/KEY:SECRET@bucket/x?a=SECRET is odd", "s3:/bucket/x is odd"),
        ("s3:/KEY:SEC/RET+A=@bucket/x", "s3:/bucket/x"),
        ("'s3://KEY:SEC/RET@bucket/x'", "'s3://bucket/x'"),
        ("http://localhost:9000/a@b", "http://localhost:9000/a@b"),
        ("/home/me@work/a:/b", "/home/me@work/a:/b"),
    ],
)
def test_secrets_are_left_out(text: str, shown: str) -> None:
    assert errors.without_secrets(text) == shown
    assert errors.printable(text) == shown


def test_what_acts_on_a_terminal_is_escaped() -> None:
    assert errors.printable("a\x1b[31mb\r\n\tc\x9b\x7f\u202e\u2028 é 世 🙂") == (
        r"a\x1b[31mb\r\n\tc\x9b\x7f\u202e\u2028 é 世 🙂"
    )
    assert errors.printable(os.fsdecode(b"n\xff")) == r"n\xff"
