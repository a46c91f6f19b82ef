"""Limits by key on PostgreSQL: what a claim costs, whom it waits for, and what the doctor finds."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from random import Random
from typing import Any

import psycopg
import pytest
from tests.adapters.postgres.scenes import PATIENCE, Scene, explain, open_scene, pages
from tests.support.postgres import Databases

from queuert.ports.program import Program
from queuert.records.limits import ALIVE_FOR, DeclaredLimit, LimitRule, lane_of
from queuert.records.model import Claimed, ClaimRequest, NewJob, TypeLimit
from queuert_conformance.state.build import completed, given_back, new_job, queue, request

NAME = "per tenant"


@pytest.fixture
async def scene(postgres: Databases) -> AsyncIterator[Scene]:
    async with open_scene(postgres) as scene:
        limit = DeclaredLimit(NAME, LimitRule(2), ("a",))
        await scene.run(scene.operations.declare_limits(["a"], [limit], alive_for=ALIVE_FOR))
        yield scene


@pytest.fixture
def connection(scene: Scene) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(scene.url, autocommit=True) as connection:
        yield connection


def cost(connection: psycopg.Connection[Any], program: Program[Any]) -> int:
    """The pages that the first statement touches; it is undone. The first time, a session also reads the catalogue."""
    command = next(program)
    found = 0
    for _ in range(3):
        with connection.transaction(force_rollback=True):
            found = pages(explain(connection, command.text, command.values))
    return found


def job(key: str) -> NewJob:
    return new_job("a", lane=lane_of(NAME, key))


def limited(number: int) -> ClaimRequest:
    return request(queue(TypeLimit("a", 1_000_000, 60.0, (NAME,))), limit=number)


async def take(scene: Scene, number: int) -> list[Claimed]:
    return list(await scene.claim(limited(number)))


async def test_the_doctor_finds_what_does_not_agree_and_repairs_it(scene: Scene) -> None:
    operations = scene.operations
    await scene.start(*(job("x") for _ in range(5)))
    first = await take(scene, 10)
    assert len(first) == 2
    for part in (*operations.parts, *operations.full_parts):
        assert (await scene.run(operations.examine(part, None, 100, 5.0))).damages == []
    scene.watch("UPDATE queuert_lane SET running = 7 WHERE NOT open")
    (damage,) = (await scene.run(operations.examine("lanes", None, 100, 5.0))).damages
    assert damage.kind == "miscounted_lane"
    assert "counts 7 running jobs, and there are 2" in damage.detail
    assert await scene.run(operations.repair_damage(damage)) == "repaired"
    assert await scene.run(operations.repair_damage(damage)) == "gone"
    await scene.settle(completed(first[0]))
    assert len(await take(scene, 10)) == 1


async def test_a_look_at_any_part_ends_when_its_time_is_over(scene: Scene) -> None:
    operations = scene.operations
    await scene.start(*(job(key) for key in "xyz" for _ in range(3)), *(new_job("b") for _ in range(3)))
    assert len(await take(scene, 4)) == 4
    for part in (*operations.parts, *operations.full_parts):
        everything = await scene.run(operations.examine(part, None, 100, 5.0))
        seen, after, more = 0, None, True
        while more:
            look = await scene.run(operations.examine(part, after, 100, 0.0))
            assert look.rows <= 1, part
            seen, after, more = seen + look.rows, look.after, look.after is not None
        assert (seen, everything.after) == (everything.rows, None), part
        if part in {"line", "lanes"}:
            assert seen >= 3, part


async def test_the_doctor_repairs_a_lane_that_is_open(scene: Scene) -> None:
    operations = scene.operations
    await scene.start(*(job("x") for _ in range(5)))
    (first,) = await take(scene, 1)
    scene.watch("UPDATE queuert_turn SET running = 7")
    (damage,) = (await scene.run(operations.examine("lanes", None, 100, 5.0))).damages
    assert "counts 7 running jobs, and there are 1" in damage.detail
    assert await scene.run(operations.repair_damage(damage)) == "repaired"
    assert await scene.run(operations.repair_damage(damage)) == "gone"
    scene.check()
    assert len(await take(scene, 10)) == 1
    await scene.settle(completed(first))
    assert len(await take(scene, 10)) == 1


async def test_claims_that_end_while_the_lane_is_open_count(scene: Scene) -> None:
    """Nobody looks at an open lane before its turn. Then its ended claims are counted before its room is."""
    await scene.start(*(job("x") for _ in range(9)))
    (first,) = await take(scene, 1)
    written = scene.watch("SELECT xmin::text FROM queuert_lane")
    for _ in range(4):
        await scene.settle(completed(first))
        (first,) = await take(scene, 1)
    assert scene.watch("SELECT xmin::text FROM queuert_lane") == written, "an open lane has its state in its turn"
    await scene.settle(completed(first))
    assert len(await take(scene, 10)) == 2
    assert await take(scene, 10) == []
    scene.check()


@pytest.mark.parametrize("how", ["after", "before"])
async def test_claims_that_end_in_late_transactions_are_counted_at_once(scene: Scene, how: str) -> None:
    """A settlement is committed after news that is younger than its own."""
    await scene.start(*(job("x") for _ in range(9)))
    first, second = await take(scene, 2)
    settling = await (await scene.session()).begin()
    if how != "after":
        await settling.settle(completed(first))
    await scene.settle(completed(second))
    (third,) = await take(scene, 2)
    assert await take(scene, 2) == []
    if how == "after":
        await settling.settle(completed(first))
    await settling.commit()
    (fourth,) = await take(scene, 2)
    scene.check()
    await scene.settle(completed(third), completed(fourth))
    assert len(await take(scene, 2)) == 2
    scene.check()


async def test_a_claim_and_what_ends_it_in_one_transaction(scene: Scene) -> None:
    await scene.start(*(job("x") for _ in range(9)))
    own = await (await scene.session()).begin()
    first, second = (await own.run(scene.operations.claim(limited(2)))).jobs
    await own.settle(completed(first), completed(second))
    await own.commit()
    assert len(await take(scene, 5)) == 2
    scene.check()


async def test_one_job_of_each_lane(scene: Scene) -> None:
    """As many lanes as jobs are wanted: there is nothing to choose."""
    await scene.start(*(job(key) for key in "xyz" for _ in range(2)))
    first = await scene.run(scene.operations.claim(limited(3)))
    assert sorted(each.job.lane or "" for each in first.jobs) == [lane_of(NAME, key) for key in "xyz"]
    assert first.more
    second = await scene.run(scene.operations.claim(limited(3)))
    assert sorted(each.job.lane or "" for each in second.jobs) == [lane_of(NAME, key) for key in "xyz"]
    assert not second.more
    scene.check()
    # Six claims of three lanes end by one statement. Each counts.
    await scene.settle(*(completed(each) for each in (*first.jobs, *second.jobs)))
    assert Counter(scene.watch("SELECT lane FROM queuert_news WHERE kind = -1")) == {
        lane_of(NAME, key): 2 for key in "xyz"
    }
    assert await take(scene, 3) == []
    scene.check()


async def test_one_job_of_each_lane_except_one_that_is_held(scene: Scene) -> None:
    """The first job of a lane is being cancelled: the others begin, and it is neither waited for nor counted."""
    jobs = [job(key) for key in "xyz" for _ in range(2)]
    await scene.start(*jobs)
    cancelling = await (await scene.session()).begin()
    await cancelling.lock(jobs[2].id)
    claimed = await asyncio.wait_for(take(scene, 3), PATIENCE)
    assert [each.job.id for each in claimed] == [jobs[0].id, jobs[4].id]
    scene.check()
    await cancelling.rollback()
    again = await take(scene, 3)
    assert [each.job.id for each in again] == [jobs[2].id, jobs[1].id, jobs[3].id], "y is a turn behind"
    assert [each.job.id for each in await take(scene, 3)] == [jobs[5].id]
    scene.check()


async def test_what_one_way_has_found_is_forgotten_by_the_other(scene: Scene) -> None:
    """A claim that cannot take one job of each lane counts since when those that it takes were due, and no others."""
    jobs = [job(key) for key in "xyyyzzz"] + [job("x")]
    for each in jobs:
        await scene.start(each)
    for taken in await take(scene, 3):
        await scene.settle(completed(taken))
    await scene.run(scene.operations.cancel_chains([jobs[-1].id], cascade=False))
    scene.watch("DELETE FROM queuert_tally RETURNING at")
    assert len(await take(scene, 3)) == 3, "the lane x is open, and has none"
    counted = scene.watch("SELECT unnest(since) AS at FROM queuert_tally WHERE what = 'begun' ORDER BY at")
    begun = "SELECT j.scheduled_at AS at FROM queuert_running AS r JOIN queuert_job AS j ON j.id = r.job_id ORDER BY at"
    assert counted == scene.watch(begun)


async def test_plans_that_were_made_without_statistics(scene: Scene, connection: psycopg.Connection[Any]) -> None:
    """A claim looks for jobs lane by lane, not for all jobs of the type."""
    for n in range(0, 8000, 1000):
        await scene.start(*(job(f"k{n % 50}") for n in range(n, n + 1000)))
    for _ in range(6):
        await take(scene, 10)
    assert cost(connection, scene.operations.claim(limited(10))) < 1000


async def test_nobody_waits_for_a_transaction_that_stays_open(scene: Scene) -> None:
    """Starts and settlements of one key, in transactions that are open: other starts and claims go on."""
    await scene.start(job("x"), job("x"))
    first, second = await take(scene, 2)
    await scene.start(job("x"), job("x"))
    starting, settling, changing = [await each.begin() for each in await scene.sessions(3)]
    await starting.start(job("x"), job("y"))
    await settling.settle(completed(first))
    await changing.run(scene.operations.set_limit(NAME, "x", {"concurrency": 1}))

    async def others() -> None:
        await scene.start(job("x"), job("y"))
        assert [each.job.lane for each in await take(scene, 10)] == [lane_of(NAME, "y")]
        await scene.settle(completed(second))
        assert [each.job.lane for each in await take(scene, 10)] == [lane_of(NAME, "x")]

    await asyncio.wait_for(others(), PATIENCE)
    await changing.rollback()
    await settling.commit()
    await starting.commit()
    assert sorted(each.job.lane or "" for each in await take(scene, 10)) == [lane_of(NAME, "x"), lane_of(NAME, "y")]
    scene.check()


async def test_one_tenant_with_very_many_jobs_does_not_delay_another(scene: Scene) -> None:
    """All are stored before the first claim, also those of the other tenant."""
    for _ in range(10):
        await scene.start(*(job("big") for _ in range(300)))
    await scene.start(job("small"))
    claimed = await take(scene, 3)
    assert {each.job.lane for each in claimed} == {lane_of(NAME, "big"), lane_of(NAME, "small")}


@pytest.mark.parametrize(("lanes", "each"), [(100, 10), pytest.param(1000, 100, marks=pytest.mark.soak)])
async def test_full_lanes_cost_nothing(
    scene: Scene, connection: psycopg.Connection[Any], lanes: int, each: int
) -> None:
    """A claim of ten reads about the same pages, whatever waits in full lanes. Indexes may have a level more.

    The news of each start is read once, by one of the next claims.
    """
    await scene.start(*(job(f"free-{n}") for n in range(60)))
    await take(scene, 10)
    connection.execute("VACUUM")
    before = cost(connection, scene.operations.claim(limited(10)))
    for n in range(0, lanes * each, 1000):
        await scene.start(*(job(f"full-{n % lanes}") for n in range(n, n + 1000)))
    while len(await take(scene, 100)) > 0 or scene.watch("SELECT 1 FROM queuert_news LIMIT 1"):
        pass
    await scene.start(*(job(f"more-{n}") for n in range(60)))
    await take(scene, 10)
    connection.execute("VACUUM")
    after = cost(connection, scene.operations.claim(limited(10)))
    assert after < 1.5 * before, (before, after)


@pytest.mark.parametrize("rounds", [60, pytest.param(2000, marks=pytest.mark.soak)])
async def test_everything_at_once_on_few_keys(scene: Scene, rounds: int) -> None:
    """Claims, starts and every way in which a claim ends: no deadlock, never too many, and nothing is left."""
    random = Random(rounds)
    held: list[Claimed] = []
    highest: Counter[str] = Counter()

    async def work() -> None:
        for _ in range(rounds):
            step = random.choice(
                ["start", "claim", "claim", "complete", "give back", "cancel", "delete", "set", "reap"]
            )
            mine = held.pop(random.randrange(len(held))) if held and step not in ("start", "claim", "set") else None
            if step == "start":
                await scene.start(*(job(f"k{random.randrange(3)}") for _ in range(random.randrange(1, 4))))
            elif step == "claim":
                held.extend(await take(scene, random.randrange(1, 5)))
            elif step == "set":
                change = {"concurrency": random.choice([2, 2, 1])}
                await scene.run(scene.operations.set_limit(NAME, f"k{random.randrange(3)}", change))
            elif step == "reap":
                await scene.run(
                    scene.operations.reap(["a"], [], 10, b'{"code":"X"}', [mine.job.leased_by or ""] if mine else [])
                )
            elif mine is not None and step == "complete":
                await scene.settle(completed(mine))
            elif mine is not None and step == "give back":
                await scene.settle(given_back(mine))
            elif mine is not None and step == "cancel":
                await scene.run(scene.operations.cancel_chains([mine.job.chain_id], cascade=False))
            elif mine is not None:
                await scene.delete(mine.job.chain_id)
            counted = scene.watch("SELECT lane FROM queuert_running")
            highest.update(dict.fromkeys(counted, 0))
            for lane, number in Counter(counted).items():
                highest[lane] = max(highest[lane], number)

    await asyncio.gather(*(work() for _ in range(5)))
    assert max(highest.values()) <= 2
    while claimed := await take(scene, 100):
        await scene.settle(*(completed(each) for each in claimed))
    await scene.run(scene.operations.reap(["a"], [], 10_000, b'{"code":"X"}', ["worker-1"]))
    while claimed := await take(scene, 100):
        await scene.settle(*(completed(each) for each in claimed))
    assert await take(scene, 10) == []
    assert scene.watch("SELECT count(*) FROM queuert_line") == [0]
    assert scene.watch("SELECT count(*) FROM queuert_lane WHERE running <> 0") == [0]
    assert await scene.deadlocks() == 0
