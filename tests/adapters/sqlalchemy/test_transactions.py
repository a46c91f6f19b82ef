"""Transactions that the matrix does not have: ours, those of outer connections, and those that fail at their end."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from sqlalchemy import text
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker
from sqlalchemy.orm import Session, sessionmaker
from tests.adapters.sqlalchemy.worlds import async_client_for, async_engine_for, client_for, engine_for
from tests.support.jobs import JOBS, Greet, Nothing, Rate

from queuert import Attempt, Handlers, SyncAttempt, TransactionMisused, TransactionRequired, Worker
from queuert.sqlalchemy import connect, connect_sync

DEFERRED = (
    "CREATE TABLE orders (id INTEGER PRIMARY KEY, parent INTEGER REFERENCES orders DEFERRABLE INITIALLY DEFERRED)"
)


def test_a_commit_that_fails_announces_nothing(migrated_url: str) -> None:
    with engine_for(migrated_url) as engine, client_for(engine) as (client, announced):
        with engine.begin() as connection:
            connection.execute(text(DEFERRED))
        with engine.connect() as connection:
            connection.execute(text("INSERT INTO orders VALUES (1, 2)"))
            client.start(connection, Greet())
            with pytest.raises(IntegrityError):
                connection.commit()
            connection.rollback()
            connection.execute(text("SELECT 1"))
            client.start(connection, Rate())
            connection.commit()
        assert announced == ["rate"]
        with pytest.raises(IntegrityError), client.transaction() as tx:
            tx.connection.execute(text("INSERT INTO orders VALUES (1, 2)"))
            client.start(tx, Greet())
        assert announced == ["rate"]
        assert engine.pool.checkedout() == 0  # type: ignore[attr-defined]


def test_a_session_in_the_transaction_of_an_outer_connection(migrated_url: str) -> None:
    """The way in which test suites undo all that was done: the session commits, the connection does not."""
    with engine_for(migrated_url) as engine, client_for(sessionmaker(engine)) as (client, announced):
        with engine.connect() as connection:
            outer = connection.begin()
            for job in (Greet(), Nothing()):
                with Session(connection, join_transaction_mode="create_savepoint") as session:
                    session.begin()
                    client.start(session, job)
                    end = session.commit if isinstance(job, Greet) else session.rollback
                    end()
            assert announced == []
            outer.commit()
        assert announced == ["greet"]


def test_two_clients_share_a_session(migrated_url: str) -> None:
    with engine_for(migrated_url) as engine:
        sessions = sessionmaker(engine)
        with client_for(sessions) as (one, first), client_for(sessions) as (other, second):
            with sessions.begin() as session:
                one.start(session, Greet())
                other.start(session, Rate())
            assert (first, second) == (["greet"], ["rate"])


def test_our_transaction_is_left_alone(migrated_url: str) -> None:
    with engine_for(migrated_url) as engine, client_for(sessionmaker(engine)) as (client, announced):
        for end in (Session.commit, Session.rollback, Session.close):
            with pytest.raises(TransactionMisused, match="ended by code inside its block"), client.transaction() as tx:
                client.start(tx, Greet())
                end(tx.connection)
        with pytest.raises(TransactionMisused, match="ended by code inside"), client.transaction() as tx:
            tx.connection.commit()
            client.start(tx, Greet())
        with pytest.raises(TransactionMisused, match="ended by code inside"), client.transaction() as tx:
            with pytest.raises(TransactionMisused, match="ended by code inside"), client.savepoint(tx):
                tx.connection.rollback()
            tx.connection.begin()  # another one, which is not taken for ours
        assert announced == []


async def test_handlers_have_sessions(tmp_path: Path) -> None:
    """Coroutines get async sessions; plain functions, in their threads, sync ones."""
    url = f"sqlite:///{tmp_path / 'app.db'}"
    handlers = Handlers()
    seen: list[str] = []

    @handlers.handles(Greet)
    async def greet(attempt: Attempt[Greet, AsyncSession]) -> str:
        async with attempt.prepare("staged") as tx:
            seen.append(type(tx.connection).__name__)
        async with attempt.complete() as tx:
            await attempt_more(tx.connection)
            return "hello"

    async def attempt_more(session: AsyncSession) -> None:
        await client.start(session, Rate())  # the handler's own session, given for its transaction

    @handlers.handles(Rate)
    def rate(attempt: SyncAttempt[Rate, Session]) -> float:
        with attempt.complete() as tx:
            seen.append(type(tx.connection).__name__)
            assert tx.connection.execute(text("SELECT 1")).scalar() == 1
            return 1.5

    with engine_for(url, "pysqlite") as plain:
        async with async_engine_for(url, "aiosqlite") as engine:
            sessions = async_sessionmaker(engine)
            async with connect(sessions, jobs=JOBS, sync=sessionmaker(plain)) as client:
                async with sessions.begin() as session:
                    chain = await client.start(session, Greet())
                async with Worker(client, [handlers]) as worker:
                    assert await client.wait(chain, timeout=45) == "hello"
                    await worker.drain()
                assert [each.status for each in (await client.list_chains()).items] == ["completed"] * 2
    assert seen == ["AsyncSession", "Session"]


def test_a_pool_of_one_is_enough(migrated_url: str) -> None:
    with engine_for(migrated_url, pool_size=1, max_overflow=0, pool_timeout=30) as engine:
        sessions = sessionmaker(engine)
        with connect_sync(sessions, jobs=JOBS) as client:
            with sessions.begin() as session:
                client.start(session, Greet())
            with engine.begin() as connection:
                client.start(connection, Greet())  # type: ignore[arg-type]
            assert client.hook_failures == 0


@pytest.mark.parametrize("driver", ["psycopg", "asyncpg"])
async def test_a_pool_of_one_is_enough_for_an_async_client(migrated_url: str, driver: str) -> None:
    async with async_engine_for(migrated_url, driver, pool_size=1, max_overflow=0, pool_timeout=30) as engine:
        sessions = async_sessionmaker(engine)
        async with connect(sessions, jobs=JOBS) as client:
            async with sessions.begin() as session:
                chain = await client.start(session, Greet())
            waiting = asyncio.create_task(client.wait(chain, timeout=45))
            async with sessions.begin() as session, client.take_over(session, chain, Greet) as current:
                await current.settle("hello")
            assert await waiting == "hello"
        assert client.hook_failures == 0  # after close(), which waits for what a commit has left to do


@pytest.mark.parametrize("driver", ["psycopg", "asyncpg", "aiosqlite"])
async def test_a_cancelled_transaction_returns_its_connection(migrated_url: str, tmp_path: Path, driver: str) -> None:
    url = f"sqlite:///{tmp_path / 'app.db'}" if driver == "aiosqlite" else migrated_url
    async with async_engine_for(url, driver) as engine, async_client_for(engine) as (client, announced):
        inside = asyncio.Event()

        async def endless() -> None:
            async with client.transaction() as tx:
                await client.start(tx, Greet())
                inside.set()
                await asyncio.Event().wait()

        task = asyncio.create_task(endless())
        await inside.wait()
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()
        assert announced == []
        assert engine.pool.checkedout() == 0  # type: ignore[attr-defined]
        async with client.transaction() as tx:
            await client.start(tx, Rate())
        assert announced == ["rate"]


async def test_after_commit_around_a_session(migrated_url: str) -> None:
    async with async_engine_for(migrated_url) as engine:
        sessions = async_sessionmaker(engine)
        async with async_client_for(sessions) as (client, announced), sessions() as session:
            async with client.after_commit(session) as tx, session.begin():
                await client.start(tx, Greet())
                assert announced == []
            assert announced == ["greet"]
            with pytest.raises(TransactionRequired):
                await client.start(session, Greet())
