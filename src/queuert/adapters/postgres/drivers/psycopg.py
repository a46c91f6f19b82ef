"""psycopg 3, async and sync."""

from __future__ import annotations

from collections.abc import Coroutine, Iterator
from contextlib import suppress
from typing import Any, TypeVar, cast

import psycopg
from psycopg import AsyncConnection, AsyncTransaction, Connection, IsolationLevel
from psycopg import Transaction as SyncTransaction
from psycopg.transaction import BaseTransaction
from psycopg_pool import AsyncConnectionPool, ConnectionPool

from queuert.adapters.postgres.command import PgStatement
from queuert.adapters.postgres.drivers import errors, psycopg_connection
from queuert.adapters.postgres.drivers.driver import GUARD, LAST, Declined, PooledDriver, Status, Transaction
from queuert.adapters.postgres.drivers.one_connection import OneConnection
from queuert.adapters.postgres.drivers.pool import Pool
from queuert.adapters.postgres.drivers.psycopg_connection import RESET, AnyConnection, Rows
from queuert.adapters.postgres.drivers.psycopg_pools import (
    ASYNC,
    READ_COMMITTED,
    SYNC,
    GivenPsycopgPool,
    Kind,
    PsycopgOpener,
)
from queuert.adapters.postgres.drivers.session import AsyncSqlProvider, SyncSqlProvider
from queuert.adapters.postgres.drivers.sources import PoolOptions, Source
from queuert.adapters.waiting import done
from queuert.errors import QueuertError
from queuert.ports.provider import TimeLimit

C = TypeVar("C", bound=AnyConnection)
T = TypeVar("T")
AsyncSource = str | AsyncConnectionPool[Any] | AsyncConnection[Any]
SyncSource = str | ConnectionPool[Any] | Connection[Any]


class PsycopgProvider(AsyncSqlProvider[AsyncConnection[Any]]):
    """psycopg's async connections: from a pool of our own (given a connection string), from yours,
    or just one.

    A pool or connection that you give is used as it is, and never closed. One connection serves one
    transaction at a time. `prepare=False`: no prepared statements and no session settings, for
    PgBouncer in transaction mode. `max_size` and `timeout` (seconds to wait for a connection) are
    for a pool of our own.
    """

    def __init__(self, source: AsyncSource, *, prepare: bool = True, max_size: int = 10, timeout: float = 30.0) -> None:
        super().__init__(PsycopgDriver(ASYNC, source, PoolOptions(prepare, max_size, timeout)))


class PsycopgSyncProvider(SyncSqlProvider[Connection[Any]]):
    """`PsycopgProvider`, with psycopg's sync connections."""

    def __init__(self, source: SyncSource, *, prepare: bool = True, max_size: int = 10, timeout: float = 30.0) -> None:
        super().__init__(PsycopgDriver(SYNC, source, PoolOptions(prepare, max_size, timeout)))


class _Guarded(BaseTransaction[Any]):
    """psycopg's transaction, which begins and ends with messages of ours: it sends only one command
    in each."""

    def _get_enter_commands(self) -> Iterator[bytes]:
        return iter(())

    def _get_commit_commands(self) -> Iterator[bytes]:
        return iter(())

    def _get_rollback_commands(self) -> Iterator[bytes]:
        yield b"ROLLBACK"


class _AsyncGuarded(_Guarded, AsyncTransaction):
    pass


class _SyncGuarded(_Guarded, SyncTransaction):
    pass


