"""How each kind of work is measured.

Each measurement has its own database, and returns figures by name.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from tempfile import TemporaryDirectory
from typing import Any

from bench.process import ContenderFailed, Process
from bench.roster import CONTENDERS
from bench.server import Server, connection

Figures = dict[str, float]


@dataclass(frozen=True)
class Entry:
    """One contender in one row."""

    contender: str
    measure: Callable[[Server, Entry], Awaitable[Figures]]
    jobs: int = 0
    work: str = "drain"
    processes: int = 1
    options: Mapping[str, Any] = field(default_factory=dict)
    label: str = ""
    """Instead of the contender's name."""
    settings: str = ""
    """In addition to the contender's own settings."""

    @property
    def name(self) -> str:
        return self.label or self.contender

    def process(self, step: str, url: str, **changes: Any) -> Process:
        task = {"step": step, "url": url, "work": self.work, "jobs": self.jobs, "options": dict(self.options)}
        contender = CONTENDERS[self.contender]
        command, environment = contender.install()
        return Process(command, environment, contender.home, {**task, **changes})

    async def run(self, step: str, url: str, **changes: Any) -> dict[str, Any]:
        async with self.process(step, url, **changes) as process:
            return await process.result()


async def drain(server: Server, entry: Entry) -> Figures:
    """Jobs are stored, then workers start. Measures the time until every job is settled."""
    async with server.database() as url:
        await entry.run("prepare", url)
        await server.execute("VACUUM ANALYZE", url)
        async with AsyncExitStack() as stack:
            workers = [await stack.enter_async_context(entry.process("work", url)) for _ in range(entry.processes)]
            for worker in workers:
                await worker.ready()
            watcher = await stack.enter_async_context(connection(url))
            began = time.perf_counter()
            for worker in workers:
                worker.tell("go")
            await all_done(workers, entry.jobs)
            while await watcher.fetchval(CONTENDERS[entry.contender].unsettled):  # noqa: ASYNC110
                await asyncio.sleep(0.002)
            seconds = time.perf_counter() - began
            for worker in workers:
                worker.tell("stop")
            for worker in workers:
                await worker.result()
        return {"rate": entry.jobs / seconds}


async def all_done(workers: list[Process], jobs: int) -> None:
    """Wait until as many handlers have ended as there are jobs."""
    deadline = time.monotonic() + 300
    news = asyncio.Event()
    for worker in workers:
        worker.news = news
    while (done := sum(worker.done for worker in workers)) < jobs:
        for worker in workers:
            worker.check()
        if time.monotonic() > deadline:
            raise ContenderFailed(f"{done} of {jobs} jobs were done after 300 s")
        news.clear()
        try:
            await asyncio.wait_for(news.wait(), 1)
        except TimeoutError:
            continue


async def by_itself(server: Server, entry: Entry) -> Figures:
    """The contender measures its own time. No jobs are stored before, unless it asks for it."""
    async with server.database() as url:
        await entry.run("prepare", url, jobs=entry.options.get("stored", 0))
        await server.execute("VACUUM ANALYZE", url)
        return {"rate": (await entry.run("measure", url))["rate"]}


async def embedded(server: Server, entry: Entry) -> Figures:  # noqa: ARG001
    """SQLite or memory: everything runs in the contender's process."""
    with TemporaryDirectory(prefix="queuert-bench-") as directory:
        url = entry.options.get("url") or f"sqlite:///{directory}/jobs.db"
        return {"rate": (await entry.run("measure", url))["rate"]}


async def memory(server: Server, entry: Entry) -> Figures:
    """Megabytes of an idle worker, and the maximum while it drains."""
    async with server.database() as url:
        await entry.run("prepare", url, jobs=0)
        async with entry.process("work", url) as worker:
            await worker.ready()
            worker.tell("go")
            await asyncio.sleep(2)
            idle = worker.rss()
            worker.tell("stop")
            await worker.result()
    async with server.database() as url:
        await entry.run("prepare", url)
        async with entry.process("work", url) as worker:
            await worker.ready()
            worker.tell("go")
            sampling = asyncio.create_task(_most(worker))
            await all_done([worker], entry.jobs)
            sampling.cancel()
            worker.tell("stop")
            await worker.result()
    return {"idle": idle, "draining": worker.peak_rss}


async def _most(worker: Process) -> None:
    while True:
        worker.peak_rss = max(worker.peak_rss, worker.rss())
        await asyncio.sleep(0.05)


async def pick_up(server: Server, entry: Entry) -> Figures:
    """One job at a time, for an idle worker: from the call that starts the job until its handler
    begins.
    """
    async with server.database() as url:
        await entry.run("prepare", url, jobs=0)
        async with entry.process("work", url) as worker:
            await worker.ready()
            worker.tell("go")
            await asyncio.sleep(1)  # so that it is idle and listens
            started = (await entry.run("measure", url))["times"]
            await all_done([worker], entry.jobs)
            worker.tell("stop")
            began = (await worker.result())["began"]
    waits = sorted(began[str(number)] - at for number, at in enumerate(started))
    return {"p50": 1000 * statistics.median(waits), "p99": 1000 * waits[int(len(waits) * 0.99)]}
