"""Calls that must not stop half-way. A cancellation is passed on when they are done."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
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
    cancels that task, and here nothing tells its cancellation from that of others.
    """
    loop, cancelled, timer = asyncio.get_running_loop(), False, None
    try:
        while True:
            waited: asyncio.Future[Any] | None = call.send(None)
            if waited is not None:
                waited._asyncio_future_blocking = False  # what a task does with a future that it is given
            while waited is None or not waited.done():
                try:
                    await (asyncio.sleep(0) if waited is None else _done(loop, waited))
                    break
                except asyncio.CancelledError:
                    if not cancelled and give_up is not None:
                        timer = loop.call_later(CANCEL_PATIENCE, give_up)
                    cancelled = True
    except StopIteration as done:
        if cancelled:
            raise asyncio.CancelledError from None
        value: T = done.value
        return value
    except Exception:
        if cancelled:
            raise asyncio.CancelledError from None
        raise
    finally:
        call.close()
        if timer is not None:
            timer.cancel()


def _done(loop: asyncio.AbstractEventLoop, waited: asyncio.Future[Any]) -> asyncio.Future[None]:
    """Is done with the other one, and may be cancelled without it."""
    done: asyncio.Future[None] = loop.create_future()

    def wake(_: object) -> None:
        if not done.done():
            done.set_result(None)

    waited.add_done_callback(wake)
    return done


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
