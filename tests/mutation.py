"""Damage to files, and the ways a program can end over it: what tests of everything that is read have in common.

`mutations` makes damaged twins of a small valid file. `outcome` runs a function in a forked child under limits and says
how it ended. `campaign` puts both together and gives what may not be: signals, tracebacks, hangs, and other results
where a checksum promises that there is none.
"""

import contextlib
import gc
import json
import os
import pickle
import random
import resource
import select
import signal
import struct
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from dist_bpe.errors import DistBpeError

KINDS = ("bit", "byte", "integer", "cut", "doubled", "inserted", "removed", "zeros")
INTEGERS = (0, 1, -1, 127, 128, 255, 256, 32767, 65535, 1 << 20, 2**31 - 1, -(2**31), 2**32 - 1, 2**62, -(2**63))
SECONDS = 20.0
MEMORY_BYTES = 3 << 30


class Outcome(NamedTuple):
    """How a function ended: `result`, `error` (ours, one sentence), `traceback`, `signal` or `hang`."""

    kind: str
    text: str = ""
    value: Any = None


class Mutation(NamedTuple):
    """A damaged twin of a file, and what was done to it."""

    kind: str
    where: str
    data: bytes


def mutate(data: bytes, rng: random.Random, kind: str | None = None) -> Mutation:
    """A damaged twin of some bytes."""
    kind = kind or rng.choice(KINDS)
    at = rng.randrange(len(data)) if data else 0
    end = min(len(data), at + rng.choice([1, 2, 4, 8, 64, 1024]))
    new = bytearray(data)
    if kind == "bit" and data:
        new[at] ^= 1 << rng.randrange(8)
    elif kind == "byte" and data:
        new[at] = rng.randrange(256)
    elif kind == "integer":
        size = rng.choice("bhiq")
        value = rng.choice(INTEGERS) + rng.choice([0, 0, -1, 1])
        width = struct.calcsize(size)
        new[at : at + width] = (value % (1 << 8 * width)).to_bytes(width, rng.choice(["little", "big"]))
    elif kind == "cut":
        del new[at:]
    elif kind == "doubled":
        new[at:at] = data[at:end]
    elif kind == "inserted":
        new[at:at] = rng.randbytes(rng.choice([1, 2, 4, 16]))
    elif kind == "removed":
        del new[at:end]
    elif kind == "zeros":
        new[at:end] = bytes(end - at)
    return Mutation(kind, f"{kind} at {at}", bytes(new))


def mutations(data: bytes, number: int, seed: int = 0) -> Iterator[Mutation]:
    """Damaged twins of some bytes, the same for the same seed; now and then with two faults at once."""
    rng = random.Random(seed)
    for i in range(number):
        made = mutate(data, rng, KINDS[i % len(KINDS)])
        if rng.random() < 0.1:
            again = mutate(made.data, rng)
            made = Mutation(f"{made.kind}+{again.kind}", f"{made.where}, {again.where}", again.data)
        if made.data != data:
            yield made


#: Values that no reader of JSON or TOML expects where something else stood.
ODD_VALUES: tuple[Any, ...] = (
    None, True, 0, -1, 1.5, 2**63, 2**64, 10**40, "", "\ud800", "../../x", "\0", [], {}, [[]], {"": {}}, "x" * 10_000,
)  # fmt: skip


def mutate_value(value: Any, rng: random.Random) -> Any:
    """A JSON or TOML value with one thing in it set, deleted, renamed, doubled or nested."""
    places: list[tuple[Any, Any]] = []

    def walk(inner: Any) -> None:
        if isinstance(inner, (dict, list)):
            for key in list(inner) if isinstance(inner, dict) else range(len(inner)):
                places.append((inner, key))
                walk(inner[key])

    value = json.loads(json.dumps(value))
    walk(value)
    if not places:
        return rng.choice(ODD_VALUES)
    holder, key = rng.choice(places)
    how = rng.choice(["set", "delete", "rename", "nest", "double"])
    if how == "set":
        holder[key] = rng.choice(ODD_VALUES)
    elif how == "delete":
        del holder[key]
    elif how == "rename" and isinstance(holder, dict):
        holder[str(key) + rng.choice(["x", " ", "\0"])] = holder.pop(key)
    elif how == "nest":
        for _ in range(rng.choice([1, 3, 200])):
            holder[key] = [holder[key]] if rng.random() < 0.5 else {"x": holder[key]}
    elif isinstance(holder, list):
        holder.append(holder[key])
    else:
        holder[key] = [holder[key], holder[key]]
    return value


