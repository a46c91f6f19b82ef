"""Firing and changing schedules at the same time: in forced orders, with the locks that are really held."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from typing import Any

import psycopg
import pytest
from tests.adapters.postgres.scenes import Scene, explain, open_scene, pages
from tests.behaviour.watching import Points, watched
from tests.support.jobs import After as Waiting
from tests.support.jobs import Greet
from tests.support.postgres import Databases
from tests.support.schedules import half_past, make_due

import queuert
from queuert import Client, Every, Schedule
from queuert.engine.transaction import Hooks
from queuert.features.schedules import declaring
from queuert.features.schedules.defining import define
from queuert.features.schedules.firing import Fired, Outrun, cancel_overlapped, fire_due, fire_one, look_at
from queuert.features.schedules.planning import Work

JOBS = [Greet, Waiting]


@pytest.fixture
async def scene(postgres: Databases) -> AsyncIterator[Scene]:
    async with open_scene(postgres) as scene:
        yield scene


@pytest.fixture
async def client(scene: Scene) -> AsyncIterator[Client[Any]]:
    """Whatever a test does with it, there is no deadlock."""
    async with queuert.connect(scene.url, jobs=JOBS) as client:
        yield client
    assert await scene.deadlocks() == 0


async def due(client: Client[Any], name: str = "s", **options: Any) -> Schedule:
    """A schedule that is due, with one tick."""
    async with client.transaction() as tx:
        await client.put_schedule(tx, name, half_past(), Greet(), **options)
    await make_due(client, name)
    return await get(client)


async def fire(client: Client[Any]) -> Fired:
    return await client._run((fire_due(client._engine, Hooks(), 50, []), None))


async def get(client: Client[Any]) -> Schedule:
    found = await client.get_schedule("s")
    assert found is not None
    return found


async def chains(client: Client[Any]) -> list[str]:
    return [chain.id for chain in (await client.list_chains(Greet)).items]


async def change(client: Client[Any], who: str = "another") -> Schedule:
    schedule = await get(client)
    assert schedule.times is not None
    async with client.transaction() as tx:
        return await client.put_schedule(tx, "s", schedule.times, Greet(who=who))


async def by_function(client: Client[Any]) -> Work:
    """A schedule with a function that is due, and what there is to do."""
    times = half_past()
    definition = define(client._engine, times, None, {})
    await client._run((declaring.declare(client._engine, Hooks(), {"s": definition}, "one", begins=True), None))
    await make_due(client, "s")
    work = await client._run((look_at(client._engine, "s"), None))
    assert work is not None
    assert len(work.fires) == 1
    return work


async def test_a_schedule_that_a_transaction_has_changed_is_not_waited_for(client: Client[Any]) -> None:
    made = await due(client)
    assert made.times is not None
    async with client.transaction() as tx:
        await client.put_schedule(tx, "s", made.times, Greet(who="another"))
        assert (await fire(client)).seen == 0
    assert (await fire(client)).seen == 1
    (chain,) = (await client.list_chains(Greet)).items
    assert (chain.tick, chain.input) == (made.next_at and at_milliseconds(made.next_at), {"who": "another"})


def at_milliseconds(moment: datetime) -> datetime:
    return moment.replace(microsecond=moment.microsecond // 1000 * 1000)


@pytest.mark.parametrize("point", ["create_jobs", "save_schedules", "commit"])
async def test_a_change_waits_for_the_firing_and_loses_nothing_of_it(
    scene: Scene, client: Client[Any], point: str
) -> None:
    made, points = await due(client), Points()
    assert made.next_at is not None
    gate = points.hold(point)
    firing = scene.go(fire(watched(client, points)))
    await gate.arrival()
    changing = scene.go(change(client))
    await scene_waits(scene)
    gate.open()
    assert (await firing).seen == 1
    changed = await changing
    assert changed.input == {"who": "another"}
    assert (changed.last_tick, changed.next_at) == (made.next_at, made.next_at + timedelta(hours=1))
    assert len(await chains(client)) == 1


async def scene_waits(scene: Scene) -> None:
    """Until some transaction waits for a lock."""
    async with asyncio.timeout(45):
        while not scene.watch.others("wait_event_type = 'Lock'"):
            await asyncio.sleep(0.005)


async def test_a_deletion_waits_for_the_firing(scene: Scene, client: Client[Any]) -> None:
    await due(client)
    points = Points()
    gate = points.hold("commit")
    firing = scene.go(fire(watched(client, points)))
    await gate.arrival()

    async def delete() -> Schedule | None:
        async with client.transaction() as tx:
            return await client.delete_schedule(tx, "s")

    deleting = scene.go(delete())
    await scene_waits(scene)
    gate.open()
    await firing
    gone = await deleting
    assert gone is not None
    assert gone.last_chain_ids == tuple(await chains(client))
    assert (await fire(client)).seen == 0


async def test_a_schedule_is_deleted_while_its_function_runs(client: Client[Any]) -> None:
    work = await by_function(client)
    async with client.transaction() as tx:
        await client.delete_schedule(tx, "s")
    with pytest.raises(Outrun):
        await client._run((fire_one(client._engine, Hooks(), work, [[Greet()]]), None))
    assert await chains(client) == []


async def test_two_who_fire_share_what_is_due(scene: Scene, client: Client[Any]) -> None:
    await due(client)
    points = Points()
    gate = points.hold("create_jobs")
    firing = scene.go(fire(watched(client, points)))
    await gate.arrival()
    assert (await fire(client)).seen == 0, "what another has locked is skipped"
    gate.open()
    assert (await firing).seen == 1
    assert len(await chains(client)) == 1


async def test_two_results_of_a_function_for_one_tick(scene: Scene, client: Client[Any]) -> None:
    """The second waits for the jobs of the first, not for its schedule, and is dropped."""
    work, points = await by_function(client), Points()
    gate = points.hold("commit")
    other = watched(client, points)
    first = scene.go(other._run((fire_one(other._engine, Hooks(), work, [[Greet(who="one")]]), None)))
    await gate.arrival()
    second = scene.go(client._run((fire_one(client._engine, Hooks(), work, [[Greet(who="two")]]), None)))
    await scene_waits(scene)
    gate.open()
    await first
    with pytest.raises(Outrun):
        await second
    (chain,) = (await client.list_chains(Greet)).items
    assert chain.input == {"who": "one"}
    assert (await get(client)).last_chain_ids == (chain.id,)


async def test_a_function_is_outrun_by_a_change(client: Client[Any]) -> None:
    work = await by_function(client)
    async with client.transaction() as tx:
        await client.pause_schedule(tx, "s")
        with pytest.raises(Outrun):  # the row is locked: it is not waited for
            await client._run((fire_one(client._engine, Hooks(), work, [[Greet()]]), None))
    with pytest.raises(Outrun):
        await client._run((fire_one(client._engine, Hooks(), work, [[Greet()]]), None))
    assert await chains(client) == []


async def test_a_handler_puts_the_schedule_whose_job_waits_for_it(scene: Scene, client: Client[Any]) -> None:
    """The handler has its job locked and wants the schedule. The firing wants the job, and has no schedule locked."""
    work = await by_function(client)
    chain = await client.submit(Greet())
    async with client.transaction() as tx, client.take_over(tx, chain, Greet) as current:
        job = Waiting(greeting=chain)
        firing = scene.go(client._run((fire_one(client._engine, Hooks(), work, [[job]]), None)))
        await scene_waits(scene)
        await client.pause_schedule(tx, "s")
        await current.settle("done")
    with pytest.raises(Outrun):
        await firing
    assert (await client.list_chains(Waiting)).items == []


async def test_a_handler_puts_the_schedule_that_cancels_it(scene: Scene, client: Client[Any]) -> None:
    """The cancellation comes in a transaction of its own: it wants the handler's job, and has no schedule locked."""
    await due(client, overlap="cancel")
    await fire(client)
    (earlier,) = await chains(client)
    schedule = await get(client)
    assert schedule.times is not None
    async with client.transaction() as tx:
        await client.put_schedule(tx, "s", Every(timedelta(minutes=20)), Greet(), overlap="cancel")
    await make_due(client, "s")
    async with client.transaction() as tx, client.take_over(tx, earlier, Greet) as current:
        fired = await fire(client)
        assert fired.cancelling == ["s"]
        cancelling = scene.go(client._run((cancel_overlapped(client._engine, Hooks(), "s"), None)))
        await scene_waits(scene)
        assert schedule.times is not None
        await client.put_schedule(tx, "s", schedule.times, Greet(), overlap="cancel")
        await current.settle("done")
    await cancelling
    found = await client.get_chain(earlier)
    assert found is not None
    assert found.status == "completed", "it had ended when its turn to be cancelled came"
    row = (await client._run((client._engine.state.get_schedules(["s"]), None))).rows[0]
    assert row is not None
    assert b"cancelling" not in row.state
    assert (await get(client)).times == schedule.times


