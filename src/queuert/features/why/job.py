"""Reasons that are in the job itself, in its chain, or in the chains that it waits for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar

from queuert.base.times import clock
from queuert.features.why.reason import Reason, number_of
from queuert.records.workers import WorkerState


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
            f"it failed {number_of(self.attempts, 'time')}; the next attempt is due at "
            f"{clock(self.next_at, self.now)}{_error(self.error)}"
        )

    def _remedy(self) -> str:
        return "it is tried again by itself then; when the cause is gone, client.trigger(tx, chain) makes it due now"


@dataclass(frozen=True)
class Lost(Reason):
    """Its worker died, or could not renew its lease, while the job ran."""

    in_the_way: ClassVar[bool] = False

    losses: int
    """How often."""
    alone: bool
    """It was lost so often that it runs alone in its worker from now on."""

    def __str__(self) -> str:
        text = f"it was lost with its worker {number_of(self.losses, 'time')}"
        return f"{text}: it may be what ends the process, so it runs alone in its worker" if self.alone else text

    def _remedy(self) -> str:
        if self.alone:
            return (
                "it begins when the other jobs of its worker have ended, and fails after max_losses; look for what "
                "ends the process: memory, a crash in C, a blocked event loop"
            )
        return "it is tried again by itself; look at what ended that worker"


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
            f"it waits for {number_of(self.left, 'chain')}"
        )  # fmt: skip
        return f"{will}: {named}{more}"

    def _remedy(self) -> str:
        if self.forever:
            return (
                "client.retry(tx, …) the chain that failed; or client.cancel(tx, …, cascade=True); or complete this "
                "job with client.take_over"
            )
        return "it goes on when all of them are completed; client.why(…) of the first one shows what it waits for"


@dataclass(frozen=True)
class BeingUnblocked(Reason):
    """All chains that the job waits for are completed, and the jobs behind them are being freed."""

    def __str__(self) -> str:
        return "all chains that it waits for are completed, but very many jobs wait for one of them"

    def _remedy(self) -> str:
        return "any worker frees them in groups, in order; if no worker is running, start one"


@dataclass(frozen=True)
class Running(Reason):
    """A worker has claimed it."""

    worker_id: str
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
        return f"it is claimed{since} by {self.worker_id}, {known}{ended} {clock(self.lease_until, self.now)}"

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
