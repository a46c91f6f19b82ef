"""aiosqlite: transactions on its connections, ours and the caller's, and what the errors say when that cannot work."""

from __future__ import annotations

import asyncio
import sqlite3
import sys
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiosqlite
import pytest
from tests.support.jobs import JOBS, Greet

import queuert
from queuert import Attempt, Client, Handlers, SyncAttempt, SyncClient, Worker
from queuert.errors import (
    ClientClosed,
    DriverMissing,
    InvalidArgument,
    StorageBusy,
    TransactionMisused,
    TransactionNested,
)

Connection = aiosqlite.Connection


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "jobs.db"


@pytest.fixture
def busy_timeout() -> float:
    """Nobody gives up, unless the test says so."""
    return 60.0


@pytest.fixture
async def client(path: Path, busy_timeout: float) -> AsyncIterator[Client[Connection]]:
    async with queuert.connect(f"sqlite+aiosqlite:///{path}", jobs=JOBS, busy_timeout=busy_timeout) as client:
        async with client.transaction() as tx:
            await tx.connection.execute("CREATE TABLE orders (number)")
        yield client


@pytest.fixture
async def mine(client: Client[Connection], path: Path) -> AsyncIterator[Connection]:
    async with aiosqlite.connect(path, isolation_level=None, timeout=60) as connection:
        yield connection


async def orders(client: Client[Connection]) -> int:
    async with client.transaction() as tx, tx.connection.execute("SELECT count(*) FROM orders") as cursor:
        row = await cursor.fetchone()
    assert row is not None
    return int(row[0])


async def chains(client: Client[Connection]) -> int:
    return len((await client.list_chains()).items)


# Transactions of the client's own


async def test_rows_and_jobs_commit_together(client: Client[Connection]) -> None:
    async with client.transaction() as tx:
        assert isinstance(tx.connection, Connection)
        await tx.connection.execute("INSERT INTO orders VALUES (1)")
        chain = await client.start(tx, Greet())
        assert await client.get_chain(chain) is None  # others do not see it yet
    assert await client.get_chain(chain) is not None
    assert await orders(client) == 1


async def test_rows_and_jobs_roll_back_together(client: Client[Connection]) -> None:
    with pytest.raises(ZeroDivisionError):
        async with client.transaction() as tx:
            await tx.connection.execute("INSERT INTO orders VALUES (1)")
            await client.start(tx, Greet())
            raise ZeroDivisionError
    assert (await orders(client), await chains(client)) == (0, 0)


@pytest.mark.parametrize("ending", ["commit", "rollback", "close"])
async def test_a_transaction_that_user_code_ended_is_noticed(client: Client[Connection], ending: str) -> None:
    with pytest.raises(TransactionMisused):
        async with client.transaction() as tx:
            await getattr(tx.connection, ending)()
    with pytest.raises(ZeroDivisionError) as caught:
        async with client.transaction() as tx:
            await getattr(tx.connection, ending)()
            raise ZeroDivisionError
    assert "could not be rolled back" in caught.value.__notes__[0]
    with pytest.raises(TransactionMisused):
        async with client.transaction() as tx, client.savepoint(tx):
            await getattr(tx.connection, ending)()
    async with client.transaction() as tx:  # the next one is as good as new
        await client.start(tx, Greet())
    assert await chains(client) == 1


async def test_tasks_take_turns_and_a_nested_transaction_is_refused(client: Client[Connection]) -> None:
    async def one() -> None:
        async with client.transaction() as tx:
            await client.start(tx, Greet())

    await asyncio.gather(*[one() for _ in range(10)])
    assert await chains(client) == 10
    with pytest.raises(TransactionNested):
        async with client.transaction(), client.transaction():
            pass


@pytest.mark.parametrize("busy_timeout", [0.2])
async def test_another_process_that_keeps_the_lock(client: Client[Connection], path: Path) -> None:
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StorageBusy):
        async with client.transaction():
            pass
    other.execute("ROLLBACK")
    other.close()
    assert await orders(client) == 0


