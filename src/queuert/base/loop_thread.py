"""An event loop in a thread, for sync code that needs async libraries.

One thread serves the whole process. It starts with the first call and ends when its last user
closes. A forked child starts a thread of its own.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import CancelledError, Future
from typing import TypeVar

from queuert.errors import ClientClosed, NotifyUnavailable

T = TypeVar("T")
Work = Callable[[], Awaitable[T]]

CALL_SECONDS = 20.0
"""After which a call is given up. This is a last resort: calls have shorter limits of their own."""


class Runner:
    """Runs coroutines for sync code."""

    def run(self, work: Work[T]) -> T:
        """Run this and return its result."""
        raise NotImplementedError

    def begin(self, work: Work[T]) -> Future[T]:
        """Start this."""
        raise NotImplementedError

    def run_or_begin(self, work: Work[None]) -> None:
        """Like `run`.

        On an event loop's own thread, which cannot wait for itself, the work is only started.
        """
        self.run(work)

    def close(self, last: Work[None]) -> None:
        """Run `last`, then end."""
        self.run(last)


class LoopUser(Runner):
    """One user's share of the thread."""

    def __init__(self) -> None:
        self._thread: _LoopThread | None = None
        self._closed = False

    def run(self, work: Work[T]) -> T:
        return _result(self.begin(work))

    def begin(self, work: Work[T]) -> Future[T]:
        with _Shared.mutex:
            if self._closed:
                raise ClientClosed("notify adapter")
            if self._thread is None or not self._thread.is_alive():  # a thread does not survive a fork
                self._thread = _join()
            return self._thread.submit(work)

    def run_or_begin(self, work: Work[None]) -> None:
        thread = self._thread
        if thread is not None and thread is threading.current_thread():
            thread.submit(work)
        else:
            self.run(work)

    def close(self, last: Work[None]) -> None:
        with _Shared.mutex:
            self._closed = True
            try:
                thread = self._thread or _join()
            except RuntimeError:  # nothing was run, and the interpreter shuts down: no thread can start
                return
            self._thread = None
        if not thread.is_alive():  # it is the parent process's
            return
        future = thread.submit(last)
        if thread is threading.current_thread():
            future.add_done_callback(lambda _: _leave(thread))
            return
        try:
            _result(future)
        finally:
            _leave(thread)


def _result(future: Future[T]) -> T:
    try:
        return future.result(CALL_SECONDS)
    except CancelledError as error:  # the loop ended first
        raise ClientClosed("notify adapter") from error
    except TimeoutError as error:
        if future.done():
            raise
        raise NotifyUnavailable(f"the notification channel did not answer within {CALL_SECONDS:g} s") from error
    finally:
        future.cancel()


class _LoopThread(threading.Thread):
    def __init__(self) -> None:
        super().__init__(name="queuert-notify", daemon=True)
        self.users = 0
        # psycopg needs a selector loop; on Windows that is not the default.
        self._runner = asyncio.Runner(loop_factory=asyncio.SelectorEventLoop)
        self._loop = self._runner.get_loop()
        self._ended = asyncio.Event()

    def run(self) -> None:
        with self._runner:
            self._runner.run(self._until_ended())

    async def _until_ended(self) -> None:
        await self._ended.wait()

    def submit(self, work: Work[T]) -> Future[T]:
        async def call() -> T:
            return await work()

        return asyncio.run_coroutine_threadsafe(call(), self._loop)

    def end(self) -> None:
        self._loop.call_soon_threadsafe(self._ended.set)
        if self is not threading.current_thread():
            self.join(CALL_SECONDS)


class _Shared:
    mutex = threading.Lock()
    """Guards `thread`, and each user's reference to it."""
    thread: _LoopThread | None = None


def _join() -> _LoopThread:
    if _Shared.thread is None or not _Shared.thread.is_alive():
        _Shared.thread = _LoopThread()
        _Shared.thread.start()
    _Shared.thread.users += 1
    return _Shared.thread


def _leave(thread: _LoopThread) -> None:
    with _Shared.mutex:
        thread.users -= 1
        if thread.users:
            return
        if _Shared.thread is thread:
            _Shared.thread = None
    thread.end()


def _after_fork() -> None:
    _Shared.mutex = threading.Lock()  # another thread of the parent may have held it
    _Shared.thread = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
