"""Deletion against everything else at once: no deadlock, and nothing left half-way."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.adapters.postgres.scenes import Scene, Session, open_scene
from tests.support.postgres import Databases

from queuert.errors import BlockerNotFound
from queuert.records.model import Claimed, Lease
from queuert_conformance.state.build import (
    completed,
    continued,
    failed,
    key,
    new_job,
    next_job,
    put_back,
    queue,
    request,
    waiting_for,
)


@pytest.fixture
async def scene(postgres: Databases) -> AsyncIterator[Scene]:
    async with open_scene(postgres) as scene:
        yield scene


def behind(*chains: str, **fields: Any) -> Any:
    return new_job("a", blockers=waiting_for(*chains, chain_type="a"), **fields)


async def running(scene: Scene) -> Claimed:
    await scene.new("a")
    (claim,) = await scene.claim(request(queue("a")))
    return claim


@pytest.mark.parametrize("deletion_first", [True, False])
async def test_a_dependent_is_deleted_while_what_it_waits_for_completes(scene: Scene, deletion_first: bool) -> None:
    """The deletion holds the dependent, the completion holds the blocker and wants the dependent."""
    claim = await running(scene)
    dependent = behind(claim.job.id)
    await scene.start(dependent)
    first, second = await scene.sessions(2)
    await first.begin()
    if deletion_first:
        assert [chain.first.id for chain in (await first.delete(dependent.id)).chains] == [dependent.id]
        other = scene.go(second.run_alone(scene.operations.settle([completed(claim)])))
    else:
        await first.settle(completed(claim))
        other = scene.go(second.run_alone(scene.operations.delete_chains([dependent.id], cascade=False)))
    await scene.blocked(second, by=first)
    await first.commit()
    await other
    assert await scene.statuses(claim.job.id, dependent.id) == ["completed"]
    assert await scene.deadlocks() == 0


async def test_a_dependent_is_deleted_in_the_middle_of_a_completion(scene: Scene) -> None:
    """The completion has its own job, but not its dependents yet, when the deletion begins."""
    claim = await running(scene)
    one, two = behind(claim.job.id), behind(claim.job.id)
    await scene.start(one, two)
    holder, completer, deleter = await scene.sessions(3)
    await holder.begin()
    await holder.lock(one.id)
    completing = scene.go(completer.run_alone(scene.operations.settle([completed(claim)])))
    await scene.blocked(completer, by=holder)
    # It holds the dependent that the completion will want next, and must not want what the completion holds.
    async with asyncio.timeout(45):
        await deleter.run_alone(scene.operations.delete_chains([two.id], cascade=False))
    await holder.rollback()
    assert [each.job_id for each in (await completing).unblocked] == [one.id]
    assert await scene.statuses(claim.job.id, one.id, two.id) == ["completed", "pending"]
    assert await scene.deadlocks() == 0


@pytest.mark.parametrize("deletion_first", [True, False])
async def test_deletion_against_a_claim(scene: Scene, deletion_first: bool) -> None:
    one, two = await scene.new("a", "a")
    first, second = await scene.sessions(2)
    await first.begin()
    if deletion_first:
        await first.delete(one)
        async with asyncio.timeout(45):
            assert [each.job.id for each in await scene.claim(request(queue("a")))] == [two]
        await first.commit()
        return
    (claim, _) = (await first.run(scene.operations.claim(request(queue("a"))))).jobs
    deleting = scene.go(second.run_alone(scene.operations.delete_chains([one], cascade=False)))
    await scene.blocked(second, by=first)
    await first.commit()
    assert [chain.first.status for chain in (await deleting).chains] == ["running"]
    assert (await scene.settle(completed(claim))).applied == [False]


async def test_overlapping_cascades(scene: Scene) -> None:
    shared = (await scene.new("a"))[0]
    one, two = behind(shared), behind(shared)
    await scene.start(one, two)
    first, second = await scene.sessions(2)
    await first.begin()
    # Refused, because the other one still waits for what both have in common; nothing is deleted, but all is locked.
    assert list((await first.delete(one.id, cascade=True)).waiting) == [shared]
    deleting = scene.go(second.run_alone(scene.operations.delete_chains([two.id, one.id], cascade=True)))
    await scene.blocked(second, by=first)
    await first.delete(one.id)
    await first.commit()
    assert {chain.first.id for chain in (await deleting).chains} == {two.id, shared}
    assert scene.watch("SELECT count(*) FROM queuert_job") == [0]
    assert await scene.deadlocks() == 0


@pytest.mark.parametrize("deletion_first", [True, False])
async def test_deletion_against_a_start_behind_it(scene: Scene, deletion_first: bool) -> None:
    (chain,) = await scene.new("a")
    job = behind(chain)
    first, second = await scene.sessions(2)
    await first.begin()
    if deletion_first:
        await first.delete(chain)
        starting = scene.go(second.run_alone(scene.operations.create_jobs([job])))
        await scene.blocked(second, by=first)
        await first.commit()
        with pytest.raises(BlockerNotFound):
            await starting
        return
    await first.start(job)
    deleting = scene.go(second.run_alone(scene.operations.delete_chains([chain], cascade=False)))
    await scene.blocked(second, by=first)
    await first.commit()
    assert {blocker: list(jobs) for blocker, jobs in (await deleting).waiting.items()} == {chain: [job.id]}


async def test_a_chain_goes_on_while_its_deletion_waits(scene: Scene) -> None:
    """The continuation belongs to the chain: it goes too, and so does its place in the queue."""
    claim = await running(scene)
    extra = behind(claim.job.id)
    await scene.start(extra)
    first, second = await scene.sessions(2)
    await first.begin()
    await first.settle(continued(claim, next_job(claim.job)))
    deleting = scene.go(second.run_alone(scene.operations.delete_chains([extra.id], cascade=True)))
    await scene.blocked(second, by=first)
    await first.commit()
    assert {chain.first.id for chain in (await deleting).chains} == {claim.job.id, extra.id}
    assert scene.watch("SELECT count(*) FROM queuert_job") == [0]
    assert await scene.claim(request(queue("a"))) == []


async def test_a_continuation_is_claimed_and_completed_while_the_deletion_still_waits(scene: Scene) -> None:
    """The deletion must not hold the dependent already while it begins to wait for the newcomer."""
    claim = await running(scene)
    dependent = behind(claim.job.id)
    other = (await scene.new("b"))[0]
    await scene.start(dependent)
    holder, deleter = await scene.sessions(2)
    await holder.begin()
    await holder.take_over(other)
    ids = [dependent.id, other]
    deleting = scene.go(deleter.run_alone(scene.operations.delete_chains(ids, cascade=True)))
    await scene.blocked(deleter, by=holder)
    async with asyncio.timeout(45):
        # All this goes past the deletion, which has only locked the first job's place.
        completing = scene.go(scene.settle(continued(claim, next_job(claim.job))))
        await asyncio.sleep(0)
        await holder.rollback()
        await completing
        await deleting
    assert scene.watch("SELECT count(*) FROM queuert_job") == [0]
    assert await scene.deadlocks() == 0


class Crowd:
    """Eight connections that do whatever comes to their minds with a few chains."""

    def __init__(self, scene: Scene, seed: int) -> None:
        self.scene = scene
        self.random = random.Random(seed)
        self.chains: list[str] = []
        self.claims: list[Claimed] = []
        self.done: dict[str, int] = {}

    async def act(self) -> None:
        action = self.random.choices(
            [self.start, self.claim, self.complete, self.go_on, self.put_back, self.take_over, self.cancel, self.delete,
             self.reap, self.renew, self.trigger, self.retry],
            [5, 4, 5, 3, 1, 2, 1, 4, 1, 1, 1, 1],
        )[0]  # fmt: skip
        await action()
        self.done[action.__name__] = self.done.get(action.__name__, 0) + 1

    def some(self, number: int) -> list[str]:
        return self.random.sample(self.chains, min(len(self.chains), number))

    async def start(self) -> None:
        jobs = [
            new_job(
                "a",
                blockers=waiting_for(*self.some(self.random.randint(0, 4)), chain_type="a"),
                dedup=key(str(self.random.randint(0, 3))) if self.random.random() < 0.3 else None,
            )
            for _ in range(self.random.randint(1, 3))
        ]
        try:
            made = await self.scene.start(*jobs)
        except BlockerNotFound:
            return
        self.chains += [each.chain_id for each in made if each.existing is None]

    async def claim(self) -> None:
        self.claims += await self.scene.claim(request(queue("a", "b", lease=60.0), limit=self.random.randint(1, 6)))

    def take_claims(self) -> list[Claimed]:
        number = min(len(self.claims), self.random.randint(1, 5))
        return [self.claims.pop(self.random.randrange(len(self.claims))) for _ in range(number)]

    async def complete(self) -> None:
        await self.scene.settle(
            *((completed if self.random.random() < 0.9 else failed)(claim) for claim in self.take_claims())
        )

    async def go_on(self) -> None:
        claims = self.take_claims()
        settlements = [
            continued(
                claim,
                next_job(
                    claim.job,
                    blockers=waiting_for(
                        *(each for each in self.some(self.random.randint(0, 2)) if each != claim.job.chain_id),
                        chain_type="a",
                    ),
                ),
            )
            for claim in claims
        ]
        try:
            await self.scene.settle(*settlements)
        except BlockerNotFound:
            self.claims += claims

    async def put_back(self) -> None:
        await self.scene.settle(*(put_back(claim) for claim in self.take_claims()))

    async def take_over(self) -> None:
        for chain_id in self.some(1):
            async with self.scene.provider.transaction() as connection:
                session = Session(self.scene, connection)
                (chain,) = await session.run(self.scene.operations.get_chains([chain_id], lock=True))
                if chain is not None and chain.current.status in ("pending", "running"):
                    await session.settle(completed(chain.current.id))

    async def cancel(self) -> None:
        ids = self.some(self.random.randint(1, 3))
        await self.scene.run(self.scene.operations.cancel_chains(ids, cascade=self.random.random() < 0.6))

    async def delete(self) -> None:
        await self.scene.delete(*self.some(self.random.randint(1, 5)), cascade=self.random.random() < 0.6)

    async def reap(self) -> None:
        await self.scene.run(self.scene.operations.reap(["a"], [], 2, b"{}"))

    async def renew(self) -> None:
        leases = [Lease(each.job.id, each.job.token or 0, self.random.choice([0.0, 60.0])) for each in self.claims]
        await self.scene.run(self.scene.operations.renew(leases))

    async def trigger(self) -> None:
        await self.scene.run(self.scene.operations.trigger(self.some(3)))

    async def retry(self) -> None:
        await self.scene.run(self.scene.operations.retry(self.some(3)))

    async def round(self) -> None:
        """A few steps of each connection at once, then all is looked over."""

        async def several() -> None:
            for _ in range(self.random.randint(1, 4)):
                await self.act()

        async with asyncio.timeout(60):
            await asyncio.gather(*(several() for _ in range(8)))
        self.scene.check()
        left = set(self.scene.watch("SELECT DISTINCT chain_id::text FROM queuert_job"))
        self.chains = [chain for chain in self.chains if chain in left][-40:]

    def begin_anew(self) -> None:
        """So that it does not take ever longer to look everything over."""
        self.scene.watch(
            "TRUNCATE queuert_job, queuert_ready, queuert_later, queuert_running, queuert_blocker, queuert_key"
        )
        self.chains, self.claims = [], []


async def rounds(scene: Scene, number: int, seed: int) -> None:
    crowd = Crowd(scene, seed)
    for turn in range(number):
        if turn % 50 == 0:
            crowd.begin_anew()
        await crowd.round()
    assert min(crowd.done[name] for name in ("start", "claim", "complete", "go_on", "take_over", "delete")) > number / 2
    assert await scene.deadlocks() == 0


@pytest.mark.timeout(300)
async def test_twenty_rounds_of_everything_at_once(scene: Scene) -> None:
    await rounds(scene, 20, 1)


@pytest.mark.soak
@pytest.mark.timeout(3600)
async def test_two_thousand_rounds_of_everything_at_once(scene: Scene) -> None:
    await rounds(scene, 2_000, 3)
