"""A database that hangs without hanging up: a proxy accepts bytes and passes nothing on."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import psycopg
import pytest
from sqlalchemy.ext.asyncio import create_async_engine
from tests.adapters.postgres.drivers import Watcher
from tests.behaviour.steps import PATIENCE, SOON, Gate, Step, eventually, patiently
from tests.conformance.postgres_harness import database, empty
from tests.support.clients import in_soak_over_sqlalchemy
from tests.support.proxy import Proxy, proxy_to

import queuert
import queuert.sqlalchemy
from queuert import Attempt, Client, Handlers, Worker
from queuert.adapters.sql.statement import Statement
from queuert.adapters.sqlite.connections.database import Database
from queuert.adapters.sqlite.drivers.aiosqlite import AiosqliteProvider
from queuert.adapters.sqlite.drivers.threaded import AsyncSqliteProvider
from queuert.errors import StorageUnavailable
from queuert.ports.provider import TimeLimit

LEASE = 2.0
"""Seconds. A statement of the worker's own gets half of it here; with leases from four seconds on, a quarter."""

Connect = Callable[[str], AbstractAsyncContextManager[Client[Any]]]


def by_url(scheme: str) -> Connect:
    return lambda address: queuert.connect(f"{scheme}://{address}", jobs=[Step], notify=None)


def by_engine(scheme: str) -> Connect:
    @asynccontextmanager
    async def connect(address: str) -> AsyncGenerator[Client[Any]]:
        engine = create_async_engine(f"{scheme}://{address}")
        try:
            async with queuert.sqlalchemy.connect(engine, jobs=[Step], notify=None) as client:
                yield client
        finally:
            await engine.dispose()

    return connect


CLIENTS: dict[str, Connect] = {
    "psycopg": by_url("postgresql+psycopg"),
    "asyncpg": by_url("postgresql+asyncpg"),
    "sqlalchemy-psycopg": by_engine("postgresql+psycopg"),
    "sqlalchemy-asyncpg": by_engine("postgresql+asyncpg"),
}


class Scene:
    """A worker whose database can be frozen, and a client that reaches the database past the proxy."""

    def __init__(self, proxy: Proxy, client: Client[Any], beside: Client[Any], watch: Watcher) -> None:
        self.proxy = proxy
        self.client = client
        self.beside = beside
        self.watch = watch

    def worker(self, handlers: Handlers[Any], **options: Any) -> Worker:
        settings: dict[str, Any] = {
            "lease": LEASE, "poll_interval": 0.1, "recovery_backoff": SOON, "shutdown_timeout": 1.0, **options,
        }  # fmt: skip
        return Worker(self.client, handlers, **settings)


@pytest.fixture(params=in_soak_over_sqlalchemy(CLIENTS))
async def scene(request: pytest.FixtureRequest) -> AsyncGenerator[Scene]:
    empty()
    parts = urlsplit(database())
    directory = parse_qs(parts.query)["host"][0]
    watch = Watcher(database())
    async with proxy_to(f"{directory}/.s.PGSQL.5432") as proxy:
        address = f"postgres@127.0.0.1:{proxy.port}{parts.path}"
        async with (
            queuert.connect(database(), jobs=[Step], notify=None) as beside,
            CLIENTS[request.param](address) as client,
        ):
            yield Scene(proxy, client, beside, watch)
            proxy.thaw()
    watch.close()


async def test_the_handler_is_aborted_and_the_worker_recovers(scene: Scene) -> None:
    """The lease ends by the clock. When new connections work again, so does the worker."""
    handlers = Handlers[Any](backoff=SOON)
    running, aborted = asyncio.Event(), asyncio.Event()

    @handlers.handles(Step)
    async def step(attempt: Attempt[Step, Any]) -> int:
        if attempt.job.number == 1 and not running.is_set():
            running.set()
            try:
                assert await attempt.signal.wait() == "lease_lost"
            finally:
                aborted.set()
        return attempt.job.number

    first = await scene.beside.submit(Step(number=1))
    async with scene.worker(handlers):
        await patiently(running.wait())
        scene.proxy.freeze()
        await patiently(aborted.wait())
        scene.proxy.strand()
        second = await scene.beside.submit(Step(number=2))
        assert await scene.beside.wait(second, timeout=PATIENCE) == 2
        assert await scene.beside.wait(first, timeout=PATIENCE) == 1


@pytest.mark.parametrize("where", ["statement", "between statements"])
async def test_a_handler_in_its_transaction(scene: Scene, where: str) -> None:
    """What it waits for fails after its lease has ended, and its slot is free again."""
    handlers = Handlers[Any](backoff=SOON)
    inside, over = asyncio.Event(), asyncio.Event()
    runs: list[int] = []

    @handlers.handles(Step)
    async def step(attempt: Attempt[Step, Any]) -> int:
        runs.append(attempt.job.number)
        try:
            async with attempt.complete() as tx:
                if len(runs) == 1:
                    scene.proxy.freeze()
                    inside.set()
                    if where == "between statements":
                        await attempt.signal.wait()
                    await attempt.client.start(tx, Step(number=7))
        finally:
            over.set()
        return attempt.job.number

    chain = await scene.beside.submit(Step(number=1))
    async with scene.worker(handlers):
        await patiently(inside.wait())
        await patiently(over.wait())
        scene.proxy.strand()
        # The server still believes in the transaction, which holds the job. It notices at last.
        scene.watch.terminate_others("state = 'idle in transaction' OR wait_event_type = 'Lock'")
        assert await scene.beside.wait(chain, timeout=PATIENCE) == 1
    assert runs.count(1) >= 2
    assert 7 not in runs


