"""Durable, typed job chains that commit with your own database transaction."""

from queuert.base.backoff import Backoff
from queuert.base.statuses import Status
from queuert.base.transaction import Transaction
from queuert.client.client import Client, Completion
from queuert.client.sync_client import SyncClient, SyncCompletion
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
from queuert.features.bulk.jobs import BulkResult
from queuert.features.bulk.plan import BulkPlan, PlanNote
from queuert.features.doctor.diagnosis import Diagnosis, Finding
from queuert.features.retention.json_lines import JsonLines, read_json_lines
from queuert.features.schedules.declared import Schedules
from queuert.features.schedules.schedule import Schedule
from queuert.features.schedules.stored import FailingTick
from queuert.features.schedules.times import After, Cron, Every, Tick
from queuert.features.why import Why
from queuert.jobs.chain import Chain
from queuert.jobs.codecs.codec import Codec
from queuert.jobs.deduplication import Debounce, Throttle
from queuert.jobs.filter import Filter
from queuert.jobs.job import EntryJob, Job
from queuert.jobs.limits import Limit, LimitKey, Rate
from queuert.jobs.queue import Queue
from queuert.jobs.record import JobRecord
from queuert.jobs.registry import JobTypes
from queuert.ports.observer import Observer
from queuert.records.archive import ArchivedChain, ArchivedJob, ArchiveTable
from queuert.records.audit import AuditRecord
from queuert.records.dedup import Dedup
from queuert.records.failed_attempts import FailedAttempt
from queuert.records.history import Histogram, History, HistoryPoint
from queuert.records.limits import LimitRow, LimitRule, RateRule
from queuert.records.listings import Page
from queuert.records.model import TypeStats
from queuert.records.pauses import EVERYTHING, Pause
from queuert.records.retention import Keep, KeepPolicy, Pruned, Retention, TypeRetention, Vacuumed
from queuert.records.workers import WorkerInfo, WorkerQueue, WorkerType
from queuert.wiring import connect, connect_sync
from queuert.worker.base.abort import AbortReason, AbortSignal
from queuert.worker.handlers.attempt import Attempt, BaseAttempt, SyncAttempt
from queuert.worker.handlers.middleware import Key, Middleware
from queuert.worker.handlers.registry import Handlers
from queuert.worker.health import WorkerHealth
from queuert.worker.worker import Worker

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
