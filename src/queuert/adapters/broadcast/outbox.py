"""Sends the messages of many callers in batches.

While one batch is sent, the next one is collected.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any

from queuert.base.patience import PatientTimeout

GIVEN_UP_AFTER = 5.0
"""Seconds. A send that never ends, on a half-dead connection, must not block later ones."""


class Outbox:
    """For one topic. Each caller gets the result of the batch that carried its messages."""

    def __init__(self, send: Callable[[Sequence[str]], Awaitable[None]]) -> None:
        self._send = send
        self._gathering: list[str] = []
        self._next: asyncio.Task[None] | None = None
        """Sends the collected messages after the current batch."""
        self._current: asyncio.Task[None] | None = None

    async def send(self, values: Sequence[str]) -> None:
        if _under_way(self._next):
            self._gathering += values
        elif _under_way(self._current):
            self._gathering = list(values)
            self._next = _start(self._send_after(self._current))
        else:
            self._current = _start(self._send_now(list(values)))
            self._next = None
        task = self._next or self._current
        assert task is not None
        await asyncio.shield(task)

    async def _send_now(self, values: list[str]) -> None:
        with PatientTimeout(GIVEN_UP_AFTER):
            await self._send(list(dict.fromkeys(values)))

    async def _send_after(self, before: asyncio.Task[None] | None) -> None:
        if before is not None:
            await asyncio.wait({before})
        self._current, self._next = self._next, None
        values, self._gathering = self._gathering, []
        await self._send_now(values)


def _start(sending: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
    task = asyncio.create_task(sending)
    # All callers may have been cancelled, and then no one else looks at its error.
    task.add_done_callback(lambda task: task.cancelled() or task.exception())
    return task


def _under_way(task: asyncio.Task[None] | None) -> bool:
    return task is not None and not task.done()
