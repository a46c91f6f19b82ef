"""Statements that stand alone: committed at once, read committed, tried again where that is safe."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import asyncpg
import pytest
from psycopg.rows import dict_row
from tests.adapters.postgres.drivers import Driver, PsycopgSync, Watcher, statement
from tests.support.postgres import Databases

from queuert.adapters.postgres.drivers.errors import sqlstate
from queuert.errors import (
    ClientClosed,
    InvalidArgument,
    SchemaMissing,
    StorageBusy,
    StorageError,
    StorageReadOnly,
    StorageUnavailable,
)

ISOLATION = statement("SELECT current_setting('transaction_isolation')")


async def test_every_kind_of_value_goes_there_and_back(provider: Any) -> None:
    moment = datetime(2026, 3, 4, 5, 6, 7, 890123, tzinfo=UTC)
    elsewhere = moment.astimezone(timezone(timedelta(hours=5, minutes=30)))
    values: list[tuple[str, Any]] = [
        ("text", "a 'quoted' {é,\\} \U0001f600"),
        ("text", ""),
        ("text", None),
        ("bigint", 2**62),
        ("int", -7),
        ("float8", 1.5),
        ("bool", True),
        ("timestamptz", moment),
        ("timestamptz", elsewhere),
        ("timestamptz", None),
        ("text[]", ["a", None, "NULL", "", "{,}\"'\\", "é"]),
        ("text[]", []),
        ("text[]", [None, None]),
        ("bigint[]", [1, None, 2**62]),
        ("int[]", []),
        ("float8[]", [1.5, None, 2.0]),
        ("bool[]", [True, None, False]),
        ("timestamptz[]", [moment, None, elsewhere]),
    ]
    text = "SELECT " + ", ".join(f"${number}::{kind}" for number, (kind, _) in enumerate(values, 1))
    for _ in range(7):  # with prepared statements too
        rows = await provider.execute(None, statement(text, *(value for _, value in values)))
        assert rows == [tuple(value for _, value in values)]
        assert type(rows[0]) is tuple


async def test_numbers_of_different_sizes_share_one_prepared_statement(
    driver: Driver, provider: Any, watch: Watcher
) -> None:
    for number in (1, 2**20, 2**40):
        await provider.execute(None, statement("SELECT $1::bigint", number))
    (count,) = (await provider.execute(None, statement("SELECT count(*) FROM pg_prepared_statements")))[0]
    assert count <= 2, "this one, and the one that counts"


async def test_it_is_committed_at_once(provider: Any, watch: Watcher) -> None:
    assert await provider.execute(None, statement("INSERT INTO t VALUES ($1::int)", 1)) == []
    assert await provider.execute(None, statement("INSERT INTO t VALUES (2) RETURNING n")) == [(2,)]
    assert watch("SELECT n FROM t ORDER BY n") == [1, 2]


async def test_what_cannot_run_in_a_transaction_runs_alone(provider: Any, watch: Watcher) -> None:
    await provider.execute(None, statement("CREATE INDEX CONCURRENTLY i ON t (n)", alone=True))
    await provider.execute(None, statement("VACUUM t", alone=True))
    assert watch("SELECT 1 FROM pg_indexes WHERE indexname = 'i'") == [1]


@pytest.mark.parametrize("source", ["own", "own-unprepared", "pool", "connection"])
async def test_it_is_read_committed_whatever_the_role_says(
    driver: Driver, database_url: str, watch: Watcher, source: str
) -> None:
    watch(f"ALTER DATABASE {watch('SELECT current_database()')[0]} SET default_transaction_isolation = 'serializable'")
    async with driver.pool(database_url) as pool:
        connection = await driver.connect(database_url)
        sources = {"own": database_url, "own-unprepared": database_url, "pool": pool, "connection": connection}
        provider = driver.provider(sources[source], prepare=source != "own-unprepared")
        for _ in range(3):
            assert await provider.execute(None, ISOLATION) == [("read committed",)]
        async with provider.transaction() as inside:
            assert await provider.execute(inside, ISOLATION) == [("read committed",)]
        await provider.execute(None, statement("CREATE INDEX CONCURRENTLY i ON t (n)", alone=True))
        await provider.execute(None, statement("INSERT INTO t VALUES (1)"))
        with pytest.raises(StorageError, match="duplicate key"):
            await provider.execute(None, statement("INSERT INTO t VALUES (1)"))
        assert watch("SELECT n FROM t") == [1]
        assert await driver.sql(connection, "SHOW default_transaction_isolation") == [("serializable",)]
        await provider.close()
        await driver.close(connection)


async def test_without_prepare_nothing_is_prepared(driver: Driver, database_url: str, watch: Watcher) -> None:
    provider = driver.provider(database_url, prepare=False, max_size=1)
    for number in range(10):
        await provider.execute(None, statement("SELECT $1::int", number))
    assert await provider.execute(None, statement("SELECT name FROM pg_prepared_statements WHERE name <> ''")) == []
    await provider.close()


async def test_with_prepare_statements_are_prepared(provider: Any) -> None:
    for number in range(3):
        await provider.execute(None, statement("SELECT $1::int", number))
    rows = await provider.execute(None, statement("SELECT statement FROM pg_prepared_statements"))
    assert ("SELECT $1::int",) in rows


# Tried again


async def test_a_serialization_failure_is_tried_again(provider: Any, watch: Watcher) -> None:
    watch("CREATE SEQUENCE tries")
    watch(
        "CREATE FUNCTION fail_twice() RETURNS bigint LANGUAGE plpgsql AS $$ DECLARE n bigint := nextval('tries'); "
        "BEGIN IF n < 3 THEN RAISE 'try again' USING ERRCODE = '40001'; END IF; RETURN n; END $$"
    )
    assert await provider.execute(None, statement("SELECT fail_twice()")) == [(3,)]


async def test_a_deadlock_is_tried_again_a_few_times(provider: Any, watch: Watcher) -> None:
    watch("CREATE SEQUENCE tries")
    watch(
        "CREATE FUNCTION fail() RETURNS void LANGUAGE plpgsql AS "
        "$$ BEGIN PERFORM nextval('tries'); RAISE 'in each other''s way' USING ERRCODE = '40P01'; END $$"
    )
    with pytest.raises(StorageBusy, match="in each other's way"):
        await provider.execute(None, statement("SELECT fail()"))
    assert watch("SELECT last_value FROM tries") == [5]


@pytest.mark.parametrize("state", ["40001", "40P01"])
async def test_inside_a_transaction_it_is_the_drivers_error(driver: Driver, provider: Any, state: str) -> None:
    fail = statement(f"DO $$ BEGIN RAISE 'no' USING ERRCODE = '{state}'; END $$")
    with pytest.raises(driver.error) as caught:
        async with provider.transaction() as inside:
            await provider.execute(inside, fail)
    assert sqlstate(caught.value) == state


# Errors


@pytest.mark.parametrize(
    ("text", "kind", "says"),
    [
        ("SELECT * FROM nowhere", SchemaMissing, r"run client\.migrate\(\)"),
        ("SELECT * FROM nowhere.t", SchemaMissing, r"run client\.migrate\(\)"),
        ("SELECT absent()", SchemaMissing, r"run client\.migrate\(\)"),
        ("SELECT m FROM t", SchemaMissing, r"run client\.migrate\(\)"),
        ("SELECT 1 / 0", StorageError, "division by zero"),
        (
            "DO $$ BEGIN SET TRANSACTION READ ONLY; INSERT INTO t VALUES (1); END $$",
            StorageReadOnly,
            "cannot be written",
        ),
        ("DO $$ BEGIN RAISE 'late' USING ERRCODE = '55P03'; END $$", StorageBusy, "lock"),
    ],
)
@pytest.mark.parametrize("place", ["alone", "inside"])
async def test_errors_say_what_to_do(
    driver: Driver, provider: Any, text: str, kind: type[StorageError], says: str, place: str
) -> None:
    with pytest.raises(kind, match=says) as caught:
        if place == "alone":
            await provider.execute(None, statement(text))
        else:
            async with provider.transaction() as inside:
                await provider.execute(inside, statement(text))
    assert isinstance(caught.value.__cause__, driver.error)
    assert sqlstate(caught.value) == sqlstate(caught.value.__cause__)
    assert await provider.execute(None, statement("SELECT 1")) == [(1,)]


async def test_a_role_without_rights_is_told_what_it_lacks(
    driver: Driver, database_url: str, postgres: Databases, watch: Watcher
) -> None:
    role = watch("SELECT current_database()")[0]
    watch(f"CREATE ROLE {role} LOGIN")
    provider = driver.provider(database_url.replace("//postgres@", f"//{role}@"))
    try:
        with pytest.raises(StorageError, match="grant"):
            await provider.execute(None, statement("SELECT n FROM t"))
    finally:
        await provider.close()
        watch(f"DROP ROLE {role}")


# Sources


@pytest.mark.parametrize("source", [None, 7, object()])
def test_a_source_that_is_none_is_refused(driver: Driver, source: object) -> None:
    with pytest.raises(InvalidArgument, match="expected a"):
        driver.provider(source)


async def test_a_source_of_the_other_flavour_is_refused(database_url: str, watch: Watcher) -> None:
    from queuert.adapters.postgres.drivers.psycopg import PsycopgProvider

    connection = await PsycopgSync().connect(database_url)
    with pytest.raises(InvalidArgument, match="AsyncConnectionPool"):
        PsycopgProvider(connection)
    connection.close()


async def test_after_close_nothing_is_done(driver: Driver, provider: Any, connection: Any) -> None:
    await provider.execute(None, statement("SELECT 1"))
    for _ in range(2):
        await provider.close()
    with pytest.raises(ClientClosed):
        await provider.execute(None, statement("SELECT 1"))
    with pytest.raises(ClientClosed):
        async with provider.transaction():
            pass
    with pytest.raises(ClientClosed):
        provider.check(connection)
    async with driver.block(connection):
        with pytest.raises(ClientClosed):
            await provider.execute(connection, statement("SELECT 1"))
        with pytest.raises(ClientClosed):
            async with provider.savepoint(connection):
                pass


async def test_closing_what_was_never_used(driver: Driver, database_url: str) -> None:
    provider = driver.provider(database_url)
    await provider.close()
    with pytest.raises(ClientClosed):
        await provider.execute(None, statement("SELECT 1"))


async def test_close_leaves_no_connections_behind(driver: Driver, database_url: str, watch: Watcher) -> None:
    provider = driver.provider(database_url, max_size=3)
    await provider.execute(None, statement("SELECT 1"))
    assert watch.others()
    await provider.close()
    await watch.until_gone()


async def test_the_users_pool_is_used_as_it_is_and_left_open(driver: Driver, database_url: str, watch: Watcher) -> None:
    async with driver.pool(database_url, 1) as pool:
        provider = driver.provider(pool)
        for _ in range(3):
            await provider.execute(None, statement("INSERT INTO t SELECT coalesce(max(n), 0) + 1 FROM t"))
            async with provider.transaction() as inside:
                await provider.execute(inside, statement("INSERT INTO t SELECT max(n) + 1 FROM t"))
        assert watch("SELECT count(*) FROM t") == [6]
        await provider.close()
        if isinstance(pool, asyncpg.Pool):
            assert await pool.fetchval("SELECT 1") == 1
            return
        context = pool.connection()
        connection = context.__enter__() if driver.is_sync else await context.__aenter__()
        assert connection.autocommit is False
        assert connection.isolation_level is None
        assert connection.row_factory is dict_row
        assert connection.prepare_threshold == 5
        if driver.is_sync:
            context.__exit__(None, None, None)
        else:
            await context.__aexit__(None, None, None)


async def test_a_full_disk_is_called_that(provider: Any) -> None:
    full = "DO $$ BEGIN RAISE EXCEPTION 'could not extend file' USING ERRCODE = '53100'; END $$"
    with pytest.raises(StorageUnavailable, match="no space left on the disk of PostgreSQL: could not extend file"):
        await provider.execute(None, statement(full))
