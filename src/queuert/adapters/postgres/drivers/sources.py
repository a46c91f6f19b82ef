"""Where connections come from: a pool of our own, the user's pool, or one connection of the user's.

Each driver has its own pools. This is what they share.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Generic, NamedTuple, Protocol, TypeVar

from queuert.adapters.postgres.drivers.driver import Driver, Status
from queuert.adapters.postgres.drivers.errors import unavailable
from queuert.adapters.waiting import Waiting, done, holding
from queuert.errors import ClientClosed, TransactionMisused, TransactionNested

C = TypeVar("C")


class Source(Protocol[C]):
    database: str | None
    """The name of the database, once it is known for sure."""

    async def take(self) -> C: ...

    async def give_back(self, connection: C) -> None: ...

    async def close(self) -> None:
        """Close what we have opened ourselves."""
        ...


class PoolOptions(NamedTuple):
    """The keywords of the providers, for a pool of our own."""

    prepare: bool
    max_size: int
    timeout: float


class OpenedOnce(ABC):
    """Opened when it is first used, closed once, and not opened again."""

    def __init__(self, waiting: Waiting) -> None:
        self._lock = waiting.lock()
        self._is_open = False
        self._closed = False

    async def open(self) -> None:
        async with holding(self._lock):
            if self._closed:
                raise ClientClosed("PostgreSQL provider")
            if not self._is_open:
                await self._open()
                self._is_open = True

    async def close(self) -> None:
        async with holding(self._lock):
            self._closed = True
            if self._is_open:
                await self._close()

    @abstractmethod
    async def _open(self) -> None: ...

    @abstractmethod
    async def _close(self) -> None: ...


class OneConnection(Generic[C]):
    """One connection of the user's. Callers use it one at a time."""

    database: str | None = None

    def __init__(self, driver: Driver[C], connection: C) -> None:
        self._driver = driver
        self._connection = connection
        self._lock = driver.waiting.lock()
        self._holder: object = None

    async def take(self) -> C:
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
