"""The run: count -> learn -> export, from sources to vocabulary files; the only module that knows them all."""

import contextlib
import dataclasses
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, overload

import pyarrow as pa
import pyarrow.compute as pc

from dist_bpe import reference
from dist_bpe.config import (
    LearnConfig,
    RunConfig,
    special_token,
    validate,
)
from dist_bpe.counts import (
    CountTable,
    CountTask,
    count_shard,
    manifest,
    merge_part,
    merge_tasks,
)
from dist_bpe.documents import Skipped
from dist_bpe.engine import open_engine
from dist_bpe.errors import RunError, SourceError, UsageError
from dist_bpe.export import DEFAULT_LIBRARIES, export
from dist_bpe.formats import BYTES, SpecialToken, VocabularyData, check_special_tokens, chosen_formats
from dist_bpe.merges import Learned, batches_of_mapping, learn_merges
from dist_bpe.pretokenize import Pattern, resolve, warnings_for
from dist_bpe.progress import Progress, StageRecord, human_bytes
from dist_bpe.sources import Plan, Source, plan
from dist_bpe.storage import publish, to_json
from dist_bpe.vocabulary import Vocabulary

STAGING = "staging"
# Of words that begin with a combining mark. Text of scripts without them has a few at most, Hindi under gpt2 has half.
MARK_SHARE = 0.01
KEEPS_MARKS = "the pattern o200k keeps marks with their letters."
COUNTS = "counts"
VOCABULARIES = "vocabularies"


@dataclass
class RunReport:
    """What a command did, for the closing summary and report.json; lies outside the reproducible set.

    `stages` have seconds and peak bytes of the driver and, where the work ran elsewhere, of the largest worker.
    """

    output: str
    table: CountTable | None = None
    stages: list[StageRecord] = field(default_factory=list)
    vocabulary: Vocabulary | None = None
    requested_size: int | None = None
    bytes_per_token: dict[str, float] = field(default_factory=dict)
    folder: Path | None = None
    verification: dict[str, str] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        """The report as plain values."""
        return {
            "stages": [asdict(stage) for stage in self.stages],
            "sources": {name: vars(source) for name, source in self.table.sources.items()} if self.table else {},
            "bytes_per_token": self.bytes_per_token,
            "sizes": self.vocabulary.sizes if self.vocabulary else {},
            "requested_size": self.requested_size,
            "verification": self.verification,
            "warnings": self.warnings,
        }


def count(
    *sources: Source,
    output: str | Path,
    engine: str = "ray",
    workers: int | None = None,
    address: str | None = None,
    overwrite: bool = False,
    progress: str = "auto",
    **options: Any,
) -> CountTable:
    """Count the words of sources into a table in the run folder `output`.

    Args:
        sources: what to read.
        output: the run folder; the table lies in its folder `counts`.
        engine: "ray" (embedded, or a cluster by `address`, RAY_ADDRESS or an earlier `ray.init`) or "local".
        workers: tasks at once; by default one a processor.
        address: the Ray cluster to join.
        overwrite: replace a table that stands there already.
        progress: "auto", "bars", "lines" or "silent".
        options: the fields of `CountConfig`: pattern, special_tokens, min_word_count, partitions, shard_bytes,
            table_bytes.

    Raises:
        UsageError: an option or source that cannot work; found before counting, and nothing is written then.
        DataError: a row or file that cannot be counted.
        RunError: the folder holds a table already, or a worker keeps dying.
    """
    config = validate(
        RunConfig,
        {
            "sources": [
                {f.name: getattr(s, f.name) for f in dataclasses.fields(s)} | {"paths": s.list_of_paths()}
                for s in sources
            ],
            "output": str(output),
            "overwrite": overwrite,
            "count": options,
            "engine": {"engine": engine, "workers": workers, "address": address},
        },
    )
    return run_count(config, Progress(progress), RunReport(str(output)))


