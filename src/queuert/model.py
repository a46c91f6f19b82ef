"""The records that travel between the storage port and everything above it.

They are untyped on purpose: inputs and outputs are JSON bytes here, and become the user's own types
in `jobs`. Times are aware datetimes in UTC. `msgspec.Struct` because these are made once per job on
the hot path; `gc=False` where they are many: they hold plain values and cannot be part of a cycle.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from datetime import UTC, datetime, timedelta
from typing import Generic, Literal, TypeVar, cast, get_args

import msgspec

from queuert.errors import InvalidArgument, InvalidCursor

Status = Literal["blocked", "pending", "running", "completed", "failed", "cancelled", "expired"]
Scope = Literal["incomplete", "any"]
Order = Literal["asc", "desc"]

STATUSES: tuple[Status, ...] = get_args(Status)
TERMINAL: frozenset[Status] = frozenset(("completed", "failed", "cancelled", "expired"))
OPEN: frozenset[Status] = frozenset(("blocked", "pending", "running"))

DEFAULT_PRIORITY = 100
MAX_NAME_LENGTH = 200
MAX_KEY_LENGTH = 1000
PRIORITY_RANGE = (-(2**31), 2**31 - 1)
UNBLOCKED_AT_ONCE = 1000
"""Dependents that are freed in the transaction that completes their blockers, and in each later
one."""

T_co = TypeVar("T_co", covariant=True)

Duration = timedelta | float
"""A `timedelta`, or seconds."""


def seconds(duration: Duration, what: str, *, minimum: float = 0) -> float:
    """A duration as finite seconds, not below `minimum`."""
    value = duration.total_seconds() if isinstance(duration, timedelta) else duration
    if isinstance(value, bool) or not isinstance(value, int | float):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidArgument(f"{what} must be a timedelta or seconds, got {type(value).__name__}")
    if not minimum <= value < float("inf"):
        raise InvalidArgument(f"{what} must be finite and not below {minimum:g} seconds, got {value!r}")
    return float(value)


def aware(moment: datetime, what: str) -> datetime:
    """An aware datetime in UTC, or a clear error: a naive one means something else on each
    machine.
    """
    if not isinstance(moment, datetime):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidArgument(f"{what} must be a datetime, got {type(moment).__name__}")
    if moment.tzinfo is None or moment.utcoffset() is None:
        raise InvalidArgument(
            f"{what} must say its time zone, got the naive {moment!r}: use datetime.now(timezone.utc)"
        )
    try:
        return moment.astimezone(UTC)
    except OverflowError:
        raise InvalidArgument(f"{what} must lie between the years 1 and 9999 in UTC, got {moment!r}") from None


class When(msgspec.Struct, gc=False, frozen=True):
    """A moment, absolute (`at`) or counted from the database's own clock (`after`, seconds).

    Never both.
    """

    at: datetime | None = None
    after: float | None = None


NOW = When()


@dataclass(frozen=True, slots=True)
class Dedup:
    """Start a chain only if there is no other chain with the same key.

    Each chain type has its own keys. A key refers to the latest chain that was started with it. If
    that chain matches, `start` returns it, marked `deduplicated`, and starts no new one.

    Args:
        key: The key: 1 to 1,000 characters. `dedup="key"` is short for `dedup=Dedup("key")`.
        scope: "incomplete" (the default) matches until the chain has ended. "any" matches whatever
            its status is.
        window: How long after its start a chain matches, as a timedelta or in seconds (default: no
            limit).
        exclude: The ids of chains that never match (default: none).
    """

    key: str
    _: KW_ONLY
    scope: Scope = "incomplete"
    window: Duration | None = None
    exclude: Sequence[str] = ()

    def __post_init__(self) -> None:
        check_text(self.key, "a deduplication key", MAX_KEY_LENGTH)
        if self.scope not in ("incomplete", "any"):
            raise InvalidArgument(f"scope must be 'incomplete' or 'any', got {self.scope!r}")
        if isinstance(self.exclude, str):
            raise InvalidArgument("exclude takes a list of chain ids, got one string")
        if not _are_strings(self.exclude):
            raise InvalidArgument(f"exclude takes a list of chain ids (chain.id), got {self.exclude!r}")
        if self.window is not None:
            seconds(self.window, "window")

    def matches(self, chain_id: str, status: Status, age: int) -> bool:
        """Whether the chain that has the key is returned instead of a new one.

        Args:
            chain_id: The id of that chain.
            status: Its status.
            age: Its age in microseconds.
        """
        if chain_id in self.exclude or (self.scope == "incomplete" and status in TERMINAL):
            return False
        return self.window is None or age < round(seconds(self.window, "window") * 1_000_000)


def _are_strings(values: object) -> bool:
    return isinstance(values, Iterable) and all(isinstance(each, str) for each in cast("Iterable[object]", values))


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
    blockers: tuple[BlockerRef, ...] = ()
    trace_context: str | None = None
    chain_trace_context: str | None = None


class JobRow(msgspec.Struct, gc=False, frozen=True):
    """A job as it is stored. `token` fences the claim that is under way: it never repeats."""

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


class ChainRow(msgspec.Struct, gc=False, frozen=True):
    """A chain: its first job, and the one it has come to (the same, while it has one job)."""

    first: JobRow
    current: JobRow


class Created(msgspec.Struct, gc=False, frozen=True):
    """What became of a `NewJob`.

    `ready`: it can be claimed now. `existing`: the chain that held its key.
    """

    job_id: str
    chain_id: str
    status: Status
    ready: bool
    existing: ChainRow | None = None


class TypeLimit(msgspec.Struct, frozen=True):
    """A job type to claim: at most `limit` of it now, each leased for `lease` seconds."""

    name: str
    limit: int
    lease: float


class QueueLimit(msgspec.Struct, frozen=True):
    """A named group of job types.

    `max_concurrency` counts the running jobs of all `members`, in the whole cluster.
    """

    name: str
    priority: int
    types: tuple[TypeLimit, ...]
    members: tuple[str, ...] = ()
    max_concurrency: int | None = None


class ClaimRequest(msgspec.Struct, frozen=True):
    """Up to `limit` jobs for `worker`. `cluster_cap` counts every running job in the database.

    `at_once`: so many of the jobs, the first ones, may begin as soon as they are claimed. The
    others get ordinals in their order, `first_ordinal` plus their position in the claim. They begin
    when the worker's horizon has reached them (see `StateOperations.move_horizon`). None: all may
    begin.
    """

    worker: str
    limit: int
    queues: tuple[QueueLimit, ...]
    cluster_cap: int | None = None
    at_once: int | None = None
    first_ordinal: int = 1


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
    worker's claims; None if it may begin at once. `ran_before`: it had a `last_attempt_at` before
    this claim, so an earlier run has begun.
    """

    job: JobRow
    expired: bool = False
    blockers: tuple[BlockerRow, ...] = ()
    ordinal: int | None = None
    ran_before: bool = False


