"""What a vocabulary costs: tokens by language on a count table, on held-out text, on parallel sets; never a verdict.

All ratios are of totals, never means over documents. "Total" is over all text together, "macro" the mean of the
languages' ratios. None of these numbers predicts how good a model will be (arXiv 2402.14614, 2310.08754).
"""

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import regex

from dist_bpe import _core
from dist_bpe.arrays import of_numpy, to_numpy
from dist_bpe.corpus.heldout import HeldOut, words_of
from dist_bpe.counting.table import CountTable, dropped_words, word_starts
from dist_bpe.errors import UsageError, several
from dist_bpe.evaluation.options import MeasureOptions
from dist_bpe.evaluation.tokenizers import Tokenizer
from dist_bpe.formulas import RENYI_ALPHA, gini, renyi_efficiency
from dist_bpe.pretokenize.patterns import find
from dist_bpe.tables import Tabular, arrow_table
from dist_bpe.vocabulary.data import BYTES, merge_columns
from dist_bpe.vocabulary.vocabulary import Vocabulary

SEGMENTERS = {
    "whitespace": "runs of what is not white space",
    "unicode": "words by Unicode's rules (UAX 29) that hold a letter or number; Thai, Khmer, Chinese are cut finer",
}


RATIOS = ("bytes_per_token", "characters_per_token", "fertility", "continued_words")


@dataclass
class Measured:
    """Totals of one language; what was not measured is 0.

    Bytes, characters and tokens are of one and the same text: the documents as they stand, or on a count table the
    words that it holds. `special_tokens` were cut out before these and are in none of them.
    """

    documents: int = 0
    bytes: int = 0
    characters: int = 0
    tokens: int = 0
    words: int = 0
    word_tokens: int = 0
    continued: int = 0
    special_tokens: int = 0

    def ratios(self) -> dict[str, float]:
        """Bytes and characters per token, fertility, continued words; only those that were measured."""
        pairs = {
            "bytes_per_token": (self.bytes, self.tokens),
            "characters_per_token": (self.characters, self.tokens),
            "fertility": (self.word_tokens, self.words),
            "continued_words": (self.continued if self.words else 0, self.words),
        }
        return {name: a / b for name, (a, b) in pairs.items() if b and (a or name == "continued_words")}


