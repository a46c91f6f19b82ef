"""What happened to jobs is counted by transactions that do not wait for each other, and merged beside them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from tests.adapters.postgres.scenes import Scene, open_scene
from tests.support.postgres import Databases

from queuert.records.history import DAY, FINE, UNTIMED
from queuert_conformance.state.build import completed, failed, given_back, queue, request


@pytest.fixture
async def scene(postgres: Databases) -> AsyncIterator[Scene]:
    async with open_scene(postgres) as scene:
        yield scene


async def numbers(scene: Scene) -> dict[str, int]:
    look = await scene.run(scene.operations.history(DAY, float(DAY)))
    found: dict[str, int] = {}
    for tally in look.tallies:
        if tally.bucket < FINE:  # the others count the same again
            found[tally.what] = found.get(tally.what, 0) + tally.number
    return found


async def roll_up(scene: Scene, limit: int = 100) -> bool:
    """At once: it may not wait for a transaction that is open."""
    async with asyncio.timeout(45):
        return await scene.run(scene.operations.roll_up(limit))


async def test_transactions_that_settle_at_once_do_not_wait(scene: Scene) -> None:
    """What has not committed is neither seen nor merged; afterwards, everything is there once."""
    await scene.new("a", "a", "a")
    one, two, three = await scene.claim(request(queue("a"), limit=3))
    first, second = await scene.session(), await scene.session()
    await first.begin()
    await second.begin()
    async with asyncio.timeout(45):
        await first.run(scene.operations.settle([completed(one)]))
        await second.run(scene.operations.settle([failed(two)]))
        await scene.settle(given_back(three))
    assert not await roll_up(scene)
    assert await numbers(scene) == {"begun": 2}
    await first.commit()
    await second.rollback()
    assert await numbers(scene) == {"begun": 2, "completed": 1}
    assert not await roll_up(scene)
    assert await numbers(scene) == {"begun": 2, "completed": 1}
    scene.check()


async def test_one_process_merges_at_a_time(scene: Scene) -> None:
    """Another one returns at once. If the first one is rolled back, nothing is lost or doubled."""
    await scene.new(*["a"] * 5)
    await scene.claim(request(queue("a"), limit=5))
    session = await scene.session()
    await session.begin()
    await session.run(scene.operations.roll_up(100))
    assert not await roll_up(scene)
    assert await numbers(scene) == {"begun": 5}
    await session.rollback()
    assert await numbers(scene) == {"begun": 5}
    assert not await roll_up(scene)
    assert await numbers(scene) == {"begun": 5}


async def test_merging_goes_on_behind_the_rows_that_an_old_snapshot_keeps(scene: Scene) -> None:
    """Each step goes on where the one before has ended, and the next round finds what came in meanwhile."""
    await scene.new(*["a"] * 30)
    old = await scene.session()
    await old.begin("repeatable_read")
    for _ in range(20):
        await scene.claim(request(queue("a"), limit=1))
    steps = 0
    while await roll_up(scene, 3):
        steps += 1
        if steps == 4:
            for _ in range(5):
                await scene.claim(request(queue("a"), limit=1))
    assert steps == 8
    assert await numbers(scene) == {"begun": 25}
    for _ in range(5):
        await scene.claim(request(queue("a"), limit=1))
    assert not await roll_up(scene)
    assert await numbers(scene) == {"begun": 30}
    await old.commit()
    scene.check()


# Beside processes of the version before

OLD_ROLL_UP = """
    WITH taken AS (DELETE FROM queuert_tally RETURNING *)
    INSERT INTO queuert_history AS h (grain, at, type_name, what, bucket, number, seconds)
    SELECT 60, floor(date_part('epoch', t.at) / 60)::bigint * 60, t.type_name, t.what, 0, count(*), 0
    FROM taken AS t CROSS JOIN unnest(t.since) GROUP BY 2, 3, 4
    ON CONFLICT (grain, at, type_name, what, bucket)
        DO UPDATE SET number = h.number + excluded.number, seconds = h.seconds + excluded.seconds
"""
OLD_COARSER = """
    WITH old AS (DELETE FROM queuert_history WHERE grain = 60 RETURNING *)
    INSERT INTO queuert_history (grain, at, type_name, what, bucket, number, seconds)
    SELECT 3600, o.at / 3600 * 3600, o.type_name, o.what, o.bucket, sum(o.number), sum(o.seconds)
    FROM old AS o GROUP BY 2, 3, 4, 5
"""
OLD_STEPS = """
    SELECT h.what, h.bucket, sum(h.number)::integer FROM queuert_history AS h GROUP BY 1, 2 HAVING sum(h.number) <> 0
"""
"""As version 20 merges, and as it reads what is merged."""


async def fine(scene: Scene, what: str) -> int:
    look = await scene.run(scene.operations.history(DAY, float(DAY)))
    return sum(tally.number for tally in look.tallies if tally.what == what and tally.bucket >= FINE)


async def work_once(scene: Scene) -> None:
    await scene.new("a")
    (taken,) = await scene.claim(request(queue("a")))
    await scene.settle(completed(taken))


async def test_an_older_process_merges_and_reads_beside_us(scene: Scene) -> None:
    """It counts in the few buckets that it knows, and leaves out the row of the fine ones."""
    await work_once(scene)
    assert not await roll_up(scene)
    await work_once(scene)
    scene.watch(OLD_ROLL_UP)
    await work_once(scene)
    assert not await roll_up(scene)
    assert await numbers(scene) == {"begun": 3, "completed": 3}
    assert await fine(scene, "completed") == 2, "what the older one has merged is not known in detail"
    read: list[tuple[str, int, int]] = scene.watch(OLD_STEPS)
    assert min(bucket for _, bucket, _ in read) >= UNTIMED, "its rows would be taken for others"
    assert {what: sum(number for each, _, number in read if each == what) for what, _, _ in read} == {
        "begun": 3,
        "completed": 3,
    }


async def test_what_an_older_process_makes_coarser_loses_its_fine_buckets_only(scene: Scene) -> None:
    await work_once(scene)
    assert not await roll_up(scene)
    scene.watch(OLD_COARSER)
    assert await numbers(scene) == {"begun": 1, "completed": 1}
    assert await fine(scene, "completed") == 0
    await work_once(scene)
    assert not await roll_up(scene)
    assert await numbers(scene) == {"begun": 2, "completed": 2}
    assert await fine(scene, "completed") == 1
    scene.check()
