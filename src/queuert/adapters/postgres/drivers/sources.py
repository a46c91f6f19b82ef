"""Where connections come from: a pool of our own (`pool`), the user's pool, or one connection of
the user's (`one_connection`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from typing import Generic, NamedTuple, TypeVar

from queuert.adapters.postgres.drivers.errors import unavailable
from queuert.adapters.postgres.drivers.shares import OF_GIVEN_POOL, Share, Shares
from queuert.adapters.waiting import Waiting
from queuert.ports.provider import TimeLimit

C = TypeVar("C")

RESERVE_TIMEOUT = 30.0
"""Seconds that a worker waits at its start for connections that are in use."""


class Source(ABC, Generic[C]):
    database: str | None = None
    """The name of the database, once it is known for sure."""
    shares: Shares | None = None
    """How many connections there are, if that is known."""

    @abstractmethod
    async def take(self, limit: TimeLimit | None) -> C:
        """With a limit: for a statement of the worker's own."""

    def take_now(self, limit: TimeLimit | None) -> C | None:  # noqa: ARG002
        """`take`, if nothing has to be awaited. None: something has to be."""
        return None

    @abstractmethod
    async def give_back(self, connection: C) -> None: ...

    def give_back_now(self, connection: C) -> bool:  # noqa: ARG002
        """`give_back`, if nothing has to be sent or awaited. False: something has to be."""
        return False

    @abstractmethod
    async def close(self) -> None:
        """Close what we have opened ourselves."""

    def distrust_idle(self) -> None:
        """A connection has hung, so those that are idle may hang too."""

    async def reserve(self, statement_timeout: float) -> None:
        """Set connections aside for a worker."""

    async def unreserve(self) -> None:
        """The worker has ended."""


class PoolOptions(NamedTuple):
    """The keywords of the providers, for a pool of our own."""

    prepare: bool
    max_size: int
    timeout: float


class Gate(Generic[C]):
    """For connections of the user's, whose number is known: while a worker renews leases, we use
    one of them less for everything else."""

    def __init__(self, waiting: Waiting, size: int, timeout: float | None) -> None:
        """`timeout`: seconds to wait for a connection; None: no limit."""
        self.shares = Shares(waiting, size, OF_GIVEN_POOL)
        self._timeout = timeout
        self._taken: dict[int, Share] = {}

    async def take(self, limit: TimeLimit | None, acquire: Callable[[], Awaitable[C]]) -> C:
        share = self.shares.share_for(limit)
        if not await self.shares.enter(share, self._timeout):
            raise unavailable(f"{share.size} connections of the pool were in use for {self._timeout:g} s")
        try:
            connection = await acquire()
        except BaseException:
            self.shares.leave(share)
            raise
        self._taken[id(connection)] = share
        return connection

    def leave(self, connection: C) -> None:
        self.shares.leave(self._taken.pop(id(connection)))

    async def reserve(self) -> None:
        if not await self.shares.reserve(RESERVE_TIMEOUT):
            raise unavailable(f"all {self.shares.size} connections were in use for {RESERVE_TIMEOUT:g} s")

    def unreserve(self) -> None:
        self.shares.restore(self.shares.retire())


class GivenPool(Source[C]):
    """The user's pool. The user opens and closes it."""

    def __init__(self, gate: Gate[C]) -> None:
        self._gate = gate
        self.shares = gate.shares

    @abstractmethod
    async def acquire(self, limit: TimeLimit | None) -> C: ...

    @abstractmethod
    async def release(self, connection: C) -> None: ...

    async def take(self, limit: TimeLimit | None) -> C:
        return await self._gate.take(limit, lambda: self.acquire(limit))

    async def give_back(self, connection: C) -> None:
        try:
            await self.release(connection)
        finally:
            self._gate.leave(connection)

    async def reserve(self, statement_timeout: float) -> None:  # noqa: ARG002
        """The settings of the user's connections are the user's."""
        await self._gate.reserve()

    async def unreserve(self) -> None:
        self._gate.unreserve()

    async def close(self) -> None:
        """It is the user's."""
