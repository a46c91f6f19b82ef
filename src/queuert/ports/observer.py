"""The observer port: the events that the library reports, one method per event.

Derive from `Observer`, override the events that you need, and pass an instance as
`connect(…, observers=[…])`. Arguments are plain values, passed by keyword. Later versions may add
some, so take `**_` for those you do not use.

Events about a write are sent after its commit, and never after a rollback. They may come from any
thread. Observers are called one after the other where the work is done, so be quick and do not
block. An error in an observer is logged, once for each kind of event and error, and has no other
effect.

Durations are in seconds. Ids and type names are strings. `worker_id` is a worker's id, or None if
no worker did the work.
"""

from __future__ import annotations

from collections.abc import Sequence

from queuert.ports.tracer import Tracer


class Observer:
    """Receives events: subclass it and pass an instance as `connect(…, observers=[…])`.

    Every method does nothing until you override it. Events are passed by keyword. Take `**_` for
    those that you do not use. Their arguments are:

    Args:
        worker_id: The id of the worker, or None if no worker did the work.
        job_types: The names of the job types that the worker serves.
        concurrency: How many handlers the worker runs at once.
        chain_id: The id of the chain.
        chain_type: The name of the chain's type: the job type that it started with.
        chain_index: The position of the job in its chain, counted from 0.
        job_id: The id of the job.
        job_type: The name of the job's type.
        attempt_number: The number of the attempt, counted from 1.
        duration: How long it took, in seconds. None if that is not known.
        retry_in: Seconds until the next try, or None if there is none.
        error_code: The code of the recorded error, for example "TIMEOUT".
        error_type: The class of the exception.
        error_message: The message of the exception.
        operation: The operation that failed.
        schedule: The name of the schedule.
        limit: The name of the job's limit, or None if it has none.
        limit_key: The job's key of that limit: an empty string if the limit has one key for all.
        tick: The moment of the tick, as text: ISO 8601, in UTC.
    """

    tracer: Tracer | None = None
    """For observers that trace: see `queuert.ports.tracer`."""

    # Workers

    def worker_started(self, *, worker_id: str, job_types: Sequence[str], concurrency: int) -> None:
        """A worker has started."""

    def worker_stopping(self, *, worker_id: str) -> None:
        """A worker claims no more jobs, and waits for its running handlers."""

    def worker_stopped(self, *, worker_id: str, job_types: Sequence[str], concurrency: int, clean: bool) -> None:
        """A worker has stopped. `clean`: every job was settled."""

    def worker_error(self, *, worker_id: str, error_type: str, error_message: str, retry_in: float | None) -> None:
        """A turn of the worker's main loop failed.

        The next one follows after `retry_in` seconds. None: the worker gives up.
        """

    # Chains

    def chain_created(self, *, chain_id: str, chain_type: str) -> None:
        """A chain was started."""

    def chain_completed(self, *, chain_id: str, chain_type: str, duration: float | None, worker_id: str | None) -> None:
        """A chain has its output. `duration`: since it was started."""

    def chain_failed(
        self, *, chain_id: str, chain_type: str, duration: float | None, worker_id: str | None, error_code: str
    ) -> None:
        """A chain failed for good: its current job has no attempts left."""

    def chain_expired(self, *, chain_id: str, chain_type: str, duration: float | None, worker_id: str | None) -> None:
        """A chain ended because the deadline of its current job passed before the work began."""

    def chain_cancelled(self, *, chain_id: str, chain_type: str, duration: float | None) -> None:
        """A chain was cancelled."""

    def chain_deleted(self, *, chain_id: str, chain_type: str, status: str) -> None:
        """A chain was deleted. `status`: its status before."""

    # Jobs

    def job_created(
        self,
        *,
        job_id: str,
        job_type: str,
        chain_id: str,
        chain_type: str,
        chain_index: int,
        limit: str | None,
        limit_key: str | None,
    ) -> None:
        """A job was stored: the first of its chain (`chain_index` 0), or the continuation of
        another.
        """

    def job_blocked(
        self, *, job_id: str, job_type: str, chain_id: str, chain_type: str, blocker_ids: Sequence[str]
    ) -> None:
        """A new job waits for other chains.

        `blocker_ids`: all its blockers, including completed ones.
        """

    def job_unblocked(self, *, job_id: str, job_type: str) -> None:
        """The last chain that a job waited for has completed."""

    def job_triggered(self, *, job_id: str, job_type: str, chain_id: str, chain_type: str) -> None:
        """A job was made due now."""

    def job_retried(self, *, job_id: str, job_type: str, chain_id: str, chain_type: str) -> None:
        """A failed job was given new attempts."""

    def job_completed(
        self,
        *,
        job_id: str,
        job_type: str,
        chain_id: str,
        chain_type: str,
        continued: bool,
        duration: float | None,
        worker_id: str | None,
    ) -> None:
        """A job completed. `duration`: since its creation.

        `continued`: it ended with another job, not with an output.
        """

    def job_failed(
        self,
        *,
        job_id: str,
        job_type: str,
        chain_id: str,
        chain_type: str,
        duration: float | None,
        worker_id: str | None,
        error_code: str,
    ) -> None:
        """A job failed for good."""

    def job_expired(
        self,
        *,
        job_id: str,
        job_type: str,
        chain_id: str,
        chain_type: str,
        duration: float | None,
        worker_id: str | None,
    ) -> None:
        """A job's deadline passed before the work began."""

    def job_cancelled(
        self, *, job_id: str, job_type: str, chain_id: str, chain_type: str, duration: float | None
    ) -> None:
        """A job was cancelled."""

    def job_reaped(
        self, *, job_id: str, job_type: str, chain_id: str, chain_type: str, attempt_number: int, worker_id: str
    ) -> None:
        """A job was reclaimed because its lease had expired.

        `worker_id`: the worker that reclaimed it.
        """

    # Attempts

    def attempt_started(
        self,
        *,
        job_id: str,
        job_type: str,
        chain_id: str,
        chain_type: str,
        attempt_number: int,
        worker_id: str,
        limit: str | None,
        limit_key: str | None,
        wait: float | None,
    ) -> None:
        """A handler begins, and occupies a slot.

        `wait`: how long the job was due before it was claimed. None for the first attempt of a job
        that had blockers.
        """

    def attempt_ended(
        self,
        *,
        job_id: str,
        job_type: str,
        chain_id: str,
        chain_type: str,
        attempt_number: int,
        worker_id: str,
        limit: str | None,
        limit_key: str | None,
        duration: float,
    ) -> None:
        """A handler has ended, in any way, and its slot is free.

        Another event reports the outcome, usually after this one.
        """

    def attempt_completed(
        self,
        *,
        job_id: str,
        job_type: str,
        chain_id: str,
        chain_type: str,
        attempt_number: int,
        worker_id: str,
        duration: float,
    ) -> None:
        """An attempt's result took effect.

        `duration`: from the handler's start to the commit of the result.
        """

    def attempt_failed(
        self,
        *,
        job_id: str,
        job_type: str,
        chain_id: str,
        chain_type: str,
        attempt_number: int,
        worker_id: str,
        duration: float,
        error_code: str,
        error_type: str | None,
        error_message: str,
        retry_in: float | None,
    ) -> None:
        """An attempt failed, or its result could not be stored.

        `retry_in`: seconds until the next one, or None if this was the last.
        """

    def attempt_rescheduled(
        self,
        *,
        job_id: str,
        job_type: str,
        chain_id: str,
        chain_type: str,
        attempt_number: int,
        worker_id: str,
        duration: float,
    ) -> None:
        """An attempt put its job back without an error: its handler asked for it, or the worker was
        stopping.
        """

    def attempt_lease_renewed(
        self, *, job_id: str, job_type: str, chain_id: str, chain_type: str, attempt_number: int, worker_id: str
    ) -> None:
        """The lease of a running job was renewed."""

    def attempt_lease_lost(
        self, *, job_id: str, job_type: str, chain_id: str, chain_type: str, attempt_number: int, worker_id: str
    ) -> None:
        """A lease expired before it could be renewed. The handler is told to stop."""

    def attempt_taken_by_another_worker(
        self, *, job_id: str, job_type: str, chain_id: str, chain_type: str, attempt_number: int, worker_id: str
    ) -> None:
        """The job no longer belongs to this attempt: it was reclaimed, and another worker may have
        claimed it.
        """

    def attempt_already_completed(
        self, *, job_id: str, job_type: str, chain_id: str, chain_type: str, attempt_number: int, worker_id: str
    ) -> None:
        """The job has ended without this attempt, for example by `take_over`."""

    def attempt_cancelled(
        self, *, job_id: str, job_type: str, chain_id: str, chain_type: str, attempt_number: int, worker_id: str
    ) -> None:
        """The job was cancelled while this attempt ran."""

    def attempt_deleted(
        self, *, job_id: str, job_type: str, chain_id: str, chain_type: str, attempt_number: int, worker_id: str
    ) -> None:
        """The job was deleted while this attempt ran."""

    # Limits

    def limit_closed(
        self,
        *,
        limit: str,
        limit_key: str,
        closed_for: float,
        job_id: str,
        job_type: str,
        chain_id: str,
        chain_type: str,
        attempt_number: int,
        worker_id: str,
    ) -> None:
        """A handler has raised `RateLimited`: no job of the key begins for `closed_for` seconds.

        `attempt_rescheduled` reports the outcome of the attempt.
        """

    # Schedules

    def schedule_fired(
        self, *, schedule: str, tick: str, lag: float, chain_ids: Sequence[str], triggered: bool, worker_id: str | None
    ) -> None:
        """A tick of a schedule has started its chains. `lag`: how late it was, in seconds.

        `chain_ids`: empty if the schedule's function returned no job. `triggered`: it was triggered
        by hand, or is part of a backfill.
        """

    def schedule_skipped(self, *, schedule: str, tick: str, worker_id: str | None) -> None:
        """A tick of a schedule did not fire, because chains of an earlier one had not ended."""

    def schedule_failed(
        self, *, schedule: str, error_message: str, retry_in: float | None, worker_id: str | None
    ) -> None:
        """A schedule could not be fired: its function raised an error, or what is stored of it
        cannot be used. It is tried again.
        """

    # Adapters

    def state_error(self, *, operation: str, error_type: str, error_message: str) -> None:
        """The database failed. `operation`: the operation of the state port, or `transaction`."""

    def notify_error(self, *, operation: str, error_type: str, error_message: str) -> None:
        """The notification channel failed. `operation`: the operation of the notify port."""


EVENTS: tuple[str, ...] = tuple(name for name, value in vars(Observer).items() if name[0] != "_" and callable(value))
"""The names of all events, in the order above."""
