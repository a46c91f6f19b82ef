"""Where connections come from: a pool of our own (`pool`), the user's pool, or one connection of
the user's (`one_connection`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from typing import Generic, NamedTuple, TypeVar

from queuert.adapters.postgres.drivers.errors import unavailable
from queuert.adapters.postgres.drivers.lanes import OF_GIVEN_POOL, Lane, Lanes
from queuert.adapters.waiting import Waiting
from queuert.ports.provider import Limit

C = TypeVar("C")

RESERVE_TIMEOUT = 30.0
"""Seconds that a worker waits at its start for connections that are in use."""


class Source(ABC, Generic[C]):
    database: str | None = None
    """The name of the database, once it is known for sure."""
    lanes: Lanes | None = None
    """How many connections there are, if that is known."""

    @abstractmethod
    async def take(self, limit: Limit | None) -> C:
        """With a limit: for a statement of the worker's own."""

    def take_now(self, limit: Limit | None) -> C | None:  # noqa: ARG002
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
        self.lanes = Lanes(waiting, size, OF_GIVEN_POOL)
        self._timeout = timeout
        self._taken: dict[int, Lane] = {}

    async def take(self, limit: Limit | None, acquire: Callable[[], Awaitable[C]]) -> C:
        lane = self.lanes.lane_for(limit)
        if not await self.lanes.enter(lane, self._timeout):
            raise unavailable(f"{lane.size} connections of the pool were in use for {self._timeout:g} s")
        try:
            connection = await acquire()
        except BaseException:
            self.lanes.leave(lane)
            raise
        self._taken[id(connection)] = lane
        return connection

    def leave(self, connection: C) -> None:
        self.lanes.leave(self._taken.pop(id(connection)))

    async def reserve(self) -> None:
        if not await self.lanes.reserve(RESERVE_TIMEOUT):
            raise unavailable(f"all {self.lanes.size} connections were in use for {RESERVE_TIMEOUT:g} s")

    def unreserve(self) -> None:
        self.lanes.restore(self.lanes.retire())


class GivenPool(Source[C]):
    """The user's pool. The user opens and closes it."""

    def __init__(self, gate: Gate[C]) -> None:
        self._gate = gate
        self.lanes = gate.lanes

    @abstractmethod
    async def acquire(self, limit: Limit | None) -> C: ...

    @abstractmethod
    async def release(self, connection: C) -> None: ...

    async def take(self, limit: Limit | None) -> C:
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
