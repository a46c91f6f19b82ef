"""Groups of results that the database has refused repeatedly, although it works.

They are split and tried again here, so that all other results are settled meanwhile. An item that
is alone and still fails is tried again with growing pauses.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from heapq import heappop, heappush
from itertools import count
from typing import Generic, TypeVar

from queuert.base.backoff import Backoff, Recovery

logger = logging.getLogger("queuert.worker")

T = TypeVar("T")


class SetAside(Generic[T]):
    """`settle` returns whether a group was settled. If not, `at_fault` returns whether the group is
    at fault, and not the database.
    """

    def __init__(
        self,
        settle: Callable[[Sequence[T]], Awaitable[bool]],
        at_fault: Callable[[Sequence[T]], Awaitable[bool]],
        backoff: Backoff,
    ) -> None:
        self._settle = settle
        self._at_fault = at_fault
        self._backoff = backoff
        self._groups: list[tuple[float, int, Sequence[T], Recovery]] = []
        """A heap: when each group is due, and its number, so that groups are never compared."""
        self._numbers = count()
        self.task: asyncio.Task[None] | None = None

    def add(self, group: Sequence[T]) -> None:
        self._split_or_wait(group, Recovery(self._backoff), at_fault=True)
        if self.task is None:
            self.task = asyncio.create_task(self._work(), name="queuert-set-aside")
            self.task.add_done_callback(report_bug)

    def give_up(self) -> None:
        """Drop all groups. The task is to be cancelled."""
        self._groups = []

    async def _work(self) -> None:
        try:
            while self._groups:
                due, _, group, recovery = heappop(self._groups)
                await asyncio.sleep(max(0.0, due - time.monotonic()))
                if not await self._settle(group):
                    self._split_or_wait(group, recovery, at_fault=len(group) > 1 and await self._at_fault(group))
        finally:
            self.task = None

    def _split_or_wait(self, group: Sequence[T], recovery: Recovery, *, at_fault: bool) -> None:
        if at_fault and len(group) > 1:
            middle = len(group) // 2
            for half in (group[:middle], group[middle:]):
                self._push(0.0, half, Recovery(self._backoff))
        else:
            self._push(recovery.next_delay(), group, recovery)

    def _push(self, delay: float, group: Sequence[T], recovery: Recovery) -> None:
        heappush(self._groups, (time.monotonic() + delay, next(self._numbers), group, recovery))


def report_bug(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and task.exception() is not None:
        logger.error("the task %s stopped; this is a bug in queuert", task.get_name(), exc_info=task.exception())