class ClaimResult(msgspec.Struct, frozen=True):
    """The claimed jobs in their order. `more`: a further claim would find something now.

    `next_in`: seconds until the next pending job of the requested types that is not due yet; None
    if there is none, or if there is more to claim now.
    """

    jobs: list[Claimed]
    more: bool
    next_in: float | None = None


class Lease(msgspec.Struct, gc=False, frozen=True):
    """A claim to be renewed for `duration` seconds from now."""

    job_id: str
    token: int
    duration: float


class WorkerRow(msgspec.Struct, frozen=True):
    """A worker, as the others know it. Times are by the database's clock."""

    id: str
    registered_at: datetime
    seen_at: datetime
    """When it last registered."""
    horizon: int = 0
    """Handlers of jobs up to this ordinal may have begun."""
    server_started: datetime | None = None
    """When the database server had started that the row was last written on. None without one."""
    lock_key: int | None = None
    """The advisory lock that its listening connection holds. None: only leases tell that it is
    gone."""
    silent_since: datetime | None = None
    """When that lock was first seen missing."""
    process: str | None = None
    """Which process it is, as JSON, where there is no server. None if unknown."""


class Settlement(msgspec.Struct, gc=False, frozen=True, kw_only=True):
    """How a job goes on.

    `status` "completed" takes an `output` or a `continuation`; "failed" and "expired" take an
    `error`; "cancelled" takes nothing; "pending" puts the job back: with an `error` and a
    `schedule` after a failed attempt; with `uncounted` and a `schedule` after a run that began but
    is no attempt (its attempt number is handed back); or with `give_back` if no run began (its
    attempt number is handed back, its schedule and `last_attempt_at` are those from before the
    claim). With a `token` it applies only to the claim that carries it; with None to any job that
    has not ended.
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
    """What there is to do. `next_in`: seconds until a pending job is due, 0 if one is due, None if
    none is pending. `unblocking`: dependents of a completed chain are left for
    `continue_unblocking`, perhaps by a process that has died.
    """

    next_in: float | None
    unblocking: bool = False


class Deleted(msgspec.Struct, frozen=True):
    """The chains that are gone, or, if any is still needed, `waiting` (chain id → job ids) and
    nothing done.
    """

    chains: list[ChainRow]
    waiting: Mapping[str, list[str]]


def check_status(status: str) -> None:
    if status not in STATUSES:
        raise InvalidArgument(f"status must be one of {', '.join(STATUSES)}, got {status!r}")


class JobFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which rows a listing has: those that match every field that is not None."""

    type_name: str | None = None
    status: Status | None = None
    ids: tuple[str, ...] | None = None
    created_after: datetime | None = None
    created_before: datetime | None = None


