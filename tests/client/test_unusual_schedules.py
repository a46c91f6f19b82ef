"""Schedules that were changed at a bad moment, that cannot be read, or that somebody uses too much."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from tests.support.jobs import Greet
from tests.support.schedules import fire, rewrite
from tests.support.worlds import START, World, run

from queuert import After, Client, Every, Schedule
from queuert.engine.transaction import Hooks
from queuert.features.schedules.firing import cancel_overlapped, fire_due, fire_one, look_at
from queuert.features.schedules.planning import FIRED_AT_ONCE

HOUR = timedelta(hours=1)
HOURLY = Every(HOUR)


async def put(client: Client[Any], name: str = "s", times: Any = HOURLY, **options: Any) -> Schedule:
    async with client.transaction() as tx:
        return await client.put_schedule(tx, name, times, Greet(who="me"), **options)


async def ticks(client: Client[Any]) -> list[datetime | None]:
    return [chain.tick for chain in (await client.list_chains(limit=1000)).items]


async def get(client: Client[Any], name: str = "s") -> Schedule:
    found = await client.get_schedule(name)
    assert found is not None
    return found


async def end_chains(client: Client[Any]) -> None:
    async with client.transaction() as tx:
        for chain in (await client.list_chains(limit=1000)).items:
            await client.cancel(tx, chain)


@pytest.mark.parametrize("overlap", ["allow", "skip", "cancel"])
@pytest.mark.parametrize("ended", [False, True])
async def test_a_tick_waits_when_nothing_is_to_wait_any_more(
    client: Client[Any], world: World, overlap: str, ended: bool
) -> None:
    await put(client, overlap="queue")
    for _ in range(2):
        world.pass_time(3600)
        await fire(client)
    assert (await get(client)).queued == START + 2 * HOUR
    await put(client, overlap=overlap)
    if ended:
        await end_chains(client)
    world.pass_time(1800)
    await fire(client)
    schedule = await get(client)
    assert (schedule.queued, schedule.status) == (None, "active")
    fired = overlap != "skip" or ended
    assert await ticks(client) == [START + HOUR, START + 2 * HOUR][: 1 + fired]
    assert schedule.skips == (0 if fired else 1)
    assert schedule.next_at == START + 3 * HOUR


async def test_another_kind_of_times_while_a_run_has_not_ended(client: Client[Any], world: World) -> None:
    await put(client, times=After(HOUR))
    await fire(client)
    assert (await get(client)).status == "waiting"
    await put(client)
    schedule = await get(client)
    assert (schedule.status, schedule.next_at) == ("active", START + HOUR)
    world.pass_time(3600)
    await fire(client)
    assert (await ticks(client))[1:] == [START + HOUR]
    # And back: the run of the last tick has not ended either.
    await put(client, times=After(HOUR))
    world.pass_time(3600)
    await fire(client)
    assert (await get(client)).status == "waiting"
    assert len(await ticks(client)) == 2
    await end_chains(client)
    world.pass_time(3600)
    await fire(client)
    assert len(await ticks(client)) == 3


@pytest.mark.parametrize(
    ("what", "value"),
    [
        ("definition", b'{"times":{"kind":"lunar"}}'),
        ("definition", b'{"times":{"kind":"cron","expression":"@daily","tz":"Mars/Olympus"},"type":"greet"}'),
        ("definition", b'{"times":7}'),
        ("state", b'{"created_at":7}'),
    ],
)
async def test_what_cannot_be_read_can_be_listed_explained_and_deleted(
    client: Client[Any], world: World, what: str, value: bytes
) -> None:
    await put(client, name="a")
    await put(client, name="b")
    world.pass_time(3600)
    await fire(client)
    await rewrite(client, "a", **{what: value})
    first, second = (await client.list_schedules()).items
    assert (first.name, first.times, first.status) == ("a", None, "failing")
    assert first.error
    assert "cannot be read here" in str(first)
    assert (second.name, second.times, second.status) == ("b", HOURLY, "active")
    assert await get(client, "a") == first
    for chain in (await client.list_chains()).items:
        assert (await client.why(chain)).schedule in ("a", "b")
    async with client.transaction() as tx:
        gone = await client.delete_schedule(tx, "a")
    assert gone == first
    assert await client.get_schedule("a") is None


async def test_without_cronsim_other_schedules_still_fire(
    client: Client[Any], world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another host has put the schedule. This one cannot read cron expressions."""
    await put(client, name="a")
    await put(client, name="b")
    await rewrite(client, "a", definition=b'{"times":{"kind":"cron","expression":"7 * * * *"},"type":"greet"}')
    monkeypatch.setitem(__import__("sys").modules, "cronsim", None)
    world.pass_time(3600)
    fired = await fire(client)
    assert "queuert[schedules]" in fired.failed["a"].error
    assert await ticks(client) == [START + HOUR]
    assert "queuert[schedules]" in ((await get(client, "a")).error or "")