def run_count(config: RunConfig, progress: Progress, report: RunReport) -> CountTable:
    """Plan, count and merge; see `count`."""
    pattern = resolve(config.count.pattern)
    check_special_tokens(config.count.special_tokens)
    output = Path(config.output)
    if output.exists() and not output.is_dir():
        raise UsageError(f"the output {output} is a file; name a folder.")
    if (output / COUNTS).exists() and not config.overwrite:
        raise RunError(
            f"{output} holds a count table already. Learn from it (`dist-bpe learn {output}`), name another folder, "
            "or replace it with --overwrite."
        )
    with progress.stage("plan", unit="files") as stage:
        planned = plan([source.source() for source in config.sources], config.count.shard_bytes)
        rows = "" if planned.rows is None else f"{planned.rows:,} rows, "
        stage.advance(len(planned.files), f"{rows}{human_bytes(planned.bytes)}, {len(planned.shards)} shards")
    if planned.in_memory and config.engine.engine != "local":
        raise UsageError(
            f"the documents of source {planned.in_memory[0]!r} lie in this process, where no Ray worker can read them. "
            'Use engine="local", or write them to a file.'
        )
    for text in planned.warnings():
        _warn(progress, report, text)
    for text in warnings_for(pattern):
        _warn(progress, report, text)
    fresh = not output.exists()
    staging = output / STAGING
    shutil.rmtree(staging, ignore_errors=True)
    staging.mkdir(parents=True)
    try:
        table = _count_into(output, staging, planned, pattern, config, progress, report)
    except BaseException:
        shutil.rmtree(output if fresh else staging, ignore_errors=True)
        raise
    shutil.rmtree(staging, ignore_errors=True)
    report.table = table
    cut = [name for name, source in table.sources.items() if source.mark_words > MARK_SHARE * source.words]
    if cut:
        _warn(
            progress,
            report,
            f"the pattern {config.count.pattern!r} cuts syllables apart (words that begin with a combining mark) in: "
            f"{', '.join(cut)}. Their text costs more tokens than it needs to; {KEEPS_MARKS}",
        )
    total = sum(source.words for source in table.sources.values())
    documents = sum(source.documents for source in table.sources.values())
    if total <= documents and documents > 1:
        _warn(
            progress, report, f"the pattern {config.count.pattern!r} left each document whole: it splits nothing here."
        )
    return table


def _count_into(
    output: Path,
    staging: Path,
    planned: Plan,
    pattern: Pattern,
    config: RunConfig,
    progress: Progress,
    report: RunReport,
) -> CountTable:
    options = config.count
    texts = tuple(token.text for token in options.special_tokens)
    with contextlib.ExitStack() as stack:
        with progress.stage(f"start {config.engine.engine}", unit="workers") as stage:
            engine = stack.enter_context(
                open_engine(config.engine.engine, config.engine.workers, config.engine.address)
            )
            stage.advance(engine.workers)
        # A worker may have another working folder than the driver: paths go out absolute.
        place = str(staging.resolve())
        tasks = [
            CountTask(shard, place, config.count.pattern, texts, options.partitions, options.table_bytes)
            for shard in planned.shards
        ]
        commits = []
        with progress.stage("count", planned.bytes, "bytes") as stage:
            for commit in engine.run(count_shard, tasks):
                commits.append(commit)
                stage.worker_peak(commit["peak_bytes"])
                stage.advance(planned.shards[commit["shard"]].bytes, f"shard {len(commits):,} of {len(tasks):,}")
        for text in Skipped.total(commit["skipped"] for commit in commits).warnings():
            _warn(progress, report, text)
        if not any(totals["bytes"] for commit in commits for totals in commit["totals"]):
            looked = ", ".join(file.path for file in planned.files[:5]) + (", …" if len(planned.files) > 5 else "")
            raise SourceError(f"no text found: all rows are empty, null or left out (files looked at: {looked}).")
        folder = staging.resolve() / COUNTS
        folder.mkdir()
        merges = merge_tasks(commits, staging.resolve(), folder, options.partitions, options.min_word_count)
        parts = []
        with progress.stage("merge", len(merges), "parts") as stage:
            for part in engine.run(merge_part, merges):
                parts.append(part)
                stage.worker_peak(part["peak_bytes"])
                stage.advance(1, f"{sum(part['rows'] for part in parts):,} rows")
    with publish(folder / "manifest.json") as temporary:
        temporary.write_bytes(to_json(manifest(pattern, texts, options.min_word_count, commits, parts)))
    shutil.rmtree(output / COUNTS, ignore_errors=True)
    folder.rename(output / COUNTS)
    return CountTable.open(output)


def _warn(progress: Progress, report: RunReport, text: str) -> None:
    progress.warn(text)
    report.warnings.append(text)


