"""The transaction of an attempt: it holds the claim, and outlives whatever becomes of the handler's task."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Generic

from typing_extensions import TypeVar

from queuert.client.client import Client
from queuert.errors import OwnershipLost
from queuert.model import JobRow
from queuert.ports.program import answered
from queuert.transaction import Transaction
from queuert.worker.abort import lost_reason
from queuert.worker.held import Held

Conn = TypeVar("Conn", default=Any)


class AttemptTransaction(Generic[Conn]):
    """A transaction that lives in a task of its own, so that nothing that happens to the handler's task touches it.

    It begins by looking at the claim. With `lock`, whoever wants the job waits for us from there on, and what user code
    locks and writes comes after the job, in every handler alike.
    """

    def __init__(self, client: Client[Conn], held: Held, *, lock: bool) -> None:
        self._client = client
        self._held = held
        self._lock = lock
        self._opened: asyncio.Future[Transaction[Conn]] = asyncio.get_running_loop().create_future()
        self._verdict: asyncio.Future[Callable[[Transaction[Conn]], Awaitable[None]]] = (
            asyncio.get_running_loop().create_future()
        )
        self._task: asyncio.Task[None] | None = None
        self._notes: Iterable[str] = ()

    async def open(self) -> Transaction[Conn]:
        """Begin, and look at the claim; `OwnershipLost` if it is over."""
        if self._task is None:
            self._task = asyncio.create_task(self._hold())
        return await asyncio.shield(self._opened)

    async def commit(self, last: Callable[[Transaction[Conn]], Awaitable[None]] | None = None) -> None:
        """Do `last` in the transaction, then commit; an error rolls back and is raised."""
        if not self._verdict.done():
            self._verdict.set_result(last or _nothing)
        if self._task is not None:
            await self._task

    async def roll_back(self, error: BaseException | None = None) -> None:
        """Undo it. If that was not possible, because code inside had ended it, `error` gets a note about that."""
        if self._task is None:
            return
        if not self._opened.done():
            # It may be waiting, for a connection or for whoever has locked the job. Nobody needs it any more.
            self._task.cancel()
        elif not self._verdict.done():
            self._verdict.set_result(_roll_back)
        await asyncio.wait({self._task})
        if not self._task.cancelled():
            self._task.exception()  # if there is one, the connection is gone, and the transaction with it
        if error is not None:
            for note in self._notes:
                error.add_note(note)

    async def _hold(self) -> None:
        client = self._client
        try:
            hold = client.engine.state.hold(self._held.row.id, self._held.token, lock=self._lock)
            block = client._provider.transaction(next(hold))
            async with client._begin(block) as tx:
                if not answered(hold, block.answer):
                    raise lost(await self._read(tx), self._held)
                self._opened.set_result(tx)
                last = await self._verdict
                await last(tx)
        except _RollBack as undone:
            self._notes = dict.fromkeys(getattr(undone, "__notes__", ()))
        except BaseException as error:
            if self._opened.done():
                raise
            self._opened.set_exception(error)
            self._opened.exception()  # the handler may be gone: nobody has to look at it

    async def _read(self, tx: Transaction[Conn]) -> JobRow | None:
        (row,) = await self._client._run((self._client.engine.state.get_jobs([self._held.row.id]), tx.connection))
        return row


def lost(row: JobRow | None, held: Held) -> OwnershipLost:
    """What a claim that is over ends its attempt with."""
    return OwnershipLost(held.row.id, lost_reason(row, held.token) or "taken_by_another_worker")


class _RollBack(BaseException):
    """Leaves the transaction's block by its error path."""


async def _roll_back(_tx: Transaction[Any]) -> None:
    raise _RollBack


async def _nothing(_tx: Transaction[Any]) -> None:
    return
