"""The whole run, count, learn and export; exports beside others."""

import contextlib
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, NamedTuple

from dist_bpe.corpus.heldout import HeldOut
from dist_bpe.counting.table import CountTable
from dist_bpe.errors import FormatError, RunError, UsageError
from dist_bpe.learning.mixture import Weights
from dist_bpe.learning.options import LearnOptions
from dist_bpe.pretokenize.checks import resolve
from dist_bpe.pretokenize.preparation import SpecialToken
from dist_bpe.progress import Progress
from dist_bpe.run.config import ExportOptions, RunConfig
from dist_bpe.run.count import Counted, run_count
from dist_bpe.run.learn import Training, run_learn
from dist_bpe.run.report import RunReport
from dist_bpe.run.resume import claimed
from dist_bpe.storage.files import RunPath, parse_path, read_json, sizes, to_json, write
from dist_bpe.storage.layout import COUNTS, REPORT, VOCABULARIES
from dist_bpe.vocabulary.data import check_special_tokens
from dist_bpe.vocabulary.export import DEFAULT_LIBRARIES, export, refuse_uncarried
from dist_bpe.vocabulary.files import chosen_formats, not_carried, read_manifest
from dist_bpe.vocabulary.files import write as write_formats
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
    if not any(source.group_by for source in config.sources):  # else the names are in the text
        config.learn.mixture.check_names(sorted({source.name for source in config.sources}))
    refuse_uncarried(resolve(config.count.pattern), config.formats, libraries_of(config))
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
    """Learn vocabularies of all sizes from a run's table, and export each beside the others.

    Those that are there already, of the same table and options, are left as they are.

    Raises:
        RunError: a vocabulary of a name is there that was made otherwise, or another process makes it at this moment.
    """
    table = counted.table
    # The folder `counts` may have been named itself; vocabularies lie beside it, and not in it.
    place = table.folder.parent if table.folder.name == COUNTS else parse_path(run)
    check_special_tokens(specials)
    options.merges(specials)
    refuse_uncarried(resolve(table.pattern), export_options.formats, libraries_of(export_options))
    folders = _folders(place, options, export_options)
    origin = Origin(table, specials, dev)
    with claimed(place, VOCABULARIES, (folder.name for folder in folders.values()), progress):
        # A run that begins anew makes its vocabularies anew.
        overwrite = export_options.overwrite or export_options.restart
        if not overwrite:
            weights = None if options.parity else options.mixture.weights(table.sizes(options.mixture.unit))
            wanted = {size: origin.fingerprints(_of_size(options, size), weights) for size in folders}
            if _finished(folders, wanted, export_options.formats):
                for folder in folders.values():
                    progress.say(f"learn: {folder} is there already, of the same table and options.")
                return _report_of(folders, str(run), counted, options, progress)
        made: dict[int, _Made] = {}
        for part in _trainings(options):
            training = run_learn(table, part, specials, dev, progress)
            made |= {size: _Made(training, part, size, specials) for size in part.vocab_size}
        with progress.stage("export", unit="files") as stage:
            for size, folder in folders.items():
                made[size].verification = export(
                    made[size].vocabulary,
                    folder,
                    export_options.formats,
                    libraries=libraries_of(export_options),
                    fingerprints=origin.fingerprints(_of_size(options, size), made[size].training.weights),
                    overwrite=overwrite,
                )
                stage.advance(len(sizes(folder)))
        for text in not_carried(made[options.largest].vocabulary.data, export_options.formats):
            progress.warn(text)
        curve = {size: made[size].training.curve[size] for size in options.vocab_size}
        for size, folder in folders.items():
            weights = made[size].training.weights
            report = RunReport(
                str(run),
                table,
                progress.records,
                made[size].vocabulary,
                size,
                weights.rows() if weights and not weights.natural else [],
                curve[size],
                curve,
                made[size].chosen,
                list(folders.values()),
                made[size].verification,
                progress.warnings,
                counted.left_out,
            )
            write(folder / REPORT, to_json(report.as_json()))
    return report  # of the largest, which comes last


def _report_of(
    folders: Mapping[int, RunPath], run: str, counted: Counted, options: LearnOptions, progress: Progress
) -> RunReport:
    """The report of vocabularies that were there already: of the largest, from what was written beside it."""
    folder = folders[options.largest]
    with contextlib.suppress(FormatError):  # it lies outside of what is checked, and may be damaged
        then = read_json(folder / REPORT)
    report = RunReport(run, counted.table, progress.records, Vocabulary.load(folder), options.largest)
    report.folders, report.warnings, report.left_out = list(folders.values()), progress.warnings, counted.left_out
    with contextlib.suppress(AttributeError, KeyError, TypeError, ValueError, UnboundLocalError):
        numbers = ("raw", "used", "multiplier")
        mixture = [(str(row["source"]), *(float(row[name]) for name in numbers)) for row in then["mixture"]]
        curve = {int(size): {name: float(x) for name, x in ratios.items()} for size, ratios in then["curve"].items()}
        report.chosen = [None if name is None else str(name) for name in then["chosen"]]
        report.bytes_per_token = {name: float(x) for name, x in then["bytes_per_token"].items()}
        report.mixture, report.curve = mixture, curve  # type: ignore[assignment]
    return report


