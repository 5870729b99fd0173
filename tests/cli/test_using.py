"""export, encode, decode as processes: what they print, and one sentence for what cannot be read or written."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from vocabularies import CUSTOM, learned

from dist_bpe.pretokenize.preparation import SpecialToken
from dist_bpe.vocabulary.vocabulary import Vocabulary

VOCABULARY = Vocabulary(learned(merges=60, special_tokens=[SpecialToken("<|endoftext|>", "eos")]))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("using") / "v"
    VOCABULARY.save(path)
    return path


def run(*arguments: object, stdin: bytes = b"", stdout: Path | None = None) -> "subprocess.CompletedProcess[bytes]":
    command = [sys.executable, "-m", "dist_bpe", *map(os.fsencode, map(str, arguments))]
    out = subprocess.PIPE if stdout is None else os.open(stdout, os.O_WRONLY)
    ran = subprocess.run(command, input=stdin, stdout=out, stderr=subprocess.PIPE, check=False)
    assert b"Traceback" not in ran.stderr, ran.stderr
    return ran


def test_special_text_is_refused_allowed_or_ordinary(folder: Path) -> None:
    text = b"a\nb<|endoftext|>c"
    refused = run("encode", folder, stdin=text)
    assert refused.returncode == 2
    sentence = refused.stderr.decode()
    assert "standard input holds the special token '<|endoftext|>' at character 3: give --allow-special" in sentence
    assert "--ordinary" in sentence
    assert "allowed_special" not in sentence
    assert "line 2 of standard input holds" in run("encode", folder, "--lines", stdin=text).stderr.decode()
    for flag, allowed in (("--allow-special", "all"), ("--ordinary", ())):
        ids = VOCABULARY.encode(text.decode(), allowed_special=allowed, disallowed_special=())  # type: ignore[arg-type]
        assert list(map(int, run("encode", folder, flag, stdin=text).stdout.split())) == ids
    both = run("encode", folder, "--ordinary", "--allow-special", stdin=text)
    assert (both.returncode, b"exclude each other" in both.stderr) == (2, True)


def test_pieces_show_ids_and_the_bytes_of_partial_characters(folder: Path) -> None:
    text = "the \u20ac 'x'"
    ids = VOCABULARY.encode(text)
    shown = run("encode", folder, "--pieces", stdin=text.encode()).stdout.decode().rstrip("\n")
    assert shown == " ".join(f"{i}:{VOCABULARY.piece(i)!r}" for i in ids)
    assert "b'\\xe2" in shown or "b' \\xe2" in shown


def test_ctrl_c_while_the_command_line_is_loaded() -> None:
    script = """
import signal, sys
class Press:
    def find_spec(self, name, *more):
        if name == "dist_bpe.cli.training":
            signal.raise_signal(signal.SIGINT)
sys.meta_path.insert(0, Press())
signal.signal(signal.SIGINT, signal.default_int_handler)
from dist_bpe.__main__ import main
main()
"""
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, check=False)
    assert (ran.returncode, ran.stderr) == (130, b"interrupted.\n")


def test_the_collector_works_while_a_command_does() -> None:
    script = """
import gc, sys
from dist_bpe.__main__ import main
sys.argv = ["dist-bpe", "--help"]
try:
    main()
finally:
    print(gc.isenabled(), gc.get_freeze_count() > 10_000)
