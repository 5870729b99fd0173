"""What the benchmarks claim beside figures: that trainers found the same merges."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "benchmarks"))

from contestants import CHECKPOINT, byte_level, equal_merges, merges_of, spelled


@pytest.mark.parametrize(
    ("changed", "length", "common"),
    [
        (None, 1300, 1300),  # equal lists
        (None, 1700, 1000),  # one goes on: whole steps are compared
        (None, 700, 500),
        (1299, 1300, 1000),  # the last merge of all
        (1000, 1300, 1000),
        (999, 1300, 500),
        (0, 1300, 0),
    ],
)
def test_equal_merges(changed: int | None, length: int, common: int) -> None:
    assert CHECKPOINT == 500
    pairs = [(b"a", b"%d" % i) for i in range(2000)]
    ours, theirs = pairs[:1300], pairs[:length]
    if changed is not None:
        theirs[changed] = (b"a0", theirs[changed][1])
    assert equal_merges(merges_of(ours), merges_of(theirs)) == common
    assert equal_merges(merges_of(ours), {}) is None


def test_tokens_are_spelled_as_in_files_of_gpt2() -> None:
    every = bytes(range(256))
    assert byte_level(spelled(every)) == every
    assert spelled(b" a\n") == "ĠaĊ"
