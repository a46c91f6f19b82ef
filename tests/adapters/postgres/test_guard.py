"""Transactions that begin with a command: they notice that code inside has ended or broken them."""

from __future__ import annotations

import asyncio
from typing import Any

import asyncpg
import psycopg
import pytest
from tests.adapters.postgres.drivers import ASYNC_DRIVERS, DRIVERS, FIRST, Driver, Watcher, insert, usable

from queuert import StorageBusy, StorageError, StorageUnavailable, TransactionMisused
from queuert.adapters.postgres.command import PgStatement
from queuert.adapters.postgres.drivers.psycopg_connection import READ_COMMITTED_BY_DEFAULT

waiting = pytest.mark.parametrize("driver", ASYNC_DRIVERS, ids=str)  # a sync one would wait in our own thread


@pytest.mark.parametrize("words", ["COMMIT; BEGIN", "COMMIT AND CHAIN", "ROLLBACK; BEGIN", "ROLLBACK AND CHAIN"])
async def test_ended_and_begun_again(driver: Driver, provider: Any, watch: Watcher, words: str) -> None:
    with pytest.raises(TransactionMisused, match="ended by code inside"):
        async with provider.transaction(FIRST) as inside:
            await provider.execute(inside, insert(1))
            for part in words.split("; "):
                await driver.sql(inside, part)
            assert provider.in_transaction(inside)  # a transaction is open, but it is another one
            await provider.execute(inside, insert(2))
    assert 2 not in watch("SELECT n FROM t")
    await usable(driver, provider)


@pytest.mark.parametrize("word", ["COMMIT", "ROLLBACK"])
async def test_ended(driver: Driver, provider: Any, watch: Watcher, word: str) -> None:
    with pytest.raises(TransactionMisused, match="ended by code inside"):
        async with provider.transaction(FIRST) as inside:
            await provider.execute(inside, insert(1))
            await driver.sql(inside, word)
            assert not provider.in_transaction(inside)
    assert watch("SELECT n FROM t") == ([1] if word == "COMMIT" else [])
    await usable(driver, provider)


async def test_an_error_that_was_swallowed(driver: Driver, provider: Any, watch: Watcher) -> None:
    with pytest.raises(TransactionMisused, match="swallowed"):
        async with provider.transaction(FIRST) as inside:
            await provider.execute(inside, insert(1))
            await driver.poison(inside)
    assert watch("SELECT n FROM t") == []
    await usable(driver, provider)


async def test_the_connection_is_lost(driver: Driver, provider: Any, watch: Watcher) -> None:
    with pytest.raises(StorageUnavailable):
        async with provider.transaction(FIRST) as inside:
            await provider.execute(inside, insert(1))
            watch.terminate_others()
            await asyncio.sleep(0.05)
    assert watch("SELECT n FROM t") == []
    await usable(driver, provider)


async def test_what_fails_at_the_commit_is_the_drivers_error(driver: Driver, provider: Any, watch: Watcher) -> None:
    watch("CREATE TABLE child (n int REFERENCES t DEFERRABLE INITIALLY DEFERRED)")
    with pytest.raises(driver.error, match="foreign key"):
        async with provider.transaction(FIRST) as inside:
            await driver.sql(inside, "INSERT INTO child VALUES (1)")
    assert watch("SELECT n FROM child") == []
    await usable(driver, provider)


async def test_blocks_and_savepoints_of_the_users_own(driver: Driver, provider: Any, watch: Watcher) -> None:
    async with provider.transaction(FIRST) as inside:
        async with driver.block(inside):
            await provider.execute(inside, insert(1))
        with pytest.raises(driver.error):
            async with driver.block(inside):
                await provider.execute(inside, insert(2))
                await driver.sql(inside, "SELECT 1/0")
        async with provider.savepoint(inside):
            await provider.execute(inside, insert(3))
    assert watch("SELECT n FROM t ORDER BY n") == [1, 3]


async def test_with_asyncpg_begin_and_commit_are_one_round_trip_each(database_url: str, watch: Watcher) -> None:
    provider: Any = DRIVERS[2].provider(database_url, max_size=1, timeout=30)
    said: list[str] = []
    async with provider.transaction(FIRST) as inside:
        inside.add_query_logger(lambda record: said.append(record.query))
        await provider.execute(inside, insert(1))
    await asyncio.sleep(0)  # loggers are called in the next turn of the loop
    assert len(said) == 2, said
    assert said[1] == "RELEASE queuert_guard; COMMIT"
    await provider.close()


