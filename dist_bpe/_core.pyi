"""The native core. Arrow arrays and batches cross the border; Python objects for single words do only in test helpers.

Arrays may be pyarrow's or any other that speak the Arrow C data interface. The interpreter lock is released while the
core works; texts of less than 4 KiB are cut, normalised and checked without that, since it would take longer. Numbers
are unsigned: ids 32 bits, counts 64 bits and checked.

Everywhere: what Ctrl-C raises ends a call within a second. `ValueError` is raised for arguments that do not fit one
another, such as a source that is not there or lists of unequal length.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypedDict, final

__all__ = [
    "BYTES",
    "NORMALIZATIONS",
    "NORMALIZATION_TABLES",
    "PATTERNS",
    "UNICODE_TABLES",
    "Counter",
    "Encoder",
    "InvalidUtf8Error",
    "Merger",
    "Spill",
    "Table",
    "Tokenized",
    "Words",
    "byte_ids",
    "cut",
    "first_invalid_utf8",
    "learn_merges",
    "learn_parity",
    "learn_tokenized",
    "levels",
    "normalize",
    "partition_of",
    "replay",
    "words",
]

BYTES: int
"""Number of ids that stand for single bytes, before those of the merges: 256."""
UNICODE_TABLES: str
"""Version of the `regex` module whose Unicode tables the scanners use."""
NORMALIZATION_TABLES: str
"""Version of Unicode that `normalize` has; the same as of `UNICODE_TABLES`."""
NORMALIZATIONS: list[str]
"""Names of the normalisation forms."""
PATTERNS: list[str]
"""Names of the patterns that have a native scanner."""

class InvalidUtf8Error(ValueError):
    """A text is not UTF-8. `args` are (index in the array, offset of the first bad byte)."""

class _Totals(TypedDict):
    documents: int
    bytes: int
    words: int
    special_tokens: int
    cut_words: int
    longest_word_bytes: int
    digest: str

class _Tally(TypedDict):
    unique_words: int
    words: int
    dropped_unique_words: int
    dropped_words: int
    mark_words: int

@final
class Counter:
    """Word tables of `sources` sources, numbered from 0, filled from arrays of documents.

    Special tokens are cut out of a text leftmost-longest before `pattern`, the name of a native one, runs. With
    pattern None `count` notes documents only, and the words come by `add_words`. `level` picks a scanner by hand.
    `normalization` brings the text between special tokens into that form before the pattern runs (words that are added
    are taken as they come). Words of more than `max_word_bytes` are counted in pieces, cut between characters.

    Raises `UsageError` for an unknown pattern, level or form, an empty special token or one given twice.
    """

    def __new__(
        cls,
        sources: int,
        pattern: str | None,
        special_tokens: Sequence[str],
        level: str | None = None,
        normalization: str | None = None,
        max_word_bytes: int | None = None,
    ) -> Counter: ...
    def count(self, source: int, texts: Any) -> None:
        """Count every text of a string or binary array (large or not); nulls are passed over.

        Raises `InvalidUtf8Error`; the texts before the bad one are counted then. Raises `CountOverflowError` for a word
        of 2 GiB or more, unless `max_word_bytes` cuts it, and past 2^64 - 1 words of one source.
        """
    def add_words(self, source: int, words: Any, counts: Any) -> None:
        """Add words (string or binary array) and their counts (uint64, of the same length).

        Raises `CountOverflowError` past 2^64 - 1, naming the word.
        """
    def totals(self, source: int) -> _Totals:
        """Documents, bytes of UTF-8, words, special tokens cut out, words cut, longest word in bytes, and the digest.

        The digest is the sum modulo 2^128 of XXH3-128 of every document, in hexadecimal: independent of their order.
        """
    @property
    def memory_bytes(self) -> int:
        """Bytes the tables hold now; `drain` takes about as much again while it sorts."""
    @property
    def unique_words(self) -> int:
        """Words in the tables now, summed over the sources."""
    def drain(self, partitions: int) -> Spill:
        """Empty the tables (the totals stay) into a spill sorted by (partition, word, source)."""

@final
class Spill:
    """Iterator of (partition, batch); a batch has word: binary, source: uint32, count: uint64, of one partition."""

    def __iter__(self) -> Iterator[tuple[int, Any]]: ...
    def __next__(self) -> tuple[int, Any]: ...

@final
class Merger:
    """Iterator over the merge of spills, each an iterable of batches sorted by (word, source).

    Holds one batch a spill. Words with fewer than `min_word_count` occurrences, over all sources, are left out and
    tallied. Raises `CountOverflowError` when a sum passes 2^64 - 1, and `DamagedRunError` for a spill that is not
    sorted or has a source that is not there.
    """

    def __new__(cls, spills: Sequence[Iterable[Any]], sources: int, min_word_count: int) -> Merger: ...
    def __iter__(self) -> Iterator[Any]: ...
    def __next__(self) -> Any: ...
    def tallies(self) -> list[_Tally]:
        """Per source, what was kept and what was left out so far."""

@final
class Words:
    """Unique words with weighted counts, ready to learn from.

    `batches` hold rows (word, source, count) with the rows of one word adjacent. A word's weighted count is the sum of
    weights[source] * count; `min_word_count` compares the plain sum. Raises `CountOverflowError`, and `FormatError` for
    a source that has no weight.
    """

    def __new__(cls, batches: Iterable[Any], weights: Sequence[int], min_word_count: int) -> Words: ...
    def __len__(self) -> int: ...
    @property
    def learn_bytes(self) -> int:
        """Estimate of the memory `learn_merges` will take on top, in bytes."""

@final
class Table:
    """A count table in memory, for many trainings from it: unique words with their count in each of `sources` sources.

    `batches` hold rows (word, source, count) with the rows of one word adjacent. Takes the bytes of the words, 16
    bytes a word and 12 a row. `len` is the number of unique words. Raises `CountOverflowError` when the counts of a
    word in one source pass 2^64 - 1, and `FormatError` for a source that is not there.
    """

    def __new__(cls, batches: Iterable[Any], sources: int) -> Table: ...
    def __len__(self) -> int: ...
    @property
    def memory_bytes(self) -> int:
        """Bytes the table holds."""
    def words(self, weights: Sequence[int], min_word_count: int = 1, jitter: bool = False) -> Words:
        """The words under one weight a source, as `Words` makes them from a stream.

        With `jitter` each word's weighted count is multiplied by 900 + XXH3-64(word) % 201 (seed 0), which is 900 to
        1100: 1 plus or minus a tenth, all counts being in thousandths, so that a minimum pair count wants a factor of
        1000 too. Raises `CountOverflowError`.
        """
    def replay(self, left: Any, right: Any) -> tuple[list[Any], list[Any]]:
        """What `replay` gives for all rows of the table; each word is encoded once, whatever its number of sources.

        The sum of a source's second array is its number of tokens. Raises `CountOverflowError`.
        """

@final
class Encoder:
    """Exact encoding by rank: the lowest-ranked pair of a word is merged first, leftmost first, until none is left.

    Ids are `first_id` + the byte's place in GPT-2's order, then `first_id` + 256 + rank; `special_ids` are taken as
    they are. Words and their ids are cached within a bound. With pattern None only the `encode_word*` methods serve;
    these take words as they come, whereas texts are brought into the form of `normalization` first.

    Raises `ValueError` for merges that cannot be, for ids past 32 bits, and for words of 4 GiB or more.
    """

    def __new__(
        cls,
        left: Any,
        right: Any,
        pattern: str | None,
        special_tokens: Sequence[str],
        special_ids: Sequence[int],
        first_id: int,
        normalization: str | None = None,
    ) -> Encoder: ...
    def encode_ordinary(self, text: str) -> list[int]:
        """Ids of a text; special-token text is ordinary text."""
    def encode(self, text: str) -> list[int]:
        """Ids of a text; special-token text becomes its id."""
    def encode_batch(self, texts: Any, specials: bool = True) -> tuple[Any, Any]:
        """Ids of a string array as (uint32 array, int64 offsets with one more entry than texts); a null has none."""
    def encode_word(self, word: bytes) -> list[int]:
        """Ids of one word; no pattern runs."""
    def encode_words(self, words: Any) -> tuple[Any, Any]:
        """Ids of a binary array of words as (uint32 array, int64 offsets); a null has none."""

def learn_merges(
    words: Words,
    merges: int,
    min_pair_count: int = 2,
    max_token_bytes: int | None = None,
    progress: Callable[[int], None] | None = None,
    plain: bool = False,
) -> Any:
    """Learn up to `merges` merges: a record batch of left, right (uint32 ids) and count (uint64), one row a rank.

    The pair with the highest weighted count is next, among equals the one with the smallest (left id, right id). Stops
    early when no pair reaches `min_pair_count`. `progress` gets the number of merges done a few times a second; what it
    raises, and Ctrl-C, ends the call at once. `plain` runs the slow twin.

    Raises `CountOverflowError` when the weighted count of a pair of bytes passes 2^64 - 1, and `FormatError` for a word
    that was in two places of the table.
    """

@final
class Tokenized:
    """The words that merges were learned from, as the tokens that the merges make of them; see `learn_tokenized`."""

    def replay(self, batches: Iterable[Any], sources: int) -> tuple[list[Any], list[Any]]:
        """What `replay` gives, in a tenth of its time, for the rows of the table that was learned from.

        Words that took no part in learning, and any in another order, are encoded. Raises as `replay`.
        """
    @property
    def memory_bytes(self) -> int:
        """What this takes, in bytes."""

def learn_tokenized(
    words: Words,
    merges: int,
    min_pair_count: int = 2,
    max_token_bytes: int | None = None,
    progress: Callable[[int], None] | None = None,
) -> tuple[Any, Tokenized]:
    """What `learn_merges` gives, and its words as tokens, which it had at hand; raises as `learn_merges`."""

def learn_parity(
    table: Table,
    merges: int,
    *,
    dev: Table | None = None,
    ratios: Sequence[int] | None = None,
    window: int = 0,
    alpha: tuple[int, int] | None = None,
    summed_merges: int = 0,
    min_pair_count: int = 2,
    min_word_count: int = 1,
    max_token_bytes: int | None = None,
    progress: Callable[[int], None] | None = None,
    plain: bool = False,
) -> Any:
    """Parity-aware merges (arXiv 2508.04796); the sources of the table are the languages.

    Before each merge the language that is worst off chooses: its most frequent pair, by its own unweighted counts, is
    merged in all languages, of equals the one with the smallest (left id, right id). Among equal languages the one of
    the smallest number chooses. All comparisons are of integers and exact. Worst off is

    - with `dev`, a table of the same sources (parallel text), the language whose dev text takes most tokens by now;
    - with `ratios`, a positive number for each language, the one with the least (bytes of training text / its tokens by
      now) / ratio; ratios in proportion to the bytes of parallel text treat scripts alike.

    A language whose best pair is below `min_pair_count` chooses no more; the others go on. With `window`, a language is
    passed over while it made more than alpha / languages of the last `window` choices (the paper: 100), alpha being a
    numerator and a denominator, (2, 1) unless given; where that leaves none, the worst off chooses. The first
    `summed_merges` are chosen by the sum over all languages, as in plain training, and are no choices of any.

    Returns a record batch of left, right (uint32 ids), count (uint64, in the language that chose) and source (uint32,
    null where sums chose), one row a rank. `progress`, interrupts and `plain` are as in `learn_merges`. Words with
    fewer than `min_word_count` occurrences over all sources take no part in training; the dev text is kept whole.

    Raises `UsageError` unless exactly one of `dev` and `ratios` is given and fits, and what `learn_merges` raises.
    """

def replay(left: Any, right: Any, batches: Iterable[Any], sources: int) -> tuple[list[Any], list[Any]]:
    """Encode every row of a table; per source: (occurrences each merge replaced, occurrences left of each id).

    Raises `CountOverflowError` past 2^64 - 1, and `FormatError` for a source that is not there.
    """

def words(pattern: str, text: str, level: str | None = None) -> list[bytes]:
    """The words of a text, for tests and demonstrations."""

def cut(text: str, special_tokens: Sequence[str]) -> list[str]:
    """What is left of a text around its special tokens, without empty pieces."""

def normalize(text: str, form: str) -> str:
    """A text in a normalisation form: NFC, NFD, NFKC or NFKD."""

def first_invalid_utf8(texts: Any) -> tuple[int, int] | None:
    """(index, byte offset) of the first text in an array that is not UTF-8."""

def byte_ids() -> list[int]:
    """The id of each byte 0..255 in GPT-2's order: `!` is 0, the space is 220."""

def levels() -> list[str]:
    """Scanner levels this processor can run, the fastest last."""

def partition_of(word: bytes, partitions: int) -> int:
    """The partition of a word: the high half of XXH3-64 times `partitions`."""