@dataclass(repr=False)
class Evaluation(Tabular):
    """What one tokenizer costs on one corpus; as a table, a row for each language.

    Attributes:
        name: the tokenizer's name, and `size` its nominal number of tokens.
        corpus: what it was measured on, and `segmenter` what its words are.
        languages: totals by language.
        frequencies: occurrences of each id over all languages.
        reference: the language that premiums compare with; None where the text is not parallel.
        curve: (vocabulary size, tokens by language) of the vocabularies cut from this one; of a tokenizer that another
            library reads its own size alone.
        retained: shares of a word list that are one token, bare and after a space.
        notes: sentences on what the numbers do not tell.
        dimension: the width of the embeddings, for the size curve.
    """

    name: str
    size: int
    corpus: str
    segmenter: str
    languages: dict[str, Measured]
    frequencies: npt.NDArray[np.uint64]
    reference: str | None = None
    curve: list[tuple[int, dict[str, int]]] = field(default_factory=list)
    retained: dict[str, float] | None = None
    notes: list[str] = field(default_factory=list)
    dimension: int = MeasureOptions.model_fields["dimension"].default

    def _described(self) -> str:
        values = self.summary()
        shown = [f"{values['bytes_per_token']:.3f} bytes per token"] if "bytes_per_token" in values else []
        shown += [f"{several(len(self.languages), 'language')}"]
        shown += [f"Gini {values['gini']:.4f}, worst premium {values['worst_premium']:.3f}"] if self.reference else []
        return f"<Evaluation of {self.name!r} ({self.size:,} tokens) on {self.corpus}: {', '.join(shown)}>"

    def to_arrow(self) -> pa.Table:
        """A row for each language: its totals and ratios, and on a parallel set its premium."""
        return arrow_table(self.rows())

    def rows(self) -> dict[str, list[Any]]:
        """The columns of `to_arrow`."""
        tokens = {name: measured.tokens for name, measured in self.languages.items()}
        ratios = [measured.ratios() for measured in self.languages.values()]
        columns: dict[str, list[Any]] = {"language": list(self.languages)}
        for name in vars(Measured()):
            columns[name] = [getattr(measured, name) for measured in self.languages.values()]
        for name in RATIOS:
            columns[name] = [ratio.get(name) for ratio in ratios]
        if self.reference is not None:
            columns["premium"] = list(self.premiums(tokens).values())
        return columns

    def summary(self) -> dict[str, float]:
        """Over all languages: totals, macro means, and on a parallel set the measures of evenness."""
        whole = Measured()
        for name in vars(whole):
            setattr(whole, name, sum(getattr(measured, name) for measured in self.languages.values()))
        ratios = [measured.ratios() for measured in self.languages.values()]
        values = {"tokens": float(whole.tokens)}
        for name, total in whole.ratios().items():
            values[name] = total
            values[f"macro_{name}"] = float(np.mean([ratio[name] for ratio in ratios if name in ratio]))
        values["renyi_nominal"] = renyi_efficiency(self.frequencies, self.size)
        values["renyi_observed"] = renyi_efficiency(self.frequencies, int((self.frequencies > 0).sum()))
        return values | self.evenness({name: measured.tokens for name, measured in self.languages.items()})

    def evenness(self, tokens: Mapping[str, int]) -> dict[str, float]:
        """Premiums (mean over all but the reference, and worst), Gini and max/min of a parallel set's tokens."""
        if self.reference is None:
            return {}
        premiums = self.premiums(tokens)
        others = [premium for name, premium in premiums.items() if name != self.reference]
        return {
            "mean_premium": float(np.mean(others)) if others else 1.0,
            "worst_premium": max(premiums.values()),
            "gini": gini(list(tokens.values())),
            "max_over_min": max(tokens.values()) / max(1, min(tokens.values())),
            "worst_tokens": float(max(tokens.values())),
        }

    def premiums(self, tokens: Mapping[str, int]) -> dict[str, float]:
        """Tokens of each language against the reference's for the same text."""
        reference = tokens[self.reference or ""]
        return {name: number / reference for name, number in tokens.items()}

    def worst(self) -> str:
        """The language that pays most: tokens of a parallel set, else bytes per token."""
        if self.reference is not None:
            return max(self.languages, key=lambda name: (self.languages[name].tokens, name))
        return min(self.languages, key=lambda name: (self.languages[name].ratios().get("bytes_per_token", 0), name))

    def size_curve(self, dimension: int | None = None) -> list[dict[str, float]]:
        """For each cut size: embedding parameters size x dimension, bytes per token, evenness."""
        dimension = self.dimension if dimension is None else dimension
        rows = []
        for size, tokens in self.curve:
            ratios = [m.bytes / tokens[name] for name, m in self.languages.items() if tokens[name]]
            total = sum(tokens.values())
            rows.append(
                {
                    "size": size,
                    "embedding_parameters": size * dimension,
                    "tokens": total,
                    "bytes_per_token": sum(m.bytes for m in self.languages.values()) / total if total else 0.0,
                    "macro_bytes_per_token": float(np.mean(ratios)) if ratios else 0.0,
                    **self.evenness(tokens),
                }
            )
        return rows

    def as_json(self, dimension: int | None = None) -> dict[str, Any]:
        """Everything as plain values."""
        tokens = {name: measured.tokens for name, measured in self.languages.items()}
        premiums = self.premiums(tokens) if self.reference is not None else {}
        return {
            "tokenizer": self.name,
            "size": self.size,
            "corpus": self.corpus,
            "segmenter": self.segmenter,
            "summary": self.summary() | {"worst_language": self.worst()},
            "renyi_alpha": RENYI_ALPHA,
            "reference": self.reference,
            "languages": {
                name: vars(measured)
                | measured.ratios()
                | ({"premium": premiums[name], "surcharge": premiums[name] - 1} if premiums else {})
                for name, measured in self.languages.items()
            },
            "curve": self.size_curve(dimension),
            "retained": self.retained,
            "notes": self.notes,
        }


