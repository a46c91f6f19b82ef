"""A worker's attempts with somebody who hears of them. A worker without observers never comes here."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from queuert.client.client import Client
from queuert.model import JobRow, Lease, Settlement
from queuert.operations.observations import error_facts, job_facts
from queuert.operations.observers import Observers
from queuert.worker.abort import AbortReason, lost_reason
from queuert.worker.agenda import Agenda
from queuert.worker.attempts import Attempts
from queuert.worker.execution import Execution
from queuert.worker.held import Held
from queuert.worker.options import WorkerOptions
from queuert.worker.outcome import Outcome, SettledInThread


def attempts_of(worker_id: str, client: Client[Any], options: WorkerOptions, agenda: Agenda) -> Attempts:
    """The attempts of a worker, observed if its client is."""
    observers = client.engine.observers
    if observers is None:
        return Attempts(worker_id, client, options, agenda)
    return ObservedAttempts(worker_id, client, options, agenda, observers)


class Started:
    """An attempt whose handler was called."""

    __slots__ = ("at", "end", "span", "told")

    def __init__(self, span: Any) -> None:
        self.span = span
        self.end: dict[str, Any] = {"outcome": "unknown", "error_code": None, "error_type": None}
        self.at = time.monotonic()
        self.told = False
        """How it ended, or that it was lost, has been told."""

    @property
    def duration(self) -> float:
        return time.monotonic() - self.at


class ObservedExecution(Execution):
    """Tells of the start in the handler's own task, so that what it sets up there surrounds the handler."""

    def __init__(self, inner: Execution, client: Client[Any], worker_id: str, on_start: Callable[[Held], None]) -> None:
        super().__init__(client, inner._sync_client, worker_id)
        self._on_start = on_start

    async def run(self, held: Held) -> Outcome:
        if held.start_by is None or time.monotonic() < held.start_by:
            self._on_start(held)
        return await super().run(held)


class ObservedAttempts(Attempts):
    def __init__(
        self,
        worker_id: str,
        client: Client[Any],
        options: WorkerOptions,
        agenda: Agenda,
        observers: Observers,
    ) -> None:
        super().__init__(worker_id, client, options, agenda)
        self._worker_id = worker_id
        self._tell = observers
        self._tracer = observers.tracer
        self._started: dict[Held, Started] = {}
        self._execution = ObservedExecution(self._execution, client, worker_id, self._on_start)
        self._lost_events: dict[AbortReason, Callable[..., None]] = {
            "taken_by_another_worker": observers.attempt_taken_by_another_worker,
            "already_completed": observers.attempt_already_completed,
            "cancelled": observers.attempt_cancelled,
            "not_found": observers.attempt_deleted,
            "lease_lost": observers.attempt_lease_lost,
        }

    def _on_start(self, held: Held) -> None:
        span = None
        if self._tracer is not None:
            span = self._tracer.start_attempt(**self._facts(held), trace_context=held.row.trace_context)
        self._started[held] = Started(span)
        self._tell.attempt_started(**self._facts(held), wait=waited(held))

    def _handler_ended(self, held: Held, task: Any) -> None:
        started = self._started.get(held)
        if started is not None:
            self._tell.attempt_ended(**self._facts(held), duration=started.duration)
        super()._handler_ended(held, task)
        if self._closed and started is not None:
            self._end_span(started)

    def _conclude(self, held: Held, outcome: Outcome) -> None:
        if isinstance(outcome, SettledInThread):
            self._tell_completed(held)
        super()._conclude(held, outcome)

    def _on_settled(self, held: Held, settlement: Settlement, *, took_effect: bool) -> None:
        if took_effect:
            self._tell_settled(held, settlement)
        super()._on_settled(held, settlement, took_effect=took_effect)

    def _forget(self, held: Held) -> None:
        started = self._started.pop(held, None)
        if started is not None and not started.told:
            self._spawn(self._find_out(held, started))
        elif started is not None:
            self._end_span(started)
        super()._forget(held)

    async def renew(self, leases: Sequence[Lease]) -> list[str]:
        lost = await super().renew(leases)
        gone = set(lost)
        for lease in leases:
            held = self.held.get(lease.job_id)
            if held is not None and lease.job_id not in gone:
                self._tell.attempt_lease_renewed(**self._facts(held))
        return lost

    def abort(self, held: Held, reason: AbortReason) -> None:
        started = self._started.get(held)
        if started is not None and not held.signal.aborted:
            self._tell_lost(held, started, reason)
        super().abort(held, reason)

    # What is told

    def _tell_settled(self, held: Held, settlement: Settlement) -> None:
        started = self._started.get(held)
        if started is None:
            return  # given back, expired or exhausted before its handler was called
        started.told = True
        facts = self._facts(held)
        facts["duration"] = started.duration
        if settlement.status == "completed":
            started.end["outcome"] = "completed"
            self._tell.attempt_completed(**facts)
        elif settlement.error is None:
            started.end["outcome"] = "rescheduled"
            self._tell.attempt_rescheduled(**facts)
        else:
            error, retry_in = error_facts(settlement.error), _retry_in(held.row, settlement)
            started.end = {"outcome": "failed", "error_code": error["error_code"], "error_type": error["error_type"]}
            self._tell.attempt_failed(**facts, **error, retry_in=retry_in)

    def _tell_completed(self, held: Held) -> None:
        started = self._started.get(held)
        if started is not None:
            started.told = True
            started.end["outcome"] = "completed"
            self._tell.attempt_completed(**self._facts(held), duration=started.duration)

    def _tell_lost(self, held: Held, started: Started, reason: AbortReason | None) -> None:
        event = None if reason is None else self._lost_events.get(reason)
        if event is not None:
            started.told = reason != "lease_lost"  # a lease that ended may still be settled, if nobody took the job
            started.end["outcome"] = reason
            event(**self._facts(held))

    async def _find_out(self, held: Held, started: Started) -> None:
        """The result had no effect, or the job was found to be somebody else's: why?"""
        try:
            (row,) = await self._client._run((self._engine.state.get_jobs([held.row.id]), None))
            self._tell_lost(held, started, lost_reason(row, held.token))
        except Exception:
            return  # the database's fault has been told of
        finally:
            self._end_span(started)

    def _end_span(self, started: Started) -> None:
        if self._tracer is not None:
            self._tracer.end_attempt(started.span, **started.end)

    def _facts(self, held: Held) -> dict[str, Any]:
        return {**job_facts(held.row), "attempt": held.row.attempt, "worker": self._worker_id}


def waited(held: Held) -> float | None:
    """How long the job was due: until it was claimed, by the database's clock, and then until a slot was free."""
    row = held.row
    if row.last_attempt_at is None or (held.claimed.blockers and row.attempt == 1):
        return None  # when its last blocker completed is not recorded
    due = max(row.scheduled_at, row.created_at)
    return max(0.0, (row.last_attempt_at - due).total_seconds()) + time.monotonic() - held.claimed_at


def _retry_in(row: JobRow, settlement: Settlement) -> float | None:
    if settlement.status != "pending":
        return None
    schedule = settlement.schedule
    if schedule.at is not None and row.last_attempt_at is not None:
        return max(0.0, (schedule.at - row.last_attempt_at).total_seconds())
    return schedule.after or 0.0
