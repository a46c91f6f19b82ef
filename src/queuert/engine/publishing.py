"""Publishing with a time limit, so that a broker that hangs does not delay callers for long.

Publishing comes after the commit, and the caller that committed may wait for it. So each call has a
limit. A call that exceeds it is repeated without its caller. Until that has ended, nothing else is
published: workers and waiters poll, and the next commits do not wait. As soon as the channel
answers, publishing goes on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from queuert.base.patience import PatientTimeout
from queuert.errors import NotifyUnavailable
from queuert.ports.notify import NotifyAdapter, Topic

PUBLISH_SECONDS = 2.0
"""How long a caller waits."""
GIVEN_UP_AFTER = 10.0
"""Seconds until the repeated call is cancelled, too. The next one then tries again."""


class BoundedNotify:
    """A notify adapter whose publishing takes limited time."""

    def __init__(self, adapter: NotifyAdapter) -> None:
        self.adapter = adapter
        self.immediate: bool = getattr(adapter, "immediate", False)
        self.listen = adapter.listen
        self.consume_wake_hint = adapter.consume_wake_hint
        self.hold: Callable[[int], Awaitable[int | None]] | None = getattr(adapter, "hold", None)
        self.release: Callable[[int], Awaitable[None]] | None = getattr(adapter, "release", None)
        self._provide_now: Callable[[Mapping[str, int]], bool] | None = getattr(adapter, "provide_wake_hints_now", None)
        self._trial: asyncio.Task[None] | None = None
        """Repeats a call that took too long: when it ends, the channel works again."""

    async def publish(self, topic: Topic, values: Sequence[str]) -> None:
        await self._bounded(lambda: self.adapter.publish(topic, values))

    async def provide_wake_hints(self, counts: Mapping[str, int]) -> None:
        if self._provide_now is None or not self._provide_now(counts):
            await self._bounded(lambda: self.adapter.provide_wake_hints(counts))

    async def close(self) -> None:
        trial, self._trial = self._trial, None
        if trial is not None:
            trial.cancel()
            await asyncio.wait({trial}, timeout=PUBLISH_SECONDS)
        await self.adapter.close()

    async def _bounded(self, call: Callable[[], Coroutine[Any, Any, None]]) -> None:
        if self.immediate:
            return await call()
        if self._trial is not None:
            raise NotifyUnavailable("not published: the notification channel has not answered an earlier call yet")
        try:
            with PatientTimeout(PUBLISH_SECONDS):
                await call()
        except TimeoutError as error:
            if self._trial is None:
                self._try_again(call)
            raise NotifyUnavailable(
                f"publishing took longer than {PUBLISH_SECONDS:g} s; the next calls wait for the channel to answer"
            ) from error

    def _try_again(self, call: Callable[[], Coroutine[Any, Any, None]]) -> None:
        trial = self._trial = asyncio.create_task(call(), name="queuert-publishing")
        # The trial may ignore its cancellation. Then it no longer counts, but it goes on.
        timer = asyncio.get_running_loop().call_later(GIVEN_UP_AFTER, self._give_up, trial)

        def ended(_: asyncio.Task[None]) -> None:
            timer.cancel()
            if not trial.cancelled():
                trial.exception()  # marks it as retrieved: the caller was told that its call is late
            if self._trial is trial:
                self._trial = None

        trial.add_done_callback(ended)

    def _give_up(self, trial: asyncio.Task[None]) -> None:
        trial.cancel()
        if self._trial is trial:
            self._trial = None


if TYPE_CHECKING:
    _: type[NotifyAdapter] = BoundedNotify