"""
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert ran.stdout.splitlines()[-1] == "True True"


def test_ids_that_are_none(folder: Path) -> None:
    for bad in (b"-1", b"1.5", b"\xff", "\u0661".encode(), b"9" * 5000, b"x" * 100, b"317", b"1 2 three"):
        ran = run("decode", folder, stdin=bad)
        assert ran.returncode == 2
        assert b"ids go from 0 to 316" in ran.stderr
        assert len(ran.stderr) < 200
    # What acts on a terminal is escaped, and once.
    for bad, shown in ((b"a\x1b[31m", rb"'a\x1b[31m'"), (b"a\xff", rb"'a\xff'")):
        assert shown + b" on standard input is no id" in run("decode", folder, stdin=bad).stderr
    assert run("decode", folder, stdin=b" \n0\t1\n").stdout == b'!"'


def test_a_full_disk_for_the_output(folder: Path, tmp_path: Path) -> None:
    for command, stdin in (
        (("encode",), b"text " * 9),
        (("encode", "--lines"), b"x\n" * 99_999),
        (("decode",), b"1 " * 9),
    ):
        ran = run(command[0], folder, *command[1:], stdin=stdin, stdout=Path("/dev/full"))
        assert ran.returncode == 2
        assert ran.stderr == b"error: standard output cannot be written: No space left on device.\n"
    ran = run("export", folder, "-o", tmp_path / "x", "--no-verify", stdout=Path("/dev/full"))
    assert ran.stderr == b"error: standard output cannot be written: No space left on device.\n"


def test_inputs_and_outputs_that_cannot_be(folder: Path, tmp_path: Path) -> None:
    for command in ("encode", "decode"):
        ran = run(command, tmp_path / ("x" * 5000), stdin=b"")
        assert (ran.returncode, ran.stderr.count(b"\n")) == (2, 1)
    (tmp_path / "file").touch()
    for output in (tmp_path / "file" / "x", tmp_path / ("y" * 300), Path("/proc/nothing/here")):
        ran = run("export", folder, "-o", output, "--no-verify")
        assert ran.returncode in (2, 6), ran.stderr
        assert ran.stderr.startswith(b"error: "), ran.stderr
        assert ran.stderr.count(b"\n") == 1, ran.stderr


def test_names_that_are_not_utf8(folder: Path, tmp_path: Path) -> None:
    output = os.fsencode(tmp_path) + b"/\xffv"
    ran = run("export", folder, "-o", os.fsdecode(output), "--no-verify")
    assert ran.returncode == 0, ran.stderr
    assert b"files: " + output in ran.stdout
    assert run("encode", os.fsdecode(output), stdin=b"the").stdout.split()
    assert b"\\xff" in run("encode", os.fsdecode(output + b"x"), stdin=b"").stderr


def test_decode_and_encode_end_as_they_should(folder: Path) -> None:
    # A thread of a pool that was still there aborted 5 to 13 of 100 processes.
    for number in range(12):
        assert run("decode", folder, stdin=b"1 2 3").returncode == 0, number
        assert run("encode", folder, stdin=b"a b c").returncode == 0, number


def test_reading_a_vocabulary_starts_no_thread(folder: Path) -> None:
    code = (
        "import sys, pyarrow.parquet\n"
        "from pathlib import Path\n"
        "from dist_bpe.vocabulary.vocabulary import Vocabulary\n"
        "import dist_bpe.vocabulary.formats.parquet\n"
        "threads = lambda: len(list(Path('/proc/self/task').iterdir()))\n"
        "before = threads()\n"
        "Vocabulary.load(sys.argv[1]).encode('the')\n"
        "print(threads() - before)"
    )
    ran = subprocess.run([sys.executable, "-c", code, folder], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "0"


def test_pandas_stays_out(folder: Path, tmp_path: Path) -> None:
    pytest.importorskip("pandas")
    code = (
        "import sys\n"
        "from dist_bpe.vocabulary.vocabulary import Vocabulary\n"
        "from dist_bpe.vocabulary.export import export\n"
        "from dist_bpe.evaluation.tokenizers import open_tokenizer\n"
        "for v in map(Vocabulary.load, sys.argv[1:3]):\n"
        "    v.encode('the cat'), v.encode_batch(['a', 'b c'], allowed_special='all'), v.tokenize('x')\n"
        "    v.decode(v.encode_ordinary('the')), v.cut(len(v) - 3), v.data.padded(64), v.merges\n"
        "    export(v, sys.argv[3], overwrite=True)\n"
        "    [Vocabulary.load(f'{sys.argv[3]}/{name}', v.pattern.regex)\n"
        "     for name in ('merges.parquet', 'tokenizer.json', 'vocab.json', 'vocab.tiktoken')]\n"
        "    open_tokenizer(sys.argv[3]).encode(['the', 'cat'])\n"
        "print('pandas' in sys.modules)"
    )
    Vocabulary(learned(merges=9, pattern=CUSTOM)).save(tmp_path / "custom")
    ran = subprocess.run(
        [sys.executable, "-c", code, folder, tmp_path / "custom", tmp_path / "v"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.stdout.strip() == "False", ran.stderr
