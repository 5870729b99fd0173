"""The functions of the package: count, learn, import_counts."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, overload

from dist_bpe.corpus.source import Source
from dist_bpe.counting.options import CountOptions
from dist_bpe.counting.table import CountTable
from dist_bpe.counting.wordlists import WordList
from dist_bpe.errors import UsageError
from dist_bpe.learning import textbook
from dist_bpe.learning.merges import batches_of_mapping
from dist_bpe.learning.mixture import Mixture
from dist_bpe.learning.options import LearnOptions
from dist_bpe.options import validate
from dist_bpe.pretokenize.checks import resolve
from dist_bpe.pretokenize.preparation import SpecialToken, normalization_form, special_token
from dist_bpe.progress import Progress
from dist_bpe.run.config import RunConfig
from dist_bpe.run.count import run_count
from dist_bpe.run.learn import learn_from, run_learn, vocabulary_of
from dist_bpe.run.publish import run_import
from dist_bpe.run.report import RunReport
from dist_bpe.storage.bucket import BucketPath
from dist_bpe.storage.files import RunPath, uri_of
from dist_bpe.vocabulary.data import BYTES
from dist_bpe.vocabulary.vocabulary import Vocabulary


def count(
    *sources: Source,
    output: str | RunPath,
    engine: str = "ray",
    workers: int | None = None,
    address: str | None = None,
    memory_per_worker: int | str | None = None,
    overwrite: bool = False,
    restart: bool = False,
    progress: str = "auto",
    **options: Any,
) -> CountTable:
    """Count the words of sources into a table in the run folder `output`, or go on with what lies there unfinished.

    Args:
        sources: what to read.
        output: the run folder, a path or a URI of an object store; the table lies in its folder `counts`.
        engine: "ray" (embedded, or a cluster by `address`, RAY_ADDRESS or an earlier `ray.init`) or "local".
        workers: tasks at once; by default one a processor.
        address: the Ray cluster to join.
        memory_per_worker: bytes, or a text like "2GB"; by default a worker's share of what is free.
        overwrite: replace a table that stands there already.
        restart: begin anew, whatever is there, finished or not.
        progress: "auto", "bars", "lines", "json" or "silent".
        options: the fields of `CountConfig`: pattern, normalization, special_tokens, max_word_bytes, min_word_count,
            partitions, shard_bytes, table_bytes.

    Raises:
        UsageError: an option or source that cannot work; found before counting, and nothing is written then.
        DataError: a row or file that cannot be counted.
        RunError: the folder holds another table or an unfinished run of other inputs or options, another driver works
            on it, its disk is full, or a shard keeps failing. What was finished is kept, and the same call goes on.
    """
    config = validate(
        RunConfig,
        {
            "sources": [
                {f.name: getattr(s, f.name) for f in dataclasses.fields(s)} | {"paths": s.list_of_paths()}
                for s in sources
            ],
            "output": uri_of(output),
            "overwrite": overwrite,
            "restart": restart,
            "count": options,
            "engine": {
                "engine": engine,
                "workers": workers,
                "address": address,
                "memory_per_worker": memory_per_worker,
            },
        },
    )
    return run_count(config, Progress(progress), RunReport(config.output))


def import_counts(
    lists: str | Path | Sequence[WordList],
    *,
    output: str | Path,
    overwrite: bool = False,
    progress: str = "auto",
    **options: Any,
) -> CountTable:
    """Make a count table in the run folder `output` from words that were counted elsewhere.

    Words that stand there twice are summed; those with a count of zero are left out. The table is the one that counting
    the text itself makes, if that was cut by the same pattern, but knows nothing of documents.

    Args:
        lists: a path, folder, glob or URI, or any number of `wordlists.WordList` with columns and names of sources.
        output: the run folder; the table lies in its folder `counts`.
        overwrite: replace a table that stands there already.
        progress: "auto", "bars", "lines", "json" or "silent".
        options: the fields of `CountConfig`: pattern (what cut the words, which goes into the vocabulary),
            special_tokens (those that were cut out of the text), min_word_count, partitions, table_bytes.

    Raises:
        UsageError: an option, file or column that cannot work.
        DataError: a word that is missing or not UTF-8, or a count that is negative or no whole number; names the row.
        RunError: the folder holds a table already.
    """
    if isinstance(lists, (str, Path)):
        lists = [WordList("corpus", (str(lists),))]
    config = validate(CountOptions, options)
    for option in ("shard_bytes", "max_word_bytes"):
        if getattr(config, option) is not None:
            raise UsageError(f"{option} has no effect on lists of words: leave it out.")
    return run_import(lists, output, overwrite, config, Progress(progress), RunReport(str(output)))


@overload
def learn(
    counts: CountTable | str | RunPath,
    vocab_size: int,
    *,
    special_tokens: Sequence[str | SpecialToken] | None = None,
    progress: str = "auto",
    **options: Any,
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
    **options: Any,
) -> Vocabulary: ...


@overload
def learn(
    counts: Mapping[str, int],
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
    special_tokens: Sequence[str | SpecialToken] | None = None,
    progress: str = "auto",
    **options: Any,
) -> Vocabulary | textbook.ReferenceModel[str] | textbook.ReferenceModel[bytes]:
    """Learn a vocabulary from a count table, a run folder, or a plain {word: count} mapping.

    Args:
        counts: the table, its folder, or the mapping. Words of a mapping are str (taken as UTF-8) or bytes.
        vocab_size: all tokens: 256 bytes, merges, special tokens. Or give:
        num_merges: the number of merges.
        unit: "byte", or "character" for teaching: symbols are characters, and the result is a `ReferenceModel`.
        tie_break: among pairs of equal count: "id" (smallest ids), or for teaching "lexicographic" or "first-seen".
        end_of_word: for teaching: a symbol put after each word.
        unknown_token: for teaching: what a character outside the vocabulary becomes.
        pattern: how the vocabulary of a mapping is to cut text; a table knows its own.
        normalization: what its text is to be brought into first: NFC, NFD, NFKC or NFKD; a table knows its own.
        special_tokens: `TEXT`, `ROLE=TEXT` or `SpecialToken`; by default those cut out when the table was counted.
        progress: "auto", "bars", "lines", "json" or "silent".
        options: the other fields of `LearnOptions`: mixture, min_pair_count, min_word_count, max_token_bytes,
            special_tokens_first, pad_to_multiple, driver_memory.

    Raises:
        UsageError: a size that is too small, or options that do not go together.
        RunError: no finished count table in the folder.
    """
    if (vocab_size is None) == (num_merges is None):
        raise UsageError("give either vocab_size or num_merges.")
    teaching = unit != "byte" or tie_break != "id" or end_of_word is not None or unknown_token is not None
    if teaching:
        if not isinstance(counts, Mapping):
            raise UsageError("unit, tie_break, end_of_word and unknown_token are for plain {word: count} mappings.")
        if num_merges is None:
            raise UsageError("the teaching modes take num_merges, not vocab_size.")
        unknown = options.keys() - {"min_pair_count", "max_token_bytes"}
        if unknown:
            raise UsageError(f"the option {min(unknown)!r} has no effect in the teaching modes: leave it out.")
        return textbook.learn(  # type: ignore[call-overload,no-any-return]  # checked inside, with a sentence
            counts,
            num_merges,
            unit=unit,
            tie_break=tie_break,
            end_of_word=end_of_word,
            unknown_token=unknown_token,
            **options,
        )
    if isinstance(counts, (str, Path, BucketPath)):
        counts = CountTable.open(counts)
    if special_tokens is None:
        special_tokens = counts.special_tokens if isinstance(counts, CountTable) else ()
    specials = [special_token(token) for token in special_tokens]
    if vocab_size is None:
        vocab_size = BYTES + (num_merges or 0) + len(specials)
    config: LearnOptions = validate(LearnOptions, {"vocab_size": vocab_size, **options})
    if len(config.vocab_size) > 1:
        raise UsageError("one size is learned at a time here: take the largest, and `Vocabulary.cut` gives the others.")
    steps = Progress(progress)
    report = RunReport("")
    if isinstance(counts, CountTable):
        return run_learn(counts, config, specials, steps, report)[0]
    if config.mixture != Mixture():
        raise UsageError("a {word: count} mapping is one source: a mixture needs a count table.")
    batches = batches_of_mapping(counts)
    learned = learn_from(batches, ["words"], config, specials, None, steps, report)
    form = normalization_form(normalization)
    return vocabulary_of(learned, resolve(pattern), form, specials, config)
