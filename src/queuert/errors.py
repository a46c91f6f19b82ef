"""Every error that the library raises, and the two exceptions that handlers raise.

QueuertError
├── InvalidArgument (ValueError)          a value that you passed cannot be used
│   ├── InvalidJobId                      a job id that fails validation
│   ├── InvalidCursor                     a page cursor that does not belong to this listing
│   └── InvalidSchedule                   times of a schedule that cannot work
├── DriverMissing (ImportError)           a package that this feature needs is not installed
├── JobTypeError                          a problem with a job class, or with the set of job classes
│   ├── InvalidJobType                    the class itself cannot work
│   ├── DuplicateJobType                  two classes have the same name
│   ├── UnknownJobType                    a name or class that is not registered
│   ├── JobTypeMismatch                   the stored job has another type than the one you asked for
│   └── JobTypeValidationError            a value that the job type does not allow
├── TransactionError
│   ├── TransactionRequired               a change was requested without a transaction
│   ├── TransactionClosed                 the transaction has already ended
│   ├── TransactionNested                 a second transaction in the same task or thread
│   └── TransactionMisused                the connection is not in the state that the call needs
├── ChainError
│   ├── ChainNotFound                     the chain does not exist
│   │   └── ChainArchived                 the chain was archived, and deleted here
│   ├── ChainNotCompleted                 `.output` of a chain that has no output
│   ├── ChainEnded                        `take_over`: the chain has already ended
│   ├── ChainFailed                       `wait`: the current job has no attempts left
│   ├── ChainCancelled                    `wait`: the chain was cancelled
│   ├── ChainExpired                      `wait`: the deadline passed before the work began
│   ├── ChainNotTriggerable               `trigger`: the current job is not pending
│   ├── ChainNotRetryable                 `retry`: the current job has not failed
│   └── ChainInUse                        `delete`: other jobs wait for the chain
├── ScheduleNotFound                      the schedule does not exist
├── JobIdExists                           the job id is already stored, or twice in one batch
├── BlockerNotFound                       a chain named as a blocker does not exist
├── WaitTimeout (TimeoutError)            `wait`: the chain did not end in time
├── PhaseError                            prepare() or complete() used twice, or in a wrong order
│   └── PrepareAfterAutoSetup             prepare() was not the first thing the handler did
├── OwnershipLost                         the job no longer belongs to this attempt
├── ClientClosed                          the client was used after close()
├── ClientMisused                         not entered; another loop or process; the wrong `with`
├── NotifyUnavailable                     the notification channel cannot be reached
└── StorageError                          the database cannot be used
    ├── StorageUnavailable                the server cannot be reached, or the connection was lost
    ├── StorageBusy                       another writer held the lock for too long
    ├── StorageReadOnly                   the database cannot be written
    ├── StorageRejected                   the database refused a value
    ├── StorageNotADatabase               the file is not a database
    ├── SchemaMissing                     tables or functions that this version needs are missing
    └── SchemaTooNew                      the database no longer works with this library version

Exception
├── JobError                              raise it in a handler: the attempt fails with your code
└── Reschedule                            raise it in a handler: the job runs again at your time
    └── RateLimited                       raise it in a handler: its key is closed for a while

The last two are not errors of the library, so `except QueuertError` in a handler does not catch
them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Literal, Protocol

ValidationCode = Literal[
    "not_entry_point",
    "invalid_continuation",
    "invalid_blockers",
    "invalid_input",
    "invalid_output",
    "invalid_limit_key",
    "invalid_limit_weight",
]


class QueuertError(Exception):
    """The base class of every error that the library raises."""


class InvalidArgument(QueuertError, ValueError):
    """A value that you passed cannot be used. The message names the value and the reason."""


class InvalidJobId(InvalidArgument):
    """A job id that fails validation.

    Attributes:
        job_id: The value that was given as the id.
    """

    def __init__(self, job_id: object, reason: str) -> None:
        super().__init__(f"{job_id!r} is not a valid job id: {reason}")
        self.job_id = job_id


class InvalidCursor(InvalidArgument):
    """A page cursor that does not belong to this listing.

    Keep the filters and the order while paging.
    """


class InvalidSchedule(InvalidArgument):
    """Times of a schedule that cannot work: a bad cron expression, an unknown time zone, an
    interval of 0, or times that never come. Raised when `Cron`, `Every` or `After` is created.
    """


class DriverMissing(QueuertError, ImportError):
    """A package that this feature needs is not installed, or cannot be imported.

    The message names the command that installs it. `name` is the missing package, as for every
    `ImportError`.
    """

    def __init__(self, what: str, extras: Sequence[str], cause: ImportError) -> None:
        commands = " or ".join(f'pip install "queuert[{extra}]"' for extra in extras)
        super().__init__(f"{what} cannot be imported ({cause}): run {commands}", name=cause.name)


class JobTypeError(QueuertError):
    """A problem with a job class, or with the set of job classes."""


class InvalidJobType(JobTypeError):
    """A job class that cannot work. Raised by the class statement, or when the client is created.

    Attributes:
        job_type: The name of the job type.
        reason: What is wrong with it.
    """

    def __init__(self, job_type: str, reason: str) -> None:
        super().__init__(f"job type {job_type!r}: {reason}")
        self.job_type = job_type
        self.reason = reason


class DuplicateJobType(JobTypeError):
    """Two job classes have the same name.

    Attributes:
        job_type: The name that both classes have.
        classes: The two classes.
    """

    def __init__(self, job_type: str, first: type, second: type) -> None:
        super().__init__(
            f"two job classes are named {job_type!r}: {first.__module__}.{first.__qualname__} and "
            f"{second.__module__}.{second.__qualname__}; give one of them another name="
        )
        self.job_type = job_type
        self.classes = (first, second)


class UnknownJobType(JobTypeError):
    """A job type that this client does not know. Pass its class in `jobs=[…]`.

    Attributes:
        job_type: The name of the job type.
    """

    def __init__(self, job_type: str) -> None:
        super().__init__(f"job type {job_type!r} is not registered: pass its class in jobs=[…]")
        self.job_type = job_type


class JobTypeMismatch(JobTypeError):
    """The stored job is not of the type that you asked for.

    Attributes:
        job_id: The id of the job.
        expected: The name of the type that you asked for.
        actual: The name of the type that the job has.
    """

    def __init__(self, job_id: str, expected: str, actual: str) -> None:
        super().__init__(f"job {job_id} is of type {actual!r}, not {expected!r}")
        self.job_id = job_id
        self.expected = expected
        self.actual = actual


class JobTypeValidationError(JobTypeError):
    """A value that the job type does not allow.

    Attributes:
        code: The kind of value: "not_entry_point", "invalid_continuation", "invalid_blockers",
            "invalid_input" or "invalid_output".
        job_type: The name of the job type.
        details: More about the value, for example the field.
    """

    def __init__(
        self,
        code: ValidationCode,
        job_type: str,
        message: str,
        details: Mapping[str, object] | None = None,
    ) -> None:
        super().__init__(f"job type {job_type!r}: {message}")
        self.code: ValidationCode = code
        self.job_type = job_type
        self.details: Mapping[str, object] = details or {}


class TransactionError(QueuertError):
    """A transaction was used in a way that cannot work."""


class TransactionRequired(TransactionError):
    """A method that changes something was called without a transaction."""

    def __init__(self, operation: str, given: object = None, *, reason: str | None = None) -> None:
        what = (
            f"{operation}() needs a transaction: {reason}"
            if reason is not None
            else f"{operation}() needs a Transaction as its first argument, got {type(given).__name__}: "
            "open one with client.transaction(), or join your own with client.after_commit(connection)"
        )
        alone = {"start": "submit(job)", "start_many": "submit_many(jobs)"}.get(operation)
        super().__init__(what if alone is None else f"{what}; client.{alone} needs none")


class TransactionClosed(TransactionError):
    """The transaction has already ended."""


class TransactionNested(TransactionError):
    """A task or thread opened a second transaction while its first one was open."""


class TransactionMisused(TransactionError):
    """The connection is not in the transaction state that the call needs."""


class ChainError(QueuertError):
    """A problem with one chain.

    Attributes:
        chain_id: The id of the chain.
    """

    def __init__(self, chain_id: str, message: str) -> None:
        super().__init__(message)
        self.chain_id = chain_id


class ChainNotFound(ChainError):
    """The chain does not exist, or was deleted."""

    def __init__(self, chain_id: str, message: str | None = None) -> None:
        super().__init__(chain_id, message or f"chain {chain_id} does not exist, or was deleted")


class ChainArchived(ChainNotFound):
    """The chain was archived, and then deleted.

    Attributes:
        chain_type: The name of its type.
        status: How it had ended.
        archived_at: When it was archived.
        place: Where it is now, in words.
    """

    def __init__(self, chain_id: str, chain_type: str, status: str, archived_at: datetime, place: str) -> None:
        when = f"{archived_at:%Y-%m-%d %H:%M} UTC"
        super().__init__(chain_id, f"chain {chain_id} ({chain_type}, {status}) was archived at {when}: {place}")
        self.chain_type = chain_type
        self.status = status
        self.archived_at = archived_at
        self.place = place


class ChainNotCompleted(ChainError):
    """The chain has no output, or has none yet. `client.wait` waits for it.

    Attributes:
        status: The status of the chain.
    """

    def __init__(self, chain_id: str, status: str) -> None:
        super().__init__(
            chain_id, f"chain {chain_id} has no output: its status is {status!r} (client.wait() waits for it)"
        )
        self.status = status


class ChainEnded(ChainError):
    """The chain has already ended, so its current job cannot be taken over.

    Attributes:
        status: How the chain ended.
    """

    def __init__(self, chain_id: str, status: str) -> None:
        super().__init__(chain_id, f"chain {chain_id} has already ended: its status is {status!r}")
        self.status = status


class ChainFailed(ChainError):
    """The chain failed: its current job has no attempts left.

    Attributes:
        last_error: The error of the last attempt: `code`, `type`, `message`, `traceback`. None if
            there is none.
    """

    def __init__(self, chain_id: str, last_error: Mapping[str, object] | None) -> None:
        what = f": {last_error.get('code')}: {last_error.get('message')}" if last_error else ""
        super().__init__(chain_id, f"chain {chain_id} failed{what}")
        self.last_error = last_error


class ChainCancelled(ChainError):
    """The chain was cancelled."""

    def __init__(self, chain_id: str) -> None:
        super().__init__(chain_id, f"chain {chain_id} was cancelled")


class ChainExpired(ChainError):
    """The deadline of the chain's current job passed before its handler began."""

    def __init__(self, chain_id: str) -> None:
        super().__init__(chain_id, f"chain {chain_id} expired: its deadline passed before the work began")