@overload
def learn(
    counts: CountTable | str | Path,
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
) -> reference.ReferenceModel[str]: ...


def learn(
    counts: CountTable | str | Path | Mapping[str, int] | Mapping[bytes, int],
    vocab_size: int | None = None,
    *,
    num_merges: int | None = None,
    unit: str = "byte",
    tie_break: str = "id",
    end_of_word: str | None = None,
    unknown_token: str | None = None,
    pattern: str = "gpt2",
    special_tokens: Sequence[str | SpecialToken] | None = None,
    progress: str = "auto",
    **options: Any,
) -> Vocabulary | reference.ReferenceModel[str] | reference.ReferenceModel[bytes]:
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
        special_tokens: `TEXT`, `ROLE=TEXT` or `SpecialToken`; by default those cut out when the table was counted.
        progress: "auto", "bars", "lines" or "silent".
        options: the other fields of `LearnConfig`: min_pair_count, min_word_count, max_token_bytes,
            special_tokens_first, pad_to_multiple.

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
        return reference.learn(  # type: ignore[call-overload,no-any-return]  # checked inside, with a sentence
            counts,
            num_merges,
            unit=unit,
            tie_break=tie_break,
            end_of_word=end_of_word,
            unknown_token=unknown_token,
            **options,
        )
    if isinstance(counts, (str, Path)):
        counts = CountTable.open(counts)
    if special_tokens is None:
        special_tokens = counts.special_tokens if isinstance(counts, CountTable) else ()
    specials = [special_token(token) for token in special_tokens]
    if vocab_size is None:
        vocab_size = BYTES + (num_merges or 0) + len(specials)
    config = validate(LearnConfig, {"vocab_size": vocab_size, **options})
    steps = Progress(progress)
    report = RunReport("")
    if isinstance(counts, CountTable):
        vocabulary, _ = run_learn(counts, config, specials, steps, report)
        return vocabulary
    batches = batches_of_mapping(counts)
    learned = _learn(batches, ["words"], config, specials, steps, report)
    return _vocabulary(learned, resolve(pattern), specials, config)


def run_learn(
    table: CountTable, config: LearnConfig, specials: Sequence[SpecialToken], progress: Progress, report: RunReport
) -> tuple[Vocabulary, Learned]:
    """Learn from a table; see `learn`. Fills the report's vocabulary and bytes per token."""
    pattern = resolve(table.pattern)
    for token in specials:
        if token.text not in table.special_tokens:
            _warn(
                progress,
                report,
                f"the special token {token.text!r} was not cut out when the table was counted: where it stands in the "
                "text, its pieces were learned as ordinary words.",
            )
    learned = _learn(table.batches, list(table.sources), config, specials, progress, report)
    vocabulary = _vocabulary(learned, pattern, specials, config)
    report.vocabulary = vocabulary
    report.requested_size = config.vocab_size
    for name, source in table.sources.items():
        tokens = pc.sum(learned.tokens[name]).as_py() + source.special_tokens
        if tokens:
            report.bytes_per_token[name] = source.bytes / tokens
    return vocabulary, learned


def _learn(
    batches: Callable[[], Iterable[pa.RecordBatch]],
    sources: Sequence[str],
    config: LearnConfig,
    specials: Sequence[SpecialToken],
    progress: Progress,
    report: RunReport,
) -> Learned:
    wanted = config.merges(specials)
    with progress.stage("learn", wanted, "merges") as stage:
        learned = learn_merges(
            batches,
            sources,
            wanted,
            min_pair_count=config.min_pair_count,
            min_word_count=config.min_word_count,
            max_token_bytes=config.max_token_bytes,
            on_words=lambda words, memory: stage.advance(
                0, f"{words:,} unique words, about {human_bytes(memory)} of memory"
            ),
            on_merge=lambda done: stage.advance(done - stage.done),
        )
        stage.advance(len(learned) - stage.done)
    if len(learned) < wanted:
        _warn(
            progress,
            report,
            f"the text ran out of pairs with a count of {config.min_pair_count} or more at merge {len(learned):,}: the "
            f"vocabulary has {config.vocab_size - wanted + len(learned):,} tokens instead of {config.vocab_size:,}.",
        )
    return learned


