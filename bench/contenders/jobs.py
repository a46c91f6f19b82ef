"""The jobs and handlers of queuert, for each kind of work."""

from __future__ import annotations

import time
from typing import Any

from bench.contenders.link import Line
from queuert import Attempt, Chain, EntryJob, Handlers, Job, Limit

COUNTERS = 1000
"""Rows of the user table that handlers write to."""
USER_TABLE = f"""
CREATE TABLE counter (id integer PRIMARY KEY, value integer NOT NULL DEFAULT 0) WITH (fillfactor = 50);
INSERT INTO counter SELECT n FROM generate_series(0, {COUNTERS - 1}) AS n
"""
KEYS = 1000
"""Keys of the limit."""
READ = "SELECT value FROM counter WHERE id = $1"
UPDATE = "UPDATE counter SET value = value + 1 WHERE id = $1"


class Order(EntryJob[None], name="order"):
    order_id: int
    who: str
    amount: int


class Limited(EntryJob[None], name="limited", limit=Limit(by="customer", concurrency=1000)):
    """Its limit is never reached."""

    order_id: int
    who: str
    amount: int
    customer: int


class First(EntryJob[None, "Second"], name="first"):
    order_id: int
    who: str
    amount: int


class Second(Job[None, "Third"], name="second"):
    order_id: int


class Third(Job[None], name="third"):
    order_id: int


class Close(EntryJob[int], name="close"):
    orders: list[Chain[Order]]


class Asyncpg:
    """How handlers use the user table."""

    async def read(self, connection: Any, number: int) -> None:
        await connection.fetchval(READ, number)

    async def write(self, connection: Any, number: int) -> None:
        await connection.execute(UPDATE, number)


class Psycopg:
    async def read(self, connection: Any, number: int) -> None:
        cursor = await connection.execute(READ.replace("$1", "%s"), (number,))
        await cursor.fetchone()

    async def write(self, connection: Any, number: int) -> None:
        await connection.execute(UPDATE.replace("$1", "%s"), (number,))


def handlers_for(work: str, line: Line, driver: str = "asyncpg") -> Handlers[Any]:
    table = Psycopg() if driver == "psycopg" else Asyncpg()
    handlers = Handlers[Any]()
    if work == "chain":
        _chain(handlers, line)
    elif work == "fan-in":
        _fan_in(handlers, line)
    elif work == "limited":

        @handlers.handles(Limited)
        async def limited(attempt: Attempt[Limited]) -> None:  # noqa: ARG001
            line.done += 1
    elif work == "pick-up":

        @handlers.handles(Order)
        async def begin(attempt: Attempt[Order]) -> None:
            line.began[attempt.job.order_id] = time.monotonic()
            line.done += 1
    elif work == "complete":

        @handlers.handles(Order)
        async def write(attempt: Attempt[Order, Any]) -> None:
            async with attempt.complete() as tx:
                await table.write(tx.connection, attempt.job.order_id % COUNTERS)
            line.done += 1
    elif work == "staged":

        @handlers.handles(Order)
        async def staged(attempt: Attempt[Order, Any]) -> None:
            number = attempt.job.order_id % COUNTERS
            async with attempt.prepare("staged") as tx:
                await table.read(tx.connection, number)
            async with attempt.complete() as tx:
                await table.write(tx.connection, number)
            line.done += 1
    else:

        @handlers.handles(Order)
        async def nothing(attempt: Attempt[Order]) -> None:  # noqa: ARG001
            line.done += 1

    return handlers


def _chain(handlers: Handlers[Any], line: Line) -> None:
    @handlers.handles(First)
    async def first(attempt: Attempt[First]) -> Second:
        return Second(order_id=attempt.job.order_id)

    @handlers.handles(Second)
    async def second(attempt: Attempt[Second]) -> Third:
        return Third(order_id=attempt.job.order_id)

    @handlers.handles(Third)
    async def third(attempt: Attempt[Third]) -> None:  # noqa: ARG001
        line.done += 1


def _fan_in(handlers: Handlers[Any], line: Line) -> None:
    @handlers.handles(Order)
    async def order(attempt: Attempt[Order]) -> None:  # noqa: ARG001
        line.done += 1

    @handlers.handles(Close)
    async def close(attempt: Attempt[Close]) -> int:
        return len([one.output for one in attempt.job.orders])
