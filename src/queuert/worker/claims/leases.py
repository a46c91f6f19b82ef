"""Checks that the claims are still ours.

One task renews all leases. Hints that a claim was lost are checked in the database. A lease that
was not renewed is given up when it ends, by the clock.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection
from typing import Any

from queuert.base.failure_log import FailureLog
from queuert.engine.sessions import Sessions
from queuert.ports.notify import MISSED
from queuert.records.model import Lease
from queuert.worker.attempts.attempts import Attempts
from queuert.worker.base.abort import lost_reason
from queuert.worker.claims.orphans import Orphans
from queuert.worker.handlers.listener import AttemptListener
from queuert.worker.policy.options import WorkerOptions

logger = logging.getLogger("queuert.worker")

RETRY_AFTER = 0.2
"""The part of an interval to wait after a failure, so that there are several tries before the lease
ends."""


GRACE = 1.0
"""Seconds after the end of a lease until the connection of the handler's transaction is closed."""


class LeaseKeeper:
    def __init__(
        self,
        sessions: Sessions[Any],
        attempts: Attempts,
        listener: AttemptListener,
        orphans: Orphans,
        options: WorkerOptions,
    ) -> None:
        self._sessions = sessions
        self._attempts = attempts
        self._listener = listener
        self._orphans = orphans
        self._turn = options.renew_interval
        self._limit = options.limit
        self._log = FailureLog(logger)

    async def run(self) -> None:
        """Runs until it is cancelled. After an error, the next turn tries again."""
        clock = _Clock(self._give_up_expired)
        pause = self._turn
        try:
            while True:
                await asyncio.sleep(pause)
                try:
                    await self.renew_due()
                except Exception as error:
                    pause = self._turn * RETRY_AFTER
                    self._log.failed("renewing", error, "renewing leases failed, trying again in %.2g s", pause)
                else:
                    pause = self._turn
                    self._log.worked("renewing")
                if self._orphans.possible:
                    # On its own: it may have to wait for a claim.
                    self._attempts.spawn(self._orphans.give_back())
        finally:
            clock.stop()

    async def renew_due(self) -> None:
        """Renew what would be overdue at the next turn, with one statement."""
        now = time.monotonic()
        claims = self._attempts.claims.values()
        due = [claim for claim in claims if now - claim.renewed_at + self._turn > claim.plan.renew_interval]
        if not due:
            return
        leases = [Lease(claim.row.id, claim.token, claim.plan.lease) for claim in due]
        limit = self._limit._replace(urgent=True)
        lost = await self._sessions.run_within(limit, self._sessions.engine.state.renew(leases))
        gone = set(lost)
        renewed = [claim for claim in due if claim.row.id not in gone]
        for claim in renewed:
            claim.renewed_at = now
            claim.lease_end = now + claim.plan.lease
        self._listener.renewed([claim for claim in renewed if claim.row.id in self._attempts.claims])
        if lost:
            await self._look_into(lost)

    def _give_up_expired(self) -> float:
        """If a lease has ended without a renewal, another worker may have the job, so the attempt
        must stop. This is checked even without an error: a renewal may hang.

        A transaction that is still open then may hang too. Returns when to look again.
        """
        now = time.monotonic()
        again = now + self._turn
        for claim in list(self._attempts.claims.values()):
            end = claim.lease_end
            if now < end:
                again = min(again, end)
                continue
            if claim.active and not claim.aborted:
                self._attempts.abort(claim, "lease_lost")
            if claim.phases is not None:
                if now < end + GRACE:
                    again = min(again, end + GRACE)
                else:
                    claim.phases.cut_off()
        return again

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
            program = self._sessions.engine.state.get_jobs([claim.row.id for claim in mine])
            rows = await self._sessions.run_within(self._limit, program)
        except Exception as error:
            self._log.failed("checking leases", error, "could not check whether %d jobs are still ours; the next "
                             "renewal checks again", len(mine))  # fmt: skip
            return
        self._log.worked("checking leases")
        for claim, row in zip(mine, rows, strict=True):
            reason = lost_reason(row, claim.token)
            if reason is not None and claim.active:
                self._attempts.abort(claim, reason)


class _Clock:
    """Calls a function at the times that it asks for."""

    def __init__(self, tick: Callable[[], float]) -> None:
        self._tick = tick
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_soon(self._ring)

    def _ring(self) -> None:
        self._timer = self._loop.call_later(max(0.001, self._tick() - time.monotonic()), self._ring)

    def stop(self) -> None:
        self._timer.cancel()
