"""Every error the library raises, under one root.

QueuertError
├── InvalidArgument (ValueError)          a value you passed cannot be used; the message says why
│   ├── InvalidJobId                      an id that fails validation
│   └── InvalidCursor                     a page cursor that is not one of ours, or of another listing
├── JobTypeError                          something is wrong with a job class or with the set of them
│   ├── InvalidJobType                    the class itself cannot work (found when the registry is built)
│   ├── DuplicateJobType                  two classes share one name
│   ├── UnknownJobType                    a name or class that is not registered
│   ├── JobTypeMismatch                   the stored job is of another type than the one you asked for
│   └── JobTypeValidationError            a value that the type does not allow; `code` says which kind
├── TransactionError
│   ├── TransactionRequired               a mutation was called without a transaction
│   ├── TransactionClosed                 the transaction has ended already
│   ├── TransactionNested                 a second transaction in the same task or thread
│   └── TransactionMisused                the connection is not in the state that the call needs
├── ChainError
│   ├── ChainNotFound
│   ├── ChainNotCompleted                 `.output` of a chain that has none
│   ├── ChainEnded                        the chain has reached its end; there is nothing to take over
│   ├── ChainFailed                       `wait`: attempts are exhausted
│   ├── ChainCancelled                    `wait`: cancelled
│   ├── ChainExpired                      `wait`: its deadline passed
│   ├── ChainNotTriggerable               `trigger`: the current job is not waiting for its time
│   ├── ChainNotRetryable                 `retry`: the current job has not failed
│   └── ChainInUse                        `delete`: other jobs wait for it
├── JobNotFound
├── JobIdExists                           a job with this id is stored already, or is twice in one batch
├── BlockerNotFound                       a chain named as blocker is not stored
├── WaitTimeout (TimeoutError)
├── PhaseError                            prepare() or complete() was used twice, or in the wrong order
│   └── PrepareAfterAutoSetup             prepare() came after the handler had begun without it
├── OwnershipLost                         the job was taken from this attempt; `reason` says how
├── JobError                              raise it in a handler to fail the attempt with a code of your own
├── Reschedule                            raise it in a handler to run the job again at a time of your own
├── ClientClosed
├── NotifyUnavailable                     the broker cannot be reached; jobs are safe, workers and waiters poll
└── StorageError                          the database cannot be used
    ├── StorageUnavailable                the server cannot be reached, or the connection was lost
    ├── StorageBusy                       somebody else holds the write lock
    ├── StorageReadOnly
    ├── StorageNotADatabase
    ├── SchemaMissing                     tables or functions of this version are not in the database: migrate it
    └── SchemaTooNew                      the database was migrated by a version that no longer works with this one
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Literal

ValidationCode = Literal[
    "not_entry_point", "invalid_continuation", "invalid_blockers", "invalid_input", "invalid_output"
]


class QueuertError(Exception):
    """The root of every error of this library."""


class InvalidArgument(QueuertError, ValueError):
    """A value that was passed in cannot be used; the message says which and why."""


class InvalidJobId(InvalidArgument):
    """A job id that fails validation."""

    def __init__(self, job_id: object, reason: str) -> None:
        super().__init__(f"{job_id!r} cannot be a job id: {reason}")
        self.job_id = job_id


class InvalidCursor(InvalidArgument):
    """A cursor that this listing did not hand out."""


class JobTypeError(QueuertError):
    """Something is wrong with a job class, or with the set of them."""


class InvalidJobType(JobTypeError):
    """A job class that cannot work; raised when the registry is built."""

    def __init__(self, type_name: str, reason: str) -> None:
        super().__init__(f"job type {type_name!r}: {reason}")
        self.type_name = type_name
        self.reason = reason


class DuplicateJobType(JobTypeError):
    """Two classes claim one name."""

    def __init__(self, type_name: str, first: type, second: type) -> None:
        super().__init__(
            f"two job classes are named {type_name!r}: {first.__module__}.{first.__qualname__} and "
            f"{second.__module__}.{second.__qualname__}; give one of them another name="
        )
        self.type_name = type_name
        self.classes = (first, second)


class UnknownJobType(JobTypeError):
    """A job type that this client was not given."""

    def __init__(self, type_name: str) -> None:
        super().__init__(f"job type {type_name!r} is not registered: pass its class in jobs=[…]")
        self.type_name = type_name


class JobTypeMismatch(JobTypeError):
    """The stored job is of another type than the one that was asked for."""

    def __init__(self, job_id: str, expected: str, actual: str) -> None:
        super().__init__(f"job {job_id} is of type {actual!r}, not {expected!r}")
        self.job_id = job_id
        self.expected = expected
        self.actual = actual


class JobTypeValidationError(JobTypeError):
    """A value that the job type does not allow. `code` says what kind of value, `details` what about it."""

    def __init__(
        self,
        code: ValidationCode,
        type_name: str,
        message: str,
        details: Mapping[str, object] | None = None,
    ) -> None:
        super().__init__(f"job type {type_name!r}: {message}")
        self.code: ValidationCode = code
        self.type_name = type_name
        self.details: Mapping[str, object] = details or {}


class TransactionError(QueuertError):
    """The transaction cannot be used the way it was."""


class TransactionRequired(TransactionError):
    """A mutation was called without a transaction."""

    def __init__(self, operation: str, given: object = None, *, reason: str | None = None) -> None:
        super().__init__(
            f"{operation}() needs a transaction: {reason}"
            if reason is not None
            else f"{operation}() needs a Transaction as its first argument, got {type(given).__name__}: "
            "open one with client.transaction(), or join your own with client.after_commit(connection)"
        )


class TransactionClosed(TransactionError):
    """The transaction has ended."""


class TransactionNested(TransactionError):
    """A transaction was opened inside another one by the same task or thread."""


class TransactionMisused(TransactionError):
    """The connection is not in the transaction state that the call needs."""


class ChainError(QueuertError):
    """Something about one chain; `chain_id` says which."""

    def __init__(self, chain_id: str, message: str) -> None:
        super().__init__(message)
        self.chain_id = chain_id


class ChainNotFound(ChainError):
    def __init__(self, chain_id: str) -> None:
        super().__init__(chain_id, f"chain {chain_id} does not exist, or was deleted")


class ChainNotCompleted(ChainError):
    """The chain has no output (yet)."""

    def __init__(self, chain_id: str, status: str) -> None:
        super().__init__(
            chain_id, f"chain {chain_id} has no output: its status is {status!r} (client.wait() waits for it)"
        )
        self.status = status


class ChainEnded(ChainError):
    """The chain has reached its end."""

    def __init__(self, chain_id: str, status: str) -> None:
        super().__init__(chain_id, f"chain {chain_id} has ended already: its status is {status!r}")
        self.status = status


class ChainFailed(ChainError):
    """The chain's current job has used up its attempts. `error` is the record of the last one."""

    def __init__(self, chain_id: str, error: Mapping[str, object] | None) -> None:
        what = f": {error.get('code')}: {error.get('message')}" if error else ""
        super().__init__(chain_id, f"chain {chain_id} failed{what}")
        self.error = error


