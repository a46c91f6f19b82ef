"""Calls that must not stop half-way. A cancellation is passed on when they are done."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


async def finish(call: Coroutine[Any, Any, T]) -> T:
    """Run a call to its end, even if we are cancelled. For COMMIT, ROLLBACK and giving back."""
    task = asyncio.ensure_future(call)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await wait_out(task)
        raise


async def cancel_and_finish(call: Coroutine[Any, Any, T]) -> T:
    """Run a call. If we are cancelled, cancel it once, and let it clean up to the end."""
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
        task.exception()  # marks it as retrieved: our caller gets the cancellation
