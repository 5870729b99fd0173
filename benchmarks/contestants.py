"""One run of one trainer in a process of its own; prints one line of JSON with what it took.

    python benchmarks/contestants.py NAME TASK PARQUET… [--pattern gpt2] [--vocab-size 32000] [--level avx2] [--out DIR]

Tasks: `train` (text in memory -> word counts -> merges, two phases), `count` (the first alone), `whole` (from Parquet
to the files of a vocabulary, in the folder --out; the process as a whole is measured from outside). CPU seconds are of
this process with all its threads. Loading the text is outside the phases, and their memory is what they take above it.

A new peer is a class here and a line in peers.txt. Trainers that show no word table are run twice, once to a vocabulary
without merges: that is their count, and the rest of the second run is their learning.
"""

import argparse
import contextlib
import ctypes
import gc
import hashlib
import importlib.metadata
import json
import re
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, ClassVar

GPT2 = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
CL100K = r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"
PATTERNS = {"gpt2": GPT2, "cl100k": CL100K}
BASE = 256
CHECKPOINT = 500

Pairs = list[tuple[bytes, bytes]]
Result = dict[str, Any]

PRINTABLE = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
OTHERS = [byte for byte in range(256) if byte not in PRINTABLE]
LETTERS = {byte: chr(byte) if byte in PRINTABLE else chr(256 + OTHERS.index(byte)) for byte in range(256)}


def spelled(token: bytes) -> str:
    """A token as GPT-2's files write it."""
    return "".join(map(LETTERS.__getitem__, token))


def byte_level(key: str) -> bytes:
    """The bytes of a token that GPT-2's files write so."""
    return bytes(ord(c) if ord(c) < 256 else OTHERS[ord(c) - 256] for c in key)


def written(tokens: Iterable[bytes], pairs: Pairs, folder: Path) -> None:
    """GPT-2's two files, for trainers that return what they learned."""
    vocabulary = {spelled(token): number for number, token in enumerate(tokens)}
    (folder / "vocab.json").write_text(json.dumps(vocabulary, ensure_ascii=False))
    (folder / "merges.txt").write_text("".join(f"{spelled(a)} {spelled(b)}\n" for a, b in pairs))


def texts_of(*paths: Path) -> Iterator[str]:
    import pyarrow.parquet as pq

    for path in paths:
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(batch_size=500, columns=["text"], use_threads=False):
                yield from batch.column(0).to_pylist()


class Meter:
    """CPU seconds of pieces of work, and the most memory that they took above what was there before."""

    def __init__(self) -> None:
        gc.collect()
        with contextlib.suppress(ImportError):
            import pyarrow as pa

            pa.default_memory_pool().release_unused()
        ctypes.CDLL(None).malloc_trim(0)
        Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
        self.before = self._memory("VmRSS")

    def _memory(self, what: str) -> int:
        found = re.search(rf"{what}:\s+(\d+) kB", Path("/proc/self/status").read_text())
        assert found
        return int(found[1]) * 1024

    def above(self) -> int:
        return self._memory("VmHWM") - self.before

    def timed(self, work: Callable[[], Any]) -> tuple[float, Any]:
        began = time.process_time()
        value = work()
        return time.process_time() - began, value


