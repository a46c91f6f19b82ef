"""The calls that wait, for code that is written once for event loops and for threads.

See `queuert.base.blocking`: in a thread, every call blocks until it is done.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from concurrent.futures import Future
from typing import Any, Protocol, TypeAlias, TypeVar

from queuert.adapters import finishing
from queuert.base.contexts import async_context

T = TypeVar("T")
AnyLock: TypeAlias = "asyncio.Lock | threading.Lock"


class Alarm(Protocol):
    def cancel(self) -> None: ...


class Waiter:
    """One that waits until it is woken: here a thread.

    Its owner guards `wake`, `gone` and `woken` by a lock.
    """

    __slots__ = ("_signal", "gone", "woken")

    def __init__(self) -> None:
        self.gone = False
        """It no longer waits."""
        self.woken = False
        self._signal = threading.Lock()
        self._signal.acquire()

    async def wait(self, timeout: float | None) -> None:
        """Until it is woken, or for this time."""
        self._signal.acquire(timeout=-1 if timeout is None else timeout)

    def wake(self) -> bool:
        """May be called from any thread, once. False: it no longer waits."""
        if self.gone:
            return False
        self.woken = True
        self._signal.release()
        return True


class _LoopWaiter(Waiter):
    """A task. It is mostly woken by another one of its own loop: then that loop needs no signal."""

    __slots__ = ("_future",)

    def __init__(self) -> None:
        self.gone = self.woken = False
        self._future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def wait(self, timeout: float | None) -> None:
        if timeout is None:
            await self._future
            return
        alarm = self._future.get_loop().call_later(timeout, self._end)
        try:
            await self._future
        finally:
            alarm.cancel()

    def wake(self) -> bool:
        if self.gone:
            return False
        loop = self._future.get_loop()
        if asyncio._get_running_loop() is loop:
            self._end()
        else:
            try:
                loop.call_soon_threadsafe(self._end)
            except RuntimeError:  # the loop is closed
                return False
        self.woken = True
        return True

    def _end(self) -> None:
        if not self._future.done():
            self._future.set_result(None)


class Waiting:
    """The calls that wait, or depend on what is waiting: here for a thread, which blocks."""

    unit = "thread"

    def lock(self) -> AnyLock:
        return threading.Lock()

    def current(self) -> object:
        """The thread or task that is running."""
        return threading.get_ident()

    def cancellations(self) -> int:
        """How often the running task was asked to cancel."""
        return 0

    def waiter(self) -> Waiter:
        """The thread or task that is running, to be woken by another one."""
        return Waiter()

    async def sleep(self, seconds: float) -> None:
        time.sleep(seconds)  # noqa: ASYNC251  # nothing else runs here

    async def finish(self, call: Coroutine[Any, Any, T], give_up: Callable[[], object] | None = None) -> T:  # noqa: ARG002
        """Run a call to its end, even if the task that waits for it is cancelled. `give_up` is
        called if that takes long after a cancellation, and makes the call fail."""
        return await call

    async def finish_plain(self, call: Coroutine[Any, Any, T]) -> T:
        """`finish` for a call that only waits for answers of the driver."""
        return await self.finish(call)

    async def cancel_and_finish(self, call: Coroutine[Any, Any, T], give_up: Callable[[], object]) -> T:  # noqa: ARG002
        """Run a call. If the task that waits for it is cancelled, cancel the call too, and let it
        clean up. `give_up` is called if that takes long, and makes it end."""
        return await call

    async def result(self, future: Future[T], timeout: float | None) -> T:
        """The result of a future that another thread or task sets. Raises `TimeoutError`."""
        return future.result(timeout)

    def alarm(self, seconds: float, ring: Callable[[], object]) -> Alarm:
        """Call a function after this time, unless the alarm is cancelled before."""
        timer = threading.Timer(seconds, ring)
        timer.daemon = True
        timer.start()
        return timer

    async def connecting(self, call: Coroutine[Any, Any, T], seconds: float) -> T:  # noqa: ARG002
        """Run a call that connects. Raises `TimeoutError`. A thread cannot be interrupted: there,
        the driver's own limit applies."""
        return await call


class _OnLoop(Waiting):
    unit = "task"

    def lock(self) -> AnyLock:
        return asyncio.Lock()

    def current(self) -> object:
        return asyncio.current_task()

    def waiter(self) -> Waiter:
        return _LoopWaiter()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def cancellations(self) -> int:
        task = asyncio.current_task()
        return 0 if task is None else task.cancelling()

    async def finish(self, call: Coroutine[Any, Any, T], give_up: Callable[[], object] | None = None) -> T:
        return await finishing.finish(call, give_up)

    async def cancel_and_finish(self, call: Coroutine[Any, Any, T], give_up: Callable[[], object]) -> T:
        return await finishing.cancel_and_finish(call, give_up)

    async def result(self, future: Future[T], timeout: float | None) -> T:
        async with asyncio.timeout(timeout):
            return await asyncio.wrap_future(future)

    def alarm(self, seconds: float, ring: Callable[[], object]) -> Alarm:
        return asyncio.get_running_loop().call_later(seconds, ring)

    async def connecting(self, call: Coroutine[Any, Any, T], seconds: float) -> T:
        async with asyncio.timeout(seconds):
            return await call


class _OnLoopPlainly(_OnLoop):
    """For a driver that waits for its answers without timeouts."""

    async def finish_plain(self, call: Coroutine[Any, Any, T]) -> T:
        return await finishing.finish_here(call)


IN_THREAD = Waiting()
ON_LOOP: Waiting = _OnLoop()
ON_LOOP_PLAINLY: Waiting = _OnLoopPlainly()


async def done(result: Any) -> Any:
    """The result of a library that has its classes twice, async and sync: awaited, or as it is."""
    return await result if hasattr(result, "__await__") else result


@async_context
async def holding(lock: AnyLock) -> AsyncIterator[None]:
    await done(lock.acquire())
    try:
        yield
    finally:
        lock.release()
