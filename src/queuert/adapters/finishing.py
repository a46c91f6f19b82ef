"""Calls that must not stop half-way. A cancellation is passed on when they are done."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator
from contextvars import Context
from typing import Any, TypeVar

T = TypeVar("T")

CANCEL_PATIENCE = 2.0
"""Seconds for the server to answer a cancellation. A server that is silent does not answer it."""


async def finish(call: Coroutine[Any, Any, T], give_up: Callable[[], object] | None = None) -> T:
    """Run a call to its end, even if we are cancelled. For COMMIT, ROLLBACK and giving back.

    `give_up` is called if the call has not ended `CANCEL_PATIENCE` after a cancellation. It makes
    the call fail.
    """
    task = asyncio.ensure_future(call)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        if give_up is None:
            await wait_out(task)
        else:
            timer = asyncio.get_running_loop().call_later(CANCEL_PATIENCE, give_up)
            await wait_out(task)
            timer.cancel()
        raise


async def finish_here(call: Coroutine[Any, Any, T], give_up: Callable[[], object] | None = None) -> T:
    """`finish` without a task of its own, which would cost as much as a short message.

    Only for a call that does not use the running task itself. `asyncio.timeout`, for example,
    cancels that task, and nothing here can distinguish its cancellation from others.
    """
    until = _Until(give_up)
    try:
        while True:
            waited: asyncio.Future[Any] | None = call.send(None)
            while True:
                try:
                    await (asyncio.sleep(0) if waited is None else until.done(waited))
                except asyncio.CancelledError:
                    if waited is None or not waited.cancelled():
                        until.cancel()
                except Exception:  # of the future: the call gets it, too
                    pass
                if waited is None or waited.done():
                    break
    except StopIteration as done:
        if until.cancelled:
            raise asyncio.CancelledError from None
        value: T = done.value
        return value
    except Exception:
        if until.cancelled:
            raise asyncio.CancelledError from None
        raise
    finally:
        call.close()
        if until.timer is not None:
            until.timer.cancel()


class _Until:
    """What a task waits for instead of a future: it is done with that future, in the same turn of
    the event loop, but a cancellation of the task is only noted.

    It has what asyncio asks of the futures of other libraries.
    """

    __slots__ = ("_asyncio_future_blocking", "_future", "_give_up", "cancelled", "timer")

    def __init__(self, give_up: Callable[[], object] | None) -> None:
        self._give_up = give_up
        self._future: asyncio.Future[Any]
        self._asyncio_future_blocking = False
        self.cancelled = False
        self.timer: asyncio.TimerHandle | None = None

    def done(self, future: asyncio.Future[Any]) -> _Until:
        self._future = future
        future._asyncio_future_blocking = False  # what a task does with a future that it is given
        return self

    def __await__(self) -> Generator[_Until, None, None]:
        self._asyncio_future_blocking = True
        yield self

    def get_loop(self) -> asyncio.AbstractEventLoop:
        return self._future.get_loop()

    def add_done_callback(self, callback: Callable[..., object], *, context: Context | None = None) -> None:
        self._future.add_done_callback(callback, context=context)

    def cancel(self, msg: object = None) -> bool:  # noqa: ARG002
        if not self.cancelled and self._give_up is not None:
            self.timer = asyncio.get_running_loop().call_later(CANCEL_PATIENCE, self._give_up)
        self.cancelled = True
        return True


async def cancel_and_finish(call: Coroutine[Any, Any, T], give_up: Callable[[], object]) -> T:
    """Run a call. If we are cancelled, cancel it once, and let it clean up to the end. If it has
    not ended after `CANCEL_PATIENCE`, `give_up` is called, and it is cancelled again."""
    task = asyncio.ensure_future(call)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        task.cancel()

        def enough() -> None:
            give_up()
            task.cancel()

        timer = asyncio.get_running_loop().call_later(CANCEL_PATIENCE, enough)
        await wait_out(task)
        timer.cancel()
        raise


async def wait_out(task: asyncio.Future[Any]) -> None:
    """Wait until the future is done, even if we are cancelled meanwhile."""
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError:
            continue
    if not task.cancelled():
        task.exception()  # marks it as retrieved: our caller gets the cancellation