@pytest.mark.parametrize("where", ["idle", "handler", "transaction", "unsettled"])
async def test_stop_is_bounded(scene: Scene, where: str) -> None:
    """By its own arithmetic: a second for the handlers, one for the results, five to close. Not for ever."""
    handlers = Handlers[Any](backoff=SOON)
    reached, gate = asyncio.Event(), Gate()

    @handlers.handles(Step)
    async def step(attempt: Attempt[Step, Any]) -> int:
        if where == "transaction":
            async with attempt.complete() as tx:
                scene.proxy.freeze()
                reached.set()
                await attempt.client.start(tx, Step(number=7))
        reached.set()
        if where == "handler":
            await gate()
        scene.proxy.freeze()
        return 1

    if where != "idle":
        await scene.beside.submit(Step(number=1))
    worker = scene.worker(handlers, lease=60.0, shutdown_timeout=0.1)
    await worker.start()
    if where == "idle":
        # Its last statement until the next poll. The claim before it is replaced at once.
        await eventually(lambda: scene.watch.others("query LIKE '%found.next_in%'"))
    else:
        await patiently(reached.wait())
    scene.proxy.freeze()
    await patiently(worker.stop())


async def test_statements_that_were_given_up_end_on_the_server(
    scene: Scene, request: pytest.FixtureRequest, caplog: pytest.LogCaptureFixture
) -> None:
    """They do not wait for locks, nor hold any, although the server has not noticed that the client has gone."""
    if "sqlalchemy" in request.node.name:
        pytest.skip("the settings of an engine's connections are the user's")
    handlers = Handlers[Any](backoff=SOON)

    @handlers.handles(Step)
    async def step(attempt: Attempt[Step, Any]) -> int:
        return attempt.job.number

    chain = await scene.beside.submit(Step(number=1))
    with psycopg.connect(database()) as other:
        await asyncio.to_thread(other.execute, "LOCK TABLE queuert_ready IN ACCESS EXCLUSIVE MODE")
        async with scene.worker(handlers):
            await eventually(lambda: scene.watch.others("wait_event_type = 'Lock'"))
            scene.proxy.freeze()
            await eventually(lambda: not scene.watch.others("wait_event_type = 'Lock'"))
            other.rollback()
            scene.proxy.strand()
            assert await scene.beside.wait(chain, timeout=PATIENCE) == 1


async def test_a_claim_that_commits_after_its_client_has_gone(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    """The jobs are given back, and no attempt is counted."""
    caplog.set_level(logging.WARNING, "queuert.worker")
    handlers = Handlers[Any](backoff=SOON)
    numbers: list[int] = []

    @handlers.handles(Step)
    async def step(attempt: Attempt[Step, Any]) -> int:
        numbers.append(attempt.number)
        return attempt.job.number

    async with scene.beside.transaction() as tx:
        chains = await scene.beside.start_many(tx, [Step(number=each) for each in range(5)])
    with psycopg.connect(database()) as other:
        other.execute("LOCK TABLE queuert_ready IN EXCLUSIVE MODE")
        async with scene.worker(handlers, lease=16.0, renew_interval=1.0, concurrency=5):
            await eventually(lambda: scene.watch.others("wait_event_type = 'Lock'"))
            scene.proxy.freeze_answers()
            other.rollback()
            await eventually(lambda: scene.watch("SELECT count(*) FROM queuert_running")[0] == 5)
            await eventually(lambda: "did not answer within" in caplog.text)
            scene.proxy.strand()
            for number, chain in enumerate(chains):
                assert await scene.beside.wait(chain, timeout=PATIENCE) == number
    assert numbers == [1] * 5
    assert caplog.text.count("is given back: the claim that took it had failed") == 5


# SQLite: there is no socket, so the statement is interrupted.

ENDLESS = "WITH RECURSIVE n (x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT count(*) FROM n"


@pytest.mark.parametrize("writes", [True, False], ids=["write", "read"])
@pytest.mark.parametrize("made", [AsyncSqliteProvider, AiosqliteProvider])
async def test_a_statement_of_sqlite_is_interrupted(made: Any, tmp_path: Path, writes: bool) -> None:
    provider = made(Database(tmp_path / "jobs.db", 5.0))
    one = Statement("SELECT 1", {}, writes)
    with pytest.raises(StorageUnavailable, match="was interrupted"):
        await provider.execute_within(TimeLimit(0.2), Statement(ENDLESS, {}, writes))
    for _ in range(8):  # readers, too
        assert await patiently(provider.execute_within(TimeLimit(20.0), one)) == [(1,)]
    await patiently(provider.close())  # the thread has ended: the statement has
