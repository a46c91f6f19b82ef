"""Connections of the user's: what is asked of them, and that they are left as they were."""

from __future__ import annotations

import json
from typing import Any, cast

import asyncpg
import psycopg
import pytest
from psycopg.adapt import Loader
from psycopg.rows import dict_row
from tests.adapters.postgres.drivers import DRIVERS, Driver, Watcher, statement
from tests.support.facade import awaited
from tests.support.postgres import Databases

from queuert.adapters.in_process import NoNotify
from queuert.client.client import Client
from queuert.client.sync_client import SyncClient
from queuert.errors import TransactionMisused
from queuert.jobs import Registry
from queuert.ports.state import StateAdapter, SyncStateAdapter


def insert(number: int) -> Any:
    return statement("INSERT INTO t VALUES ($1::int)", number)


def client_of(driver: Driver, provider: Any) -> Client[Any]:
    """A client that can do no more than join."""
    operations = cast("Any", None)
    if driver.is_sync:
        sync: SyncClient[Any] = SyncClient(SyncStateAdapter(operations, provider.sync), NoNotify(), Registry([]))
        sync.sessions.open()
        return awaited(sync)
    client: Client[Any] = Client(StateAdapter(operations, provider), NoNotify(), Registry([]))
    client.sessions.open()
    return client


async def test_a_joined_transaction_is_the_users_to_end(
    driver: Driver, provider: Any, connection: Any, watch: Watcher
) -> None:
    await driver.sql(connection, "BEGIN ISOLATION LEVEL REPEATABLE READ")
    provider.check(connection)
    await provider.execute(connection, insert(1))
    async with provider.savepoint(connection):
        await provider.execute(connection, insert(2))
    assert provider.in_transaction(connection)
    assert await driver.sql(connection, "SHOW transaction_isolation") == [("repeatable read",)]
    assert watch("SELECT n FROM t") == []
    await driver.sql(connection, "ROLLBACK")
    assert not provider.in_transaction(connection)
    assert watch("SELECT n FROM t") == []
    await driver.sql(connection, "BEGIN")
    await provider.execute(connection, insert(3))
    await driver.sql(connection, "COMMIT")
    assert watch("SELECT n FROM t") == [3]
    await provider.close()
    assert await driver.sql(connection, "SELECT 1") == [(1,)]


async def test_a_transaction_must_be_open(driver: Driver, provider: Any, connection: Any, watch: Watcher) -> None:
    with pytest.raises(TransactionMisused, match="no transaction is open"):
        provider.check(connection)
    with pytest.raises(TransactionMisused, match="no transaction is open"):
        await provider.execute(connection, insert(1))
    assert not provider.in_transaction(connection)
    assert watch("SELECT n FROM t") == []


async def test_a_failed_transaction_is_refused(driver: Driver, provider: Any, connection: Any) -> None:
    await driver.sql(connection, "BEGIN")
    await driver.poison(connection)
    assert provider.in_transaction(connection)
    with pytest.raises(TransactionMisused, match="roll it back first"):
        await provider.execute(connection, insert(1))
    if driver.name != "asyncpg":  # which does not say; the statement does
        with pytest.raises(TransactionMisused, match="roll it back first"):
            provider.check(connection)
    await driver.sql(connection, "ROLLBACK")


async def test_a_closed_connection_is_refused(driver: Driver, provider: Any, database_url: str) -> None:
    connection = await driver.connect(database_url)
    await driver.close(connection)
    with pytest.raises(TransactionMisused, match="closed"):
        provider.check(connection)
    with pytest.raises(TransactionMisused, match="closed"):
        await provider.execute(connection, insert(1))
    assert not provider.in_transaction(connection)


async def test_a_connection_that_went_back_to_its_pool_is_refused(database_url: str, watch: Watcher) -> None:
    driver = DRIVERS[2]
    provider = driver.provider(database_url)
    async with driver.pool(database_url) as pool:
        async with pool.acquire() as connection, connection.transaction():
            provider.check(connection)
            await provider.execute(connection, insert(1))
        with pytest.raises(TransactionMisused, match="gone back to its pool"):
            provider.check(connection)
        assert not provider.in_transaction(connection)
    await provider.close()


@pytest.mark.parametrize("other", DRIVERS, ids=str)
async def test_a_connection_of_another_kind_is_refused(
    driver: Driver, other: Driver, provider: Any, database_url: str
) -> None:
    if driver is other:
        pytest.skip("its own kind")
    connection = await other.connect(database_url)
    async with other.block(connection):
        with pytest.raises(TransactionMisused, match=r"expected an? (psycopg|asyncpg)\."):
            provider.check(connection)
    await other.close(connection)
    for nothing in (None, "connection", object()):
        with pytest.raises(TransactionMisused, match="expected"):
            provider.check(nothing)


async def test_a_connection_to_another_database_is_refused(
    driver: Driver, provider: Any, postgres: Databases, database_url: str
) -> None:
    await provider.execute(None, statement("SELECT 1"))  # from now on it knows
    with postgres.fresh() as elsewhere:
        connection = await driver.connect(elsewhere)
        async with driver.block(connection):
            with pytest.raises(TransactionMisused, match="the jobs live in"):
                provider.check(connection)
        await driver.close(connection)


async def test_two_reads_through_a_pooler_are_not_compared(driver: Driver, database_url: str, connection: Any) -> None:
    provider = driver.provider(database_url, prepare=False)
    await provider.execute(None, statement("SELECT 1"))
    async with driver.block(connection):
        provider.check(connection)
    await provider.close()


# The psycopg traps