@pytest.mark.parametrize("number", [2_000, pytest.param(100_000, marks=pytest.mark.soak)])
async def test_nothing_due_costs_a_few_pages(scene: Scene, client: Client[Any], number: int) -> None:
    """However many schedules there are, and with dead rows of those that have fired."""
    scene.watch(
        f"""INSERT INTO queuert_schedule (name, incarnation, version, due_at, definition, state)
        SELECT 's' || n, n, 1, now() + interval '1 hour', '{{}}', '{{}}' FROM generate_series(1, {number}) AS n"""
    )
    name = client._engine.state.words["due_schedules"]  # type: ignore[attr-defined]
    with psycopg.connect(scene.url, autocommit=True) as connection:
        for _ in range(3):
            connection.execute(f"SELECT * FROM {name}(1, '{{}}', false)".encode())
        plan = explain(connection, f"SELECT * FROM {name}(1, '{{}}', false)")
    assert pages(plan) <= 12


async def test_a_page_of_what_is_due_costs_the_same_beside_many(scene: Scene, client: Client[Any]) -> None:
    """Also with the dead rows of those that have fired just before."""
    name = client._engine.state.words["due_schedules"]  # type: ignore[attr-defined]
    due: Any = f"SELECT * FROM {name}(50, '{{}}', true)"
    found: list[int] = []
    for number in (200, 4_000):
        scene.watch(
            f"""INSERT INTO queuert_schedule (name, incarnation, version, due_at, definition, state)
            SELECT 's{number}.' || n, {number} + n, 1, now() - interval '1 minute', '{{}}', '{{}}'
            FROM generate_series(1, {number}) AS n"""
        )
        with psycopg.connect(scene.url, autocommit=True) as connection:
            for _ in range(2):
                # As a firing does it: the page moves on.
                connection.execute(
                    f"WITH page AS (SELECT * FROM {name}(50, '{{}}', true)) UPDATE queuert_schedule AS s "
                    "SET due_at = now() + interval '1 hour' FROM page WHERE s.name = page.name".encode()
                )
            with connection.transaction(force_rollback=True):
                found.append(pages(explain(connection, due)))
    few, many = found
    assert many <= few + 100, "two for each row of the page at most"
