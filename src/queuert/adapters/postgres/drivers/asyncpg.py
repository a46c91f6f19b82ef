"""asyncpg.

A transaction that begins with a command needs one message for BEGIN, guard and command, and one for
RELEASE and COMMIT, with a last command perhaps.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import asyncpg
from asyncpg.transaction import TransactionState

from queuert.adapters.finishing import CANCEL_PATIENCE, finish, finish_here
from queuert.adapters.postgres.command import PgStatement
from queuert.adapters.postgres.drivers import errors
from queuert.adapters.postgres.drivers.asyncpg_pools import (
    Connection,
    GivenAsyncpgPool,
    OwnPool,
    check_encoding,
    database_of,
    own,
)
from queuert.adapters.postgres.drivers.driver import GUARD, LAST, Declined, PooledDriver, Status, Transaction
from queuert.adapters.postgres.drivers.errors import reraise, unavailable
from queuert.adapters.postgres.drivers.one_connection import OneConnection
from queuert.adapters.postgres.drivers.session import AsyncSqlProvider
from queuert.adapters.postgres.drivers.sources import PoolOptions, Source
from queuert.adapters.waiting import ON_LOOP, ON_LOOP_PLAINLY
from queuert.errors import TransactionMisused
from queuert.ports.provider import TimeLimit

AsyncpgSource = str | asyncpg.Pool | asyncpg.Connection
Rows = list[tuple[Any, ...]]

DriverError = (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError, TimeoutError)

BEGIN = "BEGIN ISOLATION LEVEL READ COMMITTED"


class AsyncpgProvider(AsyncSqlProvider[Connection]):
    """asyncpg's connections: from a pool of our own (given a URL), from yours, or just one.

    A pool or connection that you give is used as it is, and never closed. One connection serves one
    transaction at a time. `prepare=False`: no prepared statements and no session settings, for
    PgBouncer in transaction mode. `max_size` and `timeout` (seconds to wait for a connection) are
    for a pool of our own.
    """

    def __init__(
        self, source: AsyncpgSource, *, prepare: bool = True, max_size: int = 10, timeout: float = 30.0
    ) -> None:
        super().__init__(AsyncpgDriver(source, PoolOptions(prepare, max_size, timeout)))


def status_of(connection: Connection) -> Status:
    """asyncpg does not show whether a statement has failed, nor which side closed a connection. One
    that has ended inside a transaction counts as lost: closing it there is rare.
    """
    # Each call of a proxy's method is two.
    itself: Any = getattr(connection, "_con", connection)
    if itself is None:  # it has gone back to its pool
        return Status.CLOSED
    if itself.is_closed():
        protocol = itself._protocol  # None: it was terminated
        return Status.LOST if protocol is None or protocol.is_in_transaction() else Status.CLOSED
    return Status.OPEN if itself.is_in_transaction() else Status.IDLE


def is_lost(error: BaseException) -> bool:
    if isinstance(error, asyncpg.PostgresError):
        return errors.is_unavailable(error.sqlstate)
    # An internal error means that asyncpg has read the server's last message, but has not noticed
    # yet that the connection has ended.
    return isinstance(error, OSError | TimeoutError | asyncpg.InternalClientError) or "clos" in str(error)


def translated(error: BaseException, *, inside: bool) -> BaseException:
    if isinstance(error, asyncpg.DataError):  # of asyncpg itself, which cannot send the value
        return errors.refused(error)
    lost = is_lost(error)
    if type(error) is asyncpg.InterfaceError and not lost:  # in use by another task, or released
        return TransactionMisused(f"the connection cannot be used: {error}")
    return errors.translated(error, inside=inside, lost=lost)


class AsyncpgDriver(PooledDriver[Connection]):
    waiting = ON_LOOP_PLAINLY
    error_types = DriverError
    _encoding_checked = False

    def __init__(self, source: object, options: PoolOptions) -> None:
        self._source: Source[Connection]
        if isinstance(source, str):
            self._source = OwnPool(source, options)
            self.reads_committed = True if options.prepare else None
        elif isinstance(source, asyncpg.Pool):
            self._source = GivenAsyncpgPool(source)  # pyright: ignore[reportUnknownArgumentType]
        elif isinstance(source, asyncpg.Connection):
            self._source = OneConnection(self, source)  # pyright: ignore[reportUnknownArgumentType]
        else:
            raise errors.wrong_source(source, "a URL, an asyncpg.Pool or an asyncpg.Connection")

    def status(self, connection: Connection) -> Status:
        return status_of(connection)

    def is_lost(self, error: BaseException) -> bool:
        return is_lost(error)

    def translated(self, error: BaseException, *, inside: bool) -> BaseException:
        return translated(error, inside=inside)

    def check(self, connection: Connection) -> None:
        kinds = (asyncpg.Connection, asyncpg.pool.PoolConnectionProxy)
        if not isinstance(connection, kinds):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise errors.wrong_connection(connection, "an asyncpg.Connection")
        self.require_transaction(connection)
        errors.check_database(database_of(connection), self._source.database)

    def abandon(self, connection: Connection) -> bool:
        with suppress(asyncpg.InterfaceError):  # it has gone back to its pool
            connection.terminate()
        return True

    async def take(self, command: PgStatement | None, limit: TimeLimit | None = None) -> Connection:
        try:
            connection = self._source.take_now(limit)
            if connection is None:
                connection = await self._source.take(limit)
            ours = None if command is None or command.indifferent else own(connection)
            if ours is not None and ours.was_handed_out:
                try:
                    async with asyncio.timeout(None if limit is None else limit.seconds):
                        await ours.clean()
                except BaseException as error:
                    if isinstance(error, TimeoutError):
                        self.abandon(connection)
                        self.distrust_idle()
                    await self.give_back(connection)
                    raise
        except asyncpg.InterfaceError as error:  # the user's pool is not open
            raise unavailable(error) from error
        except DriverError as error:
            raise translated(error, inside=False) from error
        return connection

    async def give_back(self, connection: Connection) -> None:
        if not self._source.give_back_now(connection):
            await finish(self._give_back(connection))

    async def _give_back(self, connection: Connection) -> None:
        try:
            await self._source.give_back(connection)
        except DriverError:
            return  # it could not be reset: asyncpg has discarded it

    async def begin(self, tx: Transaction[Connection]) -> None:
        # `first` may have to wait for a lock. Then a cancellation cancels it on the server.
        if tx.first is None:
            await finish_here(self._begin(tx), lambda: self.abandon(tx.connection))
        else:
            await self._begin(tx)

    async def _begin(self, tx: Transaction[Connection]) -> None:
        connection, words = tx.connection, BEGIN
        if status_of(connection) is Status.LOST:
            raise unavailable("the server has closed the connection")
        if tx.first is not None:
            # The guard first: PostgreSQL keeps two owners for a row that is locked before a
            # savepoint and written after it.
            words = f"{BEGIN}; SAVEPOINT {GUARD}; {tx.first.spelled_out()}"
        if (ours := own(connection)) is not None:
            words = ours.begin(words)
        itself: Any = getattr(connection, "_con", None) or connection
        begun: Any = itself.transaction(isolation="read_committed")
        try:
            tag = await itself.execute(words)
        except BaseException as error:
            if not isinstance(error, asyncpg.InterfaceError):  # with that one, nothing was sent
                await self._give_up(connection)
            if isinstance(error, DriverError):
                raise reraise(translated(error, inside=True)) from error
            raise
        # asyncpg must believe that its own object has sent this. Otherwise it refuses the user's
        # transaction blocks.
        begun._state = TransactionState.STARTED
        begun._connection._top_xact = begun
        tx.begun = begun
        if tx.first is not None:
            tx.answer = [()] * int(tag.split()[-1])

    async def _give_up(self, connection: Connection) -> None:
        """BEGIN has failed or was cancelled, so a transaction may be open or not. asyncpg sends
        this after the server has answered, which a silent server never does."""
        _reset_when_released(connection)  # the reset before BEGIN is undone too
        alarm = ON_LOOP.alarm(CANCEL_PATIENCE, lambda: self.abandon(connection))
        try:
            with suppress(*DriverError):
                await finish(connection.execute("ROLLBACK"))
        finally:  # also after a cancellation: the connection works, and may be the user's
            alarm.cancel()

    sends_last = True

    async def commit(self, tx: Transaction[Connection], last: str = "") -> bool:
        """Not through asyncpg's object: it drops the answer, and only that tells of a rollback."""
        words = "COMMIT" if tx.first is None else f"RELEASE {GUARD}; COMMIT"
        try:
            itself: Any = getattr(tx.connection, "_con", None) or tx.connection
            answer = await itself.execute(f"{last}; {words}" if last else words)
        except DriverError as error:
            if is_lost(error) or not self.is_open(tx.connection):
                raise
            if last and await self.undo(tx.connection, LAST):
                raise Declined from error
            # COMMIT was not reached: the guard is gone, or the connection is in use.
            if errors.sqlstate(error) == errors.IN_FAILED_TRANSACTION:
                return False
            raise translated(error, inside=False) from error
        finally:
            if not self.is_open(tx.connection):  # otherwise `roll_back` does it
                _forget(tx.begun)
        return bool(answer == "COMMIT")

    async def roll_back(self, tx: Transaction[Connection]) -> None:
        _reset_when_released(tx.connection)
        try:
            if self.is_open(tx.connection):
                await tx.connection.execute("ROLLBACK")
        finally:
            _forget(tx.begun)

    async def run(self, connection: Connection, command: PgStatement) -> Rows:
        if not self._encoding_checked:  # all connections are to one database
            check_encoding(connection)
            self._encoding_checked = True
        try:
            itself: Any = getattr(connection, "_con", None) or connection
            rows = await itself.fetch(command.text, *command.values, record_class=asyncpg.Record)
        except DriverError as error:
            raise reraise(translated(error, inside=True)) from error
        return [tuple(row) for row in rows]

    async def send(self, connection: Connection, words: str) -> str:
        try:
            return await connection.execute(words)
        except DriverError as error:
            raise reraise(translated(error, inside=True)) from error


def _reset_when_released(connection: Connection) -> None:
    if (ours := own(connection)) is not None:
        ours.failed = True


def _forget(begun: Any) -> None:
    """Let asyncpg know that its transaction has ended."""
    connection = begun._connection
    if connection is not None and getattr(connection, "_top_xact", None) is begun:
        connection._top_xact = None
