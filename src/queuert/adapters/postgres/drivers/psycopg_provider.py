"""psycopg 3 for an event loop.

Cancellation. Waiting for a connection ends at once. A statement that is under way is cancelled on the server, and
waited for until the server has said so: then the connection can be used again. BEGIN, COMMIT and ROLLBACK always run
to their end, and whatever happens the connection goes back to where it came from, outside of any transaction.
"""

from __future__ import annotations

import asyncio
import random
from types import TracebackType
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import AsyncConnection, AsyncTransaction

from queuert.adapters.finishing import cancel_and_finish, finish
from queuert.adapters.postgres.command import PgStatement
from queuert.adapters.postgres.drivers.errors import DEADLOCK_OR_SERIALIZATION, SWALLOWED, unavailable
from queuert.adapters.postgres.drivers.psycopg_common import (
    ATTEMPTS,
    SHOW_ISOLATION,
    OwnAsyncCursor,
    Rows,
    check_before_commit,
    check_joined,
    closed,
    is_lost,
    is_open,
    note_if_gone,
    query,
    require_transaction,
    reraise,
    run_async,
    savepoint_names,
)
from queuert.adapters.postgres.drivers.psycopg_sources import AsyncSource, Source, async_source
from queuert.errors import QueuertError, TransactionMisused
from queuert.ports.beginning import Begun
from queuert.ports.provider import AsyncBlock, AsyncProvider

Connection = AsyncConnection[Any]


class PsycopgProvider:
    """psycopg's async connections: from a pool of our own (given a connection string), from yours, or just one.

    A pool or connection that you give is used as it is and never closed. One connection serves one transaction at a
    time. `prepare=False`: no prepared statements and no session settings, for PgBouncer in transaction mode.
    `max_size` and `timeout` (seconds to wait for a connection) are for a pool of our own.
    """

    def __init__(self, source: AsyncSource, *, prepare: bool = True, max_size: int = 10, timeout: float = 30.0) -> None:
        self._source: Source = async_source(source, prepare=prepare, max_size=max_size, timeout=timeout)
        self._prepare = prepare
        self._closed = False
        self._reads_committed: bool | None = True if self._source.configured else None
        """Whether a statement that stands alone is read committed by default. None: not known yet."""

    def transaction(self, first: PgStatement | None = None) -> AsyncBlock[Connection]:
        return _Transaction(self) if first is None else Begun(self, _Transaction(self), first)

    def savepoint(self, connection: Connection) -> _Savepoint:
        return _Savepoint(self, connection)

    async def execute(self, connection: Connection | None, command: PgStatement) -> Rows:
        self.check_open()
        if connection is None:
            return await self._execute_alone(command)
        require_transaction(connection)
        return await cancel_and_finish(self._run(connection, command))

    def check(self, connection: Connection) -> None:
        self.check_open()
        check_joined(connection, AsyncConnection, self._source.database)

    def in_transaction(self, connection: Connection) -> bool:
        return is_open(connection)

    async def close(self) -> None:
        """Connections that are in use are closed when they are given back."""
        if not self._closed:
            self._closed = True
            await finish(self._source.close())

    async def take(self) -> Connection:
        """A connection outside of any transaction, with autocommit. `give_back` it."""
        self.check_open()
        return await self._source.take()

    async def give_back(self, connection: Connection) -> None:
        await finish(self._source.give_back(connection))

    async def _run(self, connection: Connection, command: PgStatement) -> Rows:
        return await run_async(connection, command, prepare=self._prepare)

    async def _execute_alone(self, command: PgStatement) -> Rows:
        for attempt in range(1, ATTEMPTS + 1):
            connection = await self.take()
            try:
                return await cancel_and_finish(self._run_alone(connection, command))
            except psycopg.Error as error:
                if error.sqlstate not in DEADLOCK_OR_SERIALIZATION or attempt == ATTEMPTS:
                    raise reraise(error, inside=False) from error
            finally:
                await self.give_back(connection)
            await asyncio.sleep(random.uniform(0, 0.02 * 2**attempt))
        raise AssertionError("unreachable")

    async def _run_alone(self, connection: Connection, command: PgStatement) -> Rows:
        if command.alone or await self._is_read_committed(connection):
            return await self._run(connection, command)
        begun = await begin(connection)
        try:
            rows = await self._run(connection, command)
        except BaseException:
            await finish(roll_back(connection, begun))
            raise
        await finish(commit(connection, begun))
        return rows

    async def _is_read_committed(self, connection: Connection) -> bool:
        if self._reads_committed is None:
            ((level,),) = await self._run(connection, PgStatement(SHOW_ISOLATION, writes=False))
            self._reads_committed = bool(level == "read committed")
        return self._reads_committed

    def check_open(self) -> None:
        if self._closed:
            raise closed()


