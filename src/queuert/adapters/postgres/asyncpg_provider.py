"""asyncpg.

Cancellation. Waiting for a connection ends at once. A statement that is under way is cancelled on the server; asyncpg
sees to it that nothing else is said until the server has answered. BEGIN, COMMIT and ROLLBACK always run to their end,
but for a BEGIN with a statement that may have to wait; and whatever happens the connection goes back to where it came
from, outside of any transaction.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any

import asyncpg
from asyncpg.transaction import Transaction, TransactionState

from queuert.adapters.finishing import finish
from queuert.adapters.postgres.asyncpg_sources import Connection, DriverError, Source, async_source, own
from queuert.adapters.postgres.command import PgStatement
from queuert.adapters.postgres.translating import (
    DEADLOCK_OR_SERIALIZATION,
    ENDED_INSIDE,
    NOT_BEGUN,
    SWALLOWED,
    is_unavailable,
    sqlstate,
    translate,
    unavailable,
)
from queuert.errors import ClientClosed, QueuertError, StorageUnavailable, TransactionMisused
from queuert.ports.provider import AsyncProvider, Guarded

Rows = list[tuple[Any, ...]]

ATTEMPTS = 5
"""How often a statement that stands alone is tried, when deadlocks or serialization failures undo it."""

BEGIN = "BEGIN ISOLATION LEVEL READ COMMITTED"
GUARD = "queuert_guard"

_names = (f"queuert_{number}" for number in itertools.count(1))


class AsyncpgProvider:
    """asyncpg's connections: from a pool of our own (given a URL), from yours, or just one.

    A pool or connection that you give is used as it is and never closed. One connection serves one transaction at a
    time. `prepare=False`: no prepared statements and no session settings, for PgBouncer in transaction mode.
    `max_size` and `timeout` (seconds to wait for a connection) are for a pool of our own.
    """

    def __init__(
        self,
        source: str | asyncpg.Pool[Any] | asyncpg.Connection[Any],
        *,
        prepare: bool = True,
        max_size: int = 10,
        timeout: float = 30.0,
    ) -> None:
        self._source: Source = async_source(source, prepare=prepare, max_size=max_size, timeout=timeout)
        self._closed = False
        self._reads_committed: bool | None = True if self._source.configured else None
        """Whether a statement that stands alone is read committed by default. None: not known yet."""

    def transaction(self) -> _Transaction:
        return _Transaction(self)

    def guarded_transaction(self, first: PgStatement | None = None) -> _Transaction:
        return _Transaction(self, GUARD, first)

    def savepoint(self, connection: Connection) -> _Savepoint:
        return _Savepoint(self, connection)

    async def execute(self, connection: Connection | None, command: PgStatement) -> Rows:
        self.check_open()
        if connection is None:
            return await self._execute_alone(command)
        require_transaction(connection)
        return await run(connection, command)

    def check(self, connection: Connection) -> None:
        self.check_open()
        require_asyncpg(connection)
        require_transaction(connection)
        database = database_of(connection)
        if self._source.database is not None and database != self._source.database:
            raise TransactionMisused(
                f"this connection is to the database {database!r}, but the jobs live in {self._source.database!r}: "
                "a transaction is about one database"
            )

    def in_transaction(self, connection: Connection) -> bool:
        return is_open(connection)

    def check_inside(self, connection: Connection) -> None:
        """Guarded transactions carry a savepoint from BEGIN to COMMIT: see `Guarded`."""
        if is_closed(connection):
            raise unavailable("the connection was lost inside the transaction, which is rolled back")
        if not is_open(connection):
            raise TransactionMisused(ENDED_INSIDE)

    async def close(self) -> None:
        """Waits a little for connections that are in use; what is then still open is rolled back."""
        if not self._closed:
            self._closed = True
            await finish(self._source.close())

    async def take(self, *, for_user: bool) -> Connection:
        """A connection outside of any transaction. `give_back` it."""
        self.check_open()
        try:
            return await self._source.take(for_user=for_user)
        except asyncpg.InterfaceError as error:  # the user's pool is not open
            raise unavailable(error) from error
        except DriverError as error:
            raise reraise(error, inside=False) from error

    async def give_back(self, connection: Connection) -> None:
        """A cancellation does not stop it: asyncpg's pool sees to that itself."""
        await self._source.give_back(connection)

    async def _execute_alone(self, command: PgStatement) -> Rows:
        for attempt in range(1, ATTEMPTS + 1):
            connection = await self.take(for_user=command.indifferent)
            try:
                return await self._run_alone(connection, command)
            except asyncpg.PostgresError as error:
                if error.sqlstate not in DEADLOCK_OR_SERIALIZATION or attempt == ATTEMPTS:
                    raise reraise(error, inside=False) from error
            except TransactionMisused as error:
                if is_closed(connection):  # it died on the way to us
                    raise unavailable(error.__cause__ or error) from error
                raise
            finally:
                await self.give_back(connection)
            await asyncio.sleep(random.uniform(0, 0.02 * 2**attempt))
        raise AssertionError("unreachable")

    async def _run_alone(self, connection: Connection, command: PgStatement) -> Rows:
        if command.alone or await self._is_read_committed(connection):
            return await run(connection, command)
        begun, _ = await begin(connection)
        try:
            rows = await run(connection, command)
        except BaseException:
            await finish(roll_back(connection, begun))
            raise
        await finish(commit(connection, begun))
        return rows

    async def _is_read_committed(self, connection: Connection) -> bool:
        if self._reads_committed is None:
            ((level,),) = await run(connection, PgStatement("SHOW default_transaction_isolation", writes=False))
            self._reads_committed = bool(level == "read committed")
        return self._reads_committed

    def check_open(self) -> None:
        if self._closed:
            raise ClientClosed("PostgreSQL provider")


