"""A `WaitTimeout` explains why the chain has not ended."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from queuert.errors import WaitTimeout
from queuert.features.why import Blocked, FailedBefore, Why

logger = logging.getLogger("queuert.client")

READ_SECONDS = 1.0
"""How long reading the explanation may take."""


async def explain_timeout(error: WaitTimeout, read: Callable[[str], Awaitable[Why]]) -> None:
    """Add the explanation, unless it cannot be read in time.

    In a task of its own: a database that hangs may also take long to cancel a statement.
    """
    reading = asyncio.ensure_future(read(error.chain_id))
    try:
        await asyncio.wait({reading}, timeout=READ_SECONDS)
    finally:
        reading.add_done_callback(_forget)
        if not reading.done():
            reading.cancel()
    if reading.done() and not reading.cancelled() and reading.exception() is None:
        _add(error, reading.result())


def explain_timeout_sync(error: WaitTimeout, read: Callable[[str], Why]) -> None:
    """Add the explanation, unless it cannot be read."""
    try:
        why = read(error.chain_id)
    except Exception:
        logger.debug("could not read why chain %s has not ended", error.chain_id, exc_info=True)
    else:
        _add(error, why)


def _add(error: WaitTimeout, why: Why) -> None:
    error.why = why
    error.add_note(str(why))
    first = why.reasons[0] if why.reasons else None
    told = (isinstance(first, Blocked) and error.failed_blockers) or (
        isinstance(first, FailedBefore) and error.last_error
    )
    if first is not None and not told:
        error.args = (f"{error.args[0]}; {first}",)


def _forget(reading: asyncio.Future[Why]) -> None:
    if not reading.cancelled() and (failure := reading.exception()) is not None:
        logger.debug("could not read why a chain has not ended: %r", failure)
