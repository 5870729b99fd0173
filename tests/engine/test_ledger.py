"""The ledger, run through simulated worlds of crashes, stalls, duplicates and takeovers, one world a seed.

A seed that fails is replayed by `pytest tests/test_ledger.py --seed N`.
"""

import random
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import pytest

from dist_bpe import errors
from dist_bpe.engine.ledger import MAX_FAILURES, MAX_LOST, MAX_STALLS, Attempt, Ledger
from dist_bpe.engine.metrics import Sums

QUICK_SEEDS = 400
ALL_SEEDS = 10_000


@dataclass(frozen=True)
class Task:
    """Holds the items of one shard, or of one piece of it."""

    key: tuple[int, ...]
    items: tuple[tuple[int, int], ...]
    cuts: int = 0

    def split(self) -> list["Task"]:
        return [Task((*self.key, i), self.items[i :: self.cuts]) for i in range(self.cuts)]


Items = tuple[tuple[int, int], ...]


@dataclass
class World:
    """What outlives drivers: the storage with its commits and fence, and faults that are still to come."""

    rng: random.Random
    tasks: list[Task]
    faults: int
    hopeless: set[int]  # tasks that fail whole, and whose pieces do, until someone mends them
    heavy: set[int]  # tasks that fail whole, and whose pieces do not
    hard_fence: bool  # whether the writes of a driver that was replaced fail, as on a file system
    commits: dict[tuple[int, ...], Items] = field(default_factory=dict)
    fence: int = 0

    def commit(self, task: Task, fence: int) -> Items | None:
        """Create the commit if absent; what holds then, or None for a writer that was fenced off."""
        if fence < self.fence and self.hard_fence:
            return None
        return self.commits.setdefault(task.key, task.items)

    def outcome(self, task: Task) -> str:
        if task.key[0] in self.hopeless or (len(task.key) == 1 and task.key[0] in self.heavy):
            return "own"
        if self.faults and self.rng.random() < 0.5:
            self.faults -= 1
            return self.rng.choice(["own", "lost", "lost", "stall", "stall", "late", "twice", "unheard"])
        return "ok"


class Driver:
    """One life of a driver: a ledger made from what is committed, and the attempts it has out."""

    def __init__(self, world: World) -> None:
        world.fence += 1
        self.world, self.fence, self.now = world, world.fence, 0.0
        self.ledger: Ledger[Task, Items] = Ledger(world.tasks, 10, self.listen)
        self.sums, self.documents = Sums(), 0  # as metrics have them
        for key in sorted(world.commits):
            if self.ledger.restore(key, world.commits[key]):
                self.documents += len(world.commits[key])
        self.out: list[tuple[float, str, Attempt[Task]]] = []
        self.tries: Counter[tuple[int, ...]] = Counter()
        self.suspicions = 0
        self.lost: Counter[tuple[int, ...]] = Counter()

    def listen(self, event: str, unit: Task, **fields: Any) -> None:
        assert 0 <= fields["left"] <= fields["tasks"] == len(self.world.tasks)
        assert fields["running"] == self.ledger.running
        if event == "attempt_finished" and fields["counts"]:
            where = dict(zip(("shard", "piece"), unit.key, strict=False))
            self.documents += self.sums.more(where | {"documents": len(fields["result"])})["documents"]

    def step(self) -> None:
        """Start what can be started, and let one of the things happen that are due; in any order."""
        rng = self.world.rng
        self.now += rng.expovariate(1)
        if rng.random() < 0.02:
            self.suspicions += 1
            self.ledger.suspect(self.now)
        self.ledger.expire(self.now)
        while self.ledger.running < 4 and (attempt := self.ledger.take(self.now)):
            kind = self.world.outcome(attempt.task)
            seconds = 200 * rng.random() if kind in ("late", "stall") else 3 * rng.random()
            self.out.append((self.now + seconds, kind, attempt))
            self.tries[attempt.task.key] += 1
            tries = self.tries[attempt.task.key] - self.lost[attempt.task.key] - self.suspicions
            assert tries < MAX_FAILURES + MAX_STALLS, "attempts of a unit are bounded"
        due = [event for event in self.out if event[0] <= self.now]
        if not due:
            return
        event = rng.choice(due)
        self.out.remove(event)
        _, kind, attempt = event
        if kind == "stall":
            return  # nothing is ever heard of it
        if kind == "own":
            self.ledger.fail(attempt.number, "boom", True, self.now)
        elif kind == "lost":
            self.lost[attempt.task.key] += 1
            looks_own = rng.random() < 0.3  # the worker died first, and the node is found lost a little later
            self.ledger.fail(attempt.number, "node lost", looks_own, self.now)
            if looks_own:
                self.suspicions += 1
                self.now += 5 * rng.random()
                self.ledger.suspect(self.now)
        elif (held := self.world.commit(attempt.task, self.fence)) is not None:
            if kind == "unheard":  # it committed, and its node was lost before it could say so
                self.lost[attempt.task.key] += 1
                self.ledger.fail(attempt.number, "node lost", False, self.now)
                return
            before = self.ledger.done
            counted = self.ledger.finish(attempt.number, held, self.now)
            assert not (counted and before)
            if kind == "twice":
                assert not self.ledger.finish(attempt.number, held, self.now)
        needless = self.ledger.needless()
        if rng.random() < 0.5:  # a cancelled attempt may end all the same
            self.out = [event for event in self.out if event[2].number not in needless]