class Trainer:
    """A trainer with two steps. It imports its library where it uses it: each has its own environment or process."""

    name: ClassVar[str]
    patterns: ClassVar[tuple[str, ...]] = ("gpt2", "cl100k")
    slow: ClassVar[bool] = False  # measured once, and in whole runs on one small corpus alone
    note: ClassVar[str] = ""
    documents: ClassVar[bool] = True  # whether it counts the words of each document
    pairs_known: ClassVar[bool] = False  # whether `pairs` says what was merged

    def __init__(self, pattern: str, vocab_size: int, level: str | None) -> None:
        self.pattern, self.vocab_size, self.level = pattern, vocab_size, level

    def load(self, path: Path) -> Any:
        """The text in the form in which the trainer takes it."""
        return list(texts_of(path))

    def count(self, texts: Any) -> Any:
        raise NotImplementedError

    def learn(self, counted: Any) -> Any:
        raise NotImplementedError

    def pairs(self, learned: Any) -> Pairs:
        raise NotImplementedError

    def unique_words(self, counted: Any) -> int | None:  # noqa: ARG002
        return None

    def measure(self, texts: Any, task: str, meter: Meter) -> tuple[Result, Any]:
        seconds, counted = meter.timed(lambda: self.count(texts))
        result: Result = {"count": seconds, "unique_words": self.unique_words(counted)}
        if task == "count":
            return result, None
        result["learn"], learned = meter.timed(lambda: self.learn(counted))
        return result, learned

    def save(self, learned: Any, folder: Path) -> None:
        raise NotImplementedError

    def whole(self, paths: list[Path], folder: Path) -> None:
        self.save(self.learn(self.count([text for path in paths for text in texts_of(path)])), folder)


class OneStep(Trainer):
    """A trainer that shows no table of words."""

    def train(self, texts: Any, size: int) -> Any:
        raise NotImplementedError

    def measure(self, texts: Any, task: str, meter: Meter) -> tuple[Result, Any]:
        count, trained = meter.timed(lambda: self.train(texts, BASE))
        if task == "count":
            return {"count": count}, None
        del trained
        whole, trained = meter.timed(lambda: self.train(texts, self.vocab_size))
        return {"count": count, "learn": whole - count}, trained

    def whole(self, paths: list[Path], folder: Path) -> None:
        self.save(self.train(texts_of(*paths), self.vocab_size), folder)


class DistBpe(Trainer):
    """Ours, through the Python binding; its whole run is its command."""

    name = "dist_bpe"
    pairs_known = True

    def load(self, path: Path) -> Any:
        import pyarrow.parquet as pq

        return pq.read_table(path, columns=["text"]).column(0).combine_chunks()

    def count(self, texts: Any) -> Any:
        from dist_bpe import _core

        counter = _core.Counter(1, self.pattern, [], self.level)
        counter.count(0, texts)
        return [batch for _, batch in counter.drain(16)]

    def unique_words(self, counted: Any) -> int | None:
        return int(sum(batch.num_rows for batch in counted))

    def learn(self, counted: Any) -> Any:
        from dist_bpe import _core

        return _core.learn_merges(_core.Words(counted, [1], 1), self.vocab_size - BASE, 2)

    def pairs(self, learned: Any) -> Pairs:
        from dist_bpe import _core

        base = _core.byte_ids()
        tokens = [bytes([byte]) for byte in sorted(range(256), key=base.__getitem__)]
        pairs = []
        for row in learned.to_pylist():
            pairs.append((tokens[row["left"]], tokens[row["right"]]))
            tokens.append(tokens[row["left"]] + tokens[row["right"]])
        return pairs


class Gigatoken(Trainer):
    """One text with a separator in memory, or Parquet; its counting alone is a function of its core."""

    name = "gigatoken"
    patterns = ("gpt2",)
    pairs_known = True
    separator = b"\x00<|end of the document|>\x00"

    def load(self, path: Path) -> Any:
        return self.separator.join(text.encode() for text in texts_of(path))

    def measure(self, texts: Any, task: str, meter: Meter) -> tuple[Result, Any]:
        from gigatoken import train_bpe
        from gigatoken.gigatoken_rs import pretokenized_counts

        count, counted = meter.timed(lambda: pretokenized_counts(texts, self.separator))
        result: Result = {"count": count, "unique_words": len(counted)}
        if task == "count":
            return result, None
        del counted
        whole, trained = meter.timed(lambda: train_bpe(texts, self.vocab_size, [], separator=self.separator))
        return result | {"learn": whole - count}, trained

    def pairs(self, learned: Any) -> Pairs:
        return list(learned[1])

    def whole(self, paths: list[Path], folder: Path) -> None:
        from gigatoken import ParquetFileSource, train_bpe

        vocabulary, pairs = train_bpe(ParquetFileSource(paths, "text"), self.vocab_size, ["<|endoftext|>"])
        written(vocabulary.values(), pairs, folder)


