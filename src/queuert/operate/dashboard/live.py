"""Pages that update themselves: a stream of events says when to look again.

The events come from the client's own notifications. One listener serves all streams, and no stream
holds a connection to the database.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from time import monotonic
from typing import Any

from queuert.client.client import Client
from queuert.ports.notify import TOPICS

SHORTEST = 1.0
"""Seconds between two events: however much happens, a page is not read more often."""
LONGEST = 10.0
"""Seconds after which a page looks again anyway: jobs begin without a notification, and ages
grow."""
ACCESS_EVERY = 30.0
"""Seconds between two looks whether this person may still see the page."""


class Changes:
    """Tells all streams of a client that something has changed."""

    def __init__(self, client: Client[Any]) -> None:
        self.client = client
        self._streams: set[asyncio.Event] = set()
        self._listening: asyncio.Task[None] | None = None

    async def subscribe(self) -> asyncio.Event:
        """An event that is set at each change. The first one begins to listen; the client ends that
        when it closes.
        """
        if self._listening is None:
            self._listening = asyncio.create_task(self._listen(asyncio.get_running_loop()))
        await asyncio.shield(self._listening)
        changed = asyncio.Event()
        self._streams.add(changed)
        return changed

    def unsubscribe(self, changed: asyncio.Event) -> None:
        self._streams.discard(changed)

    async def _listen(self, loop: asyncio.AbstractEventLoop) -> None:
        def heard(_: str) -> None:
            # The channel may call from any thread, also when the loop has just been closed.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(self._tell)

        notify = self.client.sessions.channel
        # Without a channel, pages look again every few seconds.
        with suppress(Exception):
            for topic in TOPICS:
                await notify.listen(topic, heard)

    def _tell(self) -> None:
        for changed in self._streams:
            changed.set()


async def stream(
    changes: Changes,
    write: Callable[[str], Awaitable[None]],
    gone: Callable[[], Awaitable[None]],
    may_see: Callable[[], Awaitable[bool]],
) -> None:
    """Write an event at each change, until the browser is gone or the person may not see it any
    more.
    """
    changed = await changes.subscribe()
    left = asyncio.ensure_future(gone())
    checked = monotonic()
    try:
        await write("retry: 2000\n\n")
        while True:
            waiting = asyncio.ensure_future(changed.wait())
            await asyncio.wait({waiting, left}, timeout=LONGEST, return_when=asyncio.FIRST_COMPLETED)
            waiting.cancel()
            if left.done():
                return
            if monotonic() - checked >= ACCESS_EVERY:
                if not await may_see():
                    await write("event: closed\ndata: \n\n")
                    return
                checked = monotonic()
            changed.clear()
            await write("event: changed\ndata: \n\n")
            await asyncio.wait({left}, timeout=SHORTEST)
    finally:
        changes.unsubscribe(changed)
        left.cancel()
