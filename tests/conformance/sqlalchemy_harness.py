"""Sessions and connections of SQLAlchemy for the state suite, over every driver."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from sqlalchemy import create_engine, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncEngine, async_sessionmaker, create_async_engine
from sqlalchemy.orm import sessionmaker
from tests.conformance.postgres_harness import database, empty
from tests.support.sqlite import with_tables

from queuert.sqlalchemy import connect, connect_sync
from queuert_conformance import StateHarness
from queuert_conformance.state.driver import AnyStateAdapter

ASYNC_DRIVERS = ("psycopg", "asyncpg", "aiosqlite")


class SqlAlchemyHarness(StateHarness):
    """`driver` is one of SQLAlchemy's; `sessions`: with sessions, else with connections."""

    def __init__(self, driver: str, *, sessions: bool, is_async: bool) -> None:
        self.single_writer = "sqlite" in driver
        self._directory = TemporaryDirectory()
        self._url = self._database(driver)
        self._sessions = sessions
        self._is_async = is_async
        self._engines: list[Any] = []
        super().__init__(self._adapter())

    def _database(self, driver: str) -> str:
        if self.single_writer:
            return f"sqlite+{driver}:///{with_tables(Path(self._directory.name) / 'jobs.db')}"
        return database().replace("postgresql", f"postgresql+{driver}", 1)

    def _adapter(self) -> AnyStateAdapter:
        engine = _engine(self._url, len(self._engines), is_async=self._is_async)
        self._engines.append(engine)
        if self._is_async:
            client: Any = connect(async_sessionmaker(engine) if self._sessions else engine, jobs=[], notify=None)
        else:
            client = connect_sync(sessionmaker(engine) if self._sessions else engine, jobs=[], notify=None)
        storage: AnyStateAdapter = client.sessions.storage
        return storage

    async def reset(self) -> None:
        if not self.single_writer:
            empty()

    async def second(self) -> AnyStateAdapter:
        return self._adapter()

    async def dispose(self) -> None:
        for engine in self._engines:
            if isinstance(engine, AsyncEngine):
                await engine.dispose()
            elif self.single_writer:
                engine.dispose()
        self._directory.cleanup()

    def poison(self, connection: Any) -> Any:
        return _poison_async(connection) if self._is_async else _poison(connection)


@cache
def _engine(url: str, _number: int, *, is_async: bool) -> Any:
    """Kept from case to case: what an engine first has to find out about its server takes a while."""
    return create_async_engine(url) if is_async else create_engine(url)


def _poison(connection: Any) -> None:
    try:
        connection.execute(text("SELECT there_is_no_such_column"))
    except DBAPIError:
        return


async def _poison_async(connection: Any) -> None:
    try:
        await connection.execute(text("SELECT there_is_no_such_column"))
    except DBAPIError:
        return


def harness(driver: str, *, sessions: bool, is_async: bool) -> Callable[[], StateHarness]:
    return lambda: SqlAlchemyHarness(driver, sessions=sessions, is_async=is_async)
