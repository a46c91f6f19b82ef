"""asyncpg: transactions of our own notice, without a round trip, that code inside has ended or broken them."""

from __future__ import annotations

import asyncio
from typing import Any

import asyncpg
import pytest
from tests.adapters.postgres.drivers import DRIVERS, Watcher

from queuert import StorageBusy, StorageError, StorageUnavailable, TransactionMisused
from queuert.adapters.postgres.command import PgStatement

FIRST = PgStatement("SELECT true")


@pytest.fixture
async def provider(database_url: str, watch: Watcher) -> Any:
    found: Any = DRIVERS[2].provider(database_url, max_size=1, timeout=5)
    yield found
    await found.close()


def insert(number: int) -> PgStatement:
    return PgStatement("INSERT INTO t VALUES ($1::int)", (number,))


async def usable(provider: Any) -> None:
    """The connection is back in the pool, outside of any transaction, and asyncpg believes so too."""
    async with provider.transaction(FIRST) as inside, inside.transaction():
        await provider.execute(inside, insert(100))


@pytest.mark.parametrize("words", ["COMMIT; BEGIN", "COMMIT AND CHAIN", "ROLLBACK; BEGIN", "ROLLBACK AND CHAIN"])
async def test_ended_and_begun_again(provider: Any, watch: Watcher, words: str) -> None:
    with pytest.raises(TransactionMisused, match="ended by code inside"):
        async with provider.transaction(FIRST) as inside:
            await provider.execute(inside, insert(1))
            await inside.execute(words)
            assert provider.in_transaction(inside)  # a transaction is open, but it is another one
            await provider.execute(inside, insert(2))
    assert 2 not in watch("SELECT n FROM t")
    await usable(provider)


@pytest.mark.parametrize("word", ["COMMIT", "ROLLBACK"])
async def test_ended(provider: Any, watch: Watcher, word: str) -> None:
    with pytest.raises(TransactionMisused, match="ended by code inside"):
        async with provider.transaction(FIRST) as inside:
            await provider.execute(inside, insert(1))
            await inside.execute(word)
            assert not provider.in_transaction(inside)
    assert watch("SELECT n FROM t") == ([1] if word == "COMMIT" else [])
    await usable(provider)


async def test_an_error_that_was_swallowed(provider: Any, watch: Watcher) -> None:
    with pytest.raises(TransactionMisused, match="swallowed"):
        async with provider.transaction(FIRST) as inside:
            await provider.execute(inside, insert(1))
            with pytest.raises(asyncpg.DivisionByZeroError):
                await inside.execute("SELECT 1/0")
    assert watch("SELECT n FROM t") == []
    await usable(provider)


async def test_blocks_and_savepoints_of_the_users_own(provider: Any, watch: Watcher) -> None:
    async with provider.transaction(FIRST) as inside:
        async with inside.transaction():
            await provider.execute(inside, insert(1))
        with pytest.raises(asyncpg.DivisionByZeroError):
            async with inside.transaction():
                await provider.execute(inside, insert(2))
                await inside.execute("SELECT 1/0")
        async with provider.savepoint(inside):
            await provider.execute(inside, insert(3))
    assert watch("SELECT n FROM t ORDER BY n") == [1, 3]


async def test_begin_and_commit_are_one_round_trip_each(provider: Any) -> None:
    said: list[str] = []
    async with provider.transaction(FIRST) as inside:
        inside.add_query_logger(lambda record: said.append(record.query))
        await provider.execute(inside, insert(1))
    assert len(said) == 2, said
    assert said[1] == "RELEASE queuert_guard; COMMIT"


# The statement that goes along with BEGIN

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


async def test_the_first_statement_fails(provider: Any, watch: Watcher) -> None:
    """Then nothing has begun; and what the last user had set on the connection has not come back with that."""
    async with provider.transaction(FIRST) as inside:
        await inside.execute("SET application_name TO 'mine'; SET statement_timeout TO 1")
    with pytest.raises(StorageError):
        await entered(provider, PgStatement("SELECT n FROM nowhere"))
    assert watch.others("state LIKE 'idle in transaction%'") == []
    async with provider.transaction(FIRST) as inside:
        assert await inside.fetchval("SELECT current_setting('application_name')") != "mine"
        assert await inside.fetchval("SELECT current_setting('statement_timeout')") == "0"
    await usable(provider)


async def test_the_first_statement_gets_no_lock(database_url: str, watch: Watcher, holder: Any) -> None:
    provider: Any = DRIVERS[2].provider(f"{database_url}&options=-c%20lock_timeout%3D100", max_size=1, timeout=5)
    with pytest.raises(StorageBusy):
        await entered(provider, HELD)
    await holder.execute("ROLLBACK")
    assert await entered(provider, HELD) == [()]
    await usable(provider)
    await provider.close()


async def test_a_deadlock_is_the_owners_to_deal_with(provider: Any, watch: Watcher, holder: Any) -> None:
    """As with any statement inside of a transaction."""
    watch("INSERT INTO t VALUES (2)")
    both = PgStatement("SELECT n FROM t ORDER BY n DESC FOR UPDATE")
    entering = asyncio.create_task(entered(provider, both))
    await watch.until(WAITS)
    await holder.execute("SET LOCAL deadlock_timeout TO '1h'")
    other = asyncio.create_task(holder.execute("SELECT n FROM t WHERE n = 2 FOR UPDATE"))
    with pytest.raises(asyncpg.DeadlockDetectedError):
        await entering
    await other
    await usable(provider)


async def test_cancelled_while_the_first_statement_waits(provider: Any, watch: Watcher, holder: Any) -> None:
    """It waits no longer, though the lock is still held, and the connection is good for the next."""
    entering = asyncio.create_task(entered(provider, HELD))
    await watch.until(WAITS)
    entering.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(entering, 5)
    await watch.until_gone(f"{WAITS} OR state = 'idle in transaction' AND pid <> {holder.get_server_pid()}")
    await usable(provider)


async def test_cancelled_at_any_moment(provider: Any, watch: Watcher) -> None:
    """Before it is sent, under way, or answered already."""
    for steps in range(30):
        entering = asyncio.create_task(entered(provider, PgStatement("SELECT n FROM t FOR UPDATE")))
        for _ in range(steps):
            await asyncio.sleep(0)
        entering.cancel()
        await asyncio.wait([entering])
        assert await entered(provider, PgStatement("SELECT true")) == [()]
    await usable(provider)


async def test_the_connection_is_lost_while_the_first_statement_waits(
    provider: Any, watch: Watcher, holder: Any
) -> None:
    entering = asyncio.create_task(entered(provider, HELD))
    await watch.until(WAITS)
    watch.terminate_others(WAITS)
    with pytest.raises(StorageUnavailable):
        await entering
    await usable(provider)
