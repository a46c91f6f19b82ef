"""Time limits that count only the time in which this process runs.

After a pause of the whole process (SIGSTOP, a sleeping laptop, a blocked event loop) all timers
have ended, and answers that arrived meanwhile have not been read yet. A plain timeout would then
blame the other side. So a limit is divided into parts: a pause uses up only one of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from queuert.contexts import async_context

PARTS = 4


async def ended_within(seconds: float, task: asyncio.Task[Any]) -> bool:
    """Whether a task ends in time. It is not cancelled."""
    for _ in range(PARTS):
        done, _ = await asyncio.wait({task}, timeout=seconds / PARTS)
        if done:
            return True
    return False


@async_context
async def patient_timeout(seconds: float) -> AsyncIterator[None]:
    """Like `asyncio.timeout`."""
    loop = asyncio.get_running_loop()
    timers: list[asyncio.TimerHandle] = []

    def begin_part() -> None:
        is_last = len(timers) == PARTS - 1
        timers.append(loop.call_later(seconds / PARTS, end if is_last else begin_part))

    def end() -> None:
        timeout.reschedule(loop.time())

    begin_part()
    try:
        async with asyncio.timeout(None) as timeout:
            yield
    finally:
        timers[-1].cancel()
