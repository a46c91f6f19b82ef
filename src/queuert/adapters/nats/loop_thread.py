"""An event loop in a thread, for sync code. One serves the whole process, for as long as anybody uses it."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import CancelledError, Future
from typing import TypeVar

from queuert.errors import ClientClosed, NotifyUnavailable

T = TypeVar("T")


class Loop:
    """One user's part in the thread, which is started for the first call that anybody makes."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._thread: _LoopThread | None = None
        self._closed = False

    def run(self, work: Callable[[], Awaitable[T]]) -> T:
        """Do this in the loop, and wait for what comes of it."""
        future = self._submit(work)
        try:
            return future.result()
        except CancelledError as error:  # the thread has ended over it
            raise ClientClosed("notify adapter") from error
        except BaseException:
            future.cancel()  # nobody waits for it any more
            raise

    def run_from_anywhere(self, work: Callable[[], Awaitable[None]]) -> None:
        """The same, but in the loop's own thread, where nobody can wait, it is only begun."""
        if self._thread is threading.current_thread():
            self._submit(work)
        else:
            self.run(work)

    def close(self, last: Callable[[], Awaitable[None]]) -> None:
        """Do this, unless nothing was done before, and leave the thread."""
        with self._mutex:
            self._closed = True
            thread, self._thread = self._thread, None
        if thread is None or not thread.is_alive():
            return
        future = thread.submit(last)
        if thread is threading.current_thread():
            future.add_done_callback(lambda _: _leave(thread))
            return
        try:
            future.result()
        finally:
            _leave(thread)

    def _submit(self, work: Callable[[], Awaitable[T]]) -> Future[T]:
        with self._mutex:
            if self._closed:
                raise ClientClosed("notify adapter")
            if self._thread is None:
                self._thread = _join()
            if not self._thread.is_alive():
                raise NotifyUnavailable("this process was forked, and left the connection to NATS behind: connect anew")
            return self._thread.submit(work)


class _LoopThread(threading.Thread):
    def __init__(self) -> None:
        super().__init__(name="queuert-nats", daemon=True)
        self.users = 0
        self._ready = threading.Event()

    def begin(self) -> None:
        self.start()
        self._ready.wait()

    def run(self) -> None:
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._ended = asyncio.Event()
        self._ready.set()
        await self._ended.wait()

    def submit(self, work: Callable[[], Awaitable[T]]) -> Future[T]:
        async def call() -> T:
            return await work()

        return asyncio.run_coroutine_threadsafe(call(), self._loop)

    def end(self) -> None:
        self._loop.call_soon_threadsafe(self._ended.set)
        if self is not threading.current_thread():
            self.join()


class _Shared:
    mutex = threading.Lock()
    thread: _LoopThread | None = None


def _join() -> _LoopThread:
    with _Shared.mutex:
        if _Shared.thread is None:
            _Shared.thread = _LoopThread()
            _Shared.thread.begin()
        _Shared.thread.users += 1
        return _Shared.thread


def _leave(thread: _LoopThread) -> None:
    with _Shared.mutex:
        thread.users -= 1
        if thread.users:
            return
        _Shared.thread = None
    thread.end()


def _after_fork() -> None:
    """A thread does not come along."""
    _Shared.mutex = threading.Lock()
    _Shared.thread = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
