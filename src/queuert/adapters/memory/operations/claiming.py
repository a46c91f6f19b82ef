"""Claims: which jobs a worker gets, for how long, and how a claim that is not renewed ends."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import Any

from msgspec.structs import replace

from queuert.adapters.memory.command import read, write
from queuert.adapters.memory.lanes import Choice, choose
from queuert.adapters.memory.tables import Held, Tables
from queuert.ports.program import Program
from queuert.records.model import (
    ALONE_AFTER,
    NO_DELAYS,
    NOT_BEGUN,
    Claimed,
    ClaimRequest,
    ClaimResult,
    JobRow,
    Lease,
    QueueLimit,
)
from queuert.records.pauses import Pause, in_the_way, is_paused, sooner


class Claiming:
    def claim(self, request: ClaimRequest) -> Program[ClaimResult]:
        if not request.queues:
            return ClaimResult([], more=False)
        return (yield from self._claim(request))

    @write
    def _claim(self, tables: Tables, request: ClaimRequest) -> ClaimResult:
        lanes = [(limit.name, queue.name) for queue in request.queues for limit in queue.types]
        paused = in_the_way(tables.pauses_now(), lanes)
        queues = [_queue(tables, each, paused) for each in request.queues]
        cap = request.cluster_cap
        cluster_room = sys.maxsize if cap is None else cap - len(tables.held)
        pairs = [(limit.name, name) for queue in request.queues for limit in queue.types for name in limit.limits]
        taken: list[str] = []
        limited = _Limited(tables, request, queues, taken)
        chosen = limited.choose(pairs, cluster_room) if pairs else Choice([], more=False, opens_at=None)
        for row, queue in _claimable(tables, queues):
            if len(taken) >= cluster_room:
                break
            if len(taken) >= request.limit:
                return ClaimResult(_claimed(tables, taken), more=True, paused=paused)
            _take(tables, request, row, queue, taken)
        if chosen.more:
            return ClaimResult(_claimed(tables, taken), more=True, paused=paused)
        next_in = _next_in(tables, queues, paused, chosen.opens_at)
        return ClaimResult(_claimed(tables, taken), more=False, next_in=next_in, paused=paused)

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
    def begin_alone(self, tables: Tables, job_id: str, token: int) -> bool:
        row = tables.jobs.get(job_id)
        if row is None or row.token != token:
            return False
        tables.held[job_id] = tables.held[job_id]._replace(ordinal=None)
        return True

    @write
    def reap(
        self,
        tables: Tables,
        types: Sequence[str],
        ignored: Sequence[str],
        limit: int,
        error: bytes,
        dead: Sequence[str] = (),
        delays: Mapping[str, Sequence[float]] = NO_DELAYS,
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
            if _may_have_begun(tables, row):
                tables.note_attempt(row, "lost", error)
                tables.happened(row, "lost", row.last_attempt_at)
                of_type = delays.get(row.type_name)
                delay = of_type[min(row.losses, len(of_type) - 1)] if of_type else 0
                due = tables.after(delay) if delay else row.scheduled_at
                row = replace(row, last_error=error, losses=row.losses + 1, scheduled_at=due)
            else:
                row = untouched(tables, row)
            row = replace(row, status="pending", leased_by=None, leased_until=None, token=None)
            tables.put(row)
            reaped.append(row)
        return reaped


def _take(tables: Tables, request: ClaimRequest, row: JobRow, queue: _Queue, taken: list[str]) -> None:
    """Make a job running, claimed through this queue."""
    place = len(taken)
    tables.held[row.id] = Held(_ordinal(request, place, row), row.last_attempt_at, queue.name)
    taken.append(row.id)
    tables.happened(row, "begun", row.scheduled_at)
    tables.put(
        replace(
            row,
            status="running",
            attempt=row.attempt + 1,
            last_attempt_at=tables.now,
            leased_by=request.worker,
            leased_until=tables.after(queue.leases[row.type_name]),
            token=request.first_token + place,
        )
    )
    queue.left[row.type_name] -= 1
    queue.room -= 1


class _Limited:
    """The part of a claim that takes jobs with a limit. They come first."""

    def __init__(self, tables: Tables, request: ClaimRequest, queues: Sequence[_Queue], taken: list[str]) -> None:
        self._tables = tables
        self._request = request
        self._queues = sorted(queues, key=lambda queue: queue.priority)
        self._taken = taken

    def choose(self, pairs: Sequence[tuple[str, str]], cluster_room: int) -> Choice:
        request = self._request
        number = min(request.limit, cluster_room, sys.maxsize if request.slots is None else request.slots)
        plain = [
            _place(row, queue) for row, queue in islice(_claimable(self._tables, self._queues), max(0, request.limit))
        ]
        return choose(self._tables, pairs, max(0, number), plain, self._place_of, self._take)

    def _queue_of(self, row: JobRow) -> _Queue | None:
        return next((queue for queue in self._queues if queue.room > 0 and queue.left.get(row.type_name, 0) > 0), None)

    def _place_of(self, row: JobRow) -> tuple[Any, ...] | None:
        queue = self._queue_of(row)
        return None if queue is None else _place(row, queue)

    def _take(self, row: JobRow) -> bool:
        queue = self._queue_of(row)
        if queue is not None:
            _take(self._tables, self._request, row, queue, self._taken)
        return queue is not None


def _place(row: JobRow, queue: _Queue) -> tuple[Any, ...]:
    """The place of a job in the order of claims."""
    return queue.priority, row.priority, row.scheduled_at, row.id


def untouched(tables: Tables, row: JobRow) -> JobRow:
    """A running job as if it had not been claimed: its handler did not begin."""
    tables.happened(row, "begun", row.scheduled_at, row.last_attempt_at, taken_back=True)
    return replace(row, attempt=row.attempt - 1, last_attempt_at=tables.held[row.id].last_attempt_at)


def _may_have_begun(tables: Tables, row: JobRow) -> bool:
    ordinal, worker = tables.held[row.id].ordinal, tables.workers.get(row.leased_by or "")
    if ordinal == NOT_BEGUN:
        return False
    return ordinal is None or worker is None or ordinal <= tables.horizon(worker)


def _ordinal(request: ClaimRequest, position: int, row: JobRow) -> int | None:
    """The ordinal of a job at this position of a claim."""
    if row.losses >= ALONE_AFTER:
        return NOT_BEGUN
    if request.at_once is None or position < request.at_once:
        return None
    return request.first_ordinal + position


@dataclass(slots=True)
class _Queue:
    """A queue during one claim."""

    name: str
    priority: int
    room: int
    """How many more of its jobs may run."""
    left: dict[str, int]
    """Type → how many more jobs of it may be claimed for this queue."""
    leases: dict[str, float]
    """Type → seconds."""


def _queue(tables: Tables, limit: QueueLimit, paused: Sequence[Pause]) -> _Queue:
    """A queue as it is before the claim, without the types that are paused. Its cap counts the
    running jobs of all workers.
    """
    cap = limit.max_concurrency
    room = sys.maxsize if cap is None else cap - sum(held.queue == limit.name for held in tables.held.values())
    left = {each.name: each.limit for each in limit.types if not is_paused(paused, each.name, limit.name)}
    return _Queue(limit.name, limit.priority, room, left, {each.name: each.lease for each in limit.types})


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
            if scheduled_at <= tables.now and row.lane is None:
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


def _next_in(
    tables: Tables, queues: Sequence[_Queue], paused: Sequence[Pause], opens_at: datetime | None
) -> float | None:
    """Seconds until the first job of the requested types that is not due yet, or until the end of a
    pause, or until a limit lets another job begin.
    """
    types = {name for queue in queues for name in queue.left}
    later = [at for _, at, job_id in tables.pending if at > tables.now and tables.jobs[job_id].type_name in types]
    if opens_at is not None:
        later.append(opens_at)
    return sooner((min(later) - tables.now).total_seconds() if later else None, paused, tables.now)
