"""A limited number of permits, first come, first served, shared by asyncio tasks and threads."""

from __future__ import annotations

import threading
from collections import deque

from queuert.adapters.waiting import Waiter, Waiting


class Permits:
    """A permit that is given back goes to the caller that has waited longest.

    Thousands may wait: a waiting caller costs no more than its place in the queue.
    """

    def __init__(self, number: int) -> None:
        self._free = number
        self._waiters: deque[Waiter] = deque()
        self._closed: BaseException | None = None
        # Held for a few instructions only. Reentrant, because the garbage collector may close an
        # abandoned coroutine that waits here, at any allocation.
        self._mutex = threading.RLock()

    @property
    def free(self) -> int:
        """A permit that a caller has, or is about to get, is not free."""
        return self._free

    def take_now(self) -> bool:
        """Without waiting. False: none is free, or this is closed."""
        with self._mutex:
            if self._free <= 0 or self._closed is not None:
                return False
            self._free -= 1
            return True

    async def take(self, waiting: Waiting, timeout: float | None) -> bool:
        """False: none was free in time. Raises the error of `close`."""
        with self._mutex:
            if self._closed is not None:
                raise self._closed
            if self._free > 0:
                self._free -= 1
                return True
            waiter = waiting.waiter()
            self._waiters.append(waiter)
        try:
            await waiter.wait(timeout)
        except BaseException:
            with self._mutex:
                waiter.gone = True
                if waiter.woken and self._closed is None:  # it was our turn at the same moment
                    self.give_back()
            raise
        with self._mutex:
            waiter.gone = True
            if waiter.woken and self._closed is not None:
                raise self._closed
            return waiter.woken

    def give_back(self) -> None:
        with self._mutex:
            while self._waiters:
                if self._waiters.popleft().wake():
                    return
            self._free += 1

    def take_free(self) -> int:
        """Take all permits that are free; how many they were."""
        with self._mutex:
            number, self._free = self._free, 0
            return number

    def close(self, error: BaseException) -> None:
        """All that wait, and all that come later, get this error."""
        with self._mutex:
            self._closed = error
            while self._waiters:
                self._waiters.popleft().wake()
