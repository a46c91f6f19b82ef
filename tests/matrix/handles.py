"""What a chain can be started with: one class for each kind of handle, to be added to `HANDLES`.

A handle has a database with a table `orders`, a client, and the caller's own way to open transactions and savepoints.
To add one: subclass `Handle`, write the methods that raise NotImplementedError, and name it in `HANDLES`.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import asyncpg
import psycopg
from sqlalchemy import create_engine, event, text
from sqlalchemy.ext.asyncio import async_sessionmaker, create_async_engine
from sqlalchemy.orm import sessionmaker
from tests.conformance.postgres_harness import database, empty
from tests.support.jobs import JOBS

from queuert import Client, EntryJob, SyncClient, Transaction
from queuert.adapters.in_process import NoNotify
from queuert.adapters.postgres.adapter import asyncpg_state, psycopg_state
from queuert.jobs.registry import Registry
from queuert.ports.notify import Topic
from queuert.sqlalchemy import connect, connect_sync

CREATE = "CREATE TABLE IF NOT EXISTS orders (id INTEGER PRIMARY KEY)"
INSERT = "INSERT INTO orders VALUES ({})"


class Database:
    """Where the jobs and the orders are, seen by somebody who looks on from outside."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        if path is None:
            empty()
            self.read(CREATE, rows=False)
            self.read("TRUNCATE orders", rows=False)
        else:
            self.read(CREATE, rows=False)

    @property
    def url(self) -> str:
        return database() if self.path is None else f"sqlite:///{self.path}"

    def read(self, statement: Any, *, rows: bool = True) -> list[Any]:
        connection: Any
        if self.path is None:
            connection = psycopg.connect(database(), autocommit=True)
        else:
            connection = sqlite3.connect(self.path, isolation_level=None)
        try:
            cursor = connection.execute(statement)
            return [row[0] for row in cursor.fetchall()] if rows else []
        finally:
            connection.close()

    def orders(self) -> list[int]:
        return self.read("SELECT id FROM orders ORDER BY id")

    def jobs(self) -> list[str]:
        """The types of the committed jobs."""
        return sorted(self.read("SELECT type_name FROM queuert_job"))


class Announced:
    """What is announced, and whether the jobs were there for all to see by then."""

    def __init__(self, where: Database) -> None:
        self._where = where
        self.types: list[str] = []
        self.too_early: list[str] = []

    def record(self, types: Sequence[str]) -> None:
        self.types.extend(types)
        self.too_early.extend(set(types) - set(self._where.jobs()))


class Recorder(NoNotify):
    def __init__(self, announced: Announced) -> None:
        super().__init__()
        self._announced = announced

    async def publish(self, topic: Topic, values: Sequence[str]) -> None:
        if topic == "job_scheduled":
            self._announced.record(values)


class Handle:
    """One kind of handle. All is awaited; what is sync does its work inline."""

    on_sqlite = False

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return self.name

    @asynccontextmanager
    async def opened(self, directory: Path) -> AsyncGenerator[Handle]:
        """The client, and what the caller needs beside it."""
        self.database = Database(directory / "jobs.db" if self.on_sqlite else None)
        self.announced = Announced(self.database)
        async with self.client_and_caller():
            yield self

    def client_and_caller(self) -> AbstractAsyncContextManager[None]:
        """Enter a client that announces to `Recorder(self.announced)`, and open what the caller needs."""
        raise NotImplementedError

    def transaction(self) -> AbstractAsyncContextManager[None]:
        """The caller's transaction: commits at the end, rolls back on an error."""
        raise NotImplementedError

    def savepoint(self) -> AbstractAsyncContextManager[None]:
        """The caller's savepoint in it."""
        raise NotImplementedError

    async def write(self, number: int) -> None:
        """The caller's own row."""
        raise NotImplementedError

    async def start(self, job: EntryJob[Any, Any]) -> None:
        """Start a chain with this handle."""
        raise NotImplementedError

    async def register(self, committed: Callable[[], object], rolled_back: Callable[[], object]) -> None:
        """Register functions for the end of the transaction, or of the savepoint that is open."""
        transaction = self.transaction_now()
        transaction.after_commit(committed)
        transaction.after_rollback(rolled_back)

    def transaction_now(self) -> Transaction[Any]:
        """The transaction that is open."""
        found: Transaction[Any] = self.__dict__["_tx"]
        return found

    async def settled(self) -> None:
        """Until everything that follows a commit is done."""


