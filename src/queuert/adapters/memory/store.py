"""The store: the data, its clock, and the rules by which commands and transactions touch it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TypeVar

from queuert.adapters.memory.command import Command, Write
from queuert.adapters.memory.committed import CommittedView
from queuert.adapters.memory.lock import FairLock
from queuert.adapters.memory.tables import Tables

T = TypeVar("T")

Clock = Callable[[], datetime]


class MemoryStore:
    """Jobs in memory, to be shared by any number of adapters, tasks and threads.

    `clock` tells the time (aware, in UTC): give your own to let time pass in tests. A transaction or a mutation that
    has waited `busy_timeout` seconds for the single writer's lock raises `StorageBusy`.
    """

    def __init__(self, clock: Clock | None = None, *, busy_timeout: float = 30.0) -> None:
        self.clock = clock or _utc_now
        self.writer = FairLock(busy_timeout)
        """Held by the open transaction, or for the one command of a mutation outside any."""
        self._mutex = threading.Lock()
        """Held while a command is carried out, which never waits for anything."""
        self._tables = Tables(self.clock())

    def run(self, command: Command[T], *, in_transaction: bool) -> T:
        """Carry out a command: all of it, or nothing. A write needs the writer's lock, which its caller holds."""
        with self._mutex:
            tables = self._tables
            if isinstance(command, Write):
                return self._change(command)
            uncommitted = bool(tables.log) and not in_transaction
            return command.function(CommittedView(tables) if uncommitted else tables, self.clock())

    def run_and_commit(self, command: Write[T]) -> T:
        with self._mutex:
            result = self._change(command)
            self._tables.log.clear()
            return result

    def mark(self) -> int:
        """A point of the open transaction that `roll_back` can return to."""
        return len(self._tables.log)

    def roll_back(self, mark: int = 0) -> None:
        with self._mutex:
            self._tables.undo(mark)

    def commit(self) -> None:
        with self._mutex:
            self._tables.log.clear()

    def _change(self, command: Write[T]) -> T:
        tables = self._tables
        tables.now = self.clock()
        mark = len(tables.log)
        try:
            return command.function(tables)
        except BaseException:
            tables.undo(mark)
            raise


def _utc_now() -> datetime:
    return datetime.now(UTC)
