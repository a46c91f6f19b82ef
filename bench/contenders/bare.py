"""Our statement that starts chains, sent by the driver without the library: the upper limit of
`start` and `submit`.
"""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any
from uuid import uuid4

import asyncpg
import psycopg

import queuert
from bench.contenders.jobs import Order
from bench.contenders.link import Task, at_once, run
from queuert.adapters.postgres.command import SEPARATOR
from queuert.adapters.postgres.operations import PostgresOperations

TEXTS = PostgresOperations().texts
BEGIN = TEXTS["create_jobs.begin"]
BEGIN_ONE = TEXTS["create_jobs.begin_one"]


async def prepare(task: Task) -> None:
    async with queuert.connect(task.url, jobs=[Order]):
        pass


def values(inputs: list[str]) -> tuple[Any, ...]:
    ids = ",".join([str(uuid4()) for _ in inputs])
    texts = SEPARATOR.join(inputs)
    statement = BEGIN(ids=ids, type=Order.__queuert_name__, priority=100, inputs=texts, lanes=None)
    return statement.values


def one(task: Task, number: int) -> tuple[Any, ...]:
    text = json.dumps(task.payload(number))
    return BEGIN_ONE(id=str(uuid4()), type=Order.__queuert_name__, priority=100, input=text).values


async def measure(task: Task) -> dict[str, Any]:
    if task.options.get("driver") == "psycopg":
        return {"rate": await with_psycopg(task)}
    connection = await asyncpg.connect(task.url)
    if task.work == "submit":
        gathering = Gathering(task, await connection.prepare(BEGIN.text))
        return {"rate": await at_once(task, gathering.submit)}
    statement = await connection.prepare(BEGIN_ONE.text)
    began = time.perf_counter()
    for number in range(task.jobs):
        await connection.execute("BEGIN")
        await statement.fetch(*one(task, number))
        await connection.execute("COMMIT")
    return {"rate": task.jobs / (time.perf_counter() - began)}


async def with_psycopg(task: Task) -> float:
    """The three messages."""
    connection = await psycopg.AsyncConnection.connect(task.url, autocommit=True, cursor_factory=psycopg.AsyncRawCursor)
    began = time.perf_counter()
    for number in range(task.jobs):
        await connection.execute("BEGIN")
        await connection.execute(BEGIN_ONE.text.encode(), one(task, number), prepare=True)
        await connection.execute("COMMIT")
    return task.jobs / (time.perf_counter() - began)


class Gathering:
    """While one statement is under way, the jobs for the next one gather."""

    def __init__(self, task: Task, statement: Any) -> None:
        self._task = task
        self._statement = statement
        self._waiting: list[tuple[str, asyncio.Future[None]]] = []
        self._sender: asyncio.Task[None] | None = None

    async def submit(self, number: int) -> None:
        stored: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((json.dumps(self._task.payload(number)), stored))
        if self._sender is None:
            self._sender = asyncio.create_task(self._send())
        await stored

    async def _send(self) -> None:
        while self._waiting:
            group, self._waiting = self._waiting, []
            await self._statement.fetch(*values([text for text, _ in group]))
            for _, stored in group:
                stored.set_result(None)
            await asyncio.sleep(0)
        self._sender = None


if __name__ == "__main__":
    run(prepare, None, measure)
