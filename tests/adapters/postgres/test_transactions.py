"""Transactions of ours: all or nothing, and no silence when user code breaks into them."""

from __future__ import annotations

import asyncio
from typing import Any

import psycopg
import pytest
from tests.adapters.postgres.drivers import DRIVERS, Driver, Psycopg, Watcher, statement

from queuert.errors import StorageUnavailable, TransactionMisused, TransactionNested


class Boom(Exception):
    """An error of the user's own."""


def insert(number: int) -> Any:
    return statement("INSERT INTO t VALUES ($1::int)", number)


@pytest.fixture(params=["own", "pool", "connection"])
async def each(request: pytest.FixtureRequest, driver: Driver, database_url: str, watch: Watcher) -> Any:
    """A provider with each kind of source, of one connection."""
    if request.param == "own":
        provider = driver.provider(database_url, max_size=1, timeout=30)
        yield provider
    elif request.param == "pool":
        async with driver.pool(database_url, 1) as pool:
            provider = driver.provider(pool)
            yield provider
    else:
        connection = await driver.connect(database_url)
        provider = driver.provider(connection)
        yield provider
        await driver.close(connection)
    await provider.close()


async def test_a_block_that_ends_well_commits(driver: Driver, each: Any, watch: Watcher) -> None:
    async with each.transaction() as inside:
        assert each.in_transaction(inside)
        await each.execute(inside, insert(1))
        await driver.sql(inside, "INSERT INTO t VALUES (2)")
        assert watch("SELECT n FROM t") == []
    assert watch("SELECT n FROM t ORDER BY n") == [1, 2]
    assert watch.others("state LIKE 'idle in transaction%'") == []


async def test_a_block_that_fails_rolls_back(each: Any, watch: Watcher) -> None:
    error = Boom()
    with pytest.raises(Boom) as caught:
        async with each.transaction() as inside:
            await each.execute(inside, insert(1))
            raise error
    assert caught.value is error
    assert not hasattr(error, "__notes__")
    assert watch("SELECT n FROM t") == []
    async with each.transaction() as inside:
        await each.execute(inside, insert(2))
    assert watch("SELECT n FROM t") == [2]


async def test_the_users_blocks_inside_are_savepoints(driver: Driver, each: Any, watch: Watcher) -> None:
    async with each.transaction() as inside:
        async with driver.block(inside):
            await each.execute(inside, insert(1))
        with pytest.raises(Boom):
            async with driver.block(inside):
                await each.execute(inside, insert(2))
                raise Boom
        async with each.savepoint(inside), driver.block(inside):
            await each.execute(inside, insert(3))
    assert watch("SELECT n FROM t ORDER BY n") == [1, 3]


async def test_a_swallowed_error_is_not_a_silent_rollback(driver: Driver, each: Any, watch: Watcher) -> None:
    with pytest.raises(TransactionMisused, match="swallowed"):
        async with each.transaction() as inside:
            await each.execute(inside, insert(1))
            await driver.poison(inside)
    assert watch("SELECT n FROM t") == []
    async with each.transaction() as inside:
        await each.execute(inside, insert(2))
    assert watch("SELECT n FROM t") == [2]


async def test_a_failed_transaction_takes_no_more_statements(driver: Driver, each: Any) -> None:
    with pytest.raises(Boom):
        async with each.transaction() as inside:
            await driver.poison(inside)
            with pytest.raises(TransactionMisused, match="roll it back"):
                await each.execute(inside, insert(1))
            with pytest.raises(TransactionMisused, match="roll it back"):
                async with each.savepoint(inside):
                    pass
            raise Boom


@pytest.mark.parametrize("end", ["COMMIT", "ROLLBACK"])
async def test_ending_it_inside_is_noticed(driver: Driver, each: Any, watch: Watcher, end: str) -> None:
    with pytest.raises(TransactionMisused, match="ended by code inside"):
        async with each.transaction() as inside:
            await each.execute(inside, insert(1))
            await driver.sql(inside, end)
    with pytest.raises(TransactionMisused, match="no transaction is open"):
        async with each.transaction() as inside:
            await driver.sql(inside, end)
            await each.execute(inside, insert(2))
    assert watch("SELECT n FROM t") == ([1] if end == "COMMIT" else [])
    async with each.transaction() as inside:
        await each.execute(inside, insert(3))
    assert 3 in watch("SELECT n FROM t")


async def test_the_users_error_is_told_that_nothing_could_be_undone(driver: Driver, each: Any) -> None:
    with pytest.raises(Boom) as caught:
        async with each.transaction() as inside:
            await driver.sql(inside, "COMMIT")
            raise Boom
    assert "could not be rolled back" in caught.value.__notes__[0]


async def test_psycopg_refuses_commit_inside(database_url: str, watch: Watcher) -> None:
    provider = Psycopg().provider(database_url)
    async with provider.transaction() as inside:
        with pytest.raises(psycopg.ProgrammingError, match="forbidden"):
            await inside.commit()
    await provider.close()


