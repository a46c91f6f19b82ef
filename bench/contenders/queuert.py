"""This library: asyncpg (or the storage that the task names), uvloop where installed."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import queuert
from bench.contenders.jobs import USER_TABLE, Close, First, Order, handlers_for
from bench.contenders.link import Line, Task, run
from queuert import Client, Worker

CONCURRENCY = 100


def connect(task: Task) -> Client[Any]:
    return queuert.connect(task.url.replace("postgresql://", "postgresql+asyncpg://"), jobs=[Order, First, Close])


async def prepare(task: Task) -> None:
    async with connect(task) as client:
        if task.work in ("complete", "staged"):
            async with client.transaction() as tx:
                await tx.connection.execute(USER_TABLE)
        await fill(client, task)


async def fill(client: Client[Any], task: Task) -> None:
    batch = task.options.get("blockers", 1000)
    for start in range(0, task.jobs, batch):
        numbers = range(start, min(start + batch, task.jobs))
        async with client.transaction() as tx:
            if task.work == "chain":
                await client.start_many(tx, [First(**task.payload(number)) for number in numbers])
            else:
                orders = await client.start_many(tx, [Order(**task.payload(number)) for number in numbers])
                if task.work == "fan-in":
                    await client.start(tx, Close(orders=orders))


async def work(task: Task, line: Line) -> None:
    async with connect(task) as client:
        worker = Worker(client, handlers_for(task.work, line), concurrency=task.options.get("concurrency", CONCURRENCY))
        await line.ready()
        async with worker:
            await line.stopped()


async def measure(task: Task) -> dict[str, Any]:
    async with connect(task) as client:
        if task.work == "drain":
            return await drain(client, task)
        times = []
        began = time.perf_counter()
        if task.work == "start-bulk":
            await fill(client, task)
        else:
            for number in range(task.jobs):
                await asyncio.sleep(task.options.get("pause", 0))
                times.append(time.monotonic())
                async with client.transaction() as tx:
                    await client.start(tx, Order(**task.payload(number)))
        return {"rate": task.jobs / (time.perf_counter() - began), "times": times}


async def drain(client: Client[Any], task: Task) -> dict[str, Any]:
    """All in this process: for storage that is in this process."""
    line = Line()
    await fill(client, task)
    worker = Worker(client, handlers_for("drain", line), concurrency=task.options.get("concurrency", CONCURRENCY))
    began = time.perf_counter()
    await worker.drain()
    seconds = time.perf_counter() - began
    assert line.done == task.jobs, f"{line.done} of {task.jobs} jobs"
    return {"rate": line.done / seconds}


if __name__ == "__main__":
    run(prepare, work, measure)
