"""Three worker processes, and everything that can go wrong around them, at random: for minutes.

Each job writes a line into a table of the user's, in `complete()`. In the end every line must be there once.
"""

from __future__ import annotations

import asyncio
import math
import os
import random
import signal
import sqlite3
import sys
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager, closing, suppress
from inspect import isawaitable
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import psycopg
import pytest
from tests.behaviour.children import ROOT
from tests.behaviour.programs.storm_worker import JOBS, STEPS, Order, Report
from tests.support.postgres import PostgresServer
from tests.support.proxy import Proxy, proxy_to

import queuert
from queuert import Client, StorageUnavailable

SECONDS = float(os.environ.get("QUEUERT_STORM_SECONDS", "600"))
"""How long the faults go on, for each storage."""
PROCESSES = 3
STUCK_AFTER = 120
"""Seconds without progress after the last fault: many leases."""


class Place:
    """Where the jobs are: what the workers connect to, what goes wrong there, and how to look past all of it."""

    url: str
    direct: str
    faults: dict[str, int]

    def say(self, text: str) -> list[Any]:
        raise NotImplementedError

    async def cause(self, fault: str, weather: random.Random) -> None:
        raise NotImplementedError


class SqlitePlace(Place):
    faults = {"kill": 4, "stop": 3, "hang": 2}  # noqa: RUF012

    def __init__(self, directory: Path) -> None:
        self._path = directory / "jobs.db"
        self.url = self.direct = f"sqlite:///{self._path}"

    def say(self, text: str) -> list[Any]:
        with closing(sqlite3.connect(self._path, timeout=60)) as connection, connection:
            return connection.execute(text).fetchall()

    async def cause(self, fault: str, weather: random.Random) -> None:
        """Somebody else holds the write lock."""
        with closing(sqlite3.connect(self._path, timeout=0.2)) as connection, suppress(sqlite3.OperationalError):
            connection.execute("BEGIN IMMEDIATE")
            await asyncio.sleep(weather.uniform(0.2, 3))
            connection.rollback()


class PostgresPlace(Place):
    faults = {"kill": 4, "stop": 3, "cut": 3, "hang": 3, "restart": 1}  # noqa: RUF012

    def __init__(self, scheme: str, server: PostgresServer, url: str, proxy: Proxy) -> None:
        self._server, self._proxy = server, proxy
        self.direct = url.replace("postgresql://", f"{scheme}://")
        self.url = f"{scheme}://postgres@127.0.0.1:{proxy.port}{urlsplit(url).path}"
        self._plain = url

    def say(self, text: str) -> list[Any]:
        with psycopg.connect(self._plain, autocommit=True) as connection:
            cursor = connection.execute(text.encode())
            return cursor.fetchall() if cursor.description else []

    async def cause(self, fault: str, weather: random.Random) -> None:
        if fault == "restart":
            await asyncio.to_thread(self._server.restart)
        elif fault == "cut" and weather.random() < 0.5:
            self._proxy.cut()
        elif fault == "cut":
            with suppress(psycopg.Error):
                await asyncio.to_thread(
                    self.say,
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() "
                    "AND pid <> pg_backend_pid() AND random() < 0.5",
                )
        else:
            weather.choice([self._proxy.freeze, self._proxy.freeze_answers, self._proxy.strand])()
            await asyncio.sleep(weather.uniform(0.2, 6))
            self._proxy.thaw()


@asynccontextmanager
async def place_for(kind: str, directory: Path) -> AsyncGenerator[Place]:
    if kind == "sqlite":
        yield SqlitePlace(directory)
        return
    server = PostgresServer({"max_connections": "300"})
    try:
        with server.fresh() as url:
            socket = unquote(urlsplit(url).query.partition("host=")[2])
            async with proxy_to(f"{socket}/.s.PGSQL.5432") as proxy:
                yield PostgresPlace(kind, server, url, proxy)
    finally:
        server.remove()


class Workers:
    """Processes that are killed and stopped, and of which there are always three."""

    def __init__(self, url: str, log: Path, program: str = "storm_worker") -> None:
        self._url, self._log, self._program = url, log, program
        self._processes: list[asyncio.subprocess.Process] = []
        self._stopped: set[int] = set()

    async def start(self) -> None:
        with self._log.open("ab") as log:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", f"tests.behaviour.programs.{self._program}", self._url, cwd=ROOT, stderr=log
            )
        self._processes.append(process)

    async def kill(self, weather: random.Random) -> None:
        process = weather.choice(self._processes)
        self._processes.remove(process)
        process.kill()
        await process.wait()
        await self.start()

    async def stop(self, weather: random.Random) -> None:
        """For shorter than a lease, or longer."""
        process = weather.choice(self._processes)
        if process.pid in self._stopped:
            return
        self._stopped.add(process.pid)
        with suppress(ProcessLookupError):
            process.send_signal(signal.SIGSTOP)
            await asyncio.sleep(weather.uniform(0.2, 7))
            process.send_signal(signal.SIGCONT)
        self._stopped.discard(process.pid)

    def dead(self) -> int:
        return sum(process.returncode is not None for process in self._processes)

    async def end(self) -> None:
        for process in self._processes:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()


