"""Publishing with a time limit, so that a broker that hangs does not delay callers for long.

Publishing comes after the commit, but the caller that committed waits for it. So each call has a
limit. When it is exceeded, nothing is published for a while: workers and waiters poll, and the next
commits do not wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from time import monotonic
from typing import TYPE_CHECKING, ParamSpec

from queuert.errors import NotifyUnavailable
from queuert.ports.notify import NotifyAdapter, Topic

P = ParamSpec("P")

PATIENCE = 2.0
"""Seconds that a call may take."""
SILENCE = 10.0
"""Seconds without publishing, after a call that took longer than `PATIENCE`."""


class BoundedNotify:
    """A notify adapter whose publishing takes limited time."""

    def __init__(self, adapter: NotifyAdapter) -> None:
        self.adapter = adapter
        self.immediate: bool = getattr(adapter, "immediate", False)
        self.listen = adapter.listen
        self.consume_wake_hint = adapter.consume_wake_hint
        self.close = adapter.close
        self.hold: Callable[[int], Awaitable[int | None]] | None = getattr(adapter, "hold", None)
        self.release: Callable[[int], Awaitable[None]] | None = getattr(adapter, "release", None)
        self._silent_until = 0.0

    async def publish(self, topic: Topic, values: Sequence[str]) -> None:
        await self._bounded(self.adapter.publish, topic, values)

    async def provide_wake_hints(self, counts: Mapping[str, int]) -> None:
        await self._bounded(self.adapter.provide_wake_hints, counts)

    async def _bounded(self, call: Callable[P, Awaitable[None]], *args: P.args, **kwargs: P.kwargs) -> None:
        if self.immediate:
            return await call(*args, **kwargs)
        if monotonic() < self._silent_until:
            raise NotifyUnavailable("not published: the notification channel did not answer in time a moment ago")
        try:
            async with asyncio.timeout(PATIENCE):
                await call(*args, **kwargs)
        except TimeoutError as error:
            self._silent_until = monotonic() + SILENCE
            raise NotifyUnavailable(
                f"publishing took longer than {PATIENCE:g} s and was given up; the next try is in {SILENCE:g} s"
            ) from error


if TYPE_CHECKING:
    _: type[NotifyAdapter] = BoundedNotify
