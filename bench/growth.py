"""Cost must not grow with the table: the drain beside a million other jobs, under an old snapshot,
and over time.
"""

from __future__ import annotations

import asyncio
import time

from bench.measure import Entry, Figures, all_done
from bench.process import Process
from bench.server import Server, connection

BACKLOG = 20_000
"""Jobs that wait, under continuous load."""
PART = 30.0
"""Seconds of the first and the last part of a long drain."""


async def beside(server: Server, entry: Entry) -> Figures:
    """Drain some jobs beside the other jobs of a scene.

    A scene is set up once and never changed.
    """
    scene = entry.options.get("scene")
    if scene is None:
        async with server.database() as url:
            return await _drain_some(server, entry, url)
    url, new = await server.kept(scene["scene"])
    if new:
        try:
            await entry.run("prepare", url, jobs=0)
        except BaseException:
            await server.drop_kept()
            raise
    return await _drain_some(server, entry, url)


async def beside_pruning(server: Server, entry: Entry) -> Figures:
    """Drain jobs beside completed ones, which a worker that keeps nothing deletes meanwhile."""
    async with server.database() as url:
        await entry.run("prepare", url, jobs=0)
        return await _drain_some(server, entry, url)


async def _drain_some(server: Server, entry: Entry, url: str) -> Figures:
    await entry.run("prepare", url, options={})
    await server.execute("VACUUM ANALYZE", url)
    async with entry.process("work", url) as worker:
        await worker.ready()
        began = time.perf_counter()
        worker.tell("go")
        await all_done([worker], entry.jobs)
        seconds = time.perf_counter() - began
        done = worker.done
        worker.tell("stop")
        await worker.result()
    return {"rate": done / seconds}


async def under_a_snapshot(server: Server, entry: Entry) -> Figures:
    """A drain of some minutes under continuous load, while another session keeps a snapshot open.

    With the option `snapshot: False` it has only begun a transaction, which takes no snapshot.
    """
    parts = max(2, round(entry.options["seconds"] / PART))
    async with server.database() as url:
        await entry.run("prepare", url, jobs=0)
        async with (
            connection(url) as other,
            other.transaction(isolation="repeatable_read"),
            entry.process("work", url, work="feed") as feeder,
            entry.process("work", url) as worker,
        ):
            if entry.options.get("snapshot", True):
                await other.fetch("SELECT count(*) FROM queuert_job")
            await feeder.ready()
            await worker.ready()
            feeder.tell("go")
            supply = asyncio.create_task(_keep_supplied(feeder, worker))
            while feeder.done < BACKLOG:
                await asyncio.sleep(0.05)
                feeder.check()
            worker.tell("go")
            marks = [0]
            for _ in range(parts):
                await asyncio.sleep(PART)
                worker.check()
                feeder.check()
                marks.append(worker.done)
            supply.cancel()
            for process in (worker, feeder):
                process.tell("stop")
                await process.result()
    return {"first 30 s": (marks[1] - marks[0]) / PART, "last 30 s": (marks[-1] - marks[-2]) / PART}


async def _keep_supplied(feeder: Process, worker: Process) -> None:
    """Each message to the feeder starts 1,000 jobs."""
    asked = 0
    while True:
        while asked - worker.done < 2 * BACKLOG:
            feeder.tell("more")
            asked += 1000
        await asyncio.sleep(0.02)


async def churn(server: Server, entry: Entry) -> Figures:
    """Insert, drain and delete again and again.

    Megabytes of all tables and indexes: early, maximum and end.
    """
    sizes: list[float] = []
    async with server.database() as url:
        await entry.run("prepare", url, jobs=0)
        async with entry.process("work", url) as worker, connection(url) as watcher:
            await worker.ready()
            worker.tell("go")
            began = time.monotonic()
            while time.monotonic() - began < entry.options["seconds"]:
                await asyncio.sleep(entry.options["seconds"] / 60)
                worker.check()
                sizes.append(await watcher.fetchval(SIZE) / 2**20)
            worker.tell("stop")
            done = (await worker.result())["done"]
    early = max(sizes[: len(sizes) // 5])
    return {"early": early, "most": max(sizes), "end": sizes[-1], "jobs": done}


async def at_rest(server: Server, entry: Entry) -> Figures:
    """Bytes that a job takes up when it is completed and the tables were vacuumed: in tables, in
    indexes and in TOAST.

    Contenders that delete their jobs leave what they write about them.
    """
    async with server.database() as url:
        await _drain_some(server, entry, url)
        await server.execute("VACUUM", url)
        async with connection(url) as watcher:
            found = await watcher.fetchrow(PLACES)
    return {place: found[place] / entry.jobs for place in ("tables", "indexes", "TOAST")}


PLACES = """
    SELECT sum(pg_relation_size(s.relid))::bigint AS tables, sum(pg_indexes_size(s.relid))::bigint AS indexes,
        coalesce(sum(pg_total_relation_size(nullif(c.reltoastrelid, 0))), 0)::bigint AS "TOAST"
    FROM pg_stat_user_tables AS s JOIN pg_class AS c ON c.oid = s.relid
"""

SIZE = "SELECT sum(pg_total_relation_size(relid))::bigint FROM pg_stat_user_tables"
