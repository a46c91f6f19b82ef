"""Logs: events as records of Python's `logging`, and the current job in a handler's own records."""

from __future__ import annotations

import logging
from collections.abc import Callable, MutableMapping
from logging import DEBUG, ERROR, INFO, WARNING
from typing import Any

from queuert.base.failure_log import Repetitions
from queuert.engine.current import current_job
from queuert.ports.observer import Observer

__all__ = ["EventLog", "JobContext", "add_job_context", "job_context"]

_CHAIN = "chain %(chain_id)s (%(chain_type)s)"
_JOB = "job %(job_id)s (%(job_type)s)"
_ATTEMPT = f"attempt %(attempt_number)d of {_JOB}"
_ERROR = "%(error_type)s: %(error_message)s"
_REPEATED = " (and %(repeated)d times more since the last report)"

MESSAGES: dict[str, tuple[int, str]] = {
    "chain_created": (INFO, f"{_CHAIN} created"),
    "chain_completed": (INFO, f"{_CHAIN} completed"),
    "chain_failed": (WARNING, f"{_CHAIN} failed: %(error_code)s"),
    "chain_expired": (WARNING, f"{_CHAIN} expired"),
    "chain_cancelled": (INFO, f"{_CHAIN} cancelled"),
    "chain_deleted": (INFO, f"{_CHAIN} deleted"),
    "job_created": (DEBUG, f"{_JOB} created"),
    "job_blocked": (DEBUG, f"{_JOB} waits for other chains"),
    "job_unblocked": (DEBUG, f"{_JOB} is unblocked"),
    "job_triggered": (INFO, f"{_JOB} was made due now"),
    "job_retried": (INFO, f"{_JOB} was given new attempts"),
    "job_completed": (DEBUG, f"{_JOB} completed"),
    "job_failed": (DEBUG, f"{_JOB} failed: %(error_code)s"),
    "job_expired": (DEBUG, f"{_JOB} expired"),
    "job_cancelled": (DEBUG, f"{_JOB} cancelled"),
    "attempt_started": (DEBUG, f"{_ATTEMPT} started"),
    "attempt_ended": (DEBUG, f"{_ATTEMPT} ended after %(duration).3f s"),
    "attempt_completed": (DEBUG, f"{_ATTEMPT} completed"),
    "attempt_rescheduled": (DEBUG, f"{_ATTEMPT} put the job back"),
    "attempt_lease_renewed": (DEBUG, f"{_ATTEMPT}: lease renewed"),
    "attempt_lease_lost": (WARNING, f"{_ATTEMPT}: the lease expired before it could be renewed"),
    "attempt_taken_by_another_worker": (INFO, f"{_ATTEMPT}: the job was taken by another worker"),
    "attempt_already_completed": (INFO, f"{_ATTEMPT}: the job had already ended"),
    "attempt_cancelled": (INFO, f"{_ATTEMPT}: the job was cancelled"),
    "attempt_deleted": (INFO, f"{_ATTEMPT}: the job was deleted"),
    "limit_closed": (INFO, f"{_ATTEMPT} closed key %(limit_key)r of the limit %(limit)s for %(closed_for).3f s"),
    "schedule_fired": (INFO, "schedule %(schedule)s fired for %(tick)s"),
    "schedule_skipped": (INFO, "schedule %(schedule)s skipped %(tick)s: chains of an earlier tick have not ended"),
    "state_error": (ERROR, f"the database failed in %(operation)s: {_ERROR}"),
    "notify_error": (ERROR, f"the notification channel failed in %(operation)s: {_ERROR}"),
}
"""The messages of `EventLog`. The worker's own events, failed attempts, schedules that cannot be
fired and reaped jobs are not here: the worker logs those itself, with their tracebacks, with or
without observers."""


class EventLog(Observer):
    """Logs events under `queuert.chain`, `queuert.job`, `queuert.attempt`, `queuert.limit`,
    `queuert.schedule`, `queuert.state` and `queuert.notify`.

    The event's arguments are extras of the record. Its name is the extra `event_name`, because
    structlog uses `event` for the message. An error of the database or of the channel that repeats
    is logged once a minute; the extra `repeated` counts those that were not logged.
    """

    def __init__(self) -> None:
        for event, (level, message) in MESSAGES.items():
            logger = logging.getLogger(f"queuert.{event.partition('_')[0]}")
            make = _log_once if event.endswith("_error") else _log
            setattr(self, event, make(logger, level, event, message))


def _log(logger: logging.Logger, level: int, event: str, message: str) -> Callable[..., None]:
    def log(**facts: Any) -> None:
        if logger.isEnabledFor(level):
            logger.log(level, message, facts, extra={"event_name": event, **facts})

    return log


def _log_once(logger: logging.Logger, level: int, event: str, message: str) -> Callable[..., None]:
    """For errors that may come thousands of times: repetitions are logged once a minute, with their
    number.
    """
    log, log_more = (_log(logger, level, event, text) for text in (message, f"{message}{_REPEATED}"))
    repetitions = Repetitions()

    def log_once(**facts: Any) -> None:
        repeated = repetitions.next((facts.get("operation"), facts.get("error_type")))
        if repeated is not None:
            (log_more if repeated else log)(**facts, repeated=repeated)

    return log_once


JOB_FIELDS = ("job_id", "job_type", "chain_id", "attempt_number", "worker_id")


def job_context() -> dict[str, Any]:
    """The current job: id, type, chain, attempt and worker. Empty outside of handlers."""
    job = current_job.get()
    if job is None:
        return {}
    return {
        "job_id": job.id,
        "job_type": job.type_name,
        "chain_id": job.chain_id,
        "attempt_number": job.attempt,
        "worker_id": job.leased_by,
    }


class JobContext(logging.Filter):
    """A filter for a logging handler. It adds the fields of `job_context` to each record.

    Outside of jobs the fields are None. Fields that a record already has are not changed.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """Add the fields. Every record passes.

        Args:
            record: The log record.
        """
        context = job_context()
        for field in JOB_FIELDS:
            if field not in record.__dict__:
                record.__dict__[field] = context.get(field)
        return True


def add_job_context(
    logger: Any,  # noqa: ARG001
    method_name: str,  # noqa: ARG001
    event_dict: MutableMapping[str, Any],
) -> MutableMapping[str, Any]:
    """A processor for structlog that adds the fields of `job_context` to a log entry.

    Args:
        logger: Not used.
        method_name: Not used.
        event_dict: The log entry. Fields that it already has are not changed.
    """
    for field, value in job_context().items():
        event_dict.setdefault(field, value)
    return event_dict