async def test_without_autocommit_our_statement_begins_the_users_transaction(
    driver: Driver, provider: Any, database_url: str, watch: Watcher
) -> None:
    if driver.name == "asyncpg":
        pytest.skip("asyncpg has nothing but autocommit")
    connection = await driver.connect(database_url, autocommit=False)
    provider.check(connection)
    async with provider.savepoint(connection):
        await provider.execute(connection, insert(1))
    assert provider.in_transaction(connection)
    assert watch("SELECT n FROM t") == []
    await driver.sql(connection, "COMMIT")
    assert watch("SELECT n FROM t") == [1]
    await driver.close(connection)


async def test_after_commit_around_the_drivers_block(
    driver: Driver, provider: Any, connection: Any, watch: Watcher
) -> None:
    client = client_of(driver, provider)
    async with client.after_commit(connection) as tx, driver.block(connection):
        await provider.execute(tx.connection, insert(1))
    assert watch("SELECT n FROM t") == [1]


async def test_a_select_before_makes_psycopgs_block_a_savepoint_and_after_commit_says_so(
    driver: Driver, provider: Any, database_url: str, watch: Watcher
) -> None:
    if driver.name == "asyncpg":
        pytest.skip("asyncpg begins nothing by itself")
    client = client_of(driver, provider)
    connection = await driver.connect(database_url, autocommit=False)
    await driver.sql(connection, "SELECT 1")  # begins a transaction, which the block below does not commit
    with pytest.raises(TransactionMisused, match="still inside a transaction"):
        async with client.after_commit(connection) as tx, driver.block(connection):
            await provider.execute(tx.connection, insert(1))
    assert watch("SELECT n FROM t") == []
    await driver.sql(connection, "COMMIT")  # his data is still his to commit
    assert watch("SELECT n FROM t") == [1]
    await driver.close(connection)


async def test_psycopgs_rollback_leaves_the_users_block_in_silence(
    driver: Driver, provider: Any, connection: Any, watch: Watcher
) -> None:
    if driver.name == "asyncpg":
        pytest.skip("psycopg's own")
    client = client_of(driver, provider)

    async def give_up() -> None:
        raise psycopg.Rollback

    async with client.after_commit(connection) as tx, driver.block(connection):
        await provider.execute(tx.connection, insert(1))
        await give_up()
    assert watch("SELECT n FROM t") == []


# Settings of the user's


class Shouting(Loader):
    def load(self, data: Any) -> str:
        return bytes(data).decode().upper() + "!"


KINDS = "SELECT 'a'::text, 1::int, 2::bigint, now(), '{\"a\": 1}'::jsonb::text, ARRAY['b']::text[], 1.5::float8, true"


async def plain(driver: Driver, database_url: str) -> list[type]:
    provider = driver.provider(database_url)
    (row,) = await provider.execute(None, statement(KINDS))
    await provider.close()
    return [type(value) for value in row]


async def test_psycopgs_factories_and_adapters_make_no_difference(
    driver: Driver, provider: Any, connection: Any, database_url: str
) -> None:
    if driver.name == "asyncpg":
        pytest.skip("psycopg's own")
    connection.row_factory = dict_row
    connection.cursor_factory = psycopg.ClientCursor if driver.is_sync else psycopg.AsyncClientCursor
    for name in ("text", "int4", "int8", "timestamptz", "float8", "bool"):
        connection.adapters.register_loader(name, Shouting)
    await driver.sql(connection, "BEGIN")
    await driver.sql(connection, "SET LOCAL DateStyle = 'German, DMY'")
    (row,) = await provider.execute(connection, statement(KINDS))
    assert [type(value) for value in row] == await plain(driver, database_url)
    assert row[0] == "a"
    said: Any = await driver.sql(connection, "SELECT 'a'::text AS said")
    assert said == [{"said": "A!"}]
    assert connection.row_factory is dict_row
    await driver.sql(connection, "ROLLBACK")


async def test_asyncpgs_records_and_codecs_make_no_difference(database_url: str, watch: Watcher) -> None:
    class Mine(asyncpg.Record):
        pass

    connection = await asyncpg.connect(database_url, record_class=Mine)
    for name in ("json", "jsonb"):
        await connection.set_type_codec(name, encoder=json.dumps, decoder=json.loads, schema="pg_catalog")
    await connection.set_type_codec("uuid", encoder=str, decoder=str, schema="pg_catalog")
    provider = DRIVERS[2].provider(database_url)
    async with connection.transaction():
        text = "SELECT ($1::text::jsonb)::text, (($2::text[])::uuid[])::text[]"
        given = ('{"a": 1}', ["00000000-0000-0000-0000-000000000001"])
        rows = await provider.execute(connection, statement(text, *given))
        assert rows == [given]
        assert type(rows[0]) is tuple
    await connection.close()
    await provider.close()


async def test_a_connection_without_prepared_statements_gets_none(
    driver: Driver, provider: Any, database_url: str
) -> None:
    off: dict[str, Any] = {"statement_cache_size": 0} if driver.name == "asyncpg" else {"prepare_threshold": None}
    connection = await driver.connect(database_url, **off)
    async with driver.block(connection):
        for number in range(8):
            await provider.execute(connection, statement("SELECT $1::int", number))
        assert await driver.sql(connection, "SELECT name FROM pg_prepared_statements WHERE name <> ''") == []
    await driver.close(connection)


async def test_the_type_of_our_transactions_connection_is_the_drivers(driver: Driver, provider: Any) -> None:
    async with provider.transaction() as inside:
        provider.check(inside)
        kinds = (asyncpg.Connection, asyncpg.pool.PoolConnectionProxy)
        if driver.name != "asyncpg":
            kinds = (psycopg.Connection if driver.is_sync else psycopg.AsyncConnection,)  # type: ignore[assignment]
        assert isinstance(inside, kinds)
