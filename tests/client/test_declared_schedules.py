"""Declared schedules and releases: who brings them up to date, and what becomes of those that nobody declares."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from tests.client.test_schedules import fired_at, get, put
from tests.support.jobs import Greet
from tests.support.schedules import fire, rewrite
from tests.support.worlds import START, World, run

from queuert import Every
from queuert.client.client import Client
from queuert.engine.transaction import Hooks
from queuert.features.schedules import declaring
from queuert.features.schedules.declaring import (
    ALIVE_FOR,
    COUNTED_EVERY,
    DISABLED_AFTER,
    FORGOTTEN_AFTER,
    count_undeclared,
)
from queuert.features.schedules.defining import define
from queuert.features.schedules.times import Times

HOUR = timedelta(hours=1)
DAY = 24 * 3600
HOURLY, DAILY = Every(HOUR), Every(24 * HOUR)

pytestmark = pytest.mark.drivers


async def declare(
    client: Client[Any], times: Times = HOURLY, release: str | None = None, *, begins: bool = True, who: str = "me"
) -> dict[str, str]:
    """What a worker of this release does when it starts, and from time to time."""
    definitions = {"s": define(client._engine, times, Greet(who=who), {})}
    return await run(client, declaring.declare(client._engine, Hooks(), definitions, release, begins=begins))


async def stored(client: Client[Any]) -> tuple[Times | None, str | None]:
    schedule = await get(client)
    return schedule.times, schedule.release


async def test_a_declared_schedule_is_stored_and_fires(client: Client[Any], world: World) -> None:
    assert await declare(client, release="one") == {}
    schedule = await get(client)
    assert (schedule.declared, schedule.release, schedule.next_at) == (True, "one", START + HOUR)
    before = world.snapshot() if world.database == "memory" else None
    assert await declare(client, release="one") == {}
    assert before is None or world.snapshot() == before
    world.pass_time(3600)
    await fire(client)
    assert await fired_at(client) == [START + HOUR]


async def test_the_release_that_was_first_seen_last_is_the_newest(client: Client[Any], world: World) -> None:
    await declare(client, release="b")
    world.pass_time(1)
    await declare(client, DAILY, release="a")
    assert await stored(client) == (DAILY, "a")
    for begins in (True, False):
        world.pass_time(1)
        await declare(client, release="b", begins=begins)
        assert await stored(client) == (DAILY, "a"), "an older release does not overwrite a newer one"


async def test_a_rollback_is_seen_anew(client: Client[Any], world: World) -> None:
    await declare(client, release="one")
    world.pass_time(1)
    await declare(client, DAILY, release="two")
    for _ in range(round(ALIVE_FOR / 30) + 1):
        world.pass_time(30)
        await declare(client, DAILY, release="two", begins=False)
    world.pass_time(1)
    await declare(client, release="one")
    assert await stored(client) == (HOURLY, "one")
    world.pass_time(1)
    await declare(client, DAILY, release="two", begins=False)
    assert await stored(client) == (HOURLY, "one")


async def test_an_old_release_that_is_left_alone_takes_over(client: Client[Any], world: World) -> None:
    """The newer one was stopped, and workers of the older one had never stopped."""
    await declare(client, release="one")
    world.pass_time(1)
    await declare(client, DAILY, release="two")
    for _ in range(5):
        world.pass_time(30)
        await declare(client, release="one", begins=False)
    assert await stored(client) == (HOURLY, "one")


async def test_without_releases_the_declaration_is_one(client: Client[Any], world: World) -> None:
    await declare(client)
    world.pass_time(1)
    await declare(client, DAILY)
    world.pass_time(1)
    await declare(client, begins=False)
    times, release = await stored(client)
    assert times == DAILY
    assert release is not None
    assert release.startswith("digest ")


async def test_an_edited_expression_fires_nothing_of_the_past(client: Client[Any], world: World) -> None:
    await declare(client, DAILY, release="one")
    world.pass_time(5 * 3600 + 60)
    await declare(client, release="two")
    assert (await fire(client)).seen == 0
    assert (await get(client)).next_at == START + 6 * HOUR


async def test_the_same_release_with_another_declaration(client: Client[Any], world: World) -> None:
    """A worker that starts brings it up to date. Those that run already do not change it back."""
    await declare(client, release="dev")
    world.pass_time(1)
    await declare(client, DAILY, release="dev")
    await declare(client, release="dev", begins=False)
    assert await stored(client) == (DAILY, "dev")


async def test_a_name_that_a_client_has_taken(client: Client[Any], world: World) -> None:
    await put(client)
    assert list(await declare(client, DAILY)) == ["s"]
    assert (await get(client)).times == HOURLY


@pytest.mark.parametrize("what", ["definition", "state"])
async def test_one_that_cannot_be_read_stops_no_other(client: Client[Any], world: World, what: str) -> None:
    """A newer version of queuert has stored it."""
    await declare(client, release="one")
    await rewrite(client, "s", **{what: b'{"times":7,"created_at":7}'})
    world.pass_time(1)
    definitions = {name: define(client._engine, DAILY, Greet(who="me"), {}) for name in ("s", "t")}
    refused = await run(client, declaring.declare(client._engine, Hooks(), definitions, "two", begins=True))
    assert list(refused) == ["s"]
    assert "cannot be read by this version" in refused["s"]
    assert (await get(client, "t")).times == DAILY


async def test_releases_of_long_ago_are_forgotten(client: Client[Any], world: World) -> None:
    for number in range(5):
        await declare(client, release=f"release {number}")
        world.pass_time(FORGOTTEN_AFTER + 1)
    seen = client._engine.state.see_releases([("s", "x")], alive_for=ALIVE_FOR, forget_after=10 * FORGOTTEN_AFTER)
    assert [each.release for each in await run(client, seen)] == ["release 4", "x"]
    assert (await get(client)).release == "release 4"


async def live(client: Client[Any], world: World, seconds: float) -> list[str]:
    """Workers live for so long, and none declares anything."""
    disabled: list[str] = []
    for _ in range(round(seconds / COUNTED_EVERY)):
        world.pass_time(COUNTED_EVERY)
        disabled += await run(client, count_undeclared(client._engine))
        disabled += await run(client, count_undeclared(client._engine))  # another worker
    return disabled


async def test_what_no_worker_has_declared_for_a_day_is_disabled(client: Client[Any], world: World) -> None:
    await declare(client, release="one")
    async with client.transaction() as tx:
        await client.pause_schedule(tx, "s")
        await client.resume_schedule(tx, "s")
    assert await live(client, world, DISABLED_AFTER) == []
    assert await live(client, world, 2 * COUNTED_EVERY) == ["s"]
    schedule = await get(client)
    assert schedule.status == "disabled"
    assert schedule.disabled_at is not None
    assert "no worker has declared it" in str(schedule)
    assert (await fire(client)).seen == 0
    await declare(client, release="one")
    back = await get(client)
    assert (back.status, back.times, back.created_at) == ("active", HOURLY, schedule.created_at)
    assert back.next_at is not None
    assert back.next_at > world.now, "and nothing of the time between fires"


async def test_more_undeclared_schedules_than_are_counted_at_once(
    client: Client[Any], world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that are disabled already do not stand in the way of others."""
    monkeypatch.setattr(declaring, "COUNTED_AT_ONCE", 2)
    names = [f"s{number}" for number in range(5)]
    definitions = {name: define(client._engine, HOURLY, Greet(who="me"), {}) for name in names}
    await run(client, declaring.declare(client._engine, Hooks(), definitions, "one", begins=True))
    assert await live(client, world, DISABLED_AFTER + 2 * COUNTED_EVERY) == names


