"""Threads that hold connections and work for event loops.

A thread of our own and one queue cost less for a call than an executor's machinery. What was begun is carried out
to its end, also if the task that wants it is cancelled: `finish` waits for that, so that a connection is never used
by two at once.
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

from queuert.adapters.sqlite import session
from queuert.errors import ClientClosed, TransactionMisused

T = TypeVar("T")


class Seat:
    """A thread's place at the database: its connection, opened when it is first needed and after it was lost."""

    def __init__(self, open_connection: Callable[[], sqlite3.Connection]) -> None:
        self._open = open_connection
        self._connection: sqlite3.Connection | None = None

    @property
    def is_open(self) -> bool:
        return self._connection is not None

    def take(self) -> sqlite3.Connection:
        """A connection that rests: one that was left in some other state is given up."""
        if self._connection is not None and not session.is_at_rest(self._connection):
            self.leave()
        if self._connection is None:
            self._connection = self._open()
        return self._connection

    def held(self) -> sqlite3.Connection:
        """The connection that was taken before, as it is now."""
        if self._connection is None:
            raise TransactionMisused(session.ENDED_INSIDE)
        return self._connection

    def leave(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


class Work(Generic[T]):
    """One call on its way to a thread and back."""

    __slots__ = ("_crew", "finished", "future", "loop", "on_finish", "task")

    def __init__(self, crew: Threads, task: Callable[[Seat], T]) -> None:
        self._crew = crew
        self.task = task
        self.loop = asyncio.get_running_loop()
        self.future: asyncio.Future[T] = self.loop.create_future()
        self.finished = False
        self.on_finish: Callable[[], None] | None = None

    def run(self, seat: Seat) -> None:
        """In the thread."""
        result: Any = None
        error: BaseException | None = None
        try:
            result = self.task(seat)
        except BaseException as raised:
            error = raised
        with suppress(RuntimeError):  # the loop was closed: nobody waits any more
            self.loop.call_soon_threadsafe(self._resolve, result, error)

    def _resolve(self, result: T, error: BaseException | None) -> None:
        """Back on the event loop."""
        self.finished = True
        self._crew.busy -= 1
        if not self.future.done():
            if error is None:
                self.future.set_result(result)
            else:
                self.future.set_exception(error)
        if self.on_finish is not None:
            self.on_finish()


async def finish(work: Work[T]) -> T:
    """The result of a call. A cancellation is passed on only when the thread is done with it."""
    try:
        return await work.future
    except asyncio.CancelledError:
        while not work.finished:
            done: asyncio.Future[None] = work.loop.create_future()
            work.on_finish = _resolver(done)
            try:
                await done
            except asyncio.CancelledError:
                continue
        raise


class Threads:
    """Up to `size` threads with one queue, started as they are needed."""

    def __init__(self, name: str, size: int, open_connection: Callable[[], sqlite3.Connection]) -> None:
        self._name = name
        self._size = size
        self._open = open_connection
        self._queue: SimpleQueue[Work[Any] | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._closed = False
        self.busy = 0
        """Calls under way. Counted on the event loop, so no lock is needed."""

    def submit(self, task: Callable[[Seat], T]) -> Work[T]:
        if self._closed:
            raise ClientClosed("SQLite provider")
        work = Work(self, task)
        self._queue.put(work)
        self.busy += 1
        if len(self._threads) < min(self.busy, self._size):
            self._start()
        return work

    async def close(self) -> None:
        """Let what was submitted run to its end, close the connections, and wait for the threads."""
        self._closed = True
        for _ in self._threads:
            self._queue.put(None)
        threads, self._threads = self._threads, []
        for thread in threads:
            await asyncio.get_running_loop().run_in_executor(None, thread.join)

    def _start(self) -> None:
        name = f"{self._name}-{len(self._threads) + 1}"
        thread = threading.Thread(target=self._serve, name=name, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _serve(self) -> None:
        seat = Seat(self._open)
        try:
            while (work := self._queue.get()) is not None:
                work.run(seat)
                del work  # an idle thread keeps nothing alive
        finally:
            seat.leave()


def _resolver(future: asyncio.Future[None]) -> Callable[[], None]:
    def resolve() -> None:
        if not future.done():
            future.set_result(None)

    return resolve
