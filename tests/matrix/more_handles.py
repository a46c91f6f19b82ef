"""Handles of aiosqlite and of Django."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import aiosqlite
from django.db import connections, transaction
from tests.matrix.handles import INSERT, Handle, Recorder
from tests.support.django import add_database, postgres_settings, remove_database, sqlite_settings
from tests.support.jobs import JOBS

from queuert import Client, EntryJob, SyncClient
from queuert.adapters.django import DjangoConnection, DjangoProvider
from queuert.adapters.postgres.operations import PostgresOperations
from queuert.adapters.sqlite import SqliteOperations, aiosqlite_state
from queuert.jobs.registry import Registry
from queuert.ports.state import StateOperations, SyncStateAdapter

T = TypeVar("T")


class Aiosqlite(Handle):
    """aiosqlite's connection, joined by `after_commit`."""

    on_sqlite = True

    @asynccontextmanager
    async def client_and_caller(self) -> AsyncGenerator[None]:
        assert self.database.path is not None
        state = aiosqlite_state(self.database.path)
        async with (
            Client(state, Recorder(self.announced), Registry(JOBS)) as self._client,
            aiosqlite.connect(self.database.path, isolation_level=None) as self._connection,
        ):
            yield

    @asynccontextmanager
    async def transaction(self) -> AsyncGenerator[None]:
        async with self._client.after_commit(self._connection) as self._tx:
            await self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield
            except BaseException:
                await self._connection.rollback()
                raise
            await self._connection.commit()

    @asynccontextmanager
    async def savepoint(self) -> AsyncGenerator[None]:
        async with self._client.savepoint(self._tx):
            yield

    async def write(self, number: int) -> None:
        await self._connection.execute(INSERT.format(number))

    async def start(self, job: EntryJob[Any, Any]) -> None:
        await self._client.start(self._tx, job)


class Django(Handle):
    """Django's connection, given for the atomic block that is open on it. In a thread: it refuses event loops."""

    def __init__(self, name: str, *, on_sqlite: bool) -> None:
        super().__init__(name)
        self.on_sqlite = on_sqlite

    @asynccontextmanager
    async def client_and_caller(self) -> AsyncGenerator[None]:
        operations: StateOperations
        if self.database.path is not None:
            alias, operations = add_database(sqlite_settings(self.database.path)), SqliteOperations()
        else:
            alias, operations = add_database(postgres_settings(self.database.url)), PostgresOperations()
        self._alias = alias
        state: SyncStateAdapter[DjangoConnection] = SyncStateAdapter(operations, DjangoProvider(alias))
        self._client = SyncClient(state, Recorder(self.announced), Registry(JOBS))
        with ThreadPoolExecutor(1) as self._thread:
            await self._do(self._client.__enter__)
            try:
                yield
            finally:
                await self._do(self._client.close)
                await self._do(lambda: connections[alias].close())
                remove_database(alias)

    @asynccontextmanager
    async def transaction(self) -> AsyncGenerator[None]:
        block: Any = transaction.atomic(using=self._alias)
        await self._do(block.__enter__)
        try:
            yield
        except BaseException as error:
            raised = error
            await self._do(lambda: block.__exit__(type(raised), raised, None))
            raise
        await self._do(lambda: block.__exit__(None, None, None))

    def savepoint(self) -> Any:
        return self.transaction()  # an atomic block inside of another

    async def write(self, number: int) -> None:
        def insert() -> None:
            with connections[self._alias].cursor() as cursor:
                cursor.execute(INSERT.format(number))

        await self._do(insert)

    async def start(self, job: EntryJob[Any, Any]) -> None:
        await self._do(lambda: self._client.start(connections[self._alias], job))

    async def register(self, committed: Callable[[], object], rolled_back: Callable[[], object]) -> None:
        def register() -> None:
            transaction = self._client.transaction_of(connections[self._alias])
            transaction.after_commit(committed)
            transaction.after_rollback(rolled_back)

        await self._do(register)

    async def _do(self, function: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, function)


MORE: list[Handle] = [
    Aiosqlite("aiosqlite"),
    Django("Django-postgresql", on_sqlite=False),
    Django("Django-sqlite", on_sqlite=True),
]
