"""Messages of many callers, sent together: while one batch is under way, the next one gathers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence


class Outbox:
    """For one topic. Whoever sends hears how it ended for the batch that took his messages."""

    def __init__(self, send: Callable[[Sequence[str]], Awaitable[None]]) -> None:
        self._send = send
        self._gathering: list[str] = []
        self._next: asyncio.Task[None] | None = None
        """Sends what is gathering, once the batch before it is on its way."""
        self._current: asyncio.Task[None] | None = None

    async def send(self, values: Sequence[str]) -> None:
        if self._current is None and self._next is None:
            self._current = asyncio.ensure_future(self._send_now(list(values)))
            await asyncio.shield(self._current)
            return
        self._gathering += values
        if self._next is None:
            self._next = asyncio.ensure_future(self._send_after(self._current))
        await asyncio.shield(self._next)

    async def _send_now(self, values: list[str]) -> None:
        try:
            await self._send(list(dict.fromkeys(values)))
        finally:
            self._current = None

    async def _send_after(self, before: asyncio.Task[None] | None) -> None:
        if before is not None:
            await asyncio.wait({before})
        self._current, self._next = self._next, None
        values, self._gathering = self._gathering, []
        await self._send_now(values)
