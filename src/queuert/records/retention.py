"""How long ended chains are kept: what users declare, what is stored of it, and what is deleted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal, NamedTuple

import msgspec

from queuert.base.arguments import LONGEST, Duration, seconds
from queuert.base.statuses import TERMINAL, Status
from queuert.errors import InvalidArgument
from queuert.records.archive import Archive, check_archive, months_of

LOOK_AGAIN = 1.0
"""Seconds until a chain that could not be deleted, or has not ended, is looked at again: at
least. It is more for a chain that is old: a part of its age, up to the next two. So a chain that
had not ended, or was needed, when its turn came may stay that much longer."""
LOOK_AGAIN_PART = 0.1
LOOK_AGAIN_NEEDED = 3600.0
LOOK_AGAIN_OPEN = 86400.0
SLACK = (0.1, 3600.0)
"""How much later than due a chain is looked at: a part of the time that it is kept, and seconds at
most. Chains end a while after they were created. Without this, nearly all of them would be noted
first, because they are not quite due when their turn comes."""
LAP_EVERY = 3600.0
"""Seconds between two laps: see `StateOperations.prune`."""

_WEEK, _QUARTER = timedelta(days=7), timedelta(days=90)


@dataclass(frozen=True, kw_only=True, slots=True)
class Keep:
    """How long a chain is kept after its end. Then it is deleted with all its jobs.

    Give it to the class of the first job, `class Ping(…, keep=Keep(completed=3600))`, or to the
    client, for all types that have none of their own. Each time is a timedelta or seconds, and
    None is for ever. A chain that another job still needs is kept longer.

    Args:
        completed: After it was completed (default: 7 days). With 0, the chain is deleted instead of
            being completed: it cannot be waited for, and no job can have it as a blocker.
        failed: After it has failed (default: 90 days).
        cancelled: After it was cancelled (default: 90 days).
        expired: After it has expired (default: 90 days).
        archive: Called with the transaction that deletes chains, and with the chains: a function,
            plain or async, an `ArchiveTable` or a `JsonLines` (default: they are not archived). It
            may be called again with chains whose deletion has failed. It cannot be used with
            `completed=0`.
    """

    completed: Duration | None = _WEEK
    failed: Duration | None = _QUARTER
    cancelled: Duration | None = _QUARTER
    expired: Duration | None = _QUARTER
    archive: Archive | None = None

    def __post_init__(self) -> None:
        for status in ("completed", "failed", "cancelled", "expired"):
            duration: Duration | None = getattr(self, status)
            if duration is not None and seconds(duration, f"Keep: {status}") > LONGEST:
                raise InvalidArgument(f"Keep: {status} may be 100 years at most, got {duration!r}: None is for ever")
        if self.archive is not None:
            check_archive(self.archive)
            if self.discards:
                raise InvalidArgument(
                    "Keep: completed=0 deletes chains when they are completed, before they can be archived: keep them "
                    "for some seconds, or leave out archive="
                )

    @property
    def discards(self) -> bool:
        """Whether completed chains are deleted at once."""
        return self.completed is not None and seconds(self.completed, "completed") == 0


def _seconds(duration: Duration | None) -> float | None:
    return None if duration is None else seconds(duration, "keep")


class KeepPolicy(msgspec.Struct, frozen=True):
    """How long chains of one type are kept after their end, as it is stored."""

    chain_type: str
    """The type that they started with."""
    completed: float | None
    """Seconds after they were completed. None: for ever. The same holds for the next three."""
    failed: float | None
    """Seconds after they have failed."""
    cancelled: float | None
    """Seconds after they were cancelled."""
    expired: float | None
    """Seconds after they have expired."""
    archived: bool = False
    """Whether they are archived first, by a process that has the function for it."""
    months: int | None = None
    """For how many months the table of archived chains keeps them. None: for ever."""

    @property
    def shortest(self) -> float | None:
        """The shortest of these times. None if all are kept for ever."""
        times = (self.completed, self.failed, self.cancelled, self.expired)
        return min((each for each in times if each is not None), default=None)

    def after(self, status: Status) -> float | None:
        """For how many seconds a chain that has ended in this way is kept. None: for ever.

        Args:
            status: The status that it ended with.
        """
        kept: dict[Status, float | None] = {
            "completed": self.completed,
            "failed": self.failed,
            "cancelled": self.cancelled,
            "expired": self.expired,
        }
        return kept[status]


def policy_of(keep: Keep, chain_type: str) -> KeepPolicy:
    """What is stored for chains of this type."""
    return KeepPolicy(
        chain_type,
        _seconds(keep.completed),
        _seconds(keep.failed),
        _seconds(keep.cancelled),
        _seconds(keep.expired),
        archived=keep.archive is not None,
        months=None if keep.archive is None else months_of(keep.archive),
    )


class TypeRetention(msgspec.Struct, frozen=True):
    """How long chains of one type are kept, and how far deleting them is."""

    policy: KeepPolicy
    """The stored policy."""
    stored_at: datetime
    """When a worker has stored it."""
    walked: str | None = None
    """The id up to which the chains were looked at."""
    waiting: int = 0
    """Chains that are due, and have yet to be archived; counted to 10,000."""
    archive_error: str | None = None
    """Why they could not be archived the last time. None: they could, or it was not tried."""
    archive_failed_at: datetime | None = None
    """When that was."""


class Retention(msgspec.Struct, frozen=True):
    """How far pruning is."""

    types: list[TypeRetention]
    """Sorted by name."""
    noted: int = 0
    """Chains that were not due, or still needed, when their turn came; counted to 10,000."""
    pruned_at: datetime | None = None
    """When the last step was taken."""
    lap_began_at: datetime | None = None
    """When the last lap began."""
    lap_ended_at: datetime | None = None
    """When it ended. None: no lap has ended yet, or one is under way."""


NOTED_COUNTED = 10_000
ARCHIVE_AGAIN = 60.0
"""The minimum of seconds until the next look at a chain that could not be archived now, because it
was retried, or is needed. It is longer than archiving may take.
"""


class PruneRequest(msgspec.Struct, frozen=True):
    """One step of pruning: it looks at `limit` chains at most, and at as many of a lap.

    `exact`: chains are looked at as soon as they may be due, and not a while later. `lap_every`:
    begin a lap if the one before ended at least this many seconds ago, and go on with one that is
    under way; None: no lap. `restart`: begin a lap in any case.
    """

    limit: int
    exact: bool = False
    lap_every: float | None = None
    restart: bool = False


class Pruned(msgspec.Struct, frozen=True):
    """What was pruned."""

    chains: Mapping[str, int]
    """How many chains were deleted, by type."""
    jobs: int = 0
    """How many jobs they had."""
    examined: int = 0
    """How many chains were looked at."""
    more: bool = False
    """There is more that is due."""
    busy: bool = False
    """Nothing was done: another process is pruning."""
    waiting: Mapping[str, int] = {}
    """How many chains are due and have yet to be archived, by type, up to 10,000 of each: by a
    process that has the function for it."""
    lap: bool = False
    """A lap is under way."""
    took: float = 0.0
    """Seconds that the database was busy with it."""
    behind: float = 0.0
    """If there is more: how late the next step is, in seconds."""
    kept: float = 0.0
    """If there is more: for how many seconds such chains are kept."""

    @property
    def deleted(self) -> int:
        """How many chains were deleted."""
        return sum(self.chains.values())


class Vacuumed(msgspec.Struct, frozen=True):
    """What `vacuum` has gained."""

    before: int
    """Bytes that the tables and indexes took up, or the file of SQLite."""
    after: int
    """Bytes that they take up now."""

    @property
    def gained(self) -> int:
        """Bytes that were returned to the file system."""
        return max(0, self.before - self.after)


class Verdict(NamedTuple):
    """What happens to a chain. `at`: when it is, or was, due, or when to look again."""

    what: Literal["due", "archive", "later", "ever"]
    at: datetime


def verdict(
    policy: KeepPolicy | None, status: Status, created_at: datetime, ended_at: datetime | None, now: datetime
) -> Verdict:
    """By the policy of its type; None: that is not stored."""
    if policy is None:
        return Verdict("later", look_again(created_at, now, LOOK_AGAIN_OPEN))
    if status not in TERMINAL or ended_at is None:
        return Verdict("later", look_again(created_at, now, LOOK_AGAIN_OPEN, policy.shortest or 0.0))
    kept = policy.after(status)
    if kept is None:
        return Verdict("ever", now)
    due = ended_at + timedelta(seconds=kept)
    if due > now:
        return Verdict("later", due)
    return Verdict("archive" if policy.archived else "due", due)


def look_again(created_at: datetime, now: datetime, most: float, least: float = 0.0) -> datetime:
    """When to look again at a chain that could not be deleted now."""
    part = (now - created_at).total_seconds() * LOOK_AGAIN_PART
    return now + timedelta(seconds=max(LOOK_AGAIN, least, min(part, most)))


def walk_until(policy: KeepPolicy, now: datetime, *, exact: bool) -> str | None:
    """The first id that is too young to be looked at, if ids are UUIDv7; None: there is nothing to
    look at.
    """
    shortest = policy.shortest
    if shortest is None:
        return None
    slack = 0.0 if exact else min(shortest * SLACK[0], SLACK[1])
    digits = f"{max(0, int(((now.timestamp()) - shortest - slack) * 1000)):012x}"
    return f"{digits[:8]}-{digits[8:]}"


class Walked(NamedTuple):
    """What a step of the walk has found; if there is more, how far behind it is, and for how long
    such chains are kept.
    """

    found: list[str]
    behind: float = 0.0
    kept: float = 0.0


def walk_behind(walked: str, until: str) -> float:
    """Seconds from the time in an id up to which the walk has come, to where it could be."""
    return max(0, _milliseconds(until) - _milliseconds(walked)) / 1000


def _milliseconds(chain_id: str) -> int:
    try:
        return int(chain_id.replace("-", "")[:12], 16)
    except ValueError:  # an id of the user's own
        return 0