@dataclass(repr=False)
class Comparison(Tabular):
    """What several tokenizers cost on the same corpus; as a table, a row for each of them and each language.

    Attributes:
        evaluations: one for each tokenizer.
    """

    evaluations: list[Evaluation]

    def _described(self) -> str:
        each = ", ".join(
            f"{evaluation.name} {evaluation.summary().get('bytes_per_token', 0.0):.3f}"
            for evaluation in self.evaluations[:4]
        )
        more = ", …" if len(self.evaluations) > 4 else ""
        where = f" on {self.evaluations[0].corpus}" if self.evaluations else ""
        return f"<Comparison of {several(len(self.evaluations), 'tokenizer')}{where}; bytes per token: {each}{more}>"

    def __iter__(self) -> Iterator[Evaluation]:
        return iter(self.evaluations)

    def __len__(self) -> int:
        return len(self.evaluations)

    def __getitem__(self, number: int) -> Evaluation:
        return self.evaluations[number]

    def to_arrow(self) -> pa.Table:
        """A row for each tokenizer and language: its name and size, then as in `Evaluation.to_arrow`."""
        columns: dict[str, list[Any]] = {"tokenizer": [], "size": []}
        for evaluation in self.evaluations:
            rows = evaluation.rows()
            columns["tokenizer"] += [evaluation.name] * len(evaluation.languages)
            columns["size"] += [evaluation.size] * len(evaluation.languages)
            for name, values in rows.items():
                columns.setdefault(name, []).extend(values)
        return arrow_table(columns)


def segment(text: str, segmenter: str) -> list[str]:
    """The words of a text, each with the one space before it if there is one: tokens of words in place, not alone."""
    if segmenter == "whitespace":
        return list(regex.findall(r" ?\S+", text))
    words = []
    pieces = regex.split(r"(?w)\b", text)
    for before, piece in itertools.pairwise(["", *pieces]):
        if regex.search(r"[\p{L}\p{N}]", piece):
            words.append(" " + piece if before.endswith(" ") else piece)
    return words


# ---- measuring


def measure(
    tokenizer: Tokenizer, corpus: HeldOut | CountTable, options: MeasureOptions, word_list: Sequence[str]
) -> Evaluation:
    """Measure a tokenizer on text or on a table; see `on_texts` and `on_table`.

    Args:
        tokenizer: what is measured.
        corpus: what it is measured on.
        options: how.
        word_list: the words of `options`, which are read once for all tokenizers.

    Raises:
        UsageError: a tokenizer of another library, on a table; or see there.
    """
    if isinstance(corpus, HeldOut):
        evaluation = on_texts(
            tokenizer, corpus, reference=options.reference, segmenter=options.segmenter, word_list=word_list
        )
    else:
        evaluation = on_table(tokenizer.for_words(), tokenizer.name, corpus)
    evaluation.dimension = options.dimension
    return evaluation


def on_texts(
    tokenizer: Tokenizer,
    corpus: HeldOut,
    *,
    reference: str | None = None,
    segmenter: str = "whitespace",
    word_list: Sequence[str] = (),
) -> Evaluation:
    """Measure a tokenizer on text.

    Args:
        tokenizer: what is measured.
        corpus: the text.
        reference: for a parallel corpus, see `HeldOut.reference`.
        segmenter: a name in `SEGMENTERS`.
        word_list: words whose single-token retention rate is asked for.

    Raises:
        UsageError: an unknown segmenter or reference.
    """
    if segmenter not in SEGMENTERS:
        raise UsageError(f"unknown segmenter {segmenter!r}; there are: {', '.join(SEGMENTERS)}.")
    frequencies = np.zeros(tokenizer.size, np.uint64)
    languages = {}
    for name, texts in corpus.texts.items():
        ids = np.fromiter(itertools.chain.from_iterable(tokenizer.encode(texts)), np.int64)
        counted = np.bincount(ids, minlength=len(frequencies)).astype(np.uint64)
        if len(counted) > len(frequencies):  # ids with gaps between them
            frequencies = np.pad(frequencies, (0, len(counted) - len(frequencies)))
        frequencies += counted
        words: dict[str, int] = {}
        for text in texts:
            for word in segment(text, segmenter):
                words[word] = words.get(word, 0) + 1
        lengths = [len(found) for found in tokenizer.encode(list(words))]
        languages[name] = Measured(
            documents=len(texts),
            bytes=sum(len(text.encode()) for text in texts),
            characters=sum(map(len, texts)),
            tokens=len(ids),
            words=sum(words.values()),
            word_tokens=sum(n * count for n, count in zip(lengths, words.values(), strict=True)),
            continued=sum(count for n, count in zip(lengths, words.values(), strict=True) if n > 1),
        )
    evaluation = Evaluation(
        tokenizer.name, tokenizer.size, corpus.name, f"{segmenter}: {SEGMENTERS[segmenter]}", languages, frequencies
    )
    if corpus.documents is not None:
        evaluation.reference = corpus.reference(reference)
    if tokenizer.vocabulary is None:  # nothing is known of smaller ones
        evaluation.curve = [(tokenizer.size, {name: measured.tokens for name, measured in languages.items()})]
    else:
        vocabulary = tokenizer.vocabulary
        batches = words_of(corpus, vocabulary.pattern, vocabulary.normalization)
        evaluation.curve = _curve(vocabulary, batches, list(languages))
    if word_list:
        evaluation.retained = {
            kind: sum(len(ids) == 1 for ids in tokenizer.encode([space + word for word in word_list])) / len(word_list)
            for kind, space in (("bare", ""), ("after a space", " "))
        }
    return evaluation


