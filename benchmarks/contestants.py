"""One run of one trainer in a process of its own; prints one line of JSON with what it took.

    python benchmarks/contestants.py NAME TASK INPUT [--pattern gpt2] [--vocab-size 32000] [--level avx2]

Tasks: `train` (text in memory -> word counts -> merges, two phases), `count` (the first phase alone). CPU seconds are
of this process with all its threads; loading the text is outside the phases. Trainers that show no word table are run
twice, once to a vocabulary without merges: that is their count, and the rest of the second run is their learning.
"""

import argparse
import hashlib
import importlib.metadata
import json
import resource
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

GPT2 = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
CL100K = r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"
PATTERNS = {"gpt2": GPT2, "cl100k": CL100K}
BASE = 256

Timed = tuple[float, Any]
Result = dict[str, Any]


def timed(work: Callable[[], Any]) -> Timed:
    began = time.process_time()
    value = work()
    return time.process_time() - began, value


def merges_hash(merges: list[tuple[bytes, bytes]]) -> str:
    """A short hash of a merge list, to see at once whether two trainers found the same."""
    return hashlib.sha256(b"".join(b"%d:%b %b;" % (len(a), a, b) for a, b in merges)).hexdigest()[:16]


PRINTABLE = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
OTHERS = [byte for byte in range(256) if byte not in PRINTABLE]


def byte_level(key: str) -> bytes:
    """The bytes of a token as GPT-2's files write it."""
    return bytes(ord(c) if ord(c) < 256 else OTHERS[ord(c) - 256] for c in key)


def texts_of(path: Path) -> list[str]:
    import pyarrow.parquet as pq

    return pq.read_table(path, columns=["text"]).column(0).to_pylist()  # type: ignore[no-any-return]


def two_runs(train: Callable[[int], Any], vocab_size: int, task: str) -> tuple[Result, Any]:
    count, trained = timed(lambda: train(BASE))
    if task == "count":
        return {"count": count}, trained
    whole, trained = timed(lambda: train(vocab_size))
    return {"count": count, "learn": whole - count}, trained


def dist_bpe(path: Path, pattern: str, vocab_size: int, task: str, level: str | None) -> Result:
    import pyarrow.parquet as pq

    from dist_bpe import _core

    texts = pq.read_table(path, columns=["text"]).column(0).combine_chunks()

    def count() -> list[Any]:
        counter = _core.Counter(1, pattern, [], level)
        counter.count(0, texts)
        return [batch for _, batch in counter.drain(16)]

    seconds, table = timed(count)
    result: Result = {"count": seconds, "unique_words": sum(batch.num_rows for batch in table)}
    if task == "train":
        result["learn"], merges = timed(lambda: _core.learn_merges(_core.Words(table, [1], 1), vocab_size - BASE, 2))
        base = _core.byte_ids()
        tokens = [bytes([byte]) for byte in sorted(range(256), key=base.__getitem__)]
        pairs = []
        for row in merges.to_pylist():
            pairs.append((tokens[row["left"]], tokens[row["right"]]))
            tokens.append(tokens[row["left"]] + tokens[row["right"]])
        result["merges"] = merges_hash(pairs)
    return result


def tokenizers(path: Path, pattern: str, vocab_size: int, task: str, _: str | None) -> Result:
    from tokenizers import Regex, Tokenizer, models, pre_tokenizers, trainers

    texts = texts_of(path)

    def train(size: int) -> Any:
        tokenizer = Tokenizer(models.BPE())
        if pattern == "gpt2":
            tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        else:
            split = pre_tokenizers.Split(Regex(PATTERNS[pattern]), "isolated")
            level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
            tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, level])
        trainer = trainers.BpeTrainer(
            vocab_size=size,
            min_frequency=2,
            show_progress=False,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        )
        tokenizer.train_from_iterator(texts, trainer)
        return tokenizer

    result, tokenizer = two_runs(train, vocab_size, task)
    merges = json.loads(tokenizer.to_str())["model"]["merges"]
    return result | {"merges": merges_hash([(byte_level(a), byte_level(b)) for a, b in merges])}