def is_open(connection: Connection) -> bool:
    """Whether a transaction is open, also a failed one; not, if the connection has been closed or released."""
    try:
        return connection.is_in_transaction()
    except asyncpg.InterfaceError:
        return False


def is_closed(connection: Connection) -> bool:
    try:
        return connection.is_closed()
    except asyncpg.InterfaceError:  # released
        return True


def require_transaction(connection: Connection) -> None:
    """A statement must not be committed by itself where a transaction was meant."""
    if is_closed(connection):
        raise TransactionMisused("this connection is closed, or was lost, or has gone back to its pool")
    if not is_open(connection):
        raise TransactionMisused(NOT_BEGUN)


def require_asyncpg(connection: object) -> None:
    if not isinstance(connection, asyncpg.Connection | asyncpg.pool.PoolConnectionProxy):
        raise TransactionMisused(
            f"expected an asyncpg.Connection, got {type(connection).__module__}.{type(connection).__qualname__}"
        )


def database_of(connection: Connection) -> str | None:
    """asyncpg keeps to itself what it has connected to; None if it no longer says it this way."""
    return getattr(getattr(connection, "_params", None), "database", None)


async def run(connection: Connection, command: PgStatement) -> Rows:
    try:
        rows = await connection.fetch(command.text, *command.values, record_class=asyncpg.Record)
    except DriverError as error:
        raise reraise(error, inside=True) from error
    return [tuple(row) for row in rows]


async def say(connection: Connection, text: str) -> str:
    try:
        return await connection.execute(text)
    except DriverError as error:
        raise reraise(error, inside=True) from error


async def begin(connection: Connection, *more: str) -> tuple[Transaction, str]:
    """BEGIN, and what is to be said in the same message; answers with the tag of the last one.

    asyncpg has to believe that its own object has done this: otherwise it refuses the user's transaction blocks.
    """
    if is_closed(connection):  # it died on the way to us
        raise unavailable("the server has closed the connection")
    begun = connection.transaction(isolation="read_committed")
    words = "; ".join((BEGIN, *more))
    ours = own(connection)
    try:
        answer = await connection.execute(words if ours is None else ours.begin(words))
    except BaseException as error:
        if not isinstance(error, asyncpg.InterfaceError):  # otherwise nothing was said
            await finish(give_up(connection))
        if isinstance(error, DriverError):
            raise reraise(error, inside=True) from error
        raise
    its: Any = begun
    its._state = TransactionState.STARTED
    its._connection._top_xact = begun
    return begun, answer


async def give_up(connection: Connection) -> None:
    """BEGIN has failed, or was cancelled. Whether a transaction is open may not be known yet: the server's answer is
    waited for before anything else is said."""
    if (ours := own(connection)) is not None:
        ours.failed = True  # the reset before BEGIN is undone with it
    with suppress(*DriverError):
        await connection.execute("ROLLBACK")


async def commit(connection: Connection, begun: Transaction, guard: str | None = None) -> None:
    """COMMIT of a transaction that has failed rolls back without a word; only the answer tells. asyncpg drops it."""
    if not is_open(connection):
        lost = is_closed(connection)
        forget(begun)
        if lost:
            raise StorageUnavailable(
                "the connection to PostgreSQL was lost inside the transaction, which is rolled back"
            )
        raise TransactionMisused(ENDED_INSIDE)
    try:
        answer = await connection.execute("COMMIT" if guard is None else f"RELEASE {guard}; COMMIT")
    except DriverError as error:
        if is_lost(error):
            raise unavailable(error) from error
        if is_open(connection):  # it has not come to COMMIT: the guard is gone, or the connection is in use
            await roll_back(connection, begun)
            if sqlstate(error) == "25P02":
                raise TransactionMisused(SWALLOWED) from error
            raise reraise(error, inside=False) from error
        raise  # a deferred constraint of the user's, for one
    finally:
        forget(begun)
    if answer != "COMMIT":
        raise TransactionMisused(SWALLOWED)


