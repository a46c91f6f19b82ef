"""A job that this worker has claimed, until it is settled."""

from __future__ import annotations

import asyncio
import threading
import time
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, Literal, Protocol

from queuert.base.transaction import Transaction
from queuert.jobs.job import Job
from queuert.records.model import Claimed, JobRow
from queuert.worker.base.abort import Abort

if TYPE_CHECKING:
    from queuert.worker.handlers.registry import HandlerPlan


_making_signals = threading.Lock()

Mode = Literal["atomic", "staged"]
Phase = Literal["prepare", "complete"]


class Phases(Protocol):
    """The phases of one attempt. See `queuert.worker.attempts.phases`."""

    def phase(self, phase: Phase, mode: Mode | None = None) -> AbstractAsyncContextManager[Transaction[Any], None]:
        """The block of a phase."""
        ...

    def problem(self) -> BaseException | None:
        """The error of a phase that decides how the attempt ends."""
        ...

    def hand_over(self) -> Any:
        """The transaction that the handler has left open. None if there is none."""
        ...

    async def take_away(self) -> bool:
        """End the transaction of a handler that has not ended in time. False: not possible."""
        ...

    def cut_off(self) -> None:
        """Roll back the transaction of a handler that must stop."""
        ...


class Claim:
    """What the worker knows of a claim.

    Made once per job: slots, and nothing that is not needed for every job.
    """

    __slots__ = (
        "_signal",
        "claimed",
        "claimed_at",
        "in_thread",
        "job",
        "lease_end",
        "overdue",
        "phases",
        "plan",
        "renewed_at",
        "row",
        "running",
        "start_by",
        "suspended",
        "task",
        "timer",
        "token",
        "waiting",
    )

    def __init__(self, claimed: Claimed, plan: HandlerPlan, claimed_at: float) -> None:
        row = claimed.job
        self.claimed = claimed
        self.row: JobRow = row
        self.plan = plan
        self.token: int = row.token if row.token is not None else -1
        self.job: Job[Any, Any] | None = None
        self._signal: Abort | None = None
        self.task: asyncio.Task[Any] | None = None
        """Its handler's, as long as it runs."""
        self.timer: asyncio.TimerHandle | None = None
        self.phases: Phases | None = None
        self.overdue = False
        """Its handler has not ended in time: its job is settled without it."""
        self.running = False
        """Its handler occupies a slot."""
        self.in_thread = False
        """A thread runs its handler. It goes on if the task is cancelled."""
        self.waiting = False
        """It is claimed ahead: its handler starts when a slot is free."""
        self.suspended = False
        """The handler has awaited something (see `Phases`)."""
        # Counted from before the claim was sent: the lease cannot have begun earlier than that.
        self.claimed_at = self.renewed_at = claimed_at
        self.lease_end = claimed_at + plan.lease
        self.start_by: float | None = None
        if row.deadline is not None and row.last_attempt_at is not None:
            # Both times are the database's. Only their difference is applied to our own clock.
            self.start_by = time.monotonic() + (row.deadline - row.last_attempt_at).total_seconds()

    @property
    def signal(self) -> Abort:
        """Made when it is needed: most handlers never look at it. Can be used from any thread."""
        if self._signal is None:
            with _making_signals:
                if self._signal is None:
                    self._signal = Abort()
        return self._signal

    @property
    def aborted(self) -> bool:
        return self._signal is not None and self._signal.aborted

    @property
    def active(self) -> bool:
        """Its handler runs, or is still to start."""
        return self.running or self.waiting

    @property
    def is_lost(self) -> bool:
        """Whether the job probably no longer belongs to this worker."""
        return self.aborted or time.monotonic() >= self.lease_end

    def handler_ended(self) -> None:
        """Drop the references to what the handler used. It may take a while until the result is
        settled, and until then garbage collection would visit all of it.
        """
        self.running, self.job = False, None
        if self.plan.is_async:  # a thread that goes on may need the task to find the loop
            self.task = None

    def mark_suspended(self) -> None:
        self.suspended = True