def gigabpe(path: Path, pattern: str, vocab_size: int, task: str, _: str | None) -> Result:
    import gigabpe as peer

    if pattern != "gpt2":
        raise NotImplementedError("it has no such pattern")
    plain = str(path.with_suffix(".txt"))  # it reads files only

    def train(size: int) -> Any:
        return peer.train_bpe([plain], size, min_frequency=2, pretokenizer="bytelevel", threads=1)

    result, (_, merges) = two_runs(train, vocab_size, task)
    return result | {"merges": merges_hash([(byte_level(a), byte_level(b)) for a, b in merges])}


def rustbpe(path: Path, pattern: str, vocab_size: int, task: str, _: str | None) -> Result:
    import rustbpe as peer

    texts = texts_of(path)

    def train(size: int) -> Any:
        tokenizer = peer.Tokenizer()
        tokenizer.train_from_iterator(iter(texts), size, pattern=PATTERNS[pattern])
        return tokenizer

    return two_runs(train, vocab_size, task)[0]


def ffbpe(path: Path, pattern: str, vocab_size: int, task: str, _: str | None) -> Result:
    from ffbpe import BpeTrainer, PreTokenizer

    texts = texts_of(path)

    def count() -> Any:
        counter = PreTokenizer(special_tokens=[], pat_str=PATTERNS[pattern]).word_counter()
        for first in range(0, len(texts), 1000):
            counter.add_batch(texts[first : first + 1000])
        return counter

    seconds, counter = timed(count)
    result: Result = {"count": seconds}
    if task == "train":

        def learn() -> None:
            trainer = BpeTrainer(special_tokens=[])
            trainer.add_word_counter(counter)
            trainer.init_training()
            trainer.train(vocab_size)

        result["learn"] = timed(learn)[0]
    return result


def bpeasy(path: Path, pattern: str, vocab_size: int, task: str, _: str | None) -> Result:
    import bpeasy as peer

    texts = texts_of(path)
    return two_runs(lambda size: peer.train_bpe(iter(texts), PATTERNS[pattern], 128, size), vocab_size, task)[0]


def sentencepiece(path: Path, pattern: str, vocab_size: int, task: str, _: str | None) -> Result:
    import io

    import sentencepiece as peer

    if pattern != "gpt2" or task != "train":
        raise NotImplementedError("it has its own rule for words, and shows no word counts")
    texts = [line for text in texts_of(path) for line in text.split("\n") if line]

    def train() -> None:
        peer.SentencePieceTrainer.train(
            sentence_iterator=iter(texts), model_writer=io.BytesIO(), model_type="bpe", vocab_size=vocab_size,
            byte_fallback=True, num_threads=1, minloglevel=2, max_sentence_length=1 << 24, character_coverage=0.9995,
        )  # fmt: skip

    return {"count": 0.0, "learn": timed(train)[0], "note": "characters, its own rule for words; whole training"}


CONTESTANTS = {
    function.__name__: function for function in (dist_bpe, tokenizers, gigabpe, rustbpe, ffbpe, bpeasy, sentencepiece)
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=CONTESTANTS)
    parser.add_argument("task", choices=("count", "train"))
    parser.add_argument("input", type=Path)
    parser.add_argument("--pattern", choices=PATTERNS, default="gpt2")
    parser.add_argument("--vocab-size", type=int, default=32_000)
    parser.add_argument("--level")
    arguments = parser.parse_args()
    run = CONTESTANTS[arguments.name]
    result = run(arguments.input, arguments.pattern, arguments.vocab_size, arguments.task, arguments.level)
    result["version"] = importlib.metadata.version(arguments.name)
    usage = resource.getrusage(resource.RUSAGE_SELF)
    result["cpu"] = usage.ru_utime + usage.ru_stime
    result["peak_bytes"] = usage.ru_maxrss * 1024
    print(json.dumps(result))


if __name__ == "__main__":
    main()
