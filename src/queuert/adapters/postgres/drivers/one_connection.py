"""One connection of the user's as a source of connections."""

from __future__ import annotations

from typing import TypeVar

from queuert.adapters.postgres.drivers.driver import Driver, Status
from queuert.adapters.postgres.drivers.errors import unavailable
from queuert.adapters.postgres.drivers.sources import Source
from queuert.adapters.waiting import done
from queuert.errors import TransactionMisused, TransactionNested
from queuert.ports.provider import TimeLimit

C = TypeVar("C")


class OneConnection(Source[C]):
    """One connection of the user's. Callers use it one at a time."""

    def __init__(self, driver: Driver[C], connection: C) -> None:
        self._driver = driver
        self._connection = connection
        self._lock = driver.waiting.lock()
        self._holder: object = None

    async def take(self, limit: TimeLimit | None) -> C:  # noqa: ARG002
        waiting = self._driver.waiting
        if self._holder is not None and self._holder == waiting.current():
            raise TransactionNested(
                f"this {waiting.unit} has a transaction open on the only connection and would wait for itself: "
                "use the transaction that is open, or give the provider a pool"
            )
        await done(self._lock.acquire())
        try:
            self._check()
        except BaseException:
            self._lock.release()
            raise
        self._holder = waiting.current()
        return self._connection

    async def give_back(self, connection: C) -> None:  # noqa: ARG002
        self._holder = None
        self._lock.release()

    async def close(self) -> None:
        """It is the user's."""

    def _check(self) -> None:
        if self._driver.is_open(self._connection):
            raise TransactionMisused(
                "the only connection of the provider is inside a transaction of yours: join that with "
                "after_commit(connection) and pass tx on, or give the provider a pool"
            )
        if self._driver.status(self._connection) in (Status.CLOSED, Status.LOST):
            raise unavailable("the connection that was given is closed")
