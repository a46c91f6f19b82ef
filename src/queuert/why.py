"""Why a job is not running: what `client.why(chain)` returns.

Each reason is a class of its own. `str(reason)` tells what it is, and `reason.remedy` what would
end it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar

from queuert.durations import distance_of
from queuert.limit_records import COUNTED, split_lane
from queuert.pause_records import PauseTarget
from queuert.statuses import Status
from queuert.worker_records import WorkerState

__all__ = [
    "BeingUnblocked",
    "Blocked",
    "BlockingChain",
    "ClusterFull",
    "Ended",
    "FailedBefore",
    "Holder",
    "InLine",
    "LimitClosed",
    "LimitFull",
    "NoWorker",
    "NotDue",
    "OrderHeld",
    "PastDeadline",
    "Paused",
    "QueueFull",
    "Reason",
    "Running",
    "SlotsBusy",
    "Why",
]


def clock(moment: datetime, now: datetime) -> str:
    """A time of day, with the date unless it is today, and how far away it is."""
    day = "" if moment.date() == now.date() else f"{moment:%Y-%m-%d} "
    return f"{day}{moment:%H:%M:%S} UTC ({distance_of((moment - now).total_seconds())})"


def _number(number: int, one: str) -> str:
    return f"{number} {one}" if number == 1 else f"{number} {one}s"


@dataclass(frozen=True)
class Reason:
    """One reason why a job is not running.

    `str(reason)` tells what it is.
    """

    in_the_way: ClassVar[bool] = True
    """Whether a worker that is idle cannot take the job because of it."""

    @property
    def remedy(self) -> str:
        """What would end it."""
        return self._remedy()

    def _remedy(self) -> str:
        raise NotImplementedError


@dataclass(frozen=True)
class Holder:
    """A running job."""

    job_id: str
    """Its id."""
    job_type: str
    """Its type."""
    worker: str
    """The worker that runs it."""
    since: datetime
    """When it was claimed."""
    now: datetime
    """When this was read."""

    def __str__(self) -> str:
        return f"the oldest is {self.job_id} ({self.job_type}), since {clock(self.since, self.now)}"


@dataclass(frozen=True)
class Ended(Reason):
    """The chain has ended."""

    status: str
    """How: "completed", "failed", "cancelled" or "expired"."""
    at: datetime | None
    """When."""
    error: Mapping[str, Any] | None
    """Its last error."""
    now: datetime
    """When this was read."""

    def __str__(self) -> str:
        when = "" if self.at is None else f" at {clock(self.at, self.now)}"
        return f"it has ended: {self.status}{when}{_error(self.error) if self.status == 'failed' else ''}"

    def _remedy(self) -> str:
        if self.status == "failed":
            return "repair the cause, then client.retry(tx, chain)"
        if self.status == "completed":
            return "nothing is left to do"
        return "start a new chain, if it is still needed; or client.retry(tx, chain, input=…)"


@dataclass(frozen=True)
class NotDue(Reason):
    """The job waits for its time."""

    due_at: datetime
    """When it may run."""
    now: datetime
    """When this was read."""

    def __str__(self) -> str:
        return f"it is not due before {clock(self.due_at, self.now)}"

    def _remedy(self) -> str:
        return "it runs by itself then; client.trigger(tx, chain) makes it due now"


@dataclass(frozen=True)
class FailedBefore(Reason):
    """The last attempt failed, and the job waits for its next one."""

    attempts: int
    """How many attempts there were."""
    next_at: datetime
    """When the next one is due."""
    error: Mapping[str, Any]
    """The last error."""
    now: datetime
    """When this was read."""

    def __str__(self) -> str:
        return (
            f"it failed {_number(self.attempts, 'time')}; the next attempt is due at "
            f"{clock(self.next_at, self.now)}{_error(self.error)}"
        )

    def _remedy(self) -> str:
        return "it is tried again by itself then; when the cause is gone, client.trigger(tx, chain) makes it due now"


@dataclass(frozen=True)
class BlockingChain:
    """A chain that the job waits for."""

    chain_id: str
    """Its id."""
    chain_type: str
    """Its type."""
    status: str
    """The status of its current job."""

    @property
    def forever(self) -> bool:
        """It ended without an output, so the job waits for ever unless you do something."""
        return self.status in ("failed", "cancelled", "expired")


@dataclass(frozen=True)
class Blocked(Reason):
    """The job waits for other chains."""

    chains: tuple[BlockingChain, ...]
    """Which ones: those that ended badly come first. At most 20."""
    left: int
    """How many chains it waits for in all."""

    @property
    def forever(self) -> bool:
        """At least one of them ended badly."""
        return any(each.forever for each in self.chains)

    def __str__(self) -> str:
        named = ", ".join(f"{each.chain_id} ({each.chain_type}, {each.status})" for each in self.chains)
        others = self.left - len(self.chains)
        more = f", and {others} more" if others > 0 else ""
        will = "it waits for ever: a chain that it waits for has ended without an output" if self.forever else (
            f"it waits for {_number(self.left, 'chain')}"
        )  # fmt: skip
        return f"{will}: {named}{more}"

    def _remedy(self) -> str:
        if self.forever:
            return (
                "client.retry(tx, …) the chain that failed; or client.cancel(tx, …, cascade=True); or complete this "
                "job with client.take_over"
            )
        return "it goes on when all of them are completed; client.why(…) of the first one tells what that waits for"


@dataclass(frozen=True)
class BeingUnblocked(Reason):
    """All chains that the job waits for are completed, and the jobs behind them are being freed."""

    def __str__(self) -> str:
        return "all chains that it waits for are completed, but very many jobs wait for one of them"

    def _remedy(self) -> str:
        return "any worker frees them in groups, in order; if no worker is running, start one"


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
class QueueFull(Reason):
    """As many jobs of its queue are running as may run at once."""

    queue: str
    """The name of the queue."""
    cap: int
    """How many jobs of the queue may run at once."""
    running: int
    """How many do."""
    oldest: Holder | None
    """The one that has been running for longest."""

    def __str__(self) -> str:
        if self.cap == 0:
            return f"its queue {self.queue!r} has max_concurrency=0, which pauses it"
        return f"its queue {self.queue!r} is full: {self.running} of {self.cap} jobs are running{_holder(self.oldest)}"

    def _remedy(self) -> str:
        if self.cap == 0:
            return "start workers with another max_concurrency for this queue"
        return "it is taken when enough of them have ended; or raise max_concurrency of the queue"


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


@dataclass(frozen=True)
class ClusterFull(Reason):
    """As many jobs are running as `cluster_cap` allows."""

    cap: int
    """How many jobs may run at once in the whole database."""
    running: int
    """How many do."""
    oldest: Holder | None
    """The one that has been running for longest."""

    def __str__(self) -> str:
        if self.cap == 0:
            return "its workers have cluster_cap=0, which pauses all work"
        return f"cluster_cap is reached: {self.running} of {self.cap} jobs are running{_holder(self.oldest)}"

    def _remedy(self) -> str:
        if self.cap == 0:
            return "start workers with another cluster_cap"
        return "it is taken when enough of them have ended; or raise cluster_cap"


@dataclass(frozen=True)
class NoWorker(Reason):
    """No worker that is alive has a handler for this type."""

    job_type: str
    """The name of the type."""
    last_seen: datetime | None
    """When the last worker with a handler was seen. None if there never was one."""
    host: str | None
    """Where that one ran."""
    release: str | None
    """Its release."""
    uncertain: tuple[str, ...]
    """Workers that have the handler, but have not registered in time: they may be cut off."""
    others: int
    """How many workers are alive that do not have it."""
    now: datetime
    """When this was read."""

    def __str__(self) -> str:
        text = f"no worker that is alive has a handler for {self.job_type!r}"
        if self.last_seen is None:
            text += ", and none has ever had one"
        else:
            place = "".join(
                f", {what} {value}" for what, value in (("host", self.host), ("release", self.release)) if value
            )
            text += f"; the last one was seen at {clock(self.last_seen, self.now)}{place}"
        if self.uncertain:
            text += f"; not heard of lately: {', '.join(self.uncertain)}"
        return text + (f"; {_number(self.others, 'other worker')} alive" if self.others else "; no worker is alive")

    def _remedy(self) -> str:
        return f"start a worker that has a handler for {self.job_type!r} and serves its queue"


@dataclass(frozen=True)
class SlotsBusy(Reason):
    """The workers that have a handler for it have no free slot."""

    workers: int
    """How many workers."""
    slots: int
    """How many slots they have for this job."""
    busy: int
    """How many of these have a job, including jobs that are claimed ahead."""
    of_type: bool
    """The slots are those of its type: `handles(…, concurrency=…)`."""
    oldest: Holder | None
    """The job that has been running for longest."""

    def __str__(self) -> str:
        which = "slots for its type" if self.of_type else "slots"
        return (
            f"{_number(self.workers, 'worker')} could run it, and all {which} are busy: {self.slots} in all, "
            f"{_number(self.busy, 'job')} claimed{_holder(self.oldest)}"
        )

    def _remedy(self) -> str:
        more = "concurrency of its handler" if self.of_type else "concurrency"
        return f"it is taken when its turn comes and a slot is free; or start more workers, or raise {more}"


@dataclass(frozen=True)
class InLine(Reason):
    """Other jobs come first, and take all the room that there is."""

    ahead: int
    """How many jobs come first, of those that there is room for."""

    def __str__(self) -> str:
        return f"{_number(self.ahead, 'other job')} that can run now come first, and there is no room for more"

    def _remedy(self) -> str:
        return "it is taken when its turn comes; a lower priority number brings new jobs to the front"


@dataclass(frozen=True)
class Running(Reason):
    """A worker has claimed it."""

    worker: str
    """The worker."""
    state: WorkerState
    """Whether that worker is alive."""
    since: datetime | None
    """When it was claimed."""
    lease_until: datetime
    """When its lease ends, unless it is renewed."""
    now: datetime
    """When this was read."""

    def __str__(self) -> str:
        known = {"alive": "which is alive", "dead": "which is dead"}.get(self.state, "of which nothing is known now")
        since = "" if self.since is None else f" since {clock(self.since, self.now)}"
        ended = "; its lease ended at" if self.lease_until <= self.now else "; its lease ends at"
        return f"it is claimed{since} by {self.worker}, {known}{ended} {clock(self.lease_until, self.now)}"

    def _remedy(self) -> str:
        if self.state == "alive":
            return "it ends by itself; if it hangs, client.cancel(tx, chain), or restart that worker"
        if self.state == "dead" or self.lease_until <= self.now:
            return "any worker with a handler for this type takes it back within seconds; if none is running, start one"
        return "if that worker is gone, another one takes it back when the lease has ended"


@dataclass(frozen=True)
class PastDeadline(Reason):
    """Its deadline has passed."""

    in_the_way: ClassVar[bool] = False

    deadline: datetime
    """The deadline."""
    now: datetime
    """When this was read."""

    def __str__(self) -> str:
        return f"its deadline passed at {clock(self.deadline, self.now)}, so it will not run any more"

    def _remedy(self) -> str:
        return "the next worker that takes it ends it as expired"


def _error(error: Mapping[str, Any] | None) -> str:
    if not error:
        return ""
    said = " ".join(str(error.get("message", "")).split())
    text = f"{error.get('code', 'unknown')}: {said}" if said else str(error.get("code", "unknown"))
    return f"; the last error was {text if len(text) <= 200 else text[:200] + '…'}"


def _holder(oldest: Holder | None) -> str:
    return "" if oldest is None else f"; {oldest}"


@dataclass(frozen=True)
class Why:
    """Why a chain does not go on. `str(why)` explains it to a person."""

    chain_id: str
    """The id of the chain."""
    chain_type: str
    """The type that the chain started with."""
    job_id: str
    """The id of its current job."""
    job_type: str
    """The type of that job."""
    status: str
    """The status of that job."""
    looked_at: datetime
    """When this was read, by the database's clock."""
    reasons: tuple[Reason, ...]
    """All reasons, the one that must end first comes first."""
    schedule: str | None = None
    """The name of the schedule that started the chain. None if none did, or if it is gone."""
    tick: datetime | None = None
    """The tick that it was started for, or the moment when the schedule was triggered."""
    held_up: str | None = None
    """What the schedule does while this chain has not ended, if that is something."""

    @property
    def in_the_way(self) -> tuple[Reason, ...]:
        """The reasons because of which a worker that is idle cannot take the job now."""
        return tuple(reason for reason in self.reasons if reason.in_the_way)

    def __str__(self) -> str:
        of_chain = "" if self.chain_id == self.job_id else f" of chain {self.chain_id} ({self.chain_type})"
        lines = [f"job {self.job_id} ({self.job_type}){of_chain} is {self.status}"]
        if self.schedule is not None and self.tick is not None:
            lines.append(f"  started by schedule {self.schedule}, for {clock(self.tick, self.looked_at)}")
        if self.held_up is not None:
            lines.append(f"  until it has ended, {self.held_up}")
        for number, reason in enumerate(self.reasons, 1):
            mark = f"{number}. " if len(self.reasons) > 1 else ""
            lines += [f"  {mark}{reason}", f"  {' ' * len(mark)}→ {reason.remedy}"]
        if not self.in_the_way:
            lines.append("  nothing is in its way: a worker takes it within moments")
        return "\n".join(lines)
