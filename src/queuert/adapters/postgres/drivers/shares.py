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
from queuert.ports.provider import TimeLimit

MakeRoom: TypeAlias = Callable[[], Awaitable[None]]

OF_OWN_POOL = 3
"""For what is urgent, for claiming and for settling. All three overlap when there is much to do."""
OF_GIVEN_POOL = 1
"""For what is urgent."""


class Share:
    """A share of the connections: at most `size` at a time."""

    def __init__(self, size: int, *, upkeep: bool) -> None:
        self.size = size
        self.permits = Permits(size)
        self.upkeep = upkeep
        """Only statements of the worker's own run here."""
        self.retired = False


class Shares:
    def __init__(self, waiting: Waiting, size: int, most: int) -> None:
        """`most`: how many are set aside for workers, if the pool is large enough."""
        self.size = size
        self.main = Share(size, upkeep=False)
        self.set_aside = max(0, min(most, size - 1))
        self._waiting = waiting
        self._worker: Share | None = None
        self._urgent: Share | None = None
        self._workers = 0
        self._reserving = waiting.lock()

    def share_for(self, limit: TimeLimit | None) -> Share:
        """The main share is for calls of users, and for all calls while no worker runs."""
        if limit is None:
            return self.main
        return (self._urgent if limit.urgent else self._worker) or self.main

    async def enter(self, share: Share, timeout: float | None) -> bool:
        """False: no connection was free in time."""
        try:
            return await share.permits.take(self._waiting, timeout)
        except BaseException:
            if share.retired:  # it may have been our turn
                self._return(share)
            raise

    def leave(self, share: Share) -> None:
        share.permits.give_back()
        if share.retired:
            self._return(share)

    async def reserve(self, timeout: float | None, make_room: MakeRoom | None = None) -> bool:
        """A worker begins: set its connections aside. False: they were not free in time.

        `make_room` closes what is idle beyond the permits of the main share that are then free.
        """
        async with holding(self._reserving):
            if self._workers == 0:
                if not await self._take_aside(timeout, make_room):
                    return False
                if self.set_aside > 0:
                    self.main.size = self.size - self.set_aside
                    self._urgent = Share(1, upkeep=True)
                if self.set_aside > 1:
                    self._worker = Share(self.set_aside - 1, upkeep=True)
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
        retired = [share for share in (self._worker, self._urgent) if share is not None]
        self._worker = self._urgent = None
        self.main.size = self.size
        for share in retired:
            share.retired = True
        return sum(share.permits.take_free() for share in retired)

    def restore(self, number: int) -> None:
        """This many connections of the main share that were set aside can be used again."""
        for _ in range(number):
            self.main.permits.give_back()

    def close(self, error: BaseException) -> None:
        for share in (self.main, self._worker, self._urgent):
            if share is not None:
                share.permits.close(error)

    def _return(self, share: Share) -> None:
        """The permits of a retired share go back to where they came from."""
        self.restore(share.permits.take_free())