class ChainNotTriggerable(ChainError):
    """`trigger` needs chains that wait for their time. Nothing was changed.

    Attributes:
        status: The status of the chain.
    """

    def __init__(self, chain_id: str, status: str) -> None:
        super().__init__(chain_id, f"chain {chain_id} cannot be triggered: its status is {status!r}, not 'pending'")
        self.status = status


class ChainNotRetryable(ChainError):
    """`retry` needs chains that have failed; with `input=`, also cancelled or expired ones, whose
    blockers are complete. Nothing was changed.

    Attributes:
        status: The status of the chain.
    """

    def __init__(self, chain_id: str, status: str, reason: str | None = None) -> None:
        why = reason or f"its status is {status!r}, not 'failed'"
        super().__init__(chain_id, f"chain {chain_id} cannot be retried: {why}")
        self.status = status


class ChainInUse(ChainError):
    """`delete` would remove a chain that other jobs wait for. Nothing was deleted.

    Attributes:
        waiting: For each such chain id, the ids of the jobs that wait for it.
    """

    def __init__(self, waiting: Mapping[str, Sequence[str]]) -> None:
        chain_id = next(iter(waiting))
        listed = "; ".join(f"{chain} is needed by {', '.join(jobs)}" for chain, jobs in waiting.items())
        super().__init__(
            chain_id, f"nothing was deleted, other jobs wait for these chains: {listed}. Delete those first"
        )
        self.waiting = waiting


