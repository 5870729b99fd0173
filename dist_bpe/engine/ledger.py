"""What is planned, running and done: attempts, deadlines, splits, covers. A state machine: no Ray, clock or disk in it.

A *unit* is a task, or a piece of one that was split. The driver takes attempts from the ledger, starts them wherever
work runs, and tells what became of each; time is a number that the driver passes in. The rules:

* The first *cover* of a task that is complete wins: the task itself, or all of its pieces, never both. Whatever
  finishes later, or twice, changes nothing.
* An attempt past its deadline is *stalled*: the unit is tried once more, elsewhere and with twice the patience, and the
  stalled attempt may still finish first.
* A lost node costs the unit nothing, within a bound that no cluster comes near unless something is wrong with it. Its
  own failures count, and so do stalls, within bounds of their own; after the last a task is split, and a piece, or a
  task that has none, ends the run with its name and first cause.
"""

import math
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, Self, TypeVar

from dist_bpe.errors import RunError

#: Failures of its own, a worker killed or an exception, after which a unit is split or given up.
MAX_FAILURES = 3
#: Stalls after which it is. Patience doubles each time, so that the last one waits 32 times the first.
MAX_STALLS = 6
#: Attempts that ended with their node, or were refused by it, after which it is. A spot machine that lives for ten
#: minutes takes a task of one minute with it in a tenth of all attempts: twenty in a row do not happen.
MAX_LOST = 20
#: An attempt is not stalled before it has taken this many times as long as the longest that finished.
PATIENCE = 4.0
#: Seconds on top of that for attempts that may have been on a lost node.
GRACE_SECONDS = 10.0
#: A worker that died so many seconds before a node was found lost may have died of that: its unit is not blamed.
FORGIVEN_SECONDS = 60.0


class Unit(Protocol):
    """A task as the ledger sees it."""

    @property
    def key(self) -> tuple[int, ...]:
        """(number of the task,), or (number of the task, number of the piece)."""

    def split(self) -> Sequence[Self]:
        """The same work in smaller units, always the same ones; none where it cannot be cut."""


T = TypeVar("T", bound=Unit)
R = TypeVar("R")


class Listener(Protocol):
    """Is told what the ledger was told, and what follows from it."""

    def __call__(self, event: str, unit: Any, **fields: Any) -> None:
        """`fields` of each event: how many tasks there are and are left, how many attempts are out, and its own."""


def _nobody(event: str, unit: Any, **fields: Any) -> None:
    pass


@dataclass(frozen=True)
class Attempt(Generic[T]):
    """One try of a unit, its `nth`. `elsewhere`: an earlier one stalled, so this one goes to a node that answers."""

    number: int
    nth: int
    task: T
    elsewhere: bool
    began: float
    deadline: float


@dataclass
class _State(Generic[T, R]):
    task: T
    tries: int = 0
    failures: list[float] = field(default_factory=list)  # when
    stalls: int = 0
    lost: int = 0
    elsewhere: bool = False
    first_cause: str = ""
    result: R | None = None
    done: bool = False
    pieces: tuple[tuple[int, ...], ...] = ()
    queued: bool = False
    running: set[int] = field(default_factory=set)  # attempts within their deadline


