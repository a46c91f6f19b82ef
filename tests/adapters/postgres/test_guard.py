"""asyncpg: transactions of our own notice, without a round trip, that code inside has ended or broken them."""

from __future__ import annotations

from typing import Any

import asyncpg
import pytest
from tests.adapters.postgres.drivers import DRIVERS, Watcher

from queuert import TransactionMisused
from queuert.adapters.postgres.command import PgStatement
from queuert.ports.provider import Guarded


@pytest.fixture
async def provider(database_url: str, watch: Watcher) -> Any:
    found: Any = DRIVERS[2].provider(database_url, max_size=1, timeout=5)
    guarded: object = found
    assert isinstance(guarded, Guarded)
    yield found
    await found.close()


def insert(number: int) -> PgStatement:
    return PgStatement("INSERT INTO t VALUES ($1::int)", (number,))


async def usable(provider: Any) -> None:
    """The connection is back in the pool, outside of any transaction, and asyncpg believes so too."""
    async with provider.guarded_transaction() as inside, inside.transaction():
        await provider.execute(inside, insert(100))


@pytest.mark.parametrize("words", ["COMMIT; BEGIN", "COMMIT AND CHAIN", "ROLLBACK; BEGIN", "ROLLBACK AND CHAIN"])
async def test_ended_and_begun_again(provider: Any, watch: Watcher, words: str) -> None:
    with pytest.raises(TransactionMisused, match="ended by code inside"):
        async with provider.guarded_transaction() as inside:
            await provider.execute(inside, insert(1))
            await inside.execute(words)
            provider.check_inside(inside)  # cannot tell: a transaction is open
            await provider.execute(inside, insert(2))
    assert 2 not in watch("SELECT n FROM t")
    await usable(provider)


@pytest.mark.parametrize("word", ["COMMIT", "ROLLBACK"])
async def test_ended(provider: Any, watch: Watcher, word: str) -> None:
    with pytest.raises(TransactionMisused, match="ended by code inside"):
        async with provider.guarded_transaction() as inside:
            await provider.execute(inside, insert(1))
            await inside.execute(word)
            provider.check_inside(inside)
    assert watch("SELECT n FROM t") == ([1] if word == "COMMIT" else [])
    await usable(provider)


async def test_an_error_that_was_swallowed(provider: Any, watch: Watcher) -> None:
    with pytest.raises(TransactionMisused, match="swallowed"):
        async with provider.guarded_transaction() as inside:
            await provider.execute(inside, insert(1))
            with pytest.raises(asyncpg.DivisionByZeroError):
                await inside.execute("SELECT 1/0")
            provider.check_inside(inside)
    assert watch("SELECT n FROM t") == []
    await usable(provider)


async def test_blocks_and_savepoints_of_the_users_own(provider: Any, watch: Watcher) -> None:
    async with provider.guarded_transaction() as inside:
        async with inside.transaction():
            await provider.execute(inside, insert(1))
        with pytest.raises(asyncpg.DivisionByZeroError):
            async with inside.transaction():
                await provider.execute(inside, insert(2))
                await inside.execute("SELECT 1/0")
        async with provider.savepoint(inside):
            await provider.execute(inside, insert(3))
        provider.check_inside(inside)
    assert watch("SELECT n FROM t ORDER BY n") == [1, 3]


async def test_begin_and_commit_are_one_round_trip_each(provider: Any) -> None:
    said: list[str] = []
    async with provider.guarded_transaction() as inside:
        inside.add_query_logger(lambda record: said.append(record.query))
        await provider.execute(inside, insert(1))
    assert len(said) == 2, said
    assert said[1] == "RELEASE queuert_guard; COMMIT"
