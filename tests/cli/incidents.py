"""A database with one chain of each kind that an operator may meet. The ids are always the same."""

from __future__ import annotations

from typing import Any

import queuert
from queuert import Attempt, Chain, Client, EntryJob, Handlers, Job, JobError, Worker

FAILED = "01a00000-0000-7000-8000-00000000000a"
READY = "01a00000-0000-7000-8000-00000000000b"
LATER = "01a10000-0000-7000-8000-00000000000c"
BLOCKED = "01b00000-0000-7000-8000-00000000000d"
DONE = "01c00000-0000-7000-8000-00000000000e"


class Charge(EntryJob[str, "Ship"], name="charge-card"):
    order: int


class Ship(Job[str], name="ship"):
    order: int


class Report(EntryJob[str], name="report"):
    of: Chain[Charge]


class Bill(EntryJob[str], name="bill"):
    note: str = ""


handlers = Handlers[Any]()


@handlers.handles(Charge)
async def charge(attempt: Attempt[Charge]) -> Ship:
    if attempt.job.order == 13:
        raise JobError("CARD_DECLINED", "no money\x1b[2J left", retry=False)
    ship = Ship(order=attempt.job.order)
    return ship.set(id="01d00000-0000-7000-8000-00000000000f") if ship.order == 1 else ship


@handlers.handles(Ship)
async def ship(attempt: Attempt[Ship]) -> str:
    return "shipped"


JOBS: list[Any] = [Charge, Ship, Report, Bill]


async def cause_incidents(url: str) -> None:
    async with queuert.connect(url, jobs=JOBS) as client:
        await _cause(client)


async def _cause(client: Client[Any]) -> None:
    async with client.transaction() as tx:
        failed = await client.start(tx, Charge(order=13), id=FAILED)
        await client.start(tx, Charge(order=1), id=DONE)
        await client.start(tx, Report(of=failed), id=BLOCKED)
        await client.start(tx, Bill(note="grüße"), id=READY, dedup="bill-1")
        await client.start(tx, Bill(), id=LATER, after=86400 * 400)
    await Worker(client, handlers).drain()
