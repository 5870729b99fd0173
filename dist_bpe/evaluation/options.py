"""The options of measuring and balancing."""

import math
from pathlib import Path
from typing import Literal

from dist_bpe import _core
from dist_bpe.errors import UsageError
from dist_bpe.options import Options, option


class MeasureOptions(Options):
    """How a vocabulary is measured."""

    reference: str | None = option(
        None, "The language that premiums compare with.", metavar="LANG", shown="English, if it is there"
    )
    segmenter: Literal["whitespace", "unicode"] = option(
        "whitespace", "What a word is for fertility: what white space parts, or a word of Unicode's rules (UAX 29)."
    )
    word_list: Path | None = option(
        None, "A file of words, one a line: how many of them are one token?", metavar="FILE"
    )
    pattern: str | None = option(
        None, "The pattern of a vocabulary whose files name none.", metavar="NAME|REGEX", choices=_core.PATTERNS
    )
    dimension: int = option(4096, "The width of the embeddings, for the size curve.", ge=1)

    def words(self) -> list[str]:
        """The words of `word_list`.

        Raises:
            UsageError: it cannot be read.
        """
        if self.word_list is None:
            return []
        try:
            return [word for word in self.word_list.read_text("utf-8").split("\n") if word]
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"{self.word_list} cannot be read as UTF-8 text: {error}.") from error


class BalanceOptions(Options):
    """How languages are brought to equal costs."""

    reference: str | None = option(
        None,
        "The language that premiums compare with.",
        metavar="LANG",
        shown="English with --dev, else the one that costs least",
    )
    targets: dict[str, float] = option(
        {},
        "Without --dev: a source's bytes per token in relation to others; * is for the rest.",
        flag="--target",
        metavar="NAME=R",
        repeated=True,
    )
    beta: float = option(math.inf, "The dial: 0 is equal documents, inf equal costs.", ge=0)
    rounds: int | None = option(None, "The number of trainings at most.", shown="8, for a search 24", ge=1)
    tolerance: float = option(0.001, "The Gini to stop at.", ge=0)
    caps: dict[str, float] = option(
        {},
        "A source's most weight, over that of equal documents; * is for the rest.",
        flag="--cap",
        metavar="NAME=X",
        repeated=True,
    )
    floors: dict[str, float] = option(
        {}, "A source's least weight, likewise.", flag="--floor", metavar="NAME=X", repeated=True
    )
    frontier: bool = option(False, "Mixtures from natural to balanced are trained, too, to show what evenness costs.")
    search: bool = option(False, "The mixture with the lowest cost of the worst language is searched for.")
    premium: float | None = option(
        None, "The mixture with most bytes per token and no premium above this is searched for.", gt=0
    )
