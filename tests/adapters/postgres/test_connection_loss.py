"""Connections that are cut, and servers that go away and come back."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import pytest
from tests.adapters.postgres.drivers import Driver, Watcher, statement
from tests.support.postgres import PostgresServer

from queuert.errors import StorageError, StorageUnavailable, TransactionMisused

ONE = statement("SELECT 1")


class Boom(Exception):
    """An error of the user's own."""


def insert(number: int) -> Any:
    return statement("INSERT INTO t VALUES ($1::int)", number)


async def works(provider: Any) -> None:
    async with asyncio.timeout(45):
        assert await provider.execute(None, ONE) == [(1,)]
        async with provider.transaction() as inside:
            assert await provider.execute(inside, ONE) == [(1,)]


# pg_terminate_backend, at every step


async def test_at_rest_it_is_not_even_noticed(driver: Driver, database_url: str, watch: Watcher) -> None:
    provider = driver.provider(database_url, max_size=3, timeout=30)
    for _ in range(3):
        await works(provider)
        assert watch.terminate_others() >= 1
        await asyncio.sleep(0.05)
    await works(provider)
    await provider.close()


async def test_at_rest_in_the_users_pool(driver: Driver, database_url: str, watch: Watcher) -> None:
    async with driver.pool(database_url, 2) as pool:
        provider = driver.provider(pool)
        await works(provider)
        while driver.in_pool(pool) < 2:  # it fills up in its own time
            await asyncio.sleep(0.005)
        assert watch.terminate_others() == 2
        await asyncio.sleep(0.05)
        await works(provider)


async def test_between_two_statements(driver: Driver, provider: Any, watch: Watcher) -> None:
    """It is no mistake of the caller, also if the driver has noticed it before the second statement."""
    with pytest.raises(StorageUnavailable):
        async with provider.transaction() as inside:
            await provider.execute(inside, insert(1))
            watch.terminate_others()
            await asyncio.sleep(0.05)
            with pytest.raises(StorageUnavailable):
                await provider.execute(inside, insert(2))
            with pytest.raises(StorageUnavailable):
                await provider.execute(inside, insert(3))
            with pytest.raises(StorageUnavailable):
                async with provider.savepoint(inside):
                    raise AssertionError("not reached")
    assert watch("SELECT n FROM t") == []
    await works(provider)


async def test_before_the_commit(provider: Any, watch: Watcher) -> None:
    with pytest.raises(StorageUnavailable):
        async with provider.transaction() as inside:
            await provider.execute(inside, insert(1))
            watch.terminate_others()
            await asyncio.sleep(0.05)
    assert watch("SELECT n FROM t") == []
    await works(provider)


async def test_before_the_rollback(provider: Any, watch: Watcher) -> None:
    with pytest.raises(Boom) as caught:
        async with provider.transaction() as inside:
            await provider.execute(inside, insert(1))
            watch.terminate_others()
            await asyncio.sleep(0.05)
            raise Boom
    assert not hasattr(caught.value, "__notes__"), "the server has undone it"
    assert watch("SELECT n FROM t") == []
    await works(provider)


@pytest.mark.parametrize("ending", ["well", "in error"])
async def test_in_a_savepoint(provider: Any, watch: Watcher, ending: str) -> None:
    with pytest.raises(StorageUnavailable if ending == "well" else Boom):
        async with provider.transaction() as inside, provider.savepoint(inside):
            await provider.execute(inside, insert(1))
            watch.terminate_others()
            await asyncio.sleep(0.05)
            if ending == "in error":
                raise Boom
    assert watch("SELECT n FROM t") == []
    await works(provider)


async def test_in_the_middle_of_a_statement(driver: Driver, database_url: str, watch: Watcher) -> None:
    provider = driver.provider(database_url, max_size=1, timeout=30)
    if driver.is_sync:
        task = asyncio.create_task(asyncio.to_thread(provider.sync.execute, None, statement("SELECT pg_sleep(30)")))
    else:
        task = asyncio.create_task(provider.execute(None, statement("SELECT pg_sleep(30)")))
    await watch.until("wait_event = 'PgSleep'")
    watch.terminate_others()
    with pytest.raises(StorageUnavailable, match=r"terminating connection|closed in the middle"):
        await task
    await works(provider)
    await provider.close()


@pytest.mark.parametrize("steps", range(6))
async def test_while_the_driver_is_noticing_it(driver: Driver, provider: Any, watch: Watcher, steps: int) -> None:
    """The server's farewell, and the end of the connection, are read in different steps of the event loop."""
    await works(provider)
    watch.terminate_others()  # the loop stands still meanwhile
    for _ in range(steps):
        await asyncio.sleep(0)
    with suppress(StorageUnavailable):  # no other error
        assert await provider.execute(None, statement("SELECT 1 + $1::int", 1)) == [(2,)]
    await works(provider)


