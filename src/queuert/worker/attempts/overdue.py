"""Handlers that do not end, although their time is over: their jobs are settled without them.

Their slots stay busy until they end, because their threads or tasks still use the process.
"""

from __future__ import annotations

import logging
import time

from queuert.worker.attempts.settling import Settler
from queuert.worker.attempts.verdict import Verdicts
from queuert.worker.handlers.claim import Claim

logger = logging.getLogger("queuert.worker")


class Overdue:
    def __init__(self, settler: Settler, verdicts: Verdicts, slots: int) -> None:
        # Apart from other results: the server may take a while to notice that a connection was cut
        # off, and until then it keeps the lock of the job.
        self.settler = settler
        self._verdicts = verdicts
        self._slots = slots
        self.claims: set[Claim] = set()
        """Those whose handlers still run."""

    async def settle(self, claim: Claim) -> None:
        """Part the handler from its job, and settle that as a timeout."""
        claim.overdue = True
        # First of all: its transaction has locked the job.
        if claim.phases is not None and not await claim.phases.take_away():
            claim.overdue = False
            logger.error("job %s (%s) did not end %g s after its timeout, and its transaction cannot be taken from it "
                         "with this driver: the worker waits for its end", claim.row.id, claim.row.type_name,
                         claim.plan.timeout_grace, extra=self._verdicts.extra(claim))  # fmt: skip
            return
        if claim.running:  # else it has ended meanwhile
            self._add(claim)
        self.settler.add(claim, self._verdicts.overdue(claim))

    def _add(self, claim: Claim) -> None:
        self.claims.add(claim)
        logger.warning(
            "job %s (%s) did not end %g s after its timeout: it is settled as TIMEOUT, and its result will be dropped. "
            "Its slot stays busy until its handler ends: %d of %d slots are lost in this way",
            claim.row.id, claim.row.type_name, claim.plan.timeout_grace, len(self.claims), self._slots,
            extra=self._verdicts.extra(claim),
        )  # fmt: skip
        if len(self.claims) == self._slots:
            logger.error("all %d slots are occupied by handlers that do not end: this worker runs nothing until one "
                         "of them ends", self._slots, extra={"worker_id": self._verdicts.worker_id})  # fmt: skip

    def ended(self, claim: Claim) -> None:
        """Its handler has ended, at last; or the event loop ends and cannot wait for its
        thread.
        """
        self.claims.discard(claim)
        took = time.monotonic() - claim.claimed_at
        if claim.in_thread:
            text = "the handler of job %s (%s) still runs in its thread after %.1f s: the worker's event loop ends " \
                   "without it, and its result will be dropped"  # fmt: skip
        else:
            text = (
                "the handler of job %s (%s) has ended after %.1f s: its result is dropped, and its slot is free again"
            )
        logger.warning(text, claim.row.id, claim.row.type_name, took,
                       extra={**self._verdicts.extra(claim), "duration": took})  # fmt: skip
