"""The transaction of an attempt, in which a phase of its handler runs and the job may be settled.

It begins by checking the claim. With `lock`, it also locks the job, and other transactions that
need the job wait. So every handler locks its job first, before the rows that user code locks and
writes.
"""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager
from typing import Any, Generic, TypeAlias

from typing_extensions import TypeVar

from queuert.base.transaction import Transaction
from queuert.engine.operations.ending import announce_last, last_command, settle
from queuert.engine.sessions import Sessions
from queuert.engine.transaction import OpenTransaction
from queuert.errors import OwnershipLost
from queuert.records.model import Settlement
from queuert.worker.base.abort import lost_reason
from queuert.worker.handlers.claim import Claim

Conn = TypeVar("Conn", default=Any)

_Entered: TypeAlias = tuple[AbstractAsyncContextManager[Any, None], OpenTransaction[Conn]]


class AttemptTransaction(Generic[Conn]):
    """Opened, and then committed or rolled back, by calls instead of a block: it may stay open
    after its phase.
    """

    def __init__(self, sessions: Sessions[Conn], claim: Claim, *, lock: bool) -> None:
        self._sessions = sessions
        self._claim = claim
        self._lock = lock
        self._tx: OpenTransaction[Conn] | None = None
        self._open: _Entered[Conn] | None = None
        """The block, from when it is entered until it is left."""
        self.left_dependents = False
        """The settlement has left dependents to be freed later."""

    async def open(self) -> Transaction[Conn]:
        """Begin, unless it has begun. Raises `OwnershipLost` if the claim is over."""
        raise NotImplementedError

    async def commit(self, settlement: Settlement | None = None) -> bool:
        """Settle the job, if a settlement is given, and commit. An error rolls back and is raised.

        False if the job was ended or deleted in this transaction: then that is committed, and the
        settlement has no effect.
        """
        applied = True
        if self._open is not None:
            block, tx = self._open
            try:
                self._check_commit()
                if settlement is not None:
                    applied = await self._settle(tx, settlement)
            except BaseException as error:
                await self.roll_back(error)
                raise
            self._open = None
            await block.__aexit__(None, None, None)
        return applied

    def _check_commit(self) -> None:
        """Raise if it must be rolled back."""

    async def has_ended_inside(self) -> bool:
        """Whether the job was ended or deleted in this transaction."""
        return self._open is not None and await self._has_ended_in(self._open[1])

    async def take_away(self) -> bool:
        """The handler has not ended in time: undo the transaction without it.

        False if the driver cannot do that.
        """
        raise NotImplementedError

    async def roll_back(self, error: BaseException | None = None) -> None:
        """Undo it. If code inside has ended it before, `error` gets a note about that."""
        if self._open is not None:
            block, _ = self._open
            self._open = None
            await _leave(block, error or _RollBack())

    def cut_off(self) -> bool:
        """Close its connection at once, even while it is being ended: the database is silent, or
        the attempt does not end. What the handler, or the worker, waits for in this transaction
        fails.

        False if the driver cannot do that.
        """
        return self._tx is None or self._sessions.abandon(self._tx)

    async def _begin(self) -> OpenTransaction[Conn]:
        """Enter the block."""
        self._refuse_if_overdue()
        block, tx = await self._enter(self._lock)
        if not tx.first:
            try:
                raise await self._lost(tx)
            except BaseException as error:
                await _leave(block, error)
                raise
        self._tx = tx
        self._open = block, tx
        return tx

    async def _enter(self, lock: bool) -> _Entered[Conn]:
        program = self._sessions.engine.state.hold(self._claim.row.id, self._claim.token, lock=lock)
        block = self._sessions.transaction(program)
        return block, await block.__aenter__()

    async def _lost(self, tx: OpenTransaction[Conn]) -> OwnershipLost:
        job_id = self._claim.row.id
        (row,) = await self._sessions.run(self._sessions.engine.state.get_jobs([job_id]), tx.connection)
        return OwnershipLost(job_id, lost_reason(row, self._claim.token) or "taken_by_another_worker")

    def _refuse_if_overdue(self) -> None:
        if self._claim.overdue:
            raise OwnershipLost(self._claim.row.id, "timeout")

    async def _settle(self, tx: OpenTransaction[Conn], settlement: Settlement) -> bool:
        row = self._claim.row
        if await self._settle_and_commit(tx, settlement):
            return True
        program = settle(self._sessions.engine, tx.hooks, [(row, settlement)])
        settled = await self._sessions.run(program, tx.connection)
        if not (settled.applied[0] or self._lock):
            raise OwnershipLost(row.id, "taken_by_another_worker")
        self.left_dependents = settled.more
        # The transaction has locked the claim: nothing but itself can have ended it.
        return settled.applied[0]

    async def _settle_and_commit(self, tx: OpenTransaction[Conn], settlement: Settlement) -> bool:
        """In one message, if that can be done. False: neither is done."""
        engine = self._sessions.engine
        command = last_command(engine, settlement) if self._lock else None
        if command is None or not await self._sessions.commit_with(tx, command):
            return False
        announce_last(engine, tx.hooks, self._claim.row, settlement)
        return True

    async def _has_ended_in(self, tx: Transaction[Conn]) -> bool:
        program = self._sessions.engine.state.hold(self._claim.row.id, self._claim.token, lock=False)
        return self._lock and not await self._sessions.run(program, tx.connection)


class TransactionInTask(AttemptTransaction[Conn]):
    """It is opened in the task of an `async def` handler, and ended there or in another one."""

    _opener: asyncio.Task[Any] | None = None
    """The task that is opening it."""
    _opening_ended: asyncio.Future[None] | None = None
    """Set when the opening has ended, for code that waits for it."""

    async def open(self) -> Transaction[Conn]:
        if self._open is not None:
            return self._open[1]
        self._opener = asyncio.current_task()
        try:
            return await self._begin()
        finally:
            self._opener = None
            if self._opening_ended is not None:
                self._opening_ended.set_result(None)
                self._opening_ended = None

    async def roll_back(self, error: BaseException | None = None) -> None:
        if self._opener is not None:
            # It waits for a connection or for the lock of the job. Stop that: the transaction is
            # not needed any more.
            self._opener.cancel()
            if self._opening_ended is None:
                self._opening_ended = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._opening_ended)
        await super().roll_back(error)

    async def take_away(self) -> bool:
        # Before the rollback: the handler may be using the connection, and may keep it.
        self.cut_off()
        await self.roll_back()
        return True


class TransactionInThread(AttemptTransaction[Conn]):
    """It is opened and ended in the thread of a plain `def` handler. Nothing here suspends."""

    async def open(self) -> Transaction[Conn]:
        if self._open is not None:
            return self._open[1]
        tx = await self._begin()
        try:
            # Once more, in case `take_away` came too early to see the transaction.
            self._refuse_if_overdue()
        except OwnershipLost as error:
            await self.roll_back(error)
            raise
        return tx

    def _check_commit(self) -> None:
        self._refuse_if_overdue()

    async def take_away(self) -> bool:
        """The thread itself ends the block, when its handler ends."""
        return self.cut_off()


async def _leave(block: AbstractAsyncContextManager[Any, None], error: BaseException) -> None:
    """Leave a block with an error. Another error here would only hide that one."""
    try:
        await block.__aexit__(type(error), error, error.__traceback__)
    except BaseException as raised:
        if raised is not error and isinstance(raised, asyncio.CancelledError):
            raise  # the running task is cancelled


class _RollBack(BaseException):
    """Raised inside the transaction's block to make it roll back."""
