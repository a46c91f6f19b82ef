"""The keeper of leases: one task renews everything the worker holds, with one statement per turn."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence

from queuert.model import Lease
from queuert.worker.abort import AbortReason
from queuert.worker.held import Held

logger = logging.getLogger("queuert.worker")

RETRY_AFTER = 0.2
"""Part of a turn to wait after a failure: there must be several tries before the lease ends."""


class LeaseKeeper:
    def __init__(
        self,
        held: Mapping[str, Held],
        renew: Callable[[Sequence[Lease]], Awaitable[list[str]]],
        look_into: Callable[[Sequence[str]], Awaitable[None]],
        abort: Callable[[Held, AbortReason], None],
        shortest_interval: float,
    ) -> None:
        self._held = held
        self._renew = renew
        self._look_into = look_into
        self._abort = abort
        self._turn = shortest_interval

    async def run(self) -> None:
        """Never ends by itself: whatever goes wrong, the next turn tries again."""
        pause = self._turn
        while True:
            await asyncio.sleep(pause)
            try:
                await self.renew_due()
            except Exception:
                pause = self._turn * RETRY_AFTER
                logger.exception("renewing leases failed, trying again in %.2g s", pause)
                self._give_up_expired()
            else:
                pause = self._turn

    async def renew_due(self) -> None:
        """Renew what would be overdue at the next turn."""
        now = time.monotonic()
        due = [held for held in self._held.values() if now - held.renewed_at + self._turn > held.plan.renew_interval]
        if not due:
            return
        lost = await self._renew([Lease(held.row.id, held.token, held.plan.lease) for held in due])
        gone = set(lost)
        for held in due:
            if held.row.id not in gone:
                held.renewed_at = now
                held.lease_end = now + held.plan.lease
        if lost:
            await self._look_into(lost)

    def _give_up_expired(self) -> None:
        """Once the lease has ended unrenewed, another worker may have the job: the attempt must stop."""
        now = time.monotonic()
        for held in list(self._held.values()):
            if held.active and now >= held.lease_end:
                self._abort(held, "lease_lost")
