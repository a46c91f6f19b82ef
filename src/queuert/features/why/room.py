"""Reasons that are in the workers: there is none, or they have no room."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from queuert.base.times import clock
from queuert.features.why.reason import Holder, Reason, number_of


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
        return text + (f"; {number_of(self.others, 'other worker')} alive" if self.others else "; no worker is alive")

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
            f"{number_of(self.workers, 'worker')} could run it, and all {which} are busy: {self.slots} in all, "
            f"{number_of(self.busy, 'job')} claimed{_holder(self.oldest)}"
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
        return f"{number_of(self.ahead, 'other job')} that can run now come first, and there is no room for more"

    def _remedy(self) -> str:
        return "it is taken when its turn comes; a lower priority number brings new jobs to the front"


def _holder(oldest: Holder | None) -> str:
    return "" if oldest is None else f"; {oldest}"