class Gigabpe(OneStep):
    """It reads files of plain text only, and takes all of a file for one document."""

    name = "gigabpe"
    patterns = ("gpt2",)
    note = "from plain text"
    documents = False
    pairs_known = True

    def load(self, path: Path) -> Any:
        return [str(path.with_suffix(".txt"))]

    def train(self, texts: Any, size: int) -> Any:
        import gigabpe

        return gigabpe.train_bpe(texts, size, min_frequency=2, pretokenizer="bytelevel", threads=1)

    def pairs(self, learned: Any) -> Pairs:
        return [(byte_level(a), byte_level(b)) for a, b in learned[1]]

    def whole(self, paths: list[Path], folder: Path) -> None:
        import gigabpe

        gigabpe.train_tokenizer(
            [str(path.with_suffix(".txt")) for path in paths], self.vocab_size, str(folder / "tokenizer.json"),
            special_tokens=["<|endoftext|>"], min_frequency=2, pretokenizer="bytelevel", threads=1,
        )  # fmt: skip


class Tokenizers(OneStep):
    """Hugging Face's, whose merges ours are to be."""

    name = "tokenizers"
    slow = True
    pairs_known = True

    def train(self, texts: Any, size: int) -> Any:
        from tokenizers import Regex, Tokenizer, models, pre_tokenizers, trainers

        tokenizer = Tokenizer(models.BPE())
        if self.pattern == "gpt2":
            tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        else:
            split = pre_tokenizers.Split(Regex(PATTERNS[self.pattern]), "isolated")
            level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
            tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, level])
        trainer = trainers.BpeTrainer(
            vocab_size=size, min_frequency=2, show_progress=False,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        )  # fmt: skip
        tokenizer.train_from_iterator(texts, trainer)
        return tokenizer

    def pairs(self, learned: Any) -> Pairs:
        return [(byte_level(a), byte_level(b)) for a, b in json.loads(learned.to_str())["model"]["merges"]]

    def save(self, learned: Any, folder: Path) -> None:
        learned.save(str(folder / "tokenizer.json"))


class Rustbpe(OneStep):
    """The trainer of a language model for teaching."""

    name = "rustbpe"
    slow = True

    def train(self, texts: Any, size: int) -> Any:
        import rustbpe

        tokenizer = rustbpe.Tokenizer()
        tokenizer.train_from_iterator(iter(texts), size, pattern=PATTERNS[self.pattern])
        return tokenizer

    def save(self, learned: Any, folder: Path) -> None:
        written((bytes(token) for token, _ in learned.get_mergeable_ranks()), [], folder)


class Ffbpe(Trainer):
    """Words are counted in batches, and learned from in place."""

    name = "ffbpe"

    def count(self, texts: Any) -> Any:
        from ffbpe import PreTokenizer

        counter = PreTokenizer(special_tokens=[], pat_str=PATTERNS[self.pattern]).word_counter()
        for first in range(0, len(texts), 1000):
            counter.add_batch(texts[first : first + 1000])
        return counter

    def unique_words(self, counted: Any) -> int | None:
        return int(counted.len)

    def learn(self, counted: Any) -> Any:
        from ffbpe import BpeTrainer

        trainer = BpeTrainer(special_tokens=[])
        trainer.add_word_counter(counted)
        trainer.init_training()
        trainer.train(self.vocab_size)
        return trainer

    def save(self, learned: Any, folder: Path) -> None:
        learned.save_files(folder / "vocab.json", folder / "merges.txt")


class Bpeasy(OneStep):
    """It makes files for tiktoken."""

    name = "bpeasy"
    patterns = ("gpt2",)
    slow = True

    def train(self, texts: Any, size: int) -> Any:
        import bpeasy

        return bpeasy.train_bpe(iter(texts), PATTERNS[self.pattern], 128, size)

    def save(self, learned: Any, folder: Path) -> None:
        import bpeasy

        bpeasy.save_vocab_to_tiktoken(learned, str(folder / "vocab.tiktoken"))


