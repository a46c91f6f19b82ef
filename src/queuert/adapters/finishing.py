"""Calls that cannot be given up half-way: a cancellation is passed on when they are done."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


async def finish(call: Coroutine[Any, Any, T]) -> T:
    """Let the call run to its end, whatever happens to us meanwhile. For COMMIT, ROLLBACK and giving back."""
    task = asyncio.ensure_future(call)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await wait_out(task)
        raise


async def cancel_and_finish(call: Coroutine[Any, Any, T]) -> T:
    """Cancel the call once, when we are cancelled, and let it clean up: nothing cuts that short."""
    task = asyncio.ensure_future(call)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        task.cancel()
        await wait_out(task)
        raise


async def wait_out(task: asyncio.Future[Any]) -> None:
    """Wait until the future is done, even if we are cancelled meanwhile."""
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError:
            continue
    if not task.cancelled():
        task.exception()  # it has been seen: the cancellation is what our caller hears of