@pytest.mark.parametrize("steps", range(6))
async def test_while_the_driver_is_noticing_it_in_a_transaction(
    driver: Driver, provider: Any, watch: Watcher, steps: int
) -> None:
    with pytest.raises(StorageUnavailable, match=r"closed|reached|lost"):
        async with provider.transaction() as inside:
            await provider.execute(inside, insert(1))
            watch.terminate_others()
            for _ in range(steps):
                await asyncio.sleep(0)
            await provider.execute(inside, insert(2))
    assert watch("SELECT n FROM t") == []
    await works(provider)


async def test_in_the_middle_of_a_commit(driver: Driver, provider: Any, watch: Watcher) -> None:
    """A commit that fails for want of a connection says so; the trigger ends its own backend."""
    watch(
        "CREATE FUNCTION die() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN PERFORM pg_terminate_backend(pg_backend_pid()); PERFORM pg_sleep(5); RETURN NULL; END $$"
    )
    watch(
        "CREATE CONSTRAINT TRIGGER die AFTER INSERT ON t DEFERRABLE INITIALLY DEFERRED "
        "FOR EACH ROW EXECUTE FUNCTION die()"
    )
    with pytest.raises(StorageUnavailable):
        async with provider.transaction() as inside:
            await provider.execute(inside, insert(1))
    assert watch("SELECT n FROM t") == []
    await works(provider)


async def test_on_the_users_connection(driver: Driver, provider: Any, connection: Any, watch: Watcher) -> None:
    await works(provider)
    await driver.sql(connection, "BEGIN")
    ((pid,),) = await provider.execute(connection, statement("SELECT pg_backend_pid()"))
    watch(f"SELECT pg_terminate_backend({pid}, 5000)")
    await asyncio.sleep(0.05)
    with pytest.raises(StorageUnavailable, match=r"closed|reached|lost"):
        await provider.execute(connection, insert(1))
    with pytest.raises(StorageUnavailable, match="lost"):
        provider.check(connection)
    await works(provider)


async def test_a_connection_of_the_user_that_was_closed_before(driver: Driver, provider: Any, connection: Any) -> None:
    """A mistake of the caller."""
    await driver.sql(connection, "BEGIN")
    await driver.sql(connection, "COMMIT")
    await driver.close(connection)
    with pytest.raises(TransactionMisused, match="closed"):
        provider.check(connection)


async def test_too_many_connections(driver: Driver, own_server: PostgresServer) -> None:
    watcher = Watcher(own_server.url)
    watcher("CREATE ROLE limited LOGIN CONNECTION LIMIT 0")
    provider = driver.provider(own_server.url.replace("//postgres@", "//limited@"), timeout=30)
    with pytest.raises(StorageUnavailable, match="too many connections"):
        await provider.execute(None, ONE)
    await provider.close()
    watcher.close()


# No server


async def test_a_server_that_is_not_there_is_told_soon(driver: Driver, tmp_path: Any) -> None:
    provider = driver.provider(f"postgresql://postgres@/postgres?host={tmp_path}", timeout=3600)
    with pytest.raises(StorageUnavailable, match=r"No such file|Connection refused"):
        await provider.execute(None, ONE)
    with pytest.raises(StorageUnavailable):
        async with provider.transaction():
            pass
    await provider.close()


async def test_a_database_that_is_not_there(driver: Driver, database_url: str) -> None:
    provider = driver.provider(database_url.replace("/queuert_", "/absent_"))
    with pytest.raises(StorageError, match="does not exist"):
        await provider.execute(None, ONE)
    await provider.close()


async def test_all_connections_in_use(driver: Driver, database_url: str, watch: Watcher) -> None:
    provider = driver.provider(database_url, max_size=1, timeout=0.3)
    async with provider.transaction():
        with pytest.raises(StorageUnavailable, match=r"in use|no connection within"):
            await provider.execute(None, ONE)
    await works(provider)
    await provider.close()


@pytest.mark.parametrize("immediate", [True, False], ids=["crash", "shutdown"])
async def test_a_restart(driver: Driver, own_server: PostgresServer, immediate: bool) -> None:
    """Open transactions are lost, nothing else is: as soon as the server is back, so are we."""
    async with driver.pool(own_server.url, 2) as pool:
        ours = driver.provider(own_server.url, max_size=3, timeout=3600)
        given = driver.provider(pool)
        for provider in (ours, given):
            await works(provider)
        with pytest.raises(StorageUnavailable):
            async with ours.transaction() as inside:
                await asyncio.to_thread(own_server.stop, immediate=immediate)
                with pytest.raises(StorageUnavailable):
                    await ours.execute(inside, ONE)
        with pytest.raises(StorageUnavailable):  # at once, not when the time is up
            await ours.execute(None, ONE)
        await asyncio.to_thread(own_server.start)
        for provider in (ours, given):
            await works(provider)
            await works(provider)
        await ours.close()
