"""What is done with SQLAlchemy's sync objects. For async ones it is called by their `run_sync`, in a greenlet."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeVar
from weakref import WeakKeyDictionary, WeakSet

from sqlalchemy import URL, Connection, Engine, NestedTransaction
from sqlalchemy.engine import TwoPhaseTransaction
from sqlalchemy.exc import DBAPIError, InvalidRequestError, OperationalError, PendingRollbackError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.orm import Session, SessionTransaction
from sqlalchemy.pool import PoolProxiedConnection as Pooled

from queuert.adapters.postgres.command import PgStatement
from queuert.adapters.postgres.drivers.errors import DEADLOCK_OR_SERIALIZATION, sqlstate
from queuert.adapters.sqlalchemy.driver import Driver
from queuert.adapters.sqlalchemy.handles import Handle, Root, root_of
from queuert.adapters.sqlalchemy.watching import Restore, watch
from queuert.contexts import context
from queuert.errors import QueuertError, StorageUnavailable, TransactionMisused, TransactionRequired
from queuert.ports.provider import AfterCommitWork

W = TypeVar("W", bound=AfterCommitWork)
Nested = SessionTransaction | NestedTransaction

ATTEMPTS = 5
"""How often a statement that stands alone is tried, when deadlocks or serialization failures undo it."""

_LOST = "8s2b"
"""SQLAlchemy's code of the error that follows when a connection was lost in a transaction."""

NOT_BEGUN = (
    "no transaction is open on this {}: it was closed, or has committed, or not begun yet. Nobody would commit what is "
    "started in it; do it inside of `with {}.begin():`, or write rows of yours first"
)
ENDED_INSIDE = (
    "the transaction was ended by code inside its block: commit(), rollback() and close() all do that. What was "
    "written before may be committed already, what came later is not; leave the transaction alone, and use "
    "begin_nested() for what may fail"
)
SWALLOWED = (
    "a flush failed inside the block and its error was swallowed, so SQLAlchemy takes nothing more in this "
    "transaction; it was rolled back. Put what may fail into a begin_nested() block, and let its error leave that"
)


