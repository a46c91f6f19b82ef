"""Deletes ended chains that were kept long enough, in small steps beside the worker's own work, and
merges what was counted for `history`. Chains that are to be archived are archived beside that, each
type by itself: a function that fails or hangs stops neither pruning nor other types.

Any worker may do it, whichever types it handles, by the policies that are stored in the database.
One process does it at a time: the database ensures that. A worker stores the policies of the types
that it handles before it takes its first step.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections import Counter
from collections.abc import Iterable
from datetime import timedelta
from typing import Any

from queuert.base.backoff import Backoff, Recovery
from queuert.base.failure_log import FailureLog
from queuert.engine.sessions import Sessions
from queuert.features.retention.pace import REST, Pace
from queuert.features.retention.type_archiver import TypeArchiver
from queuert.records.retention import LAP_EVERY, KeepPolicy, PruneRequest, policy_of

logger = logging.getLogger("queuert.retention")

INTERVAL = (1.0, 30.0)
"""Seconds between two looks while nothing is due: a tenth of the shortest time that chains of the
worker's own types are kept, within these limits."""
ROLLED_UP = 1000
"""Rows of statistics that are merged after each step."""
TEND_EVERY = 600.0
"""Seconds between two looks at the months of the archive."""
LAP_REST = 1.0
"""Seconds between two steps of a lap. So a lap looks at up to 1,000 chains in a second."""


class Pruner:
    def __init__(self, worker_id: str, sessions: Sessions[Any], types: Iterable[str], backoff: Backoff) -> None:
        """`types`: the names of the worker's own types."""
        self._worker_id = worker_id
        self._sessions = sessions
        self._state = sessions.engine.state
        jobs = sessions.engine.jobs
        self._policies = [policy_of(keep, name) for name in types if (keep := jobs.keep_of(name)) is not None]
        self._interval = _interval(self._policies)
        self._recovery = Recovery(backoff)
        self._log = FailureLog(logger)
        self._pace = Pace()
        self._stored = False
        self._archivers = {
            name: TypeArchiver(worker_id, sessions, name, archive, backoff) for name, archive in jobs.archives.items()
        }
        self._archiving: dict[str, asyncio.Task[None]] = {}
        self._tend_at = 0.0
        self._deleted: Counter[str] = Counter()

    async def run(self) -> None:
        """Until it is cancelled."""
        try:
            await self._run()
        finally:
            for task in self._archiving.values():
                task.cancel()
            await asyncio.gather(*self._archiving.values(), return_exceptions=True)

    async def _run(self) -> None:
        while True:
            try:
                delay = await self._turn()
                await self._archive()
                self._recovery.reset()
                self._log.worked("pruning")
            except Exception as error:
                self._pace.failed()
                delay = self._recovery.next_delay()
                self._log.failed("pruning", error, "worker %s could not delete what was kept long enough, it tries "
                                 "again soon", self._worker_id, extra={"worker_id": self._worker_id})  # fmt: skip
            await asyncio.sleep(delay)

    async def _turn(self) -> float:
        """Seconds until the next one."""
        if not self._stored:
            await self._store()
            self._stored = True
            return self._interval * random.uniform(0.5, 1.0)  # workers that start together take turns
        # Not among the worker's own statements: handlers and claims come first.
        step = await self._sessions.run(self._state.prune(PruneRequest(self._pace.limit, lap_every=LAP_EVERY)))
        rest = self._pace.rest(step)
        began = time.monotonic()
        more = self._state.statistics and await self._sessions.run(self._state.roll_up(ROLLED_UP))
        self._deleted.update(step.chains)
        if step.more and not step.busy:
            return rest
        if more:
            return (time.monotonic() - began) * REST[1]
        self._tell()
        if step.lap:
            return max(LAP_REST, rest)
        return self._interval * random.uniform(0.8, 1.2)

    async def _archive(self) -> None:
        """Begin to archive what waits for it."""
        if not self._archivers:
            return
        if time.monotonic() >= self._tend_at:
            more = await self._sessions.run(self._state.tend_archive())
            self._tend_at = time.monotonic() + (0.0 if more else TEND_EVERY)
        idle = [name for name, each in self._archivers.items() if each.may_begin and not self._is_archiving(name)]
        for name in await self._sessions.run(self._state.waiting_to_archive(idle)):
            self._archiving[name] = asyncio.create_task(self._archivers[name].run())

    def _is_archiving(self, name: str) -> bool:
        return name in self._archiving and not self._archiving[name].done()

    async def _store(self) -> None:
        changed = await self._sessions.run(self._state.store_policies(self._policies))
        for policy in self._policies:
            if policy.chain_type in changed:
                logger.info("chains of %s are deleted some time after their end, by a policy that is now stored: %s",
                            policy.chain_type, described(policy),
                            extra={"worker_id": self._worker_id, "job_type": policy.chain_type})  # fmt: skip

    def _tell(self) -> None:
        for type_name, number in sorted(self._deleted.items()):
            logger.info("%d chains of %s were deleted: they had been kept long enough", number, type_name,
                        extra={"worker_id": self._worker_id, "job_type": type_name})  # fmt: skip
        self._deleted.clear()


def described(policy: KeepPolicy) -> str:
    """As in "completed 7 days, failed for ever, then archived"."""
    times = (
        ("completed", policy.completed),
        ("failed", policy.failed),
        ("cancelled", policy.cancelled),
        ("expired", policy.expired),
    )
    kept = ", ".join(
        f"{status} {'for ever' if kept is None else 'not at all' if kept == 0 else _text(kept)}"
        for status, kept in times
    )
    return f"{kept}, then archived" if policy.archived else kept


def _text(kept: float) -> str:
    days = kept / 86400
    return f"{days:g} days" if days == int(days) else str(timedelta(seconds=kept))


def _interval(policies: list[KeepPolicy]) -> float:
    times = [
        each for policy in policies for each in (policy.completed, policy.failed, policy.cancelled, policy.expired)
    ]
    shortest = min((each for each in times if each), default=INTERVAL[1] * 10)
    return min(max(shortest / 10, INTERVAL[0]), INTERVAL[1])