class ChainFilter(JobFilter, frozen=True, kw_only=True):
    """`root_only`: chains that no job has as a blocker."""

    root_only: bool = False


class PageRequest(msgspec.Struct, frozen=True):
    """`limit` rows after the row whose sort key is `after` (None: from the start), in `order`."""

    limit: int
    after: str | None = None
    order: Order = "asc"

    def chain_index(self) -> int | None:
        """`after` in a listing of a chain's jobs, which is sorted by their index."""
        if self.after is None:
            return None
        if not (self.after.isascii() and self.after.isdigit()):
            raise InvalidCursor(f"{self.after!r} is not a position in a chain")
        return min(int(self.after), 2**31 - 1)


class Page(msgspec.Struct, Generic[T_co], frozen=True):
    """One page of a listing. `iter_chains` and `iter_jobs` go through all pages for you."""

    items: Sequence[T_co]
    """What the page contains."""
    next_cursor: str | None
    """Pass it as `cursor=` to get the next page. None: this is the last page."""


class TypeStats(msgspec.Struct, frozen=True):
    """How many open and failed jobs of one type are stored."""

    job_type: str
    """The name of the job type."""
    blocked: int = 0
    """Jobs that wait for other chains."""
    pending: int = 0
    """Jobs that wait for their time or for a worker."""
    running: int = 0
    """Jobs that a worker is running."""
    failed: int = 0
    """Jobs that have no attempts left."""
    oldest_ready_age: float | None = None
    """How long the oldest ready job has waited, in seconds. None if no job is ready."""


def check_text(value: object, what: str, limit: int) -> str:
    """A non-empty string of at most `limit` characters without NUL: what every adapter can
    store.
    """
    text = check_unicode(value, what)
    if not text:
        raise InvalidArgument(f"{what} must not be empty")
    if len(text) > limit:
        raise InvalidArgument(f"{what} may have {limit} characters at most, got {len(text)}")
    if "\0" in text:
        raise InvalidArgument(f"{what} must not contain NUL characters")
    return text


def check_unicode(value: object, what: str) -> str:
    """A string that can be sent to a database: half of a surrogate pair cannot."""
    if not isinstance(value, str):
        raise InvalidArgument(f"{what} must be a string, got {type(value).__name__}")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise InvalidArgument(f"{what} is not valid Unicode: {error.reason}") from None
    return value
