"""A time limit that counts only the time in which this process runs.

After a pause of the whole process (SIGSTOP, a sleeping laptop, a blocked event loop) all timers
have ended, and answers that arrived meanwhile have not been read yet. A plain timeout would then
blame the other side. So the limit is divided into parts: a pause uses up only one of them.
"""

from __future__ import annotations

import asyncio
from types import TracebackType

PARTS = 4


class PatientTimeout:
    """`async with PatientTimeout(seconds):`, like `asyncio.timeout`."""

    __slots__ = ("_left", "_loop", "_part", "_timeout", "_timer")

    def __init__(self, seconds: float) -> None:
        self._part = seconds / PARTS
        self._left = PARTS
        self._timeout = asyncio.timeout(None)

    async def __aenter__(self) -> None:
        await self._timeout.__aenter__()
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_later(self._part, self._part_is_over)

    def _part_is_over(self) -> None:
        self._left -= 1
        if self._left:
            self._timer = self._loop.call_later(self._part, self._part_is_over)
        else:
            self._timeout.reschedule(self._loop.time())

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._timer.cancel()
        await self._timeout.__aexit__(kind, error, traceback)
