"""Functions that make tables and vocabularies: plan, count, add, import_counts, learn, train."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, overload

from dist_bpe.api.arguments import (
    Parallel,
    Run,
    Style,
    Text,
    folder_of,
    held_out_of,
    mixture_of,
    options_of,
    public,
    sources_of,
    special_tokens_of,
)
from dist_bpe.corpus.plan import Plan
from dist_bpe.corpus.plan import plan as make_plan
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
from dist_bpe.pretokenize.preparation import Normalization, SpecialToken, normalization_form
from dist_bpe.progress import Progress
from dist_bpe.run.config import ExportOptions, FormatName, RunConfig
from dist_bpe.run.count import run_count
from dist_bpe.run.learn import Made, learn_words, run_learn, vocabulary_of
from dist_bpe.run.publish import add_runs, run_import
from dist_bpe.run.report import RunReport
from dist_bpe.run.train import train as run_train
from dist_bpe.storage.bucket import BucketPath
from dist_bpe.storage.files import RunPath, uri_of
from dist_bpe.vocabulary.data import BYTES
from dist_bpe.vocabulary.vocabulary import Vocabulary

# Options of the teaching modes alone, and those of learning that have an effect in them.
_TEACHING = ("unit", "tie_break", "end_of_word", "unknown_token")
_TAUGHT = ("vocab_size", "min_pair_count", "max_token_bytes")
Parity = Literal["dev", "ratio", "window", "hybrid"]


@public
def plan(*sources: Text, shard_bytes: int | None = None) -> Plan:
    """Look at what sources hold and what will be left out; count nothing.

    Args:
        sources: as for `count`.
        shard_bytes: the text bytes that one task counts; by default by the size of the whole.

    Returns:
        The plan: a table of the sources, with `files`, `left_out`, `warnings()`, and more.

    Raises:
        SourceError: nothing found, a file that is damaged or has no such field, and the policy is "error".
        NetworkError: a place that does not answer within the deadline.
    """
    if not sources:
        raise UsageError("name at least one source or path to look at.")
    return make_plan(sources_of(sources), options_of(CountOptions, {"shard_bytes": shard_bytes}).shard_bytes)


@public
def count(
    *sources: Text,
    output: str | RunPath,
    pattern: str = "gpt2",
    normalization: Normalization | None = None,
    special_tokens: Sequence[str | SpecialToken] = ("<|endoftext|>",),
    max_word_bytes: int | None = None,
    min_word_count: int = 1,
    partitions: int = 16,
    shard_bytes: int | None = None,
    table_bytes: int = 1 << 29,
    engine: Literal["ray", "local"] | None = None,
    workers: int | None = None,
    address: str | None = None,
    memory_per_worker: int | str | None = None,
    stall_seconds: float = 600,
    overwrite: bool = False,
    restart: bool = False,
    progress: Style = "auto",
) -> CountTable:
    """Count the words of sources into a table in the run folder `output`, or go on with what lies there unfinished.

    Args:
        sources: what to read. Paths stand for one source named corpus, and so does a table (of pyarrow, pandas, polars
            or whatever else gives its rows to Arrow), whose column `text` is read.
        output: the run folder, a path or a URI of an object store; the table lies in its folder `counts`.
        pattern: what cuts text into words: a name, or a regular expression.
        normalization: the form that text is brought into first.
        special_tokens: what is cut out before: `TEXT`, `ROLE=TEXT` or `SpecialToken`.
        max_word_bytes: longer words are counted in pieces.
        min_word_count: rarer words are dropped from the table for good.
        partitions: parts of the table.
        shard_bytes: the text bytes that one task counts; by default by the size of the whole.
        table_bytes: memory of a task's word table.
        engine: "ray" (embedded, or a cluster by `address`, RAY_ADDRESS or an earlier `ray.init`) or "local" (threads).
            By default ray, but local for documents in memory.
        workers: tasks at once; by default one a processor.
        address: of the Ray cluster to join.
        memory_per_worker: in bytes, or as "2GB"; by default its share of what is free.
        stall_seconds: a task of Ray that takes longer, and four times as long as others, is also tried elsewhere.
        overwrite: replace a table that stands there already.
        restart: begin anew, whatever is there, finished or not.
        progress: "auto", "bars", "lines", "json" or "silent".

    Raises:
        UsageError: an option or source that cannot work; found before counting, and nothing is written then.
        DataError: a row or file that cannot be counted.
        RunError: the folder holds another table or an unfinished run of other inputs or options, another driver works
            on it, its disk is full, or a shard keeps failing. What was finished is kept, and the same call goes on.
    """
    given = locals()
    if not sources:
        raise UsageError("name at least one source or path to count.")
    config = RunConfig(
        sources=sources_of(sources),
        output=uri_of(output),
        overwrite=overwrite,
        restart=restart,
        count=options_of(CountOptions, given, special_tokens=special_tokens_of(special_tokens)),
        engine=options_of(EngineOptions, given),
    )
    return run_count(config, Progress(progress)).table


@public
def add(*runs: Run, output: str | RunPath, overwrite: bool = False, progress: Style = "auto") -> CountTable:
    """Add count tables into the run folder `output`: the same, byte for byte, as counting all their documents together.

    Args:
        runs: two tables or more, or the folders of their runs.
        output: the run folder for the sum.
        overwrite: replace a table that stands there already.
        progress: "auto", "bars", "lines", "json" or "silent".

    Raises:
        UsageError: tables that differ in what decides their words; it names what.
        FormatError: a part that is damaged or gone.
        RunError: the folder holds another table, or one of `runs` holds none.
        CountOverflowError: a sum passes 2^64 - 1.
    """
    return add_runs(list(map(folder_of, runs)), output, overwrite, Progress(progress))


@public
def import_counts(
    lists: str | Path | WordList | Sequence[WordList | str | Path],
    *,
    output: str | RunPath,
    pattern: str = "gpt2",
    normalization: Normalization | None = None,
    special_tokens: Sequence[str | SpecialToken] = ("<|endoftext|>",),
    min_word_count: int = 1,
    partitions: int = 16,
    table_bytes: int = 1 << 29,
    overwrite: bool = False,
    progress: Style = "auto",
) -> CountTable:
    """Make a count table in the run folder `output` from words that were counted elsewhere.

    Words that stand there twice are summed; those with a count of zero are left out. The table is the one that counting
    the text itself makes, if that was cut by the same pattern, but knows nothing of documents.

    Args:
        lists: a path, folder, glob or URI, or any number of them or of `WordList` with columns and names of sources.
        output: the run folder; the table lies in its folder `counts`.
        pattern: what cut the words, which goes into the vocabulary.
        normalization: the form that their text was in.
        special_tokens: what was cut out of the text.
        min_word_count: rarer words are dropped.
        partitions: parts of the table.
        table_bytes: memory of the word table.
        overwrite: replace a table that stands there already.
        progress: "auto", "bars", "lines", "json" or "silent".

    Raises:
        UsageError: an option, file or column that cannot work.
        DataError: a word that is missing or not UTF-8, or a count that is negative or no whole number; names the row.
        RunError: the folder holds a table already.
    """
    chosen = options_of(CountOptions, locals(), special_tokens=special_tokens_of(special_tokens))
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
    counts: Run | Mapping[str, int] | Mapping[bytes, int],
    vocab_size: int | None = None,
    *,
    num_merges: int | None = None,
    special_tokens: Sequence[str | SpecialToken] | None = None,
    mixture: Mixture | str | RunPath | None = None,
    parity: Parity | None = None,
    dev: Parallel | None = None,
    min_pair_count: int = 2,
    min_word_count: int = 1,
    max_token_bytes: int | None = None,
    strict: bool = False,
    special_tokens_first: bool = False,
    pad_to_multiple: int | None = None,
    driver_memory: int | str | None = None,
    pattern: str = "gpt2",
    normalization: Normalization | None = None,
    unit: Literal["byte"] = "byte",
    progress: Style = "auto",
) -> Vocabulary: ...


@overload
def learn(
    counts: Mapping[str, int],
    vocab_size: int | None = None,
    *,
    num_merges: int | None = None,
    min_pair_count: int = 2,
    max_token_bytes: int | None = None,
    unit: Literal["byte", "character"] = "byte",
    tie_break: Literal["id", "lexicographic", "first-seen"] = "id",
    end_of_word: str | None = None,
    unknown_token: str | None = None,
) -> textbook.ReferenceModel[str]: ...


@public
def learn(
    counts: Run | Mapping[str, int] | Mapping[bytes, int],
    vocab_size: int | None = None,
    *,
    num_merges: int | None = None,
    special_tokens: Sequence[str | SpecialToken] | None = None,
    mixture: Mixture | str | RunPath | None = None,
    parity: Parity | None = None,
    dev: Parallel | None = None,
    min_pair_count: int = 2,
    min_word_count: int = 1,
    max_token_bytes: int | None = None,
    strict: bool = False,
    special_tokens_first: bool = False,
    pad_to_multiple: int | None = None,
    driver_memory: int | str | None = None,
    pattern: str = "gpt2",
    normalization: Normalization | None = None,
    unit: Literal["byte", "character"] = "byte",
    tie_break: Literal["id", "lexicographic", "first-seen"] = "id",
    end_of_word: str | None = None,
    unknown_token: str | None = None,
    progress: Style = "auto",
) -> Vocabulary | textbook.ReferenceModel[str] | textbook.ReferenceModel[bytes]:
    """Learn a vocabulary from a count table, a run folder, or a plain {word: count} mapping.

    Args:
        counts: the table, its folder, or the mapping. Words of a mapping are str (taken as UTF-8) or bytes.
        vocab_size: all tokens: 256 bytes (for teaching, the symbols at first), merges, special tokens. Or give:
        num_merges: the number of merges.
        special_tokens: `TEXT`, `ROLE=TEXT` or `SpecialToken`; by default those cut out when the table was counted.
        mixture: how much each source counts: a `Mixture`, or a TOML file with a [mixture] table, as `balance` writes.
        parity: instead of a mixture, parity-aware merges by this rule, on:
        dev: the parallel development set, or its Parquet file (lang, doc, text).
        min_pair_count: the least count of a pair that is merged, in raw counts.
        min_word_count: rarer words take no part.
        max_token_bytes: no token is longer.
        strict: a vocabulary that cannot have the size asked for is an error, and not a warning.
        special_tokens_first: special tokens take the ids from 0 on.
        pad_to_multiple: reserved tokens are added until the size is a multiple of this.
        driver_memory: the memory for learning, in bytes or as "16GB"; a table that needs more is refused.
        pattern: how the vocabulary of a mapping is to cut text; a table knows its own.
        normalization: what its text is to be brought into first; a table knows its own.
        unit: "byte", or "character" for teaching: symbols are characters, and the result is a `ReferenceModel`, whose
            `steps` have every pair's count.
        tie_break: among pairs of equal count: "id" (smallest ids), or for teaching "lexicographic" or "first-seen".
        end_of_word: for teaching: a symbol put after each word.
        unknown_token: for teaching: what a character outside the vocabulary becomes.
        progress: "auto", "bars", "lines", "json" or "silent".

    Raises:
        UsageError: a size that is too small, or options that do not go together.
        RunError: no finished count table in the folder.
    """
    given = locals()
    if not isinstance(counts, (CountTable, str, Path, BucketPath, Mapping)):
        raise UsageError(
            "counts is a count table, the path of a run folder, or a {word: count} mapping, not "
            f"{type(counts).__name__}."
        )
    if not isinstance(pattern, str):
        raise UsageError(f"a pattern is a name or a regular expression as text, not {type(pattern).__name__}.")
    if num_merges is not None and num_merges < 0:
        raise UsageError(f"num_merges must be 0 or more, not {num_merges:,}.")
    if (vocab_size is None) == (num_merges is None):
        raise UsageError("give either vocab_size or num_merges.")
    teaching = unit != "byte" or tie_break != "id" or end_of_word is not None or unknown_token is not None
    if teaching:
        if not isinstance(counts, Mapping):
            raise UsageError("unit, tie_break, end_of_word and unknown_token are for plain {word: count} mappings.")
        for name, field in fields_of(LearnOptions).items():
            idle = name not in _TAUGHT and given[name] is not None
            if idle and given[name] != field.default:
                raise UsageError(f"the option {name!r} has no effect in the teaching modes: leave it out.")
        lesson: dict[str, Any] = {name: given[name] for name in (*_TEACHING, *_TAUGHT)}
        model: textbook.ReferenceModel[str] = textbook.learn(given["counts"], num_merges, **lesson)
        return model
    if isinstance(counts, (str, Path, BucketPath)):
        counts = CountTable.open(counts)
    if isinstance(counts, CountTable):
        _refuse_another_cut(counts, pattern, normalization)
    if special_tokens is None:
        specials = counts.specials if isinstance(counts, CountTable) else []
    else:
        specials = special_tokens_of(special_tokens)
    if vocab_size is None:
        vocab_size = BYTES + (num_merges or 0) + len(specials)
    chosen = options_of(LearnOptions, given, vocab_size=vocab_size, mixture=mixture_of(mixture))
    if len(chosen.vocab_size) > 1:
        raise UsageError("one size is learned at a time here: take the largest, and `Vocabulary.cut` gives the others.")
    held_out = _development(chosen, dev)
    steps = Progress(progress)
    if isinstance(counts, CountTable):
        return run_learn(counts, chosen, specials, held_out, steps).vocabulary
    if chosen.mixture != Mixture() or chosen.parity:
        raise UsageError("a {word: count} mapping is one source: a mixture or parity needs a count table.")
    learned = learn_words(batches_of_mapping(counts), ["words"], chosen, None, specials, steps)
    return vocabulary_of(learned, Made(resolve(pattern), normalization_form(normalization), specials, chosen))


def _refuse_another_cut(table: CountTable, pattern: str, normalization: str | None) -> None:
    """Refuse what would cut text otherwise than the table's words were cut. The defaults say nothing.

    Raises:
        UsageError: the table was counted by another pattern, or in another form.
    """
    if pattern != "gpt2" and resolve(pattern).regex != resolve(table.pattern).regex:
        raise UsageError(f"the table was counted by the pattern {table.pattern!r}, not {pattern!r}: leave pattern out.")
    if normalization is not None and normalization != table.normalization:
        raise UsageError(
            f"the table was counted with the normalization {table.normalization}, not {normalization}: leave it out."
        )


def _development(options: LearnOptions, dev: Any) -> Any:
    """The parallel set that parity looks at.

    Raises:
        UsageError: one of the two is missing, or what is no set was given.
    """
    if (options.parity is None) != (dev is None):
        raise UsageError("parity and dev go together: a rule, and the parallel set it looks at.")
    return held_out_of(dev, "dev")


@public
def train(
    *sources: Text,
    output: str | RunPath,
    vocab_size: int | Sequence[int],
    pattern: str = "gpt2",
    normalization: Normalization | None = None,
    special_tokens: Sequence[str | SpecialToken] = ("<|endoftext|>",),
    max_word_bytes: int | None = None,
    partitions: int = 16,
    shard_bytes: int | None = None,
    table_bytes: int = 1 << 29,
    mixture: Mixture | str | RunPath | None = None,
    parity: Parity | None = None,
    dev: Parallel | None = None,
    min_pair_count: int = 2,
    min_word_count: int = 1,
    max_token_bytes: int | None = None,
    strict: bool = False,
    special_tokens_first: bool = False,
    pad_to_multiple: int | None = None,
    driver_memory: int | str | None = None,
    engine: Literal["ray", "local"] | None = None,
    workers: int | None = None,
    address: str | None = None,
    memory_per_worker: int | str | None = None,
    stall_seconds: float = 600,
    name: str | None = None,
    formats: Sequence[FormatName] | None = None,
    verify: bool = True,
    verify_transformers: bool = False,
    overwrite: bool = False,
    restart: bool = False,
    progress: Style = "auto",
) -> RunReport:
    """Count, learn and export in one go, in the run folder `output`; each file is read again in its own library.

    Args:
        sources: as for `count`, as are all options of counting and of the engine.
        output: the run folder, a path or a URI of an object store. Vocabularies lie in its folder `vocabularies`.
        vocab_size: all tokens: 256 bytes, merges, special tokens. Several sizes make several vocabularies.
        pattern: see `count`.
        normalization: see `count`.
        special_tokens: see `count`.
        max_word_bytes: see `count`.
        partitions: see `count`.
        shard_bytes: see `count`.
        table_bytes: see `count`.
        mixture: see `learn`.
        parity: see `learn`.
        dev: see `learn`.
        min_pair_count: see `learn`.
        min_word_count: see `learn`: the table keeps rarer words.
        max_token_bytes: see `learn`.
        strict: see `learn`.
        special_tokens_first: see `learn`.
        pad_to_multiple: see `learn`.
        driver_memory: see `learn`.
        engine: see `count`.
        workers: see `count`.
        address: see `count`.
        memory_per_worker: see `count`.
        stall_seconds: see `count`.
        name: the vocabulary's name in the run folder; by default its size.
        formats: "gpt2", "tokenizers", "tiktoken", "parquet"; by default all that can hold the vocabulary.
        verify: each file is read again in its own library.
        verify_transformers: also in transformers, whose import takes seconds.
        overwrite: replace what stands there already.
        restart: begin anew, whatever is in the folder.
        progress: "auto", "bars", "lines", "json" or "silent".

    Returns:
        The report: `vocabulary` (of several the largest), `table`, `folders`, `warnings`, `curve` and more.

    Raises:
        UsageError: an option or input that cannot work; found before counting, and nothing is written then.
        DataError: see `count`.
        RunError: see `count`; or a vocabulary of that name is there that was made otherwise.
        ExportError: a library reads a file otherwise than we do.
    """
    given = locals()
    if not sources:
        raise UsageError("name at least one source or path to train on.")
    learning = options_of(LearnOptions, given, mixture=mixture_of(mixture))
    counted = {key: value for key, value in given.items() if key != "min_word_count"}
    config = build(
        RunConfig,
        {
            **{key: given[key] for key in fields_of(ExportOptions)},
            "sources": sources_of(sources),
            "output": uri_of(output),
            "count": options_of(CountOptions, counted, special_tokens=special_tokens_of(special_tokens)),
            "learn": learning,
            "engine": options_of(EngineOptions, given),
        },
    )
    return run_train(config, Progress(progress), _development(learning, dev))
