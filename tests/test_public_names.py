"""The public names are a promise: this list changes only on purpose, together with the changelog."""

from __future__ import annotations

import inspect

import pytest

import queuert
from queuert import errors

NAMES = [
    "AbortReason",
    "AbortSignal",
    "Attempt",
    "Backoff",
    "BaseAttempt",
    "BlockerNotFound",
    "Chain",
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
    "Codec",
    "Completion",
    "Dedup",
    "DriverMissing",
    "DuplicateJobType",
    "EntryJob",
    "Handlers",
    "InvalidArgument",
    "InvalidCursor",
    "InvalidJobId",
    "InvalidJobType",
    "Job",
    "JobError",
    "JobIdExists",
    "JobRecord",
    "JobTypeError",
    "JobTypeMismatch",
    "JobTypeValidationError",
    "JobTypes",
    "Key",
    "Middleware",
    "NotifyUnavailable",
    "Observer",
    "OwnershipLost",
    "Page",
    "PhaseError",
    "PrepareAfterAutoSetup",
    "Queue",
    "QueuertError",
    "Reschedule",
    "SchemaMissing",
    "SchemaTooNew",
    "Status",
    "StorageBusy",
    "StorageError",
    "StorageNotADatabase",
    "StorageReadOnly",
    "StorageUnavailable",
    "SyncAttempt",
    "SyncClient",
    "SyncCompletion",
    "Transaction",
    "TransactionClosed",
    "TransactionError",
    "TransactionMisused",
    "TransactionNested",
    "TransactionRequired",
    "TypeStats",
    "UnknownJobType",
    "WaitTimeout",
    "Worker",
    "connect",
    "connect_sync",
]


def test_the_public_names_are_these() -> None:
    assert queuert.__all__ == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_every_name_is_there(name: str) -> None:
    assert getattr(queuert, name) is not None


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
        queuert.Reschedule,
    ]


@pytest.mark.parametrize("raised", [queuert.JobError("CODE"), queuert.Reschedule(after=1)])
def test_what_handlers_raise_is_not_an_error_of_the_library(raised: Exception) -> None:
    """A handler may catch the library's errors without catching what it raises itself."""
    assert not isinstance(raised, queuert.QueuertError)
