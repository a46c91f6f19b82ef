"""The lock of the single writer: fair, and shared by asyncio tasks and threads.

A release hands the lock straight to the longest-waiting caller, so nobody who comes later can overtake. The short
`_mutex` inside is only ever held for a few instructions, which is why coroutines may take it too.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from typing import Any

from queuert.errors import StorageBusy, TransactionNested

Task = asyncio.Task[Any]


class _Party:
    """Who holds the lock or waits for it: a task on the event loop of a thread, or (task None) the thread itself."""

    __slots__ = ("granted", "task", "thread")

    def __init__(self, task: Task | None) -> None:
        self.task = task
        self.thread = threading.get_ident()
        self.granted = False

    def wake(self) -> None:
        """Tell a waiting party that the lock is its own now. Raises RuntimeError if nobody is left to be told."""


class _TaskWaiter(_Party):
    __slots__ = ("future", "loop")

    def __init__(self, task: Task | None) -> None:
        super().__init__(task)
        self.loop = asyncio.get_running_loop()
        self.future: asyncio.Future[None] = self.loop.create_future()

    def wake(self) -> None:
        if self.thread == threading.get_ident():
            self._resolve()
        else:
            self.loop.call_soon_threadsafe(self._resolve)

    def _resolve(self) -> None:
        if not self.future.done():
            self.future.set_result(None)


class _ThreadWaiter(_Party):
    __slots__ = ("event",)

    def __init__(self) -> None:
        super().__init__(None)
        self.event = threading.Event()

    def wake(self) -> None:
        self.event.set()


class FairLock:
    """First come, first served. `timeout` seconds without the lock raise `StorageBusy`."""

    def __init__(self, timeout: float) -> None:
        self._timeout = timeout
        # Reentrant, because the garbage collector may close an abandoned waiter's coroutine at any allocation.
        self._mutex = threading.RLock()
        self._holder: _Party | None = None
        self._waiters: deque[_Party] = deque()

    @property
    def locked(self) -> bool:
        return self._holder is not None

    @property
    def waiting(self) -> int:
        return len(self._waiters)

    def acquire(self) -> None:
        """Take the lock, blocking this thread."""
        with self._mutex:
            holder = self._holder
            if holder is None:
                self._holder = _Party(None)
                return
            # A task of this thread's event loop could never release the lock while the thread is blocked.
            if holder.thread == threading.get_ident():
                raise _nested("thread")
            waiter = _ThreadWaiter()
            self._waiters.append(waiter)
        try:
            granted = waiter.event.wait(self._timeout)
        except BaseException:
            self._give_up(waiter)
            raise
        if not granted and self._withdraw(waiter):
            raise self._busy()

    async def acquire_async(self) -> None:
        """Take the lock, suspending this task only."""
        task = asyncio.current_task()
        with self._mutex:
            holder = self._holder
            if holder is None:
                self._holder = _Party(task)
                return
            if holder.task is task or (holder.task is None and holder.thread == threading.get_ident()):
                raise _nested("task")
            waiter = _TaskWaiter(task)
            self._waiters.append(waiter)
        try:
            async with asyncio.timeout(self._timeout):
                await waiter.future
        except TimeoutError:
            if self._withdraw(waiter):
                raise self._busy() from None
        except BaseException:
            self._give_up(waiter)
            raise

    def release(self) -> None:
        with self._mutex:
            self._pass_on()

    def _pass_on(self) -> None:
        while self._waiters:
            waiter = self._waiters.popleft()
            try:
                waiter.wake()
            except RuntimeError:
                continue  # its event loop is closed: nobody would ever release the lock again
            waiter.granted = True
            self._holder = waiter
            return
        self._holder = None

    def _withdraw(self, waiter: _Party) -> bool:
        """Stop waiting. False: too late, the lock has been handed over already."""
        with self._mutex:
            if waiter.granted:
                return False
            if waiter in self._waiters:  # else it was passed over
                self._waiters.remove(waiter)
            return True

    def _give_up(self, waiter: _Party) -> None:
        """Stop waiting for good: a lock that was handed over in the meantime goes to the next in line."""
        if not self._withdraw(waiter):
            self.release()

    def _busy(self) -> StorageBusy:
        return StorageBusy(f"another transaction has held the memory store's write lock for {self._timeout:g} s")


def _nested(what: str) -> TransactionNested:
    return TransactionNested(
        f"this {what} has a transaction open on the memory store, and would wait for itself: "
        "use the transaction that is open"
    )