async def begin(connection: Connection) -> AsyncTransaction:
    """Through psycopg's own object, so that the user's commit() in it is refused and his blocks become savepoints."""
    begun = AsyncTransaction(connection)
    try:
        await begun.__aenter__()
    except psycopg.Error as error:
        raise reraise(error, inside=False) from error
    return begun


async def commit(connection: Connection, begun: AsyncTransaction) -> None:
    try:
        check_before_commit(connection)
    except TransactionMisused:
        await roll_back(connection, begun)
        raise
    try:
        await begun.__aexit__(None, None, None)
    except psycopg.Error as error:
        if is_lost(error):
            raise unavailable(error) from error
        raise  # a deferred constraint of the user's, for one


async def roll_back(connection: Connection, begun: AsyncTransaction) -> bool:
    """False: the transaction was gone already. An error here would only hide the one that led to it."""
    intact = is_open(connection)
    try:
        await begun.__aexit__(psycopg.Rollback, psycopg.Rollback(begun), None)
    except psycopg.Error:
        return False
    return intact


class _Transaction:
    """A transaction on a connection of ours."""

    answer: Any = None

    def __init__(self, provider: PsycopgProvider) -> None:
        self._provider = provider

    async def __aenter__(self) -> Connection:
        self._connection = await self._provider.take()
        begun: list[AsyncTransaction] = []

        async def start() -> None:
            begun.append(await begin(self._connection))

        try:
            await finish(start())
        except BaseException:
            if begun:  # and cancelled since
                await finish(roll_back(self._connection, begun[0]))
            await self._provider.give_back(self._connection)
            raise
        self._begun = begun[0]
        return self._connection

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            if error is None:
                await finish(commit(self._connection, self._begun))
            else:
                intact = await finish(roll_back(self._connection, self._begun))
                note_if_gone(self._connection, error, intact=intact)
        finally:
            await self._provider.give_back(self._connection)


class _Savepoint:
    """A block inside the open transaction that is undone on an error."""

    def __init__(self, provider: PsycopgProvider, connection: Connection) -> None:
        self._provider = provider
        self._connection = connection
        self._name = next(savepoint_names)

    async def __aenter__(self) -> None:
        self._provider.check_open()
        require_transaction(self._connection)
        await finish(self._say(f"SAVEPOINT {self._name}"))

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is None:
            await finish(self._release())
        else:
            note_if_gone(self._connection, error, intact=await finish(self._undo()))

    async def _release(self) -> None:
        try:
            check_before_commit(self._connection)
        except TransactionMisused as misuse:
            if await self._undo():
                raise TransactionMisused(SWALLOWED) from misuse
            raise
        await self._say(f"RELEASE {self._name}")

    async def _undo(self) -> bool:
        """Go back to the savepoint. False: it is gone, together with its transaction."""
        if not is_open(self._connection):
            return False
        try:
            await self._say(f"ROLLBACK TO {self._name}; RELEASE {self._name}")
        except (QueuertError, psycopg.Error):
            return False
        return True

    async def _say(self, text: str) -> None:
        try:
            await OwnAsyncCursor(self._connection).execute(query(text), prepare=False)
        except psycopg.Error as error:
            raise reraise(error, inside=True) from error


if TYPE_CHECKING:
    _: type[AsyncProvider[Connection]] = PsycopgProvider
