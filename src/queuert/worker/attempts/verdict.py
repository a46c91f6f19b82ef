"""Decides what happens to a job after its attempt. No I/O: the result is a settlement."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any

from queuert.base.arguments import seconds, storable
from queuert.base.backoff import LONGEST
from queuert.engine.engine import Engine
from queuert.engine.operations.ending import settlement_for
from queuert.errors import InvalidArgument, OwnershipLost, RateLimited, Reschedule
from queuert.records.limits import split_lane
from queuert.records.model import JobRow, Settlement, When
from queuert.worker.attempts.outcome import Late, Raised, Returned
from queuert.worker.base import failure
from queuert.worker.base.abort import AbortReason
from queuert.worker.handlers.claim import Claim

logger = logging.getLogger("queuert.worker")

LOST: frozenset[AbortReason] = frozenset(("taken_by_another_worker", "not_found", "already_completed", "cancelled"))


class Verdicts:
    def __init__(self, engine: Engine, worker_id: str) -> None:
        self._engine = engine
        self.worker_id = worker_id

    def on(self, claim: Claim, outcome: Returned | Raised | Late) -> Settlement | None:
        """The settlement for the job; None if the claim is no longer ours. Never raises."""
        try:
            match outcome:
                case Returned(value):
                    return self.completed(claim, value)
                case Late():
                    return self.expired(claim)
                case Raised(error, code):
                    return self._after_error(claim, error, code)
        except Exception as error:
            # What the handler returned cannot be stored, or the time it asked for is invalid.
            return self.failed(claim, error, failure.code_of_result(error) if isinstance(outcome, Returned) else None)

    def completed(self, claim: Claim, value: Any) -> Settlement:
        """Raises if the value cannot be stored."""
        job_type, row = claim.plan.job_type, claim.row
        return settlement_for(self._engine, job_type, row, value, token=claim.token, worker=self.worker_id)

    def given_back(self, claim: Claim) -> Settlement:
        """The handler was not called, so the attempt does not count."""
        return Settlement(job_id=claim.row.id, token=claim.token, status="pending", give_back=True)

    def expired(self, claim: Claim) -> Settlement:
        error = failure.record(failure.EXPIRED, "the deadline passed before the work began")
        return Settlement(job_id=claim.row.id, token=claim.token, status="expired", error=error, worker=self.worker_id)

    def before_running(self, claim: Claim) -> Settlement | None:
        """The settlement of a job that must not run again, although it was put back. None: it may
        run.
        """
        plan, row = claim.plan, claim.row
        if row.losses >= plan.max_losses:
            return self._lost_too_often(claim)
        if plan.max_attempts is not None and _failures(row) >= plan.max_attempts:
            return self._over(claim, f"it has used its {plan.max_attempts} attempts")
        # The first attempt has no worker behind it that was lost: `retry` keeps the old error.
        lost = plan.give_up_on.lost_workers and row.attempt > 1 and failure.code_in(row.last_error)
        if lost == failure.LEASE_EXPIRED:
            return self._over(claim, "its worker was lost, and its handler gives up on that")
        return None

    def _lost_too_often(self, claim: Claim) -> Settlement:
        times, most = claim.row.losses, claim.plan.max_losses
        message = (
            f"its worker died or stopped renewing its lease while it ran, {times} times; max_losses is {most}. It may "
            "be what ends the process, for example with its memory or a crash in C"
        )
        return self._over(claim, message, failure.record(failure.LEASE_EXPIRED, message))

    def _over(self, claim: Claim, reason: str, error: bytes | None = None) -> Settlement:
        """Without an error, that of its last failed attempt stays."""
        row = claim.row
        logger.warning("job %s (%s) failed without a further attempt: %s", row.id, row.type_name, reason,
                       extra=self.extra(claim))  # fmt: skip
        error = (
            error
            or row.last_error
            or failure.record(
                failure.ATTEMPTS_EXHAUSTED, f"all {claim.plan.max_attempts} attempts ended without a result"
            )
        )
        return Settlement(job_id=row.id, token=claim.token, status="failed", error=error, worker=self.worker_id)

    def failed(self, claim: Claim, error: BaseException, code: str | None, schedule: When | None = None) -> Settlement:
        """A failed attempt. `schedule`: the handler has chosen the time of the next one, so it does
        not give up on this error."""
        plan, row = claim.plan, claim.row
        code = code or failure.code_of(error)
        gives_up = schedule is None and plan.give_up_on.includes(error, code)
        last = gives_up or (plan.max_attempts is not None and _failures(row) + 1 >= plan.max_attempts)
        schedule = schedule or When(after=plan.backoff.delay(_failures(row) + 1))
        next_one = f"next one in {schedule.after:.1f} s" if schedule.at is None else f"next one at {schedule.at}"
        if last:
            next_one = "its handler gives up on this error" if gives_up else "that was the last one"
        failure.log(
            error, "attempt %d of job %s (%s) failed: %s, %s", row.attempt, row.id, row.type_name, code, next_one,
            extra={**self.extra(claim), "duration": time.monotonic() - claim.claimed_at, "error_code": code},
        )  # fmt: skip
        return Settlement(
            job_id=row.id,
            token=claim.token,
            status="failed" if last else "pending",
            error=failure.record_of(error, code),
            schedule=schedule,
            worker=self.worker_id if last else None,
        )

    def _after_error(self, claim: Claim, error: BaseException, code: str | None) -> Settlement | None:
        reason = claim.signal.reason
        if reason in LOST or (isinstance(error, OwnershipLost) and error.job_id == claim.row.id):
            logger.info("job %s (%s) was stopped: %s", claim.row.id, claim.row.type_name, reason or error,
                        extra=self.extra(claim))  # fmt: skip
            return None
        if reason == "shutdown" and isinstance(error, asyncio.CancelledError):
            # It is not the job's fault: a deploy must not use up its attempts.
            return Settlement(job_id=claim.row.id, token=claim.token, status="pending", uncounted=True)
        if isinstance(error, RateLimited):
            return self._rate_limited(claim, error)
        if isinstance(error, Reschedule):
            return self._rescheduled(claim, error)
        if reason == "paused":
            logger.info("job %s (%s) was stopped by a pause, and its attempt does not count", claim.row.id,
                        claim.row.type_name, extra=self.extra(claim))  # fmt: skip
            return Settlement(job_id=claim.row.id, token=claim.token, status="pending", uncounted=True)
        if reason == "timeout":
            return self._timed_out(claim, error)
        if reason == "lease_lost" and isinstance(error, asyncio.CancelledError):
            lost = _in_place_of(error, "the lease ended before it could be renewed")
            return self.failed(claim, lost, failure.LEASE_EXPIRED)
        return self.failed(claim, error, code)

    def _timed_out(self, claim: Claim, error: BaseException) -> Settlement:
        if isinstance(error, asyncio.CancelledError):
            error = _in_place_of(error, f"the attempt took longer than {claim.plan.timeout:g} s")
        return self.failed(claim, error, failure.TIMEOUT)

    def overdue(self, claim: Claim) -> Settlement:
        """The handler has not ended, although its time is over."""
        plan = claim.plan
        message = (
            f"the attempt took longer than {plan.timeout:g} s, and did not end within {plan.timeout_grace:g} s more"
        )
        return self.failed(claim, TimeoutError(message), failure.TIMEOUT)

    def _rate_limited(self, claim: Claim, request: RateLimited) -> Settlement:
        """The lane is closed for that time, and the job is at its head again."""
        row, schedule = claim.row, _asked_for(request)
        if row.lane is None:
            return Settlement(job_id=row.id, token=claim.token, status="pending", uncounted=True, schedule=schedule)
        return Settlement(job_id=row.id, token=claim.token, status="pending", give_back=True, closes=schedule.after)

    def _rescheduled(self, claim: Claim, request: Reschedule) -> Settlement:
        """Without a cause it is a request, not a failure: the run costs no attempt."""
        schedule = _asked_for(request)
        cause = request.cause if request.cause is not None else request.__cause__
        if cause is not None:
            return self.failed(claim, cause, None, schedule)
        return Settlement(job_id=claim.row.id, token=claim.token, status="pending", uncounted=True, schedule=schedule)

    def extra(self, claim: Claim) -> dict[str, Any]:
        """The fields of the attempt in log records."""
        row = claim.row
        return {
            "job_id": row.id,
            "job_type": row.type_name,
            "chain_id": row.chain_id,
            "attempt_number": row.attempt,
            "worker_id": self.worker_id,
            **({} if row.lane is None else dict(zip(("limit", "limit_key"), split_lane(row.lane), strict=True))),
        }


def _failures(row: JobRow) -> int:
    """How many attempts before this one have ended and were not lost."""
    return row.attempt - 1 - row.losses


def _in_place_of(cancelled: asyncio.CancelledError, message: str) -> TimeoutError:
    """We cancelled the handler: report the reason instead."""
    error = TimeoutError(message)
    error.__cause__ = cancelled
    return error


def _asked_for(request: Reschedule) -> When:
    """The time that a handler asked for; `InvalidArgument` if no database could store it."""
    if request.at is not None:
        return When(at=storable(request.at, "Reschedule(at=…)"))
    after = seconds(request.after or 0.0, "Reschedule(after=…)")
    if after > LONGEST:
        raise InvalidArgument(
            f"Reschedule(after={request.after!r}) is too far in the future: the maximum is a hundred years"
        )
    return When(after=after)
