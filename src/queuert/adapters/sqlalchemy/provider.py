"""The sync provider: sessions or connections of SQLAlchemy's engines."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, Generic, Protocol, TypeVar

from sqlalchemy import Connection, Engine
from sqlalchemy.orm import sessionmaker

from queuert.adapters.postgres.command import PgStatement
from queuert.adapters.postgres.drivers.errors import DEADLOCK_OR_SERIALIZATION, sqlstate, translate
from queuert.adapters.sqlalchemy.core import ATTEMPTS, ENDED_INSIDE, Core, Nested
from queuert.adapters.sqlalchemy.handles import Handle, sync_handle
from queuert.errors import ClientClosed
from queuert.ports.beginning import SyncBegun
from queuert.ports.provider import AfterCommitWork, SyncBlock

H = TypeVar("H", bound=Handle)
W = TypeVar("W", bound=AfterCommitWork)
Source = Engine | sessionmaker[Any]


class Alone(Protocol):
    """Where statements go that stand alone, outside of any transaction."""

    def execute(self, connection: None, command: Any) -> Any: ...

    def close(self) -> None: ...


class SqlAlchemyProvider(Generic[H]):
    """Made by `queuert.sqlalchemy.connect_sync`. `source` makes what transactions run on: sessions, or connections."""

    def __init__(self, source: Source, core: Core, alone: Alone) -> None:
        self._source = source
        self._core = core
        self._alone = alone
        self._closed = False

    def transaction(self, first: Any = None) -> SyncBlock[H]:
        return _Transaction(self) if first is None else SyncBegun(self, _Transaction(self), first)

    def savepoint(self, connection: H) -> _Savepoint:
        return _Savepoint(self, self._core, connection)

    def execute(self, connection: H | None, command: Any) -> Any:
        self.check_open()
        if connection is None:
            return self._alone.execute(None, command)
        return self._core.execute(sync_handle(connection), command)

    def check(self, connection: H) -> None:
        self.check_open()
        self._core.check(sync_handle(connection))

    def in_transaction(self, connection: H) -> bool:
        return sync_handle(connection).in_transaction()

    def enlist(self, connection: H, operation: str, make: Callable[[], W]) -> W:
        self.check_open()
        return self._core.enlist(sync_handle(connection), operation, make)

    def close(self) -> None:
        """The engine is the user's, and stays open."""
        if not self._closed:
            self._closed = True
            self._core.close()
            self._alone.close()

    def begin(self) -> H:
        """A session or connection with a transaction of ours."""
        self.check_open()
        handle: Any
        if isinstance(self._source, Engine):
            with self._core.in_our_words(inside=False):
                handle = self._source.connect()
        else:
            handle = self._source()
        try:
            self._core.begin(handle)
        except BaseException:
            handle.close()
            raise
        return handle  # type: ignore[no-any-return]

    def end(self, handle: H, *, commit: bool) -> bool:
        """False: it could not be rolled back."""
        try:
            if commit:
                self._core.commit(handle)
                return True
            return self._core.roll_back(handle)
        finally:
            handle.close()

    def as_own(self, connection: Connection) -> AbstractContextManager[None, None]:
        """A block in which the caller's transaction is used as if it were ours."""
        return self._core.as_own(connection)

    def check_open(self) -> None:
        if self._closed:
            raise ClientClosed("SQLAlchemy provider")


class _Transaction(Generic[H]):
    """A transaction on a session or connection of ours."""

    answer: Any = None

    def __init__(self, provider: SqlAlchemyProvider[H]) -> None:
        self._provider = provider

    def __enter__(self) -> H:
        self._handle = self._provider.begin()
        return self._handle

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        intact = self._provider.end(self._handle, commit=error is None)
        if error is not None and not intact:
            error.add_note(f"queuert: this could not be rolled back, {ENDED_INSIDE}")


class _Savepoint:
    """A block inside the open transaction that is undone on an error."""

    def __init__(self, provider: SqlAlchemyProvider[Any], core: Core, handle: Handle) -> None:
        self._provider = provider
        self._core = core
        self._handle = handle

    def __enter__(self) -> None:
        self._provider.check_open()
        self._handle = sync_handle(self._handle)
        self._nested: Nested = self._core.set_savepoint(self._handle)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is None:
            self._core.release(self._handle, self._nested)
        elif not self._core.undo(self._handle, self._nested):
            error.add_note(f"queuert: this could not be rolled back, {ENDED_INSIDE}")


class EngineAlone:
    """PostgreSQL: on connections of the engine's, one statement each."""

    def __init__(self, engine: Engine, core: Core) -> None:
        self._engine = engine
        self._core = core

    def execute(self, connection: None, command: PgStatement) -> Any:  # noqa: ARG002
        for attempt in range(1, ATTEMPTS + 1):
            try:
                with self._core.in_our_words(inside=False), self._engine.connect() as own:
                    return self._core.execute_alone(own, command)
            except Exception as error:
                if sqlstate(error) not in DEADLOCK_OR_SERIALIZATION:
                    raise
                if attempt == ATTEMPTS:
                    raise translate(error, sqlstate(error)) from error
            time.sleep(random.uniform(0, 0.02 * 2**attempt))
        raise AssertionError("unreachable")

    def close(self) -> None:
        """The engine is the user's."""
