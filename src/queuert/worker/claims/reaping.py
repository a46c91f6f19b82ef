"""Takes back the jobs of workers that are gone, and those whose leases have ended: some in each
turn of the main loop.
"""

from __future__ import annotations

import logging
import time
from typing import Any

from queuert.engine.sessions import Sessions
from queuert.engine.transaction import Hooks
from queuert.records.model import ALONE_AFTER
from queuert.worker.attempts.attempts import Attempts
from queuert.worker.base import failure
from queuert.worker.base.next_turn import NextTurn
from queuert.worker.claims.presence import Presence
from queuert.worker.policy.options import WorkerOptions

logger = logging.getLogger("queuert.worker")

REAPED_AT_ONCE = 500
"""Jobs that one turn takes back: a small statement, so that claims come in between."""

_LEASE_EXPIRED = failure.record(failure.LEASE_EXPIRED, "the worker that ran the job stopped renewing its lease")


class Reaper:
    def __init__(
        self,
        worker_id: str,
        sessions: Sessions[Any],
        attempts: Attempts,
        presence: Presence,
        next_turn: NextTurn,
        options: WorkerOptions,
    ) -> None:
        self._worker_id = worker_id
        self._sessions = sessions
        self._attempts = attempts
        self._presence = presence
        self._next_turn = next_turn
        self._limit = options.limit
        self._types = options.policy.types
        self._plans = options.plans
        self._interval = options.reap_interval
        self.due_at = 0.0
        """When to look for jobs whose leases have ended, on the monotonic clock."""

    async def step(self) -> None:
        """Take back some jobs, if it is time to look for them, or if a worker has died."""
        now, dead = time.monotonic(), await self._presence.find_dead()
        if now < self.due_at and not dead:
            return
        engine, hooks = self._sessions.engine, Hooks()
        program = engine.state.reap(
            self._types,
            list(self._attempts.claims),
            REAPED_AT_ONCE,
            _LEASE_EXPIRED,
            dead,
            {name: plan.delays_after_losses() for name, plan in self._plans.items()},
        )
        reaped = await self._sessions.run_within(self._limit, program)
        if len(reaped) < REAPED_AT_ONCE:
            self.due_at = now + self._interval
        elif dead:
            self._presence.look_again()
        if not reaped:
            return
        for worker_id in dead:
            logger.warning("worker %s is gone: its jobs are taken back", worker_id,
                           extra={"worker_id": self._worker_id, "dead_worker_id": worker_id})  # fmt: skip
        # They can be claimed. There may be more: then the next turn takes those back.
        self._next_turn.wants_claim = True
        notifications = engine.notifications(hooks)
        if engine.observers is not None:
            engine.observations(hooks).reaped(reaped, self._worker_id)
        for row in reaped:
            logger.warning("job %s (%s) was taken back: its lease had ended, or its worker is gone",
                           row.id, row.type_name,
                           extra={"job_id": row.id, "job_type": row.type_name, "chain_id": row.chain_id,
                                  "attempt_number": row.attempt, "worker_id": self._worker_id})  # fmt: skip
            if ALONE_AFTER <= row.losses < self._plans[row.type_name].max_losses:
                logger.error("job %s (%s) was lost with its worker %d times: it may be what ends the process. From now "
                             "on it runs alone in its worker, until it ends or was lost %d times",
                             row.id, row.type_name, row.losses, self._plans[row.type_name].max_losses,
                             extra={"job_id": row.id, "job_type": row.type_name, "chain_id": row.chain_id,
                                    "losses": row.losses, "worker_id": self._worker_id})  # fmt: skip
            notifications.add("job_scheduled", row.type_name)
            notifications.add("ownership_lost", row.id)
        await self._sessions.flush(hooks)
