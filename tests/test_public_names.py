"""The public names are a promise: this list changes only on purpose, together with the changelog."""

from __future__ import annotations

import inspect

import pytest

import queuert
import queuert.testing
from queuert import errors

NAMES = [
    "EVERYTHING",
    "AbortReason",
    "AbortSignal",
    "After",
    "ArchiveTable",
    "ArchivedChain",
    "ArchivedJob",
    "Attempt",
    "AuditRecord",
    "Backoff",
    "BaseAttempt",
    "BlockerNotFound",
    "BulkPlan",
    "BulkResult",
    "Chain",
    "ChainArchived",
    "ChainCancelled",
    "ChainEnded",
    "ChainError",
    "ChainExpired",
    "ChainFailed",
    "ChainInUse",
    "ChainNotCompleted",
    "ChainNotFound",
    "ChainNotRetryable",
    "ChainNotTriggerable",
    "Client",
    "ClientClosed",
    "ClientMisused",
    "Codec",
    "Completion",
    "Cron",
    "Debounce",
    "Dedup",
    "Diagnosis",
    "DriverMissing",
    "DuplicateJobType",
    "EntryJob",
    "Every",
    "FailedAttempt",
    "FailingTick",
    "Filter",
    "Finding",
    "Handlers",
    "Histogram",
    "History",
    "HistoryPoint",
    "InvalidArgument",
    "InvalidCursor",
    "InvalidJobId",
    "InvalidJobType",
    "InvalidSchedule",
    "Job",
    "JobError",
    "JobIdExists",
    "JobRecord",
    "JobTypeError",
    "JobTypeMismatch",
    "JobTypeValidationError",
    "JobTypes",
    "JsonLines",
    "Keep",
    "KeepPolicy",
    "Key",
    "Limit",
    "LimitKey",
    "LimitRow",
    "LimitRule",
    "Middleware",
    "NotifyUnavailable",
    "Observer",
    "OwnershipLost",
    "Page",
    "Pause",
    "PhaseError",
    "PlanNote",
    "PrepareAfterAutoSetup",
    "Pruned",
    "Queue",
    "QueuertError",
    "Rate",
    "RateLimited",
    "RateRule",
    "Reschedule",
    "Retention",
    "Schedule",
    "ScheduleNotFound",
    "Schedules",
    "SchemaMissing",
    "SchemaTooNew",
    "Status",
    "StorageBusy",
    "StorageError",
    "StorageNotADatabase",
    "StorageReadOnly",
    "StorageRejected",
    "StorageUnavailable",
    "SyncAttempt",
    "SyncClient",
    "SyncCompletion",
    "Throttle",
    "Tick",
    "Transaction",
    "TransactionClosed",
    "TransactionError",
    "TransactionMisused",
    "TransactionNested",
    "TransactionRequired",
    "TypeRetention",
    "TypeStats",
    "UnknownJobType",
    "Vacuumed",
    "WaitTimeout",
    "Why",
    "Worker",
    "WorkerHealth",
    "WorkerInfo",
    "WorkerQueue",
    "WorkerType",
    "connect",
    "connect_sync",
    "read_json_lines",
]


TESTING = [
    "AttemptResult",
    "Clock",
    "Crash",
    "HandlerFailure",
    "Running",
    "Started",
    "SyncRunning",
    "attempt",
    "attempt_sync",
    "clean",
    "completed",
    "crash_everywhere",
    "outside",
    "running",
    "started",
]


def test_the_public_names_are_these() -> None:
    assert queuert.__all__ == NAMES
    assert queuert.testing.__all__ == TESTING


def test_every_name_is_there() -> None:
    assert [name for name in NAMES if getattr(queuert, name, None) is None] == []


def test_every_error_is_public() -> None:
    defined = {
        name for name, value in vars(errors).items() if inspect.isclass(value) and issubclass(value, BaseException)
    }
    assert {name for name in defined if not name.startswith("_")} <= set(NAMES)


def test_nothing_else_looks_public() -> None:
    """Submodules aside, what a user sees in the package is what it promises."""
    seen = {name for name, value in vars(queuert).items() if not name.startswith("_") and not inspect.ismodule(value)}
    assert seen == {name for name in NAMES if not name.startswith("_")}


def test_every_error_has_one_root() -> None:
    found = [
        value for name in NAMES if inspect.isclass(value := getattr(queuert, name)) and issubclass(value, BaseException)
    ]
    assert len(found) > 30
    assert [each for each in found if not issubclass(each, queuert.QueuertError)] == [
        queuert.JobError,
        queuert.RateLimited,
        queuert.Reschedule,
    ]


@pytest.mark.parametrize("raised", [queuert.JobError("CODE"), queuert.RateLimited(1), queuert.Reschedule(after=1)])
def test_what_handlers_raise_is_not_an_error_of_the_library(raised: Exception) -> None:
    """A handler may catch the library's errors without catching what it raises itself."""
    assert not isinstance(raised, queuert.QueuertError)