async def test_what_is_triggered_very_often_fires_in_parts(client: Client[Any]) -> None:
    await put(client)
    # As if a function made its jobs: nobody has called it yet.
    await rewrite(client, "s", definition=b'{"times":{"kind":"every","interval":3600.0}}', by_function=True)
    number = FIRED_AT_ONCE + 7
    for _ in range(number):
        async with client.transaction() as tx:
            await client.trigger_schedule(tx, "s")
    work = await run(client, look_at(client._engine, "s"))
    assert work is not None
    assert len(work.fires) == FIRED_AT_ONCE
    assert len(work.state.triggers) == 7
    assert work.due_at == work.now
    assert len({fire.tick.at for fire in work.fires} | set(work.state.triggers)) == number


async def test_a_backfill_of_what_has_no_ticks_any_more(client: Client[Any], world: World) -> None:
    """It is dropped, and workers do not look at the schedule again and again."""
    await put(client)
    world.pass_time(5 * 3600)
    async with client.transaction() as tx:
        assert await client.backfill(tx, "s", START, START + 5 * HOUR) == 5
    await put(client, times=After(HOUR))
    await fire(client)
    assert len(await ticks(client)) == 1
    assert (await get(client)).status == "waiting"
    world.pass_time(10)
    assert (await fire(client)).seen == 1, "to see whether its chain has ended"
    assert (await fire(client)).seen == 0


async def test_a_cancellation_of_what_has_become_a_run_that_waits(client: Client[Any], world: World) -> None:
    """It waits for the end of its last chain, whatever is cancelled besides."""
    await put(client, overlap="cancel")
    for _ in range(2):
        world.pass_time(3600)
        await run(client, fire_due(client._engine, Hooks(), 50, []))
    await put(client, times=After(HOUR))
    await fire(client)
    assert [chain.status for chain in (await client.list_chains()).items] == ["cancelled", "pending"]
    await fire(client)
    await end_chains(client)
    world.pass_time(60)
    await fire(client)
    world.pass_time(3600)
    await fire(client)
    assert len(await ticks(client)) == 3


async def test_two_triggers_of_a_function_at_one_moment_are_two(client: Client[Any]) -> None:
    """Also if the first has fired before the second."""
    await put(client)
    await rewrite(client, "s", definition=b'{"times":{"kind":"every","interval":3600.0}}', by_function=True)
    for number in (1, 2):
        async with client.transaction() as tx:
            await client.trigger_schedule(tx, "s")
        work = await run(client, look_at(client._engine, "s"))
        assert work is not None
        await run(client, fire_one(client._engine, Hooks(), work, [[Greet(who="me")]]))
        assert len(await ticks(client)) == number


async def test_a_tick_that_starts_nothing_cancels_nothing(client: Client[Any], world: World) -> None:
    await put(client, overlap="cancel")
    definition = b'{"times":{"kind":"every","interval":3600.0},"overlap":"cancel"}'
    await rewrite(client, "s", definition=definition, by_function=True)
    for jobs, statuses in ([1], ["pending"]), ([], ["pending"]), ([1], ["cancelled", "pending"]):
        world.pass_time(3600)
        work = await run(client, look_at(client._engine, "s"))
        assert work is not None
        fired = await run(client, fire_one(client._engine, Hooks(), work, [[Greet(who="me") for _ in jobs]]))
        for name in fired.cancelling:
            await run(client, cancel_overlapped(client._engine, Hooks(), name))
        assert [chain.status for chain in (await client.list_chains()).items] == statuses