def on_table(vocabulary: Vocabulary, name: str, table: CountTable) -> Evaluation:
    """Measure a vocabulary on a whole corpus by its count table: each unique word is encoded once.

    Words are those of the pattern, as the table has them: those that `min_word_count` dropped are in no number here,
    and those that `max_word_bytes` cut stand there in pieces. Special tokens are counted apart.

    Raises:
        UsageError: the table was counted with another pattern, so its words are not what this vocabulary encodes.
    """
    if (find(table.pattern), table.normalization) != (vocabulary.pattern, vocabulary.normalization):
        raise UsageError(
            f"{name} cuts text by the pattern {vocabulary.pattern.name or vocabulary.pattern.regex!r} (normalization: "
            f"{vocabulary.normalization}) and the table was counted with {table.pattern!r} ({table.normalization}): "
            "measure it on text instead, with --text or --parallel."
        )
    sources = list(table.sources)
    languages = {
        name: Measured(documents=source.documents, special_tokens=source.special_tokens)
        for name, source in table.sources.items()
    }
    encoder = _core.Encoder(*merge_columns(vocabulary.data.merges), None, [], [], 0)
    shape = len(sources)
    frequencies = np.zeros(BYTES + len(vocabulary.data.merges), np.uint64)
    tokens, words, continued, characters, sizes = (np.zeros(shape, np.uint64) for _ in range(5))
    for batch in table.batches():
        column, source, count = batch.column(0), to_numpy(batch.column(1)), to_numpy(batch.column(2))
        # A word is encoded once, whatever the number of its rows.
        starts = word_starts(column)
        ids, ends = encoder.encode_words(column.take(of_numpy(starts)))
        lengths = np.diff(to_numpy(ends))
        row_lengths = np.repeat(lengths, np.diff(np.append(starts, len(column)))).astype(np.uint64)
        occurrences = np.add.reduceat(count, starts) if len(count) else count
        # No sum here passes the number of bytes in the corpus, which was checked against 2^64.
        np.add.at(frequencies, to_numpy(ids), np.repeat(occurrences, lengths))
        np.add.at(tokens, source, row_lengths * count)
        np.add.at(words, source, count)
        np.add.at(continued, source, count * (row_lengths > 1))
        length = to_numpy(pc.utf8_length(column.cast(pa.string()))).astype(np.uint64)
        np.add.at(characters, source, length * count)
        np.add.at(sizes, source, to_numpy(pc.binary_length(column)).astype(np.uint64) * count)
    for i, measured in enumerate(languages.values()):
        measured.bytes, measured.characters, measured.tokens = int(sizes[i]), int(characters[i]), int(tokens[i])
        measured.words, measured.word_tokens, measured.continued = int(words[i]), int(tokens[i]), int(continued[i])
    pieces = f", those of more than {table.max_word_bytes:,} bytes in pieces" if table.max_word_bytes else ""
    dropped = dropped_words(table)
    return Evaluation(
        name,
        len(vocabulary),
        f"the count table in {table.folder}",
        f"words of the pattern {vocabulary.pattern.name or vocabulary.pattern.regex}{pieces}",
        languages,
        frequencies,
        curve=_curve(vocabulary, table.batches(), sources),
        notes=[dropped] if dropped else [],
    )


def _curve(
    vocabulary: Vocabulary, batches: Iterable[pa.RecordBatch], names: Sequence[str]
) -> list[tuple[int, dict[str, int]]]:
    """Tokens by language at 512, 1,024, … up to the whole: a merge takes one token away at each place it replaces."""
    replaced, tokens = _core.replay(*merge_columns(vocabulary.data.merges), batches, len(names))
    base = BYTES + len(vocabulary.special_tokens)
    most = base + len(vocabulary.data.merges)
    sizes = [size for size in (1 << power for power in range(9, 40)) if base <= size < most] + [most]
    at_end = [pc.sum(left).as_py() or 0 for left in tokens]
    return [
        (
            size,
            {
                name: at_end[i] + int(to_numpy(replaced[i])[size - base :].sum(dtype=np.uint64))
                for i, name in enumerate(names)
            },
        )
        for size in sizes
    ]
