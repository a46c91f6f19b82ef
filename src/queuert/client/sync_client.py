"""The sync client: the same methods without `await`, for Django, Flask, scripts and threads.

Written by tools/make_sync.py from client.py: change that file instead, and run `make format`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from datetime import datetime, timedelta
from typing import Any, Generic, Literal, Self, overload

from typing_extensions import TypeVar, Unpack

from queuert.base.arguments import Duration
from queuert.base.blocking import Blocking, run_blocking
from queuert.base.contexts import OnlySync, context
from queuert.base.ids import GenerateId, ValidateId, generate_uuid7, validate_uuid
from queuert.base.statuses import Status
from queuert.base.transaction import Transaction
from queuert.client.base import (
    BaseClient,
    BulkOptions,
    ChainOrId,
    Conn,
    IterOptions,
    JobOrId,
    KeyOf,
    LimitOf,
    ListOptions,
    OneOrMore,
    PageOptions,
    PauseOf,
    Plan,
    StartOptions,
    TypeOrName,
    chain_id,
    in_own_transaction,
    iter_options,
    transaction_first,
)
from queuert.client.submitting import SyncSubmissions
from queuert.client.waiting import SyncChainWaiting
from queuert.engine.announcing import Announce
from queuert.engine.engine import Engine
from queuert.engine.events.observers import all_of
from queuert.engine.events.watched import watched
from queuert.engine.operations import reading as queries
from queuert.engine.operations.take_over import TakenOver
from queuert.engine.publishing import BoundedNotify
from queuert.engine.sessions import Sessions, SyncSessions, Tx
from queuert.errors import WaitTimeout
from queuert.features.bulk.jobs import BulkAction, BulkResult
from queuert.features.bulk.plan import BulkPlan
from queuert.features.doctor.diagnosis import Diagnosis
from queuert.features.doctor.hearing import hears_itself
from queuert.features.limits import UNSET, Unset, change_of
from queuert.features.retention.archiving import archive_all
from queuert.features.schedules.options import ScheduleOptions
from queuert.features.schedules.schedule import Schedule
from queuert.features.schedules.times import Tick, Times
from queuert.features.why import Why
from queuert.features.why.waiting import explain_timeout_sync
from queuert.jobs.chain import Chain
from queuert.jobs.codecs.codec import Codec
from queuert.jobs.filter import Filter
from queuert.jobs.job import EntryJob, Job
from queuert.jobs.limits import Rate
from queuert.jobs.options import check_priority
from queuert.jobs.record import JobRecord
from queuert.jobs.registry import JobsItem, Registry
from queuert.ports.notify import NotifyAdapter
from queuert.ports.observer import Observer
from queuert.ports.state import SyncStateAdapter
from queuert.ports.sync_notify import SyncNotify
from queuert.records.archive import ArchivedChain
from queuert.records.audit import AuditRecord
from queuert.records.failed_attempts import FailedAttempt
from queuert.records.history import History
from queuert.records.limits import LimitRow
from queuert.records.listings import Page
from queuert.records.model import TypeStats
from queuert.records.pauses import Pause
from queuert.records.retention import Keep, Pruned, Retention, Vacuumed
from queuert.records.workers import WorkerInfo

J = TypeVar("J", bound=Job[Any, Any])
J_co = TypeVar("J_co", bound=Job[Any, Any], covariant=True)
E = TypeVar("E", bound=EntryJob[Any, Any])
R = TypeVar("R")
N = TypeVar("N")
T = TypeVar("T")


class SyncClient(OnlySync, BaseClient[Conn]):
    """Starts, reads, changes and awaits job chains.

    Made by `queuert.connect_sync`; use it in a `with` block.

    Methods that change something take a transaction first: the change commits with everything else
    in it, or not at all. Methods that read take one as `tx=`. With Django and SQLAlchemy, you may
    pass the connection or session itself as the transaction.

    You need this constructor only with adapters of your own.

    Args:
        state: The storage adapter. The client closes it.
        notify: The notification adapter. The client closes it.
        jobs: Job classes, `JobTypes` or modules that define job classes.
        codecs: Codecs for types that msgspec does not know (default: none).
        generate_id: Makes job ids (default: UUIDv7). Ids should increase with time, because
            listings are sorted by id.
        validate_id: Returns False or raises `InvalidJobId` for an id that it does not accept
            (default: any UUID). Generated ids are checked, too.
        poll_interval: How often `wait` reads the chain if no notification arrives, in seconds
            (default: 1).
        migrate: Create or update the tables when the `with` block begins (default: True). If the
            database is unavailable then, this is done before its first use.
        observers: Objects that receive events: see `Observer` (default: none).
        keep: How long ended chains are kept if their class does not declare it: see `Keep`.
        announce: "background" (the default): a commit does not wait until workers are notified.
            "wait": it waits.
        statistics: Count what happens to jobs, for `history` (default: True). Set it to the same
            everywhere.
    """

    def __init__(
        self,
        state: SyncStateAdapter[Conn],
        notify: NotifyAdapter | SyncNotify,
        jobs: Registry | Iterable[JobsItem],
        *,
        codecs: Sequence[Codec] = (),
        generate_id: GenerateId = generate_uuid7,
        validate_id: ValidateId = validate_uuid,
        poll_interval: float = 1.0,
        migrate: bool = True,
        observers: Sequence[Observer] = (),
        keep: Keep | None = None,
        announce: Announce = "background",
        statistics: bool = True,
    ) -> None:
        if not statistics:
            state.operations.statistics = False
        told = all_of(observers)
        channel = notify if isinstance(notify, SyncNotify) else SyncNotify(BoundedNotify(notify))
        if told is not None:
            state, channel = watched(state, channel, told)
        registry = jobs if isinstance(jobs, Registry) else Registry(jobs, codecs=codecs, keep=keep)
        engine = Engine(registry, state.operations, channel, generate_id, validate_id, told)
        sessions = SyncSessions(
            state.provider, engine, storage=state, channel=channel, migrate=migrate, announce=announce
        )
        super().__init__(sessions)
        self._submissions = SyncSubmissions(sessions)
        self._waiting = SyncChainWaiting(channel, self._read_chain, self._read_failed_blockers, poll_interval)

    def __enter__(self) -> Self:
        self._enter()
        try:
            run_blocking(self._sessions.enter_schema())
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Close everything that the client has opened.

        The `with` block does this. A second call does nothing.
        """
        if self._sessions.closed:
            return
        self._sessions.check_owner()
        # Each runs even if the one before fails or is cancelled.
        with ExitStack() as closing:
            closing.callback(self._sessions.storage.close)
            closing.callback(self._sessions.channel.close)
            closing.callback(self._waiting.close)
            run_blocking(self._sessions.close(self._submissions.finish))

    def migrate(self) -> list[int]:
        """Create or update the tables. Returns the schema versions that were applied."""
        return run_blocking(self._sessions.migrate())

    def vacuum(self) -> Vacuumed:
        """Return free space to the file system, as far as possible while the database is in use.

        Returns how much that was.
        """
        return self._run((self._engine.state.vacuum(), None))

    def prune(self, *, full: bool = False, by: str | None = None, reason: str | None = None) -> Pruned:
        """Delete now what has been kept long enough (see `Keep`), in small transactions of its own.

        Workers do this by themselves, by the policies that they have stored for their job types.
        Chains of other types are not deleted. Those of a type that is archived are archived first,
        if this client has the function for that (see `Keep`). If not, they stay, and
        `Pruned.waiting` counts them. An error of such a function is raised at the end.

        Args:
            full: Look at all chains that are kept (default: False). Without this, it looks only
                where something can be due, so it may miss chains whose ids do not increase with
                time.
            by: Who does it: 1 to 200 characters. With it, the change is recorded, together with the
                first of the transactions: see `list_audit` (default: it is not recorded).
            reason: Why, for the record: 1 to 1,000 characters (default: none).
        """
        pruned = self._run(self._prune(full, by, reason))
        return run_blocking(archive_all(self._sessions, pruned, blocking=True))

    def retention(self, *, tx: Tx[Conn] | None = None) -> Retention:
        """How long ended chains are kept, by the policies that are stored, and how far the deletion
        has come.

        Args:
            tx: Read in this transaction, with what it has not committed yet.
        """
        return self._run(self._retention(tx))

    # Transactions

    def transaction(self) -> AbstractContextManager[Transaction[Conn], None]:
        """Open a transaction.

        It commits at the end of the block, and an error in the block rolls it back.

            with client.transaction() as tx:
                client.start(tx, Greet(who="you"))

        A task or thread can have one open at a time; a second one raises `TransactionNested`.
        """
        return Blocking(self._sessions.transaction())

    def after_commit(self, connection: Conn) -> AbstractContextManager[Transaction[Conn], None]:
        """Use a transaction that you commit yourself. Put this block around the block that commits.

            with client.after_commit(connection) as tx, connection.transaction():
                client.start(tx, Greet(who="you"))

        Entering does no I/O. When the block ends without an error, workers are notified. If the
        connection is still inside a transaction then, that is a `TransactionMisused` error.

        Args:
            connection: A connection of the driver that the client uses.
        """
        return Blocking(self._sessions.after_commit(connection))

    def savepoint(self, tx: Tx[Conn]) -> AbstractContextManager[None, None]:
        """A part of a transaction: an error in the block rolls back this block only.

        Args:
            tx: The open transaction.
        """
        return Blocking(self._sessions.savepoint(tx))

    # Starting

    @transaction_first
    def start(self, tx: Tx[Conn], job: E, **options: Unpack[StartOptions]) -> Chain[E]:
        """Start a chain with its first job. The options replace those of `job.set(…)`.

        Args:
            tx: The open transaction that starts the chain.
            job: The first job.
            dedup: A deduplication key or a `Dedup`: return the chain that has this key and start no
                new one. A `Debounce` or a `Throttle` may change that chain.
            at: When the job may run, as a datetime with a time zone (default: now).
            after: How long to wait before the job may run, as a timedelta or in seconds. Give this
                or `at`.
            priority: The lowest number runs first (default: 100).
            id: The id of the job and of the chain (default: a new UUIDv7).
            deadline: The job expires if its handler has not begun by then: a datetime, or a
                timedelta or seconds from now.
        """
        (chain,) = self._run(self._start(tx, [job], options, "start"))
        return chain

    @transaction_first
    def start_many(self, tx: Tx[Conn], jobs: Sequence[E]) -> list[Chain[E]]:
        """Start a chain for each job, of any types, in one round trip. All of them start, or none.

        More than 2,000 jobs, or 8 MB of inputs, are encoded and stored in parts, inside a
        savepoint.

        Args:
            tx: The open transaction that starts the chains.
            jobs: The first job of each chain. `job.set(…)` gives a job its options.
        """
        return self._run(self._start(tx, jobs, {}, "start_many"))

    def submit(self, job: E, **options: Unpack[StartOptions]) -> Chain[E]:
        """Start a chain in a transaction of its own, which is committed when this returns.

        Calls of many tasks or threads at once are stored together, each with its own result.

        Use `start` if the chain must commit with other changes. If this task has a transaction
        open, that is a `TransactionNested` error. The options replace those of `job.set(…)`.

        Args:
            job: The first job.
            dedup: A deduplication key or a `Dedup`: return the chain that has this key and start no
                new one. A `Debounce` or a `Throttle` may change that chain.
            at: When the job may run, as a datetime with a time zone (default: now).
            after: How long to wait before the job may run, as a timedelta or in seconds. Give this
                or `at`.
            priority: The lowest number runs first (default: 100).
            id: The id of the job and of the chain (default: a new UUIDv7).
            deadline: The job expires if its handler has not begun by then: a datetime, or a
                timedelta or seconds from now.
        """
        (chain,) = self._submit([job], options, "submit")
        return chain

    def submit_many(self, jobs: Sequence[E]) -> list[Chain[E]]:
        """Start a chain for each job, of any types, in a transaction of their own.

        All of them start, or none.

        Args:
            jobs: The first job of each chain. `job.set(…)` gives a job its options.
        """
        return self._submit(jobs, {}, "submit_many")

    def _submit(self, jobs: Sequence[E], options: StartOptions, operation: str) -> list[Chain[E]]:
        with in_own_transaction(operation):
            self._check_open()
            submitted = self._submitted(jobs, options, operation)
            if submitted is not None:
                new_jobs, given_ids = submitted
                return run_blocking(self._submissions.submit(new_jobs, given_ids=given_ids))
            with self.transaction() as tx:
                return self._run(self._start(tx, jobs, options, operation))

    # Reading

    @overload
    def get_chain(self, chain: ChainOrId, chain_type: type[J], *, tx: Tx[Conn] | None = None) -> Chain[J] | None: ...
    @overload
    def get_chain(
        self, chain: Chain[J], chain_type: str | None = None, *, tx: Tx[Conn] | None = None
    ) -> Chain[J] | None: ...
    @overload
    def get_chain(
        self, chain: str, chain_type: str | None = None, *, tx: Tx[Conn] | None = None
    ) -> Chain[Any] | None: ...
    def get_chain(
        self, chain: ChainOrId, chain_type: TypeOrName | None = None, *, tx: Tx[Conn] | None = None
    ) -> Chain[Any] | None:
        """A chain as it is now, or None if it does not exist. Raises `ChainArchived` if it was
        archived: see `get_archived`.

        Args:
            chain: A `Chain` or a chain id.
            chain_type: The type that the chain started with, as a class or its name. A class types
                the result. Any other type raises `JobTypeMismatch`.
            tx: Read in this transaction, and see its uncommitted changes (default: on a connection
                of the client's own).
        """
        return self._run(self._get_chain(chain, chain_type, tx))

    def get_archived(self, chain: ChainOrId, *, tx: Tx[Conn] | None = None) -> ArchivedChain | None:
        """A chain that is in the table of archived chains (see `ArchiveTable`). None if it is not.

        Raises `ChainArchived` if it was archived somewhere else.

        Args:
            chain: A chain or its id.
            tx: Read in this transaction, with what it has not committed yet.
        """
        return self._run(self._get_archived(chain, tx))

    @overload
    def get_job(self, job: JobOrId, job_type: type[J], *, tx: Tx[Conn] | None = None) -> JobRecord[J] | None: ...
    @overload
    def get_job(
        self, job: JobRecord[J], job_type: str | None = None, *, tx: Tx[Conn] | None = None
    ) -> JobRecord[J] | None: ...
    @overload
    def get_job(
        self, job: str, job_type: str | None = None, *, tx: Tx[Conn] | None = None
    ) -> JobRecord[Any] | None: ...
    def get_job(
        self, job: JobOrId, job_type: TypeOrName | None = None, *, tx: Tx[Conn] | None = None
    ) -> JobRecord[Any] | None:
        """A stored job as it is now, or None if it does not exist.

        Args:
            job: A `JobRecord` or a job id.
            job_type: The type of the job, as a class or its name. A class types the result. Any
                other type raises `JobTypeMismatch`.
            tx: Read in this transaction, and see its uncommitted changes (default: on a connection
                of the client's own).
        """
        return self._run(self._get_job(job, job_type, tx))

    def get_blockers(
        self, job: JobOrId, job_type: TypeOrName | None = None, *, tx: Tx[Conn] | None = None
    ) -> list[Chain[Any]] | None:
        """The chains that a job waits or waited for, in the order of its fields.

        None if the job does not exist.

        Args:
            job: A `JobRecord` or a job id.
            job_type: The type of the job, as a class or its name. Any other type raises
                `JobTypeMismatch` (default: any type).
            tx: Read in this transaction, and see its uncommitted changes (default: on a connection
                of the client's own).
        """
        return self._run(self._get_blockers(job, job_type, tx))

    @overload
    def list_chains(
        self,
        chain_type: type[J],
        *,
        root_only: bool = False,
        tx: Tx[Conn] | None = None,
        **options: Unpack[ListOptions],
    ) -> Page[Chain[J]]: ...
    @overload
    def list_chains(
        self,
        chain_type: str | Sequence[TypeOrName] | None = None,
        *,
        root_only: bool = False,
        tx: Tx[Conn] | None = None,
        **options: Unpack[ListOptions],
    ) -> Page[Chain[Any]]: ...
    def list_chains(
        self,
        chain_type: OneOrMore[TypeOrName] | None = None,
        *,
        root_only: bool = False,
        tx: Tx[Conn] | None = None,
        **options: Unpack[ListOptions],
    ) -> Page[Chain[Any]]:
        """One page of chains, in the order of their creation. `iter_chains` goes through all pages.

        With filters that are about the current job, like `status`, chains are in the order in which
        their current jobs were created. All filters must match.

        Args:
            chain_type: Only chains that started with this type, a class or its name, or with one of
                several (default: all types).
            root_only: Only chains that no job has as a blocker (default: False).
            tx: Read in this transaction, and see its uncommitted changes (default: on a connection
                of the client's own).
            where: Only chains that match this `Filter`, or the text of one.
            status: Only chains whose current job has this status, or one of several.
            ids: Only chains with these ids.
            created_after: Only chains created after this datetime.
            created_before: Only chains created before this datetime.
            order: "asc" (oldest first, the default) or "desc".
            limit: The size of the page, 1 to 1,000 (default: 50).
            cursor: The `next_cursor` of the page before (default: start at the beginning).
        """
        return self._run(self._list_chains(chain_type, root_only, options, tx))

    @overload
    def iter_chains(
        self,
        chain_type: type[J],
        *,
        root_only: bool = False,
        page_size: int = 100,
        tx: Tx[Conn] | None = None,
        **filters: Unpack[IterOptions],
    ) -> Iterator[Chain[J]]: ...
    @overload
    def iter_chains(
        self,
        chain_type: str | Sequence[TypeOrName] | None = None,
        *,
        root_only: bool = False,
        page_size: int = 100,
        tx: Tx[Conn] | None = None,
        **filters: Unpack[IterOptions],
    ) -> Iterator[Chain[Any]]: ...
    def iter_chains(
        self,
        chain_type: OneOrMore[TypeOrName] | None = None,
        *,
        root_only: bool = False,
        page_size: int = 100,
        tx: Tx[Conn] | None = None,
        **filters: Unpack[IterOptions],
    ) -> Iterator[Chain[Any]]:
        """All chains that `list_chains` lists: `for chain in client.iter_chains():`.

        Each page is read when it is needed, so chains may change in between. With `status`, a chain
        that moves on to another job meanwhile may come twice. You may change or delete the chains
        that you have received.

        Args:
            chain_type: Only chains that started with this type, a class or its name, or with one of
                several (default: all types).
            root_only: Only chains that no job has as a blocker (default: False).
            page_size: How many to read at a time, 1 to 1,000 (default: 100).
            tx: Read in this transaction, and see its uncommitted changes (default: on a connection
                of the client's own).
            where: Only chains that match this `Filter`, or the text of one.
            status: Only chains whose current job has this status, or one of several.
            ids: Only chains with these ids.
            created_after: Only chains created after this datetime.
            created_before: Only chains created before this datetime.
            order: "asc" (oldest first, the default) or "desc".
        """
        once = iter_options("iter_chains", filters)
        return self._each(lambda options: self._list_chains(chain_type, root_only, options, tx), once, page_size)

    @overload
    def list_jobs(
        self, job_type: type[J], *, tx: Tx[Conn] | None = None, **options: Unpack[ListOptions]
    ) -> Page[JobRecord[J]]: ...
    @overload
    def list_jobs(
        self,
        job_type: str | Sequence[TypeOrName] | None = None,
        *,
        tx: Tx[Conn] | None = None,
        **options: Unpack[ListOptions],
    ) -> Page[JobRecord[Any]]: ...
    def list_jobs(
        self,
        job_type: OneOrMore[TypeOrName] | None = None,
        *,
        tx: Tx[Conn] | None = None,
        **options: Unpack[ListOptions],
    ) -> Page[JobRecord[Any]]:
        """One page of jobs, in the order of their creation. `iter_jobs` goes through all pages.

        With a filter by chain or key, the jobs come chain by chain. All filters must match.

        Args:
            job_type: Only jobs of this type, a class or its name, or of one of several (default:
                all types).
            tx: Read in this transaction, and see its uncommitted changes (default: on a connection
                of the client's own).
            where: Only jobs that match this `Filter`, or the text of one.
            status: Only jobs with this status, or one of several.
            ids: Only jobs with these ids.
            created_after: Only jobs created after this datetime.
            created_before: Only jobs created before this datetime.
            order: "asc" (oldest first, the default) or "desc".
            limit: The size of the page, 1 to 1,000 (default: 50).
            cursor: The `next_cursor` of the page before (default: start at the beginning).
        """
        return self._run(self._list_jobs(job_type, options, tx))

    @overload
    def iter_jobs(
        self,
        job_type: type[J],
        *,
        page_size: int = 100,
        tx: Tx[Conn] | None = None,
        **filters: Unpack[IterOptions],
    ) -> Iterator[JobRecord[J]]: ...
    @overload
    def iter_jobs(
        self,
        job_type: str | Sequence[TypeOrName] | None = None,
        *,
        page_size: int = 100,
        tx: Tx[Conn] | None = None,
        **filters: Unpack[IterOptions],
    ) -> Iterator[JobRecord[Any]]: ...
    def iter_jobs(
        self,
        job_type: OneOrMore[TypeOrName] | None = None,
        *,
        page_size: int = 100,
        tx: Tx[Conn] | None = None,
        **filters: Unpack[IterOptions],
    ) -> Iterator[JobRecord[Any]]:
        """All jobs that `list_jobs` lists: `for job in client.iter_jobs():`.

        Each page is read when it is needed, so jobs may change in between.

        Args:
            job_type: Only jobs of this type, a class or its name, or of one of several (default:
                all types).
            page_size: How many to read at a time, 1 to 1,000 (default: 100).
            tx: Read in this transaction, and see its uncommitted changes (default: on a connection
                of the client's own).
            where: Only jobs that match this `Filter`, or the text of one.
            status: Only jobs with this status, or one of several.
            ids: Only jobs with these ids.
            created_after: Only jobs created after this datetime.
            created_before: Only jobs created before this datetime.
            order: "asc" (oldest first, the default) or "desc".
        """
        once = iter_options("iter_jobs", filters)
        return self._each(lambda options: self._list_jobs(job_type, options, tx), once, page_size)

    def _each(
        self, list_page: Callable[[ListOptions], Plan[Page[T], Conn]], filters: IterOptions, page_size: int
    ) -> Iterator[T]:
        options: ListOptions = {**filters, "limit": page_size, "cursor": None}
        while True:
            page = self._run(list_page(options))
            yield from page.items
            if page.next_cursor is None:
                return
            options["cursor"] = page.next_cursor

    def list_chain_jobs(
        self,
        chain: ChainOrId,
        chain_type: TypeOrName | None = None,
        *,
        tx: Tx[Conn] | None = None,
        **options: Unpack[PageOptions],
    ) -> Page[JobRecord[Any]]:
        """One page of the jobs of a chain, from first to last.

        Args:
            chain: A `Chain` or a chain id.
            chain_type: The type that the chain started with, as a class or its name. Any other type
                raises `JobTypeMismatch` (default: any type).
            tx: Read in this transaction, and see its uncommitted changes (default: on a connection
                of the client's own).
            limit: The size of the page, 1 to 1,000 (default: 50).
            cursor: The `next_cursor` of the page before (default: start at the beginning).
            order: "asc" (first to last, the default) or "desc".
        """
        return self._run(self._list_chain_jobs(chain, chain_type, options, tx))

    def list_blocked_jobs(
        self,
        chain: ChainOrId,
        chain_type: TypeOrName | None = None,
        *,
        tx: Tx[Conn] | None = None,
        **options: Unpack[PageOptions],
    ) -> Page[JobRecord[Any]]:
        """One page of the jobs that have this chain as a blocker, also those that no longer wait
        for it.

        Args:
            chain: A `Chain` or a chain id.
            chain_type: The type that the chain started with, as a class or its name. Any other type
                raises `JobTypeMismatch` (default: any type).
            tx: Read in this transaction, and see its uncommitted changes (default: on a connection
                of the client's own).
            limit: The size of the page, 1 to 1,000 (default: 50).
            cursor: The `next_cursor` of the page before (default: start at the beginning).
            order: "asc" (oldest first, the default) or "desc".
        """
        return self._run(self._list_blocked_jobs(chain, chain_type, options, tx))

    def attempts(self, job: JobOrId, *, tx: Tx[Conn] | None = None) -> list[FailedAttempt]:
        """The attempts of a job that failed or were lost, the oldest first: the last 20 of them.

        They stay when the job succeeds later, and are deleted with it. An attempt that succeeds is
        not among them.

        Args:
            job: A `JobRecord` or a job id. The id of a chain is that of its first job.
            tx: Read in this transaction, with what it has not committed yet.
        """
        return self._run(self._attempts(job, tx))

    def stats(
        self,
        *,
        limit: int | None = None,
        since: datetime | Duration | None = None,
        tx: Tx[Conn] | None = None,
    ) -> list[TypeStats]:
        """How many open and failed jobs there are of each type.

        Completed jobs are not counted, so it is cheap.

        Args:
            limit: Count at most this many jobs of each type and status: a count that reaches the
                limit means "this many, or more". This is quick, however many jobs wait (default:
                count all of them).
            since: Also tell how long the attempts took that have completed jobs since then, as a
                moment, a timedelta or in seconds: `took.quantile(0.95)`, for example. Then the
                types of these jobs are listed, too. It is a second statement (default: not).
            tx: Read in this transaction, and see its uncommitted changes (default: on a connection
                of the client's own).
        """
        return self._run(self._stats(limit, since, tx))

    def history(
        self,
        job_type: TypeOrName | None = None,
        *,
        since: datetime | Duration = timedelta(hours=1),
        step: Duration | None = None,
        tx: Tx[Conn] | None = None,
    ) -> History:
        """What happened to jobs, in steps of time: how many began, were completed, failed and so
        on, how long they waited and how long they ran.

        It is exact, and counted with the jobs themselves, by clients and workers with statistics
        (the default: see `connect`). Minutes are kept for 2 days, hours for 14 days, and days for
        30 days.

        Args:
            job_type: A job class or the name of a job type (default: all types).
            since: From when on: a moment, or how long ago as a timedelta or in seconds (default:
                an hour).
            step: How long each step is, as a timedelta or in seconds: minutes that divide an hour,
                hours that divide a day, or days (default: chosen by `since`, a minute or more).
            tx: Read in this transaction, and see its uncommitted changes (default: on a connection
                of the client's own).
        """
        return self._run(self._history(job_type, since, step, tx))

    def list_workers(self, *, tx: Tx[Conn] | None = None) -> list[WorkerInfo]:
        """All workers that the database knows, sorted by id: where they run, what they serve, how
        many of their slots are busy, and whether they are alive.

        A worker that stops is no longer listed. One that died is listed until its jobs have been
        taken back, and for about ten minutes.

        Args:
            tx: Read in this transaction, and see its uncommitted changes (default: on a connection
                of the client's own).
        """
        return self._run(self._list_workers(tx))

    def why(self, chain: ChainOrId, *, tx: Tx[Conn] | None = None) -> Why:
        """Why the chain's current job is not running: all reasons, each with what would end it.

        `print(client.why(chain))` shows an explanation. It is one quick statement, whatever
        the size of the tables is. Raises `ChainNotFound` if the chain does not exist.

        Args:
            chain: A `Chain` or a chain id.
            tx: Read in this transaction, and see its uncommitted changes (default: on a connection
                of the client's own).
        """
        return self._run(self._why(chain, tx))

    def doctor(
        self, *, full: bool = False, fix: bool = False, by: str | None = None, reason: str | None = None
    ) -> Diagnosis:
        """Find out whether everything in the database agrees, and whether its surroundings are as
        they should be. Returns a `Diagnosis`, with a `Finding` for each thing that is wrong.

        `print(client.doctor())` shows it. Workers may run meanwhile. It uses connections of
        its own, and no transaction for longer than about a second.

        Args:
            full: Read all jobs, also those that have ended, and on SQLite check the whole file
                (default: False). Otherwise it reads a bounded number of jobs that have not ended.
            fix: Repair what can be proven to be wrong, each in a transaction of its own (default:
                False). What another transaction uses is left for the next call.
            by: Who does it: 1 to 200 characters. With it, each repair is recorded: see `list_audit`
                (default: it is not recorded).
            reason: Why, for the record: 1 to 1,000 characters (default: none).
        """
        self._check_open()
        heard = self._sessions.channel.run(hears_itself)
        return self._run(self._doctor(by, reason, full=full, fix=fix, heard=heard))

    # Changing

    def trigger(
        self, tx: Tx[Conn], chains: OneOrMore[ChainOrId], *, by: str | None = None, reason: str | None = None
    ) -> list[Chain[Any]]:
        """Make chains that wait for their time due now.

        If one does not wait for its time, `ChainNotTriggerable` is raised and none is changed.

        Args:
            tx: The open transaction that makes the change.
            chains: One chain or a list of them, each a `Chain` or a chain id.
            by: Who does it: 1 to 200 characters. With it, the change is recorded: see `list_audit`
                (default: it is not recorded).
            reason: Why, for the record: 1 to 1,000 characters (default: none).
        """
        return self._run(self._trigger(tx, chains, by, reason))

    def cancel(
        self,
        tx: Tx[Conn],
        chains: OneOrMore[ChainOrId],
        *,
        cascade: bool | Literal["dependents", "blockers"] = False,
        by: str | None = None,
        reason: str | None = None,
    ) -> list[Chain[Any]]:
        """Cancel chains that have not ended, and failed ones that stop a key of an ordered limit.

        Returns those that were cancelled; the others are left as they are.

        A worker that is running such a job tells its handler to stop. Nothing that the handler
        still does has an effect.

        Args:
            tx: The open transaction that makes the change.
            chains: One chain or a list of them, each a `Chain` or a chain id.
            cascade: "dependents", or True: also cancel the chains that wait for these. "blockers":
                also cancel the chains that only these wait for. Both at every depth (default:
                False).
            by: Who does it: 1 to 200 characters. With it, the change is recorded: see `list_audit`
                (default: it is not recorded).
            reason: Why, for the record: 1 to 1,000 characters (default: none).
        """
        return self._run(self._cancel(tx, chains, cascade, by, reason))

    def retry(
        self,
        tx: Tx[Conn],
        chains: OneOrMore[ChainOrId],
        *,
        input: Job[Any, Any] | None = None,
        deadline: datetime | Duration | None = None,
        by: str | None = None,
        reason: str | None = None,
    ) -> list[Chain[Any]]:
        """Give failed chains new attempts at the job that failed.

        If one has not failed, `ChainNotRetryable` is raised and none is changed.

        With `input`, the job gets another input, and may also be cancelled or expired:

            client.retry(tx, chain, input=Charge(amount=7))

        Args:
            tx: The open transaction that makes the change.
            chains: One chain or a list of them, each a `Chain` or a chain id. With `input`, one.
            input: A job of the current job's type (else `JobTypeMismatch`) whose fields replace the
                stored input. Its blocker fields must stay as they are. (Default: keep the input.)
            deadline: With `input`: the job expires if its handler has not begun by then, as in
                `start` (default: its own deadline, if that has not passed, or else none).
            by: Who does it: 1 to 200 characters. With it, the change is recorded: see `list_audit`
                (default: it is not recorded).
            reason: Why, for the record: 1 to 1,000 characters (default: none).
        """
        return self._run(self._retry(tx, chains, input, deadline, by, reason))

    def delete(
        self,
        tx: Tx[Conn],
        chains: OneOrMore[ChainOrId],
        *,
        cascade: bool | Literal["blockers"] = False,
        by: str | None = None,
        reason: str | None = None,
    ) -> list[Chain[Any]]:
        """Delete chains with all their jobs.

        Returns them as they were; those that do not exist are left out.

        Raises `ChainInUse`, and deletes nothing, if a job of another chain still needs one of them:
        it has one as a blocker, and is open or has failed.

        Args:
            tx: The open transaction that makes the change.
            chains: One chain or a list of them, each a `Chain` or a chain id.
            cascade: "blockers", or True: also delete the chains that these wait or waited for
                (default: False).
            by: Who does it: 1 to 200 characters. With it, the change is recorded: see `list_audit`
                (default: it is not recorded).
            reason: Why, for the record: 1 to 1,000 characters (default: none).
        """
        return self._run(self._delete(tx, chains, cascade, by, reason))

    # Changing many

    def bulk_retry(
        self,
        tx: Tx[Conn],
        where: Filter | str,
        **options: Unpack[BulkOptions],
    ) -> Chain[EntryJob[BulkResult, Any]]:
        """Give all failed chains that match a filter new attempts, a page at a time.

        Returns at once: the operation is a chain of its own, which every worker carries out beside
        its jobs. `wait` returns its `BulkResult`. You can cancel it like any other chain. It
        survives the end of any process, and each chain is changed once. Only what matches now is
        changed: not what is created or ends later.

            operation = client.bulk_retry(tx, "status:failed type:charge-card", by="on-call")

        `plan` shows beforehand what it would do.

        Args:
            tx: The open transaction that starts the operation.
            where: Which chains: a `Filter`, or the text of one.
            per_second: How many chains to change in a second, at most (default: as many as
                possible).
            by: Who does it, for the audit: 1 to 200 characters (default: none).
            reason: Why, for the audit: 1 to 1,000 characters (default: none).
        """
        return self._run(self._bulk(tx, "retry", where, options))

    def bulk_cancel(
        self,
        tx: Tx[Conn],
        where: Filter | str,
        *,
        cascade: bool = False,
        **options: Unpack[BulkOptions],
    ) -> Chain[EntryJob[BulkResult, Any]]:
        """Cancel all chains that match a filter and have not ended, as `bulk_retry` does it.

        Args:
            tx: The open transaction that starts the operation.
            where: Which chains: a `Filter`, or the text of one.
            cascade: Also cancel the chains that wait for these (default: False).
            per_second: How many chains to change in a second, at most (default: as many as
                possible).
            by: Who does it, for the audit: 1 to 200 characters (default: none).
            reason: Why, for the audit: 1 to 1,000 characters (default: none).
        """
        return self._run(self._bulk(tx, "cancel", where, options, cascade=cascade))

    def bulk_delete(
        self,
        tx: Tx[Conn],
        where: Filter | str,
        *,
        cascade: bool = False,
        **options: Unpack[BulkOptions],
    ) -> Chain[EntryJob[BulkResult, Any]]:
        """Delete all chains that match a filter, with their jobs, as `bulk_retry` does it.

        Chains that jobs of others still need are left as they are. The latest chains come first.

        Args:
            tx: The open transaction that starts the operation.
            where: Which chains: a `Filter`, or the text of one.
            cascade: Also delete the chains that these wait or waited for (default: False).
            per_second: How many chains to change in a second, at most (default: as many as
                possible).
            by: Who does it, for the audit: 1 to 200 characters (default: none).
            reason: Why, for the audit: 1 to 1,000 characters (default: none).
        """
        return self._run(self._bulk(tx, "delete", where, options, cascade=cascade))

    def bulk_trigger(
        self,
        tx: Tx[Conn],
        where: Filter | str,
        **options: Unpack[BulkOptions],
    ) -> Chain[EntryJob[BulkResult, Any]]:
        """Make all chains that match a filter and wait for their time due now, as `bulk_retry` does
        it.

        Args:
            tx: The open transaction that starts the operation.
            where: Which chains: a `Filter`, or the text of one.
            per_second: How many chains to change in a second, at most (default: as many as
                possible).
            by: Who does it, for the audit: 1 to 200 characters (default: none).
            reason: Why, for the audit: 1 to 1,000 characters (default: none).
        """
        return self._run(self._bulk(tx, "trigger", where, options))

    def bulk_set_priority(
        self,
        tx: Tx[Conn],
        where: Filter | str,
        priority: int,
        **options: Unpack[BulkOptions],
    ) -> Chain[EntryJob[BulkResult, Any]]:
        """Give all chains that match a filter another priority, as `bulk_retry` does it: their
        current jobs, if they wait or are blocked.

        Args:
            tx: The open transaction that starts the operation.
            where: Which chains: a `Filter`, or the text of one.
            priority: The new priority. The lowest number runs first.
            per_second: How many chains to change in a second, at most (default: as many as
                possible).
            by: Who does it, for the audit: 1 to 200 characters (default: none).
            reason: Why, for the audit: 1 to 1,000 characters (default: none).
        """
        return self._run(self._bulk(tx, "set_priority", where, options, priority=check_priority(priority)))

    def plan(
        self, action: BulkAction, where: Filter | str, *, cascade: bool = False, tx: Tx[Conn] | None = None
    ) -> BulkPlan:
        """What a bulk operation would do now: how many chains match, the first ones, and what would
        stay as it is, or would not run, and why. Nothing is changed.

        `print(client.plan("retry", "status:failed"))` shows it. It counts 1,000 chains at
        most.

        Args:
            action: "retry", "cancel", "delete", "trigger" or "set_priority".
            where: Which chains: a `Filter`, or the text of one.
            cascade: For "cancel" and "delete": also list the chains that cascade leads to (default:
                False).
            tx: Read in this transaction, and see its uncommitted changes (default: on a connection
                of the client's own).
        """
        return self._run(self._bulk_plan(action, where, cascade, tx))

    def list_audit(
        self,
        chain: ChainOrId | None = None,
        *,
        limit: int = 50,
        cursor: str | None = None,
        tx: Tx[Conn] | None = None,
    ) -> Page[AuditRecord]:
        """One page of what was recorded, the latest first: bulk operations, and every change of a
        chain, a pause or a schedule that was made with `by=`.

        Args:
            chain: Only what was done to this chain: a `Chain` or a chain id (default: all).
            limit: The size of the page, 1 to 1,000 (default: 50).
            cursor: The `next_cursor` of the page before (default: start at the beginning).
            tx: Read in this transaction, and see its uncommitted changes (default: on a connection
                of the client's own).
        """
        return self._run(self._list_audit(chain, limit, cursor, tx))

    # Steering

    def pause(
        self,
        tx: Tx[Conn],
        target: PauseOf,
        *,
        until: datetime | Duration | None = None,
        reason: str | None = None,
        by: str | None = None,
        cancel_running: bool = False,
    ) -> Pause:
        """Pause jobs in all workers. Starting goes on: what is started waits.

        From the commit on, no worker takes new jobs of the target. Jobs that are running go on,
        unless `cancel_running` is True. A target that is paused already gets the new values.

        Args:
            tx: The open transaction that makes the change.
            target: What to pause: a job class or the name of a job type, a `Queue` (only its name
                counts), a `LimitKey`, `EVERYTHING`, or the `target` of a `Pause`.
            until: When the pause ends by itself: a moment, or a time from now as a timedelta or in
                seconds (default: it ends when it is resumed).
            reason: Why, for those who look at the pause: 1 to 1,000 characters (default: none).
            by: Who pauses it: 1 to 200 characters. With it, the pause is recorded: see `list_audit`
                (default: none).
            cancel_running: Also tell running handlers to stop, and put their jobs back. The attempt
                does not count. Plain `def` handlers keep their jobs until they end (default:
                False).
        """
        return self._run(self._pause(tx, target, until, reason, by, cancel_running))

    def resume(
        self, tx: Tx[Conn], target: PauseOf, *, by: str | None = None, reason: str | None = None
    ) -> Pause | None:
        """End the pause of a target, and wake the workers.

        Returns the pause as it was, or None if the target was not paused. Pauses of other targets
        stay: a job type whose queue is paused, too, does not run yet.

        Args:
            tx: The open transaction that makes the change.
            target: What to resume, exactly as it was paused: a job class or the name of a job type,
                a `Queue`, a `LimitKey`, `EVERYTHING`, or the `target` of a `Pause`.
            by: Who does it: 1 to 200 characters. With it, the change is recorded: see `list_audit`
                (default: it is not recorded).
            reason: Why, for the record: 1 to 1,000 characters (default: none).
        """
        return self._run(self._resume(tx, target, by, reason))

    def list_pauses(self, *, tx: Tx[Conn] | None = None) -> list[Pause]:
        """What is paused now, sorted by scope and name.

        Args:
            tx: Read in this transaction, and see its uncommitted changes (default: on a connection
                of the client's own).
        """
        return self._run(self._list_pauses(tx))

    # Limits

    def set_limit(
        self,
        tx: Tx[Conn],
        limit: LimitOf,
        *,
        key: KeyOf | None = None,
        concurrency: int | Unset | None = UNSET,
        rate: Rate | Unset | None = UNSET,
        weight: float | Unset = UNSET,
        by: str | None = None,
        reason: str | None = None,
    ) -> LimitRow:
        """Change a limit at run time, for one key or for all keys without settings of their own.

        What is not given stays as it is. Workers obey the change from the commit on. Jobs that are
        running go on, even if there are more of them than the new limit allows. The change survives
        restarts and releases, until `clear_limit`. Returns what applies now.

        Args:
            tx: The open transaction that makes the change.
            limit: The limit: its name, a `Limit` that has one, or a job class with a limit.
            key: The key (default: all keys).
            concurrency: How many jobs may run at once. None: no limit (default: as it is).
            rate: How many jobs may begin in a period. None: no limit (default: as it is).
            weight: How many turns a key gets for each turn of a key with the weight 1 (default: as
                it is).
            by: Who does it: 1 to 200 characters. With it, the change is recorded: see `list_audit`
                (default: it is not recorded).
            reason: Why, for the record: 1 to 1,000 characters (default: none).
        """
        return self._run(self._set_limit(tx, limit, key, change_of(concurrency, rate, weight), by, reason))

    def clear_limit(
        self,
        tx: Tx[Conn],
        limit: LimitOf,
        *,
        key: KeyOf | None = None,
        by: str | None = None,
        reason: str | None = None,
    ) -> bool:
        """Undo `set_limit` for exactly this key, or for all keys: what is declared applies again.

        Returns False if nothing was set.

        Args:
            tx: The open transaction that makes the change.
            limit: The limit: its name, a `Limit` that has one, or a job class with a limit.
            key: The key (default: what was set for all keys).
            by: Who does it: 1 to 200 characters. With it, the change is recorded: see `list_audit`
                (default: it is not recorded).
            reason: Why, for the record: 1 to 1,000 characters (default: none).
        """
        return self._run(self._clear_limit(tx, limit, key, by, reason))

    def list_limits(self, *, limit: int = 50, cursor: str | None = None, tx: Tx[Conn] | None = None) -> Page[LimitRow]:
        """One page of the limits and their keys, sorted by name and key. A limit comes before its
        keys. Keys without jobs are listed only if something is set or closed for them.

        Args:
            limit: The size of the page, 1 to 1,000 (default: 50).
            cursor: The `next_cursor` of the page before (default: start at the beginning).
            tx: Read in this transaction, and see its uncommitted changes (default: on a connection
                of the client's own).
        """
        return self._run(self._list_limits(limit, cursor, tx))

    # Schedules

    def put_schedule(
        self, tx: Tx[Conn], name: str, times: Times, job: EntryJob[Any, Any], **options: Unpack[ScheduleOptions]
    ) -> Schedule:
        """Make a schedule, or change it. It takes effect with your transaction.

            times = Cron("0 8 * * *", tz=user.tz)
            client.put_schedule(tx, "digest-7", times, Digest(tenant=7))

        If it is already as you want it, nothing is written. If the times change, they count from
        now: no past tick fires. A schedule that workers declare is changed in their code: this
        raises `InvalidArgument`.

        Args:
            tx: The open transaction that makes the change.
            name: The name of the schedule: 1 to 200 characters.
            times: When it fires: a `Cron`, an `Every` or an `After`.
            job: The job that each tick starts. It may have a priority, and a deadline that is
                counted from the firing, by `job.set(…)`.
            overlap: What happens at a tick while a chain of an earlier one has not ended: "allow"
                starts another one (the default), "skip" leaves the tick out, "queue" lets one tick
                wait for the end, "cancel" starts another one and cancels the earlier one.
            catch_up: Which of the ticks that passed without a worker still fire: "last" (the
                default), "none" (a tick may be a minute late), or "all".
            catch_up_max: With "all": how many of them at most, the latest ones (default: 100).
            within: Only those that passed at most this long ago (default: no limit).
        """
        return self._run(self._put_schedule(tx, name, times, job, options))

    def get_schedule(self, name: str, *, tx: Tx[Conn] | None = None) -> Schedule | None:
        """A schedule, put or declared. None if no schedule has this name.

        Args:
            name: The name of the schedule.
            tx: Read in this transaction, and see its uncommitted changes (default: on a connection
                of the client's own).
        """
        return self._run(self._get_schedule(name, tx))

    def schedule_of(self, chain: ChainOrId, *, tx: Tx[Conn] | None = None) -> Schedule | None:
        """The schedule that started a chain. None if no schedule did, or if it was deleted.

        Args:
            chain: A `Chain` or a chain id.
            tx: Read in this transaction, and see its uncommitted changes (default: on a connection
                of the client's own).
        """
        return self._run(self._schedule_of(chain, tx))

    def list_schedules(
        self, *, limit: int = 50, cursor: str | None = None, tx: Tx[Conn] | None = None
    ) -> Page[Schedule]:
        """One page of all schedules, sorted by name.

        Args:
            limit: The size of the page, 1 to 1,000 (default: 50).
            cursor: The `next_cursor` of the page before (default: start at the beginning).
            tx: Read in this transaction, and see its uncommitted changes (default: on a connection
                of the client's own).
        """
        return self._run(self._list_schedules(limit, cursor, tx))

    def pause_schedule(
        self,
        tx: Tx[Conn],
        name: str,
        *,
        until: datetime | Duration | None = None,
        by: str | None = None,
        reason: str | None = None,
    ) -> Schedule:
        """Pause a schedule. Its ticks do not fire, and are not caught up with. What it has started
        goes on. Raises `ScheduleNotFound`.

        Args:
            tx: The open transaction that makes the change.
            name: The name of the schedule.
            until: When the pause ends by itself: a moment, or a time from now as a timedelta or in
                seconds (default: it ends when it is resumed).
            by: Who does it: 1 to 200 characters. With it, the change is recorded: see `list_audit`
                (default: it is not recorded).
            reason: Why, for the record: 1 to 1,000 characters (default: none).
        """
        return self._run(self._pause_schedule(tx, name, until, by, reason))

    def resume_schedule(self, tx: Tx[Conn], name: str, *, by: str | None = None, reason: str | None = None) -> Schedule:
        """End the pause of a schedule: it fires from now on. Raises `ScheduleNotFound`.

        Args:
            tx: The open transaction that makes the change.
            name: The name of the schedule.
            by: Who does it: 1 to 200 characters. With it, the change is recorded: see `list_audit`
                (default: it is not recorded).
            reason: Why, for the record: 1 to 1,000 characters (default: none).
        """
        return self._run(self._resume_schedule(tx, name, by, reason))

    def trigger_schedule(
        self, tx: Tx[Conn], name: str, *, by: str | None = None, reason: str | None = None
    ) -> Chain[Any] | None:
        """Fire a schedule now, besides its ticks, whatever its overlap is, also if it is paused.

        Returns the chain. If a function makes its jobs, a worker calls it soon after the commit,
        and this returns None. Raises `ScheduleNotFound`.

        Args:
            tx: The open transaction that makes the change.
            name: The name of the schedule.
            by: Who does it: 1 to 200 characters. With it, the change is recorded: see `list_audit`
                (default: it is not recorded).
            reason: Why, for the record: 1 to 1,000 characters (default: none).
        """
        return self._run(self._trigger_schedule(tx, name, by, reason))

    def backfill(
        self,
        tx: Tx[Conn],
        name: str,
        start: datetime,
        end: datetime,
        *,
        by: str | None = None,
        reason: str | None = None,
    ) -> int:
        """Fire the ticks of a schedule in the past, whatever its overlap is. Workers do it soon
        after the commit. Returns how many ticks there are, 10,000 at most.

        A tick whose chains exist is not fired again. Raises `ScheduleNotFound`.

        Args:
            tx: The open transaction that makes the change.
            name: The name of the schedule.
            start: The moment of the first tick, or before it.
            end: The moment before which the ticks are. Ticks after now are left out.
            by: Who does it: 1 to 200 characters. With it, the change is recorded: see `list_audit`
                (default: it is not recorded).
            reason: Why, for the record: 1 to 1,000 characters (default: none).
        """
        return self._run(self._backfill(tx, name, start, end, by, reason))

    def delete_schedule(
        self, tx: Tx[Conn], name: str, *, by: str | None = None, reason: str | None = None
    ) -> Schedule | None:
        """Delete a schedule. What it has started goes on. Returns it as it was; None if there was
        none. One that workers declare comes back within a minute: pause it instead.

        Args:
            tx: The open transaction that makes the change.
            name: The name of the schedule.
            by: Who does it: 1 to 200 characters. With it, the change is recorded: see `list_audit`
                (default: it is not recorded).
            reason: Why, for the record: 1 to 1,000 characters (default: none).
        """
        return self._run(self._delete_schedule(tx, name, by, reason))

    def preview(self, name: str, count: int = 10, *, tx: Tx[Conn] | None = None) -> list[Tick]:
        """The next ticks of a schedule, by the database's clock. `tick.local` has their offsets.

        Raises `ScheduleNotFound`, and `InvalidArgument` for an `After`, whose ticks are not known.

        Args:
            name: The name of the schedule.
            count: How many (default: 10).
            tx: Read in this transaction, and see its uncommitted changes (default: on a connection
                of the client's own).
        """
        return self._run(self._preview(name, count, tx))

    @overload
    def take_over(
        self, tx: Tx[Conn], chain: ChainOrId, job_type: type[J]
    ) -> AbstractContextManager[SyncCompletion[J], None]: ...
    @overload
    def take_over(
        self, tx: Tx[Conn], chain: ChainOrId, job_type: str | None = None
    ) -> AbstractContextManager[SyncCompletion[Any], None]: ...
    def take_over(self, tx: Any, chain: Any, job_type: Any = None) -> Any:
        """Complete the chain's current job yourself, without a worker.

            with client.take_over(tx, chain, Approve) as current:
                current.settle(True)

        The job is locked until the transaction ends. Leaving the block without `settle` changes
        nothing.

        Args:
            tx: The open transaction that locks and completes the job.
            chain: A `Chain` or a chain id.
            job_type: The type of the current job, as a class or its name. A class types the result.
                Any other type raises `JobTypeMismatch`.
        """
        return self._take_over(tx, chain, job_type)

    @context
    def _take_over(self, tx: Tx[Conn], chain: ChainOrId, job_type: TypeOrName | None) -> Iterator[SyncCompletion[Any]]:
        yield SyncCompletion(self._sessions, tx, self._run(self._take(tx, chain, job_type)))

    # Waiting

    @overload
    def wait(self, chain: ChainOrId, chain_type: type[Job[R, Any]], *, timeout: Duration | None = None) -> R: ...
    @overload
    def wait(
        self, chain: Chain[Job[R, Any]], chain_type: str | None = None, *, timeout: Duration | None = None
    ) -> R: ...
    @overload
    def wait(self, chain: str, chain_type: str | None = None, *, timeout: Duration | None = None) -> Any: ...
    def wait(self, chain: ChainOrId, chain_type: TypeOrName | None = None, *, timeout: Duration | None = None) -> Any:
        """Wait until the chain has an output, and return it.

        Raises `ChainFailed`, `ChainCancelled`, `ChainExpired` or `ChainNotFound` if the chain ends
        without one, and `WaitTimeout` if it does not end in time. A chain that is deleted when it
        is completed, because of `Keep(completed=0)`, cannot be waited for (`InvalidArgument`). Do
        not call it inside the transaction that starts the chain: no worker sees the chain before
        the commit.

        Args:
            chain: A `Chain` or a chain id.
            chain_type: The type that the chain started with, as a class or its name. A class types
                the result. Any other type raises `JobTypeMismatch`.
            timeout: How long to wait, as a timedelta or in seconds (default: no limit).
        """
        self._check_open()
        name = self._type_name(chain_type)
        self._check_waits(chain, name)
        try:
            return self._waiting.wait(chain_id(chain), name, timeout)
        except WaitTimeout as error:
            explain_timeout_sync(error, self.why)
            raise

    def _read_chain(self, chain: str, chain_type: str | None) -> Chain[Any] | None:
        found = self._run(self._get_chain(chain, chain_type, None))
        if found is not None:
            self._check_waits(found, None)
        return found

    def _read_failed_blockers(self, job_id: str) -> dict[str, Status]:
        return self._run((queries.failed_blockers(self._engine, job_id), None))

    def _run(self, plan: Plan[T, Conn]) -> T:
        return run_blocking(self._sessions.run(*plan))


class SyncCompletion(Generic[J_co]):
    """The job that `take_over` has locked: complete it with `settle`."""

    def __init__(self, sessions: Sessions[Any], tx: Tx[Any], taken: TakenOver) -> None:
        self._sessions = sessions
        self._tx = tx
        self._taken = taken

    @property
    def job(self) -> J_co:
        """The job, with the outputs of its blockers."""
        job: Any = self._taken.job
        return job  # type: ignore[no-any-return]

    @property
    def status(self) -> Status:
        """The status that the job had when it was locked. It may be "blocked" or "running"."""
        return self._taken.row.status

    def settle(self: SyncCompletion[Job[R, N]], result: R | N) -> None:
        """End the chain with a value, or continue it with another job.

        That job is then the current one.

        Args:
            result: The chain's output, or the next job.
        """
        connection = self._sessions.writing("settle", self._tx).connection
        run_blocking(self._sessions.run(self._taken.settle(result), connection))
