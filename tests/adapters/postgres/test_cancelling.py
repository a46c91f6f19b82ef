"""Cancelling what waits for each other: all rows are locked in one order, whatever the chains' own order is."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.adapters.postgres.scenes import Scene, Session, open_scene
from tests.support.jobs import After, Greet
from tests.support.postgres import Databases

import queuert
from queuert import Chain, Client, EntryJob
from queuert_conformance.state.build import completed, new_ids, new_job, queue, request, waiting_for


class Beyond(EntryJob[None], name="beyond"):
    after: Chain[After]


@pytest.fixture
async def scene(postgres: Databases) -> AsyncIterator[Scene]:
    async with open_scene(postgres) as scene:
        yield scene


async def cancel(client: Client[Any], *ids: str, cascade: bool = False) -> set[str]:
    async with client.transaction() as tx:
        return {chain.id for chain in await client.cancel(tx, ids, cascade=cascade)}


async def test_a_cascade_and_a_cancellation_of_its_dependents(scene: Scene) -> None:
    """The chains wait for each other in the opposite order of their ids. Both calls want the last two."""
    first, last, middle = new_ids(3)
    async with queuert.connect(scene.url, jobs=[Greet, After, Beyond]) as client:
        async with client.transaction() as tx:
            greeting = await client.start(tx, Greet(), id=first)
            after = await client.start(tx, After(greeting=greeting), id=middle)
            await client.start(tx, Beyond(after=after), id=last)
        holder = await scene.session()
        await holder.begin()
        await holder.lock(last)
        both = scene.go(cancel(client, last, middle))
        await scene.waits_for(holder)
        cascade = scene.go(cancel(client, first, cascade=True))
        async with asyncio.timeout(45):
            while len(scene.watch.others("wait_event_type = 'Lock'")) < 2:
                await asyncio.sleep(0.005)
        await holder.rollback()
        # Whoever gets the locks first cancels the last two. The other one finds them ended.
        by_both, by_cascade = await both, await cascade
        assert (by_both, by_cascade) in [({last, middle}, {first}), (set(), {first, middle, last})]
    assert await scene.statuses(first, middle, last) == ["cancelled"] * 3
    assert await scene.deadlocks() == 0


async def test_a_dependent_is_freed_while_a_cancellation_waits_for_another(scene: Scene) -> None:
    """The cancellation finds two blocked chains, and waits for the first one. Meanwhile the second one is freed.

    Another transaction locks the free one now, and wants the blocked one then. The cancellation holds that, and must
    not want the free one.
    """
    source, other = await scene.new("a", "a")
    claims = {claim.job.id: claim for claim in await scene.claim(request(queue("a")))}
    blocked, freed = new_ids(2)
    await scene.start(
        new_job("b", id=blocked, blockers=waiting_for(other, chain_type="a")),
        new_job("b", id=freed, blockers=waiting_for(source, chain_type="a")),
    )
    starter, canceller, reader = await scene.sessions(3)
    await starter.begin()
    await starter.start(new_job("c", blockers=waiting_for(blocked, chain_type="b")))
    cancelling = scene.go(canceller.run_alone(scene.operations.cancel_chains([blocked, freed], cascade=False)))
    await scene.blocked(canceller, by=starter)
    await scene.settle(completed(claims[source]))
    reading = scene.go(reader.run_alone(scene.operations.get_chains([blocked, freed], lock=True)))
    await scene.blocked(reader)
    await starter.commit()
    await asyncio.gather(cancelling, reading)
    assert await scene.statuses(source, blocked, freed) == ["completed", "cancelled", "cancelled"]
    assert await scene.deadlocks() == 0


class Rounds:
    """A few chains that wait for each other at random, and several connections that cancel and complete them."""

    def __init__(self, scene: Scene, sessions: list[Session], seed: int) -> None:
        self.scene = scene
        self.sessions = sessions
        self.random = random.Random(seed)

    async def round(self) -> None:
        operations, ids = self.scene.operations, new_ids(8)
        self.random.shuffle(ids)  # the order in which they wait is not that of their ids
        jobs = [
            new_job("a", id=each, blockers=waiting_for(*self.random.sample(ids[:place], min(place, 2)), chain_type="a"))
            for place, each in enumerate(ids)
        ]
        await self.scene.start(*jobs)
        (claim,) = await self.scene.claim(request(queue("a"), limit=1))
        programs = [
            operations.cancel_chains([ids[self.random.randrange(2)]], cascade=True),
            operations.cancel_chains([ids[1]], cascade=True),
            operations.cancel_chains(self.random.sample(ids[2:], 3), cascade=False),
            operations.cancel_chains(self.random.sample(ids[2:], 2), cascade=self.random.random() < 0.5),
            operations.settle([completed(claim)]),
            operations.get_chains(self.random.sample(ids, 4), lock=True),
        ]
        self.random.shuffle(programs)
        async with asyncio.timeout(60):
            await asyncio.gather(
                *(each.run_alone(program) for each, program in zip(self.sessions, programs, strict=True))
            )


async def rounds(scene: Scene, number: int, seed: int) -> None:
    crowd = Rounds(scene, await scene.sessions(6), seed)
    for _ in range(number):
        await crowd.round()
        await scene.delete(*scene.watch("SELECT DISTINCT chain_id::text FROM queuert_job"))
    assert await scene.deadlocks() == 0


@pytest.mark.timeout(300)
async def test_fifty_rounds(scene: Scene) -> None:
    await rounds(scene, 50, 1)


@pytest.mark.soak
@pytest.mark.timeout(3600)
async def test_five_thousand_rounds(scene: Scene) -> None:
    await rounds(scene, 5_000, 2)