class ChainCancelled(ChainError):
    def __init__(self, chain_id: str) -> None:
        super().__init__(chain_id, f"chain {chain_id} was cancelled")


class ChainExpired(ChainError):
    def __init__(self, chain_id: str) -> None:
        super().__init__(chain_id, f"chain {chain_id} expired: its deadline passed before the work began")


class ChainNotTriggerable(ChainError):
    def __init__(self, chain_id: str, status: str) -> None:
        super().__init__(chain_id, f"chain {chain_id} cannot be triggered: its status is {status!r}, not 'pending'")
        self.status = status


class ChainNotRetryable(ChainError):
    def __init__(self, chain_id: str, status: str) -> None:
        super().__init__(chain_id, f"chain {chain_id} cannot be retried: its status is {status!r}, not 'failed'")
        self.status = status


class ChainInUse(ChainError):
    """Jobs outside the deleted set still need the chain. `waiting` maps chain ids to those jobs' ids."""

    def __init__(self, waiting: Mapping[str, Sequence[str]]) -> None:
        chain_id = next(iter(waiting))
        listed = "; ".join(f"{chain} is needed by {', '.join(jobs)}" for chain, jobs in waiting.items())
        super().__init__(
            chain_id, f"nothing was deleted, other jobs wait for these chains: {listed}. Delete those first"
        )
        self.waiting = waiting


