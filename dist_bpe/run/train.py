"""The whole run, count, learn and export; exports beside others."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dist_bpe.corpus.heldout import HeldOut
from dist_bpe.counting.table import CountTable
from dist_bpe.errors import RunError, UsageError
from dist_bpe.learning.mixture import Weights
from dist_bpe.learning.options import LearnOptions
from dist_bpe.pretokenize.preparation import SpecialToken
from dist_bpe.progress import Progress
from dist_bpe.run.config import ExportOptions, RunConfig
from dist_bpe.run.count import Counted, run_count
from dist_bpe.run.learn import run_learn
from dist_bpe.run.report import RunReport
from dist_bpe.storage.files import RunPath, parse_path, read_json, sizes, to_json, write
from dist_bpe.storage.layout import MANIFEST, REPORT, VOCABULARIES
from dist_bpe.vocabulary.data import check_special_tokens
from dist_bpe.vocabulary.export import DEFAULT_LIBRARIES, export
from dist_bpe.vocabulary.files import not_carried
from dist_bpe.vocabulary.vocabulary import Vocabulary


def train(config: RunConfig, progress: Progress | None = None, dev: HeldOut | None = None) -> RunReport:
    """The whole run: count, learn, export, and reload every file in its own library; with parity on the set `dev`.

    Raises:
        UsageError: an option or input that cannot work; found before counting, and nothing is written then.
        ExportError: a library reads a file otherwise than we do.
    """
    if config.learn is None:
        raise UsageError("the run has no [learn] table; say at least how large the vocabulary is to be: vocab_size.")
    config.learn.merges(config.count.special_tokens)
    progress = progress or Progress()
    counted = run_count(config, progress)
    return learn_and_export(config.output, counted, config.learn, config, config.count.special_tokens, dev, progress)


def learn_and_export(
    run: str | RunPath,
    counted: Counted,
    options: LearnOptions,
    export_options: ExportOptions,
    specials: Sequence[SpecialToken],
    dev: HeldOut | None,
    progress: Progress,
) -> RunReport:
    """Learn vocabularies of all sizes from a run's table, and export each beside the others."""
    table = counted.table
    check_special_tokens(specials)
    wanted = options.merges(specials)
    folders = _folders(parse_path(run), options, export_options)
    if not export_options.overwrite:
        weights = None if options.parity else options.mixture.weights(table.sizes(options.mixture.unit))
        _refuse_finished(folders, lambda size: _fingerprints(table, _of_size(options, size), weights, dev))
    training = run_learn(table, options, specials, dev, progress)
    largest = training.vocabulary
    verification: dict[str, str] = {}
    with progress.stage("export", unit="files") as stage:
        for size, folder in folders.items():
            vocabulary = largest
            if size < options.largest:
                vocabulary = largest.cut(min(size, options.largest - wanted + len(training.learned)))
                if options.pad_to_multiple:
                    vocabulary = Vocabulary(vocabulary.data.padded(options.pad_to_multiple))
            verification = export(
                vocabulary,
                folder,
                export_options.formats,
                libraries=libraries_of(export_options),
                fingerprints=_fingerprints(table, _of_size(options, size), training.weights, dev),
            )
            stage.advance(len(sizes(folder)))
    for text in not_carried(largest.data, export_options.formats):
        progress.warn(text)
    natural = training.weights is None or training.weights.natural
    report = RunReport(
        str(run),
        table,
        progress.records,
        largest,
        options.largest,
        [] if natural or not training.weights else training.weights.rows(),
        training.curve.get(options.largest, {}),
        training.curve,
        training.chosen,
        list(folders.values()),
        verification,
        progress.warnings,
        counted.left_out,
    )
    for folder in report.folders:
        write(folder / REPORT, to_json(report.as_json()))
    return report


def _folders(run: RunPath, options: LearnOptions, export_options: ExportOptions) -> dict[int, RunPath]:
    """Where the vocabulary of each size goes."""
    name = export_options.name
    if name is None:
        return {size: run / VOCABULARIES / str(size) for size in options.vocab_size}
    if len(options.vocab_size) == 1:
        return {options.largest: run / VOCABULARIES / name}
    return {size: run / VOCABULARIES / f"{name}-{size}" for size in options.vocab_size}


def _of_size(options: LearnOptions, size: int) -> LearnOptions:
    return options.model_copy(update={"vocab_size": (size,)})


def _refuse_finished(folders: Mapping[int, RunPath], fingerprints: Callable[[int], dict[str, Any]]) -> None:
    """Refuse vocabularies that stand there, but not those that this very command left unfinished when it was killed.

    Raises:
        RunError: one was made otherwise, or all were finished: the report comes last.
    """
    whole = 0
    for size, folder in folders.items():
        if (folder / MANIFEST).exists():
            found = read_json(folder / MANIFEST).get("fingerprints")
            whole += (folder / REPORT).exists()
            if found != json.loads(to_json(fingerprints(size))) or whole == len(folders):
                raise RunError(f"{folder} is there already; choose another --name, or replace it with --overwrite.")


def libraries_of(options: ExportOptions) -> tuple[str, ...] | None:
    """The libraries that exported files are read in; None for none."""
    if not options.verify:
        return None
    return (*DEFAULT_LIBRARIES, "transformers") if options.verify_transformers else DEFAULT_LIBRARIES


def _fingerprints(
    table: CountTable, options: LearnOptions, weights: Weights | None, dev: HeldOut | None
) -> dict[str, Any]:
    """What the vocabulary was made from: the documents, the table, and the options that decide the result."""
    return {
        "sources": {name: source.digest for name, source in table.sources.items()},
        "counts": table.digest,
        # The weights decide, not the words they were asked for with: equal ones shall give equal bytes.
        "options": options.model_dump(exclude={"driver_memory", "mixture"}),
        **({} if weights is None or weights.natural else {"mixture": weights.fingerprint()}),
        **({"development": dev.digest()} if dev and options.parity else {}),
    }


def export_vocabulary(path: str | RunPath, output: str | RunPath, options: ExportOptions) -> list[str]:
    """Write a saved vocabulary in the formats asked for to another folder; returns a line a library."""
    output = parse_path(output)
    if output.exists() and any(output.iterdir()) and not options.overwrite:
        raise RunError(f"{output} is not empty; name another folder, or use --overwrite.")
    vocabulary = Vocabulary.load(path)
    outcome = export(vocabulary, output, options.formats, libraries=libraries_of(options))
    return [
        *(f"{library}: {text}" for library, text in outcome.items()),
        *(f"warning: {text}" for text in not_carried(vocabulary.data, options.formats)),
        f"files: {output}",
    ]