class Sentencepiece(OneStep):
    """Characters with bytes to fall back on, and a rule of its own for words: another task, but a common choice."""

    name = "sentencepiece"
    patterns = ("gpt2",)
    slow = True
    note = "characters, its own rule for words; whole training"
    documents = False

    def train(self, texts: Any, size: int) -> Any:
        import io

        import sentencepiece

        model = io.BytesIO()
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=(line for text in texts for line in text.split("\n") if line), model_writer=model,
            model_type="bpe", vocab_size=size, byte_fallback=True, num_threads=1, minloglevel=2,
            max_sentence_length=1 << 24, character_coverage=0.9995,
        )  # fmt: skip
        return model

    def measure(self, texts: Any, task: str, meter: Meter) -> tuple[Result, Any]:
        # It has no training without merges.
        assert task == "train"
        learn, trained = meter.timed(lambda: self.train(texts, self.vocab_size))
        return {"count": 0.0, "learn": learn}, trained

    def save(self, learned: Any, folder: Path) -> None:
        (folder / "tokenizer.model").write_bytes(learned.getvalue())


OURS = DistBpe.name
TRAINERS: dict[str, type[Trainer]] = {
    trainer.name: trainer
    for trainer in (DistBpe, Gigatoken, Gigabpe, Ffbpe, Rustbpe, Bpeasy, Tokenizers, Sentencepiece)
}


def merges_of(pairs: Pairs) -> Result:
    """How many merges there are, and a hash of the first 500, of the first 1000 …, and of all."""
    digest, found = hashlib.sha256(), []
    for number, (a, b) in enumerate(pairs, 1):
        digest.update(b"%d:%b %b;" % (len(a), a, b))
        if number % CHECKPOINT == 0:
            found.append(digest.hexdigest()[:16])
    return {"merges": len(pairs), "checkpoints": [*found, digest.hexdigest()[:16]]}


def equal_merges(ours: Result, theirs: Result) -> int | None:
    """How many merges two trainers have in common from the first on, in steps of 500, and None where one shows none.

    Equal lists have all in common. A trainer that goes on where others have no pair left that occurs twice has more.
    """
    if "checkpoints" not in ours or "checkpoints" not in theirs:
        return None
    mine, others = ours["checkpoints"], theirs["checkpoints"]
    if mine == others:
        return int(ours["merges"])
    common = next((i for i, pair in enumerate(zip(mine[:-1], others[:-1], strict=False)) if pair[0] != pair[1]), None)
    return CHECKPOINT * (min(len(mine), len(others)) - 1 if common is None else common)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=TRAINERS)
    parser.add_argument("task", choices=("count", "train", "whole"))
    parser.add_argument("inputs", type=Path, nargs="+", metavar="PARQUET")
    parser.add_argument("--pattern", choices=PATTERNS, default="gpt2")
    parser.add_argument("--vocab-size", type=int, default=32_000)
    parser.add_argument("--level", help="of ours: the scanner")
    parser.add_argument("--out", type=Path, help="of whole runs: the folder of the files")
    arguments = parser.parse_args()
    trainer = TRAINERS[arguments.name](arguments.pattern, arguments.vocab_size, arguments.level)
    version = importlib.metadata.version(arguments.name)
    if arguments.task == "whole":
        trainer.whole(arguments.inputs, arguments.out)
        print(json.dumps({"version": version}))
        return
    texts = trainer.load(arguments.inputs[0])
    importlib.import_module(arguments.name)  # outside of the phases
    meter = Meter()
    result, learned = trainer.measure(texts, arguments.task, meter)
    result |= {"version": version, "above_text_bytes": meter.above()}
    if learned is not None and trainer.pairs_known:
        result |= merges_of(trainer.pairs(learned))
    print(json.dumps(result))


if __name__ == "__main__":
    main()