class JobNotFound(QueuertError):
    def __init__(self, job_id: str) -> None:
        super().__init__(f"job {job_id} does not exist, or was deleted")
        self.job_id = job_id


class JobIdExists(QueuertError):
    """A job with this id is stored already, or the id is twice in one batch."""

    def __init__(self, job_id: str) -> None:
        super().__init__(f"a job with the id {job_id} exists already; nothing was created")
        self.job_id = job_id


class BlockerNotFound(QueuertError):
    """A chain that was named as a blocker is not stored."""

    def __init__(self, job_id: str, chain_id: str) -> None:
        super().__init__(
            f"job {job_id} cannot wait for chain {chain_id}: that chain does not exist; nothing was created"
        )
        self.job_id = job_id
        self.chain_id = chain_id


class WaitTimeout(QueuertError, TimeoutError):
    def __init__(self, chain_id: str, timeout: float) -> None:
        super().__init__(f"chain {chain_id} did not end within {timeout:g} s")
        self.chain_id = chain_id
        self.timeout = timeout


class PhaseError(QueuertError):
    """`prepare()` or `complete()` was used twice, or in the wrong order."""


class PrepareAfterAutoSetup(PhaseError):
    """`prepare()` must come first: the handler had already awaited something, or opened `complete()`."""

    def __init__(self) -> None:
        super().__init__(
            "prepare() must be the first thing a handler does: it came after the first await or after complete(), "
            "when the attempt had been set up without it"
        )


class OwnershipLost(QueuertError):
    """The job is no longer this attempt's: whatever it still does has no effect."""

    def __init__(self, job_id: str, reason: str) -> None:
        super().__init__(f"job {job_id} is no longer this attempt's: {reason.replace('_', ' ')}")
        self.job_id = job_id
        self.reason = reason


class JobError(QueuertError):
    """Raise it in a handler to fail the attempt with an error code of your own; the job is retried as usual."""

    def __init__(self, code: str, message: str = "") -> None:
        super().__init__(message or code)
        self.code = code


class Reschedule(QueuertError):
    """Raise it in a handler to run the job again `after` a time or `at` a moment, instead of after the backoff.

    The attempt counts. `cause`, if given, is recorded as the attempt's error.
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


class ClientClosed(QueuertError):
    def __init__(self, what: str = "client") -> None:
        super().__init__(f"the {what} is closed: use it inside its with block, before close()")


class NotifyUnavailable(QueuertError):
    """The broker that carries notifications cannot be reached, or does not answer.

    Nothing is lost: workers and waiters poll until it is back. Clients and workers log it; only calls of a notify
    adapter itself raise it.
    """


class StorageError(QueuertError):
    """The database cannot be used. The driver's own error is the cause (`__cause__`)."""


class StorageUnavailable(StorageError):
    """The server cannot be reached, is shutting down, or the connection was lost: it may work again later.

    If that happened while something was being committed, only the database knows whether it was.
    """


class StorageBusy(StorageError):
    """Somebody else kept the write lock for longer than the busy timeout."""


class StorageReadOnly(StorageError):
    """The database cannot be written."""


class StorageNotADatabase(StorageError):
    """The file is there, but is no database."""


class SchemaMissing(StorageError):
    """Tables or functions that this version of queuert needs are not in the database: it was not migrated."""

    def __init__(self, message: str) -> None:
        super().__init__(
            f"queuert's tables or functions of this version are missing ({message}): run client.migrate() with this "
            "version, in Django `manage.py migrate`, with Alembic a new revision that calls upgrade()"
        )


class SchemaTooNew(StorageError):
    """The database was migrated by a newer version of this library, which no longer works with this one.

    `found` is the database's schema version, `known` this library's, `oldest` the oldest that the database works with.
    """

    def __init__(self, found: int, known: int, oldest: int) -> None:
        super().__init__(
            f"the database has schema version {found} and works with queuert from schema version {oldest} on, "
            f"this one has {known}: upgrade queuert in this process; nothing was changed"
        )
        self.found = found
        self.known = known
        self.oldest = oldest
