"""Transactions, savepoints and single statements, written once for all drivers.

Everything here is a coroutine over the calls of a `Driver`. `AsyncSqlProvider` awaits them on an
event loop, `SyncSqlProvider` runs them in a thread.

Cancellation. Waiting for a connection ends at once. A statement that is running is cancelled on the
server. BEGIN, COMMIT, ROLLBACK and savepoints run to their end. Whatever happens, the connection
goes back, and outside of any transaction.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from queuert.adapters.postgres.command import PgStatement
from queuert.adapters.postgres.drivers import errors
from queuert.adapters.postgres.drivers.driver import LAST, Declined, Driver, Status, Transaction, ended_badly
from queuert.base.blocking import Block, run_blocking
from queuert.errors import ClientClosed, QueuertError, StorageUnavailable, TransactionMisused
from queuert.ports.provider import TimeLimit

if TYPE_CHECKING:
    from queuert.ports.provider import Abandoning, AsyncProvider, CommittingWith, SyncProvider, Upkeep

C = TypeVar("C")

ATTEMPTS = 5
"""How often a statement that runs alone is tried if deadlocks or serialization failures undo it."""

ROLLBACK_PATIENCE = 5.0
"""Seconds for a ROLLBACK, which is quick unless the server is silent. Then the connection is
closed, and the server rolls back when it notices."""

SHOW_ISOLATION = PgStatement("SHOW default_transaction_isolation", writes=False)


class SqlProvider(Generic[C]):
    """The provider of a driver."""

    def __init__(self, driver: Driver[C]) -> None:
        self.driver = driver
        self._closed = False

    def transaction(self, first: Any = None) -> TransactionBlock[C]:
        return TransactionBlock(self, first)

    def savepoint(self, connection: C) -> SavepointBlock[C]:
        return SavepointBlock(self, connection)

    def check(self, connection: C) -> None:
        self.check_open()
        self.driver.check(connection)

    def in_transaction(self, connection: C) -> bool:
        return self.driver.is_open(connection)

    def abandon(self, connection: C) -> bool:
        return self.driver.abandon(connection)

    def check_open(self) -> None:
        if self._closed:
            raise ClientClosed("database provider")

    async def run(self, connection: C | None, command: Any) -> Any:
        """Run a command in the open transaction, or alone if no connection is given."""
        self.check_open()
        if connection is None:
            return await self.run_alone(command)
        self.driver.require_transaction(connection)
        return await self.driver.run(connection, command)

    async def run_alone(self, command: Any, limit: TimeLimit | None = None) -> Any:
        """Run a command on a connection of our own, committed at once; again after a deadlock."""
        driver = self.driver
        for attempt in range(1, ATTEMPTS + 1):
            self.check_open()
            connection = await self._take(command, limit)
            try:
                if limit is None:
                    return await self._run_committed(connection, command)
                return await self._run_within(limit.seconds, connection, command)
            except driver.error_types as error:
                conflict = errors.sqlstate(error) in errors.DEADLOCK_OR_SERIALIZATION
                if not conflict or attempt == ATTEMPTS:
                    raise driver.translated(error, inside=False) from error
            except TransactionMisused as error:
                if driver.status(connection) is Status.LOST:  # the server closed it before we got it
                    raise errors.unavailable(error.__cause__ or error) from error
                raise
            finally:
                await driver.give_back(connection)
            await driver.waiting.sleep(random.uniform(0, 0.02 * 2**attempt))
        raise AssertionError("unreachable")

    async def _take(self, command: Any, limit: TimeLimit | None) -> C:
        try:
            return await self.driver.take(command, limit)
        except StorageUnavailable as error:
            error.sent = False
            raise

    async def _run_within(self, seconds: float, connection: C, command: Any) -> Any:
        """At the limit, close the socket: then the driver raises an error, at once."""
        driver, rang = self.driver, False

        def ring() -> None:
            nonlocal rang
            rang = True
            driver.abandon(connection)
            driver.distrust_idle()

        alarm = driver.waiting.alarm(seconds, ring)
        try:
            return await self._run_committed(connection, command)
        except Exception as error:
            if rang:
                raise errors.silent(seconds) from error
            raise
        finally:
            alarm.cancel()

    async def _run_committed(self, connection: C, command: Any) -> Any:
        """Run it as read committed. If that is not the default, use a transaction that sets it."""
        driver = self.driver
        if command.alone or await self._is_read_committed(connection):
            return await driver.run(connection, command)
        tx = Transaction(connection)
        await begin(driver, tx)
        try:
            answer = await driver.run(connection, command)
        except BaseException as error:
            await end(driver, tx, error)
            raise
        await end(driver, tx, None)
        return answer

    async def _is_read_committed(self, connection: C) -> bool:
        driver = self.driver
        if driver.reads_committed is None:
            ((level,),) = await driver.run(connection, SHOW_ISOLATION)
            driver.reads_committed = bool(level == "read committed")
        return driver.reads_committed

    # The worker's own statements: see `queuert.ports.provider.Upkeep`

    async def run_within(self, limit: TimeLimit, command: Any) -> Any:
        self.check_open()
        return await self.run_alone(command, limit)

    async def reserve(self, statement_timeout: float) -> None:
        await self.driver.reserve(statement_timeout)

    async def unreserve(self) -> None:
        await self.driver.unreserve()

    def room(self) -> tuple[int, int] | None:
        shares = self.driver.shares
        return None if shares is None else (shares.size - shares.set_aside, shares.set_aside)

    async def shut_down(self) -> None:
        if not self._closed:
            self._closed = True
            await self.driver.waiting.finish(self.driver.close())


class AsyncSqlProvider(SqlProvider[C]):
    async def execute(self, connection: C | None, command: Any) -> Any:
        return await self.run(connection, command)

    async def execute_within(self, limit: TimeLimit, command: Any) -> Any:
        return await self.run_within(limit, command)

    async def close(self) -> None:
        await self.shut_down()


class SyncSqlProvider(SqlProvider[C]):
    def execute(self, connection: C | None, command: Any) -> Any:
        return run_blocking(self.run(connection, command))

    def execute_within(self, limit: TimeLimit, command: Any) -> Any:
        return run_blocking(self.run_within(limit, command))

    def close(self) -> None:
        run_blocking(self.shut_down())


# Transactions of our own


async def begin(driver: Driver[C], tx: Transaction[C]) -> None:
    try:
        await driver.begin(tx)
    except BaseException:
        if tx.begun is not None:  # `first` has failed, or a cancellation came since
            await driver.waiting.finish(_roll_back(driver, tx))
        raise


async def end(driver: Driver[C], tx: Transaction[C], error: BaseException | None) -> None:
    """Commit, or roll back because of an error. One that is committed stays so."""
    if tx.ended:
        return
    if error is None:
        await driver.waiting.finish_plain(_commit(driver, tx))
    elif not await driver.waiting.finish(_roll_back(driver, tx)):
        _note(driver, tx.connection, error)


async def _commit(driver: Driver[C], tx: Transaction[C], last: str = "") -> None:
    status = driver.status(tx.connection)
    tx.ended = True
    try:
        # COMMIT of a failed transaction would roll back without an error.
        if status is Status.OPEN and await driver.commit(tx, last):
            return
    except Declined:
        tx.ended = False
        raise
    except driver.error_types as error:
        if driver.is_open(tx.connection):
            await _roll_back(driver, tx)
        if driver.is_lost(error):
            raise driver.translated(error, inside=False) from error
        raise  # a deferred constraint of the user's, for example
    except QueuertError:
        await _roll_back(driver, tx)
        raise
    await _roll_back(driver, tx)
    raise ended_badly(status)


async def _roll_back(driver: Driver[C], tx: Transaction[C]) -> bool:
    """False: the transaction was gone already. An error here would hide the one that led to it."""
    was_open = driver.is_open(tx.connection)
    alarm = driver.waiting.alarm(ROLLBACK_PATIENCE, lambda: driver.abandon(tx.connection))
    try:
        await driver.roll_back(tx)
    except driver.error_types:
        return False
    finally:
        alarm.cancel()
    return was_open


def _note(driver: Driver[C], connection: C, error: BaseException) -> None:
    """The user's error is raised as it is. A note is added if its work could not be rolled back."""
    if driver.status(connection) is not Status.LOST:  # otherwise the server has undone it
        error.add_note(f"queuert: this could not be rolled back, {errors.ENDED_INSIDE}")


