"""`why` and claims agree: nothing is in the way if and only if the claim of an idle worker would take the job."""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import timedelta

import pytest
from tests.machine.driver import Driver
from tests.machine.exploring import Explored, exploring
from tests.machine.test_machine import ALWAYS, FACTORIES
from tests.machine.world import Clock

from queuert.features.why.finding import explain
from queuert.records.listings import ChainFilter, PageRequest
from queuert.records.model import ChainRow, Claimed, ClaimRequest, QueueLimit, Settlement, TypeLimit, When
from queuert.records.pauses import PauseTarget
from queuert.records.workers import WorkerAbout, WorkerQueue, WorkerType
from queuert.why import InLine, Paused, QueueFull, Reason, SlotsBusy, Why

TYPES: tuple[str, ...] = ("a", "b", "c", "d")
QUEUES = ("default", "mail")
TARGETS = (
    PauseTarget("everything"),
    *(PauseTarget("queue", name) for name in QUEUES),
    *(PauseTarget("type", name) for name in TYPES),
)
WORKERS = ("one", "two", "three")
LEASE = 60.0
UNLIMITED = 1_000


class World(Explored):
    """Random jobs, random workers, and what becomes of them."""

    def __init__(self, driver: Driver, clock: Clock, dice: random.Random) -> None:
        super().__init__(driver, clock, dice)
        self.claimed: dict[str, Claimed] = {}
        self.queue_of: dict[str, str] = dict.fromkeys(TYPES, QUEUES[0])
        """As the worker has it that registers next."""
        self.about: dict[str, WorkerAbout] = {}
        self.met: set[type[Reason]] = set()
        """What was in the way alone."""

    def step(self) -> None:
        act = self.dice.choice(
            (self.start, self.start, self.start, self.register, self.claim, self.settle, self.wait, self.pause)
        )
        act()

    def start(self) -> None:
        dice, name = self.dice, self.dice.choice(TYPES)
        chains = self.chains()
        blockers = dice.sample(chains, min(len(chains), dice.choice((0, 0, 0, 0, 1, 2))))
        self.start_chain(
            name,
            [chain.first for chain in blockers],
            priority=dice.choice((1, 2, 100, 100)),
            schedule=When(after=dice.choice((0, 0, 0, 0, 1, 30))),
            deadline=dice.choice((None, None, When(after=5))),
        )

    def register(self) -> None:
        dice, worker = self.dice, self.dice.choice(WORKERS)
        if worker in self.about and dice.random() < 0.2:
            self.run(self.operations.forget_worker(worker))
            del self.about[worker]
            return
        self.queue_of = {name: dice.choice(QUEUES) for name in TYPES}  # each has handles(queue=…) of its own
        types = dice.sample(TYPES, dice.randint(1, len(TYPES)))
        about = WorkerAbout(
            slots=dice.randint(1, 4),
            cluster_cap=dice.choice((None, None, None, 0, 3, 5)),
            seen_every=dice.choice((30.0, 10.0)),
            queues=tuple(self._queue(name, types) for name in sorted({self.queue_of[each] for each in types})),
        )
        self.run(self.operations.register_worker(worker, about=about))
        self.about[worker] = about

    def _queue(self, name: str, types: Sequence[str]) -> WorkerQueue:
        dice, cap = self.dice, self.dice.choice((None, None, 0, 1, 2, 3))
        mine = tuple(WorkerType(each, dice.choice((None, None, 1))) for each in types if self.queue_of[each] == name)
        members = tuple(each for each in TYPES if self.queue_of[each] == name)
        return WorkerQueue(name, mine, dice.choice((100, 100, 1)), cap, () if cap is None else members)

    def claim(self) -> None:
        for worker in self.dice.sample(sorted(self.about), min(len(self.about), 2)):
            request = self.request(worker)
            if request is not None:
                for claimed in self.run(self.operations.claim(request)).jobs:
                    self.claimed[claimed.job.id] = claimed

    def request(self, worker: str) -> ClaimRequest | None:
        """As `ClaimPolicy` makes it."""
        about = self.about[worker]
        mine = [claimed.job for claimed in self.claimed.values() if claimed.job.leased_by == worker]
        limit = (about.slots or 0) - len(mine)
        queues: list[QueueLimit] = []
        for queue in about.queues:
            types: list[TypeLimit] = []
            for each in queue.types:
                running = sum(job.type_name == each.name for job in mine)
                left = UNLIMITED if each.concurrency is None else each.concurrency - running
                if left > 0:
                    types.append(TypeLimit(each.name, left, LEASE))
            if types and queue.max_concurrency != 0:
                queues.append(
                    QueueLimit(queue.name, queue.priority, tuple(types), queue.members, queue.max_concurrency)
                )
        return ClaimRequest(worker, limit, tuple(queues), about.cluster_cap) if limit > 0 and queues else None

    def settle(self) -> None:
        if not self.claimed:
            return
        claimed = self.claimed.pop(self.dice.choice(sorted(self.claimed)))
        job, outcome = claimed.job, self.dice.choice(("completed", "failed", "again", "cancelled"))
        if outcome == "again":
            settlement = Settlement(
                job_id=job.id, token=job.token, status="pending", error=b'{"code":"X"}', schedule=When(after=10)
            )
        else:
            output, error = (b"1", None) if outcome == "completed" else (None, b'{"code":"X"}')
            if outcome == "cancelled":
                error = None
            settlement = Settlement(job_id=job.id, token=job.token, status=outcome, output=output, error=error)  # type: ignore[arg-type]
        self.run(self.operations.settle([settlement]))

    def pause(self) -> None:
        dice, target = self.dice, self.dice.choice(TARGETS)
        for each in self.run(self.operations.list_pauses()):
            if dice.random() < 0.8:
                self.run(self.operations.resume(each.target))
        until = dice.choice((None, When(after=1), When(after=10)))
        self.run(self.operations.pause(target, until=until, reason="no reason", by="dice"))

    def wait(self) -> None:
        self.clock.advance(timedelta(seconds=self.dice.choice((0.5, 2, 20))))

    def chains(self) -> list[ChainRow]:
        found: list[ChainRow] = self.run(self.operations.list_chains(ChainFilter(), PageRequest(10_000))).rows
        return found

    # What must be so.

    def why(self, chain_id: str) -> Why:
        facts = self.run(self.operations.circumstances(chain_id))
        assert facts is not None
        return explain(facts)

    def taken_by(self, worker: str) -> set[str]:
        """What a claim of this worker would take."""
        request = self.request(worker)
        if request is None:
            return set()
        self.driver.begin()
        try:
            return {claimed.job.id for claimed in self.run(self.operations.claim(request), inside=True).jobs}
        finally:
            self.driver.end(undo=True)

    def check(self) -> tuple[int, int]:
        """How many jobs would be taken, and how many would not."""
        alive = {row.id for row in self.run(self.operations.list_workers()) if row.state == "alive"}
        takes = set().union(*(self.taken_by(worker) for worker in sorted(alive)))
        seen = [0, 0]
        for chain in self.chains():
            why = self.why(chain.first.id)
            free = not why.in_the_way
            assert free == (chain.current.id in takes), f"{chain.current.id in takes=}\n{why}\n{self.about}"
            assert why.reasons or free
            assert all(str(reason) and reason.remedy for reason in why.reasons)
            seen[free] += 1
            if len(why.in_the_way) == 1:
                self.met.add(type(why.in_the_way[0]))
        return seen[1], seen[0]


def worlds(name: str, first_seed: int, number: int, steps: int) -> tuple[int, int, set[type[Reason]]]:
    taken = left = 0
    met: set[type[Reason]] = set()
    for seed in range(first_seed, first_seed + number):
        with exploring(World, name, seed) as world:
            for position in range(steps):
                world.step()
                if position % 3 == 0:
                    found = world.check()
                    taken, left = taken + found[0], left + found[1]
            met |= world.met
    return taken, left, met


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", ALWAYS)
def test_why_and_claims_agree(name: str) -> None:
    taken, left, met = worlds(name, 0, 9, 45)
    assert min(taken, left) > 50  # both happen
    assert met >= {Paused, QueueFull, SlotsBusy, InLine}


@pytest.mark.soak
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("name", FACTORIES)
def test_why_and_claims_agree_in_many_worlds(name: str) -> None:
    worlds(name, 1000, 60, 80)
