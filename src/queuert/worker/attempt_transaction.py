"""The transaction of an attempt, in which a phase of its handler runs and the job may be settled.

It begins by checking the claim. With `lock`, it also locks the job, and other transactions that
need the job wait. So every handler locks its job first, before the rows that user code locks and
writes.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import AbstractAsyncContextManager, suppress
from typing import Any, Generic

from typing_extensions import TypeVar

from queuert.client.sessions import Sessions
from queuert.contexts import async_context
from queuert.errors import OwnershipLost
from queuert.model import Settlement
from queuert.operations.settle import announce_last, last_command, settle
from queuert.transaction import OpenTransaction, Transaction
from queuert.worker.abort import lost_reason
from queuert.worker.claim import Claim

Conn = TypeVar("Conn", default=Any)


class AttemptTransaction(Generic[Conn]):
    """Opened, and then committed or rolled back, by calls instead of a block: it may stay open
    after its phase.
    """

    def __init__(self, sessions: Sessions[Conn], claim: Claim, *, lock: bool) -> None:
        self._sessions = sessions
        self._claim = claim
        self._lock = lock
        self._tx: OpenTransaction[Conn] | None = None
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
        raise NotImplementedError

    async def has_ended_inside(self) -> bool:
        """Whether the job was ended or deleted in this transaction."""
        raise NotImplementedError

    async def take_away(self) -> bool:
        """The handler has not ended in time: undo the transaction without it.

        False if the driver cannot do that.
        """
        raise NotImplementedError

    async def roll_back(self, error: BaseException | None = None) -> None:
        """Undo it. If code inside has ended it before, `error` gets a note about that."""
        raise NotImplementedError

    def cut_off(self) -> bool:
        """Close its connection at once, even while it is being ended: the database is silent, or
        the attempt does not end. What the handler, or the worker, waits for in this transaction
        fails.

        False if the driver cannot do that.
        """
        return self._tx is None or self._sessions.abandon(self._tx)

    @async_context
    async def _block(self) -> AsyncIterator[OpenTransaction[Conn]]:
        job_id, token, state = self._claim.row.id, self._claim.token, self._sessions.engine.state
        self._refuse_if_overdue()
        async with self._sessions.transaction(state.hold(job_id, token, lock=self._lock)) as tx:
            if not tx.first:
                (row,) = await self._sessions.run(state.get_jobs([job_id]), tx.connection)
                raise OwnershipLost(job_id, lost_reason(row, token) or "taken_by_another_worker")
            self._tx = tx
            yield tx

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
    """Runs in a separate task, so that a cancellation of the handler's task does not affect it."""

    def __init__(self, sessions: Sessions[Conn], claim: Claim, *, lock: bool) -> None:
        super().__init__(sessions, claim, lock=lock)
        loop = asyncio.get_running_loop()
        self._opened: asyncio.Future[Transaction[Conn]] = loop.create_future()
        self._end: asyncio.Future[Settlement | None] = loop.create_future()
        """What to settle before the commit, or the error to roll back with."""
        self._task: asyncio.Task[bool] | None = None
        self._notes: Iterable[str] = ()

    async def open(self) -> Transaction[Conn]:
        if self._task is None:
            self._task = asyncio.create_task(self._run())
        return await asyncio.shield(self._opened)

    async def commit(self, settlement: Settlement | None = None) -> bool:
        if not self._end.done():
            self._end.set_result(settlement)
        return True if self._task is None else await self._task

    async def has_ended_inside(self) -> bool:
        return self._opened.done() and await self._has_ended_in(self._opened.result())

    async def roll_back(self, error: BaseException | None = None) -> None:
        if self._task is None:
            return
        if not self._opened.done():
            # It may still wait for a connection or for the lock of the job. Stop that: the
            # transaction is not needed any more.
            self._task.cancel()
        elif not (self._task.done() or self._end.done()):
            self._end.set_exception(_RollBack())
        await asyncio.wait({self._task})
        if not self._task.cancelled():
            self._task.exception()  # if there is one, the connection is gone, and the transaction with it
        if error is not None:
            for note in self._notes:
                error.add_note(note)

    async def take_away(self) -> bool:
        # Before the rollback: the handler may be using the connection, and may keep it.
        self.cut_off()
        await self.roll_back()
        return True

    async def _run(self) -> bool:
        applied = True
        try:
            async with self._block() as tx:
                self._opened.set_result(tx)
                settlement = await self._end
                if settlement is not None:
                    applied = await self._settle(tx, settlement)
        except _RollBack as undone:
            self._notes = dict.fromkeys(getattr(undone, "__notes__", ()))
        except BaseException as error:
            if self._opened.done():
                raise
            self._opened.set_exception(error)
            self._opened.exception()  # marks it as retrieved: the handler may have ended
        return applied


class TransactionInThread(AttemptTransaction[Conn]):
    """It is opened and ended in the thread of a plain `def` handler. Nothing here suspends."""

    _open: tuple[AbstractAsyncContextManager[Any, None], OpenTransaction[Conn]] | None = None

    async def open(self) -> Transaction[Conn]:
        if self._open is None:
            block = self._block()
            self._open = block, await block.__aenter__()
            try:
                # Once more, in case `take_away` came too early to see the transaction.
                self._refuse_if_overdue()
            except OwnershipLost as error:
                await self.roll_back(error)
                raise
        return self._open[1]

    async def commit(self, settlement: Settlement | None = None) -> bool:
        applied = True
        if self._open is not None:
            block, tx = self._open
            try:
                self._refuse_if_overdue()
                if settlement is not None:
                    applied = await self._settle(tx, settlement)
            except BaseException as error:
                await self.roll_back(error)
                raise
            self._open = None
            await block.__aexit__(None, None, None)
        return applied

    async def has_ended_inside(self) -> bool:
        return self._open is not None and await self._has_ended_in(self._open[1])

    async def roll_back(self, error: BaseException | None = None) -> None:
        if self._open is not None:
            block, _ = self._open
            self._open = None
            error = error or _RollBack()
            # Another error here would only hide the one that caused the rollback.
            with suppress(BaseException):
                await block.__aexit__(type(error), error, error.__traceback__)

    async def take_away(self) -> bool:
        """The thread itself ends the block, when its handler ends."""
        return self.cut_off()


class _RollBack(BaseException):
    """Raised inside the transaction's block to make it roll back."""
