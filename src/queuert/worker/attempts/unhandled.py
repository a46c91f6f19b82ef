"""Warns of a continuation that no worker can run.

A chain whose next job has no handler anywhere waits in silence. This worker knows its own handlers.
For any other type it asks the database which workers are alive, rarely, and in a task of its own:
no job waits for the answer.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from queuert.engine.sessions import Sessions
from queuert.ports.provider import TimeLimit
from queuert.records.model import NewJob

logger = logging.getLogger("queuert.worker")

LOOK_INTERVAL = 300.0
"""Seconds between two looks for workers that handle the same type."""


class Unhandled:
    def __init__(
        self,
        worker_id: str,
        sessions: Sessions[Any],
        limit: TimeLimit,
        spawn: Callable[[Coroutine[Any, Any, None]], None],
    ) -> None:
        self._worker_id = worker_id
        self._sessions = sessions
        self._limit = limit
        self._spawn = spawn
        self._looked_at: dict[str, float] = {}
        """By type name. There are as many types as the program has job classes."""

    def stored(self, job: NewJob) -> None:
        """A continuation was stored that this worker has no handler for."""
        now = time.monotonic()
        if now - self._looked_at.get(job.type_name, -LOOK_INTERVAL) >= LOOK_INTERVAL:
            self._looked_at[job.type_name] = now
            self._spawn(self._look(job))

    async def _look(self, job: NewJob) -> None:
        program = self._sessions.engine.state.handled_types([job.type_name])
        try:
            handled = await self._sessions.run_within(self._limit, program)
        except Exception:
            logger.debug("could not look for workers that handle %s", job.type_name, exc_info=True)
            return
        if not handled:
            logger.warning("chain %s (%s) continues with a job of type %s, and no worker that is alive has a handler "
                           "for it: the chain waits for one", job.chain_id, job.chain_type, job.type_name,
                           extra=self._extra(job))  # fmt: skip

    def _extra(self, job: NewJob) -> Mapping[str, object]:
        return {
            "job_id": job.id,
            "job_type": job.type_name,
            "chain_id": job.chain_id,
            "worker_id": self._worker_id,
        }
