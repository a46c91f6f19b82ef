from __future__ import annotations

from typing import Any

from queuert import Client, Cron, Every, Tick
from schedules_ok import HOUR, Digest, Nightly, Sent, schedules


@schedules.cron("0 3 * * *")  # E: returns something else than a job
def text(tick: Tick) -> str:
    return "report"


@schedules.every(HOUR)  # E: takes something else than a tick
def number(tick: int) -> Nightly:
    return Nightly(day="x")


@schedules.every(HOUR)  # E: a job that starts no chain
async def second(tick: Tick) -> Sent:
    return Sent(tenant=1)


schedules.every(60, Digest(tenant=1))  # E: a number is no interval
schedules.every(HOUR, Sent(tenant=1))  # E: a job that starts no chain
schedules.every(HOUR, Digest(tenant=1), overlap="never")  # E: no such overlap


async def use(client: Client[Any]) -> None:
    async with client.transaction() as tx:
        await client.put_schedule("a", Cron("0 8 * * *"), Digest(tenant=7))  # E: without a transaction
        await client.put_schedule(tx, "a", "0 8 * * *", Digest(tenant=7))  # E: text is no Cron
        await client.put_schedule(tx, "a", Every(HOUR), Sent(tenant=7))  # E: a job that starts no chain
        await client.put_schedule(tx, "a", Every(HOUR), Digest(tenant=7), catch_up="some")  # E: no such catch-up
