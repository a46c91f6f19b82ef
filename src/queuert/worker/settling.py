"""Group settlement: attempts that ended are settled together, in one operation.

No timer forms the groups: while one is being committed, the next one is collected. A group that
fails is split in halves until the item at fault is alone, so that the other items do not fail with
it. If the database is at fault, the group waits and is tried again; the leases are renewed
meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Any, Protocol

from queuert.client.sessions import Sessions
from queuert.errors import StorageError
from queuert.model import Settled, Settlement
from queuert.operations.settle import settle
from queuert.ports.provider import Limit
from queuert.transaction import Hooks
from queuert.worker.backoff import Backoff, Recovery
from queuert.worker.claim import Claim
from queuert.worker.next_turn import NextTurn
from queuert.worker.verdict import Verdicts

logger = logging.getLogger("queuert.worker")

MAX_GROUP = 1000

Item = tuple[Claim, Settlement]

DATABASE_AT_FAULT = (StorageError, OSError)
"""Errors that are not caused by the items: the same items may succeed a moment later."""


class OnSettled(Protocol):
    def __call__(self, claim: Claim, settlement: Settlement, /, *, took_effect: bool) -> None: ...


class Settler:
    def __init__(
        self,
        sessions: Sessions[Any],
        verdicts: Verdicts,
        next_turn: NextTurn,
        on_settled: OnSettled,
        backoff: Backoff,
        limit: Limit,
    ) -> None:
        self._sessions = sessions
        self._limit = limit
        self._verdicts = verdicts
        self._next_turn = next_turn
        self._on_settled = on_settled
        self._backoff = backoff
        self._waiting: list[Item] = []
        self._task: asyncio.Task[None] | None = None

    def add(self, claim: Claim, settlement: Settlement) -> None:
        self._waiting.append((claim, settlement))
        if self._task is None:
            self._task = asyncio.create_task(self._work(), name="queuert-settler")
            self._task.add_done_callback(_report_bug)

    @property
    def busy(self) -> bool:
        return self._task is not None

    async def finish(self) -> None:
        """Wait until everything that was added is settled."""
        while self._task is not None:
            await asyncio.wait({self._task})

    def give_up(self) -> list[asyncio.Task[None]]:
        """Drop what is not settled; it is run again once its lease has ended. Returns the task that
        is to be cancelled, if there is one."""
        self._waiting = []
        task, self._task = self._task, None  # it clears this itself, unless it never began
        return [] if task is None else [task]

    async def _work(self) -> None:
        try:
            while self._waiting:
                group, self._waiting = self._waiting[:MAX_GROUP], self._waiting[MAX_GROUP:]
                await self._settle_group(group)
        finally:
            # Not in a callback: an item that is added between the last check and the callback would
            # wait for ever.
            self._task = None

    async def _settle_group(self, group: Sequence[Item]) -> None:
        recovery = Recovery(self._backoff)
        while True:
            try:
                settled = await self._settle(group)
            except DATABASE_AT_FAULT:
                delay = recovery.next_delay()
                logger.exception("settling %d jobs failed, trying again in %.1f s", len(group), delay)
                await asyncio.sleep(delay)
            except Exception as error:
                await self._without_the_bad_one(group, error)
                return
            else:
                for (claim, settlement), took_effect in zip(group, settled.applied, strict=True):
                    self._on_settled(claim, settlement, took_effect=took_effect)
                return

    async def _settle(self, group: Sequence[Item]) -> Settled:
        hooks = Hooks()
        program = settle(self._sessions.engine, hooks, [(claim.row, settlement) for claim, settlement in group])
        settled = await self._sessions.run_within(self._limit, program)
        if settled.unblocked or any(created is not None for created in settled.created):
            self._next_turn.claim_soon()
        await self._sessions.flush(hooks)
        return settled

    async def _without_the_bad_one(self, group: Sequence[Item], error: Exception) -> None:
        if len(group) > 1:
            middle = len(group) // 2
            await self._settle_group(group[:middle])
            await self._settle_group(group[middle:])
            return
        ((claim, settlement),) = group
        if settlement.status != "completed":
            # This is already a put-back, and there is nothing simpler to try. The lease will end.
            logger.error("job %s cannot be settled; it runs again when its lease expires", claim.row.id, exc_info=error)
            self._on_settled(claim, settlement, took_effect=False)
            return
        # The result could not be stored, for example because a continuation's id exists. The
        # attempt has failed with that error.
        await self._settle_group([(claim, self._verdicts.failed(claim, error, None))])


def _report_bug(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and task.exception() is not None:
        logger.error("the settler stopped; this is a bug in queuert", exc_info=task.exception())
