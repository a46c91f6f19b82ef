"""Publishing with a time limit, so that a broker that hangs does not delay callers for long.

Publishing comes after the commit, but the caller that committed waits for it. So each call has a
limit. A call that exceeds it goes on without its caller. Until it has ended, nothing else is
published: workers and waiters poll, and the next commits do not wait. When the answer comes after
all, publishing goes on at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from queuert.errors import NotifyUnavailable
from queuert.patience import ended_within
from queuert.ports.notify import NotifyAdapter, Topic

PATIENCE = 2.0
"""Seconds that a caller waits."""
GIVEN_UP_AFTER = 10.0
"""Seconds after that until the call is cancelled. The next one then tries again."""


class BoundedNotify:
    """A notify adapter whose publishing takes limited time."""

    def __init__(self, adapter: NotifyAdapter) -> None:
        self.adapter = adapter
        self.immediate: bool = getattr(adapter, "immediate", False)
        self.listen = adapter.listen
        self.consume_wake_hint = adapter.consume_wake_hint
        self._late: dict[asyncio.Task[None], asyncio.TimerHandle] = {}
        """Calls that no caller waits for any more, each with the timer that gives it up."""

    async def publish(self, topic: Topic, values: Sequence[str]) -> None:
        await self._bounded(lambda: self.adapter.publish(topic, values))

    async def provide_wake_hints(self, counts: Mapping[str, int]) -> None:
        await self._bounded(lambda: self.adapter.provide_wake_hints(counts))

    async def close(self) -> None:
        late = list(self._late)
        for task in late:
            self._give_up(task)
        if late:
            await asyncio.wait(late, timeout=PATIENCE)
        await self.adapter.close()

    async def _bounded(self, call: Callable[[], Coroutine[Any, Any, None]]) -> None:
        if self.immediate:
            return await call()
        if self._late:
            raise NotifyUnavailable("not published: the notification channel has not answered an earlier call yet")
        task = asyncio.create_task(call())
        try:
            in_time = await ended_within(PATIENCE, task)
        except BaseException:
            task.cancel()
            raise
        if in_time:
            return task.result()
        self._late[task] = asyncio.get_running_loop().call_later(GIVEN_UP_AFTER, self._give_up, task)
        task.add_done_callback(self._ended)
        raise NotifyUnavailable(f"publishing took longer than {PATIENCE:g} s; the next call waits for its end")

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled():
            task.exception()  # marks it as retrieved: the caller was told that the call is late
        timer = self._late.pop(task, None)
        if timer is not None:
            timer.cancel()

    def _give_up(self, task: asyncio.Task[None]) -> None:
        """It may ignore its cancellation: it counts no longer."""
        self._late.pop(task).cancel()
        task.cancel()


if TYPE_CHECKING:
    _: type[NotifyAdapter] = BoundedNotify