async def test_a_cancelled_transaction_leaves_nothing_and_lets_the_next_one_in(client: Client[Connection]) -> None:
    reached = asyncio.Event()

    async def work() -> None:
        async with client.transaction() as tx:
            await client.start(tx, Greet())
            reached.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(work())
    await reached.wait()
    waiting = asyncio.create_task(orders(client))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await waiting == 0
    assert await chains(client) == 0


async def test_a_begin_that_is_cancelled_is_undone(client: Client[Connection], path: Path) -> None:
    async with client.transaction():
        pass  # the connection is open from here on
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    task = asyncio.create_task(orders(client))
    for _ in range(5):
        await asyncio.sleep(0)
    task.cancel()
    other.execute("ROLLBACK")
    other.close()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await orders(client) == 0


async def test_handlers_write_with_aiosqlite_and_plain_ones_with_sqlite3(client: Client[Connection]) -> None:
    handlers = Handlers[Any]()

    @handlers.handles(Greet)
    async def greet(attempt: Attempt[Greet, Connection]) -> str:
        async with attempt.complete() as tx:
            await tx.connection.execute("INSERT INTO orders VALUES (?)", (attempt.job.who,))
            return "async"

    plain = Handlers[Any]()

    @plain.handles(Greet)
    def greet_plainly(attempt: SyncAttempt[Greet, Any]) -> str:
        with attempt.complete() as tx:
            assert isinstance(tx.connection, sqlite3.Connection)
            tx.connection.execute("INSERT INTO orders VALUES (?)", (attempt.job.who,))
            return "plain"

    for registry, answer in ((handlers, "async"), (plain, "plain")):
        async with client.transaction() as tx:
            chain = await client.start(tx, Greet())
        async with Worker(client, [registry]):
            assert await client.wait(chain, timeout=45) == answer
    assert await orders(client) == 2


async def test_a_closed_client(client: Client[Connection], mine: Connection) -> None:
    async with client.after_commit(mine) as tx:
        await mine.execute("BEGIN IMMEDIATE")
        await client.close()
        with pytest.raises(ClientClosed):
            await client.start(tx, Greet())
        with pytest.raises(ClientClosed):
            await client.sessions.storage.provider.execute(mine, client.sessions.storage.operations)
        with pytest.raises(ClientClosed):
            client.sessions.storage.provider.check(mine)
        await mine.rollback()
    await client.sessions.storage.close()


# Joining the caller's


async def test_jobs_commit_with_the_callers_transaction(client: Client[Connection], mine: Connection) -> None:
    async with client.after_commit(mine) as tx:
        await mine.execute("BEGIN IMMEDIATE")
        await mine.execute("INSERT INTO orders VALUES (1)")
        chain = await client.start(tx, Greet())
        assert await client.get_chain(chain) is None
        assert await client.get_chain(chain, tx=tx) is not None
        await mine.commit()
    assert await client.get_chain(chain) is not None
    assert await orders(client) == 1


async def test_jobs_roll_back_with_the_callers_transaction(client: Client[Connection], mine: Connection) -> None:
    with pytest.raises(ZeroDivisionError):
        async with client.after_commit(mine) as tx:
            await mine.execute("BEGIN IMMEDIATE")
            await client.start(tx, Greet())
            await mine.rollback()
            raise ZeroDivisionError
    assert await chains(client) == 0


async def test_a_savepoint_in_the_callers_transaction(client: Client[Connection], mine: Connection) -> None:
    async with client.after_commit(mine) as tx:
        await mine.execute("BEGIN IMMEDIATE")
        async with client.savepoint(tx):
            await client.start(tx, Greet())
        with pytest.raises(ZeroDivisionError):
            async with client.savepoint(tx):
                await client.start(tx, Greet())
                raise ZeroDivisionError
        await mine.commit()
    assert await chains(client) == 1


