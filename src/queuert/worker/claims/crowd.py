"""Which of many idle workers claim the jobs that were announced.

Every worker receives every announcement. If all of them claimed, one start would cost as many
claims as there are workers. So each worker knows its place among those for the type, and an
announcement has a random number: the few whose places follow that number claim at once. They may be
busy or gone, so the others claim a little later, each at its own moment within a second.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any, cast

from queuert.base.failure_log import FailureLog
from queuert.engine.sessions import Sessions
from queuert.ports.notify import Draw
from queuert.ports.state import Placing
from queuert.worker.policy.options import WorkerOptions

logger = logging.getLogger("queuert.worker")

AT_ONCE = 3
"""Workers that claim at once if one job is announced. Some of them may be busy, or gone."""
EARLIEST, LATEST = 0.06, 0.9
"""Seconds after which the others claim."""
OFTEN, SELDOM = 1.0, 30.0
"""Seconds between two looks at the places: at first, and while they change; and at most."""


class Crowd:
    def __init__(self, worker_id: str, sessions: Sessions[Any], options: WorkerOptions) -> None:
        self._worker_id = worker_id
        self._sessions = sessions
        self._limit = options.limit
        self._types = options.policy.types
        self._places: dict[str, tuple[int, int]] = {}
        """By type: how many workers come before this one, and how many there are."""
        self._later_at = 0.0
        """When this worker claims although it was not among the first."""
        self._log = FailureLog(logger)

    async def run(self) -> None:
        """Keep the places up to date, until it is cancelled."""
        if not hasattr(self._sessions.engine.state, "places"):
            return
        placing = cast("Placing", self._sessions.engine.state)
        interval = OFTEN
        while True:
            await asyncio.sleep(interval)
            try:
                places = await self._sessions.run_within(self._limit, placing.places(self._worker_id, self._types))
                self._log.worked("places")
            except Exception as error:
                # Then every announcement makes this worker claim.
                places = {}
                self._log.failed("places", error, "worker %s could not ask for its place among all workers",
                                 self._worker_id, extra={"worker_id": self._worker_id})  # fmt: skip
            interval = min(2 * interval, SELDOM) if places == self._places else OFTEN
            self._places = places

    def wait_for(self, type_name: str, draw: Draw | None) -> float:
        """Seconds until this worker should claim a job of this type: 0 if it is among the first."""
        place, number = self._places.get(type_name, (0, 1))
        if draw is None or number <= AT_ONCE:
            return 0.0
        first = min(number, AT_ONCE - 1 + draw.jobs)
        behind = (place + draw.number) % number - first
        if behind < 0:
            return 0.0
        now = time.monotonic()
        if self._later_at <= now:
            # What is announced until then is claimed then, too: many announcements do not make
            # this worker claim more often.
            self._later_at = now + EARLIEST + (LATEST - EARLIEST) * behind / (number - first)
        return self._later_at - now
