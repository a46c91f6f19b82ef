"""What workers store about themselves, and what clients read about workers."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

import msgspec

WorkerState = Literal["alive", "dead", "unknown"]
"""See `WorkerInfo.state`."""

KnownBy = Literal["lock", "process", "registration"]
"""See `WorkerInfo.known_by`."""

SEEN_EVERY = 30.0
"""Seconds between two registrations of a worker that does not store its interval."""
OVERDUE = 2.5
"""Intervals without a registration after which a worker is no longer taken to be alive, if nothing
else is known of it."""


class WorkerType(msgspec.Struct, frozen=True, omit_defaults=True):
    """A job type that a worker has a handler for."""

    name: str
    """The name of the job type."""
    concurrency: int | None = None
    """How many jobs of the type this worker runs at once. None: no limit but its slots."""


class WorkerQueue(msgspec.Struct, frozen=True, omit_defaults=True):
    """A queue that a worker serves."""

    name: str
    """The name of the queue."""
    types: tuple[WorkerType, ...]
    """The job types of this queue that the worker has handlers for."""
    priority: int = 100
    """The queue with the lowest number is served first."""
    max_concurrency: int | None = None
    """How many jobs of the queue may run at once in all workers. None: no limit."""
    members: tuple[str, ...] = ()
    """All types of the queue that the worker's client knows, if there is a limit."""


class WorkerAbout(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What a worker stores about itself when it registers, as JSON."""

    host: str | None = None
    pid: int | None = None
    version: str | None = None
    slots: int | None = None
    queues: tuple[WorkerQueue, ...] = ()
    seen_every: float = SEEN_EVERY
    """Seconds: it registers at least so often."""
    release: str | None = None
    cluster_cap: int | None = None

    @property
    def types(self) -> tuple[str, ...]:
        """The types that it has handlers for."""
        return tuple(each.name for queue in self.queues for each in queue.types)

    def encode(self) -> str:
        """The JSON that is stored."""
        return _encode(self).decode()


UNTOLD = WorkerAbout()
"""In place of what a worker of an older version does not store."""

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(WorkerAbout).decode


def decode_about(text: str | None) -> WorkerAbout | None:
    """None if nothing is stored, or if another version wrote what this one cannot read."""
    if text is None:
        return None
    try:
        return _decode(text)
    except msgspec.MsgspecError:
        return None


def overdue_after(about: WorkerAbout | None) -> float:
    """Seconds without a registration after which that is so."""
    return OVERDUE * (SEEN_EVERY if about is None else about.seen_every)


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
    """The advisory lock that its listening connection holds. None: only leases show that it is
    gone.
    """
    silent_since: datetime | None = None
    """When that lock was first seen missing."""
    process: str | None = None
    """Which process it is, as JSON, where there is no server. None if unknown."""
    about: WorkerAbout | None = None
    """What it stores about itself. None for a worker of an older version."""
    state: WorkerState = "unknown"
    """Whether it is alive, when this row was read (see `StateOperations.list_workers`)."""
    held: int = 0
    """How many jobs are running under its name."""


class LastHandled(msgspec.Struct, frozen=True):
    """Where a job type was last handled, by a worker that may be gone."""

    type_name: str
    seen_at: datetime
    host: str | None = None
    release: str | None = None


class WorkerInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A worker that the database knows. Times are by the database's clock.

    What a worker of an older version does not store is None or empty.
    """

    id: str
    """The id of the worker: its name and a UUID."""
    state: WorkerState
    """"alive", "dead", or "unknown" if it has not registered in time and nothing proves that it is
    dead."""
    known_by: KnownBy
    """How its death is noticed: by the "lock" of its connection, by the end of its "process" (only
    on the same machine), or only because its "registration" is late."""
    host: str | None
    """The name of its machine."""
    pid: int | None
    """The id of its process."""
    version: str | None
    """The version of queuert that it runs with."""
    release: str | None
    """The `release` that it was given."""
    queues: tuple[WorkerQueue, ...]
    """The queues that it serves, with their limits and job types."""
    slots: int | None
    """How many handlers it runs at once."""
    busy: int
    """How many of its slots have a job."""
    held: int
    """How many jobs are claimed by it, including those that it has claimed ahead."""
    cluster_cap: int | None
    """How many jobs may run at once in the whole database, as far as this worker is concerned."""
    started_at: datetime
    """When it first registered."""
    seen_at: datetime
    """When it last registered."""

    @property
    def job_types(self) -> tuple[str, ...]:
        """The names of the job types that it has handlers for."""
        return tuple(each.name for queue in self.queues for each in queue.types)
