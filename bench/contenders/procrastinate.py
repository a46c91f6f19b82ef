"""procrastinate: psycopg with a pool, concurrency as given, uvloop.

It claims and completes jobs one by one.
"""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import suppress
from typing import Any

from procrastinate import App, PsycopgConnector

from bench.contenders.link import Line, Task, at_once, run

CONCURRENCY = 20

logging.getLogger("procrastinate").setLevel(logging.WARNING)


def app_for(task: Task) -> App:
    return App(connector=PsycopgConnector(conninfo=task.url, min_size=2, max_size=CONCURRENCY + 2))


def noop(app: App) -> Any:
    @app.task(name="bench")
    async def bench(order_id: int, who: str, amount: int) -> None: ...

    return bench


async def prepare(task: Task) -> None:
    app = app_for(task)
    async with app.open_async():
        await app.schema_manager.apply_schema_async()
        await fill(noop(app), task)


async def fill(bench: Any, task: Task) -> None:
    for start in range(0, task.jobs, 1000):
        numbers = range(start, min(start + 1000, task.jobs))
        await bench.batch_defer_async(*(task.payload(number) for number in numbers))


async def work(task: Task, line: Line) -> None:
    app = app_for(task)

    @app.task(name="bench")
    async def bench(order_id: int, who: str, amount: int) -> None:  # noqa: ARG001
        if task.work == "pick-up":
            line.began[order_id] = time.monotonic()
        line.done += 1

    async with app.open_async():
        await line.ready()
        working = app.run_worker_async(concurrency=CONCURRENCY, install_signal_handlers=False)
        running = asyncio.create_task(working)
        await line.stopped(running)
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running


async def measure(task: Task) -> dict[str, Any]:
    app = app_for(task)
    times = []
    async with app.open_async():
        bench = noop(app)
        if task.work == "submit":
            return {"rate": await at_once(task, lambda number: bench.defer_async(**task.payload(number)))}
        began = time.perf_counter()
        if task.work == "start-bulk":
            await fill(bench, task)
        else:
            for number in range(task.jobs):
                await asyncio.sleep(task.options.get("pause", 0))
                times.append(time.monotonic())
                await bench.defer_async(**task.payload(number))
        return {"rate": task.jobs / (time.perf_counter() - began), "times": times}


if __name__ == "__main__":
    run(prepare, work, measure)
