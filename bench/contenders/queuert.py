"""This library: asyncpg (or the driver or storage that the task names), and uvloop if it is
installed.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import queuert
from bench.contenders.jobs import KEYS, USER_TABLE, Close, First, Limited, Order, handlers_for
from bench.contenders.link import Line, Task, at_once, run, say
from queuert import Client, Job, Keep, Worker

CONCURRENCY = 100


@asynccontextmanager
async def connect(task: Task) -> AsyncGenerator[Client[Any]]:
    """A client made as users make it."""
    jobs: list[type[Job[Any, Any]]] = [Order, Limited, First, Close]
    if "scene" in task.options:
        jobs += _scenes().JOBS
    url = task.url.replace("postgresql://", f"postgresql+{_driver(task)}://")
    options = dict(task.options.get("connect", {}))
    if "keep_seconds" in task.options:
        options["keep"] = Keep(completed=timedelta(seconds=task.options["keep_seconds"]))
    async with queuert.connect(url, jobs=jobs, **options) as client:
        yield client


def _driver(task: Task) -> str:
    driver: str = task.options.get("driver", "asyncpg")
    return driver


def _scenes() -> Any:
    """Imported only when needed, because its many types would use memory in every worker."""
    from bench.contenders import scenes

    return scenes


async def prepare(task: Task) -> None:
    async with connect(task) as client:
        if task.work in ("complete", "staged"):
            async with client.transaction() as tx:
                await tx.connection.execute(USER_TABLE)
        if "scene" in task.options:
            await _scenes().build(client, task, **task.options["scene"])
        await fill(client, task)


async def fill(client: Client[Any], task: Task) -> None:
    batch = task.options.get("blockers", 1000)
    for start in range(0, task.jobs, batch):
        numbers = range(start, min(start + batch, task.jobs))
        async with client.transaction() as tx:
            if task.work == "chain":
                await client.start_many(tx, [First(**task.payload(number)) for number in numbers])
            elif task.work == "limited":
                await client.start_many(
                    tx, [Limited(**task.payload(number), customer=number % KEYS) for number in numbers]
                )
            else:
                orders = await client.start_many(tx, [Order(**task.payload(number)) for number in numbers])
                if task.work == "fan-in":
                    await client.start(tx, Close(orders=orders))


async def work(task: Task, line: Line) -> None:
    async with connect(task) as client:
        if task.work == "feed":
            await feed(client, task, line)
            return
        handlers = handlers_for(task.work, line, _driver(task))
        worker = Worker(client, handlers, concurrency=task.options.get("concurrency", CONCURRENCY))
        await line.ready()
        async with worker:
            if task.work == "churn":
                await churn(client, task, line)
            else:
                await line.stopped()


async def feed(client: Client[Any], task: Task, line: Line) -> None:
    """Start 1,000 more jobs each time the harness asks for them."""
    await line.ready()
    while await line.word() != "stop":
        async with client.transaction() as tx:
            await client.start_many(tx, [Order(**task.payload(number)) for number in range(1000)])
        line.done += 1000
        say({"done": line.done})


async def churn(client: Client[Any], task: Task, line: Line) -> None:
    """Start 1,000 jobs, run them, delete them, and repeat until the stop message."""
    stopped = asyncio.ensure_future(line.stopped())
    while not stopped.done():
        goal = line.done + 1000
        async with client.transaction() as tx:
            chains = await client.start_many(tx, [Order(**task.payload(number)) for number in range(1000)])
        while line.done < goal:  # noqa: ASYNC110
            await asyncio.sleep(0.005)
        await client.wait(chains[-1])
        async with client.transaction() as tx:
            await client.delete(tx, chains)


async def measure(task: Task) -> dict[str, Any]:
    async with connect(task) as client:
        if task.work in ("drain", "limited"):
            return await drain(client, task)
        if task.work == "submit":
            return {"rate": await at_once(task, lambda number: client.submit(Order(**task.payload(number))))}
        times = []
        began = time.perf_counter()
        if task.work == "start-bulk":
            await fill(client, task)
        else:
            for number in range(task.jobs):
                await asyncio.sleep(task.options.get("pause", 0))
                times.append(time.monotonic())
                if task.options.get("by") == "submit":
                    await client.submit(Order(**task.payload(number)))
                    continue
                async with client.transaction() as tx:
                    await client.start(tx, Order(**task.payload(number)))
        return {"rate": task.jobs / (time.perf_counter() - began), "times": times}


async def drain(client: Client[Any], task: Task) -> dict[str, Any]:
    """For storage that is in this process: everything runs here."""
    line = Line()
    await fill(client, task)
    worker = Worker(client, handlers_for(task.work, line), concurrency=task.options.get("concurrency", CONCURRENCY))
    began = time.perf_counter()
    await worker.drain()
    seconds = time.perf_counter() - began
    assert line.done == task.jobs, f"{line.done} of {task.jobs} jobs"
    return {"rate": line.done / seconds}


if __name__ == "__main__":
    run(prepare, work, measure)