async def test_only_the_time_counts_in_which_workers_lived(client: Client[Any], world: World) -> None:
    await declare(client, release="one")
    assert await live(client, world, DISABLED_AFTER / 2) == []
    world.pass_time(30 * DAY)
    assert await live(client, world, DISABLED_AFTER / 2 - 2 * COUNTED_EVERY) == []
    assert (await get(client)).status == "active"
    assert await live(client, world, 4 * COUNTED_EVERY) == ["s"]


async def test_declaring_it_begins_the_count_anew(client: Client[Any], world: World) -> None:
    await declare(client, release="one")
    await live(client, world, DISABLED_AFTER - COUNTED_EVERY)
    await declare(client, release="one", begins=False)
    assert await live(client, world, DISABLED_AFTER - COUNTED_EVERY) == []


async def test_a_paused_schedule_comes_back_paused(client: Client[Any], world: World) -> None:
    await declare(client, release="one")
    async with client.transaction() as tx:
        await client.pause_schedule(tx, "s")
    await live(client, world, DISABLED_AFTER + 2 * COUNTED_EVERY)
    assert (await get(client)).status == "disabled"
    await declare(client, release="one", begins=False)
    assert (await get(client)).status == "paused"


async def test_one_that_a_client_has_put_is_never_disabled(client: Client[Any], world: World) -> None:
    await put(client)
    assert await live(client, world, 2 * DISABLED_AFTER) == []
