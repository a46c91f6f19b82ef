"""Group settlement: attempts that ended are settled together, in one operation.

No timer forms the groups: while one is being committed, the next one is collected. A group with an
item that cannot be stored is split in halves until that item is alone, so that the others do not
fail with it. After any other error, also one that we do not know, the database may be at fault: the
group waits and is tried again; the leases are renewed meanwhile. If it fails a second time although
the database works, it is set aside (`set_aside`), and other groups go on.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Any, Protocol

from msgspec.structs import replace

from queuert.base.backoff import Recovery
from queuert.base.failure_log import FailureLog
from queuert.engine.operations.ending import settle
from queuert.engine.sessions import Sessions
from queuert.engine.transaction import Hooks
from queuert.errors import (
    BlockerNotFound,
    ChainError,
    InvalidArgument,
    JobIdExists,
    JobTypeError,
    StorageError,
    StorageRejected,
)
from queuert.records.model import Settled, Settlement
from queuert.worker.attempts.set_aside import SetAside, report_bug
from queuert.worker.attempts.verdict import Verdicts
from queuert.worker.base import failure
from queuert.worker.base.next_turn import NextTurn
from queuert.worker.handlers.claim import Claim
from queuert.worker.policy.options import WorkerOptions

logger = logging.getLogger("queuert.worker")

MAX_GROUP = 1000
MAX_BYTES = 4_000_000
"""Outputs, inputs of continuations and errors of one group. A larger item is a group of its own."""
TRIES = 2
"""How often a group is tried before the database is checked and the group is set aside."""

Item = tuple[Claim, Settlement]

TRIES_ALONE = 10
"""How often an item that was set aside, and is alone, is tried after unknown errors. A try counts
only if another item was settled since the one before. After that, the item is at fault.
"""

ITEM_AT_FAULT = (StorageRejected, InvalidArgument, JobTypeError, ChainError, JobIdExists, BlockerNotFound)
"""Errors that are caused by an item: it would fail again."""
DATABASE_AT_FAULT = (StorageError, OSError)
"""Errors that are never caused by the items: the same items may succeed a moment later."""


class OnSettled(Protocol):
    def __call__(
        self, claim: Claim, settlement: Settlement, /, *, took_effect: bool, error: Exception | None = None
    ) -> None:
        """`error`: why it could not be settled. None if the reason is that another worker has the
        job.
        """


class Settler:
    def __init__(
        self,
        sessions: Sessions[Any],
        verdicts: Verdicts,
        next_turn: NextTurn,
        on_settled: OnSettled,
        options: WorkerOptions,
    ) -> None:
        self._sessions = sessions
        self._limit = options.limit
        self._verdicts = verdicts
        self._next_turn = next_turn
        self._on_settled = on_settled
        self._backoff = options.recovery_backoff
        self._waiting: list[Item] = []
        self._task: asyncio.Task[None] | None = None
        self._aside = SetAside(self._try_aside, self._database_works, self._backoff)
        self._successes = 0
        self._tried_alone: dict[str, tuple[int, int]] = {}
        """By job id: how often it was tried (see `TRIES_ALONE`), and the successes until then."""
        self._log = FailureLog(logger)

    def add(self, claim: Claim, settlement: Settlement) -> None:
        self._waiting.append((claim, settlement))
        if self._task is None:
            self._task = asyncio.create_task(self._work(), name="queuert-settler")
            self._task.add_done_callback(report_bug)

    @property
    def busy(self) -> bool:
        return self._task is not None or self._aside.task is not None

    async def finish(self) -> None:
        """Wait until everything that was added is settled."""
        while tasks := self._tasks():
            await asyncio.wait(tasks)

    def give_up(self) -> list[asyncio.Task[None]]:
        """Drop what is not settled; it is run again once its lease has ended. Returns the tasks
        that are to be cancelled."""
        self._waiting = []
        self._tried_alone = {}
        self._aside.give_up()
        tasks = self._tasks()
        self._task = self._aside.task = None  # they clear themselves, unless they never began
        return list(tasks)

    def _tasks(self) -> set[asyncio.Task[None]]:
        return {task for task in (self._task, self._aside.task) if task is not None}

    async def _work(self) -> None:
        try:
            # When many handlers end at once, the worker asks for its next jobs first: the database
            # works on them while this group is put together.
            await asyncio.sleep(0)
            while self._waiting:
                number = _first_group(self._waiting)
                group, self._waiting = self._waiting[:number], self._waiting[number:]
                await self._settle_group(group)
        finally:
            # Not in a callback: an item that is added between the last check and the callback would
            # wait for ever.
            self._task = None

    async def _settle_group(self, group: Sequence[Item]) -> None:
        recovery, tries = Recovery(self._backoff), 0
        while await self._try("settling", group, again=tries > 0) is not None:
            tries += 1
            if tries >= TRIES and await self._database_works(group):
                self._aside.add(group)
                return
            await asyncio.sleep(recovery.next_delay())

    async def _try(self, what: str, group: Sequence[Item], *, again: bool) -> Exception | None:
        """The error, if the database may have failed. Any other failure is dealt with here."""
        try:
            settled = await self._settle(group, again=again)
        except ITEM_AT_FAULT as error:
            await self._without_the_bad_one(group, error)
        except Exception as error:
            # A provider may raise its driver's own errors. Results must not be lost because of one.
            jobs = f"{len(group)} jobs" if len(group) > 1 else f"job {group[0][0].row.id}"
            self._log.failed(what, error, "settling %s failed, trying again soon", jobs)
            return error
        else:
            self._successes += 1
            self._log.worked(what)
            for (claim, settlement), took_effect in zip(group, settled.applied, strict=True):
                self._on_settled(claim, settlement, took_effect=took_effect)
        return None

    async def _try_aside(self, group: Sequence[Item]) -> bool:
        """Whether it is settled, or given up as the fault of an item."""
        error = await self._try("settling what was set aside", group, again=True)
        job_id = group[0][0].row.id
        if error is None:
            self._tried_alone.pop(job_id, None)
            return True
        if len(group) > 1 or isinstance(error, DATABASE_AT_FAULT):
            return False
        tries, successes = self._tried_alone.get(job_id, (0, 0))
        if self._successes > successes:
            tries += 1
        if tries < TRIES_ALONE:
            self._tried_alone[job_id] = tries, self._successes
            return False
        self._tried_alone.pop(job_id, None)
        await self._without_the_bad_one(group, error)
        return True

    async def _database_works(self, group: Sequence[Item]) -> bool:
        """Whether it answers a plain question. Then it is the group that it cannot settle."""
        try:
            program = self._sessions.engine.state.get_jobs([group[0][0].row.id])
            await self._sessions.run_within(self._limit, program)
        except Exception:
            return False
        return True

    async def _settle(self, group: Sequence[Item], *, again: bool) -> Settled:
        hooks = Hooks()
        items = [(claim.row, settlement) for claim, settlement in group]
        program = settle(self._sessions.engine, hooks, items, again=again)
        settled = await self._sessions.run_within(self._limit, program)
        if settled.unblocked or settled.created.count(None) < len(settled.created):
            self._next_turn.claim_soon()
        if settled.more:
            self._next_turn.unblock_soon()
        await self._sessions.flush(hooks)
        return settled

    async def _without_the_bad_one(self, group: Sequence[Item], error: Exception) -> None:
        if len(group) > 1:
            middle = len(group) // 2
            await self._settle_group(group[:middle])
            await self._settle_group(group[middle:])
            return
        ((claim, settlement),) = group
        if settlement.error is not None and settlement.error != (plain := failure.plain(settlement.error)):
            # Its error cannot be stored. What is left of it can be, wherever text can.
            await self._settle_group([(claim, replace(settlement, error=plain))])
            return
        if settlement.status != "completed":
            # This is already a put-back, and there is nothing simpler to try. The lease will end.
            logger.error("job %s cannot be settled; it runs again when its lease expires", claim.row.id, exc_info=error)
            self._on_settled(claim, settlement, took_effect=False, error=error)
            return
        # The result could not be stored, for example because a continuation's id exists. The
        # attempt has failed with that error.
        await self._settle_group([(claim, self._verdicts.failed(claim, error, None))])


def _first_group(items: Sequence[Item]) -> int:
    """How many of them make the next group."""
    size = 0
    for number, (_, settlement) in enumerate(items[:MAX_GROUP]):
        if settlement.output is not None:
            size += len(settlement.output)
        elif settlement.continuation is not None:
            size += len(settlement.continuation.input)
        if settlement.error is not None:
            size += len(settlement.error)
        if size > MAX_BYTES and number:
            return number
    return min(len(items), MAX_GROUP)