class SqlAlchemy(Handle):
    """A session or connection of SQLAlchemy, given to the client for the transaction that is open on it."""

    def __init__(self, name: str, driver: str, *, sessions: bool, is_async: bool) -> None:
        super().__init__(f"{name}-{driver}")
        self.on_sqlite = "sqlite" in driver
        self._driver = driver
        self._sessions = sessions
        self._is_async = is_async
        self._handle: Any = None
        self._client: Any = None

    @asynccontextmanager
    async def client_and_caller(self) -> AsyncGenerator[None]:
        scheme, rest = self.database.url.split(":", 1)
        url = f"{scheme}+{self._driver}:{rest}"
        engine: Any = create_async_engine(url) if self._is_async else create_engine(url)
        if self.on_sqlite:
            begin_immediate(engine.sync_engine if self._is_async else engine)
        try:
            if self._is_async:
                self._source: Any = async_sessionmaker(engine) if self._sessions else engine
                state: Any = connect(self._source, jobs=[], notify=None).sessions.storage
                async with Client(state, Recorder(self.announced), Registry(JOBS)) as self._client:
                    yield
            else:
                self._source = sessionmaker(engine) if self._sessions else engine
                state = connect_sync(self._source, jobs=[], notify=None).sessions.storage
                with SyncClient(state, Recorder(self.announced), Registry(JOBS)) as self._client:
                    yield
        finally:
            if self._is_async:
                await engine.dispose()
            else:
                engine.dispose()

    @asynccontextmanager
    async def transaction(self) -> AsyncGenerator[None]:
        if self._is_async:
            async with self._source.begin() as self._handle:
                yield
        else:
            with self._source.begin() as self._handle:
                yield

    @asynccontextmanager
    async def savepoint(self) -> AsyncGenerator[None]:
        if self._is_async:
            async with self._handle.begin_nested():
                yield
        else:
            with self._handle.begin_nested():
                yield

    async def write(self, number: int) -> None:
        done = self._handle.execute(text(INSERT.format(number)))
        if self._is_async:
            await done

    async def start(self, job: EntryJob[Any, Any]) -> None:
        done = self._client.start(self._handle, job)
        if self._is_async:
            await done

    def transaction_now(self) -> Transaction[Any]:
        found: Transaction[Any] = self._client.transaction_of(self._handle)
        return found

    async def settled(self) -> None:
        if self._is_async:
            await asyncio.gather(*self._client.sessions._flushes)


def begin_immediate(engine: Any) -> None:
    """SQLAlchemy's recipe for SQLite: the driver begins nothing by itself, the engine does."""

    @event.listens_for(engine, "connect")
    def leave_transactions_to_us(connection: Any, _record: Any) -> None:
        connection.isolation_level = None

    @event.listens_for(engine, "begin")
    def begin(connection: Any) -> None:
        connection.exec_driver_sql("BEGIN IMMEDIATE")


class Psycopg(Handle):
    """psycopg's connection, joined by `after_commit`."""

    @asynccontextmanager
    async def client_and_caller(self) -> AsyncGenerator[None]:
        async with (
            Client(psycopg_state(self.database.url), Recorder(self.announced), Registry(JOBS)) as self._client,
            await psycopg.AsyncConnection.connect(self.database.url) as self._connection,
        ):
            yield

    @asynccontextmanager
    async def transaction(self) -> AsyncGenerator[None]:
        async with self._client.after_commit(self._connection) as self._tx, self._connection.transaction():
            yield

    @asynccontextmanager
    async def savepoint(self) -> AsyncGenerator[None]:
        async with self._client.savepoint(self._tx):
            yield

    async def write(self, number: int) -> None:
        await self._connection.execute(INSERT.format(number).encode())

    async def start(self, job: EntryJob[Any, Any]) -> None:
        await self._client.start(self._tx, job)


class Asyncpg(Handle):
    """asyncpg's connection, joined by `after_commit`."""

    @asynccontextmanager
    async def client_and_caller(self) -> AsyncGenerator[None]:
        self._connection = await asyncpg.connect(self.database.url)
        try:
            state: Any = asyncpg_state(self.database.url)
            async with Client(state, Recorder(self.announced), Registry(JOBS)) as self._client:
                yield
        finally:
            await self._connection.close()

    @asynccontextmanager
    async def transaction(self) -> AsyncGenerator[None]:
        async with self._client.after_commit(self._connection) as self._tx, self._connection.transaction():
            yield

    @asynccontextmanager
    async def savepoint(self) -> AsyncGenerator[None]:
        async with self._client.savepoint(self._tx):
            yield

    async def write(self, number: int) -> None:
        await self._connection.execute(INSERT.format(number))

    async def start(self, job: EntryJob[Any, Any]) -> None:
        await self._client.start(self._tx, job)


ASYNC = ("psycopg", "asyncpg", "aiosqlite")
SYNC = ("psycopg", "pysqlite")

HANDLES: list[Handle] = [
    *[SqlAlchemy("AsyncSession", driver, sessions=True, is_async=True) for driver in ASYNC],
    *[SqlAlchemy("AsyncConnection", driver, sessions=False, is_async=True) for driver in ASYNC],
    *[SqlAlchemy("Session", driver, sessions=True, is_async=False) for driver in SYNC],
    *[SqlAlchemy("Connection", driver, sessions=False, is_async=False) for driver in SYNC],
    Psycopg("psycopg"),
    Asyncpg("asyncpg"),
]
