"""PostgreSQL ends the worker's connections, at every step of an attempt: each job takes effect once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import psycopg
import pytest
from tests.adapters.postgres.drivers import Watcher
from tests.behaviour.steps import PATIENCE, SOON, Step, eventually, start
from tests.behaviour.watching import Points, watched
from tests.conformance.postgres_harness import database, empty
from tests.support.postgres import PostgresServer

import queuert
from queuert import Attempt, Client, EntryJob, Handlers, Worker

SCHEMES = ["postgresql", "postgresql+asyncpg"]

AROUND = (
    "claim", "claim.done", "reap", "reap.done", "next_available_in", "next_available_in.done", "renew", "renew.done",
    "begin", "begun", "hold", "hold.done", "savepoint", "release", "released", "settle", "settle.done",
    "commit", "committed",
)  # fmt: skip
"""Before and after everything that is said to the database."""

BY_HANDLER = ("first", "in prepare", "between", "before the write", "after the write", "after complete")

DURING = {
    "claim": "claim",
    "reap": "reap",
    "renew": "renew",
    "hold": "queuert_hold",
    "settle": "queuert_complete",
}
"""Statements in whose middle the connection ends: the points before them, and the functions that they call."""


class Plain(EntryJob[int], name="plain"):
    """Settled with others, without a transaction of its own."""

    number: int


class Scene:
    """A worker with a table that its jobs write into, and somebody who cuts its connections."""

    def __init__(self, url: str, watch: Watcher) -> None:
        self.url = url
        self.watch = watch
        self.points = Points()
        self.fuse: str | None = None
        """The point at which the connections are to be cut."""
        self.burnt = asyncio.Event()
        self.points.visit = self.reach

    def reach(self, point: str) -> None:
        if point == self.fuse:
            self.cut()
            self.burn()

    def burn(self) -> None:
        self.fuse = None
        self.burnt.set()

    def cut(self, condition: str = "true") -> bool:
        """End the worker's connections; whether there were any."""
        return self.watch.terminate_others(f"application_name = 'the worker' AND {condition}") > 0

    def cut_waiting(self) -> str:
        """End those that wait for a lock, as others may be in the way of the one that is meant; what they said.

        Exactly those that were seen: one that waits only afterwards may be the one that is meant, and waits once.
        """
        condition = "application_name = 'the worker' AND wait_event_type = 'Lock'"
        seen = self.watch(f"SELECT pid, query FROM pg_stat_activity WHERE datname = current_database() AND {condition}")
        self.cut(f"pid = ANY (ARRAY{[pid for pid, _ in seen]}::int[])")
        return "\n".join(query for _, query in seen)

    def arm(self, point: str) -> None:
        self.burnt.clear()
        self.fuse = point

    def handlers(self) -> Handlers[Any]:
        handlers = Handlers[Any](backoff=SOON)

        @handlers.handles(Step)
        async def step(attempt: Attempt[Step, Any]) -> int:
            self.reach("first")
            async with attempt.prepare("staged"):
                self.reach("in prepare")
            if self.fuse is not None and "renew" in self.fuse:
                await self.burnt.wait()
            self.reach("between")
            async with attempt.complete() as tx:
                self.reach("before the write")
                await tx.connection.execute(f"INSERT INTO ledger VALUES ({attempt.job.number})")
                self.reach("after the write")
            self.reach("after complete")
            return attempt.job.number

        @handlers.handles(Plain)
        async def plain(attempt: Attempt[Plain, Any]) -> int:
            return attempt.job.number

        return handlers

    def arm_during(self, point: str, function: str, table: str = "queuert_running") -> asyncio.Task[None]:
        """Whoever comes to the point finds the table locked, and loses his connection while he waits for it."""
        self.arm(f"during {point}")
        lock = psycopg.connect(self.url)
        reached = asyncio.Event()

        async def stop() -> None:
            # A claim that finds nothing would not come to that table.
            if not reached.is_set() and (point != "claim" or self.watch("SELECT 1 FROM queuert_ready")):
                # The worker may give up waiting here. The thread does not, and then the table is locked.
                locking = asyncio.ensure_future(asyncio.to_thread(lock.execute, f"LOCK TABLE {table}".encode()))
                locking.add_done_callback(lambda _: reached.set())
                await asyncio.shield(locking)

        async def cut() -> None:
            with lock:
                await reached.wait()
                await eventually(lambda: function in self.cut_waiting())
                lock.rollback()
            self.burn()

        self.points.at(point, stop)
        return asyncio.create_task(cut())

    async def survives(self, client: Client[Any], what: str, *types: type[Step | Plain]) -> None:
        """Jobs are started until it has happened."""
        while not self.burnt.is_set():
            await self.run(client, what, *types)

    async def run(self, client: Client[Any], what: str, *types: type[Step | Plain]) -> None:
        """All are completed, and each has taken effect once."""
        self.watch("TRUNCATE ledger")
        async with client.transaction() as tx:
            chains = [await client.start(tx, kind(number=number)) for number, kind in enumerate(types)]
        results = [await client.wait(chain, timeout=PATIENCE) for chain in chains]
        assert results == list(range(len(types))), what
        written = [number for number, kind in enumerate(types) if kind is Step]
        assert self.watch("SELECT number FROM ledger ORDER BY number") == written, what