class PsycopgDriver(PooledDriver[C]):
    """What is taken has autocommit, so that one statement is one round trip. The settings of the
    user's connections are restored when they are given back."""

    error_types = (psycopg.Error,)

    def __init__(self, kind: Kind, source: object, options: PoolOptions) -> None:
        self.waiting = kind.waiting
        self._kind = kind
        self._prepare = options.prepare
        self._source: Source[C]
        self._borrowed: dict[C, tuple[bool, IsolationLevel | None]] | None = {}
        """The settings that the user's connections had. None: they are our own."""
        if isinstance(source, str):
            opener: Any = PsycopgOpener(kind, source, prepare=options.prepare)
            self._source = Pool(opener, options)
            self._borrowed = None
            self.reads_committed = True if options.prepare else None
        elif isinstance(source, kind.pool):
            self._source = GivenPsycopgPool(kind.waiting, source)  # pyright: ignore[reportUnknownArgumentType]
        elif isinstance(source, kind.connection):
            self._source = OneConnection(self, cast(C, source))
        else:
            names = f"a psycopg_pool.{kind.pool.__name__} or a psycopg.{kind.connection.__name__}"
            raise errors.wrong_source(source, f"a connection string, {names}")

    def status(self, connection: C) -> Status:
        return psycopg_connection.status_of(connection)

    def is_lost(self, error: BaseException) -> bool:
        return psycopg_connection.is_lost(error)

    def translated(self, error: Any, *, inside: bool) -> BaseException:
        return psycopg_connection.translated(error, inside=inside)

    def check(self, connection: C) -> None:
        if not isinstance(connection, self._kind.connection):
            raise errors.wrong_connection(connection, f"a psycopg.{self._kind.connection.__name__}")
        self.require_transaction(connection)
        errors.check_database(connection.info.dbname, self._source.database)

    def abandon(self, connection: C) -> bool:
        return psycopg_connection.abandon(connection)

    async def take(self, command: PgStatement | None, limit: TimeLimit | None = None) -> C:
        connection = self._source.take_now(limit)
        if connection is None:
            connection = await self._source.take(limit)
        if self._borrowed is not None:
            self._borrowed[connection] = (connection.autocommit, connection.isolation_level)
            try:
                await _set(connection, autocommit=True, isolation_level=READ_COMMITTED)
            except BaseException:
                await self.give_back(connection)
                raise
        elif command is not None and self._must_reset(connection):
            await self._reset(connection)
        return connection

    def _must_reset(self, connection: C) -> bool:
        """Whether a user has sent statements with it. Through PgBouncer, it has no settings."""
        return self._prepare and psycopg_connection.is_used(connection)

    async def _reset(self, connection: C) -> None:
        try:
            await self._cancel_and_finish(connection, psycopg_connection.reset(connection))
        except BaseException:
            await self.give_back(connection)
            raise

    async def give_back(self, connection: C) -> None:
        if self._borrowed is None and self._source.give_back_now(connection):
            return
        await self.waiting.finish(self._give_back(connection), lambda: self.abandon(connection))

    async def _give_back(self, connection: C) -> None:
        try:
            # If it is not idle, it was lost or left in the middle of something: a pool discards it.
            if self._borrowed is not None:
                autocommit, isolation_level = self._borrowed.pop(connection)
                if self.status(connection) is Status.IDLE:
                    await _set(connection, autocommit=autocommit, isolation_level=isolation_level)
        finally:
            await self._source.give_back(connection)

    async def begin(self, tx: Transaction[C]) -> None:
        if tx.first is None:
            if self._must_reset(tx.connection):
                await self._cancel_and_finish(tx.connection, psycopg_connection.reset(tx.connection))
            await self.waiting.finish(self._begin(tx), lambda: self.abandon(tx.connection))
        else:
            # `first` may have to wait for a lock. Then a cancellation cancels it on the server.
            await self._cancel_and_finish(tx.connection, self._begin_with_first(tx))

    async def _begin(self, tx: Transaction[C]) -> None:
        """Through psycopg's own object: then commit() inside is refused, and the user's transaction
        blocks become savepoints."""
        connection: AnyConnection = tx.connection
        try:
            if isinstance(connection, Connection):
                tx.begun = SyncTransaction(connection).__enter__()
            else:
                tx.begun = await AsyncTransaction(connection).__aenter__()
        except psycopg.Error as error:
            raise self.translated(error, inside=False) from error

    async def _begin_with_first(self, tx: Transaction[C]) -> None:
        connection: Any = tx.connection
        begin = connection._get_tx_start_command().decode()
        # The guard first: PostgreSQL keeps two owners for a row that is locked before a savepoint
        # and written after it.
        must_reset = self._must_reset(tx.connection)
        before = [*(RESET if must_reset else ()), begin, f"SAVEPOINT {GUARD}"]
        words = "; ".join([*before, tx.first.spelled_out()])
        try:
            cursor = await self.send(tx.connection, words)
        except BaseException:
            if self.is_open(tx.connection):
                await self.waiting.finish(self._give_up(tx.connection), lambda: self.abandon(tx.connection))
            raise
        if must_reset:
            connection.used = False
        for _ in before:
            cursor.nextset()
        tx.answer = [()] * cursor.rowcount
        if isinstance(connection, Connection):
            tx.begun = _SyncGuarded(connection).__enter__()
        else:
            tx.begun = await _AsyncGuarded(connection).__aenter__()

    async def _give_up(self, connection: C) -> None:
        """BEGIN has succeeded, and what was sent with it has failed or was cancelled."""
        with suppress(psycopg.Error, QueuertError):
            await self.send(connection, "ROLLBACK")

    sends_last = True

    async def commit(self, tx: Transaction[C], last: str = "") -> bool:
        if tx.first is not None:
            try:
                await self._commit_guarded(tx.connection, last)
            except psycopg.Error:  # COMMIT itself has failed
                await _exit(tx.begun, None)
                raise
        await _exit(tx.begun, None)
        return True

    async def _commit_guarded(self, connection: C, last: str) -> None:
        if last and not psycopg_connection.is_utf8(connection):
            raise Declined
        words = f"{last}; RELEASE {GUARD}; COMMIT" if last else f"RELEASE {GUARD}; COMMIT"
        try:
            await psycopg_connection.send_plainly(connection, words)
        except psycopg.Error as error:
            if not self.is_open(connection):
                raise
            # COMMIT was not reached.
            if last and await self.undo(connection, LAST):
                raise Declined from error
            raise self.translated(error, inside=False) from error

    async def roll_back(self, tx: Transaction[C]) -> None:
        await _exit(tx.begun, psycopg.Rollback(tx.begun))

    async def run(self, connection: C, command: PgStatement) -> Rows:
        run = psycopg_connection.run(connection, command, prepare=self._prepare)
        return await self._cancel_and_finish(connection, run)

    async def send(self, connection: C, words: str) -> Any:
        return await psycopg_connection.send(connection, words)

    async def _cancel_and_finish(self, connection: C, call: Coroutine[Any, Any, T]) -> T:
        return await self.waiting.cancel_and_finish(call, lambda: self.abandon(connection))


async def _set(connection: AnyConnection, *, autocommit: bool, isolation_level: IsolationLevel | None) -> None:
    if connection.autocommit != autocommit:
        await done(connection.set_autocommit(autocommit))
    if connection.isolation_level != isolation_level:
        await done(connection.set_isolation_level(isolation_level))


async def _exit(begun: AsyncTransaction | SyncTransaction, error: BaseException | None) -> None:
    kind = None if error is None else type(error)
    if isinstance(begun, SyncTransaction):
        begun.__exit__(kind, error, None)
    else:
        await begun.__aexit__(kind, error, None)
