"""Builders for the arguments of the port, with defaults, so that cases name only what they test."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from itertools import count
from time import time_ns
from typing import Any
from uuid import UUID

from queuert.base.statuses import Status
from queuert.records.dedup import Dedup
from queuert.records.model import (
    BlockerRef,
    Claimed,
    ClaimRequest,
    JobRow,
    NewJob,
    QueueLimit,
    Settlement,
    TypeLimit,
    When,
    new_token,
)

TASK = "task"
WORKER = "worker-1"
LEASE = 60.0
HOUR = 3600.0

PAST = datetime(2001, 2, 3, 4, 5, 6, 789012, tzinfo=UTC)
FUTURE = datetime(2101, 2, 3, 4, 5, 6, 789012, tzinfo=UTC)

INPUT = b'{"order":7}'
ERROR = b'{"code":"BOOM","message":"it broke"}'

_counter = count()
_millisecond = time_ns() // 1_000_000


def new_id() -> str:
    """A UUIDv7. Ids that are made later sort later."""
    number = next(_counter)
    high, low = divmod(number, 1 << 62)
    return str(UUID(int=(_millisecond + high << 80) | (7 << 76) | (2 << 62) | low))


def new_ids(number: int) -> list[str]:
    """Ids in ascending order."""
    return [new_id() for _ in range(number)]


def new_job(type_name: str = TASK, *, id: str | None = None, **fields: Any) -> NewJob:
    """The first job of a new chain."""
    job_id = id or new_id()
    return NewJob(
        id=job_id,
        type_name=type_name,
        chain_id=job_id,
        chain_type=type_name,
        chain_index=0,
        input=fields.pop("input", INPUT),
        **fields,
    )


def next_job(after: JobRow, type_name: str | None = None, *, id: str | None = None, **fields: Any) -> NewJob:
    """The continuation of a job."""
    return NewJob(
        id=id or new_id(),
        type_name=type_name or after.type_name,
        chain_id=after.chain_id,
        chain_type=after.chain_type,
        chain_index=after.chain_index + 1,
        input=fields.pop("input", INPUT),
        **fields,
    )


def waiting_for(*chain_ids: str, chain_type: str = TASK) -> tuple[BlockerRef, ...]:
    """Blockers, all of one type."""
    return tuple(BlockerRef(chain_id, chain_type) for chain_id in chain_ids)


def key(text: str, **options: Any) -> Dedup:
    """A deduplication key."""
    return Dedup(text, **options)


def later(delay: float = HOUR) -> When:
    """A time from now, by the database's clock."""
    return When(after=delay)


def queue(
    *types: str | TypeLimit,
    name: str = "queue",
    priority: int = 0,
    limit: int = 1_000_000,
    lease: float = LEASE,
    members: Iterable[str] | None = None,
    max_concurrency: int | None = None,
) -> QueueLimit:
    """A queue of types.

    `limit` and `lease` apply to types given by name. By default all types are members.
    """
    limits = tuple(TypeLimit(each, limit, lease) if isinstance(each, str) else each for each in types)
    named = tuple(each.name for each in limits)
    return QueueLimit(name, priority, limits, named if members is None else tuple(members), max_concurrency)


def request(
    *queues: QueueLimit,
    limit: int = 100,
    worker: str = WORKER,
    cluster_cap: int | None = None,
    at_once: int | None = None,
    first_ordinal: int = 1,
    first_token: int | None = None,
    slots: int | None = None,
) -> ClaimRequest:
    """A claim of these queues. Without queues, a claim of the plain task type."""
    token = new_token() if first_token is None else first_token
    return ClaimRequest(worker, limit, queues or (queue(TASK),), cluster_cap, at_once, first_ordinal, token, slots)


def _settlement(claim: Claimed | str, status: Status, **fields: Any) -> Settlement:
    """A settlement: with a token for a claim, without one for an id."""
    if isinstance(claim, str):
        return Settlement(job_id=claim, token=None, status=status, **fields)
    return Settlement(job_id=claim.job.id, token=claim.job.token, status=status, worker=WORKER, **fields)


def completed(claim: Claimed | str, output: bytes = b"null", **fields: Any) -> Settlement:
    return _settlement(claim, "completed", output=output, **fields)


def continued(claim: Claimed | str, continuation: NewJob) -> Settlement:
    return _settlement(claim, "completed", continuation=continuation)


def failed(claim: Claimed | str, error: bytes | None = ERROR) -> Settlement:
    return _settlement(claim, "failed", error=error)


def expired(claim: Claimed | str, error: bytes | None = ERROR) -> Settlement:
    return _settlement(claim, "expired", error=error)


def cancelled(claim: Claimed | str) -> Settlement:
    return _settlement(claim, "cancelled")


def put_back(claim: Claimed, error: bytes | None = ERROR, schedule: When | None = None) -> Settlement:
    return _settlement(claim, "pending", error=error, schedule=schedule or When())


def rescheduled(claim: Claimed, schedule: When | None = None) -> Settlement:
    return _settlement(claim, "pending", uncounted=True, schedule=schedule or When())


def given_back(claim: Claimed, **fields: Any) -> Settlement:
    return _settlement(claim, "pending", give_back=True, **fields)


def end_as(status: Status, claim: Claimed | str) -> Settlement:
    """The settlement that brings a job to this terminal status."""
    if status == "completed":
        return completed(claim)
    return cancelled(claim) if status == "cancelled" else _settlement(claim, status, error=ERROR)
