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
        # Twice per interval, so that each lease is renewed at the last turn before its interval is over.
        self._turn = shortest_interval / 2

    async def run(self) -> None:
        """Never ends by itself: whatever goes wrong, the next turn tries again."""
        while True:
            await asyncio.sleep(self._turn)
            try:
                await self.renew_due()
            except Exception:
                logger.exception("renewing leases failed, trying again in %.1f s", self._turn)
                self._give_up_expired()

    async def renew_due(self) -> None:
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
            if held.running and now >= held.lease_end:
                self._abort(held, "error")
