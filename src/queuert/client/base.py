"""What the async and the sync client share: arguments are checked and programs made here, the
clients drive them.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from functools import partial, wraps
from typing import Any, Generic, Literal, TypeAlias, TypedDict, cast
from uuid import UUID

from typing_extensions import TypeVar

from queuert.base.arguments import MAX_KEY_LENGTH, MAX_NAME_LENGTH, Duration, aware, check_text, check_unicode, seconds
from queuert.base.statuses import Status
from queuert.base.transaction import Transaction
from queuert.engine.engine import Engine
from queuert.engine.operations import archived, chains, filtering, history, take_over
from queuert.engine.operations import reading as queries
from queuert.engine.operations import starting as create
from queuert.engine.operations.cascades import CancelCascade, check_cancel_cascade
from queuert.engine.sessions import Sessions, Tx
from queuert.engine.transaction import OpenTransaction
from queuert.errors import InvalidArgument, TransactionNested, TransactionRequired
from queuert.features import audit, limits, pauses, repair, workers
from queuert.features.bulk import pages as bulk
from queuert.features.bulk import planning
from queuert.features.bulk.jobs import BulkAction
from queuert.features.bulk.plan import BulkPlan
from queuert.features.doctor import examining as doctor
from queuert.features.doctor.diagnosis import Diagnosis
from queuert.features.retention import pruning
from queuert.features.schedules import changing as schedules
from queuert.features.schedules.defining import define
from queuert.features.schedules.options import ScheduleOptions, check_name
from queuert.features.schedules.schedule import Schedule
from queuert.features.schedules.times import Tick, Times
from queuert.features.why import Why
from queuert.features.why import finding as why
from queuert.jobs.chain import Chain
from queuert.jobs.deduplication import AnyDedup
from queuert.jobs.filter import Filter
from queuert.jobs.job import Job, name_of
from queuert.jobs.limits import Limit, LimitKey
from queuert.jobs.options import make_options, moment_or_delay
from queuert.jobs.queue import Queue
from queuert.jobs.record import JobRecord
from queuert.ports.program import Program
from queuert.records.archive import ArchivedChain
from queuert.records.audit import AuditRecord
from queuert.records.failed_attempts import FailedAttempt
from queuert.records.history import History
from queuert.records.limits import Change, LimitRow
from queuert.records.listings import Order, Page
from queuert.records.model import NewJob, TypeStats
from queuert.records.pauses import EVERYTHING, Everything, Pause, PauseTarget
from queuert.records.retention import Pruned, Retention
from queuert.records.workers import WorkerInfo

Conn = TypeVar("Conn", default=Any)
T = TypeVar("T")
M = TypeVar("M", bound=Callable[..., Any])

ChainOrId = Chain[Any] | str
JobOrId = JobRecord[Any] | str
TypeOrName = type[Job[Any, Any]] | str
PauseOf: TypeAlias = TypeOrName | Queue | LimitKey | Everything | PauseTarget
LimitOf: TypeAlias = TypeOrName | Limit
KeyOf: TypeAlias = str | int | UUID
OneOrMore: TypeAlias = T | Sequence[T]

Plan = tuple[Program[T], Conn | None]
"""A program, and the connection to run it on (None: one of the client's own)."""


class StartOptions(TypedDict, total=False):
    """The keywords of `start`. They go over those that the job carries from `job.set(…)`."""

    dedup: AnyDedup | str | None
    at: datetime | None
    after: Duration | None
    priority: int | None
    id: str | None
    deadline: datetime | Duration | None


class PageOptions(TypedDict, total=False):
    """The keywords of every listing: 50 items from the start in ascending order by default."""

    limit: int
    cursor: str | None
    order: Order


class IterOptions(TypedDict, total=False):
    """The keywords of `iter_jobs` and `iter_chains`."""

    where: Filter | str | None
    status: OneOrMore[Status] | None
    ids: Sequence[str] | None
    created_after: datetime | None
    created_before: datetime | None
    order: Order


class ListOptions(IterOptions, total=False):
    """The keywords of `list_jobs` and `list_chains`."""

    limit: int
    cursor: str | None


class BulkOptions(TypedDict, total=False):
    """The keywords of every bulk operation."""

    per_second: float | None
    by: str | None
    reason: str | None


class BaseClient(Generic[Conn]):
    """Made by its subclasses; the names with an underscore are the shared half of their methods."""

    def __init__(self, sessions: Sessions[Conn]) -> None:
        self._sessions = sessions
        self._entered = False

    def _enter(self) -> None:
        """The block of the client begins."""
        self._sessions.open()
        self._entered = True

    def __del__(self, warn: Callable[..., None] = warnings.warn) -> None:
        if getattr(self, "_entered", False) and not self._sessions.closed:
            warn(f"{self!r} was entered and never closed: end its `with` block, or call close()", ResourceWarning,
                 source=self)  # fmt: skip

    @property
    def sessions(self) -> Sessions[Conn]:
        """What workers, the test kit and the command run programs with. Not for applications."""
        return self._sessions

    @property
    def _engine(self) -> Engine:
        return self._sessions.engine

    @property
    def hook_failures(self) -> int:
        """How many notifications and callbacks (`tx.after_commit`, `tx.after_rollback`) failed.

        They were logged, and never undo a commit.
        """
        return self._sessions.failures

    @property
    def job_types(self) -> tuple[str, ...]:
        """The names of the job types that the client knows: those of `jobs`, and the types that
        these continue with or wait for. Each class counts once, with its current name.
        """
        return tuple(dict.fromkeys(name_of(job_type.cls) for job_type in self._engine.jobs))

    def transaction_of(self, tx: Tx[Conn]) -> Transaction[Conn]:
        """The transaction that is open on a session or connection, with SQLAlchemy and Django.

        Use it to register callbacks. Ask for it in the block that they belong to: if that block is
        rolled back, its `after_rollback` callbacks are called and the others are dropped.

            client.transaction_of(session).after_commit(send_mail)

        Args:
            tx: The session or connection. A `Transaction` is returned as it is.
        """
        return self._writing("transaction_of", tx)

    def _check_open(self) -> None:
        self._sessions.check_open()

    def _writing(self, operation: str, tx: Tx[Conn]) -> OpenTransaction[Conn]:
        return self._sessions.writing(operation, tx)

    def _reading(self, tx: Tx[Conn] | None) -> Conn | None:
        return self._sessions.reading(tx)

    # Starting

    def _start(
        self, tx: Tx[Conn], jobs: Sequence[Job[Any, Any]], options: StartOptions, operation: str
    ) -> Plan[list[Chain[Any]], Conn]:
        tx = self._writing(operation, tx)
        if not isinstance(jobs, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidArgument(f"{operation}() takes a list of jobs, got {jobs!r}")
        check_keywords(operation, options, StartOptions)
        extra = make_options(**options) if options else None
        return create.start(self._engine, tx.hooks, jobs, extra), tx.connection

    def _submitted(
        self, jobs: Sequence[Job[Any, Any]], options: StartOptions, operation: str
    ) -> tuple[list[NewJob], bool] | None:
        """The jobs, ready to be stored by one statement, and whether ids were given. None: they are
        too many.
        """
        if not _are_few(jobs):
            return None
        check_keywords(operation, options, StartOptions)
        extra = make_options(**options) if options else None
        return create.first_jobs(self._engine, jobs, extra)

    # Reading

    def _get_chain(
        self, chain: ChainOrId, chain_type: TypeOrName | None, tx: Tx[Conn] | None
    ) -> Plan[Chain[Any] | None, Conn]:
        return queries.get_chain(self._engine, chain_id(chain), self._type_name(chain_type)), self._reading(tx)

    def _get_archived(self, chain: ChainOrId, tx: Tx[Conn] | None) -> Plan[ArchivedChain | None, Conn]:
        return archived.get_archived(self._engine, chain_id(chain)), self._reading(tx)

    def _get_job(
        self, job: JobOrId, job_type: TypeOrName | None, tx: Tx[Conn] | None
    ) -> Plan[JobRecord[Any] | None, Conn]:
        return queries.get_job(self._engine, job_id(job), self._type_name(job_type)), self._reading(tx)

    def _list_chains(
        self, chain_type: OneOrMore[TypeOrName] | None, root_only: bool, options: ListOptions, tx: Tx[Conn] | None
    ) -> Plan[Page[Chain[Any]], Conn]:
        check_keywords("list_chains", options, ListOptions)
        names = self._type_names(chain_type)
        where = filtering.chain_filter(self._engine.jobs, names, _filters(options), root_only=root_only)
        return queries.list_chains(self._engine, where, _page(options)), self._reading(tx)

    def _list_jobs(
        self, job_type: OneOrMore[TypeOrName] | None, options: ListOptions, tx: Tx[Conn] | None
    ) -> Plan[Page[JobRecord[Any]], Conn]:
        check_keywords("list_jobs", options, ListOptions)
        where = filtering.job_filter(self._engine.jobs, self._type_names(job_type), _filters(options))
        return queries.list_jobs(self._engine, where, _page(options)), self._reading(tx)

    def _list_chain_jobs(
        self, chain: ChainOrId, chain_type: TypeOrName | None, options: PageOptions, tx: Tx[Conn] | None
    ) -> Plan[Page[JobRecord[Any]], Conn]:
        check_keywords("list_chain_jobs", options, PageOptions)
        name = self._type_name(chain_type)
        return queries.list_chain_jobs(self._engine, chain_id(chain), name, _page(options)), self._reading(tx)

    def _list_blocked_jobs(
        self, chain: ChainOrId, chain_type: TypeOrName | None, options: PageOptions, tx: Tx[Conn] | None
    ) -> Plan[Page[JobRecord[Any]], Conn]:
        check_keywords("list_blocked_jobs", options, PageOptions)
        name = self._type_name(chain_type)
        return queries.list_blocked_jobs(self._engine, chain_id(chain), name, _page(options)), self._reading(tx)

    def _get_blockers(
        self, job: JobOrId, job_type: TypeOrName | None, tx: Tx[Conn] | None
    ) -> Plan[list[Chain[Any]] | None, Conn]:
        return queries.get_blockers(self._engine, job_id(job), self._type_name(job_type)), self._reading(tx)

    def _attempts(self, job: JobOrId, tx: Tx[Conn] | None) -> Plan[list[FailedAttempt], Conn]:
        return self._engine.state.failed_attempts(job_id(job)), self._reading(tx)

    def _stats(
        self, limit: int | None, since: datetime | Duration | None, tx: Tx[Conn] | None
    ) -> Plan[list[TypeStats], Conn]:
        if limit is not None and (type(limit) is not int or limit < 1):
            raise InvalidArgument(f"limit must be a number of 1 or more, or None, got {limit!r}")
        return queries.stats(self._engine, limit, since), self._reading(tx)

    def _history(
        self,
        job_type: TypeOrName | None,
        since: datetime | Duration,
        step: Duration | None,
        tx: Tx[Conn] | None,
    ) -> Plan[History, Conn]:
        return history.history(self._engine, self._type_name(job_type), since, step), self._reading(tx)

    def _list_workers(self, tx: Tx[Conn] | None) -> Plan[list[WorkerInfo], Conn]:
        return workers.list_workers(self._engine), self._reading(tx)

    def _doctor(
        self, by: str | None, reason: str | None, *, full: bool, fix: bool, heard: bool | None
    ) -> Plan[Diagnosis, Conn]:
        return doctor.doctor(self._engine, audit.check_who(by, reason), full=full, fix=fix, heard=heard), None

    def _why(self, chain: ChainOrId, tx: Tx[Conn] | None) -> Plan[Why, Conn]:
        return why.why(self._engine, chain_id(chain)), self._reading(tx)

    # Changing

    def _trigger(
        self, tx: Tx[Conn], which: OneOrMore[ChainOrId], by: str | None, reason: str | None
    ) -> Plan[list[Chain[Any]], Conn]:
        tx = self._writing("trigger", tx)
        program = chains.trigger(self._engine, tx.hooks, chain_ids(which))
        return audit.audited(self._engine, program, "trigger", audit.check_who(by, reason)), tx.connection

    def _retry(
        self,
        tx: Tx[Conn],
        which: OneOrMore[ChainOrId],
        input: Job[Any, Any] | None,
        deadline: datetime | Duration | None,
        by: str | None,
        reason: str | None,
    ) -> Plan[list[Chain[Any]], Conn]:
        tx = self._writing("retry", tx)
        who = audit.check_who(by, reason)
        program = self._retrying(tx, chain_ids(which), input, deadline)
        return audit.audited(self._engine, program, "retry", who, input=input is not None), tx.connection

    def _retrying(
        self,
        tx: OpenTransaction[Conn],
        ids: list[str],
        input: Job[Any, Any] | None,
        deadline: datetime | Duration | None,
    ) -> Program[list[Chain[Any]]]:
        if input is None:
            if deadline is not None:
                raise InvalidArgument("retry() takes a deadline only with input=, for one chain")
            return chains.retry(self._engine, tx.hooks, ids)
        if len(set(ids)) != 1:
            raise InvalidArgument(f"retry() with input= takes one chain, got {len(set(ids))}")
        options = make_options(deadline=deadline)
        return repair.repair(self._engine, tx.hooks, ids[0], input, options.deadline)

    def _cancel(
        self,
        tx: Tx[Conn],
        which: OneOrMore[ChainOrId],
        cascade: bool | CancelCascade,
        by: str | None,
        reason: str | None,
    ) -> Plan[list[Chain[Any]], Conn]:
        tx = self._writing("cancel", tx)
        check_cancel_cascade(cascade)
        program = chains.cancel(self._engine, tx.hooks, chain_ids(which), cascade=cascade)
        who = audit.check_who(by, reason)
        return audit.audited(self._engine, program, "cancel", who, cascade=cascade), tx.connection

    def _delete(
        self,
        tx: Tx[Conn],
        which: OneOrMore[ChainOrId],
        cascade: bool | Literal["blockers"],
        by: str | None,
        reason: str | None,
    ) -> Plan[list[Chain[Any]], Conn]:
        tx = self._writing("delete", tx)
        if cascade not in (True, False, "blockers"):
            raise InvalidArgument(f'delete(…, cascade=…) takes "blockers" (the same as True) or False, got {cascade!r}')
        program = chains.delete(self._engine, tx.hooks, chain_ids(which), cascade=bool(cascade))
        who = audit.check_who(by, reason)
        return audit.audited(self._engine, program, "delete", who, cascade=cascade), tx.connection

    # Changing many

    def _bulk(
        self, tx: Tx[Conn], action: BulkAction, where: Filter | str, options: BulkOptions, **fields: Any
    ) -> Plan[Chain[Any], Conn]:
        tx = self._writing(f"bulk_{action}", tx)
        check_keywords(f"bulk_{action}", options, BulkOptions)
        rate = options.get("per_second")
        # A lower rate is a mistake: the next page would be hours away.
        if rate is not None and (isinstance(rate, bool) or not seconds(rate, "per_second") >= bulk.SLOWEST):
            raise InvalidArgument(f"per_second must be a number of {bulk.SLOWEST:g} or more, got {rate!r}")
        who = audit.check_who(options.get("by"), options.get("reason"), reason_alone=True)
        return bulk.start(self._engine, tx.hooks, action, where, who, per_second=rate, **fields), tx.connection

    def _bulk_plan(
        self, action: BulkAction, where: Filter | str, cascade: bool, tx: Tx[Conn] | None
    ) -> Plan[BulkPlan, Conn]:
        return planning.plan(self._engine, action, where, cascade=cascade), self._reading(tx)

    def _list_audit(
        self, chain: ChainOrId | None, limit: int, cursor: str | None, tx: Tx[Conn] | None
    ) -> Plan[Page[AuditRecord], Conn]:
        about = None if chain is None else chain_id(chain)
        return audit.list_audit(self._engine, about, queries.PageQuery(limit, cursor, "desc")), self._reading(tx)

    def _take(self, tx: Tx[Conn], chain: ChainOrId, job_type: TypeOrName | None) -> Plan[take_over.TakenOver, Conn]:
        tx = self._writing("take_over", tx)
        return take_over.take_over(self._engine, tx.hooks, chain_id(chain), self._type_name(job_type)), tx.connection

    def _prune(self, full: bool, by: str | None, reason: str | None) -> Plan[Pruned, Conn]:
        return pruning.prune(self._engine, audit.check_who(by, reason), full=full), None

    def _retention(self, tx: Tx[Conn] | None) -> Plan[Retention, Conn]:
        return self._engine.state.retention(), self._reading(tx)

    def _check_waits(self, chain: ChainOrId, chain_type: str | None) -> None:
        """A chain that is deleted when it is completed cannot be waited for."""
        name = chain.chain_type if isinstance(chain, Chain) else chain_type
        if name is not None and self._engine.jobs.discards(name):
            raise InvalidArgument(
                f"chains of {name!r} are deleted when they are completed, because of Keep(completed=0), so they "
                "cannot be waited for: keep them for longer"
            )

    # Steering

    def _pause(
        self,
        tx: Tx[Conn],
        target: PauseOf,
        until: datetime | Duration | None,
        reason: str | None,
        by: str | None,
        cancel_running: bool,
    ) -> Plan[Pause, Conn]:
        tx = self._writing("pause", tx)
        by, reason = audit.check_who(by, reason, reason_alone=True)
        pause = partial(
            pauses.pause,
            self._engine,
            tx.hooks,
            until=None if until is None else moment_or_delay(until, "until"),
            reason=reason,
            by=by,
            cancel_running=cancel_running,
        )
        program = pauses.for_each(self._pause_targets(target), pause)
        who = (by, reason)
        return audit.audited_pause(self._engine, program, "pause", who, cancel_running=cancel_running), tx.connection

    def _resume(self, tx: Tx[Conn], target: PauseOf, by: str | None, reason: str | None) -> Plan[Pause | None, Conn]:
        tx = self._writing("resume", tx)
        program = pauses.for_each(self._pause_targets(target), partial(pauses.resume, self._engine, tx.hooks))
        return audit.audited_pause(self._engine, program, "resume", audit.check_who(by, reason)), tx.connection

    def _list_pauses(self, tx: Tx[Conn] | None) -> Plan[list[Pause], Conn]:
        return self._engine.state.list_pauses(), self._reading(tx)

    def _pause_targets(self, target: PauseOf) -> list[PauseTarget]:
        one = self._pause_target(target)
        if one.scope != "type" or isinstance(target, PauseTarget):
            return [one]
        return [PauseTarget("type", name) for name in self._engine.jobs.names_of(one.name)]

    def _pause_target(self, target: PauseOf) -> PauseTarget:
        if target is EVERYTHING:
            return PauseTarget("everything")
        if isinstance(target, PauseTarget):
            if target.name:
                longest = MAX_NAME_LENGTH + (1 + MAX_KEY_LENGTH if target.scope == "key" else 0)
                check_text(target.name, "the name of what is paused", longest)
            return target
        if isinstance(target, Queue):
            return PauseTarget("queue", target.name)
        if isinstance(target, LimitKey):
            return PauseTarget("key", limits.lane_named(target.limit, target.key))
        name = self._type_name(target)
        if not name:
            raise InvalidArgument(
                f"expected a job class, the name of a job type, a Queue, a LimitKey or EVERYTHING, got {target!r}"
            )
        return PauseTarget("type", name)

    # Limits

    def _set_limit(
        self,
        tx: Tx[Conn],
        limit: LimitOf,
        key: KeyOf | None,
        change: Change,
        by: str | None,
        reason: str | None,
    ) -> Plan[LimitRow, Conn]:
        tx = self._writing("set_limit", tx)
        who = audit.check_who(by, reason)
        program = limits.set_limit(self._engine, tx.hooks, limits.limit_name(limit), limits.limit_key(key), change, who)
        return program, tx.connection

    def _clear_limit(
        self, tx: Tx[Conn], limit: LimitOf, key: KeyOf | None, by: str | None, reason: str | None
    ) -> Plan[bool, Conn]:
        tx = self._writing("clear_limit", tx)
        name, text, who = limits.limit_name(limit), limits.limit_key(key), audit.check_who(by, reason)
        return limits.clear_limit(self._engine, tx.hooks, name, text, who), tx.connection

    def _list_limits(self, limit: int, cursor: str | None, tx: Tx[Conn] | None) -> Plan[Page[LimitRow], Conn]:
        return limits.list_limits(self._engine, queries.PageQuery(limit, cursor, "asc")), self._reading(tx)

    # Schedules

    def _put_schedule(
        self, tx: Tx[Conn], name: str, times: Times, job: Job[Any, Any], options: ScheduleOptions
    ) -> Plan[Schedule, Conn]:
        tx = self._writing("put_schedule", tx)
        definition = define(self._engine, times, job, options)
        return schedules.put(self._engine, tx.hooks, check_name(name), definition, times), tx.connection

    def _get_schedule(self, name: str, tx: Tx[Conn] | None) -> Plan[Schedule | None, Conn]:
        return schedules.get(self._engine, check_name(name)), self._reading(tx)

    def _schedule_of(self, chain: ChainOrId, tx: Tx[Conn] | None) -> Plan[Schedule | None, Conn]:
        return schedules.of_chain(self._engine, chain_id(chain)), self._reading(tx)

    def _list_schedules(self, limit: int, cursor: str | None, tx: Tx[Conn] | None) -> Plan[Page[Schedule], Conn]:
        page = queries.PageQuery(limit, cursor, "asc")
        return schedules.list_page(self._engine, page), self._reading(tx)

    def _pause_schedule(
        self, tx: Tx[Conn], name: str, until: datetime | Duration | None, by: str | None, reason: str | None
    ) -> Plan[Schedule, Conn]:
        tx, who = self._writing("pause_schedule", tx), audit.check_who(by, reason)
        end = None if until is None else moment_or_delay(until, "until")
        program = schedules.pause(self._engine, tx.hooks, check_name(name), end)
        return audit.audited_schedule(self._engine, program, "pause", name, who), tx.connection

    def _resume_schedule(self, tx: Tx[Conn], name: str, by: str | None, reason: str | None) -> Plan[Schedule, Conn]:
        tx, who = self._writing("resume_schedule", tx), audit.check_who(by, reason)
        program = schedules.resume(self._engine, tx.hooks, check_name(name))
        return audit.audited_schedule(self._engine, program, "resume", name, who), tx.connection

    def _trigger_schedule(
        self, tx: Tx[Conn], name: str, by: str | None, reason: str | None
    ) -> Plan[Chain[Any] | None, Conn]:
        tx, who = self._writing("trigger_schedule", tx), audit.check_who(by, reason)
        program = schedules.trigger(self._engine, tx.hooks, check_name(name))
        return audit.audited_schedule(self._engine, program, "trigger", name, who), tx.connection

    def _backfill(
        self, tx: Tx[Conn], name: str, start: datetime, end: datetime, by: str | None, reason: str | None
    ) -> Plan[int, Conn]:
        tx, who = self._writing("backfill", tx), audit.check_who(by, reason)
        first, last = aware(start, "start"), aware(end, "end")
        program = schedules.backfill(self._engine, tx.hooks, check_name(name), first, last)
        ticks = {"from": first.isoformat(), "to": last.isoformat()}
        return audit.audited_schedule(self._engine, program, "backfill", name, who, **ticks), tx.connection

    def _delete_schedule(
        self, tx: Tx[Conn], name: str, by: str | None, reason: str | None
    ) -> Plan[Schedule | None, Conn]:
        tx, who = self._writing("delete_schedule", tx), audit.check_who(by, reason)
        program = schedules.delete(self._engine, check_name(name))
        return audit.audited_schedule(self._engine, program, "delete", name, who), tx.connection

    def _preview(self, name: str, count: int, tx: Tx[Conn] | None) -> Plan[list[Tick], Conn]:
        return schedules.preview(self._engine, check_name(name), count), self._reading(tx)

    def _type_name(self, job_type: TypeOrName | None) -> str | None:
        if job_type is None:
            return None
        if isinstance(job_type, str):
            return check_unicode(job_type, "the name of a job type")
        return self._engine.jobs.require(job_type).name

    def _type_names(self, types: OneOrMore[TypeOrName] | None) -> tuple[str, ...] | None:
        if types is None:
            return None
        one = isinstance(types, str | type) or not isinstance(types, Iterable)  # pyright: ignore[reportUnnecessaryIsInstance]
        names = [self._type_name(each) for each in cast("Sequence[TypeOrName]", [types] if one else types)]
        return tuple(dict.fromkeys(each for name in names if name is not None for each in self._names_of(name)))

    def _names_of(self, name: str) -> tuple[str, ...]:
        return self._engine.jobs.names_of(name)


def _are_few(jobs: Any) -> bool:
    return isinstance(jobs, Sequence) and len(jobs) <= create.JOBS_AT_ONCE  # pyright: ignore[reportUnknownArgumentType]


class in_own_transaction(AbstractContextManager[None, None]):  # noqa: N801  # a block, as with @context
    """Wraps the transaction of a call that opens one by itself. Inside an open transaction, the
    error names the call to use instead.
    """

    __slots__ = ("_operation",)

    def __init__(self, operation: str) -> None:
        self._operation = operation

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if isinstance(error, TransactionNested):
            raise TransactionNested(
                f"{self._operation}() opens a transaction of its own, but this task or thread already has one open: "
                f"call client.{self._operation.replace('submit', 'start')}(tx, …) with the open one"
            ) from error


def transaction_first(method: M) -> M:
    """For a method with two parameters, the transaction and what to do in it.

    Type checkers report a call without the transaction. At run time, Python would report that the
    second one is missing.
    """

    @wraps(method)
    def checked(*args: Any, **options: Any) -> Any:
        _check_transaction(method.__name__, args, options)
        return method(*args, **options)

    return cast(M, checked)


def _check_transaction(operation: str, args: Sequence[object], options: Mapping[str, object]) -> None:
    if len(args) == 2 and not options.keys() & {"tx", "job", "jobs"}:  # the client, and one more
        raise TransactionRequired(operation, args[1])
    if len(args) == 1 and "tx" not in options:
        raise TransactionRequired(operation)


def chain_id(chain: ChainOrId) -> str:
    if isinstance(chain, Chain):
        return chain.id
    if isinstance(chain, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        return check_unicode(chain, "a chain id")
    raise InvalidArgument(f"expected a Chain or a chain id, got {type(chain).__name__}")


def chain_ids(which: OneOrMore[ChainOrId]) -> list[str]:
    if isinstance(which, Chain | str):
        return [chain_id(which)]
    if not isinstance(which, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidArgument(f"expected a Chain, a chain id or a list of them, got {type(which).__name__}")
    return [chain_id(chain) for chain in which]


def job_id(job: JobOrId) -> str:
    if isinstance(job, JobRecord):
        return job.id
    if isinstance(job, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        return check_unicode(job, "a job id")
    raise InvalidArgument(f"expected a JobRecord or a job id, got {type(job).__name__}")


def check_keywords(operation: str, given: Mapping[str, Any], known: Any) -> None:
    """A keyword that is not known must not pass in silence: a misspelt filter would list
    everything.
    """
    if not given:
        return
    unknown = given.keys() - (known.__required_keys__ | known.__optional_keys__)
    if unknown:
        raise InvalidArgument(f"{operation}() has no keyword {', '.join(sorted(unknown))}")


def _page(options: PageOptions) -> queries.PageQuery:
    return queries.PageQuery(options.get("limit", 50), options.get("cursor"), options.get("order", "asc"))


def iter_options(operation: str, filters: IterOptions) -> IterOptions:
    """The keywords of an iteration, checked.

    Text is parsed once, so that all pages mean the same time by `since:2h`.
    """
    check_keywords(operation, filters, IterOptions)
    return {**filters, "where": filtering.filter_of(filters.get("where"))}


def _filters(options: ListOptions) -> filtering.Keywords:
    return {
        "where": options.get("where"),
        "status": options.get("status"),
        "ids": options.get("ids"),
        "created_after": options.get("created_after"),
        "created_before": options.get("created_before"),
    }
