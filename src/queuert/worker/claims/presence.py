"""The worker's row: it shows that the worker is alive, and which lock shows others when it is gone.

On PostgreSQL the listening connection holds a lock. When that connection is lost, so is the lock.
Then the row is written without it, until the lock is held again: until then, only the end of leases
shows that this worker is gone. So a worker that merely has to reconnect keeps its jobs.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from queuert.base.failure_log import FailureLog
from queuert.engine.sessions import Sessions
from queuert.ports.notify import NotifyAdapter
from queuert.ports.program import Program
from queuert.records.workers import SEEN_EVERY
from queuert.worker.claims.about import about
from queuert.worker.policy.options import WorkerOptions

logger = logging.getLogger("queuert.worker")

T = TypeVar("T")

LOOK_INTERVAL = 0.8
"""Seconds between two looks for dead workers. One that finds a lock missing looks again at the end
of the grace, so a death is noticed within both together."""
GRACE = 1.0
"""Seconds for a worker to get its lock back: to reconnect, or to register without it."""
LOOK_AFTER = 0.05
"""Seconds after the end of the grace: not every clock is as quick as the database's."""
CHECK_INTERVAL = 0.25
"""Seconds between two checks that the lock is still held. They send nothing while it is."""
SEEN_INTERVAL = SEEN_EVERY
"""Seconds between two registrations, at least."""
LOCK_SECONDS = 2.0
"""How long taking the lock may last."""
CLEAN_INTERVAL = 600.0
"""Seconds between two cleanings, and how long a worker must not have registered to be cleaned."""


class Presence:
    def __init__(self, worker_id: str, sessions: Sessions[Any], notify: NotifyAdapter, options: WorkerOptions) -> None:
        self._worker_id = worker_id
        self._sessions = sessions
        self._state = sessions.engine.state
        self._limit = options.limit
        self._types = options.policy.types
        self._ordinals = options.policy.ordinals
        self._interval = max(options.renew_interval, SEEN_INTERVAL)
        self._about = about(options, self._interval)
        self._hold: Callable[[int], Awaitable[int | None]] | None = getattr(notify, "hold", None)
        self._release: Callable[[int], Awaitable[None]] | None = getattr(notify, "release", None)
        self._key = secrets.randbits(31)
        """The key of the lock. It is new for each run, so that a connection that the server has not
        ended yet does not hold the lock of a later run.
        """
        self.registered = False
        self._session: int | None = None
        """The session that holds the lock, as registered."""
        self._seen_at = 0.0
        self._look_at = 0.0
        self._clean_at = 0.0
        self._log = FailureLog(logger)

    async def register(self) -> None:
        """Before the first claim, and again whenever something has changed."""
        await self._register(await self._held_by())
        self.registered = True

    def register_soon(self) -> None:
        """The row is gone."""
        self._seen_at = 0.0

    async def run(self) -> None:
        """Keep the row up to date, until it is cancelled."""
        while True:
            await asyncio.sleep(CHECK_INTERVAL)
            if not self.registered:
                continue
            try:
                await self._check()
                self._log.worked("registering")
            except Exception as error:
                self._log.failed("registering", error, "worker %s could not register, it keeps trying",
                                 self._worker_id, extra={"worker_id": self._worker_id})  # fmt: skip

    async def find_dead(self) -> list[str]:
        """Other workers that are known to be dead and still have jobs of ours. Empty, and nothing
        is asked, until it is time to look.
        """
        now = time.monotonic()
        if now < self._look_at:
            return []
        self._look_at = now + LOOK_INTERVAL
        if not await self._dead(0.0):
            return []
        noticed = time.monotonic()
        dead = await self._dead(GRACE)
        if not dead:
            # The database counts the grace from a moment before it has answered.
            self._look_at = noticed + GRACE + LOOK_AFTER
        return dead

    async def _dead(self, grace: float) -> list[str]:
        return await self._run(self._state.dead_workers(self._worker_id, self._types, grace=grace))

    def look_again(self) -> None:
        """Do not wait: there are more jobs than could be taken back at once."""
        self._look_at = 0.0

    @property
    def look_at(self) -> float:
        """When to look for dead workers again."""
        return self._look_at

    async def end(self) -> None:
        """Remove the row first, so that no worker looks for a lock that is missing."""
        if not self.registered:
            return
        try:
            await self._run(self._state.forget_worker(self._worker_id))
            if self._release is not None:
                await self._release(self._key)
        except Exception:
            logger.debug("the row of worker %s could not be removed", self._worker_id, exc_info=True)

    async def _check(self) -> None:
        now, session = time.monotonic(), await self._held_by()
        if session != self._session or now >= self._seen_at + self._interval:
            await self._register(session)
        if now >= self._clean_at:
            self._clean_at = now + CLEAN_INTERVAL
            await self._run(self._state.clean_workers(unseen_for=CLEAN_INTERVAL))

    async def _register(self, session: int | None) -> None:
        self._seen_at = time.monotonic()
        key = None if session is None else self._key
        # Send the horizon and all that the worker stores about itself: its row may have been
        # deleted while it was cut off.
        horizon = self._ordinals.horizon
        await self._run(self._state.register_worker(self._worker_id, lock_key=key, horizon=horizon, about=self._about))
        self._session = session

    async def _run(self, program: Program[T]) -> T:
        return await self._sessions.run_within(self._limit, program)

    async def _held_by(self) -> int | None:
        if self._hold is None:
            return None
        try:
            async with asyncio.timeout(LOCK_SECONDS):
                return await self._hold(self._key)
        except Exception as error:
            logger.debug("the lock of worker %s is not held: %r", self._worker_id, error)
            return None