@pytest.fixture
def scene() -> Iterator[Scene]:
    empty()
    watch = Watcher(database())
    watch("CREATE TABLE IF NOT EXISTS ledger (number int)")
    yield Scene(database(), watch)
    watch("DROP TABLE ledger")
    watch.close()


def with_scheme(url: str, scheme: str) -> str:
    return url.replace("postgresql://", f"{scheme}://")


@asynccontextmanager
async def worker_of(scene: Scene, scheme: str, **options: Any) -> AsyncGenerator[Client[Any]]:
    """A worker that recovers soon, and beside it a client of the user's whose connections are left alone."""
    ours: Any = {"jobs": [Step, Plain], "poll_interval": 0.05}
    url = with_scheme(f"{scene.url}&application_name=the%20worker", scheme)
    timing: Any = {"lease": 1, "renew_interval": 0.05, "poll_interval": 0.05, "recovery_backoff": SOON, "backoff": SOON}
    async with (
        queuert.connect(scene.url, **ours) as client,
        watched(queuert.connect(url, **ours), scene.points) as own,
        Worker(own, scene.handlers(), **timing, **options),
    ):
        yield client


@pytest.mark.parametrize("scheme", SCHEMES)
async def test_before_and_after_everything(scene: Scene, scheme: str) -> None:
    async with worker_of(scene, scheme, concurrency=3) as client:
        for point in (*AROUND, *BY_HANDLER):
            scene.arm(point)
            await scene.survives(client, point, Step, Step, Plain)


@pytest.mark.parametrize("scheme", SCHEMES)
async def test_in_the_middle_of_every_statement(scene: Scene, scheme: str) -> None:
    async with worker_of(scene, scheme) as client:
        for point, function in DURING.items():
            cutting = scene.arm_during(point, function)
            await scene.survives(client, point, Plain if point == "settle" else Step)
            await cutting


@pytest.mark.parametrize("scheme", SCHEMES)
async def test_in_the_middle_of_a_commit(scene: Scene, scheme: str) -> None:
    """A deferred trigger of the user's ends its own backend, once."""
    scene.watch("CREATE SEQUENCE commits")
    scene.watch(
        "CREATE FUNCTION die_once() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
        "IF nextval('commits') = 1 THEN PERFORM pg_terminate_backend(pg_backend_pid()); PERFORM pg_sleep(5); END IF; "
        "RETURN NULL; END $$"
    )
    scene.watch(
        "CREATE CONSTRAINT TRIGGER die AFTER INSERT ON ledger DEFERRABLE INITIALLY DEFERRED "
        "FOR EACH ROW EXECUTE FUNCTION die_once()"
    )
    try:
        async with worker_of(scene, scheme) as client:
            await scene.run(client, "commit", Step, Step)
        assert scene.watch("SELECT last_value FROM commits")[0] >= 3
    finally:
        scene.watch("DROP FUNCTION die_once CASCADE")
        scene.watch("DROP SEQUENCE commits")


@pytest.mark.parametrize("scheme", SCHEMES)
async def test_the_server_crashes_twice_under_load(scheme: str, own_server: PostgresServer) -> None:
    """All jobs are completed by the same worker, each in the transaction that writes its line."""
    number, crashes = 200, [40, 120]

    def count(what: str) -> int:
        with psycopg.connect(own_server.url) as connection:
            (found,) = connection.execute(f"SELECT count(*) FROM {what}".encode()).fetchone() or (0,)
        return int(found)

    handlers = Handlers[Any](backoff=SOON)
    crash = asyncio.Event()
    written = 0

    @handlers.handles(Step)
    async def step(attempt: Attempt[Step, Any]) -> int:
        nonlocal written
        if attempt.job.number % 2:
            await asyncio.sleep(0)
        async with attempt.complete() as tx:
            await tx.connection.execute(f"INSERT INTO ledger VALUES ({attempt.job.number})")
            written += 1
            if written in crashes:
                crash.set()
        return attempt.job.number

    with psycopg.connect(own_server.url) as connection:
        connection.execute("CREATE TABLE ledger (number int)")
    url = with_scheme(own_server.url, scheme)
    async with queuert.connect(url, jobs=[Step], poll_interval=0.05) as client:
        await client.migrate()
        await start(client, number)
        timing: Any = {"lease": 2, "poll_interval": 0.05, "recovery_backoff": SOON}
        async with Worker(client, handlers, concurrency=8, **timing):
            for _ in crashes:
                await asyncio.wait_for(crash.wait(), PATIENCE)
                crash.clear()
                await asyncio.to_thread(own_server.restart, immediate=True)
            await eventually(lambda: count("queuert_job WHERE status = 'completed'") == number)
    with psycopg.connect(own_server.url) as connection:
        lines = connection.execute("SELECT number FROM ledger ORDER BY number").fetchall()
    assert [line for (line,) in lines] == list(range(number))
