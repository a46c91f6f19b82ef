"""The providers over SQLAlchemy: for its sync sessions and connections, and for the async ones."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeVar

from sqlalchemy import Connection

from queuert.adapters.postgres.drivers.session import AsyncSqlProvider, SqlProvider, SyncSqlProvider
from queuert.adapters.sqlalchemy.driver import SqlAlchemyDriver
from queuert.adapters.waiting import done
from queuert.ports.provider import AfterCommitWork, TimeLimit

W = TypeVar("W", bound=AfterCommitWork)


class Alone(Protocol):
    """A provider for statements that run alone, sync or async."""

    def execute(self, connection: None, command: Any) -> Any: ...

    def execute_within(self, limit: TimeLimit, command: Any) -> Any: ...

    def close(self) -> Coroutine[Any, Any, None] | None: ...


class _Provider(SqlProvider[Any]):
    """Made by `queuert.sqlalchemy`. With `alone`, only transactions go through SQLAlchemy."""

    driver: SqlAlchemyDriver

    def __init__(self, driver: SqlAlchemyDriver, alone: Alone | None = None) -> None:
        super().__init__(driver)
        self._alone = alone

    def enlist(self, connection: Any, operation: str, make: Callable[[], W]) -> W:
        self.check_open()
        return self.driver.enlist(connection, operation, make)

    async def run_alone(self, command: Any, limit: TimeLimit | None = None) -> Any:
        if self._alone is None:
            return await super().run_alone(command, limit)
        if limit is None:
            return await done(self._alone.execute(None, command))
        return await done(self._alone.execute_within(limit, command))

    async def shut_down(self) -> None:
        await super().shut_down()
        if self._alone is not None:
            await done(self._alone.close())


class SqlAlchemyProvider(_Provider, SyncSqlProvider[Any]):
    """Sync sessions or connections."""

    def as_own(self, connection: Connection) -> AbstractContextManager[None, None]:
        """A block in which the caller's transaction is used as if it were ours."""
        return self.driver.as_own(connection)


class AsyncSqlAlchemyProvider(_Provider, AsyncSqlProvider[Any]):
    """Async sessions or connections."""
