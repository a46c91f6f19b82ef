"""How long the steps of a stop may take."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

SETTLE = (1.0, 10.0)
"""Seconds, at least and at most, for the results of handlers to be settled when the worker
stops."""
CLOSE = 2.5
"""Seconds for each of the four last steps, which are quick unless the database hangs. A statement
that is cancelled takes up to 2 s then."""
CLEAN_UP = (1.0, 5.0)
"""Seconds, at least and at most, for cancelled handlers to end when the worker stops."""


def longest_stop(shutdown_timeout: float) -> float:
    """How long `stop` takes at most."""
    return shutdown_timeout + between(shutdown_timeout, CLEAN_UP) + between(shutdown_timeout, SETTLE) + 4 * CLOSE


def between(seconds: float, limits: tuple[float, float]) -> float:
    return min(max(seconds, limits[0]), limits[1])


async def within(timeout: float, work: Coroutine[Any, Any, None]) -> bool:
    """Whether this ended in time. If not, it is cancelled."""
    task = asyncio.ensure_future(work)
    await asyncio.wait({task}, timeout=timeout)
    if not task.done():
        task.cancel()
        return False
    return True
