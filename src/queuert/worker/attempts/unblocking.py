"""Frees the dependents that completions have left: some in each turn of the main loop.

The work is in the database, and any worker may do it. A worker begins when one of its own
settlements has left some, or when a poll finds some, perhaps of a worker that has died.
"""

from __future__ import annotations

import logging
import time
from typing import Any

from queuert.base.backoff import Backoff, Recovery
from queuert.base.failure_log import FailureLog
from queuert.engine.operations.unblocking import continue_unblocking
from queuert.engine.sessions import Sessions
from queuert.engine.transaction import Hooks
from queuert.ports.provider import TimeLimit
from queuert.records.model import UNBLOCKED_AT_ONCE
from queuert.worker.base.next_turn import NextTurn

logger = logging.getLogger("queuert.worker")

MAX_STEP = UNBLOCKED_AT_ONCE
"""Dependents that are freed in one transaction."""


class Unblocker:
    def __init__(self, sessions: Sessions[Any], next_turn: NextTurn, backoff: Backoff, limit: TimeLimit) -> None:
        self._sessions = sessions
        self._limit = limit
        self._next_turn = next_turn
        self._recovery = Recovery(backoff)
        self._log = FailureLog(logger)
        self._step = MAX_STEP
        self._paused_until = 0.0

    @property
    def due_at(self) -> float | None:
        """When the next step is due, on the monotonic clock; None if there is nothing to do."""
        return self._paused_until if self._next_turn.wants_unblocking else None

    async def step(self) -> None:
        """Free some dependents, if there are any to be freed.

        A failure must not keep the worker from claiming, so it is not raised. The next step is
        smaller: perhaps the statement took too long.
        """
        if not self._next_turn.wants_unblocking or time.monotonic() < self._paused_until:
            return
        # Reset this before the step, so that dependents that are left during it are not forgotten.
        self._next_turn.wants_unblocking = False
        hooks = Hooks()
        try:
            program = continue_unblocking(self._sessions.engine, hooks, self._step)
            freed = await self._sessions.run_within(self._limit, program)
        except Exception as error:
            self._next_turn.wants_unblocking = True
            self._paused_until = time.monotonic() + self._recovery.next_delay()
            self._step = max(1, self._step // 2)
            self._log.failed("freeing", error, "freeing the jobs behind a completed chain failed, trying again soon")
            return
        self._log.worked("freeing")
        self._recovery.reset()
        self._step = min(2 * self._step, MAX_STEP)
        if freed.more:
            self._next_turn.wants_unblocking = True
        if freed.unblocked:
            self._next_turn.claim_soon()
        await self._sessions.flush(hooks)
