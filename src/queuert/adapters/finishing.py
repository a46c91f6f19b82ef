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