class ScheduleNotFound(QueuertError):
    """There is no schedule of this name.

    Attributes:
        name: The name.
    """

    def __init__(self, name: str) -> None:
        super().__init__(f"there is no schedule {name!r}: client.list_schedules() shows all of them")
        self.name = name


class JobIdExists(QueuertError):
    """A job with this id is already stored, or the id appears twice in one batch.

    Nothing was created.

    Attributes:
        job_id: The id.
    """

    def __init__(self, job_id: str) -> None:
        super().__init__(f"a job with the id {job_id} already exists; nothing was created")
        self.job_id = job_id


class BlockerNotFound(QueuertError):
    """A chain that was named as a blocker does not exist. Nothing was created.

    Attributes:
        job_id: The id of the job that names the blocker.
        chain_id: The id of the chain that does not exist.
    """

    def __init__(self, job_id: str, chain_id: str) -> None:
        super().__init__(
            f"job {job_id} cannot wait for chain {chain_id}: that chain does not exist; nothing was created"
        )
        self.job_id = job_id
        self.chain_id = chain_id


class Explanation(Protocol):
    """Why a chain has not ended: a `queuert.why.Why`."""

    @property
    def reasons(self) -> Sequence[object]:
        """All reasons, the one that must end first comes first."""
        ...

    def __str__(self) -> str: ...