class Ledger(Generic[T, R]):
    """The books of one map over tasks."""

    def __init__(self, tasks: Iterable[T], stall_seconds: float = math.inf, listener: Listener = _nobody) -> None:
        self._units: dict[tuple[int, ...], _State[T, R]] = {task.key: _State(task) for task in tasks}
        self._roots = sorted(self._units)
        self._queue: deque[tuple[int, ...]] = deque()
        self._attempts: dict[int, Attempt[T]] = {}
        self._suspects: dict[int, float] = {}  # attempts that may have been on a lost node, and their new deadline
        self._number = 0
        self._open = len(self._roots)
        self._longest = 0.0
        self._stall_seconds = stall_seconds
        self._listener = listener
        for key in self._roots:
            self._enqueue(self._units[key])

    @property
    def done(self) -> bool:
        """Whether every task is covered."""
        return not self._open

    @property
    def running(self) -> int:
        """Attempts out that are within their deadline."""
        return sum(number in self._state(attempt).running for number, attempt in self._attempts.items())

    def results(self) -> list[R]:
        """The results of each task's cover, in the order of the keys; each task is in it exactly once."""
        covers = ((root,) if self._units[root].done else self._units[root].pieces for root in self._roots)
        return [self._units[key].result for cover in covers for key in cover]  # type: ignore[misc]  # a cover has all its results

    def restore(self, key: tuple[int, ...], result: R) -> bool:
        """Take over a unit that was committed before this ledger began: whole tasks first, then pieces.

        True if it counts.
        """
        root = self._units.get(key[:1])
        if root is None or self._covered(root):
            return False
        if len(key) > 1 and not root.pieces:
            self._split(root)
        if key not in self._units:
            return False
        self._commit(self._units[key], result)
        return True

    def take(self, now: float) -> Attempt[T] | None:
        """The next attempt to start, or None while there is none."""
        while self._queue:
            state = self._units[self._queue.popleft()]
            state.queued = False
            if not self._needed(state):
                continue
            self._number += 1
            state.tries += 1
            patience = max(self._stall_seconds, PATIENCE * self._longest) * 2**state.stalls
            attempt = Attempt(self._number, state.tries, state.task, state.elsewhere, now, now + patience)
            self._attempts[attempt.number] = attempt
            state.running.add(attempt.number)
            self._tell("attempt_started", state, attempt=attempt.nth, elsewhere=attempt.elsewhere)
            return attempt
        return None

    def finish(self, number: int, result: R, now: float, node: str | None = None) -> bool:
        """An attempt ended with a result; True if it counts, False if its task was covered or the end told before."""
        attempt = self._attempts.pop(number, None)
        if attempt is None:
            return False
        state = self._state(attempt)
        state.running.discard(number)
        self._longest = max(self._longest, now - attempt.began)
        counts = not state.done and not self._covered(self._units[state.task.key[:1]])
        if counts:
            self._commit(state, result)
        self._tell(
            "attempt_finished", state,
            attempt=attempt.nth, node=node, seconds=now - attempt.began, counts=counts, result=result,
        )  # fmt: skip
        return counts

    def fail(self, number: int, cause: str, own: bool, now: float, node: str | None = None) -> None:
        """An attempt ended without a result: by a fault of its `own` (or its worker's), or because a node was lost.

        Raises:
            RunError: the unit failed too often and cannot be split.
        """
        attempt = self._attempts.pop(number, None)
        if attempt is None:
            return
        state = self._state(attempt)
        state.running.discard(number)
        if own:
            state.failures.append(now)
        else:
            state.lost += 1
        state.first_cause = state.first_cause or cause
        self._again(
            "attempt_failed", state,
            attempt=attempt.nth, node=node, seconds=now - attempt.began, cause=cause, own=own,
        )  # fmt: skip

    def suspect(self, now: float) -> None:
        """A node was lost, and nobody knows what ran there: all attempts out get a deadline soon, at no cost."""
        for state in self._units.values():
            state.failures = [when for when in state.failures if when < now - FORGIVEN_SECONDS]
        soon = now + PATIENCE * self._longest + GRACE_SECONDS
        self._suspects |= {n: soon for n, a in self._attempts.items() if n not in self._suspects and soon < a.deadline}

    def expire(self, now: float) -> None:
        """Note which attempts are past their deadline.

        Raises:
            RunError: a unit stalled too often and cannot be split.
        """
        for number, attempt in list(self._attempts.items()):
            state = self._state(attempt)
            suspected = self._suspects.get(number, math.inf) <= now
            if number in state.running and (suspected or attempt.deadline <= now):
                state.running.discard(number)
                state.stalls += not suspected
                state.elsewhere = True
                cause = f"no end within {now - attempt.began:,.0f} seconds"
                state.first_cause = state.first_cause or cause
                self._again("attempt_stalled", state, attempt=attempt.nth, seconds=now - attempt.began, cause=cause)

    def needless(self) -> list[int]:
        """Attempts out whose task has been covered meanwhile, each told once: how they end is of no interest."""
        numbers = [n for n, attempt in self._attempts.items() if self._covered(self._units[attempt.task.key[:1]])]
        for number in numbers:
            self._state(self._attempts.pop(number)).running.discard(number)
        return numbers

    def _state(self, attempt: Attempt[T]) -> _State[T, R]:
        return self._units[attempt.task.key]

    def _covered(self, root: _State[T, R]) -> bool:
        return root.done or (bool(root.pieces) and all(self._units[key].done for key in root.pieces))

    def _needed(self, state: _State[T, R]) -> bool:
        return not state.done and not state.pieces and not self._units[state.task.key[:1]].done

    def _commit(self, state: _State[T, R], result: R) -> None:
        state.result, state.done = result, True
        if self._covered(self._units[state.task.key[:1]]):
            self._open -= 1

    def _enqueue(self, state: _State[T, R], first: bool = False) -> None:
        state.queued = True
        (self._queue.appendleft if first else self._queue.append)(state.task.key)

    def _tell(self, event: str, state: _State[T, R], **fields: Any) -> None:
        self._listener(event, state.task, tasks=len(self._roots), left=self._open, running=self.running, **fields)

    def _again(self, event: str, state: _State[T, R], **fields: Any) -> None:
        """Try a unit once more, or split it, or give it up; unless nothing needs it, or another attempt is out."""
        if not self._needed(state) or state.running or state.queued:
            self._tell(event, state, then="nothing", **fields)
        elif len(state.failures) < MAX_FAILURES and state.stalls < MAX_STALLS and state.lost < MAX_LOST:
            self._enqueue(state, first=True)
            self._tell(event, state, then="again", **fields)
        elif self._split(state):
            self._tell(event, state, then="split", pieces=len(state.pieces), **fields)
        else:
            self._tell(event, state, then="end", **fields)
            ends = {"failed": len(state.failures), "stalled": state.stalls, "lost its node": state.lost}
            times = [f"{how} {number} times" for how, number in ends.items() if number or how == "failed"]
            raise RunError(
                f"{state.task} {' and '.join(times)}, and what was finished is kept. The first "
                f"cause: {state.first_cause.rstrip('.')}."
            )

    def _split(self, state: _State[T, R]) -> bool:
        tasks = state.task.split() if len(state.task.key) == 1 else ()
        for task in tasks:
            self._units[task.key] = _State(task, first_cause=state.first_cause)
            self._enqueue(self._units[task.key])
        state.pieces = tuple(task.key for task in tasks)
        return bool(tasks)