async def roll_back(connection: Connection, begun: Transaction) -> bool:
    """False: the transaction was gone already. An error here would only hide the one that led to it."""
    intact = is_open(connection)
    try:
        if intact:
            await connection.execute("ROLLBACK")
    except DriverError:
        return False
    finally:
        forget(begun)
    return intact


def forget(begun: Transaction) -> None:
    """Let asyncpg know that its transaction has ended: it must be us who say COMMIT, for the sake of the answer."""
    transaction: Any = begun
    connection: Any = transaction._connection
    if connection is not None and getattr(connection, "_top_xact", None) is begun:
        connection._top_xact = None


class _Transaction:
    """A transaction on a connection of ours."""

    def __init__(self, provider: AsyncpgProvider, guard: str | None = None, first: PgStatement | None = None) -> None:
        self._provider = provider
        self._guard = guard
        self._first = first
        self._begun: Transaction | None = None
        self.answer: Rows = []
        """The rows of the statement that went along, without their columns: as many as the server says there were."""

    async def __aenter__(self) -> Connection:
        self._connection = await self._provider.take(for_user=True)
        try:
            await (finish(self._begin()) if self._first is None else self._begin())
            assert self._begun is not None
        except BaseException:
            if self._begun is not None:  # and cancelled since
                await finish(roll_back(self._connection, self._begun))
            await self._provider.give_back(self._connection)
            raise
        return self._connection

    async def _begin(self) -> None:
        more = [] if self._guard is None else [f"SAVEPOINT {self._guard}"]
        if self._first is not None:
            # Behind the savepoint: rows that are locked before it and written after it get two owners, at a price.
            more.append(self._first.spelled_out())
        self._begun, tag = await begin(self._connection, *more)
        if self._first is not None:
            self.answer = [()] * int(tag.split()[-1])

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        assert self._begun is not None
        try:
            if error is None:
                await finish(commit(self._connection, self._begun, self._guard))
            else:
                intact = await finish(roll_back(self._connection, self._begun))
                note_if_gone(self._connection, error, intact=intact)
                if (ours := own(self._connection)) is not None:
                    ours.failed = True
        finally:
            await self._provider.give_back(self._connection)


class _Savepoint:
    """A block inside the open transaction that is undone on an error."""

    def __init__(self, provider: AsyncpgProvider, connection: Connection) -> None:
        self._provider = provider
        self._connection = connection
        self._name = next(_names)

    async def __aenter__(self) -> None:
        self._provider.check_open()
        require_transaction(self._connection)
        await finish(say(self._connection, f"SAVEPOINT {self._name}"))

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is None:
            await finish(self._release())
        else:
            note_if_gone(self._connection, error, intact=await finish(self._undo()))

    async def _release(self) -> None:
        if not is_open(self._connection):
            raise TransactionMisused(ENDED_INSIDE)
        try:
            await say(self._connection, f"RELEASE {self._name}")
        except TransactionMisused as misuse:
            if sqlstate(misuse) == "25P02" and await self._undo():
                raise TransactionMisused(SWALLOWED) from misuse.__cause__
            raise

    async def _undo(self) -> bool:
        """Go back to the savepoint. False: it is gone, together with its transaction."""
        if not is_open(self._connection):
            return False
        try:
            await say(self._connection, f"ROLLBACK TO {self._name}; RELEASE {self._name}")
        except (QueuertError, asyncpg.PostgresError):
            return False
        return True


def is_lost(error: BaseException) -> bool:
    """Whether the error is about the connection, not about what was said over it."""
    if isinstance(error, asyncpg.PostgresError):
        return is_unavailable(error.sqlstate)
    # An error inside asyncpg: the server's farewell came between two of its steps, and the connection's end not yet.
    return isinstance(error, OSError | TimeoutError | asyncpg.InternalClientError) or "clos" in str(error)


def reraise(error: BaseException, *, inside: bool) -> QueuertError:
    """The error to raise from a driver's error; raises that itself, if it is for the transaction's owner."""
    if inside and sqlstate(error) in DEADLOCK_OR_SERIALIZATION:
        raise error
    if is_lost(error):
        return unavailable(error)
    if type(error) is asyncpg.InterfaceError:  # in use by another task, or released
        return TransactionMisused(f"the connection cannot be used: {error}")
    return translate(error, sqlstate(error))


def note_if_gone(connection: Connection, error: BaseException, *, intact: bool) -> None:
    """The user's error goes on its way; that it could not be undone is added to it."""
    if not intact and not is_closed(connection):
        error.add_note(f"queuert: this could not be rolled back, {ENDED_INSIDE}")


if TYPE_CHECKING:
    _: type[AsyncProvider[Connection]] = AsyncpgProvider
    _guarded: type[Guarded[Connection]] = AsyncpgProvider
