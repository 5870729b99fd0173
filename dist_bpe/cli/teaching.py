"""A command that teaches: lesson."""

from pathlib import Path
from typing import Annotated, Any

import typer

from dist_bpe.cli.app import command
from dist_bpe.cli.options import Given, Json, with_options
from dist_bpe.cli.show import print_json, show_lesson
from dist_bpe.errors import UsageError, several
from dist_bpe.learning import textbook
from dist_bpe.learning.textbook import LessonOptions

DEFAULT_MERGES = 10
# Every step counts all pairs from scratch.
MOST_BYTES = 1 << 20


@command
@with_options
def lesson(
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE|WORD:COUNT…",
            help="Words with their counts, as in low:5 lower:2, or files of text whose words, parted by white space, "
            "are counted.",
        ),
    ],
    pairs: Annotated[int, typer.Option(metavar="N", min=1, help="How many pairs to show at each step.")] = 5,
    json: Json = False,
    *,
    options: Given[LessonOptions],
) -> None:
    """Show byte-pair encoding step by step on a few words.

    At each step: every pair's count, the pair that is merged and why, and the words after it.
    """
    chosen = options.build()
    asked = chosen.model_dump()
    if chosen.num_merges is None and chosen.vocab_size is None:
        asked["num_merges"] = DEFAULT_MERGES
    counted = _counted(words)
    model: textbook.ReferenceModel[Any] = textbook.learn(counted, **asked)
    if json:
        steps = [
            {
                "pair": list(map(textbook.shown, step.pair)),
                "count": count,
                "equals": [list(map(textbook.shown, pair)) for pair in step.equals],
                "pairs": [[*map(textbook.shown, pair), number] for pair, number in step.pairs.items()],
                "words": [[list(map(textbook.shown, split)), number] for split, number in step.words],
            }
            for step, count in zip(model.steps, model.counts, strict=True)
        ]
        print_json({"words": counted, "vocabulary": list(map(textbook.shown, model.vocabulary)), "steps": steps})
        return
    show_lesson(model, chosen, pairs)
    wanted = asked["num_merges"] if chosen.vocab_size is None else chosen.vocab_size - len(model.base)
    if len(model.merges) < wanted:
        print(f"No other pair can be merged: {several(len(model.merges), 'merge')} of {wanted:,}.")


def _counted(given: list[str]) -> dict[str, int]:
    """The words with their counts, in the order in which they are met."""
    counts: dict[str, int] = {}
    for each in given:
        word, colon, number = each.rpartition(":")
        if Path(each).is_file():
            for found in _text(Path(each)).split():
                counts[found] = counts.get(found, 0) + 1
        elif word and colon and number.isascii() and number.isdigit():
            counts[word] = counts.get(word, 0) + int(number)
        else:
            raise UsageError(f"{each!r} is no file, and no word with its count: write {word or each or 'low'}:5.")
    return counts


def _text(path: Path) -> str:
    size = path.stat().st_size
    if size > MOST_BYTES:
        raise UsageError(
            f"{path} has {size:,} bytes, and a lesson takes {MOST_BYTES:,} at most: give it some words, or train."
        )
    try:
        return path.read_text("utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not UTF-8 from byte {error.start:,} on.") from None
