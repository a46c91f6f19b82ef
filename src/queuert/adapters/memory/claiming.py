"""Claims: who gets which job next, for how long, and what becomes of a claim that nobody renews."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from datetime import datetime
from heapq import heapify, heappop, heapreplace, nsmallest
from itertools import groupby

from msgspec.structs import replace

from queuert.adapters.memory.index import Entry, TypeIndex
from queuert.adapters.memory.moments import after
from queuert.adapters.memory.tables import Tables
from queuert.model import Claimed, ClaimRequest, ClaimResult, JobRow, Lease, QueueLimit

_UNLIMITED = sys.maxsize


class _Room:
    """How many more jobs a queue may take."""

    __slots__ = ("left",)

    def __init__(self, left: int) -> None:
        self.left = left


class _Lane:
    """The ready jobs of one type in a claim."""

    __slots__ = ("counted_in", "index", "leased_until", "left", "queue")

    def __init__(
        self, index: TypeIndex, queue: _Room, counted_in: Sequence[_Room], limit: int, leased_until: datetime
    ) -> None:
        self.index = index
        self.queue = queue
        self.counted_in = counted_in
        """Its own queue, and every other one that has the type as a member."""
        self.left = limit
        self.leased_until = leased_until


_Head = tuple[Entry, int, _Lane]
"""A lane by its first job; the number keeps lanes from being compared."""


def claim(tables: Tables, request: ClaimRequest) -> ClaimResult:
    cluster = _Room(_UNLIMITED if request.cluster_cap is None else request.cluster_cap - tables.running)
    taken: list[JobRow] = []
    for _, queues in groupby(sorted(request.queues, key=_priority), key=_priority):
        if _claim_from(tables, queues, request, cluster, taken):
            return ClaimResult(_claimed(tables, taken), more=True)
    return ClaimResult(_claimed(tables, taken), more=False, next_in=_next_in(tables, request))


def _next_in(tables: Tables, request: ClaimRequest) -> float | None:
    now = tables.now
    indexes = [tables.types.get(limit.name) for queue in request.queues for limit in queue.types]
    later = [index.next_later(now) for index in indexes if index is not None]
    first = min((moment for moment in later if moment is not None), default=None)
    return None if first is None else (first - now).total_seconds()


def renew(tables: Tables, leases: Sequence[Lease]) -> list[str]:
    lost: list[str] = []
    for lease in leases:
        row = tables.rows.get(lease.job_id)
        if row is None or row.token != lease.token:
            lost.append(lease.job_id)
        else:
            tables.put(replace(row, leased_until=after(tables.now, lease.duration)))
    return lost


def is_held(tables: Tables, job_id: str, token: int) -> bool:
    row = tables.rows.get(job_id)
    return row is not None and row.token == token


def reap(tables: Tables, types: Sequence[str], ignored: Sequence[str], limit: int, error: bytes) -> list[JobRow]:
    now, left_alone = tables.now, set(ignored)
    ended: list[tuple[datetime, str]] = []
    for type_name in set(types):
        index = tables.types.get(type_name)
        for job_id in () if index is None else index.running - left_alone:
            until = tables.rows[job_id].leased_until
            if until is not None and until <= now:
                ended.append((until, job_id))
    reaped: list[JobRow] = []
    for _, job_id in nsmallest(limit, ended):
        row = replace(
            tables.rows[job_id],
            status="pending",
            last_error=error,
            leased_by=None,
            leased_until=None,
            token=None,
        )
        tables.put(row)
        reaped.append(row)
    return reaped


def _claim_from(
    tables: Tables,
    queues: Iterable[QueueLimit],
    request: ClaimRequest,
    cluster: _Room,
    taken: list[JobRow],
) -> bool:
    """Take from queues of one priority. True: there was one more that only the claim's own limit left out."""
    now = tables.now
    heads = _heads(tables, queues)
    while heads and cluster.left > 0:
        entry, number, lane = heads[0]
        if lane.left <= 0 or lane.queue.left <= 0:
            heappop(heads)
            continue
        if lane.index.leads(entry):
            if len(taken) >= request.limit:
                return True
            taken.append(_take(tables, entry[2], request.worker, lane))
            lane.left -= 1
            for room in lane.counted_in:
                room.left -= 1
            cluster.left -= 1
        following = lane.index.head(now)
        if following is None:
            heappop(heads)
        else:
            heapreplace(heads, (following, number, lane))
    return False


def _heads(tables: Tables, queues: Iterable[QueueLimit]) -> list[_Head]:
    now = tables.now
    heads: list[_Head] = []
    rooms = [(queue, _Room(_room(tables, queue))) for queue in queues]
    for queue, room in rooms:
        for limit in queue.types:
            index = tables.types.get(limit.name)
            entry = None if index is None else index.head(now)
            if index is not None and entry is not None:
                until = after(now, limit.lease)
                counted_in = [each for other, each in rooms if each is room or limit.name in other.members]
                heads.append((entry, len(heads), _Lane(index, room, counted_in, limit.limit, until)))
    heapify(heads)
    return heads


def _take(tables: Tables, job_id: str, worker: str, lane: _Lane) -> JobRow:
    now, old = tables.now, tables.rows[job_id]
    row = replace(
        old,
        status="running",
        attempt=old.attempt + 1,
        last_attempt_at=now,
        leased_by=worker,
        leased_until=lane.leased_until,
        token=next(tables.tokens),
    )
    tables.put(row)
    return row


def _claimed(tables: Tables, taken: Sequence[JobRow]) -> list[Claimed]:
    """Once all are taken: a blocker may have been taken by the same claim."""
    now = tables.now
    return [Claimed(row, row.deadline is not None and row.deadline <= now, tables.blockers(row.id)) for row in taken]


def _room(tables: Tables, queue: QueueLimit) -> int:
    if queue.max_concurrency is None:
        return _UNLIMITED
    return queue.max_concurrency - _running(tables, queue.members)


def _running(tables: Tables, types: Iterable[str]) -> int:
    return sum(len(tables.types[name].running) for name in set(types) if name in tables.types)


def _priority(queue: QueueLimit) -> int:
    return queue.priority