class WaitTimeout(QueuertError, TimeoutError):
    """`wait`: the chain did not end in time. It goes on: call `wait` again to wait longer.

    Attributes:
        chain_id: The id of the chain.
        timeout: How long the call waited, in seconds.
        status: The status of the chain when the time was over.
        last_error: The error of the last failed attempt of the chain's current job: `code`, `type`,
            `message`, `traceback`. None if there is none.
        failed_blockers: The chains that the current job waits for and that ended without an output:
            the id of each and its status. The job waits until they are retried.
        why: Why the chain has not ended, as from `client.why(chain)`. None if it could not be read
            (with the async client: within a second). A traceback shows it as a note.
    """

    why: Explanation | None = None

    def __init__(
        self,
        chain_id: str,
        timeout: float,
        *,
        status: str | None = None,
        last_error: Mapping[str, object] | None = None,
        failed_blockers: Mapping[str, str] | None = None,
    ) -> None:
        parts = [f"chain {chain_id} did not end within {timeout:g} s"]
        if status is not None:
            parts.append(f"its status is {status!r}")
        if last_error is not None:
            parts.append(f"its last error is {last_error.get('code')}: {last_error.get('message')}")
        if failed_blockers:
            listed = ", ".join(f"{chain} ({ended})" for chain, ended in failed_blockers.items())
            parts.append(f"it waits for chains that ended without an output: {listed}")
        super().__init__("; ".join(parts))
        self.chain_id = chain_id
        self.timeout = timeout
        self.status = status
        self.last_error = last_error
        self.failed_blockers: Mapping[str, str] = failed_blockers or {}


class PhaseError(QueuertError):
    """`prepare()` or `complete()` was used twice, or in the wrong order."""


class PrepareAfterAutoSetup(PhaseError):
    """`prepare()` must come first: the handler had already awaited something, or opened
    `complete()`.
    """

    def __init__(self) -> None:
        super().__init__(
            "prepare() must be the first thing a handler does: it came after the first await or after complete(), "
            "when the attempt had been set up without it"
        )


class OwnershipLost(QueuertError):
    """The job no longer belongs to this attempt. Nothing that the attempt still does has an effect.

    Attributes:
        job_id: The id of the job.
        reason: How the attempt lost it, one of the values of `AbortReason`.
    """

    def __init__(self, job_id: str, reason: str) -> None:
        super().__init__(f"job {job_id} no longer belongs to this attempt: {reason.replace('_', ' ')}")
        self.job_id = job_id
        self.reason = reason


class JobError(Exception):
    """Raise it in a handler to fail the attempt with an error code of your own.

    The job is retried as usual, unless you pass `retry=False`: then it fails at once, whatever
    `max_attempts` is.

    It is not a `QueuertError`: a handler that catches those does not catch this one.

    Args:
        code: The code that is recorded for the attempt, for example "CARD_DECLINED".
        message: The message that is recorded with it (default: the code).
        retry: Whether the job may run again (default: True).

    Attributes:
        code: The code.
        retry: Whether the job may run again.
    """

    def __init__(self, code: str, message: str = "", *, retry: bool = True) -> None:
        super().__init__(message or code)
        self.code = code
        self.retry = retry


