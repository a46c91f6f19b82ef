"""Jobs that were claimed although the claim has failed.

If the connection is lost during a claim, the claim may still commit, later than the worker has
noticed. Then jobs are leased to a worker that does not know them. So after a failed claim, every
renewal gives back what this worker neither holds nor is claiming.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Collection
from typing import Any

from queuert.base.contexts import async_context
from queuert.base.failure_log import FailureLog
from queuert.engine.sessions import Sessions
from queuert.engine.transaction import Hooks
from queuert.worker.policy.options import WorkerOptions

logger = logging.getLogger("queuert.worker")


class Orphans:
    def __init__(
        self,
        sessions: Sessions[Any],
        worker_id: str,
        options: WorkerOptions,
        *,
        held: Collection[str],
        left_running: Collection[str],
    ) -> None:
        """Ids of jobs, always up to date: `held`, those that the worker knows, and `left_running`
        (see `WorkerRun`).
        """
        self._sessions = sessions
        self._worker_id = worker_id
        self._held = held
        self._left_running = left_running
        self._limit = options.limit
        self._claiming = asyncio.Lock()
        self._looking = False
        self._log = FailureLog(logger)
        self.possible = False
        """A claim has failed, once or more often. It stays so: a server that hung may carry out
        what it was sent at any time."""

    @async_context
    async def claim(self) -> AsyncIterator[None]:
        """The block of a claim, up to the moment when its jobs are held."""
        async with self._claiming:
            try:
                yield
            except BaseException:
                self.possible = True
                raise

    async def give_back(self) -> None:
        # One at a time: while the database hangs, renewals come faster than their looks end, and
        # claims would have to wait for all of them.
        if not self.possible or self._looking:
            return
        self._looking = True
        try:
            await self._give_back()
        finally:
            self._looking = False

    async def _give_back(self) -> None:
        state, hooks = self._sessions.engine.state, Hooks()
        async with self._claiming:
            try:
                released = await self._sessions.run_within(
                    self._limit, state.release(self._worker_id, [*self._held, *self._left_running])
                )
            except Exception as error:
                self._log.failed("looking for jobs of a failed claim", error,
                                 "could not look for jobs of a failed claim; the next renewal tries again")  # fmt: skip
                return
        self._log.worked("looking for jobs of a failed claim")
        if released:
            notifications = self._sessions.engine.notifications(hooks)
            for row in released:
                logger.warning("job %s (%s) is given back: the claim that took it had failed", row.id, row.type_name,
                               extra={"job_id": row.id, "job_type": row.type_name, "chain_id": row.chain_id,
                                      "worker_id": self._worker_id})  # fmt: skip
                notifications.add("job_scheduled", row.type_name)
            await self._sessions.flush(hooks)
