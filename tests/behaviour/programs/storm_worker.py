"""A worker in bad weather, until it is killed: storm_worker URL"""

from __future__ import annotations

import asyncio
import sys
from inspect import isawaitable
from typing import Any

import queuert
from queuert import Attempt, Backoff, Chain, EntryJob, Handlers, Job, Worker


class Order(EntryJob[int, "Ship"], name="order"):
    number: int


class Ship(Job[int], name="ship"):
    number: int


class Report(EntryJob[int], name="report"):
    number: int
    orders: list[Chain[Order]]


JOBS: list[type[Job[Any, Any]]] = [Order, Ship, Report]
STEPS = {"order": 1, "ship": 2, "report": 3}
LEASE = 4.0

handlers = Handlers[Any]()


async def write(attempt: Attempt[Any, Any], step: int) -> None:
    """The effect of a job: a line in a table of the user's, committed with the job."""
    async with attempt.complete() as tx:
        written = tx.connection.execute(f"INSERT INTO ledger (number, step) VALUES ({attempt.job.number}, {step})")
        if isawaitable(written):  # sqlite3 has nothing to wait for
            await written


@handlers.handles(Order)
async def order(attempt: Attempt[Order, Any]) -> Ship:
    async with attempt.prepare("staged"):
        pass
    await asyncio.sleep(0.01)
    await write(attempt, STEPS["order"])
    return Ship(number=attempt.job.number)


@handlers.handles(Ship)
async def ship(attempt: Attempt[Ship, Any]) -> int:
    await write(attempt, STEPS["ship"])
    return attempt.job.number


@handlers.handles(Report)
async def report(attempt: Attempt[Report, Any]) -> int:
    await write(attempt, STEPS["report"])
    return sum(chain.output for chain in attempt.job.orders)


async def main(url: str) -> None:
    client = queuert.connect(url, jobs=JOBS)
    worker = Worker(
        client,
        handlers,
        concurrency=8,
        lease=LEASE,
        poll_interval=0.5,
        backoff=Backoff(initial=0.05, maximum=0.5),
        recovery_backoff=Backoff(initial=0.1, maximum=1.0),
    )
    async with client:
        await worker.run()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
