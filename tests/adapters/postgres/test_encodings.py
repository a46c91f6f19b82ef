"""Text is UTF-8 on every connection, whatever the database, the role or the connection has been told."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import asyncpg
import psycopg
import pytest
from psycopg_pool import AsyncConnectionPool, ConnectionPool
from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.orm import sessionmaker
from tests.behaviour.steps import PATIENCE, SOON
from tests.support.facade import awaited
from tests.support.jobs import Greet
from tests.support.postgres import Databases
from tests.support.worlds import start

import queuert
import queuert.sqlalchemy
from queuert import Attempt, Client, Handlers, StorageError, StorageRejected, SyncClient, Worker
from queuert.adapters.in_process import NoNotify
from queuert.adapters.postgres.adapter import asyncpg_state, psycopg_state, sync_psycopg_state

TEXT = "Zoë costs 5 € 😀"
Open = Callable[[str], AbstractAsyncContextManager[Client[Any]]]


def _with(url: str, scheme: str) -> str:
    return url.replace("postgresql", scheme, 1)


@asynccontextmanager
async def _psycopg_pool(url: str) -> AsyncGenerator[Client[Any]]:
    pool = AsyncConnectionPool(url, min_size=1, max_size=3, open=False)
    async with pool, Client(psycopg_state(pool), NoNotify(), [Greet]) as client:
        yield client


@asynccontextmanager
async def _sync_pool(url: str) -> AsyncGenerator[Client[Any]]:
    with ConnectionPool(url, min_size=1, max_size=3, open=True) as pool:
        async with awaited(SyncClient(sync_psycopg_state(pool), NoNotify(), [Greet])) as client:
            yield client


@asynccontextmanager
async def _asyncpg_pool(url: str) -> AsyncGenerator[Client[Any]]:
    pool = asyncpg.create_pool(url, min_size=1, max_size=3)
    async with pool, Client(asyncpg_state(pool), NoNotify(), [Greet]) as client:
        yield client


@asynccontextmanager
async def _async_engine(url: str, driver: str) -> AsyncGenerator[Client[Any]]:
    engine = create_async_engine(_with(url, f"postgresql+{driver}"))
    try:
        async with queuert.sqlalchemy.connect(engine, jobs=[Greet], notify=None) as client:
            yield client
    finally:
        await engine.dispose()


@asynccontextmanager
async def _engine(url: str) -> AsyncGenerator[Client[Any]]:
    engine = create_engine(_with(url, "postgresql+psycopg"))
    try:
        async with awaited(queuert.sqlalchemy.connect_sync(sessionmaker(engine), jobs=[Greet], notify=None)) as client:
            yield client
    finally:
        engine.dispose()


DOORS: dict[str, Open] = {
    "psycopg": lambda url: queuert.connect(url, jobs=[Greet]),
    "asyncpg": lambda url: queuert.connect(_with(url, "postgresql+asyncpg"), jobs=[Greet]),
    "psycopg-sync": lambda url: awaited(queuert.connect_sync(url, jobs=[Greet])),
    "psycopg-pool": _psycopg_pool,
    "psycopg-sync-pool": _sync_pool,
    "asyncpg-pool": _asyncpg_pool,
    "sqlalchemy-psycopg": lambda url: _async_engine(url, "psycopg"),
    "sqlalchemy-asyncpg": lambda url: _async_engine(url, "asyncpg"),
    "sqlalchemy-sync": _engine,
}


@pytest.fixture(params=DOORS)
def door(request: pytest.FixtureRequest) -> Open:
    return DOORS[request.param]


def set_client_encoding(url: str, encoding: str) -> None:
    """For all connections to this database that do not ask for another."""
    with psycopg.connect(url, autocommit=True) as connection:
        name = connection.info.dbname
        connection.execute(f"ALTER DATABASE {name} SET client_encoding = '{encoding}'".encode())


async def check_text(client: Client[Any]) -> None:
    chain = await start(client, Greet(who=TEXT))
    job = await client.get_job(chain.id, Greet)
    assert job is not None
    assert job.job == Greet(who=TEXT)
    async with client.transaction() as tx:
        chain = await client.start(tx, Greet(), dedup=TEXT)
        assert (await client.start(tx, Greet(), dedup=TEXT)).id == chain.id


async def test_connections_that_were_told_another_encoding(door: Open, database_url: str) -> None:
    set_client_encoding(database_url, "LATIN1")
    async with door(database_url) as client:
        await check_text(client)


async def test_a_database_without_an_encoding(door: Open, postgres: Databases) -> None:
    """SQL_ASCII stores what it is given: UTF-8."""
    with postgres.encoded("SQL_ASCII") as url:
        if door in (_engine, DOORS["sqlalchemy-psycopg"]):  # without it, SQLAlchemy itself fails
            url += "&client_encoding=utf8"
        async with door(url) as client:
            await check_text(client)
        with psycopg.connect(url, client_encoding="utf8") as connection:
            stored = connection.execute("SELECT input::text FROM queuert_job ORDER BY id").fetchall()
            assert TEXT in stored[0][0]


@pytest.mark.parametrize("encoding", ["LATIN1", "EUC_JP"])
async def test_a_database_that_cannot_hold_every_text_is_refused(
    door: Open, encoding: str, postgres: Databases
) -> None:
    message = f"the encoding of this database is {encoding}.* ENCODING 'UTF8'"
    with postgres.encoded(encoding) as url, pytest.raises(StorageError, match=message):
        async with door(url):
            raise AssertionError("it was entered")


@pytest.mark.parametrize("encoding", ["UTF8", "SQL_ASCII"])
@pytest.mark.parametrize("scheme", ["postgresql+psycopg", "postgresql+asyncpg"])
async def test_errors_and_results_of_handlers(scheme: str, encoding: str, postgres: Databases) -> None:
    handlers = Handlers[Any]()

    @handlers.handles(Greet, backoff=SOON)
    async def greet(attempt: Attempt[Greet]) -> str:
        if attempt.number == 1:
            raise ValueError(TEXT)
        return attempt.job.who

    with postgres.encoded(encoding) as url:
        set_client_encoding(url, "LATIN1")
        async with queuert.connect(_with(url, scheme), jobs=[Greet]) as client:
            chains = [await start(client, Greet(who=f"{TEXT} {number}")) for number in range(21)]
            async with Worker(client, handlers, concurrency=21):
                for number, chain in enumerate(chains):
                    assert await client.wait(chain, timeout=PATIENCE) == f"{TEXT} {number}"


@pytest.mark.parametrize("door", ["psycopg", "asyncpg", "sqlalchemy-psycopg", "sqlalchemy-asyncpg"])
async def test_a_value_that_the_database_refuses(door: str, database_url: str) -> None:
    """Not "try again": the same call fails again."""
    async with DOORS[door](database_url) as client:
        with psycopg.connect(database_url, autocommit=True) as connection:
            connection.execute("CREATE UNIQUE INDEX ON queuert_job ((input::text))")
        with pytest.raises(StorageRejected, match="PostgreSQL refused a value: index row") as caught:
            await start(client, Greet(who="".join(chr(0x4E00 + number) for number in range(20_000))))
        assert getattr(caught.value.__cause__, "sqlstate", "54000") == "54000"
