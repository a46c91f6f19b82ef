"""Why a job is not running: what `client.why(chain)` returns.

Each reason is a class of its own. `str(reason)` tells what it is, and `reason.remedy` what would
end it.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from queuert.base.times import clock
from queuert.features.why.job import (
    BeingUnblocked,
    Blocked,
    BlockingChain,
    Ended,
    FailedBefore,
    Lost,
    NotDue,
    PastDeadline,
    Running,
)
from queuert.features.why.reason import Holder, Reason
from queuert.features.why.room import ClusterFull, InLine, NoWorker, QueueFull, SlotsBusy
from queuert.features.why.steering import LimitClosed, LimitFull, OrderHeld, Paused

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
    "Lost",
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
