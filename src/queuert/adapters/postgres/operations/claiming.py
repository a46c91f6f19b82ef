"""Claiming, renewing, reaping."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from queuert.adapters.postgres.operations.rows import Row, Times, blocker_of, claimed_job, job_of, running
from queuert.adapters.postgres.operations.store import Store
from queuert.model import BlockerRow, Claimed, ClaimRequest, ClaimResult, JobRow, Lease
from queuert.ports.program import Program


class _BlockerColumns(msgspec.Struct):
    """A blocker in the JSON that a claim answers with: it comes in one round trip with the job."""

    chain_id: str
    chain_type: str
    status: str
    output: str | None
    trace_context: str | None


_blockers = msgspec.json.Decoder(list[_BlockerColumns])
_marks = msgspec.json.Decoder(dict[str, msgspec.Raw])


def claim(store: Store, request: ClaimRequest) -> Program[ClaimResult]:
    limits = [(limit, place) for place, queue in enumerate(request.queues, 1) for limit in queue.types]
    types = [limit.name for limit, _ in limits]
    if not types:
        return ClaimResult([], more=False)
    members = [(place, name) for place, queue in enumerate(request.queues, 1) for name in dict.fromkeys(queue.members)]
    rows: list[Row] = yield store(
        "claim.take",
        worker=request.worker,
        limit=max(0, request.limit),
        types=types,
        queues=[place for _, place in limits],
        limits=[limit.limit for limit, _ in limits],
        leases=[limit.lease for limit, _ in limits],
        queue_names=[queue.name for queue in request.queues],
        queue_priorities=[queue.priority for queue in request.queues],
        queue_caps=[queue.max_concurrency for queue in request.queues],
        member_queues=[place for place, _ in members],
        member_types=[name for _, name in members],
        cluster_cap=request.cluster_cap,
        marks=_marks_of(store, types),
    )
    head = rows[0]
    marks, more, next_in, claimed_at = head[-4:]
    _remember(store, types, marks)
    times = Times()
    alike = {limit.name: running(limit.name, request.worker, claimed_at, limit.lease) for limit, _ in limits}
    return ClaimResult([_claimed(row, alike[row[1]], times) for row in rows[1:]], more=more, next_in=next_in)


def _marks_of(store: Store, names: list[str]) -> str | None:
    found = {name: mark for name in names if (mark := store.marks.get(name)) is not None}
    return msgspec.json.encode(found).decode() if found else None


def _remember(store: Store, names: list[str], marks: str | None) -> None:
    """None: an ordinary claim. The marks are the server's to read: it also knows when they are too old."""
    if marks is not None:
        store.marks.update(_marks.decode(marks))
    elif store.marks:
        for name in names:
            store.marks.pop(name, None)


def _claimed(row: Row, alike: JobRow, times: Times) -> Claimed:
    expired, blockers = row[17], row[18]
    return Claimed(claimed_job(row, alike, times), expired, () if blockers is None else _decode(blockers))


def _decode(blockers: str) -> tuple[BlockerRow, ...]:
    return tuple(blocker_of(msgspec.structs.astuple(each)) for each in _blockers.decode(blockers))


def renew(store: Store, leases: Sequence[Lease]) -> Program[list[str]]:
    if not leases:
        return []
    last = {(lease.job_id, lease.token): lease.duration for lease in leases}
    rows: list[Row] = yield store(
        "claim.renew",
        ids=[lease.job_id for lease in leases],
        tokens=[lease.token for lease in leases],
        durations=[last[lease.job_id, lease.token] for lease in leases],
    )
    return [row[0] for row in rows]


def hold(store: Store, job_id: str, token: int, *, lock: bool) -> Program[bool]:
    rows: list[Row] = yield store("claim.hold", id=job_id, token=token, lock=lock)
    return bool(rows)


def reap(store: Store, types: Sequence[str], ignored: Sequence[str], limit: int, error: bytes) -> Program[list[JobRow]]:
    if not types or limit <= 0:
        return []
    rows: list[Row] = yield store(
        "claim.reap", types=list(types), ignored=list(ignored), limit=limit, error=error.decode()
    )
    return [job_of(row) for row in rows]
