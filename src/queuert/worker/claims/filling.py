"""Fills the free slots of a worker with claimed jobs, and gives back what was claimed too early."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from queuert.engine.sessions import Sessions
from queuert.records.model import Claimed, ClaimRequest
from queuert.worker.attempts.attempts import Attempts
from queuert.worker.base import failure
from queuert.worker.base.next_turn import NextTurn
from queuert.worker.claims.orphans import Orphans
from queuert.worker.policy.options import WorkerOptions
from queuert.worker.policy.prefetch import STALE

MAX_UNSETTLED = 4000
"""How many results may wait to be settled: a few groups. With a lower number, claims would have
room for only a few jobs, and would cost as much as large ones.
"""


class Filling:
    def __init__(
        self,
        sessions: Sessions[Any],
        attempts: Attempts,
        orphans: Orphans,
        next_turn: NextTurn,
        options: WorkerOptions,
        stopping: asyncio.Event,
        quiet: asyncio.Event,
    ) -> None:
        self._sessions = sessions
        self._attempts = attempts
        self._prefetch = attempts.prefetch
        self._orphans = orphans
        self._next_turn = next_turn
        self._policy = options.policy
        self._limit = options.limit
        self._stopping = stopping
        self._quiet = quiet

    def has_room(self) -> bool:
        return self._request() is not None

    def _request(self) -> ClaimRequest | None:
        attempts, prefetch = self._attempts, self._prefetch
        if attempts.alone is not None:
            return None
        if attempts.unsettled >= MAX_UNSETTLED or attempts.waiting > prefetch.refill_at:
            return None
        # What is claimed ahead will soon be a result, too.
        ahead = min(prefetch.ahead, max(0, MAX_UNSETTLED - attempts.unsettled))
        return self._policy.request(attempts.occupying, attempts.active, ahead)

    @property
    def stale_at(self) -> float | None:
        """When jobs that were claimed ahead have waited for too long, on the monotonic clock; None
        if none waits.
        """
        waiting_since = self._attempts.waiting_since
        return None if waiting_since is None else waiting_since + STALE

    def give_back_stale(self) -> None:
        """If jobs that were claimed ahead have waited for too long, the handlers are slower than
        they were.
        """
        stale_at = self.stale_at
        if stale_at is not None and time.monotonic() >= stale_at:
            self._hold_nothing()

    def _hold_nothing(self) -> None:
        self._prefetch.stalled()
        self._attempts.give_back_waiting()

    async def fill(self) -> None:
        """Claim as many jobs as there is room for, and begin them."""
        claimed_at = time.monotonic()
        self._prefetch.observe(self._attempts.ended, claimed_at)
        request = self._request()
        if request is None:
            return
        # Jobs that begin later get an ordinal, so that they lose no attempt if this worker dies
        # first.
        request = replace(
            request,
            at_once=self._attempts.at_once,
            first_ordinal=self._policy.ordinals.take(request.limit),
            first_token=self._policy.new_token(),
        )
        # Reset this before the claim, so that an announcement during the claim is not lost.
        self._next_turn.wants_claim = False
        try:
            async with self._orphans.claim():
                result = await self._sessions.run_within(self._limit, self._sessions.engine.state.claim(request))
                if result.jobs:
                    self._quiet.clear()
                self._attempts.begin_all(result.jobs, claimed_at, stopping=self._stopping.is_set())
        except BaseException:
            self._next_turn.wants_claim = True
            raise
        # An empty claim that reports more has found only jobs that are locked by others: asking
        # again at once would not help.
        if result.more and result.jobs:
            self._next_turn.wants_claim = True
        if result.next_in is not None:
            self._next_turn.claim_in(result.next_in)
        if result.paused:
            self._attempts.heed(result.paused)
        if _have_lost_their_worker(result.jobs):
            # One of these jobs may have killed that worker, and may kill this one. Then all jobs
            # that are claimed ahead must be reaped, and those within the horizon lose an attempt
            # without having run. So claim nothing ahead.
            self._hold_nothing()


def _have_lost_their_worker(jobs: Sequence[Claimed]) -> bool:
    """Whether one of these jobs was taken back from a lost worker."""
    for claimed in jobs:
        error = claimed.job.last_error
        if error is not None and failure.LEASE_EXPIRED.encode() in error:
            return True
    return False