async def test_a_joined_statement_runs_in_the_connections_thread(client: Client[Connection], mine: Connection) -> None:
    threads: set[str] = set()
    await mine.set_trace_callback(lambda _: threads.add(threading.current_thread().name))
    async with client.after_commit(mine) as tx:
        await mine.execute("BEGIN IMMEDIATE")
        await client.start(tx, Greet())
        await mine.commit()
    assert len(threads) == 1
    assert threading.current_thread().name not in threads


async def test_a_transaction_without_the_write_lock_is_refused(client: Client[Connection], mine: Connection) -> None:
    async with client.after_commit(mine) as tx:
        await mine.execute("BEGIN")
        with pytest.raises(TransactionMisused, match="BEGIN IMMEDIATE"):
            await client.start(tx, Greet())
        with pytest.raises(TransactionMisused, match="BEGIN IMMEDIATE"):
            async with client.savepoint(tx):
                pass
        await mine.rollback()


async def test_without_a_transaction_nothing_is_done(client: Client[Connection], mine: Connection) -> None:
    async with client.after_commit(mine) as tx:
        with pytest.raises(TransactionMisused, match="no transaction is open"):
            await client.start(tx, Greet())
    assert await chains(client) == 0


async def test_a_block_that_ends_inside_the_transaction(client: Client[Connection], mine: Connection) -> None:
    with pytest.raises(TransactionMisused, match="still inside a transaction"):
        async with client.after_commit(mine):
            await mine.execute("BEGIN IMMEDIATE")
    await mine.rollback()


async def test_a_connection_to_another_file_is_refused(client: Client[Connection], tmp_path: Path) -> None:
    for where in (tmp_path / "other.db", ":memory:"):
        async with aiosqlite.connect(where, isolation_level=None) as elsewhere, client.after_commit(elsewhere) as tx:
            await elsewhere.execute("BEGIN IMMEDIATE")
            with pytest.raises(TransactionMisused, match="the jobs live in"):
                await client.start(tx, Greet())
            with pytest.raises(TransactionMisused, match="the jobs live in"):
                async with client.savepoint(tx):
                    pass
            await elsewhere.rollback()


async def test_a_closed_connection_is_refused(client: Client[Connection], path: Path) -> None:
    closed = await aiosqlite.connect(path)
    await closed.close()
    async with client.after_commit(closed) as tx:
        with pytest.raises(TransactionMisused, match="no transaction is open"):
            await client.start(tx, Greet())
    with pytest.raises(TransactionMisused, match="cannot be used"):
        async with client.sessions.storage.provider.savepoint(closed):
            pass


async def test_a_connection_of_the_other_driver_is_refused(
    client: Client[Connection], mine: Connection, path: Path
) -> None:
    plain: Any = sqlite3.connect(path, isolation_level=None)
    plain.execute("BEGIN IMMEDIATE")
    with pytest.raises(TransactionMisused, match="still inside"):
        async with client.after_commit(plain) as tx:
            with pytest.raises(TransactionMisused, match=r"expected an aiosqlite\.Connection, got sqlite3\.Connection"):
                await client.start(tx, Greet())
    plain.close()
    await mine.execute("BEGIN IMMEDIATE")
    sync_client: SyncClient[Any] = queuert.connect_sync(f"sqlite:///{path}", jobs=JOBS, migrate=False)
    with (
        pytest.raises(TransactionMisused, match=r"expected a sqlite3\.Connection, got aiosqlite"),
        sync_client,
        sync_client.after_commit(mine) as tx,
    ):
        sync_client.start(tx, Greet())
    await mine.rollback()


# From a URL


def test_a_sync_client_has_no_aiosqlite(path: Path) -> None:
    with pytest.raises(InvalidArgument, match="no sync connections"):
        queuert.connect_sync(f"sqlite+aiosqlite:///{path}", jobs=JOBS)


def test_without_the_package(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "aiosqlite", None)
    with pytest.raises(DriverMissing, match=r'pip install "queuert\[aiosqlite\]"'):
        queuert.connect(f"sqlite+aiosqlite:///{path}", jobs=JOBS)
