"""Errors in IPython and Jupyter: one sentence, and where it was raised for who asks."""

import contextlib
import io
import pickle
import re
from pathlib import Path

import pytest

import dist_bpe
from dist_bpe.errors import DistBpeError, UsageError


def test_the_hook_gives_a_sentence_and_then_everything() -> None:
    try:
        dist_bpe.learn({"a": 3}, 300, min_pair_count=0)
    except DistBpeError as error:
        caught = error
    sentence = "UsageError: min_pair_count: it should be greater than or equal to 1, not 0."
    assert caught._render_traceback_() == [sentence, "(%tb shows where it was raised)"]
    whole = caught._render_traceback_()
    assert whole == caught._render_traceback_()
    assert whole[0] == "Traceback (most recent call last):"
    assert any("in learn" in line for line in whole)
    assert whole[-1] == f"dist_bpe.errors.{sentence}"
    assert str(pickle.loads(pickle.dumps(caught))) == str(caught)  # noqa: S301  # our own
    # A message may quote names of files and columns: nothing of them acts on a terminal, and no line is broken.
    assert UsageError("a\x1b[31mb\nc\u202e")._render_traceback_()[0] == r"UsageError: a\x1b[31mb\nc\u202e"


def test_ipython_shows_a_sentence_and_tb_the_rest(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("IPython")
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    monkeypatch.setenv("NO_COLOR", "1")
    from IPython.core.completer import provisionalcompleter
    from IPython.core.interactiveshell import InteractiveShell

    shell = InteractiveShell()

    def shown(cell: str) -> str:
        output = io.StringIO()
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
            shell.run_cell(cell)
        return re.sub(r"\x1b\[[0-9;]*m", "", output.getvalue()).strip()

    try:
        shell.run_cell("import dist_bpe")
        assert shown("dist_bpe.CountTable.open('nowhere')").splitlines() == [
            "RunError: nowhere holds no finished count table; make one with `dist-bpe count INPUT… -o nowhere`.",
            "(%tb shows where it was raised)",
        ]
        assert re.search(r"Traceback(.|\n)*in open(.|\n)*RunError: nowhere holds", shown("%tb"))
        # Others stand as ever, and so does one of ours in a chain that somebody else raises.
        assert "ZeroDivisionError" in shown("1 / 0")
        assert "Traceback" in shown("1 / 0")
        assert shown("dist_bpe.Mixture(alpha=0.3)").endswith("Mixture(alpha=0.3)")
        with provisionalcompleter():
            offered = {found.text for found in shell.Completer.completions("dist_bpe.", 9)}
        assert set(dist_bpe.__all__) <= {name.removeprefix(".") for name in offered}
    finally:
        shell.history_manager.end_session()
        InteractiveShell.clear_instance()
