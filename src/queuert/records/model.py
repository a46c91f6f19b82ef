"""The records that travel between the storage port and everything above it.

They are untyped on purpose: inputs and outputs are JSON bytes here, and become the user's own types
in `jobs`. Times are aware datetimes in UTC. `msgspec.Struct` because these are made once per job on
the hot path; `gc=False` where they are many: they hold plain values and cannot be part of a cycle.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from secrets import randbits
from types import MappingProxyType
from typing import Literal

import msgspec
from msgspec.structs import replace

from queuert.base.statuses import Status
from queuert.records.dedup import Dedup
from queuert.records.history import Histogram
from queuert.records.pauses import Pause

Collapse = Literal["postpone", "replace", "hold", "trail"]
"""What a start does with the chain under its key, besides finding it. See `NewJob.collapse`."""

DEFAULT_PRIORITY = 100
UNBLOCKED_AT_ONCE = 1000
"""Dependents that are freed in the transaction that completes their blockers, and in each later
one."""


ALONE_AFTER = 2
"""A job that was lost with its worker this often runs alone in its worker from then on."""
NOT_BEGUN = 2**63 - 1
"""The ordinal of such a job until it begins: above every horizon."""
NO_DELAYS: Mapping[str, Sequence[float]] = MappingProxyType({})


class When(msgspec.Struct, gc=False, frozen=True):
    """A moment, absolute (`at`) or counted from the database's own clock (`after`, seconds).

    Never both.
    """

    at: datetime | None = None
    after: float | None = None


NOW = When()


class BlockerRef(msgspec.Struct, gc=False, frozen=True):
    """A chain that a new job must wait for, and the type that chain must have."""

    chain_id: str
    chain_type: str
    trace_context: str | None = None


class NewJob(msgspec.Struct, gc=False, frozen=True, kw_only=True):
    """A job to be stored. The first of a chain has `id == chain_id` and `chain_index == 0`."""

    id: str
    type_name: str
    chain_id: str
    chain_type: str
    chain_index: int
    input: bytes
    priority: int = DEFAULT_PRIORITY
    schedule: When = NOW
    deadline: When | None = None
    dedup: Dedup | None = None
    collapse: Collapse | None = None
    """What happens to the chain that has the key.

    "postpone", "replace" and "hold" come with the scope "waiting" and a window, "trail" with "any",
    a window and no time of its own. Such a job has no blockers, and finds no chain that has, or
    had, blockers.

    "postpone": the chain becomes due when this job would, at the end of the window at the latest.
    "replace": the same, and it gets this job's input, priority and deadline. "hold": nothing is
    written, but the chain cannot begin or change until the transaction ends; `replace_waiting` may
    follow. "trail": if the chain is due later, it gets this job's input, priority and deadline.
    Else this job is due at the end of the window, which is counted from the time at which the chain
    was due.
    """
    blockers: tuple[BlockerRef, ...] = ()
    trace_context: str | None = None
    chain_trace_context: str | None = None
    lane: str | None = None
    """The key of its limit: see `limit_records`. None: it has no limit."""
    weight: float | None = None
    """The weight of that key, if its limit takes it from the job."""


class JobRow(msgspec.Struct, gc=False, frozen=True):
    """A job as it is stored. `token` fences the claim that is under way: no other claim of the job
    has it. `losses`: how many of its attempts were lost with their worker.
    """

    id: str
    type_name: str
    chain_id: str
    chain_type: str
    chain_index: int
    input: bytes
    output: bytes | None
    status: Status
    priority: int
    created_at: datetime
    scheduled_at: datetime
    completed_at: datetime | None
    completed_by: str | None
    continued_to: str | None
    attempt: int
    last_attempt_at: datetime | None
    last_error: bytes | None
    leased_by: str | None
    leased_until: datetime | None
    token: int | None
    deadline: datetime | None
    dedup_key: str | None
    blockers_left: int
    trace_context: str | None
    chain_trace_context: str | None
    lane: str | None = None
    losses: int = 0


class ChainRow(msgspec.Struct, gc=False, frozen=True):
    """A chain: its first job, and its current job (the same, while it has one job)."""

    first: JobRow
    current: JobRow

    @property
    def is_waiting(self) -> bool:
        """Whether the chain has not begun: no handler of its first job has."""
        return self.first.status in ("blocked", "pending") and self.first.last_attempt_at is None


class Created(msgspec.Struct, gc=False, frozen=True):
    """What happened to a `NewJob`.

    `ready`: it can be claimed now. `existing`: the chain that held its key. `pruned`: the chain
    that holds its key was pruned; `status` is how it had ended. `replaced`: the existing chain has
    the input of this job now.
    """

    job_id: str
    chain_id: str
    status: Status
    ready: bool
    existing: ChainRow | None = None
    pruned: bool = False
    replaced: bool = False

    @property
    def deduplicated(self) -> bool:
        """Whether no chain was stored, because of its key."""
        return self.pruned or self.existing is not None


def new_token() -> int:
    """A token that no claim has: 62 random bits. Together with the position in the claim, it fits
    into a signed number of 64 bits.
    """
    return randbits(62)


class TypeLimit(msgspec.Struct, frozen=True):
    """A job type to claim: at most `limit` of it now, each leased for `lease` seconds. `limits`:
    the names of the limits that its jobs may be stored with.
    """

    name: str
    limit: int
    lease: float
    limits: tuple[str, ...] = ()


class QueueLimit(msgspec.Struct, frozen=True):
    """A named group of job types.

    `max_concurrency` counts all running jobs that were claimed through a queue of this name,
    whatever their types. An older version stores no queue with what it claims: then the job counts
    if its type is one of the `members`.
    """

    name: str
    priority: int
    types: tuple[TypeLimit, ...]
    members: tuple[str, ...] = ()
    max_concurrency: int | None = None


class ClaimRequest(msgspec.Struct, frozen=True):
    """Up to `limit` jobs for `worker`. `cluster_cap` counts every running job in the database.

    `at_once`: this many jobs, the first ones, may begin as soon as they are claimed. The others get
    ordinals in their order, `first_ordinal` plus their position in the claim. They begin when the
    worker's horizon has reached them (see `StateOperations.move_horizon`). None: all may begin.

    `first_token`: the token of the first job. The others have the numbers after it, in their order.
    It is random, and new for each claim: a number that the database counts may come again after a
    failover that has lost its last writes. Tokens do not show the order of claims.

    `slots`: at most this many jobs with a limit. They must be able to begin, even if others are
    claimed ahead. None: no bound but `limit`.
    """

    worker: str
    limit: int
    queues: tuple[QueueLimit, ...]
    cluster_cap: int | None = None
    at_once: int | None = None
    first_ordinal: int = 1
    first_token: int = msgspec.field(default_factory=new_token)
    slots: int | None = None

    def after(self, number: int) -> ClaimRequest:
        """What is left of the request, after this many jobs were claimed for it."""
        return replace(
            self,
            limit=self.limit - number,
            at_once=None if self.at_once is None else self.at_once - number,
            first_ordinal=self.first_ordinal + number,
            first_token=self.first_token + number,
        )


class BlockerRow(msgspec.Struct, gc=False, frozen=True):
    """A chain that a job waits (or waited) for, with the output it has if it is completed."""

    chain_id: str
    chain_type: str
    status: Status
    output: bytes | None
    trace_context: str | None = None


class Claimed(msgspec.Struct, gc=False, frozen=True):
    """A job that is now running for this worker.

    `expired`: its deadline had passed by the database's clock. `ordinal`: its place among the
    worker's claims; None if it may begin at once; `NOT_BEGUN` if it was lost too often, and begins
    with `begin_alone`. `ran_before`: it had a `last_attempt_at` before
    this claim, so an earlier run has begun.
    """

    job: JobRow
    expired: bool = False
    blockers: tuple[BlockerRow, ...] = ()
    ordinal: int | None = None
    ran_before: bool = False


class ClaimResult(msgspec.Struct, frozen=True):
    """The claimed jobs in their order. `more`: a further claim would find something now.

    `next_in`: seconds until the next pending job of the requested types becomes due, or until a
    pause of them ends; None if there is neither, or if there is more to claim now. `paused`: the
    pauses that were in the way of the requested types, and those of keys whose running jobs have to
    stop, sorted by scope and name.
    """

    jobs: list[Claimed]
    more: bool
    next_in: float | None = None
    paused: tuple[Pause, ...] = ()


class Lease(msgspec.Struct, gc=False, frozen=True):
    """A claim to be renewed for `duration` seconds from now."""

    job_id: str
    token: int
    duration: float


class Settlement(msgspec.Struct, gc=False, frozen=True, kw_only=True):
    """How a job goes on.

    `status` "completed" takes an `output` or a `continuation`; "failed" and "expired" take an
    `error`; "cancelled" takes nothing; "pending" puts the job back: with an `error` and a
    `schedule` after a failed attempt; with `uncounted` and a `schedule` after a run that began but
    is no attempt (its attempt number is handed back); or with `give_back` if no run began (its
    attempt number is handed back, its schedule and `last_attempt_at` are those from before the
    claim). With a `token` it applies only to the claim that carries it; with None to any job that
    has not ended. `discard`: if it completes the chain, delete the chain. `closes`: with
    `give_back`, the lane of the job is closed for this many seconds.
    """

    job_id: str
    token: int | None
    status: Status
    output: bytes | None = None
    continuation: NewJob | None = None
    error: bytes | None = None
    schedule: When = NOW
    uncounted: bool = False
    give_back: bool = False
    worker: str | None = None
    discard: bool = False
    closes: float | None = None

    @property
    def fails_attempt(self) -> bool:
        """Whether an attempt of a running job has failed."""
        return (
            self.error is not None and self.status in ("pending", "failed") and not (self.uncounted or self.give_back)
        )


class Unblocked(msgspec.Struct, gc=False, frozen=True):
    """A job whose last blocker has just completed. `ready`: it can be claimed now."""

    job_id: str
    type_name: str
    ready: bool


class Settled(msgspec.Struct, frozen=True):
    """`applied[i]`: settlement i took effect (its claim was still valid).

    `created[i]`: its continuation. `more`: some dependents of the completed chains are left for
    `continue_unblocking`.
    """

    applied: list[bool]
    created: list[Created | None]
    unblocked: list[Unblocked]
    more: bool = False


class Freed(msgspec.Struct, frozen=True):
    """What one step of `continue_unblocking` did. `more`: another call has something to do now.

    `chain_id`: the chain that these jobs waited for; None if there was nothing to do.
    """

    unblocked: list[Unblocked]
    more: bool = False
    chain_id: str | None = None


class Available(msgspec.Struct, frozen=True):
    """What there is to do. `next_in`: seconds until a pending job is due, 0 if one is due, or until
    a pause ends; None if there is neither. Jobs that are paused do not count. `unblocking`:
    dependents of a completed chain are left for `continue_unblocking`, perhaps by a process that
    has died. `paused`: as in `ClaimResult`.
    """

    next_in: float | None
    unblocking: bool = False
    paused: tuple[Pause, ...] = ()


class Cancelled(msgspec.Struct, frozen=True):
    """The chains that had not ended, as they are now: the named ones in their order, then the
    others by id. `running`: the ids of those of their jobs that were running. `missing`: named
    chains that do not exist, and then nothing is done.
    """

    chains: list[ChainRow]
    running: frozenset[str] = frozenset()
    missing: tuple[str, ...] = ()


class Deleted(msgspec.Struct, frozen=True):
    """The chains that are gone, or, if any is still needed, `waiting` (chain id → job ids) and
    nothing done.
    """

    chains: list[ChainRow]
    waiting: Mapping[str, list[str]]


class TypeStats(msgspec.Struct, frozen=True):
    """How many open and failed jobs of one type are stored."""

    job_type: str
    """The name of the job type."""
    blocked: int = 0
    """Jobs that wait for other chains."""
    pending: int = 0
    """Jobs that wait for their time or for a worker."""
    limited: int = 0
    """Those of them that are due and have a limit: they wait in the lines of their keys. A job
    whose time has come since the last claim may be missing."""
    running: int = 0
    """Jobs that a worker is running."""
    failed: int = 0
    """Jobs that have no attempts left."""
    oldest_ready_age: float | None = None
    """How long the oldest ready job has waited, in seconds. None if no job is ready."""
    took: Histogram = Histogram()
    """How long the attempts took that have completed jobs of the type: with `stats(since=…)`."""


def at_most(limit: int | None, number: int) -> int:
    """The number, or the limit if that is less. None: no limit."""
    return number if limit is None else min(limit, number)