class Reschedule(Exception):
    """Raise it in a handler to run the job again at a time of your own, not after the backoff.

    Without a cause, this run costs no attempt. With a cause (`cause=`, or `raise … from error`), it
    is a failed attempt: the error is recorded, and after `max_attempts` the job fails.

    It is not a `QueuertError`: a handler that catches those does not catch this one.

    Args:
        after: How long to wait, as a timedelta or in seconds. Give this or `at`.
        at: When to run again, as a datetime with a time zone.
        cause: The exception to record as the attempt's error (default: none, and the run costs no
            attempt).

    Attributes:
        after: The delay, if one was given.
        at: The moment, if one was given.
        cause: The exception to record.
    """

    def __init__(
        self,
        *,
        after: timedelta | float | None = None,
        at: datetime | None = None,
        cause: BaseException | None = None,
    ) -> None:
        if (after is None) == (at is None):
            raise InvalidArgument("Reschedule takes either after= or at=")
        super().__init__(f"run again {'at ' + str(at) if at is not None else f'after {after}'}")
        self.after = after
        self.at = at
        self.cause = cause


class RateLimited(Reschedule):
    """Raise it in a handler if a partner refuses more calls. No job with the same key of the same
    limit begins before the time is over, in any worker.

    The job goes back to the head of its line. The run costs no attempt, even with a cause. A job
    without a limit just waits for that time.

    Args:
        retry_after: How long, as a timedelta or in seconds. More than 0.

    Attributes:
        retry_after: The time in seconds.
    """

    def __init__(self, retry_after: timedelta | float) -> None:
        value: Any = retry_after.total_seconds() if isinstance(retry_after, timedelta) else retry_after
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < float("inf"):
            raise InvalidArgument(f"RateLimited takes a time longer than 0, got {retry_after!r}")
        super().__init__(after=value)
        self.retry_after = float(value)


class ClientClosed(QueuertError):
    """The client, or an adapter, was used after `close()`."""

    def __init__(self, what: str = "client") -> None:
        super().__init__(f"the {what} is closed: use it inside its with block, before close()")


class ClientMisused(QueuertError):
    """The client was used before its `with` block, in a forked child, or on an event loop other
    than the one that entered it; or a block was entered with the wrong kind of `with`.

    The call had no effect, and the client still works for its owner.
    """


class NotifyUnavailable(QueuertError):
    """The broker that carries notifications cannot be reached, or does not answer.

    No job is lost: workers and waiters poll until the broker is back. Clients and workers log this
    error. Only a notify adapter that you call yourself raises it.
    """


class StorageError(QueuertError):
    """The database cannot be used. The driver's own error is the cause (`__cause__`)."""


class StorageUnavailable(StorageError):
    """The server cannot be reached, is shutting down, or has no space or memory left, or the
    connection was lost.

    It may work again later.

    If this happens during a commit, only the database knows whether the commit took effect.

    Attributes:
        sent: False if it is certain that nothing was sent to the database.
    """

    sent = True


class StorageBusy(StorageError):
    """Another writer held the write lock for longer than the busy timeout."""


class StorageReadOnly(StorageError):
    """The database cannot be written."""


class StorageRejected(StorageError):
    """The database refused a value: it is too large, or cannot be converted.

    The same call would fail again.
    """


class StorageNotADatabase(StorageError):
    """The file exists, but it is not a database."""


class SchemaMissing(StorageError):
    """Tables or functions that this version of queuert needs are not in the database.

    Migrate it.
    """

    def __init__(self, message: str) -> None:
        super().__init__(
            f"queuert's tables or functions of this version are missing ({message}): run client.migrate() with this "
            "version, in Django `manage.py migrate`, with Alembic a new revision that calls upgrade()"
        )


class SchemaTooNew(StorageError):
    """A newer version of this library migrated the database, and this version no longer works with
    it.

    Attributes:
        found: The schema version of the database.
        known: The newest schema version that this library knows.
        oldest: The oldest schema version that a library must know to work with this database.
    """

    def __init__(self, found: int, known: int, oldest: int) -> None:
        super().__init__(
            f"the database has schema version {found} and works with queuert from schema version {oldest} on, "
            f"this one has {known}: upgrade queuert in this process; nothing was changed"
        )
        self.found = found
        self.known = known
        self.oldest = oldest
