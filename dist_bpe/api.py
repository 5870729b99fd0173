"""The functions of the package: count, learn, import_counts."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypedDict, Unpack, overload

from dist_bpe.corpus.heldout import HeldOut, read_parallel
from dist_bpe.corpus.source import Source
from dist_bpe.counting.options import CountOptions, WordList
from dist_bpe.counting.table import CountTable
from dist_bpe.engine.options import EngineOptions
from dist_bpe.errors import UsageError
from dist_bpe.learning import textbook
from dist_bpe.learning.merges import batches_of_mapping
from dist_bpe.learning.mixture import Mixture
from dist_bpe.learning.options import LearnOptions
from dist_bpe.options import build, fields_of
from dist_bpe.pretokenize.checks import resolve
from dist_bpe.pretokenize.preparation import SpecialToken, normalization_form, special_token
from dist_bpe.progress import Progress
from dist_bpe.run.config import RunConfig
from dist_bpe.run.count import run_count
from dist_bpe.run.learn import Made, learn_words, run_learn, vocabulary_of
from dist_bpe.run.publish import run_import
from dist_bpe.storage.bucket import BucketPath
from dist_bpe.storage.files import RunPath, uri_of
from dist_bpe.vocabulary.data import BYTES
from dist_bpe.vocabulary.vocabulary import Vocabulary

_TEACHING = ("unit", "tie_break", "end_of_word", "unknown_token")


class CountKeywords(TypedDict, total=False):
    """The fields of `CountOptions`, as keywords."""

    pattern: str
    normalization: str | None
    special_tokens: Sequence[str | SpecialToken]
    max_word_bytes: int | None
    min_word_count: int
    partitions: int
    shard_bytes: int | None
    table_bytes: int


class CountAndEngineKeywords(CountKeywords, total=False):
    """The fields of `CountOptions` and `EngineOptions`, as keywords."""

    engine: Literal["ray", "local"]
    workers: int | None
    address: str | None
    memory_per_worker: int | str | None
    stall_seconds: float


class LearnKeywords(TypedDict, total=False):
    """The fields of `LearnOptions` but the size, as keywords."""

    mixture: Mixture
    parity: Literal["dev", "ratio", "window", "hybrid"] | None
    min_pair_count: int
    min_word_count: int
    max_token_bytes: int | None
    strict: bool
    special_tokens_first: bool
    pad_to_multiple: int | None
    driver_memory: int | str | None


def count(
    *sources: Source | str | Path,
    output: str | RunPath,
    overwrite: bool = False,
    restart: bool = False,
    progress: str = "auto",
    **options: Unpack[CountAndEngineKeywords],
) -> CountTable:
    """Count the words of sources into a table in the run folder `output`, or go on with what lies there unfinished.

    Args:
        sources: what to read; a path stands for a source named corpus.
        output: the run folder, a path or a URI of an object store; the table lies in its folder `counts`.
        overwrite: replace a table that stands there already.
        restart: begin anew, whatever is there, finished or not.
        progress: "auto", "bars", "lines", "json" or "silent".
        options: see the fields of `CountOptions` and `EngineOptions` (docs/options.md). The engine is "ray" (embedded,
            or a cluster by `address`, RAY_ADDRESS or an earlier `ray.init`) or "local".

    Raises:
        UsageError: an option or source that cannot work; found before counting, and nothing is written then.
        DataError: a row or file that cannot be counted.
        RunError: the folder holds another table or an unfinished run of other inputs or options, another driver works
            on it, its disk is full, or a shard keeps failing. What was finished is kept, and the same call goes on.
    """
    if not sources:
        raise UsageError("name at least one source or path to count.")
    given: dict[str, Any] = dict(options)
    engine = {name: given.pop(name) for name in fields_of(EngineOptions) if name in given}
    known = (*fields_of(EngineOptions), "output", "overwrite", "restart", "progress")
    config = RunConfig(
        sources=list(map(_source, sources)),
        output=uri_of(output),
        overwrite=overwrite,
        restart=restart,
        count=build(CountOptions, given, known=known),
        engine=build(EngineOptions, engine),
    )
    return run_count(config, Progress(progress)).table


def _special_tokens(given: Any) -> list[SpecialToken]:
    wrong = [given] if isinstance(given, str) else [each for each in given if not isinstance(each, (str, SpecialToken))]
    if wrong:
        raise UsageError(f"special_tokens is a list of texts or SpecialToken: {wrong[0]!r} is neither list nor one.")
    return [special_token(token) for token in given]


def _source(given: Any) -> Source:
    if isinstance(given, Source):
        return given
    if isinstance(given, (str, Path)):
        return Source("corpus", str(given))
    raise UsageError(
        f"a source is a dist_bpe.Source or a path, not {type(given).__name__}: write Source(name, paths), or "
        "Source(name, documents=…) for documents in memory."
    )


def import_counts(
    lists: str | Path | Sequence[WordList | str | Path],
    *,
    output: str | RunPath,
    overwrite: bool = False,
    progress: str = "auto",
    **options: Unpack[CountKeywords],
) -> CountTable:
    """Make a count table in the run folder `output` from words that were counted elsewhere.

    Words that stand there twice are summed; those with a count of zero are left out. The table is the one that counting
    the text itself makes, if that was cut by the same pattern, but knows nothing of documents.

    Args:
        lists: a path, folder, glob or URI, or any number of them or of `WordList` with columns and names of sources.
        output: the run folder; the table lies in its folder `counts`.
        overwrite: replace a table that stands there already.
        progress: "auto", "bars", "lines", "json" or "silent".
        options: see the fields of `CountOptions`; the pattern is what cut the words, which goes into the vocabulary,
            the special tokens those that were cut out of the text. shard_bytes and max_word_bytes have no effect here.

    Raises:
        UsageError: an option, file or column that cannot work.
        DataError: a word that is missing or not UTF-8, or a count that is negative or no whole number; names the row.
        RunError: the folder holds a table already.
    """
    chosen = build(CountOptions, options, known=("output", "overwrite", "progress"))
    named = [lists] if isinstance(lists, (str, Path, WordList)) else list(lists)
    return run_import(list(map(_word_list, named)), output, chosen, overwrite, Progress(progress))


def _word_list(given: Any) -> WordList:
    if isinstance(given, WordList):
        return given
    if isinstance(given, (str, Path)):
        return WordList("corpus", (str(given),))
    raise UsageError(
        f"a list of words is a dist_bpe.WordList or a path, not {type(given).__name__}: write WordList(name, (path,))."
    )


@overload
def learn(
    counts: CountTable | str | RunPath,
    vocab_size: int,
    *,
    dev: HeldOut | str | Path | None = None,
    special_tokens: Sequence[str | SpecialToken] | None = None,
    progress: str = "auto",
    **options: Unpack[LearnKeywords],
) -> Vocabulary: ...


@overload
def learn(
    counts: Mapping[str, int] | Mapping[bytes, int],
    vocab_size: int | None = None,
    *,
    num_merges: int | None = None,
    unit: Literal["byte"] = "byte",
    pattern: str = "gpt2",
    normalization: str | None = None,
    special_tokens: Sequence[str | SpecialToken] | None = None,
    progress: str = "auto",
    **options: Unpack[LearnKeywords],
) -> Vocabulary: ...


@overload
def learn(
    counts: Mapping[str, int],
    vocab_size: int | None = None,
    *,
    num_merges: int | None = None,
    unit: Literal["byte", "character"] = "byte",
    tie_break: Literal["id", "lexicographic", "first-seen"] = "id",
    end_of_word: str | None = None,
    unknown_token: str | None = None,
    min_pair_count: int = 2,
    max_token_bytes: int | None = None,
) -> textbook.ReferenceModel[str]: ...


def learn(
    counts: CountTable | str | RunPath | Mapping[str, int] | Mapping[bytes, int],
    vocab_size: int | None = None,
    *,
    num_merges: int | None = None,
    unit: str = "byte",
    tie_break: str = "id",
    end_of_word: str | None = None,
    unknown_token: str | None = None,
    pattern: str = "gpt2",
    normalization: str | None = None,
    dev: HeldOut | str | Path | None = None,
    special_tokens: Sequence[str | SpecialToken] | None = None,
    progress: str = "auto",
    **options: Any,
) -> Vocabulary | textbook.ReferenceModel[str] | textbook.ReferenceModel[bytes]:
    """Learn a vocabulary from a count table, a run folder, or a plain {word: count} mapping.

    Args:
        counts: the table, its folder, or the mapping. Words of a mapping are str (taken as UTF-8) or bytes.
        vocab_size: all tokens: 256 bytes (for teaching, the symbols at first), merges, special tokens. Or give:
        num_merges: the number of merges.
        unit: "byte", or "character" for teaching: symbols are characters, and the result is a `ReferenceModel`, whose
            `steps` have every pair's count.
        tie_break: among pairs of equal count: "id" (smallest ids), or for teaching "lexicographic" or "first-seen".
        end_of_word: for teaching: a symbol put after each word.
        unknown_token: for teaching: what a character outside the vocabulary becomes.
        pattern: how the vocabulary of a mapping is to cut text; a table knows its own.
        normalization: what its text is to be brought into first: NFC, NFD, NFKC or NFKD; a table knows its own.
        dev: for `parity`: the parallel development set, or its Parquet file (lang, doc, text).
        special_tokens: `TEXT`, `ROLE=TEXT` or `SpecialToken`; by default those cut out when the table was counted.
        progress: "auto", "bars", "lines", "json" or "silent".
        options: see the other fields of `LearnOptions` (docs/options.md).

    Raises:
        UsageError: a size that is too small, or options that do not go together.
        RunError: no finished count table in the folder.
    """
    if not isinstance(counts, (CountTable, str, Path, BucketPath, Mapping)):
        raise UsageError(
            "counts is a count table, the path of a run folder, or a {word: count} mapping, not "
            f"{type(counts).__name__}."
        )
    if not isinstance(pattern, str):
        raise UsageError(f"a pattern is a name or a regular expression as text, not {type(pattern).__name__}.")
    if not isinstance(dev, (HeldOut, str, Path, type(None))):
        raise UsageError(f"dev is a parallel set, or the path of its file, not {type(dev).__name__}.")
    if num_merges is not None and num_merges < 0:
        raise UsageError(f"num_merges must be 0 or more, not {num_merges:,}.")
    if (vocab_size is None) == (num_merges is None):
        raise UsageError("give either vocab_size or num_merges.")
    teaching = unit != "byte" or tie_break != "id" or end_of_word is not None or unknown_token is not None
    if teaching:
        if not isinstance(counts, Mapping):
            raise UsageError("unit, tie_break, end_of_word and unknown_token are for plain {word: count} mappings.")
        unknown = options.keys() - {"min_pair_count", "max_token_bytes"}
        if unknown:
            raise UsageError(f"the option {min(unknown)!r} has no effect in the teaching modes: leave it out.")
        return textbook.learn(  # type: ignore[call-overload,misc,no-any-return]  # checked inside, with a sentence
            counts,
            num_merges,
            vocab_size=vocab_size,
            unit=unit,
            tie_break=tie_break,
            end_of_word=end_of_word,
            unknown_token=unknown_token,
            **options,
        )
    if isinstance(counts, (str, Path, BucketPath)):
        counts = CountTable.open(counts)
    if special_tokens is None:
        specials = counts.specials if isinstance(counts, CountTable) else []
    else:
        specials = _special_tokens(special_tokens)
    if vocab_size is None:
        vocab_size = BYTES + (num_merges or 0) + len(specials)
    known = ("num_merges", "pattern", "normalization", "dev", "special_tokens", "progress", *_TEACHING)
    chosen = build(LearnOptions, {"vocab_size": vocab_size, **options}, known=known)
    if len(chosen.vocab_size) > 1:
        raise UsageError("one size is learned at a time here: take the largest, and `Vocabulary.cut` gives the others.")
    if (chosen.parity is None) != (dev is None):
        raise UsageError("parity and dev go together: a rule, and the parallel set it looks at.")
    steps = Progress(progress)
    if isinstance(counts, CountTable):
        held_out = read_parallel(Path(dev)) if isinstance(dev, (str, Path)) else dev
        return run_learn(counts, chosen, specials, held_out, steps).vocabulary
    if chosen.mixture != Mixture() or chosen.parity:
        raise UsageError("a {word: count} mapping is one source: a mixture or parity needs a count table.")
    learned = learn_words(batches_of_mapping(counts), ["words"], chosen, None, specials, steps)
    return vocabulary_of(learned, Made(resolve(pattern), normalization_form(normalization), specials, chosen))
