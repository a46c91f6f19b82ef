"""The options of a job besides its input: time, priority, deadline, id and deduplication key."""

from __future__ import annotations

from datetime import datetime, timedelta

import msgspec

from queuert.errors import InvalidArgument
from queuert.model import PRIORITY_RANGE, Dedup, Duration, When, aware, seconds


class JobOptions(msgspec.Struct, frozen=True):
    """Options of one job. None means that the default applies."""

    schedule: When | None = None
    priority: int | None = None
    id: str | None = None
    deadline: When | None = None
    dedup: Dedup | None = None

    def merged(self, over: JobOptions) -> JobOptions:
        """These options, replaced by those that `over` sets."""
        if over is NO_OPTIONS:
            return self
        if self is NO_OPTIONS:
            return over
        return JobOptions(
            schedule=self.schedule if over.schedule is None else over.schedule,
            priority=self.priority if over.priority is None else over.priority,
            id=self.id if over.id is None else over.id,
            deadline=self.deadline if over.deadline is None else over.deadline,
            dedup=self.dedup if over.dedup is None else over.dedup,
        )


NO_OPTIONS = JobOptions()


def make_options(
    *,
    at: datetime | None = None,
    after: Duration | None = None,
    priority: int | None = None,
    id: str | None = None,
    deadline: datetime | Duration | None = None,
    dedup: Dedup | str | None = None,
) -> JobOptions:
    """Check the options of `job.set(...)` and `client.start(...)`. The client checks ids later."""
    if at is None and after is None and priority is None and id is None and deadline is None and dedup is None:
        return NO_OPTIONS
    if id is not None and not isinstance(id, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidArgument(f"id must be a string, got {type(id).__name__}")
    return JobOptions(
        schedule=_schedule(at, after),
        priority=None if priority is None else _priority(priority),
        id=id,
        deadline=None if deadline is None else _deadline(deadline),
        dedup=None if dedup is None else _dedup(dedup),
    )


def _schedule(at: datetime | None, after: Duration | None) -> When | None:
    if at is not None:
        if after is not None:
            raise InvalidArgument("give at= (a moment) or after= (a delay), not both")
        return When(at=aware(at, "at"))
    return None if after is None else When(after=seconds(after, "after"))


def _priority(priority: int) -> int:
    # True is an int in Python; as a priority it is a mistake.
    if isinstance(priority, bool) or not isinstance(priority, int):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidArgument(f"priority must be an integer, got {type(priority).__name__}")
    lowest, highest = PRIORITY_RANGE
    if not lowest <= priority <= highest:
        raise InvalidArgument(f"priority must be between {lowest} and {highest}, got {priority}")
    return priority


def _deadline(deadline: datetime | Duration) -> When:
    if isinstance(deadline, datetime):
        return When(at=aware(deadline, "deadline"))
    if isinstance(deadline, bool) or not isinstance(deadline, timedelta | int | float):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidArgument(
            f"deadline must be a datetime, a timedelta or seconds from now, got {type(deadline).__name__}"
        )
    return When(after=seconds(deadline, "deadline"))


def _dedup(dedup: Dedup | str) -> Dedup:
    if isinstance(dedup, Dedup):
        return dedup
    if isinstance(dedup, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        return Dedup(dedup)
    raise InvalidArgument(f"dedup must be a key (str) or a Dedup, got {type(dedup).__name__}")