def outcome(function: Callable[[], Any], seconds: float = SECONDS, memory_bytes: int = MEMORY_BYTES) -> Outcome:
    """How a function ends in a forked child with limits of time and of memory beyond what is held now."""
    read, write = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forks beside threads, which here only wait
        child = os.fork()
    if not child:
        _in_child(function, read, write, memory_bytes)
    os.close(write)
    pieces: list[bytes] = []
    deadline = time.monotonic() + seconds
    hang = False
    while True:
        left = deadline - time.monotonic()
        if left <= 0 or not select.select([read], [], [], left)[0]:
            hang = True
            os.kill(child, signal.SIGKILL)
            break
        if not (data := os.read(read, 1 << 20)):
            break
        pieces.append(data)
    os.close(read)
    _, status = os.waitpid(child, 0)
    if hang:
        return Outcome("hang", f"no end after {seconds:.0f} seconds")
    if os.WIFSIGNALED(status):
        return Outcome("signal", signal.Signals(os.WTERMSIG(status)).name)
    if not pieces:
        return Outcome("signal", f"ended with status {status} and no word")
    return Outcome(*pickle.loads(b"".join(pieces)))  # noqa: S301  # our own


def _in_child(function: Callable[[], Any], read: int, write: int, memory_bytes: int) -> None:
    """Run it, send how it ended, and leave without whatever the parent wants done at its own end."""
    with contextlib.suppress(BaseException):
        os.close(read)
        gc.freeze()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        held = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()  # noqa: SIM115, PTH123
        resource.setrlimit(resource.RLIMIT_AS, (held + memory_bytes, held + memory_bytes))
        # What a library or the kernel writes over an abort is no part of the test's output.
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 2)
        try:
            sent: tuple[str, str, Any] = ("result", "", function())
        except DistBpeError as error:
            sent = ("error", f"{type(error).__name__}: {error}", None)
        except BaseException:
            sent = ("traceback", traceback.format_exc(), None)
        try:
            data = pickle.dumps(sent)
        except Exception:
            data = pickle.dumps((sent[0], "a result that does not pickle", None))
        while data:
            data = data[os.write(write, data) :]
    os._exit(0)


def bad(end: Outcome) -> bool:
    """Whether a program may never end so, whatever it is given."""
    return end.kind in ("signal", "traceback", "hang") or (end.kind == "error" and not printable(end.text))


def printable(text: str) -> bool:
    """Whether a message is one line that any terminal takes."""
    return text.isprintable() and text.encode("utf-8", "replace").decode() == text


def campaign(
    data: bytes,
    run: Callable[[bytes], Any],
    number: int,
    seed: int = 0,
    seconds: float | None = None,
    checked: Callable[[Mutation], bool] = lambda _: False,
) -> tuple[dict[str, int], list[str]]:
    """Run a function on damaged twins of a file; `seconds`: until then, however many, in place of `number`.

    Returns:
        how often it ended how, and a line for each end that may not be. `other` is another result than that of the
        whole file without a word, which is a fault where `checked` says that a checksum covers the place.
    """
    right = outcome(lambda: run(data))
    assert right.kind == "result", right
    ends: dict[str, int] = {}
    faults = []
    deadline = time.monotonic() + (seconds or 0)
    turn = 0
    while turn == 0 or (seconds and time.monotonic() < deadline):
        for made in mutations(data, number, seed + turn):
            end = outcome(lambda made=made: run(made.data))  # type: ignore[misc]
            kind = "other" if end.kind == "result" and end.value != right.value else end.kind
            ends[kind] = ends.get(kind, 0) + 1
            if bad(end) or (kind == "other" and checked(made)):
                faults.append(f"seed {seed + turn}, {made.where}: {kind}: {end.text or end.value!r}"[:3000])
            if seconds and time.monotonic() > deadline:
                break
        turn += 1
    return ends, faults
