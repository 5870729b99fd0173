"""The options that decide the vocabulary."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, ByteSize, PlainSerializer, WithJsonSchema

from dist_bpe import _core
from dist_bpe.errors import UsageError, several
from dist_bpe.learning.mixture import Mixture
from dist_bpe.options import MOST, Options, both, option
from dist_bpe.pretokenize.preparation import SpecialToken


def vocab_sizes(value: Any) -> Any:
    """Sizes from one number, a list of them, or `8000,16000,32000`: each once, the smallest first."""
    if isinstance(value, str):
        if not all(size.strip().isascii() and size.strip().isdigit() for size in value.split(",")):
            raise ValueError("whole numbers are needed, with commas between them")
        value = [int(size) for size in value.split(",")]
    if isinstance(value, int) and not isinstance(value, bool):
        value = [value]
    if not isinstance(value, (list, tuple)) or not value or not all(type(x) is int and 0 < x < 1 << 31 for x in value):
        raise ValueError("whole numbers from 1 to 2,147,483,647 are needed")
    return tuple(sorted(set(value)))


VocabSizes = Annotated[
    tuple[int, ...],
    BeforeValidator(vocab_sizes),
    # One size is written as the number it is.
    WithJsonSchema({"anyOf": [{"type": "integer", "minimum": 1}, {"type": "array", "items": {"type": "integer"}}]}),
    PlainSerializer(lambda sizes: sizes[0] if len(sizes) == 1 else list(sizes)),
]


class LearnOptions(Options):
    """What decides the vocabulary."""

    vocab_size: VocabSizes = option(
        help="The number of all tokens: 256 bytes, merges and special tokens. Several sizes make several vocabularies "
        "from one training to the largest, since merges are nested.",
        metavar="N[,N…]",
    )
    mixture: Mixture = option(
        help="How much each source counts; in a file it may stand as a table of its own, [mixture].",
        cli=False,
        default_factory=Mixture,
    )
    parity: Literal["dev", "ratio", "window", "hybrid"] | None = option(
        None,
        "Instead of a mixture, parity-aware merges on a parallel development set: dev (the language whose text takes "
        "most tokens chooses the next merge), ratio (the one whose training text is compressed least, against the "
        "lengths of parallel text), window (dev, but none chooses too often in a row), hybrid (dev after half the "
        "merges).",
    )
    min_pair_count: int = option(2, "The least count of a pair that is merged, in raw counts.", ge=1, le=MOST)
    min_word_count: int = option(1, "Rarer words take no part in learning.", ge=1, le=MOST)
    max_token_bytes: int | None = option(
        None, "No token is longer than this, in bytes.", example=32, ge=2, le=(1 << 32) - 1
    )
    strict: bool = option(
        False, "A vocabulary that cannot have the size asked for is an error; otherwise a warning says how many it has."
    )
    special_tokens_first: bool = option(False, "Special tokens take the ids from 0 on instead of the last ones.")
    pad_to_multiple: int | None = option(
        None,
        "Reserved tokens are added until the size is a multiple of this.",
        metavar="N",
        example=64,
        ge=1,
        le=1 << 20,
    )
    driver_memory: ByteSize | None = option(
        None,
        "The memory for learning, such as 16GB; a table that needs more is refused.",
        metavar="SIZE",
        example="16GB",
        shown="what is free",
        ge=1,
    )

    def merges(self, special_tokens: Sequence[SpecialToken]) -> int:
        """How many merges fill the largest vocabulary.

        Raises:
            UsageError: the bytes and special tokens alone are more than the smallest.
        """
        least = _core.BYTES + len(special_tokens)
        if self.vocab_size[0] < least:
            tokens = several(len(special_tokens), "special token")
            raise UsageError(
                f"{both(LearnOptions, 'vocab_size')} is too small with {self.vocab_size[0]:,}: {_core.BYTES} bytes and "
                f"{tokens} alone take {least:,}. Ask for {least:,} or more."
            )
        return self.largest - least

    @property
    def largest(self) -> int:
        """The largest vocabulary asked for."""
        return self.vocab_size[-1]
