"""A limited number of permits, first come, first served, shared by asyncio tasks and threads."""

from __future__ import annotations

import threading
from collections import deque
from concurrent.futures import Future

from queuert.adapters.waiting import Waiting


class Permits:
    """A permit that is given back goes to the caller that has waited longest.

    A waiting caller costs a future, and nothing else: thousands may wait.
    """

    def __init__(self, number: int) -> None:
        self._free = number
        self._waiters: deque[Future[None]] = deque()
        self._closed: BaseException | None = None
        # Held for a few instructions only. Reentrant, because the garbage collector may close an
        # abandoned coroutine that waits here, at any allocation.
        self._mutex = threading.RLock()

    async def take(self, waiting: Waiting, timeout: float | None) -> bool:
        """False: none was free in time. Raises the error of `close`."""
        with self._mutex:
            if self._closed is not None:
                raise self._closed
            if self._free > 0:
                self._free -= 1
                return True
            waiter: Future[None] = Future()
            self._waiters.append(waiter)
        try:
            await waiting.result(waiter, timeout)
        except TimeoutError:
            return not waiter.cancel()  # it may have been granted at that moment
        except BaseException:
            if not waiter.cancel() and waiter.exception() is None:
                self.give_back()
            raise
        return True

    def give_back(self) -> None:
        with self._mutex:
            while self._waiters:
                waiter = self._waiters.popleft()
                if waiter.set_running_or_notify_cancel():
                    waiter.set_result(None)
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
            waiters, self._waiters = self._waiters, deque()
        for waiter in waiters:
            if waiter.set_running_or_notify_cancel():
                waiter.set_exception(error)