class Core:
    def __init__(self, engine: Engine, driver: Driver) -> None:
        self._engine = engine
        self._driver = driver
        self._own: WeakKeyDictionary[Handle, Root] = WeakKeyDictionary()
        """The transactions that we have begun."""
        self._works: WeakKeyDictionary[Root, tuple[AfterCommitWork, Restore]] = WeakKeyDictionary()
        self._begun: WeakSet[Root] = WeakSet()
        """The callers' transactions of which we know that the driver has begun them."""
        self._busy: set[int] = set()
        self._reads_committed: bool | None = None

    # Joining: no I/O

    def check(self, handle: Handle) -> None:
        """Refuse a session or connection that cannot take part."""
        problem = _unusable(handle)
        if problem is not None:
            raise TransactionMisused(problem)

    def enlist(self, handle: Handle, operation: str, make: Callable[[], W]) -> W:
        problem = _unusable(handle)
        if problem is not None:
            raise TransactionRequired(operation, reason=problem)
        root = root_of(handle)
        assert root is not None
        known: Any = self._works.get(root)
        if known is None:
            work = make()
            # The session may have no connection yet: the first statement brings the two together.
            known = self._works[root] = (work, work.checkpoint())
        return known[0]  # type: ignore[no-any-return]

    # Statements

    def execute(self, handle: Handle, command: Any) -> Any:
        own = self._own.get(handle)
        if own is None:
            self.check(handle)
        elif own is not root_of(handle):
            raise TransactionMisused(ENDED_INSIDE)
        if isinstance(handle, Session) and handle.autoflush:
            handle.flush()  # as before any other query; an error in it is the user's
        with self.in_our_words(inside=True):
            connection = handle.connection() if isinstance(handle, Session) else handle
            with self._alone_on(connection):
                return self._run(handle, connection, command, is_own=own is not None)

    def _run(self, handle: Handle, connection: Connection, command: Any, *, is_own: bool) -> Any:
        stranger = not is_own and connection.engine.pool is not self._engine.pool
        if stranger:
            self._check_database(connection)
        if isinstance(connection.get_transaction(), TwoPhaseTransaction):
            raise TransactionMisused("this transaction commits in two phases, and jobs cannot take part in that")
        if not is_own:
            self._check_begun(root_of(handle), connection)
        waiting = self._works.get(root_of(handle))  # type: ignore[arg-type]
        if waiting is not None:
            watch(connection).add(*waiting)
        try:
            if is_own:
                return self._driver.run(connection.connection, command)
            return self._driver.run_joined(connection.connection, command, stranger=stranger)
        except QueuertError:
            self._drop_if_lost(connection)
            raise
        except Exception as error:
            if sqlstate(error) not in DEADLOCK_OR_SERIALIZATION:
                raise
            # For the transaction's owner, who knows such errors as SQLAlchemy's.
            raise OperationalError(getattr(command, "text", None), None, error) from error

    def _check_begun(self, root: Root | None, connection: Connection) -> None:
        """A savepoint must be inside of a transaction, or its release is a commit."""
        if connection.in_nested_transaction():
            if root not in self._begun:
                self._driver.check_nested(connection.connection)
        elif root is not None:
            self._begun.add(root)

    def _check_database(self, connection: Connection) -> None:
        """The caller's engine may be another one, to the same database."""
        ours, theirs = self._engine.url, connection.engine.url
        if ours.get_backend_name() != theirs.get_backend_name():
            raise _other_database(theirs.get_backend_name(), ours.get_backend_name())
        if ours.get_backend_name() == "postgresql" and _place(ours) != _place(theirs):
            raise _other_database(repr(theirs.database), repr(ours.database))

    def execute_alone(self, connection: Connection, command: PgStatement) -> Any:
        """On a connection of ours, committed at once."""
        with self.in_our_words(inside=False):
            connection.execution_options(isolation_level="AUTOCOMMIT")
            try:
                if command.alone or self._is_read_committed(connection):
                    return self._driver.run(connection.connection, command)
                connection.execution_options(isolation_level="READ COMMITTED")
                with connection.begin():
                    return self._driver.run(connection.connection, command)
            except QueuertError:
                self._drop_if_lost(connection)
                raise

    def _drop_if_lost(self, connection: Connection) -> None:
        """So that the pool does not hand it out again."""
        if not connection.invalidated and self._driver.is_lost(connection.connection):
            connection.invalidate()

    def _is_read_committed(self, connection: Connection) -> bool:
        if self._reads_committed is None:
            asked = PgStatement("SHOW default_transaction_isolation", writes=False)
            ((level,),) = self._driver.run(connection.connection, asked)
            self._reads_committed = bool(level == "read committed")
        return self._reads_committed

    # Transactions of our own

    def begin(self, handle: Handle) -> None:
        with self.in_our_words(inside=False):
            if isinstance(handle, Session):
                handle.begin()
                connection = handle.connection(execution_options=dict(self._driver.options))
            else:
                connection = handle.execution_options(**self._driver.options)
                handle.begin()
            self._driver.begin(connection.connection)
        root = root_of(handle)
        assert root is not None
        self._own[handle] = root

    @context
    def as_own(self, connection: Connection) -> Iterator[None]:
        """In the block, the caller's transaction is used as if it were ours: he has put it into our hands."""
        self.check(connection)
        root = root_of(connection)
        assert root is not None
        with self.in_our_words(inside=True):
            self._driver.begin_joined(connection.connection)
        self._own[connection] = root
        try:
            yield
        finally:
            self._own.pop(connection, None)

    def commit(self, handle: Handle) -> None:
        """Commit, if the transaction is still the one that was begun; otherwise undo what is open, and say so."""
        root = root_of(handle)
        try:
            if root is None or root is not self._own.get(handle):
                raise TransactionMisused(ENDED_INSIDE)
            if not root.is_active:
                raise TransactionMisused(SWALLOWED)
            with self.in_our_words(inside=False):
                self._driver.check_before_commit(_pooled(handle))
        except QueuertError:
            self.roll_back(handle)
            raise
        try:
            handle.commit()
        except DBAPIError as error:
            found = self._driver.translated(error, inside=True)
            if isinstance(found, StorageUnavailable):
                raise found from error
            raise  # a constraint of the user's, for one
        finally:
            self._own.pop(handle, None)

    def roll_back(self, handle: Handle) -> bool:
        """False: the transaction was gone already. An error here would only hide the one that led to it."""
        root = self._own.pop(handle, None)
        intact = root is not None and root is root_of(handle)
        try:
            handle.rollback()
        except (DBAPIError, InvalidRequestError, OSError):
            return False
        return intact

    # Savepoints

    def set_savepoint(self, handle: Handle) -> Nested:
        is_own = handle in self._own
        if not is_own:
            self.check(handle)
        with self.in_our_words(inside=True):
            if not is_own:
                self._driver.begin_joined(_pooled(handle))
                root = root_of(handle)
                if root is not None:
                    self._begun.add(root)
            return handle.begin_nested()

    def release(self, handle: Handle, nested: Nested) -> None:
        if not nested.is_active:
            raise TransactionMisused(SWALLOWED if self.undo(handle, nested) else ENDED_INSIDE)
        with self.in_our_words(inside=True):
            try:
                self._driver.check_before_commit(_pooled(handle))
            except TransactionMisused:
                nested.rollback()
                raise
            nested.commit()

    def undo(self, _handle: Handle, nested: Nested) -> bool:
        """Go back to the savepoint. False: it is gone, together with its transaction."""
        if not nested.is_active and not isinstance(nested, SessionTransaction):
            return False
        try:
            nested.rollback()
        except (DBAPIError, InvalidRequestError, OSError):
            return False
        return True

    def close(self) -> None:
        self._driver.close()

    @context
    def in_our_words(self, *, inside: bool) -> Iterator[None]:
        try:
            yield
        except QueuertError:
            raise
        except DBAPIError as error:
            found = self._driver.translated(error, inside=inside)
            if isinstance(found, QueuertError):
                raise found from error
            raise
        except PoolTimeout as error:
            raise StorageUnavailable(f"no connection of the engine's pool became free: {error}") from error
        except PendingRollbackError as error:
            if error.code != _LOST:
                raise TransactionMisused(SWALLOWED) from error
            raise StorageUnavailable("the connection was lost inside the transaction, which is rolled back") from error
        except OSError as error:
            raise StorageUnavailable(f"the database cannot be reached: {error}") from error
        except InvalidRequestError as error:
            raise TransactionMisused(f"SQLAlchemy cannot use this session or connection: {error}") from error

    @context
    def _alone_on(self, connection: Connection) -> Iterator[None]:
        """A session serves one at a time; two at once would mix up what they say to the database."""
        key = id(connection)
        if key in self._busy:
            raise TransactionMisused(
                "another thread or task is using this session right now: a session serves one at a time, so give each "
                "its own"
            )
        self._busy.add(key)
        try:
            yield
        finally:
            self._busy.discard(key)


def _unusable(handle: Handle) -> str | None:
    """What is wrong with a session or connection that somebody wants to join; without I/O."""
    if isinstance(handle, Connection):
        if handle.closed:
            return "this connection is closed"
        if handle.invalidated:
            return "this connection was lost"
        return None if handle.in_transaction() else NOT_BEGUN.format("connection", "engine")
    if not handle.in_transaction():
        return NOT_BEGUN.format("session", "session")
    if not handle.is_active:
        return "a flush has failed in this session's transaction, so it takes nothing more: roll it back first"
    return None


def _pooled(handle: Handle) -> Pooled:
    return (handle.connection() if isinstance(handle, Session) else handle).connection


def _place(url: URL) -> tuple[Any, ...]:
    return url.host, url.port or 5432, url.database, url.query.get("host")


def _other_database(theirs: str, ours: str) -> TransactionMisused:
    return TransactionMisused(
        f"this session or connection is to the database {theirs}, but the jobs live in {ours}: "
        "a transaction is about one database"
    )