# Blocks


class TransactionBlock(Block[C]):
    """A transaction on a connection that is taken for it."""

    def __init__(self, provider: SqlProvider[C], first: Any) -> None:
        self._provider = provider
        self._first = first

    @property
    def answer(self) -> Any:
        return self._tx.answer

    async def __aenter__(self) -> C:
        self._provider.check_open()
        driver = self._provider.driver
        self._tx = Transaction(await driver.take(None), self._first)
        try:
            await begin(driver, self._tx)
        except BaseException:
            await driver.give_back(self._tx.connection)
            raise
        return self._tx.connection

    async def commit_with(self, command: Any) -> bool:
        """See `queuert.ports.provider.CommittingWith`."""
        driver = self._provider.driver
        if not driver.sends_last or self._first is None:
            return False
        try:
            last = f"SAVEPOINT {LAST}; {command.spelled_out()}"
        except ValueError:
            return False
        try:
            await driver.waiting.finish_plain(_commit(driver, self._tx, last))
        except Declined:
            return False
        return True

    async def __aexit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        driver = self._provider.driver
        try:
            await end(driver, self._tx, error)
        finally:
            await driver.give_back(self._tx.connection)


class SavepointBlock(Block[None], Generic[C]):
    """A savepoint, in a transaction of our own or of the user's."""

    def __init__(self, provider: SqlProvider[C], connection: C) -> None:
        self._provider = provider
        self._connection = connection

    async def __aenter__(self) -> None:
        self._provider.check_open()
        driver = self._provider.driver
        driver.require_transaction(self._connection)
        self._savepoint = await driver.waiting.finish(driver.save(self._connection))

    async def __aexit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        driver = self._provider.driver
        if error is None:
            await driver.waiting.finish(self._release())
        elif not await driver.waiting.finish(driver.undo(self._connection, self._savepoint)):
            _note(driver, self._connection, error)

    async def _release(self) -> None:
        driver = self._provider.driver
        if not await driver.release(self._connection, self._savepoint):
            undone = await driver.undo(self._connection, self._savepoint)
            raise TransactionMisused(errors.SWALLOWED if undone else errors.ENDED_INSIDE)


if TYPE_CHECKING:
    _: type[AsyncProvider[Any]] = AsyncSqlProvider
    __: type[SyncProvider[Any]] = SyncSqlProvider
    ___: type[Upkeep] = AsyncSqlProvider
    ____: type[Abandoning[Any]] = SqlProvider
    _____: type[CommittingWith] = TransactionBlock