async def produce(client: Client[Any], until: Callable[[], bool]) -> None:
    """Orders, and reports of some of them; each transaction also writes what it has started."""
    number = 0
    while not until():
        numbers = range(number, number + 5)
        number += 5
        rows = ", ".join(f"({each}, 1), ({each}, 2)" for each in numbers) + f", ({numbers[0]}, 3)"
        with suppress(Exception):  # the database is gone for a moment, or the commit was not answered
            async with client.transaction() as tx:
                written = tx.connection.execute(f"INSERT INTO started (number, step) VALUES {rows}")
                if isawaitable(written):
                    await written
                orders = await client.start_many(tx, [Order(number=each) for each in numbers])
                await client.start(tx, Report(number=numbers[0], orders=orders))
        await asyncio.sleep(0.15)


async def storm(place: Place, workers: Workers, weather: random.Random, until: Callable[[], bool]) -> Counter[str]:
    counts: Counter[str] = Counter()
    under_way: set[asyncio.Task[None]] = set()
    while not until():
        await asyncio.sleep(weather.uniform(0.1, 1.5))
        (fault,) = weather.choices(list(place.faults), list(place.faults.values()))
        if fault != "kill" and any(task.get_name() == fault for task in under_way):
            continue
        causes: dict[str, Callable[[], Coroutine[Any, Any, None]]] = {
            "kill": lambda: workers.kill(weather),
            "stop": lambda: workers.stop(weather),
        }
        counts[fault] += 1
        work = causes[fault]() if fault in causes else place.cause(fault, weather)
        task = asyncio.create_task(work, name=fault)
        under_way.add(task)
        task.add_done_callback(under_way.discard)
    await asyncio.gather(*under_way)
    return counts


async def calm(client: Client[Any]) -> list[Any]:
    """What does not come to its end. A slow machine may have much left, as long as it becomes less."""
    fewest, since = math.inf, time.monotonic()
    while True:
        try:
            left = [each for each in await client.stats() if _open(each)]
        except StorageUnavailable:  # the last fault has cut an idle connection of ours, too
            await asyncio.sleep(0.5)
            continue
        if sum(map(_open, left)) < fewest:
            fewest, since = sum(map(_open, left)), time.monotonic()
        if not left or time.monotonic() > since + STUCK_AFTER:
            return left
        await asyncio.sleep(0.5)


@pytest.mark.soak
@pytest.mark.timeout(2 * SECONDS + 600)
@pytest.mark.parametrize("kind", ["sqlite", "postgresql", "postgresql+asyncpg"])
async def test_nothing_is_lost_doubled_or_stuck(kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    seed = random.randrange(10**9)
    weather = random.Random(seed)
    async with place_for(kind, tmp_path) as place:
        async with queuert.connect(place.direct, jobs=JOBS, notify=None) as client:
            for table in ("ledger", "started"):
                place.say(f"CREATE TABLE {table} (number INTEGER, step INTEGER)")
            workers = Workers(place.url, tmp_path / "workers.log")
            try:
                for _ in range(PROCESSES):
                    await workers.start()
                end = time.monotonic() + SECONDS
                counts, _ = await asyncio.gather(
                    storm(place, workers, weather, lambda: time.monotonic() > end),
                    produce(client, lambda: time.monotonic() > end),
                )
                left = await calm(client)
                dead = workers.dead()
            finally:
                await workers.end()
        lines = Counter(place.say("SELECT number, step FROM ledger"))
        started = set(place.say("SELECT number, step FROM started"))
    doubled = sorted(line for line, number in lines.items() if number > 1)
    lost, strange = sorted(started - set(lines)), sorted(set(lines) - started)
    with capsys.disabled():
        faults = ", ".join(f"{number} × {fault}" for fault, number in sorted(counts.items()))
        print(f"\n{kind}, seed {seed}, {SECONDS:g} s: {len(started)} jobs; {faults}; "  # noqa: T201
              f"{len(lost)} lost, {len(doubled)} doubled, {sum(map(_open, left))} stuck")  # fmt: skip
    assert (lost, doubled, strange, left, dead) == ([], [], [], [], 0), (tmp_path / "workers.log").read_text()[-5000:]
    assert len(started) >= len(STEPS)


def _open(stats: Any) -> int:
    return int(stats.blocked + stats.pending + stats.running + stats.failed)
