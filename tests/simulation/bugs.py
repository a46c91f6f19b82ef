"""Bugs that the simulation must find, planted one at a time in worker, operations and storage."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from typing import Any, NamedTuple
from unittest import mock

from msgspec.structs import replace
from tests.simulation.plan import Plan

from queuert.adapters.memory import lanes
from queuert.adapters.memory.connection import MemoryTransaction
from queuert.adapters.memory.operations import MemoryOperations
from queuert.engine.operations.ending import settle
from queuert.engine.transaction import Hooks
from queuert.ports.program import Program
from queuert.records.model import NOW, QueueLimit
from queuert.worker.attempts.transaction import AttemptTransaction, TransactionInTask
from queuert.worker.attempts.verdict import Verdicts
from queuert.worker.claims.leases import LeaseKeeper
from queuert.worker.claims.orphans import Orphans
from queuert.worker.policy.claiming import ClaimPolicy
from queuert.worker.run import WorkerRun


async def _nothing(*_: Any) -> None: ...


async def _without_fence(self: AttemptTransaction[Any]) -> Any:
    block, tx = await self._enter(lock=False)
    self._tx = tx
    self._open = block, tx
    return tx


_commit = TransactionInTask.commit


async def _settled_afterwards(self: TransactionInTask[Any], settlement: Any = None) -> bool:
    await _commit(self, None)
    if settlement is not None:
        await self._sessions.run(settle(self._sessions.engine, Hooks(), [(self._claim.row, settlement)]))
    return True


def _reaps_nothing(*_: Any) -> Program[list[Any]]:
    yield from ()
    return []


_queue_limits = ClaimPolicy._queue_limits


def _changed_queues(change: Callable[[QueueLimit], QueueLimit]) -> Any:
    def queue_limits(self: ClaimPolicy, claimed: Any) -> Iterable[QueueLimit]:
        return [change(queue) for queue in _queue_limits(self, claimed)]

    return queue_limits


def _hurried(queue: QueueLimit) -> QueueLimit:
    return replace(queue, types=tuple(replace(each, lease=0.05) for each in queue.types))


def _uncapped(queue: QueueLimit) -> QueueLimit:
    return replace(queue, max_concurrency=None)


_create_jobs = MemoryOperations.create_jobs


def _changed_jobs(**values: Any) -> Any:
    return lambda self, jobs: _create_jobs(self, [replace(job, **values) for job in jobs])


_end = MemoryTransaction._end
_failed = Verdicts.failed
_made = Orphans.__init__


def _uncounted(self: Verdicts, *args: Any) -> Any:
    return replace(_failed(self, *args), status="pending", error=None, uncounted=True)


def _knows_nothing(self: Orphans, *args: Any, **sets: Any) -> None:
    _made(self, *args, **{**sets, "held": ()})


_running_in = lanes.running_in


def _leaks(tables: Any, lane: str) -> list[Any]:
    """The end of every fourth claim does not give its place back."""
    ended = [row for row in tables.jobs.values() if row.lane == lane and row.status == "completed"]
    return [*_running_in(tables, lane), *ended[3::4]]


_rule_of = lanes.rule_of


def _without_rate(*args: Any) -> Any:
    return replace(_rule_of(*args), rate=None)


class Bug(NamedTuple):
    owner: Any
    name: str
    instead: Any
    plan: Plan
    """Circumstances in which it matters."""


CALM = Plan(0, actions=20)
ZOMBIES = Plan(0, actions=30, workers=4, jumps=20)
KILLS = Plan(0, actions=25, workers=3, kills=10)
LIMITED = Plan(0, actions=30, workers=3, limited=True)

BUGS = {
    "a phase does not check the claim": Bug(AttemptTransaction, "_begin", _without_fence, ZOMBIES),
    "the job is settled after the handler's commit": Bug(TransactionInTask, "commit", _settled_afterwards, KILLS),
    "leases are far too short": Bug(ClaimPolicy, "_queue_limits", _changed_queues(_hurried), CALM),
    "leases are not renewed": Bug(LeaseKeeper, "renew_due", _nothing, CALM),
    "the cap of a queue is forgotten": Bug(ClaimPolicy, "_queue_limits", _changed_queues(_uncapped), CALM),
    "blockers are forgotten": Bug(MemoryOperations, "create_jobs", _changed_jobs(blockers=()), CALM),
    "delays are forgotten": Bug(MemoryOperations, "create_jobs", _changed_jobs(schedule=NOW), CALM),
    "keys are forgotten": Bug(MemoryOperations, "create_jobs", _changed_jobs(dedup=None), CALM),
    "failed attempts do not count": Bug(Verdicts, "failed", _uncounted, CALM),
    "lost notifications are not made up for": Bug(WorkerRun, "_poll", _nothing, Plan(0, actions=20, unheard=1.0)),
    "jobs of dead workers are left alone": Bug(MemoryOperations, "reap", _reaps_nothing, KILLS),
    "a rollback commits": Bug(MemoryTransaction, "_end", lambda self, *, commit: _end(self, commit=True), CALM),
    "a place of a key leaks": Bug(lanes, "running_in", _leaks, LIMITED),
    "a key counts one job less": Bug(lanes, "running_in", lambda *args: _running_in(*args)[1:], LIMITED),
    "an ordered key is not held": Bug(lanes, "holder_of", lambda *_: None, LIMITED),
    "rates are forgotten": Bug(lanes, "rule_of", _without_rate, LIMITED),
    "a worker gives back what it is running": Bug(Orphans, "__init__", _knows_nothing, Plan(0, actions=20, lost=0.05)),
}


@contextmanager
def planted(bug: str) -> Generator[None, None, None]:
    owner, name, instead, _ = BUGS[bug]
    with mock.patch.object(owner, name, instead):
        yield