async def test_with_psycopg_begin_and_commit_are_one_round_trip_each(
    database_url: str, watch: Watcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    execute = psycopg.AsyncRawCursor.execute

    async def heard(self: Any, query: Any, *arguments: Any, **options: Any) -> Any:
        said.append(query)
        return await execute(self, query, *arguments, **options)

    monkeypatch.setattr(psycopg.AsyncRawCursor, "execute", heard)
    provider: Any = DRIVERS[0].provider(database_url, max_size=1, timeout=30)
    async with provider.transaction(FIRST) as inside:
        await provider.execute(inside, insert(1))
    begin = "BEGIN ISOLATION LEVEL READ COMMITTED; SAVEPOINT queuert_guard; SELECT true"
    assert [each for each in said if each != READ_COMMITTED_BY_DEFAULT] == [
        begin, insert(1).text, "RELEASE queuert_guard; COMMIT",
    ]  # fmt: skip
    await provider.close()


# The statement that the transaction begins with

HELD = PgStatement("SELECT n FROM t WHERE n = $1::int FOR UPDATE", (1,))


@pytest.fixture
async def holder(database_url: str, watch: Watcher) -> Any:
    """Somebody who has locked the row that `HELD` asks for."""
    watch("INSERT INTO t VALUES (1)")
    connection = await asyncpg.connect(database_url)
    await connection.execute("BEGIN; SELECT n FROM t WHERE n = 1 FOR UPDATE")
    yield connection
    await connection.close()


WAITS = "wait_event_type = 'Lock'"


async def entered(provider: Any, first: PgStatement) -> Any:
    block = provider.transaction(first)
    async with block:
        return block.answer


async def test_the_first_statement_goes_along(provider: Any, watch: Watcher) -> None:
    """It has taken effect, behind the guard, by the time the block is entered; its rows are counted."""
    watch("INSERT INTO t VALUES (1), (2)")
    assert await entered(provider, HELD) == [()]
    assert await entered(provider, PgStatement("SELECT n FROM t FOR UPDATE")) == [(), ()]
    assert await entered(provider, PgStatement("SELECT n FROM t WHERE n > $1::int", (5,))) == []
    async with provider.transaction(HELD):
        assert watch("SELECT n FROM t WHERE n = 1 FOR UPDATE SKIP LOCKED") == []
    assert watch("SELECT n FROM t WHERE n = 1 FOR UPDATE SKIP LOCKED") == [1]


async def test_the_first_statement_fails(driver: Driver, provider: Any, watch: Watcher) -> None:
    """Then nothing has begun. What the last user had set on asyncpg's connection has not come back."""
    async with provider.transaction(FIRST) as inside:
        if driver.name == "asyncpg":
            await driver.sql(inside, "SET application_name TO 'mine'")
            await driver.sql(inside, "SET statement_timeout TO 1")
    with pytest.raises(StorageError):
        await entered(provider, PgStatement("SELECT n FROM nowhere"))
    assert watch.others("state LIKE 'idle in transaction%'") == []
    async with provider.transaction(FIRST) as inside:
        assert await driver.sql(inside, "SELECT current_setting('application_name')") != [("mine",)]
        assert await driver.sql(inside, "SELECT current_setting('statement_timeout')") == [("0",)]
    await usable(driver, provider)


async def test_the_first_statement_gets_no_lock(driver: Driver, database_url: str, watch: Watcher, holder: Any) -> None:
    provider: Any = driver.provider(f"{database_url}&options=-c%20lock_timeout%3D100", max_size=1, timeout=30)
    with pytest.raises(StorageBusy):
        await entered(provider, HELD)
    await holder.execute("ROLLBACK")
    assert await entered(provider, HELD) == [()]
    await usable(driver, provider)
    await provider.close()


@waiting
async def test_a_deadlock_is_the_owners_to_deal_with(
    driver: Driver, provider: Any, watch: Watcher, holder: Any
) -> None:
    """As with any statement inside of a transaction."""
    watch("INSERT INTO t VALUES (2)")
    both = PgStatement("SELECT n FROM t ORDER BY n DESC FOR UPDATE")
    entering = asyncio.create_task(entered(provider, both))
    await watch.until(WAITS)
    await holder.execute("SET LOCAL deadlock_timeout TO '1h'")
    other = asyncio.create_task(holder.execute("SELECT n FROM t WHERE n = 2 FOR UPDATE"))
    with pytest.raises(driver.error, match="deadlock"):
        await entering
    await other
    await usable(driver, provider)


@waiting
async def test_cancelled_while_the_first_statement_waits(
    driver: Driver, provider: Any, watch: Watcher, holder: Any
) -> None:
    """It waits no longer, though the lock is still held, and the connection is good for the next."""
    entering = asyncio.create_task(entered(provider, HELD))
    await watch.until(WAITS)
    entering.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(entering, 45)
    await watch.until_gone(f"{WAITS} OR state = 'idle in transaction' AND pid <> {holder.get_server_pid()}")
    await usable(driver, provider)


@waiting
async def test_cancelled_at_any_moment(driver: Driver, provider: Any, watch: Watcher) -> None:
    """Before it is sent, under way, or answered already."""
    for steps in range(30):
        entering = asyncio.create_task(entered(provider, PgStatement("SELECT n FROM t FOR UPDATE")))
        for _ in range(steps):
            await asyncio.sleep(0)
        entering.cancel()
        await asyncio.wait([entering])
        assert await entered(provider, PgStatement("SELECT true")) == [()]
    await usable(driver, provider)


@waiting
async def test_the_connection_is_lost_while_the_first_statement_waits(
    driver: Driver, provider: Any, watch: Watcher, holder: Any
) -> None:
    entering = asyncio.create_task(entered(provider, HELD))
    await watch.until(WAITS)
    watch.terminate_others(WAITS)
    with pytest.raises(StorageUnavailable):
        await entering
    await usable(driver, provider)
