"""Two starts with one key: never two chains, and the one that loses writes nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.adapters.postgres.scenes import Isolation, Scene, conflict, open_scene
from tests.support.postgres import Databases

from queuert.records.model import NewJob
from queuert_conformance.state.build import completed, key, new_job, waiting_for


@pytest.fixture
async def scene(postgres: Databases) -> AsyncIterator[Scene]:
    async with open_scene(postgres, max_size=60) as scene:
        yield scene


def keyed(text: str = "k", **fields: Any) -> NewJob:
    return new_job(dedup=key(text), **fields)


async def test_the_first_commits_and_the_second_returns_its_chain(scene: Scene) -> None:
    first, second = await scene.sessions(2)
    one, two = keyed(), keyed()
    await first.begin()
    await second.begin()
    await first.start(one)
    waiting = scene.go(second.start(two))
    await scene.blocked(second, by=first)
    await first.commit()
    (made,) = await waiting
    await second.commit()
    assert (made.chain_id, made.existing is not None) == (one.id, True)
    assert scene.watch("SELECT id::text FROM queuert_job") == [one.id]


async def test_the_first_rolls_back_and_the_second_creates(scene: Scene) -> None:
    first, second = await scene.sessions(2)
    one, two = keyed(), keyed()
    await first.begin()
    await second.begin()
    await first.start(one)
    waiting = scene.go(second.start(two))
    await scene.blocked(second, by=first)
    await first.rollback()
    (made,) = await waiting
    await second.commit()
    assert (made.chain_id, made.existing) == (two.id, None)
    assert scene.watch("SELECT id::text FROM queuert_job") == [two.id]


async def test_the_same_where_the_key_was_used_before(scene: Scene) -> None:
    old = keyed()
    await scene.start(old)
    await scene.settle(completed(old.id))
    first, second, third = await scene.sessions(3)
    one, two = keyed(), keyed()
    await first.begin()
    await first.start(one)
    waiting = scene.go(second.begin())
    await waiting
    waiting = scene.go(second.start(two))
    await scene.blocked(second, by=first)
    await first.commit()
    assert (await waiting)[0].chain_id == one.id
    await second.commit()
    # And a third one, which has not waited for anybody.
    await third.begin()
    assert (await third.start(keyed()))[0].chain_id == one.id
    await third.commit()


@pytest.mark.parametrize("before", [False, True], ids=["new key", "used key"])
async def test_fifty_concurrent_starts_make_one_chain(scene: Scene, before: bool) -> None:
    if before:
        old = keyed()
        await scene.start(old)
        await scene.settle(completed(old.id))
    made = await asyncio.gather(*(scene.start(keyed()) for _ in range(50)))
    assert len({created.chain_id for (created,) in made}) == 1
    assert sum(created.existing is None for (created,) in made) == 1
    assert scene.watch("SELECT count(*) FROM queuert_job") == [1 + before]


async def test_two_batches_with_keys_in_opposite_order_do_not_deadlock(scene: Scene) -> None:
    sessions = await scene.sessions(8)
    names = [f"k{number}" for number in range(12)]

    async def work(place: int) -> None:
        for _ in range(5):
            order = names if place % 2 else names[::-1]
            await sessions[place].begin()
            await sessions[place].start(*(keyed(name) for name in order))
            await sessions[place].commit()

    async with asyncio.timeout(60):
        await asyncio.gather(*(work(place) for place in range(8)))
    assert scene.watch("SELECT count(*) FROM queuert_job") == [12]
    assert await scene.deadlocks() == 0


@pytest.mark.parametrize("isolation", ["repeatable_read", "serializable"])
@pytest.mark.parametrize("used", [False, True], ids=["new key", "used key"])
async def test_under_a_snapshot_the_loser_is_told_to_try_again(scene: Scene, isolation: Isolation, used: bool) -> None:
    if used:
        old = keyed()
        await scene.start(old)
        await scene.settle(completed(old.id))
    first, second = await scene.sessions(2)
    one, two = keyed(), keyed()
    await first.begin()
    await second.begin(isolation)
    await first.start(one)
    waiting = scene.go(second.start(two))
    await scene.blocked(second, by=first)
    await first.commit()
    assert await conflict(waiting) == "40001"
    await second.rollback()
    await second.begin(isolation)
    assert (await second.start(two))[0].chain_id == one.id
    await second.commit()


async def test_a_start_that_loses_writes_nothing(scene: Scene) -> None:
    one = keyed()
    await scene.start(one)
    everything = (
        "SELECT (SELECT array_agg((j.xmin, j.ctid)::text) FROM queuert_job AS j), "
        "(SELECT array_agg((k.xmin, k.ctid)::text) FROM queuert_key AS k), "
        "(SELECT array_agg((r.xmin, r.ctid)::text) FROM queuert_ready AS r)"
    )
    before = scene.watch(everything)
    user = await (await scene.session()).begin()
    (made,) = await user.start(keyed(blockers=waiting_for(one.id)))
    assert made.chain_id == one.id
    ((assigned,),) = await user.connection.fetch("SELECT pg_current_xact_id_if_assigned()::text")
    assert assigned is None, "it did not even need a transaction id"
    await user.commit()
    assert scene.watch(everything) == before
    # One that had to wait has locked the key, but there are no new versions of anything.
    first, second = await scene.sessions(2)
    await first.begin()
    await first.start(keyed("other"))
    waiting = scene.go(second.run_alone(scene.operations.create_jobs([keyed("other")])))
    await scene.blocked(second, by=first)
    await first.commit()
    before = scene.watch(everything)
    (made,) = await waiting
    assert made.existing is not None
    assert scene.watch(everything) == before


async def test_a_start_that_loses_is_one_round_trip(scene: Scene) -> None:
    one = keyed()
    await scene.start(one)
    program = scene.operations.create_jobs([keyed(), keyed()])
    with pytest.raises(StopIteration) as done:
        program.send(await scene.provider.execute(None, next(program)))
    assert [made.existing.first.id for made in done.value.value] == [one.id, one.id]


async def test_a_chain_that_is_deleted_under_a_start_that_found_it(scene: Scene) -> None:
    """The start answers with a chain of its own: not with one that is gone, nor with half of one.

    That is a moment in the middle of a statement. It is given the answer which it would get then: a key's chain that
    cannot be read.
    """
    one, two, beside = keyed(), keyed(), new_job()
    await scene.start(one)
    program = scene.operations.create_jobs([beside, two])
    found = await scene.provider.execute(None, next(program))
    assert [row[6] for row in found] == [None, one.id]
    await scene.delete(one.id)
    answered = program.send([(*row[:6], *[None] * len(row[6:])) for row in found])
    with pytest.raises(StopIteration) as done:
        while True:
            answered = program.send(await scene.provider.execute(None, answered))
    made = done.value.value
    assert [(each.chain_id, each.status, each.existing) for each in made] == [
        (beside.id, "pending", None),
        (two.id, "pending", None),
    ]
    assert scene.watch("SELECT chain_id::text FROM queuert_key") == [two.id]


async def test_a_start_behind_the_chain_that_has_its_key_against_the_deletion_of_that_chain(scene: Scene) -> None:
    """The start holds the key and wants the chain, the deletion holds the chain and wants the key."""
    old = keyed()
    await scene.start(old)
    await scene.settle(completed(old.id))
    holder, starter, deleter = await scene.sessions(3)
    await holder.begin()
    await holder.lock(old.id)
    starting = scene.go(starter.run_alone(scene.operations.create_jobs([keyed(blockers=waiting_for(old.id))])))
    await scene.blocked(starter, by=holder)
    deleting = scene.go(deleter.run_alone(scene.operations.delete_chains([old.id], cascade=False)))
    await scene.blocked(deleter)
    await holder.rollback()
    (made,) = await starting
    deleted = await deleting
    assert made.existing is None
    assert [chain.first.id for chain in deleted.chains] in ([old.id], [])
    assert await scene.deadlocks() == 0
