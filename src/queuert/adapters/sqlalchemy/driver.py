"""SQLAlchemy as a driver of `queuert.adapters.postgres.drivers.session`.

An async session or connection runs a sync one in a greenlet. So the work with SQLAlchemy is written
for its sync objects, in methods that take a `Handle` first. `_call` calls them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, TypeVar
from weakref import WeakKeyDictionary, WeakSet

from sqlalchemy import Connection, Engine, NestedTransaction, event
from sqlalchemy.engine import TwoPhaseTransaction
from sqlalchemy.exc import DBAPIError, InvalidRequestError, OperationalError, PendingRollbackError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, AsyncSession, async_sessionmaker
from sqlalchemy.orm import Session, SessionTransaction, sessionmaker
from sqlalchemy.pool import PoolProxiedConnection as Pooled
from sqlalchemy.pool import QueuePool

from queuert.adapters.fair_lock import FairLock
from queuert.adapters.postgres.drivers import errors
from queuert.adapters.postgres.drivers.driver import Driver, Status, Transaction, ended_badly
from queuert.adapters.postgres.drivers.sources import Gate
from queuert.adapters.sqlalchemy.dialect import Dialect
from queuert.adapters.sqlalchemy.handles import (
    Handle,
    Root,
    behind,
    check_database,
    is_same_database,
    problem_of,
    resolve,
    root_of,
)
from queuert.adapters.sqlalchemy.watching import Restore, watch
from queuert.adapters.waiting import IN_THREAD, ON_LOOP, done
from queuert.base.contexts import context
from queuert.errors import QueuertError, StorageUnavailable, TransactionMisused, TransactionRequired
from queuert.ports.provider import AfterCommitWork, TimeLimit

T = TypeVar("T")
W = TypeVar("W", bound=AfterCommitWork)
AnyEngine = Engine | AsyncEngine
AnySource = AnyEngine | sessionmaker[Any] | async_sessionmaker[Any]
Nested = SessionTransaction | NestedTransaction

GIVE_BACK_PATIENCE = 5.0

_LOST = "8s2b"
"""SQLAlchemy's code of the error that follows when a connection was lost in a transaction."""


