"""Claims: which jobs a worker gets, for how long, and how a claim ends that is not renewed."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from queuert.adapters.memory.command import read, write
from queuert.adapters.memory.tables import Held, Tables
from queuert.model import Claimed, ClaimRequest, ClaimResult, JobRow, Lease, QueueLimit
from queuert.ports.program import Program


class Claiming:
    def claim(self, request: ClaimRequest) -> Program[ClaimResult]:
        if not request.queues:
            return ClaimResult([], more=False)
        return (yield from self._claim(request))

    @write
    def _claim(self, tables: Tables, request: ClaimRequest) -> ClaimResult:
        queues = [_queue(tables, each) for each in request.queues]
        cap = request.cluster_cap
        cluster_room = sys.maxsize if cap is None else cap - _count_running(tables)
        taken: list[str] = []
        for row, queue in _claimable(tables, queues):
            if len(taken) >= cluster_room:
                break
            if len(taken) >= request.limit:
                return ClaimResult(_claimed(tables, taken), more=True)
            tables.held[row.id] = Held(_ordinal(request, len(taken)), row.last_attempt_at)
            taken.append(row.id)
            tables.put(
                replace(
                    row,
                    status="running",
                    attempt=row.attempt + 1,
                    last_attempt_at=tables.now,
                    leased_by=request.worker,
                    leased_until=tables.after(queue.leases[row.type_name]),
                    token=next(tables.tokens),
                )
            )
            queue.left[row.type_name] -= 1
            for each in queues:
                # A job counts in its own queue, and in every other queue that its type belongs to.
                if each is queue or row.type_name in each.members:
                    each.room -= 1
        return ClaimResult(_claimed(tables, taken), more=False, next_in=_next_in(tables, request))

    @write
    def renew(self, tables: Tables, leases: Sequence[Lease]) -> list[str]:
        """By token alone: a lease that has ended can be extended until the job is reaped."""
        lost: list[str] = []
        for lease in leases:
            row = tables.jobs.get(lease.job_id)
            if row is None or row.token != lease.token:
                lost.append(lease.job_id)
            else:
                tables.put(replace(row, leased_until=tables.after(lease.duration)))
        return lost

    @read
    def hold(self, tables: Tables, job_id: str, token: int, *, lock: bool = True) -> bool:  # noqa: ARG002
        """The transaction has the write lock, so nothing else can end the claim before it does."""
        row = tables.jobs.get(job_id)
        return row is not None and row.token == token

    @write
    def reap(
        self,
        tables: Tables,
        types: Sequence[str],
        ignored: Sequence[str],
        limit: int,
        error: bytes,
        dead: Sequence[str] = (),
    ) -> list[JobRow]:
        wanted, left_alone = set(types), set(ignored)
        ended = sorted(
            (row.leased_until, row.id)
            for row in tables.jobs.values()
            if row.leased_until is not None
            and (row.leased_until <= tables.now or row.leased_by in dead)
            and row.type_name in wanted
            and row.id not in left_alone
        )
        reaped: list[JobRow] = []
        for _, job_id in ended[:limit]:
            row = tables.jobs[job_id]
            row = replace(row, last_error=error) if _may_have_begun(tables, row) else untouched(tables, row)
            row = replace(row, status="pending", leased_by=None, leased_until=None, token=None)
            tables.put(row)
            reaped.append(row)
        return reaped


def untouched(tables: Tables, row: JobRow) -> JobRow:
    """A running job as if it had not been claimed: its handler did not begin."""
    return replace(row, attempt=row.attempt - 1, last_attempt_at=tables.held[row.id].last_attempt_at)


def _may_have_begun(tables: Tables, row: JobRow) -> bool:
    ordinal, worker = tables.held[row.id].ordinal, tables.workers.get(row.leased_by or "")
    return ordinal is None or worker is None or ordinal <= tables.horizon(worker)


def _ordinal(request: ClaimRequest, position: int) -> int | None:
    """The ordinal of a job at this position of a claim."""
    if request.at_once is None or position < request.at_once:
        return None
    return request.first_ordinal + position


@dataclass(slots=True)
class _Queue:
    """A queue during one claim."""

    priority: int
    members: tuple[str, ...]
    room: int
    """How many more of its jobs may run."""
    left: dict[str, int]
    """Type → how many more jobs of it may be claimed for this queue."""
    leases: dict[str, float]
    """Type → seconds."""


def _queue(tables: Tables, limit: QueueLimit) -> _Queue:
    """A queue as it is before the claim. Its cap counts the running jobs of all workers."""
    cap = limit.max_concurrency
    room = sys.maxsize if cap is None else cap - _count_running(tables, limit.members)
    left = {each.name: each.limit for each in limit.types}
    return _Queue(limit.priority, limit.members, room, left, {each.name: each.lease for each in limit.types})


def _count_running(tables: Tables, types: Collection[str] | None = None) -> int:
    return sum(row.status == "running" and (types is None or row.type_name in types) for row in tables.jobs.values())


def _claimable(tables: Tables, queues: Sequence[_Queue]) -> Iterator[tuple[JobRow, _Queue]]:
    """The jobs that can be claimed, each with its queue. Lower priorities come first.

    The order is: priority of the queue, priority of the job, scheduled time, id. If several queues
    of one priority serve a type, the first one that has room gets the job. The caller takes each
    job before it asks for the next one, so the room is always up to date.
    """
    for priority in sorted({queue.priority for queue in queues}):
        served = [queue for queue in queues if queue.priority == priority]
        for _, scheduled_at, job_id in tables.pending.copy():  # a job that is taken leaves the index
            row = tables.jobs[job_id]
            if scheduled_at <= tables.now:
                for queue in served:
                    if queue.room > 0 and queue.left.get(row.type_name, 0) > 0:
                        yield row, queue
                        break


def _claimed(tables: Tables, ids: Sequence[str]) -> list[Claimed]:
    """Read when all are taken: the blocker of one job may be another one of the same claim."""
    claimed: list[Claimed] = []
    for job_id in ids:
        row = tables.jobs[job_id]
        expired = row.deadline is not None and row.deadline <= tables.now
        held = tables.held[job_id]
        claimed.append(
            Claimed(row, expired, tuple(tables.blocker_rows(job_id)), held.ordinal, held.last_attempt_at is not None)
        )
    return claimed


def _next_in(tables: Tables, request: ClaimRequest) -> float | None:
    """Seconds until the first job of the requested types that is not due yet."""
    types = {limit.name for queue in request.queues for limit in queue.types}
    later = [at for _, at, job_id in tables.pending if at > tables.now and tables.jobs[job_id].type_name in types]
    return (min(later) - tables.now).total_seconds() if later else None
