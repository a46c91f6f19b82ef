"""Claims: promote what has fallen due, look at the heads of the types, choose, take."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import msgspec

from queuert.adapters.sqlite.reading import job_blockers
from queuert.adapters.sqlite.rows import Row, add_seconds, job_of
from queuert.adapters.sqlite.store import Store, array
from queuert.model import BlockerRow, Claimed, ClaimRequest, ClaimResult, JobRow, Lease, TypeLimit
from queuert.ports.program import Program, atomically

PROMOTED_AT_ONCE = 1000
"""Of each type, in one claim. Jobs that fall due in greater numbers at one moment become ready over the next claims,
longest due first; until then priorities count among those that are ready."""

_UNLIMITED = sys.maxsize


class _Room(msgspec.Struct):
    """How many more jobs a queue may take."""

    left: int


class _Lane(msgspec.Struct):
    """One type of one queue."""

    limit: TypeLimit
    priority: int
    left: int
    queue: _Room
    leased_until: int


def claim(store: Store, request: ClaimRequest) -> Program[ClaimResult]:
    if not any(queue.types for queue in request.queues):
        return ClaimResult([], more=False)
    return (yield from atomically(_claim(store, request)))


def _claim(store: Store, request: ClaimRequest) -> Program[ClaimResult]:
    now = store.now()
    lanes, cluster = yield from _rooms(store, request, now)
    if not lanes or cluster <= 0:
        return ClaimResult([], more=False)
    wanted = max(0, min(request.limit, cluster))
    types = array(list({lane.limit.name for lane in lanes}))
    yield store("claim.promote", types=types, now=now, bound=max(PROMOTED_AT_ONCE, wanted + 1))
    # One more than can be taken shows whether there is more. If every lane may fill the claim alone, the merged order
    # is final and its head is enough; otherwise the head of each lane may be needed.
    simple = all(lane.left >= wanted and lane.queue.left >= wanted for lane in lanes)
    rows: list[Row] = yield store(
        "claim.candidates",
        types=array([(lane.limit.name, lane.priority) for lane in lanes]),
        now=now,
        head=wanted + 1,
        total=wanted + 1 if simple else -1,
    )
    taken, more = _choose(rows, lanes, request.limit, cluster)
    if not taken:
        return ClaimResult([], more)
    last: list[Row] = yield store("claim.tokens", number=len(taken))
    updated: list[Row] = yield store(
        "claim.take",
        taken=array([(rowid, lane.leased_until) for rowid, lane in taken]),
        now=now,
        worker=request.worker,
        first_token=last[0][0] - len(taken) + 1,
    )
    jobs = sorted((job_of(row) for row in updated), key=_token)
    blockers = yield from job_blockers(store, [job.id for job in jobs])
    return ClaimResult([_claimed(*pair) for pair in zip(jobs, blockers, strict=True)], more)


def _rooms(store: Store, request: ClaimRequest, now: int) -> Program[tuple[list[_Lane], int]]:
    """The types that have room for a job, and the room of the whole cluster."""
    capped = [queue for queue in request.queues if queue.max_concurrency]
    running: dict[str, int] = {}
    if capped or request.cluster_cap:
        running = dict((yield store("claim.running")))
    lanes: list[_Lane] = []
    for queue in request.queues:
        room = _Room(_UNLIMITED)
        if queue.max_concurrency is not None:
            room.left = queue.max_concurrency - sum(running.get(name, 0) for name in set(queue.members))
        lanes += [
            _Lane(limit, queue.priority, limit.limit, room, add_seconds(now, limit.lease))
            for limit in queue.types
            if limit.limit > 0 and room.left > 0
        ]
    cap = request.cluster_cap
    return lanes, _UNLIMITED if cap is None else cap - sum(running.values())


def _choose(
    candidates: Sequence[Row], lanes: Sequence[_Lane], limit: int, cluster: int
) -> tuple[list[tuple[int, _Lane]], bool]:
    """The candidates in their order, each unless some room is used up. True: only the limit left one out."""
    taken: dict[int, _Lane] = {}
    for rowid, position, *_ in candidates:
        lane = lanes[position]
        if rowid in taken or lane.left <= 0 or lane.queue.left <= 0:
            continue
        if len(taken) >= cluster:
            break
        if len(taken) >= limit:
            return list(taken.items()), True
        taken[rowid] = lane
        lane.left -= 1
        lane.queue.left -= 1
    return list(taken.items()), False


def _token(job: JobRow) -> int:
    return job.token or 0


def _claimed(job: JobRow, blockers: list[BlockerRow]) -> Claimed:
    # `last_attempt_at` is this very claim's "now".
    expired = job.deadline is not None and job.last_attempt_at is not None and job.deadline <= job.last_attempt_at
    return Claimed(job, expired, tuple(blockers))


def renew(store: Store, leases: Sequence[Lease]) -> Program[list[str]]:
    if not leases:
        return []
    now = store.now()
    wanted = {(lease.job_id, lease.token): add_seconds(now, lease.duration) for lease in leases}
    items = [(job_id, token, until) for (job_id, token), until in wanted.items()]
    rows: list[Row] = yield store("renew.extend", leases=array(items))
    renewed = {(row[0], row[1]) for row in rows}
    return [lease.job_id for lease in leases if (lease.job_id, lease.token) not in renewed]


def reap(
    store: Store, types: Sequence[str], ignored: Sequence[str], limit: int, error: bytes
) -> Program[list[JobRow]]:
    if not types or limit <= 0:
        return []
    now = store.now()
    rows: list[Row] = yield store(
        "reap.ended", types=array(list(set(types))), ignored=array(ignored), limit=limit, now=now
    )
    if not rows:
        return []
    ids = [row[0] for row in rows]
    updated: list[Row] = yield store("reap.put_back", ids=array(ids), now=now, error=error.decode())
    found = {row[0]: job_of(row) for row in updated}
    return [found[job_id] for job_id in ids if job_id in found]
