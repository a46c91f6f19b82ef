"""Servers that are away, pools that are empty, errors that were swallowed: in the words of the library."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import psycopg
import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError, IntegrityError
from sqlalchemy.ext.asyncio import async_sessionmaker
from sqlalchemy.orm import sessionmaker
from tests.adapters.postgres.drivers import Watcher
from tests.adapters.sqlalchemy.test_footguns import Base, Order
from tests.adapters.sqlalchemy.worlds import async_client_for, async_engine_for, client_for, engine_for
from tests.support.jobs import JOBS, Greet

from queuert import SchemaMissing, StorageBusy, StorageUnavailable, TransactionMisused
from queuert.sqlalchemy import connect, connect_sync

NOWHERE = "postgresql://localhost:1/nothing"


def test_a_server_that_is_away() -> None:
    with engine_for(NOWHERE) as engine:
        for source in (sessionmaker(engine), engine):
            with connect_sync(source, jobs=JOBS, notify=None) as client:
                with pytest.raises(StorageUnavailable):
                    client.stats()
                with pytest.raises(StorageUnavailable), client.transaction():
                    pass


@pytest.mark.parametrize("driver", ["psycopg", "asyncpg"])
async def test_a_server_that_is_away_from_an_async_client(driver: str) -> None:
    async with async_engine_for(NOWHERE, driver) as engine:
        for source in (async_sessionmaker(engine), engine):
            async with connect(source, jobs=JOBS, notify=None) as client:
                with pytest.raises(StorageUnavailable):
                    await client.stats()
                with pytest.raises(StorageUnavailable):
                    async with client.transaction():
                        pass


def test_a_pool_that_is_empty(migrated_url: str) -> None:
    with (
        engine_for(migrated_url, pool_size=1, max_overflow=0, pool_timeout=0.05) as engine,
        client_for(engine) as (client, _),
        engine.connect(),
        pytest.raises(StorageUnavailable, match="no connection of the engine's pool became free"),
    ):
        client.stats()


@pytest.mark.parametrize("driver", ["psycopg", "asyncpg"])
async def test_a_connection_that_is_lost(migrated_url: str, driver: str) -> None:
    watcher = Watcher(migrated_url)
    async with async_engine_for(migrated_url, driver) as engine, async_client_for(engine) as (client, announced):
        with pytest.raises(StorageUnavailable):
            async with client.transaction() as tx:
                await client.start(tx, Greet())
                watcher.terminate_others()
                await client.start(tx, Greet())
        with pytest.raises(StorageUnavailable):
            async with client.transaction() as tx:
                await client.start(tx, Greet())
                watcher.terminate_others()
                with suppress(DBAPIError):
                    await tx.connection.execute(text("SELECT 1"))
        assert announced == []
        await client.stats()  # it heals
    watcher.close()


@pytest.mark.parametrize("driver", ["psycopg", "asyncpg"])
async def test_an_error_that_was_swallowed(migrated_url: str, driver: str) -> None:
    async with async_engine_for(migrated_url, driver) as engine, async_client_for(engine) as (client, announced):
        with pytest.raises(TransactionMisused, match="swallowed"):
            async with client.transaction() as tx:
                await client.start(tx, Greet())
                with suppress(DBAPIError):
                    await tx.connection.execute(text("SELECT 1 / 0"))
        async with client.transaction() as tx:
            with pytest.raises(TransactionMisused, match="swallowed"):
                async with client.savepoint(tx):
                    with suppress(DBAPIError):
                        await tx.connection.execute(text("SELECT 1 / 0"))
            await client.start(tx, Greet())
        assert announced == ["greet"]
        async with client.transaction() as tx, tx.connection.begin_nested() as nested:
            with suppress(DBAPIError):
                await tx.connection.execute(text("SELECT 1 / 0"))
            with pytest.raises(TransactionMisused, match="a statement has failed"):
                await client.start(tx, Greet())
            await nested.rollback()


def test_a_flush_whose_error_was_swallowed(migrated_url: str) -> None:
    with engine_for(migrated_url) as engine, client_for(sessionmaker(engine)) as (client, announced):
        Base.metadata.create_all(engine)
        with pytest.raises(TransactionMisused, match="a flush failed"), client.transaction() as tx:
            client.start(tx, Greet())
            tx.connection.add_all([Order(id=1)])
            tx.connection.flush()
            tx.connection.expunge_all()
            tx.connection.add(Order(id=1))
            with pytest.raises(IntegrityError):
                tx.connection.flush()
        with client.transaction() as tx:
            tx.connection.add(Order(id=1))
            with pytest.raises(TransactionMisused, match="a flush failed"), client.savepoint(tx):
                tx.connection.expunge_all()
                tx.connection.add(Order(id=1))
                with pytest.raises(IntegrityError):
                    tx.connection.flush()
            client.start(tx, Greet())
        assert announced == ["greet"]


async def test_a_database_that_is_not_read_committed_by_default(migrated_url: str) -> None:
    with psycopg.connect(migrated_url, autocommit=True) as connection:
        connection.execute(
            f"ALTER DATABASE {connection.info.dbname} SET default_transaction_isolation TO serializable".encode()
        )
    async with async_engine_for(migrated_url, "asyncpg") as engine, async_client_for(engine) as (client, _):
        async with client.transaction() as tx:
            level = await tx.connection.execute(text("SHOW transaction_isolation"))
            assert level.scalar() == "read committed"
            await client.start(tx, Greet())
        assert len((await client.list_chains()).items) == 1


def test_a_write_lock_that_is_kept(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'app.db'}"
    with engine_for(url, "pysqlite", connect_args={"timeout": 0.01}) as engine, client_for(engine) as (client, _):
        with client.transaction(), engine.begin() as connection, pytest.raises(StorageBusy):
            client.start(connection, Greet())
        with engine.begin() as connection, pytest.raises(SchemaMissing, match="no such table: queuert_job"):
            connection.execute(text("DROP TABLE queuert_job"))
            client.start(connection, Greet())
