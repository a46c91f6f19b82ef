"""Whatever operations do, in whatever order, `examine` finds nothing wrong, and `repair` changes nothing."""

from __future__ import annotations

import random
from typing import Any

import pytest
from tests.machine.driver import Driver, drive
from tests.machine.test_machine import ALWAYS, FACTORIES
from tests.machine.world import Clock, Ids

from queuert.records.model import Claimed, Settlement, When
from queuert_conformance.state.build import (
    completed,
    continued,
    failed,
    given_back,
    key,
    new_job,
    put_back,
    queue,
    request,
    waiting_for,
)
from queuert_conformance.state.build import next_job as continuation

TYPES = ("a", "b")


class World:
    """Random operations on few chains."""

    def __init__(self, driver: Driver, dice: random.Random) -> None:
        self.operations = driver.operations
        self.operations.unblocked_at_once = dice.choice((1, 2, 1000))
        self.driver = driver
        self.dice = dice
        self.ids = Ids()
        self.chains: dict[str, str] = {}
        self.claims: list[Claimed] = []

    def run(self, program: Any) -> Any:
        return self.driver.run(program, inside=False)

    def step(self) -> None:
        acts = (self.start, self.start, self.start, self.claim, self.claim, self.settle, self.settle, self.free)
        self.dice.choice((*acts, self.change, self.change))()

    def start(self) -> None:
        dice, name, number = self.dice, self.dice.choice(TYPES), self.dice.choice((1, 1, 3))
        for _ in range(number):
            job_id = self.ids.new()
            others = [each for each, kind in self.chains.items() if kind == "a"]
            blockers = waiting_for(*dice.sample(others, min(len(others), dice.choice((0, 0, 1, 2)))), chain_type="a")
            schedule = When(after=dice.choice((0.0, 0.0, 3600.0)))
            dedup = dice.choice((None, None, key(f"k{dice.randrange(2)}")))
            self.run(
                self.operations.create_jobs(
                    [new_job(name, id=job_id, blockers=blockers, schedule=schedule, dedup=dedup)]
                )
            )
            if self.run(self.operations.get_jobs([job_id]))[0] is not None:
                self.chains[job_id] = name

    def claim(self) -> None:
        self.claims += self.run(self.operations.claim(request(queue(*TYPES), limit=self.dice.randint(1, 4)))).jobs

    def settle(self) -> None:
        dice = self.dice
        chosen = [self.claims.pop(dice.randrange(len(self.claims))) for _ in range(min(len(self.claims), 2))]
        self.run(self.operations.settle([self._outcome(claim) for claim in chosen]))

    def _outcome(self, claim: Claimed) -> Settlement:
        ways = (
            lambda: completed(claim),
            lambda: completed(claim),
            lambda: failed(claim),
            lambda: put_back(claim),
            lambda: given_back(claim),
            lambda: continued(claim, continuation(claim.job, id=self.ids.new())),
        )
        return self.dice.choice(ways)()

    def free(self) -> None:
        self.run(self.operations.continue_unblocking(self.dice.choice((1, 2))))

    def change(self) -> None:
        if not self.chains:
            return
        chain_id, operations = self.dice.choice(sorted(self.chains)), self.operations
        match self.dice.randrange(6):
            case 0:
                self.run(operations.cancel_chains([chain_id], cascade=self.dice.random() < 0.5))
            case 1:
                self.run(operations.trigger([chain_id]))
            case 2:
                self.run(operations.retry([chain_id]))
            case 3:
                self.run(operations.set_priority([chain_id], self.dice.choice((1, 200))))
            case 4:
                self.run(operations.release("worker-1", [claim.job.id for claim in self.claims[::2]]))
                self.claims = self.claims[::2]
            case _:
                for each in self.run(operations.delete_chains([chain_id], cascade=False)).chains:
                    self.chains.pop(each.first.id, None)

    def check(self) -> int:
        rows = 0
        for part in (*self.operations.parts, *self.operations.full_parts):
            after = None
            while True:
                look = self.run(self.operations.examine(part, after, self.dice.choice((2, 1000)), 10.0))
                assert look.damages == []
                rows, after = rows + look.rows, look.after
                if after is None:
                    break
        return rows


def worlds(name: str, first_seed: int, number: int, steps: int) -> int:
    rows = 0
    for seed in range(first_seed, first_seed + number):
        with FACTORIES[name](Clock()) as adapter:
            driver = drive(adapter)
            try:
                driver.run(driver.operations.migrate(), inside=False)
                world = World(driver, random.Random(seed))
                for position in range(steps):
                    world.step()
                    if position % 5 == 0:
                        rows += world.check()
            except AssertionError as error:
                raise AssertionError(f"seed {seed}: {error}") from error
            finally:
                driver.close()
    return rows


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", ALWAYS)
def test_operations_leave_nothing_that_does_not_agree(name: str) -> None:
    assert worlds(name, 0, 5, 60) > 500


@pytest.mark.soak
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("name", FACTORIES)
def test_operations_leave_nothing_that_does_not_agree_in_many_worlds(name: str) -> None:
    worlds(name, 1000, 100, 100)
