"""Threads that own connections and work for event loops.

A thread of our own with one queue costs less per call than an executor. A call that has begun is
carried out to its end, even if the task that waits for it is cancelled. `finish` waits for that
end, so that a connection is never used by two callers at once.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

from queuert.adapters.finishing import wait_out
from queuert.adapters.sqlite.connections.own import OwnConnection
from queuert.errors import ClientClosed

T = TypeVar("T")

_ending = threading.Lock()
"""An interrupt must not hit the call after the one that it is for."""


class Call(Generic[T]):
    """A function that a thread will run, and its result."""

    __slots__ = ("_function", "_loop", "_own", "_threads", "done", "result")

    def __init__(self, threads: Threads, function: Callable[[OwnConnection], T]) -> None:
        self._threads = threads
        self._function = function
        self._own: OwnConnection | None = None
        """The connection that it runs on, while it runs."""
        self._loop = asyncio.get_running_loop()
        self.result: asyncio.Future[T] = self._loop.create_future()
        """To be awaited by one task. If that is cancelled, this is cancelled too."""
        self.done: asyncio.Future[None] = self._loop.create_future()
        """Set when the thread has finished, whether a result is still wanted or not."""

    def run(self, own: OwnConnection) -> None:
        """In the thread."""
        result: Any = None
        error: BaseException | None = None
        own.given_up = self.result.cancelled
        self._own = own
        try:
            result = self._function(own)
        except BaseException as raised:
            error = raised
        with _ending:
            self._own = None
        with suppress(RuntimeError):  # the loop was closed: no task waits any more
            self._loop.call_soon_threadsafe(self._back, result, error)

    def interrupt(self) -> None:
        """Make it fail soon, if it is running. What the operating system does is not interrupted,
        nor is waiting for another process's lock."""
        with _ending:
            if self._own is not None:
                self._own.interrupt()

    def _back(self, result: T, error: BaseException | None) -> None:
        """On the event loop again."""
        self._threads.busy -= 1
        if not self.result.done():
            if error is None:
                self.result.set_result(result)
            else:
                self.result.set_exception(error)
        if not self.done.done():
            self.done.set_result(None)


async def finish(call: Call[T]) -> T:
    """The result of a call. A cancellation is passed on only when the thread has finished."""
    try:
        return await call.result
    except asyncio.CancelledError:
        await wait_out(call.done)
        raise


class Threads:
    """Up to `size` threads with one queue, started when they are needed."""

    def __init__(self, name: str, size: int, make: Callable[[], OwnConnection]) -> None:
        self._name = name
        self._size = size
        self._make = make
        self._queue: SimpleQueue[Call[Any] | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._closed = False
        self.busy = 0
        """Calls under way. Only the event loop changes it, so it needs no lock."""

    def submit(self, function: Callable[[OwnConnection], T]) -> Call[T]:
        if self._closed:
            raise ClientClosed("SQLite provider")
        call = Call(self, function)
        self._queue.put(call)
        self.busy += 1
        if len(self._threads) < min(self.busy, self._size):
            name = f"{self._name}-{len(self._threads) + 1}"
            thread = threading.Thread(target=self._serve, name=name, daemon=True)
            self._threads.append(thread)
            thread.start()
        return call

    async def close(self) -> None:
        """Let submitted calls run to their end, close the connections, and wait for the threads."""
        self._closed = True
        for _ in self._threads:
            self._queue.put(None)
        threads, self._threads = self._threads, []
        for thread in threads:
            await asyncio.get_running_loop().run_in_executor(None, thread.join)

    def _serve(self) -> None:
        own = self._make()
        try:
            while (call := self._queue.get()) is not None:
                call.run(own)
                del call  # an idle thread keeps nothing alive
        finally:
            own.close()
