"""The store: the committed version of the data, its clock, and the lock of its single writer."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

from queuert.adapters.fair_lock import FairLock
from queuert.adapters.memory.tables import Tables

Clock = Callable[[], datetime]


class MemoryStore:
    """Jobs in memory, to be shared by any number of adapters, tasks and threads.

    `clock` returns the time (aware, in UTC): pass your own to control time in tests. A transaction
    or a mutation that has waited `busy_timeout` seconds for the write lock raises `StorageBusy`.
    """

    def __init__(self, clock: Clock | None = None, *, busy_timeout: float = 30.0) -> None:
        self.clock = clock or _utc_now
        self.writer = FairLock(busy_timeout, "the memory store")
        """Held by the transaction that is open."""
        self.committed = Tables(self.clock())
        """Never changed, only replaced: it can be read at any time without a lock."""


def _utc_now() -> datetime:
    return datetime.now(UTC)