class SqlAlchemyDriver(Driver[Any]):
    """`source` makes what transactions run on: sessions, or connections of an engine."""

    error_types = (DBAPIError, InvalidRequestError, PoolTimeout, OSError)

    def __init__(self, source: AnySource, engine: AnyEngine, dialect: Dialect, turns: FairLock | None = None) -> None:
        self._is_async = isinstance(engine, AsyncEngine)
        self.waiting = ON_LOOP if self._is_async else IN_THREAD
        self._source = source
        self._engine = engine.sync_engine if isinstance(engine, AsyncEngine) else engine
        self._autocommit = engine.execution_options(isolation_level="AUTOCOMMIT")
        self._dialect = dialect
        self._turns = turns
        """Where there is one writer: the order in which this process waits for the write lock."""
        self._own: WeakKeyDictionary[Handle, Root | None] = WeakKeyDictionary()
        """What we have taken, and the transaction that we have begun on it."""
        self._drivers: WeakKeyDictionary[Handle, tuple[Pooled, Any]] = WeakKeyDictionary()
        """The connections that they use, of the pool and of the database driver. They are known
        before anything hangs."""
        self._works: WeakKeyDictionary[Root, tuple[AfterCommitWork, Restore]] = WeakKeyDictionary()
        self._nested: WeakKeyDictionary[SessionTransaction, Restore] = WeakKeyDictionary()
        """Functions that drop what was registered inside of a block of a session."""
        self._begun: WeakSet[Root] = WeakSet()
        """The callers' transactions that the database is known to have begun."""
        self._busy: set[int] = set()
        size = size_of(self._engine.pool) if turns is None else None
        self._gate: Gate[Any] | None = None
        if size is not None:
            self._gate = Gate(self.waiting, size, timeout_of(self._engine.pool))
            self.shares = self._gate.shares

    # Without I/O

    def status(self, connection: Any) -> Status:
        try:
            handle = self._handle(connection)
        except TransactionMisused:
            return Status.CLOSED
        if isinstance(handle, Connection) and (handle.closed or handle.invalidated):
            return Status.CLOSED if handle.closed else Status.LOST
        root = root_of(handle)
        if root is None or root is not self._own.get(handle, root):
            return Status.IDLE
        return Status.OPEN if root.is_active else Status.FAILED

    def check(self, connection: Any) -> None:
        problem = problem_of(self._handle(connection))
        if problem is not None:
            raise TransactionMisused(problem)

    def require_transaction(self, connection: Any) -> None:
        handle = self._handle(connection)
        if handle not in self._own:
            self.check(connection)
        elif self._own[handle] is not root_of(handle):
            raise TransactionMisused(errors.ENDED_INSIDE)

    def enlist(self, connection: Any, operation: str, make: Callable[[], W]) -> W:
        handle = self._handle(connection)
        problem = problem_of(handle)
        if problem is not None:
            raise TransactionRequired(operation, reason=problem)
        root = root_of(handle)
        assert root is not None
        known: Any = self._works.get(root)
        if known is None:
            work = make()
            # The session may have no connection yet. The work is attached at its first statement.
            known = self._works[root] = (work, work.checkpoint())
        if operation == "transaction_of":  # there may be no statement
            self._attach(handle, root)
        return known[0]  # type: ignore[no-any-return]

    def _attach(self, handle: Handle, root: Root) -> None:
        """Let the work of a transaction wait for its end, now or when it gets a connection."""
        if isinstance(handle, Connection):
            watch(handle).add(*self._works[root])
            return
        for known in set(getattr(root, "_connections", {}).values()):  # there is no public name for it
            self._attach_begun(handle, root, known[0])
        # A session sets a savepoint at the first statement in its block, and there may be none.
        nested = handle.get_nested_transaction()
        while nested is not None and nested.nested:
            if nested not in self._nested:
                self._nested[nested] = self._works[root][0].checkpoint()
            nested = nested.parent
        if not event.contains(handle, "after_begin", self._attach_begun):
            event.listen(handle, "after_begin", self._attach_begun)
            event.listen(handle, "after_soft_rollback", self._undone)

    def _undone(self, _session: Session, nested: Any) -> None:
        restore = self._nested.pop(nested, None)
        if restore is not None:
            restore()

    def _attach_begun(self, _session: Session, root: Any, connection: Connection) -> None:
        waiting = self._works.get(root)
        # A session may use other databases, too.
        if waiting is not None and is_same_database(connection.engine, self._engine):
            watch(connection).add(*waiting)

    def is_lost(self, error: BaseException) -> bool:
        return isinstance(self.translated(error, inside=True), StorageUnavailable)

    def translated(self, error: BaseException, *, inside: bool) -> BaseException:
        if isinstance(error, DBAPIError):
            found = self._dialect.translated(error, inside=inside)
            return found if isinstance(found, QueuertError) else error
        if isinstance(error, PoolTimeout):
            return StorageUnavailable(f"no connection of the engine's pool became free: {error}")
        if isinstance(error, OSError):
            return StorageUnavailable(f"the database cannot be reached: {error}")
        if isinstance(error, PendingRollbackError):
            return ended_badly(Status.LOST if error.code == _LOST else Status.FAILED)
        if isinstance(error, InvalidRequestError):
            return TransactionMisused(f"SQLAlchemy cannot use this session or connection: {error}")
        return error

    # Connections

    async def take(self, command: Any, limit: TimeLimit | None = None) -> Any:
        if self._gate is not None:
            return await self._gate.take(limit, lambda: self._take(command, limit))
        return await self._take(command, limit)

    async def _take(self, command: Any, limit: TimeLimit | None) -> Any:
        if self._turns is not None:
            await self._turns.acquire_async()
        try:
            with self._translating(inside=False):
                if command is not None:
                    handle: Any = await self._connect(limit)
                    self._own[behind(handle)] = None
                    self._know(behind(handle), _pooled(behind(handle)))
                elif isinstance(self._source, Engine | AsyncEngine):
                    handle = await done(self._source.connect())
                else:
                    handle = self._source()
                return handle
        except BaseException:
            self._end_turn()
            raise

    def _know(self, handle: Handle, pooled: Pooled) -> None:
        self._drivers[handle] = pooled, pooled.driver_connection

    async def _connect(self, limit: TimeLimit | None) -> Any:
        connecting = done(self._autocommit.connect())
        if limit is None:
            return await connecting
        try:
            return await self.waiting.connecting(connecting, limit.seconds)
        except TimeoutError as error:
            raise errors.unavailable(f"the engine gave no connection within {limit.seconds:g} s") from error

    async def give_back(self, connection: Any) -> None:
        try:
            with suppress(TransactionMisused):  # the user has closed it
                self._own.pop(behind(connection), None)
            # It may roll back, and a silent server does not answer that.
            alarm = self.waiting.alarm(GIVE_BACK_PATIENCE, lambda: self.abandon(connection))
            try:
                await self.waiting.finish(done(connection.close()))
            finally:
                alarm.cancel()
                with suppress(TransactionMisused):
                    self._drivers.pop(behind(connection), None)
        finally:
            self._end_turn()
            if self._gate is not None:
                self._gate.leave(connection)

    def abandon(self, connection: Any) -> bool:
        try:
            known = self._drivers.get(behind(connection))
        except TransactionMisused:  # the user has closed it
            return True
        if known is None:  # it has not begun, or has gone back
            return True
        pooled, driver_connection = known
        if not self._dialect.abandon(driver_connection):
            return False
        if pooled.is_valid:
            # So that the pool does not hand it out again. Softly: another thread may be using it.
            pooled.invalidate(soft=True)
        return True

    async def reserve(self, statement_timeout: float) -> None:  # noqa: ARG002
        """The settings of the engine's connections are the user's."""
        if self._gate is not None:
            await self._gate.reserve()

    async def unreserve(self) -> None:
        if self._gate is not None:
            self._gate.unreserve()

    def _end_turn(self) -> None:
        if self._turns is not None:
            self._turns.release()

    async def close(self) -> None:
        """The engine is the user's, and stays open."""
        self._dialect.close()

    # Transactions of our own

    async def begin(self, tx: Transaction[Any]) -> None:
        await self.waiting.finish(self._call(tx.connection, self._begin, tx), lambda: self.abandon(tx.connection))
        if tx.first is not None:
            tx.answer = await self.run(tx.connection, tx.first)

    def _begin(self, handle: Handle, tx: Transaction[Any]) -> None:
        with self._translating(inside=False):
            if isinstance(handle, Session):
                handle.begin()
                connection = handle.connection(execution_options=dict(self._dialect.options))
            else:
                connection = handle.execution_options(**self._dialect.options)
                handle.begin()
            tx.begun = self._own[handle] = root_of(handle)
            self._know(handle, connection.connection)
            self._dialect.begin(connection.connection)
            if tx.first is not None:
                tx.begun = handle.begin_nested()

    async def commit(self, tx: Transaction[Any], last: str = "") -> bool:  # noqa: ARG002
        return await self._call(tx.connection, self._commit, tx)

    def _commit(self, handle: Handle, tx: Transaction[Any]) -> bool:
        if tx.first is not None:
            if not self._release(handle, tx.begun):
                return False
        else:
            with self._translating(inside=False):
                self._dialect.check_before_commit(_pooled(handle))
        handle.commit()
        return True

    async def roll_back(self, tx: Transaction[Any]) -> None:
        await self._call(tx.connection, _roll_back)

    @context
    def as_own(self, connection: Connection) -> Iterator[None]:
        """A block in which the caller's transaction is used as if it were ours."""
        self.check(connection)
        with self._translating(inside=True):
            self._dialect.begin_joined(connection.connection)
        self._own[connection] = root_of(connection)
        try:
            yield
        finally:
            self._own.pop(connection, None)

    # Savepoints

    async def save(self, connection: Any) -> Nested:
        return await self._call(connection, self._save)

    def _save(self, handle: Handle) -> Nested:
        with self._translating(inside=True):
            if handle not in self._own:
                self._dialect.begin_joined(_pooled(handle))
                root = root_of(handle)
                assert root is not None
                self._begun.add(root)
            return handle.begin_nested()

    async def release(self, connection: Any, savepoint: Nested) -> bool:
        return await self._call(connection, self._release, savepoint)

    def _release(self, handle: Handle, nested: Nested) -> bool:
        if not nested.is_active:
            return False
        with self._translating(inside=True):
            try:
                self._dialect.check_before_commit(_pooled(handle))
            except TransactionMisused:
                return False
            nested.commit()
        return True

    async def undo(self, connection: Any, savepoint: Nested) -> bool:
        if not savepoint.is_active and not isinstance(savepoint, SessionTransaction):
            return False
        try:
            await self._call(connection, _undo, savepoint)
        except (QueuertError, *self.error_types):
            return False
        return True

    # Statements

    async def run(self, connection: Any, command: Any) -> Any:
        return await self._call(connection, self._run, command)

    def _run(self, handle: Handle, command: Any) -> Any:
        if isinstance(handle, Session) and handle.autoflush:
            handle.flush()  # as before any other query; an error in it is the user's
        with self._translating(inside=True):
            connection = handle.connection() if isinstance(handle, Session) else handle
            with self._only_user_of(connection):
                return self._send(handle, connection, command)

    def _send(self, handle: Handle, connection: Connection, command: Any) -> Any:
        is_own = handle in self._own
        stranger = not is_own and connection.engine.pool is not self._engine.pool
        if stranger:
            check_database(connection.engine.url, self._engine.url)
        if isinstance(connection.get_transaction(), TwoPhaseTransaction):
            raise TransactionMisused("this transaction commits in two phases, which jobs do not support")
        if not is_own:
            self._check_begun(handle, connection)
        root = root_of(handle)
        if root is not None and (waiting := self._works.get(root)) is not None:
            watch(connection).add(*waiting)
        try:
            if is_own:
                return self._dialect.run(connection.connection, command)
            return self._dialect.run_joined(connection.connection, command, stranger=stranger)
        except QueuertError:
            if not connection.invalidated and self._dialect.is_lost(connection.connection):
                connection.invalidate()  # so that the pool does not hand it out again
            raise
        except Exception as error:
            if errors.sqlstate(error) not in errors.DEADLOCK_OR_SERIALIZATION:
                raise
            # The owner of the transaction expects SQLAlchemy's own error.
            raise OperationalError(getattr(command, "text", None), None, error) from error

    def _check_begun(self, handle: Handle, connection: Connection) -> None:
        """A savepoint must be inside of a transaction. Otherwise its release is a commit."""
        root = root_of(handle)
        assert root is not None
        if not connection.in_nested_transaction():
            self._begun.add(root)
        elif root not in self._begun:
            self._dialect.check_nested(connection.connection)

    @context
    def _only_user_of(self, connection: Connection) -> Iterator[None]:
        """A session serves one caller at a time. Two at once would mix up their statements."""
        key = id(connection)
        if key in self._busy:
            raise TransactionMisused(
                "another thread or task is using this session right now: give each a session of its own"
            )
        self._busy.add(key)
        try:
            yield
        finally:
            self._busy.discard(key)

    @context
    def _translating(self, *, inside: bool) -> Iterator[None]:
        try:
            yield
        except self.error_types as error:
            raise errors.reraise(self.translated(error, inside=inside)) from error

    def _handle(self, connection: Any) -> Handle:
        return behind(resolve(connection, is_async=self._is_async))

    async def _call(self, connection: Any, function: Callable[..., T], *arguments: Any) -> T:
        """Call a function with the sync handle, where SQLAlchemy may do I/O."""
        handle = resolve(connection, is_async=self._is_async)
        if isinstance(handle, AsyncSession | AsyncConnection):
            return await handle.run_sync(function, *arguments)
        return function(handle, *arguments)


def size_of(pool: Any) -> int | None:
    """How many connections the engine's pool opens at most. None: any number, or not known."""
    if not isinstance(pool, QueuePool):
        return None
    overflow: int = getattr(pool, "_max_overflow", -1)  # there is no public name for it
    return None if overflow < 0 or not pool.size() else pool.size() + overflow


def timeout_of(pool: Any) -> float | None:
    """How long its users wait for a connection."""
    return pool.timeout() if isinstance(pool, QueuePool) else None


def _roll_back(handle: Handle) -> None:
    handle.rollback()


def _undo(_handle: Handle, nested: Nested) -> None:
    nested.rollback()


def _pooled(handle: Handle) -> Pooled:
    return (handle.connection() if isinstance(handle, Session) else handle).connection
