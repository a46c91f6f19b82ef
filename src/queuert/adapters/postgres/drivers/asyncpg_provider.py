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
from types import TracebackType
from typing import TYPE_CHECKING, Any

import asyncpg
from asyncpg.transaction import Transaction

from queuert.adapters.finishing import finish
from queuert.adapters.postgres.command import PgStatement
from queuert.adapters.postgres.drivers.asyncpg_connection import (
    Rows,
    begin,
    commit,
    database_of,
    is_closed,
    is_open,
    note_if_gone,
    require_asyncpg,
    require_transaction,
    reraise,
    roll_back,
    run,
    say,
)
from queuert.adapters.postgres.drivers.asyncpg_sources import Connection, DriverError, Source, async_source, own
from queuert.adapters.postgres.drivers.errors import (
    DEADLOCK_OR_SERIALIZATION,
    ENDED_INSIDE,
    SWALLOWED,
    sqlstate,
    unavailable,
)
from queuert.errors import ClientClosed, QueuertError, TransactionMisused
from queuert.ports.provider import AsyncProvider

ATTEMPTS = 5
"""How often a statement that stands alone is tried, when deadlocks or serialization failures undo it."""

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

    def transaction(self, first: PgStatement | None = None) -> _Transaction:
        return _Transaction(self, first)

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


class _Transaction:
    """A transaction on a connection of ours."""

    def __init__(self, provider: AsyncpgProvider, first: PgStatement | None) -> None:
        self._provider = provider
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
        if self._first is None:
            self._begun, _ = await begin(self._connection)
            return
        # The guard first: PostgreSQL keeps two owners for a row that is locked before a savepoint and written after it.
        self._begun, tag = await begin(self._connection, f"SAVEPOINT {GUARD}", self._first.spelled_out())
        self.answer = [()] * int(tag.split()[-1])

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        assert self._begun is not None
        try:
            if error is None:
                await finish(commit(self._connection, self._begun, None if self._first is None else GUARD))
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


if TYPE_CHECKING:
    _: type[AsyncProvider[Connection]] = AsyncpgProvider
