"""Checks that the claims are still ours.

One task renews all leases. Hints that a claim was lost are checked in the database.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Collection
from typing import Any

from queuert.client.sessions import Sessions
from queuert.model import Lease
from queuert.ports.notify import MISSED
from queuert.worker.abort import lost_reason
from queuert.worker.attempts import Attempts
from queuert.worker.listener import AttemptListener

logger = logging.getLogger("queuert.worker")

RETRY_AFTER = 0.2
"""The part of an interval to wait after a failure, so that there are several tries before the lease
ends."""


class LeaseKeeper:
    def __init__(
        self, sessions: Sessions[Any], attempts: Attempts, listener: AttemptListener, shortest_interval: float
    ) -> None:
        self._sessions = sessions
        self._attempts = attempts
        self._listener = listener
        self._turn = shortest_interval

    async def run(self) -> None:
        """Runs until it is cancelled. After an error, the next turn tries again."""
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
        """Renew what would be overdue at the next turn, with one statement."""
        now = time.monotonic()
        claims = self._attempts.claims.values()
        due = [claim for claim in claims if now - claim.renewed_at + self._turn > claim.plan.renew_interval]
        if not due:
            return
        leases = [Lease(claim.row.id, claim.token, claim.plan.lease) for claim in due]
        lost = await self._sessions.run(self._sessions.engine.state.renew(leases))
        gone = set(lost)
        renewed = [claim for claim in due if claim.row.id not in gone]
        for claim in renewed:
            claim.renewed_at = now
            claim.lease_end = now + claim.plan.lease
        self._listener.renewed([claim for claim in renewed if claim.row.id in self._attempts.claims])
        if lost:
            await self._look_into(lost)

    def _give_up_expired(self) -> None:
        """Once the lease has ended unrenewed, another worker may have the job: the attempt must
        stop.
        """
        now = time.monotonic()
        for claim in list(self._attempts.claims.values()):
            if claim.active and now >= claim.lease_end:
                self._attempts.abort(claim, "lease_lost")

    def maybe_lost(self, job_id: str) -> None:
        """A hint, perhaps an old one: the database decides."""
        claims = self._attempts.claims
        if job_id == MISSED:
            suspects = [claim.row.id for claim in claims.values() if claim.active]
        else:
            suspects = [job_id] if job_id in claims else []
        if suspects:
            self._attempts.spawn(self._look_into(suspects))

    async def _look_into(self, job_ids: Collection[str]) -> None:
        claims = self._attempts.claims
        mine = [claims[job_id] for job_id in job_ids if job_id in claims]
        try:
            rows = await self._sessions.run(self._sessions.engine.state.get_jobs([claim.row.id for claim in mine]))
        except Exception:
            logger.warning("could not check whether %d jobs are still ours; the next renewal checks again", len(mine),
                           exc_info=True)  # fmt: skip
            return
        for claim, row in zip(mine, rows, strict=True):
            reason = lost_reason(row, claim.token)
            if reason is not None and claim.active:
                self._attempts.abort(claim, reason)