async def test_psycopgs_rollback_leaves_our_block_as_an_error(each: Any, watch: Watcher) -> None:
    with pytest.raises(psycopg.Rollback):
        async with each.transaction() as inside:
            await each.execute(inside, insert(1))
            raise psycopg.Rollback
    assert watch("SELECT n FROM t") == []


async def test_what_fails_at_the_commit_is_the_drivers_error(driver: Driver, each: Any, watch: Watcher) -> None:
    watch("CREATE TABLE child (n int REFERENCES t DEFERRABLE INITIALLY DEFERRED)")
    with pytest.raises(driver.error, match="foreign key"):
        async with each.transaction() as inside:
            await driver.sql(inside, "INSERT INTO child VALUES (1)")
    assert watch("SELECT n FROM child") == []
    async with each.transaction() as inside:
        await each.execute(inside, insert(1))
    assert watch("SELECT n FROM t") == [1]


async def test_after_an_error_asyncpgs_connection_is_reset_at_once(database_url: str, watch: Watcher) -> None:
    provider = DRIVERS[2].provider(database_url, max_size=1)
    with pytest.raises(ZeroDivisionError):
        async with provider.transaction() as inside:
            await inside.execute("SELECT pg_advisory_lock(1)")
            raise ZeroDivisionError
    assert watch("SELECT pg_try_advisory_lock(1)") == [True], "nobody else has to wait for what a handler left behind"
    await provider.close()


async def test_the_users_session_settings_do_not_reach_asyncpgs_own_statements(
    database_url: str, watch: Watcher
) -> None:
    provider = DRIVERS[2].provider(database_url, max_size=1)
    for _ in range(2):
        async with provider.transaction() as inside:
            assert await inside.fetchval("SHOW work_mem") == "4MB"
            assert await inside.fetchval("SHOW transaction_isolation") == "read committed"
            await inside.execute("SET work_mem = '8MB'")
    (last,) = watch("SELECT query FROM pg_stat_activity WHERE pid = %s", *watch.others())
    assert last.endswith("COMMIT"), "a reset is a round trip: it waits until it is needed"
    assert await provider.execute(None, statement("SHOW work_mem")) == [("4MB",)]
    await provider.execute(None, statement("SELECT 1"))
    (last,) = watch("SELECT query FROM pg_stat_activity WHERE pid = %s", *watch.others())
    assert last == "SELECT 1"
    await provider.close()


# One connection for everything


async def test_one_connection_is_used_in_turns(database_url: str, watch: Watcher) -> None:
    for driver in (Psycopg(),):
        connection = await driver.connect(database_url)
        provider = driver.provider(connection)
        order: list[str] = []

        async def read(provider: Any = provider, order: list[str] = order) -> None:
            await provider.execute(None, statement("SELECT 1"))
            order.append("read")

        async with provider.transaction() as inside:
            reading = asyncio.create_task(read())
            await asyncio.sleep(0.05)
            await provider.execute(inside, insert(1))
            order.append("written")
        await reading
        assert order == ["written", "read"]
        await driver.close(connection)


async def test_one_connection_is_not_waited_for_by_its_holder(
    driver: Driver, database_url: str, watch: Watcher
) -> None:
    connection = await driver.connect(database_url)
    provider = driver.provider(connection)
    async with provider.transaction():
        with pytest.raises(TransactionNested, match="wait for itself"):
            await provider.execute(None, statement("SELECT 1"))
        with pytest.raises(TransactionNested, match="wait for itself"):
            async with provider.transaction():
                pass
    assert await provider.execute(None, statement("SELECT 1")) == [(1,)]
    await driver.close(connection)


async def test_one_connection_inside_a_transaction_of_the_users(driver: Driver, connection: Any) -> None:
    provider = driver.provider(connection)
    async with driver.block(connection):
        with pytest.raises(TransactionMisused, match="inside a transaction of yours"):
            await provider.execute(None, statement("SELECT 1"))
        with pytest.raises(TransactionMisused, match="inside a transaction of yours"):
            async with provider.transaction():
                pass
        await provider.execute(connection, insert(1))
    assert await provider.execute(None, statement("SELECT n FROM t")) == [(1,)]


async def test_one_connection_that_is_closed(driver: Driver, database_url: str) -> None:
    connection = await driver.connect(database_url)
    provider = driver.provider(connection)
    await driver.close(connection)
    for _ in range(2):
        with pytest.raises(StorageUnavailable, match="closed"):
            await provider.execute(None, statement("SELECT 1"))


async def test_one_psycopg_connection_without_autocommit(driver: Driver, database_url: str, watch: Watcher) -> None:
    if driver.name == "asyncpg":
        pytest.skip("asyncpg has nothing but autocommit")
    connection = await driver.connect(database_url, autocommit=False)
    provider = driver.provider(connection)
    await provider.execute(None, insert(1))
    async with provider.transaction() as inside:
        await provider.execute(inside, insert(2))
    assert watch("SELECT n FROM t ORDER BY n") == [1, 2]
    assert connection.autocommit is False
    assert connection.isolation_level is None
    await driver.close(connection)
