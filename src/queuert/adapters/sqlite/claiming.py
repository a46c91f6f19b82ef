"""Claims: promote what has fallen due, look at the heads of the types, choose, take."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence

import msgspec

from queuert.adapters.sqlite.reading import job_blockers
from queuert.adapters.sqlite.rows import Row, add_seconds, job_of
from queuert.adapters.sqlite.store import Store, array
from queuert.adapters.sqlite.unit import as_unit
from queuert.model import BlockerRow, Claimed, ClaimRequest, ClaimResult, JobRow, Lease, QueueLimit
from queuert.ports.program import Program

PROMOTED_AT_ONCE = 5000
"""Of each type, in one claim: some 15 ms. Jobs that fall due in greater numbers at one moment become ready over the
next claims, longest due first; until then priorities count among those that are ready."""

_UNLIMITED = sys.maxsize


class _Room(msgspec.Struct):
    """How many more jobs a queue may take."""

    left: int


class _Lane(msgspec.Struct):
    """One type of one queue."""

    type_name: str
    priority: int
    left: int
    leased_until: int
    queue: _Room
    counted_in: list[_Room]
    """Its own queue, and every other one that has the type as a member."""

    def has_room(self) -> bool:
        return self.left > 0 and self.queue.left > 0

    def take(self) -> None:
        self.left -= 1
        for room in self.counted_in:
            room.left -= 1


class _Choice(msgspec.Struct):
    taken: dict[int, _Lane]
    more: bool = False
    final: bool = True


def claim(store: Store, request: ClaimRequest) -> Program[ClaimResult]:
    if not any(queue.types for queue in request.queues):
        return ClaimResult([], more=False)
    return (yield from as_unit(_claim(store, request)))


def _claim(store: Store, request: ClaimRequest) -> Program[ClaimResult]:
    now = store.now()
    running = yield from _running(store, request)
    choice = yield from _find(store, request, running, now)
    jobs = (yield from _take(store, request, choice.taken, now)) if choice.taken else []
    if choice.more:
        return ClaimResult(jobs, more=True)
    names = {limit.name for queue in request.queues for limit in queue.types}
    due: list[Row] = yield store("claim.next", types=array(list(names)), now=now)
    return ClaimResult(jobs, more=False, next_in=(due[0][0] - now) / 1_000_000 if due else None)


def _take(store: Store, request: ClaimRequest, taken: Mapping[int, _Lane], now: int) -> Program[list[Claimed]]:
    last: list[Row] = yield store("claim.tokens", number=len(taken), nanoseconds=time.time_ns())
    rows: list[Row] = yield store(
        "claim.take",
        taken=array([(rowid, lane.leased_until) for rowid, lane in taken.items()]),
        now=now,
        worker=request.worker,
        first_token=last[0][0] - len(taken) + 1,
    )
    jobs = sorted((job_of(row) for row in rows), key=_token)
    blockers = yield from job_blockers(store, [job.id for job in jobs])
    return [_claimed(*pair) for pair in zip(jobs, blockers, strict=True)]


def _running(store: Store, request: ClaimRequest) -> Program[dict[str, int]]:
    """The running jobs by type, if there is a cap that counts them. A cap of 0 needs no counting."""
    if not request.cluster_cap and not any(queue.max_concurrency for queue in request.queues):
        return {}
    rows: list[tuple[str, int]] = yield store("claim.running")
    return dict(rows)


def _find(store: Store, request: ClaimRequest, running: Mapping[str, int], now: int) -> Program[_Choice]:
    """Look at the heads of the types, and further down if a head was too short to decide."""
    cluster = _UNLIMITED if request.cluster_cap is None else request.cluster_cap - sum(running.values())
    lanes = _lanes(request, running, now)
    if not lanes or cluster <= 0:
        return _Choice({})
    # One more than can be taken shows whether there is more.
    enough = max(0, min(request.limit, cluster)) + 1
    names = array(list({lane.type_name for lane in lanes}))
    yield store("claim.promote", types=names, now=now, bound=max(PROMOTED_AT_ONCE, enough))
    # If every lane may fill the claim alone, no candidate is ever passed over, and so many of the merged order suffice.
    free = all(min(lane.left, lane.queue.left) >= enough for lane in lanes)
    head = 8 + 2 * enough // len(lanes)
    while True:
        head = min(head, enough)
        rows: list[tuple[int, int, int]] = yield store(
            "claim.candidates",
            types=array([(lane.type_name, lane.priority) for lane in lanes]),
            now=now,
            head=head,
            total=enough if free else -1,
        )
        choice = _choose(rows, lanes, request.limit, cluster, head if head < enough else _UNLIMITED)
        if choice.final:
            return choice
        head *= 4
        lanes = _lanes(request, running, now)


def _lanes(request: ClaimRequest, running: Mapping[str, int], now: int) -> list[_Lane]:
    """The types that have room for a job."""
    rooms = [(queue, _Room(_room_of(queue, running))) for queue in request.queues]
    lanes: list[_Lane] = []
    for queue, room in rooms:
        for limit in queue.types:
            if limit.limit > 0 and room.left > 0:
                counted_in = [each for other, each in rooms if each is room or limit.name in other.members]
                until = add_seconds(now, limit.lease)
                lanes.append(_Lane(limit.name, queue.priority, limit.limit, until, room, counted_in))
    return lanes


def _room_of(queue: QueueLimit, running: Mapping[str, int]) -> int:
    if queue.max_concurrency is None:
        return _UNLIMITED
    return queue.max_concurrency - sum(running.get(name, 0) for name in set(queue.members))


def _choose(
    candidates: Sequence[tuple[int, int, int]], lanes: Sequence[_Lane], limit: int, cluster: int, head: int
) -> _Choice:
    """The candidates in their order, each unless some room is used up.

    After the last of a head that was cut off, nobody knows whose turn it is: the choice is final if it ends before.
    """
    choice = _Choice({})
    seen = [0] * len(lanes)
    for rowid, position, _ in candidates:
        lane = lanes[position]
        seen[position] += 1
        if lane.has_room() and rowid not in choice.taken:
            if len(choice.taken) >= limit:
                choice.more = choice.final = True
                return choice
            choice.taken[rowid] = lane
            lane.take()
            if len(choice.taken) >= cluster:
                return choice
        if seen[position] == head and lane.has_room():
            choice.final = False
            if len(choice.taken) < limit:
                return choice
    return choice


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


def hold(store: Store, job_id: str, token: int) -> Program[bool]:
    rows: list[Row] = yield store("renew.hold", id=job_id, token=token)
    return bool(rows)


def reap(store: Store, types: Sequence[str], ignored: Sequence[str], limit: int, error: bytes) -> Program[list[JobRow]]:
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
