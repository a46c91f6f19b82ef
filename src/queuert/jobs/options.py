"""The options of a job besides its input: time, priority, deadline, id and deduplication key."""

from __future__ import annotations

from datetime import datetime, timedelta

import msgspec

from queuert.base.arguments import PRIORITY_RANGE, Duration, storable, storable_delay
from queuert.errors import InvalidArgument
from queuert.jobs.deduplication import AnyDedup, Debounce, Throttle
from queuert.records.dedup import Dedup
from queuert.records.model import When


class JobOptions(msgspec.Struct, frozen=True):
    """Options of one job. None means that the default applies."""

    schedule: When | None = None
    priority: int | None = None
    id: str | None = None
    deadline: When | None = None
    dedup: AnyDedup | None = None

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
    dedup: AnyDedup | str | None = None,
) -> JobOptions:
    """Check the options of `job.set(...)` and `client.start(...)`. The client checks ids later."""
    if at is None and after is None and priority is None and id is None and deadline is None and dedup is None:
        return NO_OPTIONS
    if id is not None and not isinstance(id, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidArgument(f"id must be a string, got {type(id).__name__}")
    return JobOptions(
        schedule=_schedule(at, after),
        priority=None if priority is None else check_priority(priority),
        id=id,
        deadline=None if deadline is None else moment_or_delay(deadline, "deadline"),
        dedup=None if dedup is None else _dedup(dedup),
    )


def _schedule(at: datetime | None, after: Duration | None) -> When | None:
    if at is not None:
        if after is not None:
            raise InvalidArgument("give at= (a moment) or after= (a delay), not both")
        return When(at=storable(at, "at"))
    return None if after is None else When(after=storable_delay(after, "after"))


def check_priority(priority: int) -> int:
    # True is an int in Python; as a priority it is a mistake.
    if isinstance(priority, bool) or not isinstance(priority, int):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidArgument(f"priority must be an integer, got {type(priority).__name__}")
    lowest, highest = PRIORITY_RANGE
    if not lowest <= priority <= highest:
        raise InvalidArgument(f"priority must be between {lowest} and {highest}, got {priority}")
    return priority


def moment_or_delay(value: datetime | Duration, what: str) -> When:
    if isinstance(value, datetime):
        return When(at=storable(value, what))
    if isinstance(value, bool) or not isinstance(value, timedelta | int | float):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidArgument(f"{what} must be a datetime, a timedelta or seconds from now, got {type(value).__name__}")
    return When(after=storable_delay(value, what))


def _dedup(dedup: AnyDedup | str) -> AnyDedup:
    if isinstance(dedup, Dedup | Debounce | Throttle):
        return dedup
    if isinstance(dedup, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        return Dedup(dedup)
    raise InvalidArgument(f"dedup must be a key (str), a Dedup, a Debounce or a Throttle, got {type(dedup).__name__}")
