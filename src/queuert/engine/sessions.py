"""Programs and transactions on a client's database: what clients and workers share.

All of it is written once, as coroutines. A sync client runs them with `queuert.base.blocking`.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable
from contextlib import AbstractAsyncContextManager
from typing import Any, Generic, TypeAlias, cast

from typing_extensions import TypeVar

from queuert.base.contexts import async_context
from queuert.base.transaction import Transaction
from queuert.engine.announcing import Announce
from queuert.engine.engine import Engine
from queuert.engine.flushing import CLOSE_WAIT, Flushing, SyncFlushing
from queuert.engine.nesting import OpenBlock, OpenBlocks
from queuert.engine.ownership import OwnedByProcess
from queuert.engine.transaction import Enlisted, OpenTransaction
from queuert.engine.turns import Turns
from queuert.errors import (
    InvalidArgument,
    StorageBusy,
    StorageUnavailable,
    TransactionMisused,
    TransactionRequired,
)
from queuert.ports.program import Program, answered
from queuert.ports.provider import (
    AsyncProvider,
    BlockingProvider,
    CommittingWith,
    Enlisting,
    SyncProvider,
    TimeLimit,
    Upkeep,
    run_async,
    sleep_blocking,
)

logger = logging.getLogger("queuert.client")

Conn = TypeVar("Conn", default=Any)
T = TypeVar("T")

Tx: TypeAlias = Transaction[Conn] | Conn
"""A transaction; or the connection or session that it is open on, if the provider is notified of
its end.
"""


class Sessions(Flushing, Generic[Conn]):
    _sleep: Callable[[float], Awaitable[None]] = staticmethod(asyncio.sleep)
    _current: Callable[[], Hashable] = staticmethod(asyncio.current_task)

    def __init__(
        self,
        provider: AsyncProvider[Conn],
        engine: Engine,
        *,
        storage: Any,
        channel: Any,
        migrate: bool,
        announce: Announce = "background",
    ) -> None:
        """`storage`, `channel`: the adapters, as the client was given them, or watched."""
        super().__init__(engine, announce)
        self.storage = storage
        self.channel = channel
        self._provider = provider
        self._migrate = migrate
        self._schema_due = False
        """The database was unavailable when the client was entered."""
        self._turns = Turns()
        self.blocks: OpenBlocks[Conn] = OpenBlocks(self._current)
        self._upkeep = cast("Upkeep", provider) if hasattr(provider, "execute_within") else None
        self._owner: Any = provider
        """The provider as it was given: a transaction belongs to it."""

    async def ensure_schema(self) -> None:
        """Bring the schema up to date, unless the client was told to leave it alone."""
        if self._migrate:
            await self.migrate()

    async def migrate(self) -> list[int]:
        """Bring the schema up to date. Returns the versions that were applied."""
        self.check_open()
        applied = await run_async(self._provider, None, self.engine.state.migrate(), self._sleep)
        self._schema_due = False
        return applied

    async def enter_schema(self) -> None:
        """Bring the schema up to date if the database is there. If not, do it before its first
        use.
        """
        try:
            await self.ensure_schema()
        except (StorageUnavailable, StorageBusy, OSError) as error:
            logger.warning("the database is unavailable, the tables are checked before its first use: %s", error)
            self._schema_due = True

    async def close(self, finish_submissions: Callable[[float], Awaitable[None]]) -> None:
        """Refuse everything from here on, and wait for what was submitted or is still to be
        announced. `finish_submissions` takes the seconds that it may wait.
        """
        self.end()
        await finish_submissions(CLOSE_WAIT)
        await self._finish_flushes()

    async def run(self, program: Program[T], connection: Conn | None = None) -> T:
        """Drive a program, in the transaction of a connection or on a connection of our own."""
        self.check_open()
        if connection is None or self._blocking:
            if self._schema_due and connection is None:
                await self.migrate()
            return await run_async(self._provider, connection, program, self._sleep)
        await self._turns.begin(connection)
        try:
            return await run_async(self._provider, connection, program, self._sleep)
        finally:
            self._turns.end(connection)

    async def drive(self, program: Program[T]) -> T:
        """Drive a program on a connection of our own, even while the client is being closed."""
        return await run_async(self._provider, None, program, self._sleep)

    # For workers: see `queuert.ports.provider.Upkeep`

    async def run_within(self, limit: TimeLimit, program: Program[T]) -> T:
        """Drive a program on a connection of our own, each of its commands within limited time."""
        self.check_open()
        if self._schema_due:
            await self.migrate()
        return await run_async(self._provider, None, program, limit=limit)

    async def reserve(self, statement_timeout: float) -> None:
        """A worker begins: set aside what its own statements need."""
        if self._upkeep is not None:
            await self._upkeep.reserve(statement_timeout)

    async def unreserve(self) -> None:
        if self._upkeep is not None:
            await self._upkeep.unreserve()

    def room(self) -> tuple[int, int] | None:
        """How many transactions can be open at once while a worker runs, and how many connections
        are set aside for it. None: this is not limited.
        """
        return None if self._upkeep is None else self._upkeep.room()

    # Which connection

    def writing(self, operation: str, tx: Tx[Conn]) -> OpenTransaction[Conn]:
        """The transaction for a mutation.

        The caller gave it itself, or the connection that it is open on.
        """
        self.check_open()
        if isinstance(tx, OpenTransaction):
            transaction = cast("OpenTransaction[Conn]", tx)
            self._connection(transaction)
            return transaction
        if not hasattr(self._owner, "enlist"):
            raise TransactionRequired(operation, tx)
        enlisting, connection = cast("Enlisting[Conn]", self._owner), cast(Conn, tx)
        enlisted = enlisting.enlist(connection, operation, self._enlisted)
        return OpenTransaction(connection, self._owner, joined=True, hooks=enlisted.hooks)

    def _enlisted(self) -> Enlisted:
        return Enlisted(self._flush_enlisted, self._flush_enlisted_undone, self.new_hooks())

    def reading(self, tx: Tx[Conn] | None) -> Conn | None:
        """The connection for a read. None: one of our own.

        Inside a phase, a read uses the phase's transaction: all connections may be held by phases
        that do the same, and each would wait for the others.
        """
        self.check_open()
        if tx is None:
            lent = self.blocks.lent()
            return None if lent is None else lent.connection
        if isinstance(tx, OpenTransaction):
            return self._connection(cast("OpenTransaction[Conn]", tx))
        if not hasattr(self._owner, "enlist"):
            raise InvalidArgument(
                f"tx= takes a Transaction, got {type(tx).__name__}: pass what client.transaction() or "
                "client.after_commit(connection) gave you, or leave it out"
            )
        connection = cast(Conn, tx)
        self._provider.check(connection)
        return connection

    def _connection(self, tx: OpenTransaction[Conn]) -> Conn:
        connection = tx.connection
        if tx.provider is not self._owner:
            raise TransactionMisused("this transaction belongs to another client: use the client that opened it")
        if tx.joined:
            self._provider.check(connection)
        return connection

    def in_transaction(self, tx: Transaction[Conn]) -> bool:
        """Whether the transaction is open in the database, as far as that is known without asking
        it.
        """
        return self._provider.in_transaction(tx.connection)

    # Transactions

    def transaction(
        self, first: Program[Any] | None = None
    ) -> AbstractAsyncContextManager[OpenTransaction[Conn], None]:
        """A transaction of our own. `first` is a program of one command that it begins with; such a
        transaction is guarded (see `SyncProvider.transaction`)."""
        itself: list[weakref.ref[AbstractAsyncContextManager[Any, None]]] = []
        block = self._transaction(itself, first)
        # Weakly: if there is no other reference, the interpreter ends the block by itself.
        itself.append(weakref.ref(block))
        return block

    @async_context
    async def _transaction(self, itself: OpenBlock, first: Program[Any] | None) -> AsyncIterator[OpenTransaction[Conn]]:
        self.check_open()
        if self._schema_due:
            await self.migrate()
        # One with a `first` is the worker's: its phase opens it, and user code cannot leave it. In
        # a task, the phase itself has entered.
        holder = self._current() if first is None or self._blocking else None
        if holder is not None:
            self.blocks.enter(holder, itself if first is None else ())
        hooks = self.new_hooks()
        tx: OpenTransaction[Conn] | None = None
        ended_inside = False
        try:
            try:
                block = self._provider.transaction() if first is None else self._provider.transaction(next(first))
                async with block as connection:
                    tx = OpenTransaction(connection, self._owner, joined=False, hooks=hooks)
                    tx.block = block
                    if first is not None:
                        tx.first = answered(first, block.answer)
                    try:
                        yield tx
                        if not tx.commits:
                            tx.commits = True
                            ended_inside = hooks.has_callbacks and not self._provider.in_transaction(connection)
                    finally:
                        tx.end()
            finally:
                if holder is not None:
                    self.blocks.leave(holder)
                if tx is not None:
                    tx.give_back()
        except BaseException as error:
            lost = isinstance(error, StorageUnavailable) or not isinstance(error, Exception)
            if tx is not None and tx.commits and (lost or ended_inside):
                self._discard(hooks, error)
            else:
                await self._roll_back(hooks)
            raise
        await self.flush(hooks)

    async def commit_with(self, tx: OpenTransaction[Conn], command: Any) -> bool:
        """Commit a transaction of our own, in one message with a last command.

        False: that has failed, or is not possible, and the transaction is open as before (see
        `queuert.ports.provider.CommittingWith`).
        """
        if not hasattr(tx.block, "commit_with"):
            return False
        tx.commits = True
        tx.commits = await cast("CommittingWith", tx.block).commit_with(command)
        return tx.commits

    async def check_alone(self) -> None:
        """Raise an error if the caller has a transaction of this client open already."""
        self.check_open()
        self.blocks.check_outside()
        if self._schema_due:
            await self.migrate()

    def abandon(self, tx: OpenTransaction[Conn]) -> bool:
        """End a transaction of our own by force, from any thread, even while it is being committed
        or rolled back.

        False if the provider cannot do that (see `queuert.ports.provider.Abandoning`).
        """
        connection = tx.connection_in_use()
        if connection is None:
            return True
        abandon: Callable[[Conn], bool] | None = getattr(self._owner, "abandon", None)
        return abandon is not None and abandon(connection)

    @async_context
    async def after_commit(self, connection: Conn) -> AsyncIterator[OpenTransaction[Conn]]:
        """Join a transaction that its owner commits, inside of this block."""
        self.check_open()
        try:
            self._provider.in_transaction(connection)
        except AttributeError:
            raise TransactionMisused(
                f"after_commit() takes a connection of this database's driver, got {type(connection).__name__}"
            ) from None
        tx = OpenTransaction(connection, self._owner, joined=True, hooks=self.new_hooks())
        try:
            yield tx
        except BaseException:
            tx.end()
            await self._roll_back(tx.hooks)
            raise
        tx.end()
        if self._provider.in_transaction(connection):
            tx.hooks.discard()
            raise TransactionMisused(
                "after_commit() ended while the connection is still inside a transaction, so nothing was announced. "
                "Put after_commit() outside of the block that commits: "
                "`with client.after_commit(connection) as tx, <your transaction>:`"
            )
        await self._flush_joined(tx.hooks)

    @async_context
    async def savepoint(self, tx: Tx[Conn]) -> AsyncIterator[None]:
        transaction = self.writing("savepoint", tx)
        connection = transaction.connection
        savepoint = self._provider.savepoint(connection)
        if not self._blocking:
            savepoint = self._turns.savepoint(connection, savepoint)
        roll_back: Callable[[], None] | None = None
        try:
            async with savepoint:
                # Now: what other tasks did before belongs to the transaction.
                roll_back = transaction.hooks.checkpoint()
                yield
        except BaseException:
            if roll_back is not None:
                roll_back()
                if transaction.hooks.has_undone:
                    await self._flush_undone(transaction.hooks)
            raise

    async def let_others_run(self) -> None:
        """Whatever is ready to run now."""
        await asyncio.sleep(0)


class SyncSessions(OwnedByProcess, SyncFlushing, Sessions[Conn]):
    """The sessions of a sync client. Nothing here suspends."""

    _sleep = staticmethod(sleep_blocking)
    _current = staticmethod(threading.get_ident)

    def __init__(self, provider: SyncProvider[Conn], engine: Engine, **options: Any) -> None:
        super().__init__(BlockingProvider(provider), engine, **options)
        self._owner = provider

    @property
    def lends_to_threads(self) -> bool:
        """Whether each connection belongs to a thread, and may be inside of a transaction that only
        this thread knows of."""
        return hasattr(self._owner, "in_thread")

    async def let_others_run(self) -> None:
        """Threads run anyway."""
