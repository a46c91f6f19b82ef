"""Savepoints, in our transactions and in the user's."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.adapters.postgres.drivers import Driver, Watcher, statement

from queuert.errors import TransactionMisused


class Boom(Exception):
    """An error of the user's own."""


def insert(number: int) -> Any:
    return statement("INSERT INTO t VALUES ($1::int)", number)


@pytest.fixture(params=["ours", "joined"])
def begin(request: pytest.FixtureRequest, driver: Driver, provider: Any, connection: Any) -> Any:
    """Begins a transaction: ours, or the user's."""

    @asynccontextmanager
    async def joined() -> AsyncGenerator[Any]:
        async with driver.block(connection):
            yield connection

    return provider.transaction if request.param == "ours" else joined


async def test_it_is_kept_or_undone(provider: Any, begin: Any, watch: Watcher) -> None:
    error = Boom()
    async with begin() as inside:
        await provider.execute(inside, insert(1))
        async with provider.savepoint(inside):
            await provider.execute(inside, insert(2))
            with pytest.raises(Boom) as caught:
                async with provider.savepoint(inside):
                    await provider.execute(inside, insert(3))
                    raise error
        await provider.execute(inside, insert(4))
    assert caught.value is error
    assert not hasattr(error, "__notes__")
    assert watch("SELECT n FROM t ORDER BY n") == [1, 2, 4]


async def test_a_failed_statement_is_undone(driver: Driver, provider: Any, begin: Any, watch: Watcher) -> None:
    async with begin() as inside:
        await provider.execute(inside, insert(1))
        with pytest.raises(driver.error):
            async with provider.savepoint(inside):
                await provider.execute(inside, insert(2))
                await driver.sql(inside, "SELECT 1 / 0")
        await provider.execute(inside, insert(3))
    assert watch("SELECT n FROM t ORDER BY n") == [1, 3]


async def test_a_swallowed_error_is_undone_and_told(driver: Driver, provider: Any, begin: Any, watch: Watcher) -> None:
    async with begin() as inside:
        await provider.execute(inside, insert(1))
        with pytest.raises(TransactionMisused, match="swallowed"):
            async with provider.savepoint(inside):
                await provider.execute(inside, insert(2))
                await driver.poison(inside)
        await provider.execute(inside, insert(3))
    assert watch("SELECT n FROM t ORDER BY n") == [1, 3]


async def test_many_failures_leave_no_savepoints_behind(provider: Any, begin: Any, watch: Watcher) -> None:
    async with begin() as inside:
        for number in range(200):
            with pytest.raises(Boom):
                async with provider.savepoint(inside):
                    await provider.execute(inside, insert(number))
                    raise Boom
    assert watch("SELECT n FROM t") == []


@pytest.mark.parametrize("end", ["COMMIT", "ROLLBACK", "COMMIT; BEGIN", "ROLLBACK; BEGIN"])
async def test_a_transaction_that_was_ended_inside_is_noticed(
    driver: Driver, provider: Any, connection: Any, watch: Watcher, end: str
) -> None:
    await driver.sql(connection, "BEGIN")
    with pytest.raises(TransactionMisused, match="ended by code inside"):
        async with provider.savepoint(connection):
            await provider.execute(connection, insert(1))
            for part in end.split("; "):
                await driver.sql(connection, part)
    if provider.in_transaction(connection):
        await driver.sql(connection, "ROLLBACK")
    assert watch("SELECT n FROM t") == ([1] if end.startswith("COMMIT") else [])


@pytest.mark.parametrize("end", ["COMMIT", "COMMIT; BEGIN"])
async def test_the_users_error_is_told_that_nothing_could_be_undone(
    driver: Driver, provider: Any, connection: Any, end: str
) -> None:
    await driver.sql(connection, "BEGIN")
    with pytest.raises(Boom) as caught:
        async with provider.savepoint(connection):
            for part in end.split("; "):
                await driver.sql(connection, part)
            raise Boom
    assert "could not be rolled back" in caught.value.__notes__[0]


async def test_without_a_transaction_there_is_none(provider: Any, connection: Any) -> None:
    with pytest.raises(TransactionMisused, match="no transaction is open"):
        async with provider.savepoint(connection):
            pass