class _Made:
    """What was learned for one size, and what each library said of its files."""

    def __init__(self, training: Training, options: LearnOptions, size: int, specials: Sequence[SpecialToken]) -> None:
        self.training = training
        merges = options.merges(specials) - (options.largest - size)
        self.chosen = training.chosen[:merges]
        self.verification: dict[str, str] = {}
        self.vocabulary = training.vocabulary
        if size < options.largest:
            self.vocabulary = training.vocabulary.cut(min(size, size - merges + len(training.learned)))
            if options.pad_to_multiple:
                self.vocabulary = Vocabulary(self.vocabulary.data.padded(options.pad_to_multiple))


def _trainings(options: LearnOptions) -> list[LearnOptions]:
    """The trainings that give all sizes: one to the largest, from which the others are cut.

    But `hybrid` takes the first half of the merges otherwise than the second, so that each size is trained by itself.
    """
    return [_of_size(options, size) for size in options.vocab_size] if options.parity == "hybrid" else [options]


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


def _finished(
    folders: Mapping[int, RunPath], wanted: Mapping[int, dict[str, Any]], formats: Sequence[str] | None
) -> bool:
    """Whether all vocabularies are there, made as they would be now; some may be, where this very command was killed.

    Raises:
        RunError: one was made otherwise.
    """
    whole = 0
    for size, folder in folders.items():
        found = read_manifest(folder)
        if found is None:
            continue
        chosen = [format for format in chosen_formats(formats) if format.name not in found.left_out]
        names = {name for format in chosen for name in format.files}
        if found.fingerprints != json.loads(to_json(wanted[size])) or set(found.files) != names:
            raise RunError(
                f"{folder} is there already, and was made from another table or by other options; choose another "
                "--name, or replace it with --overwrite."
            )
        whole += (folder / REPORT).exists()  # which comes last
    return whole == len(folders)


def libraries_of(options: ExportOptions) -> tuple[str, ...] | None:
    """The libraries that exported files are read in; None for none."""
    if not options.verify:
        return None
    return (*DEFAULT_LIBRARIES, "transformers") if options.verify_transformers else DEFAULT_LIBRARIES


class Origin(NamedTuple):
    """What vocabularies are made from."""

    table: CountTable
    specials: Sequence[SpecialToken]
    dev: HeldOut | None

    def fingerprints(self, options: LearnOptions, weights: Weights | None) -> dict[str, Any]:
        """The documents, the table, and the options that decide the result, for the manifest.

        Special tokens are in it where they are others than those of the table, which `counts` stands for.
        """
        own = list(self.specials) == self.table.specials
        return {
            "sources": {name: source.digest for name, source in self.table.sources.items()},
            "counts": self.table.digest,
            # The weights decide, not the words they were asked for with: equal ones shall give equal bytes.
            "options": options.model_dump(exclude={"driver_memory", "mixture", "strict"}),
            **({} if weights is None or weights.natural else {"mixture": weights.fingerprint()}),
            **({} if own else {"special_tokens": [asdict(token) for token in self.specials]}),
            **({"development": self.dev.digest()} if self.dev and options.parity else {}),
        }


def export_vocabulary(path: str | RunPath, output: str | RunPath, options: ExportOptions) -> list[str]:
    """Write a saved vocabulary in the formats asked for to another folder; returns a line a library."""
    vocabulary = Vocabulary.load(path)
    outcome, fresh = exported(vocabulary, output, options)
    lines = [f"{library}: {text}" for library, text in outcome.items()]
    if fresh:
        lines += [f"warning: {text}" for text in not_carried(vocabulary.data, options.formats)]
        lines.append(f"files: {parse_path(output)}")
    return lines


def exported(vocabulary: Vocabulary, output: str | RunPath, options: ExportOptions) -> tuple[dict[str, str], bool]:
    """Write a vocabulary to a folder that is empty, or holds these very files; what `export` gives, and whether it did.

    Raises:
        RunError: the folder holds something else, and is not to be overwritten.
    """
    output = parse_path(output)
    if output.exists() and any(output.iterdir()) and not options.overwrite:
        found = read_manifest(output)
        files = write_formats(vocabulary.data, options.formats)[0]
        hashes = {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
        if found is None or {name: file.sha256 for name, file in found.files.items()} != hashes:
            raise RunError(f"{output} is not empty; name another folder, or use --overwrite.")
        Vocabulary.load(output)
        return {"files": f"{output} has these files already"}, False
    libraries = libraries_of(options)
    return export(vocabulary, output, options.formats, libraries=libraries, overwrite=options.overwrite), True
