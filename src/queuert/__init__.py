"""Durable, typed job chains that commit with your own database transaction."""

from queuert.archive import ArchivedChain, ArchivedJob, ArchiveTable
from queuert.audit import AuditRecord
from queuert.bulk import BulkPlan, PlanNote
from queuert.client.client import Client, Completion
from queuert.client.sync_client import SyncClient, SyncCompletion
from queuert.dedup import Dedup
from queuert.doctor import Diagnosis, Finding
from queuert.errors import (
    BlockerNotFound,
    ChainArchived,
    ChainCancelled,
    ChainEnded,
    ChainError,
    ChainExpired,
    ChainFailed,
    ChainInUse,
    ChainNotCompleted,
    ChainNotFound,
    ChainNotRetryable,
    ChainNotTriggerable,
    ClientClosed,
    ClientMisused,
    DriverMissing,
    DuplicateJobType,
    InvalidArgument,
    InvalidCursor,
    InvalidJobId,
    InvalidJobType,
    InvalidSchedule,
    JobError,
    JobIdExists,
    JobTypeError,
    JobTypeMismatch,
    JobTypeValidationError,
    NotifyUnavailable,
    OwnershipLost,
    PhaseError,
    PrepareAfterAutoSetup,
    QueuertError,
    RateLimited,
    Reschedule,
    ScheduleNotFound,
    SchemaMissing,
    SchemaTooNew,
    StorageBusy,
    StorageError,
    StorageNotADatabase,
    StorageReadOnly,
    StorageRejected,
    StorageUnavailable,
    TransactionClosed,
    TransactionError,
    TransactionMisused,
    TransactionNested,
    TransactionRequired,
    UnknownJobType,
    WaitTimeout,
)
from queuert.failed_attempts import FailedAttempt
from queuert.history import Histogram, History, HistoryPoint
from queuert.jobs.bulk import BulkResult
from queuert.jobs.chain import Chain
from queuert.jobs.codec import Codec
from queuert.jobs.deduplication import Debounce, Throttle
from queuert.jobs.filter import Filter
from queuert.jobs.job import EntryJob, Job
from queuert.jobs.limits import Limit, LimitKey, Rate
from queuert.jobs.queue import Queue
from queuert.jobs.record import JobRecord
from queuert.jobs.registry import JobTypes
from queuert.json_lines import JsonLines, read_json_lines
from queuert.limit_records import LimitRow, LimitRule, RateRule
from queuert.listing_records import Page
from queuert.model import TypeStats
from queuert.pause_records import EVERYTHING, Pause
from queuert.ports.observer import Observer
from queuert.retention import Keep, KeepPolicy, Pruned, Retention, TypeRetention, Vacuumed
from queuert.schedules.declaring import Schedules
from queuert.schedules.schedule import Schedule
from queuert.schedules.times import After, Cron, Every, Tick
from queuert.statuses import Status
from queuert.transaction import Transaction
from queuert.why import Why
from queuert.wiring import connect, connect_sync
from queuert.worker.abort import AbortReason, AbortSignal
from queuert.worker.attempt import Attempt, BaseAttempt, SyncAttempt
from queuert.worker.backoff import Backoff
from queuert.worker.handlers import Handlers
from queuert.worker.health import WorkerHealth
from queuert.worker.middleware import Key, Middleware
from queuert.worker.worker import Worker
from queuert.worker_records import WorkerInfo, WorkerQueue, WorkerType

__all__ = [
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