def _vocabulary(
    learned: Learned, pattern: Pattern, specials: Sequence[SpecialToken], config: LearnConfig
) -> Vocabulary:
    left, right, counts = (tuple(column.to_pylist()) for column in learned.merges.columns)
    data = VocabularyData(
        tuple(zip(left, right, strict=True)),
        pattern,
        tuple(specials),
        special_tokens_first=config.special_tokens_first,
        counts=counts,
        replaced={name: tuple(array.to_pylist()) for name, array in learned.replaced.items()},
    )
    return Vocabulary(data.padded(config.pad_to_multiple) if config.pad_to_multiple else data)


def train(config: RunConfig, progress: Progress | None = None) -> RunReport:
    """The whole run: count, learn, export, and reload every file in its own library.

    Raises:
        UsageError: an option or input that cannot work; found before counting, and nothing is written then.
        ExportError: a library reads a file otherwise than we do.
    """
    if config.learn is None:
        raise UsageError("the run has no [learn] table; say at least how large the vocabulary is to be: vocab_size.")
    config.learn.merges(config.count.special_tokens)
    progress = progress or Progress()
    report = RunReport(config.output)
    table = run_count(config, progress, report)
    _learn_and_export(table, config.learn, config.count.special_tokens, config, progress, report)
    return report


def learn_and_export(
    run: str | Path,
    config: LearnConfig,
    special_tokens: Sequence[SpecialToken] | None = None,
    name: str | None = None,
    overwrite: bool = False,
    verify: bool = True,
    verify_transformers: bool = False,
) -> RunReport:
    """Learn one more vocabulary from a run folder's table and export it beside the others."""
    table = CountTable.open(run)
    if special_tokens is None:
        special_tokens = [special_token(text) for text in table.special_tokens]
    else:
        check_special_tokens(special_tokens)
    progress = Progress()
    report = RunReport(str(run), table)
    options = _ExportOptions(str(run), name, overwrite, verify, verify_transformers)
    _learn_and_export(table, config, special_tokens, options, progress, report)
    return report


@dataclass(frozen=True)
class _ExportOptions:
    """The part of a `RunConfig` that exporting looks at."""

    output: str
    name: str | None
    overwrite: bool
    verify: bool
    verify_transformers: bool


def _learn_and_export(
    table: CountTable,
    config: LearnConfig,
    specials: Sequence[SpecialToken],
    options: "RunConfig | _ExportOptions",
    progress: Progress,
    report: RunReport,
) -> None:
    config.merges(specials)
    folder = Path(options.output) / VOCABULARIES / (options.name or str(config.vocab_size))
    if folder.exists() and not options.overwrite:
        raise RunError(f"{folder} is there already; choose another --name, or replace it with --overwrite.")
    vocabulary, _ = run_learn(table, config, specials, progress, report)
    with progress.stage("export", unit="files") as stage:
        report.verification = export(
            vocabulary,
            folder,
            libraries=_libraries(options.verify, options.verify_transformers),
            fingerprints=_fingerprints(table, config),
        )
        stage.advance(sum(file.is_file() for file in folder.iterdir()))
    report.folder = folder
    report.stages = progress.records
    with publish(folder / "report.json") as temporary:
        temporary.write_bytes(to_json(report.as_json()))


def _libraries(verify: bool, transformers: bool) -> tuple[str, ...] | None:
    if not verify:
        return None
    return (*DEFAULT_LIBRARIES, "transformers") if transformers else DEFAULT_LIBRARIES


def _fingerprints(table: CountTable, config: LearnConfig) -> dict[str, Any]:
    """What the vocabulary was made from: the documents, the table, and the options that decide the result."""
    return {
        "sources": {name: source.digest for name, source in table.sources.items()},
        "counts": table.digest,
        "options": config.model_dump(),
    }


def export_vocabulary(
    path: Path, output: Path, formats: Sequence[str] | None, overwrite: bool, verify: bool, transformers: bool
) -> list[str]:
    """Write a saved vocabulary in the given formats (by default all) to another folder; returns a line a library."""
    chosen_formats(formats)
    if output.exists() and any(output.iterdir()) and not overwrite:
        raise RunError(f"{output} is not empty; name another folder, or use --overwrite.")
    outcome = export(Vocabulary.load(path), output, formats, libraries=_libraries(verify, transformers))
    return [f"{library}: {text}" for library, text in outcome.items()] + [f"files: {output}"]
