"""Reasons that people have made: pauses, and limits by key."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from queuert.base.statuses import Status
from queuert.base.times import clock
from queuert.features.why.reason import Reason
from queuert.records.limits import COUNTED, split_lane
from queuert.records.pauses import PauseTarget


@dataclass(frozen=True)
class Paused(Reason):
    """Its type, its queue, its key of a limit, or everything is paused."""

    target: PauseTarget
    """What is paused: its `scope` ("everything", "queue", "type" or "key") and its `name`."""
    since: datetime
    """Since when."""
    until: datetime | None
    """When it ends by itself. None: when it is resumed."""
    reason: str | None
    """Why, in the words of the one who paused it."""
    by: str | None
    """Who paused it."""
    now: datetime
    """When this was read."""

    def __str__(self) -> str:
        scope, name = self.target.scope, self.target.name
        what = "everything" if scope == "everything" else f"its {scope} {name!r}"
        if scope == "key":
            what = f"its {self.target}"
        by = "" if self.by is None else f" by {self.by}"
        until = "" if self.until is None else f", until {clock(self.until, self.now)}"
        reason = "" if self.reason is None else f": {' '.join(self.reason.split())}"
        return f"{what} has been paused since {clock(self.since, self.now)}{by}{until}{reason}"

    def _remedy(self) -> str:
        scope, name = self.target.scope, self.target.name
        limit, key = split_lane(name)
        target = {
            "everything": "EVERYTHING",
            "queue": f"Queue({name!r})",
            "type": repr(name),
            "key": f"LimitKey({limit!r}, {key!r})",
        }[scope]
        by_itself = "" if self.until is None else "it ends by itself then; "
        return f"{by_itself}client.resume(tx, {target}) ends it now"


@dataclass(frozen=True)
class LimitFull(Reason):
    """As many jobs with its key are running as its limit allows."""

    limit: str
    """The name of the limit."""
    key: str
    """The key."""
    concurrency: int
    """How many jobs of the key may run at once."""
    running: int
    """How many do."""
    held_by: tuple[str, ...]
    """The ids of those jobs, the oldest first: 10 at most."""
    ahead: int = 0
    """How many jobs of the key come before this one: 1,000 at most."""

    def __str__(self) -> str:
        held = f", the oldest is {self.held_by[0]}" if self.held_by else ""
        full = f"{_key(self.limit, self.key)} is full: {self.running} of {self.concurrency} jobs are running{held}"
        return full + _ahead(self.ahead)

    def _remedy(self) -> str:
        return "it is taken when one of them has ended, in turn; or client.set_limit(tx, …, concurrency=…)"


@dataclass(frozen=True)
class LimitClosed(Reason):
    """The rate of its limit is used up, or a job has closed its key (`RateLimited`)."""

    limit: str
    """The name of the limit."""
    key: str
    """The key."""
    opens_at: datetime
    """When the next job of the key may begin."""
    now: datetime
    """When this was read."""
    ahead: int = 0
    """How many jobs of the key come before this one: 1,000 at most."""

    def __str__(self) -> str:
        return f"{_key(self.limit, self.key)} is closed until {clock(self.opens_at, self.now)}{_ahead(self.ahead)}"

    def _remedy(self) -> str:
        return "wait until then; or client.set_limit(tx, …, rate=…)"


@dataclass(frozen=True)
class OrderHeld(Reason):
    """Its limit keeps the order, and a job before it is not completed."""

    limit: str
    """The name of the limit."""
    key: str
    """The key."""
    job_id: str
    """The job that holds the key."""
    status: Status
    """The status of that job. If it is "failed", the key is stopped."""
    ahead: int = 0
    """How many jobs of the key come before this one: 1,000 at most."""

    def __str__(self) -> str:
        what = "is stopped by" if self.status == "failed" else "is held by"
        return f"{_key(self.limit, self.key)} {what} job {self.job_id}, which is {self.status}{_ahead(self.ahead)}"

    def _remedy(self) -> str:
        if self.status == "failed":
            return "retry that job, or cancel or delete its chain"
        return "it begins when that job is completed"


def _ahead(number: int) -> str:
    if not number:
        return "; it is the first in line"
    more = " or more" if number >= COUNTED else ""
    return f"; {number:,}{more} {'job comes' if number == 1 else 'jobs come'} before it in line"


def _key(limit: str, key: str) -> str:
    return f"its key {key!r} of the limit {limit!r}" if key else f"its limit {limit!r}"
