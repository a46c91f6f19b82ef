"""pgqueuer with its best settings: asyncpg, uvloop, batches of 500, and a pool, so that claims and
completions overlap.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from typing import Any

import asyncpg
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver, AsyncpgPoolDriver
from pgqueuer.models import Job
from pgqueuer.queries import Queries

from bench.contenders.link import Line, Task, at_once, run

BATCH = 500
CONNECTIONS = 4


async def prepare(task: Task) -> None:
    connection = await asyncpg.connect(task.url)
    queries = Queries(AsyncpgDriver(connection))
    await queries.install()
    for start in range(0, task.jobs, 1000):
        await enqueue(queries, task, start, min(1000, task.jobs - start))
    await connection.close()


async def enqueue(queries: Queries, task: Task, start: int, number: int) -> None:
    payloads: list[bytes | None] = [json.dumps(task.payload(start + n)).encode() for n in range(number)]
    await queries.enqueue(["bench"] * number, payloads, [0] * number)


async def work(task: Task, line: Line) -> None:
    logging.getLogger("pgqueuer").setLevel(logging.WARNING)
    pool = await asyncpg.create_pool(task.url, min_size=CONNECTIONS, max_size=CONNECTIONS)
    app = PgQueuer(AsyncpgPoolDriver(pool))

    if task.work == "pick-up":

        @app.entrypoint("bench")
        async def begin(job: Job) -> None:
            assert job.payload is not None
            line.began[json.loads(job.payload)["order_id"]] = time.monotonic()
            line.done += 1
    else:

        @app.entrypoint("bench")
        async def handle(job: Job) -> None:  # noqa: ARG001
            line.done += 1

    await line.ready()
    running = asyncio.create_task(app.run(batch_size=BATCH))
    await line.stopped(running)
    app.shutdown.set()
    await running
    await pool.close()


async def submit(task: Task) -> dict[str, Any]:
    """Each task has a connection of its own, up to a number that a server allows."""
    connections = min(task.options["tasks"], 32)
    pool = await asyncpg.create_pool(task.url, min_size=connections, max_size=connections)
    queries = Queries(AsyncpgPoolDriver(pool))
    rate = await at_once(task, lambda number: queries.enqueue("bench", json.dumps(task.payload(number)).encode()))
    await pool.close()
    return {"rate": rate}


async def measure(task: Task) -> dict[str, Any]:
    if task.work == "submit":
        return await submit(task)
    connection = await asyncpg.connect(task.url)
    queries = Queries(AsyncpgDriver(connection))
    times = []
    began = time.perf_counter()
    if task.work == "start-bulk":
        for start in range(0, task.jobs, 1000):
            async with connection.transaction():
                await enqueue(queries, task, start, 1000)
    else:
        for number in range(task.jobs):
            await asyncio.sleep(task.options.get("pause", 0))
            times.append(time.monotonic())
            await queries.enqueue("bench", json.dumps(task.payload(number)).encode())
    seconds = time.perf_counter() - began
    await connection.close()
    return {"rate": task.jobs / seconds, "times": times}


if __name__ == "__main__":
    run(prepare, work, measure)
