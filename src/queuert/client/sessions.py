"""Programs and transactions on a client's database: what clients and workers share.

All of it is written once, as coroutines. A sync client runs them with `queuert.blocking`.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from typing import Any, Generic, TypeAlias, cast

from typing_extensions import TypeVar

from queuert.blocking import run_blocking
from queuert.contexts import async_context
from queuert.errors import (
    ClientClosed,
    InvalidArgument,
    StorageBusy,
    StorageUnavailable,
    TransactionMisused,
    TransactionNested,
    TransactionRequired,
)
from queuert.failure_log import FailureLog
from queuert.operations.engine import Engine
from queuert.ports.program import Program, answered
from queuert.ports.provider import (
    AsyncProvider,
    BlockingProvider,
    Enlisting,
    Limit,
    SyncProvider,
    Upkeep,
    run_async,
)
from queuert.transaction import Enlisted, Hooks, OpenTransaction, Transaction
from queuert.transaction import logger as transaction_logger

logger = logging.getLogger("queuert.client")

Conn = TypeVar("Conn", default=Any)
T = TypeVar("T")

Tx: TypeAlias = Transaction[Conn] | Conn
"""A transaction; or the connection or session that it is open on, if the provider hears of its
end."""

OpenBlock: TypeAlias = Sequence[weakref.ref[AbstractAsyncContextManager[Any, None]]]
"""The block of a transaction; empty for a transaction that another task has opened."""


class Sessions(Generic[Conn]):
    def __init__(self, provider: AsyncProvider[Conn], engine: Engine, *, migrate: bool) -> None:
        self.engine = engine
        self.closed = False
        self.hook_failures = 0
        self._flush_log = FailureLog(transaction_logger)
        self._provider = provider
        self._migrate = migrate
        self._schema_due = False
        """The database was unavailable when the client was entered."""
        self._flushes: set[asyncio.Task[None]] = set()
        self._open: dict[Hashable, OpenBlock] = {}
        """The transactions that tasks (or threads) have open."""
        self._open_lock = threading.Lock()
        self._lent: dict[Hashable, OpenTransaction[Conn]] = {}
        """The transactions of phases, by the task or thread whose phase it is."""
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
        applied = await run_async(self._provider, None, self.engine.state.migrate())
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

    async def close(self) -> None:
        """Refuse everything from here on, and wait for what is still to be announced."""
        self.closed = True
        if self._flushes:
            await asyncio.wait(self._flushes)

    def check_open(self) -> None:
        if self.closed:
            raise ClientClosed

    async def run(self, program: Program[T], connection: Conn | None = None) -> T:
        """Drive a program, in the transaction of a connection or on a connection of our own."""
        self.check_open()
        if self._schema_due and connection is None:
            await self.migrate()
        return await run_async(self._provider, connection, program)

    # For workers: see `queuert.ports.provider.Upkeep`

    async def run_within(self, limit: Limit, program: Program[T]) -> T:
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
        enlisted = enlisting.enlist(connection, operation, lambda: Enlisted(self._flush_enlisted))
        return OpenTransaction(connection, self._owner, joined=True, hooks=enlisted.hooks)

    def reading(self, tx: Tx[Conn] | None) -> Conn | None:
        """The connection for a read. None: one of our own.

        Inside of a phase, a read uses the phase's transaction: all connections may be held by
        phases that do the same, and each would wait for the others.
        """
        self.check_open()
        if tx is None:
            lent = self._lent.get(self._current()) if self._lent else None
            return lent.connection if lent is not None and lent.is_open else None
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
        holder = self._current()
        # One with a `first` is the worker's: its phase opens it, and user code cannot leave it.
        self.enter(holder, itself if first is None else ())
        tx: OpenTransaction[Conn] | None = None
        try:
            block = self._provider.transaction() if first is None else self._provider.transaction(next(first))
            async with block as connection:
                tx = OpenTransaction(connection, self._owner, joined=False)
                if first is not None:
                    tx.first = answered(first, block.answer)
                try:
                    yield tx
                finally:
                    tx.end()
        finally:
            self.leave(holder)
            if tx is not None:
                tx.give_back()
        if tx is not None:
            await self.flush(tx.hooks)

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
        tx = OpenTransaction(connection, self._owner, joined=True)
        try:
            yield tx
        finally:
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
        roll_back = transaction.hooks.checkpoint()
        try:
            async with self._provider.savepoint(transaction.connection):
                yield
        except BaseException:
            roll_back()
            raise

    # Nesting

    def enter(self, holder: Hashable, block: OpenBlock = ()) -> None:
        """A task or thread begins to use a transaction.

        A second one could wait for the first one for ever.
        """
        with self._open_lock:
            if holder in self._open:
                raise TransactionNested(
                    "client.transaction() inside another one of the same task or thread: pass the outer tx on, "
                    "or use client.savepoint(tx) for a part that may fail on its own"
                )
            self._open[holder] = block

    def leave(self, holder: Hashable) -> None:
        with self._open_lock:
            self._open.pop(holder, None)
            self._lent.pop(holder, None)

    def lend(self, tx: Transaction[Conn]) -> None:
        """The running task or thread, which has entered, is in a phase with this transaction."""
        if isinstance(tx, OpenTransaction):
            self._lent[self._current()] = tx

    def has_left_open(self, holder: Hashable) -> bool:
        """Whether a task or thread, now at its end, has opened a transaction and never left its
        block.
        """
        return bool(self._open.get(holder))

    async def roll_back_left_open(self, holder: Hashable, error: BaseException) -> None:
        for reference in self._open.get(holder, ()):
            block = reference()
            if block is not None:  # else the interpreter is about to end it
                with suppress(Exception):
                    await block.__aexit__(type(error), error, None)

    def _current(self) -> Hashable:
        return asyncio.current_task()

    # After the commit

    async def flush(self, hooks: Hooks) -> None:
        """Do what waited for a commit.

        Never raises: nothing that happens here undoes the commit.
        """
        await hooks.flush(self._flush_log)
        self.hook_failures += hooks.failures

    async def _flush_joined(self, hooks: Hooks) -> None:
        """The owner of a transaction believes that it was committed. That may be wrong: PostgreSQL
        answers the COMMIT of a broken transaction with a rollback. So observers are told only of
        what is in the database.
        """
        if self.engine.observers is not None:
            # If the database cannot be asked, the end without an error is believed.
            with suppress(Exception):
                await self.run(self.engine.observations(hooks).confirm())
        await self.flush(hooks)

    def _flush_enlisted(self, hooks: Hooks) -> Awaitable[None] | None:
        """The code that has committed does not wait for it; `close` does."""
        task = asyncio.create_task(self._flush_joined(hooks))
        self._flushes.add(task)
        task.add_done_callback(self._flushes.discard)
        return task


class SyncSessions(Sessions[Conn]):
    """The sessions of a sync client. Nothing here suspends."""

    def __init__(self, provider: SyncProvider[Conn], engine: Engine, *, migrate: bool) -> None:
        super().__init__(BlockingProvider(provider), engine, migrate=migrate)
        self._owner = provider

    def _current(self) -> Hashable:
        return threading.get_ident()

    def _flush_enlisted(self, hooks: Hooks) -> None:
        run_blocking(self._flush_joined(hooks))
