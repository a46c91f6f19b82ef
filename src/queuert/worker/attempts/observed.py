"""Reports a worker's attempts to observers. A worker without observers uses none of this."""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine, Iterable
from typing import Any

from queuert.engine.events.observations import error_facts, job_facts, limit_facts
from queuert.engine.events.observers import Observers
from queuert.engine.sessions import Sessions
from queuert.records.model import JobRow, Settlement
from queuert.worker.base import failure
from queuert.worker.base.abort import AbortReason, lost_reason
from queuert.worker.handlers.claim import Claim
from queuert.worker.handlers.listener import AttemptListener

_NOT_SETTLED = failure.record(failure.LEASE_EXPIRED, "the worker stopped, or gave the job up, before it was settled")


def listener_for(worker_id: str, sessions: Sessions[Any]) -> AttemptListener:
    observers = sessions.engine.observers
    return AttemptListener() if observers is None else ObservedAttempts(worker_id, sessions, observers)


class Started:
    """An attempt whose handler was called."""

    __slots__ = ("at", "end", "span", "told")

    def __init__(self, span: Any) -> None:
        self.span = span
        self.end: dict[str, Any] = {"outcome": "unknown", "error_code": None, "error_type": None}
        self.at = time.monotonic()
        self.told = False
        """Whether observers were told how it ended, or that it was lost."""

    @property
    def duration(self) -> float:
        return time.monotonic() - self.at


class ObservedAttempts(AttemptListener):
    listens = True

    def __init__(self, worker_id: str, sessions: Sessions[Any], observers: Observers) -> None:
        self._worker_id = worker_id
        self._sessions = sessions
        self._tell = observers
        self._tracer = observers.tracer
        self._started: dict[Claim, Started] = {}
        self._overdue: dict[Claim, Started] = {}
        """Settled, but their handlers have not ended yet."""
        self._lost_events: dict[AbortReason, Callable[..., None]] = {
            "taken_by_another_worker": observers.attempt_taken_by_another_worker,
            "already_completed": observers.attempt_already_completed,
            "cancelled": observers.attempt_cancelled,
            "not_found": observers.attempt_deleted,
            "lease_lost": observers.attempt_lease_lost,
        }

    def started(self, claim: Claim) -> None:
        span = None
        if self._tracer is not None:
            span = self._tracer.start_attempt(**self._facts(claim), trace_context=claim.row.trace_context)
        self._started[claim] = Started(span)
        self._tell.attempt_started(**self._facts(claim), **limit_facts(claim.row), wait=waited(claim))

    def handler_ended(self, claim: Claim) -> None:
        started = self._started.get(claim) or self._overdue.pop(claim, None)
        if started is not None:
            self._tell.attempt_ended(**self._facts(claim), **limit_facts(claim.row), duration=started.duration)

    def aborting(self, claim: Claim, reason: AbortReason) -> None:
        started = self._started.get(claim)
        if started is not None and not claim.aborted:
            self._tell_lost(claim, started, reason)

    def renewed(self, claims: Iterable[Claim]) -> None:
        for claim in claims:
            self._tell.attempt_lease_renewed(**self._facts(claim))

    def settled(self, claim: Claim, settlement: Settlement) -> None:
        started = self._started.get(claim)
        if started is None or started.told:
            return  # given back, expired or exhausted before its handler was called; or lost
        started.told = True
        facts = self._facts(claim)
        if settlement.closes is not None:
            self._tell.limit_closed(**facts, **limit_facts(claim.row), closed_for=settlement.closes)
        facts["duration"] = started.duration
        if settlement.status == "completed":
            started.end["outcome"] = "completed"
            self._tell.attempt_completed(**facts)
        elif settlement.error is None:
            started.end["outcome"] = "rescheduled"
            self._tell.attempt_rescheduled(**facts)
        else:
            self._tell_failed(claim, started, settlement.error, _retry_in(claim.row, settlement))

    def not_settled(self, claim: Claim, settlement: Settlement, error: Exception) -> None:
        started = self._started.get(claim)
        if started is not None and not started.told:
            record = settlement.error or failure.record_of(error)
            self._tell_failed(claim, started, record, _until_the_lease_ends(claim))

    def released(self, claim: Claim) -> Coroutine[Any, Any, None] | None:
        started = self._started.pop(claim, None)
        if started is not None and claim.running:
            self._overdue[claim] = started
        if started is not None and not started.told:
            return self._find_out(claim, started)
        self._end_span(started)
        return None

    def dropped(self, claim: Claim) -> None:
        started = self._started.get(claim)
        if started is not None and not started.told:
            self._tell_failed(claim, started, _NOT_SETTLED, _until_the_lease_ends(claim))
        self._end_span(started)

    def _tell_failed(self, claim: Claim, started: Started, record: bytes, retry_in: float | None) -> None:
        started.told = True
        error = error_facts(record)
        started.end = {"outcome": "failed", "error_code": error["error_code"], "error_type": error["error_type"]}
        self._tell.attempt_failed(**self._facts(claim), duration=started.duration, **error, retry_in=retry_in)

    def _tell_lost(self, claim: Claim, started: Started, reason: AbortReason | None) -> None:
        event = None if reason is None else self._lost_events.get(reason)
        if event is not None:
            # An attempt whose lease ended may still be settled, if no other worker took the job.
            started.told = reason != "lease_lost"
            started.end["outcome"] = reason
            event(**self._facts(claim))

    async def _find_out(self, claim: Claim, started: Started) -> None:
        """Find out why the result had no effect, or why another worker has the job."""
        reason: AbortReason | None = "taken_by_another_worker"  # if the database does not answer
        try:
            (row,) = await self._sessions.run(self._sessions.engine.state.get_jobs([claim.row.id]))
            reason = lost_reason(row, claim.token)
        except Exception:
            return  # observers were told of the database's error
        finally:
            if reason is None:  # it was given up, although it still belonged to this attempt
                self._tell_failed(claim, started, _NOT_SETTLED, _until_the_lease_ends(claim))
            else:
                self._tell_lost(claim, started, reason)
            self._end_span(started)

    def _end_span(self, started: Started | None) -> None:
        if self._tracer is not None and started is not None:
            self._tracer.end_attempt(started.span, **started.end)

    def _facts(self, claim: Claim) -> dict[str, Any]:
        return {**job_facts(claim.row), "attempt_number": claim.row.attempt, "worker_id": self._worker_id}


def waited(claim: Claim) -> float | None:
    """How long the job was due: until the claim, by the database's clock, plus the time until a
    slot was free.
    """
    row = claim.row
    if row.last_attempt_at is None or (claim.claimed.blockers and not claim.claimed.ran_before):
        return None  # when its last blocker completed is not recorded
    due = max(row.scheduled_at, row.created_at)
    return max(0.0, (row.last_attempt_at - due).total_seconds()) + time.monotonic() - claim.claimed_at


def _until_the_lease_ends(claim: Claim) -> float:
    return max(0.0, claim.lease_end - time.monotonic())


def _retry_in(row: JobRow, settlement: Settlement) -> float | None:
    if settlement.status != "pending":
        return None
    schedule = settlement.schedule
    if schedule.at is not None and row.last_attempt_at is not None:
        return max(0.0, (schedule.at - row.last_attempt_at).total_seconds())
    return schedule.after or 0.0
