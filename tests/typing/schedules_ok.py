from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from queuert import After, Client, Cron, EntryJob, Every, Handlers, Job, Page, Schedule, Schedules, Tick, Worker


class Nightly(EntryJob[int], name="nightly"):
    day: str


class Digest(EntryJob[None, "Sent"], name="digest"):
    tenant: int


class Sent(Job[None], name="sent"):
    tenant: int


schedules = Schedules()
HOUR = timedelta(hours=1)


@schedules.cron("0 3 * * mon-fri", tz="Europe/Berlin", overlap="skip", catch_up="last", within=6 * HOUR)
def nightly(tick: Tick) -> Nightly | None:
    return Nightly(day=tick.local.date().isoformat())


@schedules.every(HOUR, timeout=5)
async def several(tick: Tick) -> list[Nightly]:
    return [Nightly(day=str(tick.at))]


@schedules.after(HOUR)
def either(tick: Tick) -> Nightly | Digest:
    return Digest(tenant=1)


schedules.cron("@daily", Digest(tenant=7), name="daily")
schedules.every(HOUR, Digest(tenant=7).set(priority=3), catch_up="all", catch_up_max=5)
schedules.after(HOUR, Nightly(day="x"))


async def use(client: Client[Any], handlers: Handlers[Any]) -> None:
    Worker(client, handlers, schedules=[schedules])
    Worker(client, handlers, schedules=schedules)
    async with client.transaction() as tx:
        put: Schedule = await client.put_schedule(tx, "a", Cron("0 8 * * *"), Digest(tenant=7), overlap="queue")
        await client.put_schedule(tx, "b", Every(HOUR), Nightly(day="x"), catch_up="none")
        await client.put_schedule(tx, "c", After(HOUR), Nightly(day="x"))
        await client.pause_schedule(tx, put.name, until=HOUR)
        number: int = await client.backfill(tx, "a", datetime.now(UTC) - HOUR, datetime.now(UTC))
        chain = await client.trigger_schedule(tx, "a")
    found: Page[Schedule] = await client.list_schedules(limit=number)
    ticks: list[Tick] = await client.preview("a", 3)
    at: datetime | None = None if chain is None else chain.tick
    assert found.items or ticks or at
