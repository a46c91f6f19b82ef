"""A last command in one message with COMMIT: all of it, or the transaction is open as before."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import pytest
from tests.adapters.postgres.drivers import ASYNC_DRIVERS, FIRST, Driver, Watcher, insert, usable

from queuert import StorageUnavailable, TransactionMisused
from queuert.adapters.postgres.command import PgStatement

FAILS = PgStatement("SELECT 1 / 0")
WAITS = "wait_event_type = 'Lock'"

waiting = pytest.mark.parametrize("driver", ASYNC_DRIVERS, ids=str)  # a sync one would wait in our own thread


@asynccontextmanager
async def locked(url: str, number: int) -> AsyncGenerator[None]:
    """Another session has inserted this number, and has not ended its transaction."""
    other = await asyncpg.connect(url)
    await other.execute(f"BEGIN; INSERT INTO t VALUES ({number})")
    try:
        yield
    finally:
        await other.execute("ROLLBACK")
        await other.close()


async def test_it_commits(driver: Driver, provider: Any, watch: Watcher) -> None:
    block = provider.transaction(FIRST)
    async with block as inside:
        await provider.execute(inside, insert(1))
        assert await block.commit_with(insert(2))
        assert watch("SELECT n FROM t ORDER BY n") == [1, 2]
        assert not provider.in_transaction(inside)
    await usable(driver, provider)


@pytest.mark.parametrize("text", ["it's", "a\\'; SELECT 1", "é☃𝄞", "$1 $$ %s %%", "\n\t"])
async def test_any_text(driver: Driver, provider: Any, watch: Watcher, text: str) -> None:
    watch("CREATE TABLE words (word text)")
    block = provider.transaction(FIRST)
    async with block as inside:
        await driver.sql(inside, "SET LOCAL backslash_quote TO off")
        assert await block.commit_with(PgStatement("INSERT INTO words VALUES ($1::text)", (text,)))
    assert watch("SELECT word FROM words") == [text]


async def test_a_last_command_that_fails_is_undone_alone(driver: Driver, provider: Any, watch: Watcher) -> None:
    block = provider.transaction(FIRST)
    async with block as inside:
        await provider.execute(inside, insert(1))
        assert not await block.commit_with(FAILS)
        assert watch("SELECT n FROM t") == []
        await provider.execute(inside, insert(2))
    assert watch("SELECT n FROM t ORDER BY n") == [1, 2]
    await usable(driver, provider)


async def test_a_value_that_cannot_be_sent(provider: Any, watch: Watcher) -> None:
    block = provider.transaction(FIRST)
    async with block as inside:
        assert not await block.commit_with(PgStatement("SELECT $1::int[]", ([1],)))
        await provider.execute(inside, insert(1))
    assert watch("SELECT n FROM t") == [1]


async def test_what_fails_at_the_commit_is_the_drivers_error(driver: Driver, provider: Any, watch: Watcher) -> None:
    watch("CREATE TABLE child (n int REFERENCES t DEFERRABLE INITIALLY DEFERRED)")
    block = provider.transaction(FIRST)
    with pytest.raises(driver.error, match="foreign key") as caught:
        async with block as inside:
            await driver.sql(inside, "INSERT INTO child VALUES (1)")
            await block.commit_with(insert(2))
    assert not hasattr(caught.value, "__notes__")
    assert watch("SELECT n FROM t UNION SELECT n FROM child") == []
    await usable(driver, provider)


async def test_an_error_that_was_swallowed(driver: Driver, provider: Any, watch: Watcher) -> None:
    block = provider.transaction(FIRST)
    with pytest.raises(TransactionMisused, match="swallowed"):
        async with block as inside:
            await provider.execute(inside, insert(1))
            await driver.poison(inside)
            await block.commit_with(insert(2))
    assert watch("SELECT n FROM t") == []
    await usable(driver, provider)


@pytest.mark.parametrize("words", ["COMMIT", "COMMIT; BEGIN", "ROLLBACK AND CHAIN"])
async def test_ended_inside(driver: Driver, provider: Any, watch: Watcher, words: str) -> None:
    block = provider.transaction(FIRST)
    with pytest.raises(TransactionMisused, match="ended by code inside"):
        async with block as inside:
            for part in words.split("; "):
                await driver.sql(inside, part)
            assert not await block.commit_with(insert(2))
    assert watch("SELECT n FROM t") == []
    await usable(driver, provider)


@waiting
async def test_the_connection_is_lost_meanwhile(
    driver: Driver, provider: Any, watch: Watcher, database_url: str
) -> None:
    async def commit() -> None:
        block = provider.transaction(FIRST)
        async with block as inside:
            await provider.execute(inside, insert(1))
            await block.commit_with(insert(2))

    async with locked(database_url, 2):
        committing = asyncio.create_task(commit())
        await watch.until(WAITS)
        watch.terminate_others(WAITS)
        with pytest.raises(StorageUnavailable):
            await committing
    assert watch("SELECT n FROM t") == []
    await usable(driver, provider)


@waiting
@pytest.mark.parametrize("declines", [False, True])
async def test_a_cancellation_waits_for_its_end(
    driver: Driver, provider: Any, watch: Watcher, database_url: str, declines: bool
) -> None:
    """Whether it is committed or declined. In the second case the end of the block rolls back."""
    last = PgStatement("INSERT INTO t VALUES (2); SELECT 1 / $1::int", (0 if declines else 1,))

    async def commit() -> None:
        block = provider.transaction(FIRST)
        async with block as inside:
            await provider.execute(inside, insert(1))
            await block.commit_with(last)

    async with locked(database_url, 2):
        committing = asyncio.create_task(commit())
        await watch.until(WAITS)
        committing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await committing
    assert watch("SELECT n FROM t ORDER BY n") == ([] if declines else [1, 2])
    await usable(driver, provider)
