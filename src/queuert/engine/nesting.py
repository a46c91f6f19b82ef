"""Which tasks and threads have a transaction of the client open.

A task that opened a second one could wait for itself for ever. One that has ended may have left a
transaction open.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Hashable, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from typing import Any, Generic, TypeAlias, TypeVar

from queuert.base.transaction import Transaction
from queuert.engine.transaction import OpenTransaction
from queuert.errors import TransactionNested

Conn = TypeVar("Conn")

OpenBlock: TypeAlias = Sequence[weakref.ref[AbstractAsyncContextManager[Any, None]]]
"""The block of a transaction; empty for a transaction that another task has opened."""

NESTED = (
    "client.transaction() inside another one of the same task or thread: pass the outer tx on, or use "
    "client.savepoint(tx) for a part that may fail on its own"
)


class OpenBlocks(Generic[Conn]):
    """A holder is a task, or the id of a thread. `current` returns the one that is running."""

    def __init__(self, current: Callable[[], Hashable]) -> None:
        self._current = current
        self._open: dict[Hashable, OpenBlock] = {}
        self._lock = threading.Lock()
        self._lent: dict[Hashable, OpenTransaction[Conn]] = {}
        """The transactions of phases, by the holder whose phase it is."""

    def enter(self, holder: Hashable, block: OpenBlock = ()) -> None:
        """It begins to use a transaction."""
        with self._lock:
            if holder in self._open:
                raise TransactionNested(NESTED)
            self._open[holder] = block

    def leave(self, holder: Hashable) -> None:
        with self._lock:
            self._open.pop(holder, None)
            self._lent.pop(holder, None)

    def check_outside(self) -> None:
        """Raise if the running one is inside of a transaction."""
        if self._current() in self._open:
            raise TransactionNested(NESTED)

    def lend(self, tx: Transaction[Conn]) -> None:
        """The running one, which has entered, is in a phase with this transaction."""
        if isinstance(tx, OpenTransaction):
            self._lent[self._current()] = tx

    def lent(self) -> OpenTransaction[Conn] | None:
        """The open transaction of the phase that the running one is in."""
        lent = self._lent.get(self._current()) if self._lent else None
        return lent if lent is not None and lent.is_open else None

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
