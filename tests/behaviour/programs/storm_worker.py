"""A worker in bad weather, until it is killed: storm_worker URL"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from tests.behaviour.programs.bad_weather import complete_with, work

from queuert import Attempt, Chain, EntryJob, Handlers, Job


class Order(EntryJob[int, "Ship"], name="order"):
    number: int


class Ship(Job[int], name="ship"):
    number: int


class Report(EntryJob[int], name="report"):
    number: int
    orders: list[Chain[Order]]


JOBS: list[type[Job[Any, Any]]] = [Order, Ship, Report]
STEPS = {"order": 1, "ship": 2, "report": 3}

handlers = Handlers[Any]()


async def write(attempt: Attempt[Any, Any], step: int) -> None:
    await complete_with(attempt, f"INSERT INTO ledger (number, step) VALUES ({attempt.job.number}, {step})")


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


if __name__ == "__main__":
    asyncio.run(work(sys.argv[1], JOBS, handlers, concurrency=8))
