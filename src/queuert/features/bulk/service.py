"""The library's own jobs, such as pages of bulk operations: one at a time, beside the slots.

They need no claims of the main loop. A notification starts them, or a poll that finds something
due. Then this worker goes on until nothing is due. A worker that has nothing of this kind to do
sends no statement for it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Any

from queuert.base.backoff import Backoff, Recovery
from queuert.base.failure_log import FailureLog
from queuert.base.own_types import OWN_QUEUE
from queuert.engine.sessions import Sessions
from queuert.features.bulk.jobs import OWN_NAMES
from queuert.features.bulk.own import StepFailed
from queuert.features.bulk.work import do_step
from queuert.ports.provider import TimeLimit

logger = logging.getLogger("queuert.worker")

QUEUES = (OWN_QUEUE,) * len(OWN_NAMES)


class OwnWork:
    def __init__(
        self,
        worker_id: str,
        sessions: Sessions[Any],
        backoff: Backoff,
        limit: TimeLimit,
        *,
        on_rest: Callable[[], None],
        on_left: Callable[[], None],
    ) -> None:
        """`on_rest` is called whenever this has nothing to do for now. `on_left`: a completed chain
        has left dependents to be freed.
        """
        self._worker_id = worker_id
        self._sessions = sessions
        self._on_rest = on_rest
        self._on_left = on_left
        self._recovery = Recovery(backoff)
        self._limit = limit
        self._log = FailureLog(logger)
        self._event = asyncio.Event()
        self._must_look = False
        """Something is due, but perhaps nothing of ours."""
        self._wants_step = False
        """There may be a job of ours to do."""
        self._due_at: float | None = None
        self._busy = False
        self._stopping = False

    @property
    def idle(self) -> bool:
        """Whether there is no known work to do now."""
        return not (self._busy or self._must_look or self._wants_step)

    def look(self) -> None:
        """Ask the database whether there is something to do."""
        self._must_look = True
        self._event.set()

    def begin(self) -> None:
        """There is something to do."""
        self._wants_step = True
        self._event.set()

    def stop(self) -> None:
        """End after the current job."""
        self._stopping = True
        self._event.set()

    async def run(self) -> None:
        while not self._stopping:
            await self._wait()
            self._busy = True
            try:
                await self._work()
            except Exception as error:
                self._wants_step = True
                delay = self._recovery.next_delay()
                self._due_at = time.monotonic() + delay
                self._log.failed("own work", error, "a job of the library itself failed, trying again in %.1f s", delay)
            finally:
                self._busy = False
                self._on_rest()

    async def _wait(self) -> None:
        delay = None if self._due_at is None else max(0.0, self._due_at - time.monotonic())
        try:
            async with asyncio.timeout(delay):
                await self._event.wait()
        except TimeoutError:
            self._due_at = None
            self._wants_step = True
        self._event.clear()

    async def _work(self) -> None:
        if self._must_look and not self._wants_step:
            available = await self._sessions.run_within(
                self._limit, self._sessions.engine.state.next_available_in(OWN_NAMES, QUEUES)
            )
            self._wants_step = available.next_in == 0
            self._due_in(available.next_in)
        # Reset this before the steps, so that an announcement during them is not lost.
        self._must_look = False
        while self._wants_step and not self._stopping:
            self._wants_step = False
            await self._step()
        self._log.worked("own work")
        self._recovery.reset()

    async def _step(self) -> None:
        try:
            step = await do_step(self._sessions, self._worker_id)
        except StepFailed as error:
            logger.warning("%s, trying again in %.1f s", error, error.delay, exc_info=error.__cause__,
                           extra={"worker_id": self._worker_id, "job_id": error.job_id})  # fmt: skip
            self._wants_step = True  # others may be due
            return
        if step.more:
            self._on_left()
        if step.chain_id is not None:
            self._wants_step = True  # this chain may go on, or another one
        self._due_in(step.next_in)

    def _due_in(self, delay: float | None) -> None:
        if delay:
            due_at = time.monotonic() + delay
            self._due_at = due_at if self._due_at is None else min(self._due_at, due_at)
