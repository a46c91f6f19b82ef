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
    """`with PatientTimeout(seconds):`, like `async with asyncio.timeout`. Entering and leaving it
    never waits, so it needs no `async`.
    """

    __slots__ = ("_cancels", "_left", "_loop", "_part", "_task", "_timer")

    def __init__(self, seconds: float) -> None:
        self._part = seconds / PARTS
        self._left = PARTS

    def __enter__(self) -> None:
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("a time limit needs a task")
        self._task = task
        self._cancels = task.cancelling()
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_later(self._part, self._part_is_over)

    def _part_is_over(self) -> None:
        self._left -= 1
        if self._left:
            self._timer = self._loop.call_later(self._part, self._part_is_over)
        else:
            self._task.cancel()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._timer.cancel()
        # If the task was cancelled for another reason as well, it stays cancelled.
        if not self._left and self._task.uncancel() <= self._cancels and kind is asyncio.CancelledError:
            raise TimeoutError from error
