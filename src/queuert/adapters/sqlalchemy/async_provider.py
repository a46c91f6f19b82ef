"""The async provider: sessions or connections of SQLAlchemy's async engines.

Cancellation. A statement that is under way is cancelled, as its driver does that. BEGIN, COMMIT and ROLLBACK run to
their end, and whatever happens the connection goes back to the engine's pool.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from types import TracebackType
from typing import Any, Generic, Protocol, TypeVar

from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, AsyncSession, async_sessionmaker

from queuert.adapters.fair_lock import FairLock
from queuert.adapters.finishing import finish
from queuert.adapters.postgres.command import PgStatement
from queuert.adapters.postgres.drivers.errors import DEADLOCK_OR_SERIALIZATION, sqlstate, translate
from queuert.adapters.sqlalchemy.core import ATTEMPTS, ENDED_INSIDE, Core, Nested
from queuert.adapters.sqlalchemy.handles import AsyncHandle, async_handle, behind
from queuert.errors import ClientClosed
from queuert.ports.beginning import Begun
from queuert.ports.provider import AfterCommitWork, AsyncBlock

AH = TypeVar("AH", bound=AsyncHandle)
W = TypeVar("W", bound=AfterCommitWork)
Source = AsyncEngine | async_sessionmaker[Any]


class Alone(Protocol):
    """Where statements go that stand alone, outside of any transaction."""

    async def execute(self, connection: None, command: Any) -> Any: ...

    async def close(self) -> None: ...


class AsyncSqlAlchemyProvider(Generic[AH]):
    """Made by `queuert.sqlalchemy.connect`. `source` makes what transactions run on: sessions, or connections."""

    def __init__(self, source: Source, core: Core, alone: Alone, turns: FairLock | None = None) -> None:
        self._source = source
        self._core = core
        self._alone = alone
        self._turns = turns
        """Where there is one writer: who waits for the write lock in this process, in the order of their coming."""
        self._closed = False

    def transaction(self, first: Any = None) -> AsyncBlock[AH]:
        return _Transaction(self) if first is None else Begun(self, _Transaction(self), first)

    def savepoint(self, connection: AH) -> _Savepoint:
        return _Savepoint(self, self._core, connection)

    async def execute(self, connection: AH | None, command: Any) -> Any:
        self.check_open()
        if connection is None:
            return await self._alone.execute(None, command)
        return await call(async_handle(connection), self._core.execute, command)

    def check(self, connection: AH) -> None:
        self.check_open()
        self._core.check(behind(async_handle(connection)))

    def in_transaction(self, connection: AH) -> bool:
        return async_handle(connection).in_transaction()

    def enlist(self, connection: AH, operation: str, make: Callable[[], W]) -> W:
        self.check_open()
        return self._core.enlist(behind(async_handle(connection)), operation, make)

    async def close(self) -> None:
        """The engine is the user's, and stays open."""
        if not self._closed:
            self._closed = True
            self._core.close()
            await self._alone.close()

    async def begin(self) -> AH:
        """A session or connection with a transaction of ours."""
        self.check_open()
        if self._turns is not None:
            await self._turns.acquire_async()
        try:
            return await self._begin()
        except BaseException:
            self._release()
            raise

    async def _begin(self) -> AH:
        handle: Any
        if isinstance(self._source, AsyncEngine):
            with self._core.in_our_words(inside=False):
                handle = await self._source.connect()
        else:
            handle = self._source()
        try:
            await finish(call(handle, self._core.begin))
        except BaseException:
            await finish(handle.close())
            raise
        return handle  # type: ignore[no-any-return]

    async def end(self, handle: AH, *, commit: bool) -> bool:
        """False: it could not be rolled back."""
        try:
            if commit:
                await finish(call(handle, self._core.commit))
                return True
            return await finish(call(handle, self._core.roll_back))
        finally:
            try:
                await finish(handle.close())
            finally:
                self._release()

    def _release(self) -> None:
        if self._turns is not None:
            self._turns.release()

    def check_open(self) -> None:
        if self._closed:
            raise ClientClosed("SQLAlchemy provider")


class _Transaction(Generic[AH]):
    """A transaction on a session or connection of ours."""

    answer: Any = None

    def __init__(self, provider: AsyncSqlAlchemyProvider[AH]) -> None:
        self._provider = provider

    async def __aenter__(self) -> AH:
        self._handle = await self._provider.begin()
        return self._handle

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        intact = await self._provider.end(self._handle, commit=error is None)
        if error is not None and not intact:
            error.add_note(f"queuert: this could not be rolled back, {ENDED_INSIDE}")


class _Savepoint:
    """A block inside the open transaction that is undone on an error."""

    def __init__(self, provider: AsyncSqlAlchemyProvider[Any], core: Core, handle: AsyncHandle) -> None:
        self._provider = provider
        self._core = core
        self._handle = handle

    async def __aenter__(self) -> None:
        self._provider.check_open()
        self._handle = async_handle(self._handle)
        self._nested: Nested = await finish(call(self._handle, self._core.set_savepoint))

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is None:
            await finish(call(self._handle, self._core.release, self._nested))
        elif not await finish(call(self._handle, self._core.undo, self._nested)):
            error.add_note(f"queuert: this could not be rolled back, {ENDED_INSIDE}")


class AsyncEngineAlone:
    """PostgreSQL: on connections of the engine's, one statement each."""

    def __init__(self, engine: AsyncEngine, core: Core) -> None:
        self._engine = engine
        self._core = core

    async def execute(self, connection: None, command: PgStatement) -> Any:  # noqa: ARG002
        for attempt in range(1, ATTEMPTS + 1):
            try:
                with self._core.in_our_words(inside=False):
                    return await self._execute(command)
            except Exception as error:
                if sqlstate(error) not in DEADLOCK_OR_SERIALIZATION:
                    raise
                if attempt == ATTEMPTS:
                    raise translate(error, sqlstate(error)) from error
            await asyncio.sleep(random.uniform(0, 0.02 * 2**attempt))
        raise AssertionError("unreachable")

    async def _execute(self, command: PgStatement) -> Any:
        connection = await self._engine.connect()
        try:
            return await connection.run_sync(self._core.execute_alone, command)
        finally:
            await finish(connection.close())

    async def close(self) -> None:
        """The engine is the user's."""


async def call(handle: AsyncSession | AsyncConnection, function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function with the sync object behind the handle, in a greenlet where it may do I/O."""
    return await handle.run_sync(function, *arguments)