def simulate(seed: int) -> None:
    rng = random.Random(seed)
    number = rng.randint(1, 6)
    tasks = []
    for i in range(number):
        cuts = rng.choice([0, 2, 3, 4])
        tasks.append(Task((i,), tuple((i, j) for j in range(max(cuts, 1))), cuts))
    heavy = {task.key[0] for task in tasks if task.cuts and rng.random() < 0.2}
    hopeless = {task.key[0] for task in tasks if rng.random() < 0.05}
    world = World(rng, tasks, rng.choice([0, 5, 20, 60]), hopeless, heavy, rng.random() < 0.5)
    deaths = rng.choice([0, 1, 3, 10])
    driver, paused = Driver(world), []
    for _ in range(20_000):
        try:
            for old in paused:  # whoever was replaced goes on until it finds out
                if rng.random() < 0.3 and not old.ledger.done:
                    old.step()
        except errors.RunError:
            paused.clear()
        if driver.ledger.done:
            break
        if deaths and rng.random() < 0.05:
            deaths -= 1
            if rng.random() < 0.5:
                paused.append(driver)
            driver = Driver(world)
            continue
        try:
            driver.step()
        except errors.RunError as error:
            # It stops on what cannot work or was hit by too many faults, and the same command goes on.
            assert "boom" in str(error) or "no end within" in str(error) or "node lost" in str(error)
            assert "Task(key=" in str(error)
            world.hopeless.clear()
            driver = Driver(world)
    else:
        raise AssertionError("no progress")
    found = sorted(item for items in driver.ledger.results() for item in items)
    assert found == sorted(item for task in tasks for item in task.items), "each shard exactly once"
    assert driver.documents == len(found)
    again = Driver(world)  # what a later driver finds is a whole result, too
    assert again.ledger.done
    assert sorted(item for items in again.ledger.results() for item in items) == found


def run_seeds(seeds: range) -> None:
    for seed in seeds:
        try:
            simulate(seed)
        except BaseException as error:
            error.add_note(f"replay with: pytest tests/test_ledger.py --seed {seed}")
            raise


def test_simulated_worlds(pytestconfig: pytest.Config) -> None:
    seed = pytestconfig.getoption("--seed")
    run_seeds(range(QUICK_SEEDS) if seed is None else range(seed, seed + 1))


@pytest.mark.faults
def test_ten_thousand_simulated_worlds() -> None:
    run_seeds(range(QUICK_SEEDS, ALL_SEEDS))


def whole(*cuts: int) -> list[Task]:
    return [Task((i,), tuple((i, j) for j in range(max(1, n))), n) for i, n in enumerate(cuts)]


def test_the_first_cover_wins_and_nothing_counts_twice() -> None:
    ledger: Ledger[Task, str] = Ledger(whole(2))
    numbers = []
    for _ in range(MAX_FAILURES - 1):
        attempt = ledger.take(0)
        assert attempt
        ledger.fail(attempt.number, "boom", True, 0)
    last = ledger.take(0)
    assert last
    ledger.fail(last.number, "boom", True, 0)
    while attempt := ledger.take(0):
        numbers.append(attempt.number)
    assert len(numbers) == 2  # the pieces
    assert ledger.finish(numbers[0], "a", 1)
    assert not ledger.done
    assert ledger.finish(numbers[1], "b", 1)
    assert ledger.done
    assert not ledger.finish(numbers[1], "b", 2)
    assert ledger.results() == ["a", "b"]


def test_a_stalled_attempt_may_still_win_over_the_pieces() -> None:
    ledger: Ledger[Task, str] = Ledger(whole(2), stall_seconds=1)
    stalled = ledger.take(0)
    assert stalled
    ledger.expire(1)
    now = 1.0
    while (attempt := ledger.take(now)) and len(attempt.task.key) == 1:
        assert attempt.elsewhere
        ledger.fail(attempt.number, "boom", True, 0)
    assert attempt
    assert ledger.finish(attempt.number, "piece", now)
    assert ledger.finish(stalled.number, "whole", 99)
    assert ledger.done
    assert ledger.results() == ["whole"]


def test_lost_nodes_cost_nothing_for_long_and_patience_doubles() -> None:
    ledger: Ledger[Task, str] = Ledger(whole(0), stall_seconds=10)
    for _ in range(MAX_LOST - 1):
        attempt = ledger.take(0)
        assert attempt
        assert not attempt.elsewhere
        ledger.fail(attempt.number, "node lost", False, 0)
    now = 0.0
    for i in range(MAX_STALLS - 1):
        attempt = ledger.take(now)
        assert attempt
        assert attempt.deadline - now == 10 * 2**i
        now = attempt.deadline
        ledger.expire(now)
    assert ledger.take(now)
    with pytest.raises(errors.RunError, match=r"Task\(key=\(0,\).* stalled 6 times.* node lost"):
        ledger.expire(now + 1e6)


def test_lost_attempts_are_bounded_too() -> None:
    """A cluster that loses every node, or has lost its only one, does not keep a driver for ever."""
    ledger: Ledger[Task, str] = Ledger(whole(2))
    tries: Counter[tuple[int, ...]] = Counter()

    def lose() -> None:
        attempt = ledger.take(0)
        assert attempt
        tries[attempt.task.key] += 1
        ledger.fail(attempt.number, "node lost", False, 0)

    with pytest.raises(
        errors.RunError, match=r"failed 0 times and lost its node 20 times, and .* first cause: node lost"
    ):
        for _ in range(1000):
            lose()
    assert tries[0,] == MAX_LOST
    assert max(tries.values()) == MAX_LOST
