"""The lock of a single writer: fair, and shared by asyncio tasks and threads.

A release hands the lock to the caller that has waited longest, so that no later caller can overtake
it. A waiting caller has a future, which is either granted or cancelled, and never both.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Generator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any, NamedTuple

from queuert.errors import StorageBusy, TransactionNested


class _Caller(NamedTuple):
    """A task on the event loop of a thread, or (task None) the thread itself."""

    thread: int
    task: asyncio.Task[Any] | None


class _Waiter(Future[None]):
    def __init__(self, caller: _Caller) -> None:
        super().__init__()
        self.caller = caller

    def grant(self) -> bool:
        """Hand over the lock.

        False: the caller has stopped waiting, or its event loop is closed.
        """
        task = self.caller.task
        if (task is not None and task.get_loop().is_closed()) or not self.set_running_or_notify_cancel():
            return False
        self.set_result(None)
        return True


class FairLock:
    """First come, first served. A caller that has waited `timeout` seconds gets `StorageBusy`.

    `storage` is the name of the storage, for error messages.
    """

    def __init__(self, timeout: float, storage: str) -> None:
        self._timeout = timeout
        self._storage = storage
        # Held for a few instructions only, so coroutines may take it too. Reentrant, because the
        # garbage collector may close an abandoned coroutine that waits here, at any allocation.
        self._mutex = threading.RLock()
        self._holder: _Caller | None = None
        self._waiters: deque[_Waiter] = deque()

    @property
    def locked(self) -> bool:
        return self._holder is not None

    @property
    def waiting(self) -> int:
        return len(self._waiters)

    def acquire(self) -> None:
        """Take the lock, blocking this thread."""
        waiter = self._enter(_Caller(threading.get_ident(), None))
        if waiter is not None:
            with self._until_granted(waiter):
                waiter.result(self._timeout)

    async def acquire_async(self) -> None:
        """Take the lock, suspending this task only."""
        waiter = self._enter(_Caller(threading.get_ident(), asyncio.current_task()))
        if waiter is not None:
            with self._until_granted(waiter):
                async with asyncio.timeout(self._timeout):
                    await asyncio.wrap_future(waiter)

    def release(self) -> None:
        with self._mutex:
            self._holder = None
            while self._waiters:
                waiter = self._waiters.popleft()
                if waiter.grant():
                    self._holder = waiter.caller
                    return

    def disown(self) -> None:
        """Something other than the holder will release the lock. So the holder may now wait for it
        again.
        """
        with self._mutex:
            self._holder = _Caller(0, None)

    def _enter(self, caller: _Caller) -> _Waiter | None:
        """Take the lock if it is free; else put the caller at the end of the queue."""
        with self._mutex:
            holder = self._holder
            if holder is None:
                self._holder = caller
                return None
            # If a thread waits for a task of its own event loop, it blocks that task.
            if holder.thread == caller.thread and (caller.task is None or holder.task in (None, caller.task)):
                what = "thread" if caller.task is None else "task"
                raise TransactionNested(
                    f"this {what} has a transaction open on {self._storage}, and would wait for itself: "
                    "use the transaction that is open"
                )
            waiter = _Waiter(caller)
            self._waiters.append(waiter)
            return waiter

    @contextmanager
    def _until_granted(self, waiter: _Waiter) -> Generator[None, None, None]:
        """Wraps the waiting. If it fails, a lock that was granted at that moment is not lost."""
        try:
            yield
        except BaseException as error:
            granted = not waiter.cancel()
            with self._mutex:
                if waiter in self._waiters:
                    self._waiters.remove(waiter)
            if not isinstance(error, TimeoutError):
                if granted:
                    self.release()
                raise
            if not granted:
                raise StorageBusy(
                    f"another transaction of this process has held the write lock of {self._storage} "
                    f"for {self._timeout:g} s"
                ) from None
