"""Which of a pool's connections may be used for what.

While a worker runs, some connections of its client are set aside: one for its urgent statements
(renewing leases, moving the horizon) and, in a pool of our own, two for its other ones. Handlers
cannot take these, however long their transactions last, and however many of them wait.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeAlias

from queuert.adapters.permits import Permits
from queuert.adapters.waiting import Waiting, holding
from queuert.ports.provider import Limit

MakeRoom: TypeAlias = Callable[[], Awaitable[None]]

OF_OWN_POOL = 3
"""For what is urgent, for claiming and for settling. All three overlap when there is much to do."""
OF_GIVEN_POOL = 1
"""For what is urgent."""


class Lane:
    """A share of the connections: at most `size` at a time."""

    def __init__(self, size: int, *, upkeep: bool) -> None:
        self.size = size
        self.permits = Permits(size)
        self.upkeep = upkeep
        """Only statements of the worker's own run here."""
        self.retired = False


class Lanes:
    def __init__(self, waiting: Waiting, size: int, most: int) -> None:
        """`most`: how many are set aside for workers, if the pool is large enough."""
        self.size = size
        self.main = Lane(size, upkeep=False)
        self.set_aside = max(0, min(most, size - 1))
        self._waiting = waiting
        self._worker: Lane | None = None
        self._urgent: Lane | None = None
        self._workers = 0
        self._reserving = waiting.lock()

    def lane_for(self, limit: Limit | None) -> Lane:
        """Calls of users, and all calls while no worker runs, share the main lane."""
        if limit is None:
            return self.main
        return (self._urgent if limit.urgent else self._worker) or self.main

    async def enter(self, lane: Lane, timeout: float | None) -> bool:
        """False: no connection was free in time."""
        try:
            return await lane.permits.take(self._waiting, timeout)
        except BaseException:
            if lane.retired:  # it may have been our turn
                self._return(lane)
            raise

    def leave(self, lane: Lane) -> None:
        lane.permits.give_back()
        if lane.retired:
            self._return(lane)

    async def reserve(self, timeout: float | None, make_room: MakeRoom | None = None) -> bool:
        """A worker begins: set its connections aside. False: they were not free in time.

        `make_room` closes what is idle beyond the permits of the main lane that are then free.
        """
        async with holding(self._reserving):
            if self._workers == 0:
                if not await self._take_aside(timeout, make_room):
                    return False
                if self.set_aside > 0:
                    self.main.size = self.size - self.set_aside
                    self._urgent = Lane(1, upkeep=True)
                if self.set_aside > 1:
                    self._worker = Lane(self.set_aside - 1, upkeep=True)
            self._workers += 1
            return True

    async def _take_aside(self, timeout: float | None, make_room: MakeRoom | None) -> bool:
        taken, done = 0, False
        try:
            while taken < self.set_aside and await self.enter(self.main, timeout):
                taken += 1
            if taken == self.set_aside:
                if make_room is not None:
                    await make_room()
                done = True
        finally:
            if not done:
                self.restore(taken)
        return done

    def retire(self) -> int:
        """A worker has ended. After the last one, nothing is set aside any more.

        Returns how many connections may now be idle that were set aside: `restore` them when they
        are closed. Those that are in use follow when they are given back.
        """
        self._workers -= 1
        if self._workers > 0:
            return 0
        retired = [lane for lane in (self._worker, self._urgent) if lane is not None]
        self._worker = self._urgent = None
        self.main.size = self.size
        for lane in retired:
            lane.retired = True
        return sum(lane.permits.take_free() for lane in retired)

    def restore(self, number: int) -> None:
        """This many connections of the main lane that were set aside can be used again."""
        for _ in range(number):
            self.main.permits.give_back()

    def close(self, error: BaseException) -> None:
        for lane in (self.main, self._worker, self._urgent):
            if lane is not None:
                lane.permits.close(error)

    def _return(self, lane: Lane) -> None:
        """The permits of a retired lane go back to where they came from."""
        self.restore(lane.permits.take_free())
