"""The whole run, count, learn and export; exports beside others."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from dist_bpe.corpus.heldout import HeldOut
from dist_bpe.counting.table import CountTable
from dist_bpe.errors import RunError, UsageError
from dist_bpe.learning.mixture import Weights
from dist_bpe.learning.options import LearnOptions
from dist_bpe.pretokenize.preparation import SpecialToken, special_token
from dist_bpe.progress import Progress
from dist_bpe.run.config import RunConfig
from dist_bpe.run.count import run_count
from dist_bpe.run.learn import run_learn
from dist_bpe.run.report import RunReport, warn
from dist_bpe.storage.files import RunPath, parse_path, read_json, sizes, to_json, write
from dist_bpe.storage.layout import MANIFEST, REPORT, VOCABULARIES
from dist_bpe.vocabulary.data import check_special_tokens
from dist_bpe.vocabulary.export import DEFAULT_LIBRARIES, export
from dist_bpe.vocabulary.files import chosen_formats, not_carried
from dist_bpe.vocabulary.vocabulary import Vocabulary


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
    run: str | RunPath,
    config: LearnOptions,
    special_tokens: Sequence[SpecialToken] | None = None,
    name: str | None = None,
    overwrite: bool = False,
    verify: bool = True,
    verify_transformers: bool = False,
    dev: HeldOut | None = None,
    progress: Progress | None = None,
) -> RunReport:
    """Learn one more vocabulary from a run folder's table and export it beside the others.

    With `config.parity` on the parallel set `dev`.
    """
    table = CountTable.open(run)
    if special_tokens is None:
        special_tokens = [special_token(text) for text in table.special_tokens]
    else:
        check_special_tokens(special_tokens)
    progress = progress or Progress()
    progress.fields["run"] = str(parse_path(run))
    report = RunReport(str(parse_path(run)), table)
    options = _ExportOptions(run, name, overwrite, verify, verify_transformers)
    _learn_and_export(table, config, special_tokens, options, progress, report, dev)
    return report


@dataclass(frozen=True)
class _ExportOptions:
    """The part of a `RunConfig` that exporting looks at."""

    output: str | RunPath
    name: str | None
    overwrite: bool
    verify: bool
    verify_transformers: bool


def _learn_and_export(
    table: CountTable,
    config: LearnOptions,
    specials: Sequence[SpecialToken],
    options: "RunConfig | _ExportOptions",
    progress: Progress,
    report: RunReport,
    dev: HeldOut | None = None,
) -> None:
    config.merges(specials)
    one = len(config.vocab_size) == 1
    folders = {}
    for size in config.vocab_size:
        name = str(size) if options.name is None else options.name if one else f"{options.name}-{size}"
        folders[size] = parse_path(options.output) / VOCABULARIES / name
    if not options.overwrite:
        weights = None if config.parity else config.mixture.weights(table.sizes(config.mixture.unit))
        _refuse_finished(folders, lambda size: _fingerprints(table, _of_size(config, size), specials, weights, dev))
    made: dict[int, _Made] = {}
    for part in _trainings(config):
        found = RunReport(report.output, table)
        largest, learned, weights = run_learn(table, part, specials, progress, found, dev)
        for size in part.vocab_size:
            vocabulary = largest
            if size < part.largest:
                vocabulary = largest.cut(min(size, part.largest - part.merges(specials) + len(learned)))
                if part.pad_to_multiple:
                    vocabulary = Vocabulary(vocabulary.data.padded(part.pad_to_multiple))
            made[size] = _Made(vocabulary, found.chosen[: size - part.largest + part.merges(specials)])
        report.curve |= found.curve
        report.mixture, report.chosen = found.mixture, found.chosen
        report.warnings += [text for text in found.warnings if text not in report.warnings]
    report.vocabulary, report.requested_size = made[config.largest].vocabulary, config.largest
    report.bytes_per_token = report.curve[config.largest]
    with progress.stage("export", unit="files") as stage:
        for size, folder in folders.items():
            made[size].verification = report.verification = export(
                made[size].vocabulary,
                folder,
                libraries=_libraries(options.verify, options.verify_transformers),
                fingerprints=_fingerprints(table, _of_size(config, size), specials, weights, dev),
            )
            stage.advance(len(sizes(folder)))
            report.folders.append(folder)
    for text in not_carried(made[config.largest].vocabulary.data):
        warn(progress, report, text)
    report.stages = progress.records
    for size, folder in folders.items():
        own = replace(
            report,
            vocabulary=made[size].vocabulary,
            requested_size=size,
            bytes_per_token=report.curve[size],
            chosen=made[size].chosen,
            verification=made[size].verification,
        )
        write(folder / REPORT, to_json(own.as_json()))


@dataclass
class _Made:
    """What was learned for one size, and what each library said of its files."""

    vocabulary: Vocabulary
    chosen: list[str | None]
    verification: dict[str, str] = field(default_factory=dict)


def _trainings(config: LearnOptions) -> list[LearnOptions]:
    """The trainings that give all sizes: one to the largest, from which the others are cut.

    But `hybrid` takes the first half of the merges otherwise than the second, so that each size is trained by itself.
    """
    return [_of_size(config, size) for size in config.vocab_size] if config.parity == "hybrid" else [config]


def _of_size(config: LearnOptions, size: int) -> LearnOptions:
    return config.model_copy(update={"vocab_size": (size,)})


def _refuse_finished(folders: Mapping[int, RunPath], fingerprints: Callable[[int], dict[str, Any]]) -> None:
    """Refuse vocabularies that stand there, but not those that this very command left unfinished when it was killed.

    Raises:
        RunError: one was made otherwise, or all were finished: the report comes last.
    """
    whole = 0
    for size, folder in folders.items():
        if (folder / MANIFEST).exists():
            values = read_json(folder / MANIFEST)
            found = values.get("fingerprints") if isinstance(values, dict) else None
            whole += (folder / REPORT).exists()
            if found != json.loads(to_json(fingerprints(size))) or whole == len(folders):
                raise RunError(f"{folder} is there already; choose another --name, or replace it with --overwrite.")


def _libraries(verify: bool, transformers: bool) -> tuple[str, ...] | None:
    if not verify:
        return None
    return (*DEFAULT_LIBRARIES, "transformers") if transformers else DEFAULT_LIBRARIES


def _fingerprints(
    table: CountTable,
    config: LearnOptions,
    specials: Sequence[SpecialToken],
    weights: Weights | None,
    dev: HeldOut | None,
) -> dict[str, Any]:
    """What the vocabulary was made from: the documents, the table, and the options that decide the result.

    Special tokens are in it where they are others than those of the table, which `counts` stands for.
    """
    own = [special_token(text) for text in table.special_tokens]
    return {
        "sources": {name: source.digest for name, source in table.sources.items()},
        "counts": table.digest,
        # The weights decide, not the words they were asked for with: equal ones shall give equal bytes.
        "options": config.model_dump(exclude={"driver_memory", "mixture"}),
        **({} if weights is None or weights.natural else {"mixture": weights.fingerprint()}),
        **({} if list(specials) == own else {"special_tokens": [asdict(token) for token in specials]}),
        **({"development": dev.digest()} if dev and config.parity else {}),
    }


def export_vocabulary(
    path: str | RunPath,
    output: str | RunPath,
    formats: Sequence[str] | None,
    overwrite: bool,
    verify: bool,
    transformers: bool,
) -> list[str]:
    """Write a saved vocabulary in the given formats (by default all) to another folder; returns a line a library."""
    chosen_formats(formats)
    output = parse_path(output)
    if output.exists() and any(output.iterdir()) and not overwrite:
        raise RunError(f"{output} is not empty; name another folder, or use --overwrite.")
    vocabulary = Vocabulary.load(path)
    outcome = export(vocabulary, output, formats, libraries=_libraries(verify, transformers))
    return [
        *(f"{library}: {text}" for library, text in outcome.items()),
        *(f"warning: {text}" for text in not_carried(vocabulary.data, formats)),
        f"files: {output}",
    ]
