"""The async client."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import Any, Generic, Self, overload

from typing_extensions import TypeVar, Unpack

from queuert.client.base import (
    BaseClient,
    ChainOrId,
    Conn,
    IterOptions,
    JobOrId,
    ListOptions,
    OneOrMore,
    PageOptions,
    Plan,
    StartOptions,
    TypeOrName,
    chain_id,
    check_keywords,
    in_own_transaction,
)
from queuert.client.sessions import Sessions, Tx
from queuert.client.waiting import ChainWaiting
from queuert.contexts import async_context
from queuert.ids import GenerateId, ValidateId, generate_uuid7, validate_uuid
from queuert.jobs.chain import Chain
from queuert.jobs.codec import Codec
from queuert.jobs.job import EntryJob, Job
from queuert.jobs.record import JobRecord
from queuert.jobs.registry import JobsItem, Registry
from queuert.model import Duration, Page, Status, TypeStats
from queuert.operations import queries
from queuert.operations.engine import Engine
from queuert.operations.observers import all_of
from queuert.operations.publishing import BoundedNotify
from queuert.operations.take_over import TakenOver
from queuert.operations.watched import watched
from queuert.ports.notify import NotifyAdapter
from queuert.ports.observer import Observer
from queuert.ports.state import StateAdapter
from queuert.transaction import Transaction

J = TypeVar("J", bound=Job[Any, Any])
J_co = TypeVar("J_co", bound=Job[Any, Any], covariant=True)
E = TypeVar("E", bound=EntryJob[Any, Any])
R = TypeVar("R")
N = TypeVar("N")
T = TypeVar("T")


class Client(BaseClient[Conn]):
    """Starts, reads, changes and awaits job chains.

    Made by `queuert.connect`; use it in an `async with` block.

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
            (default: any UUID). Ids from `generate_id` are checked, too.
        poll_interval: How often `wait` reads the chain if no notification arrives, in seconds
            (default: 1).
        migrate: Create or update the tables when the `with` block begins (default: True). If the
            database is unavailable then, this is done before its first use.
        observers: Objects that are told about events: see `Observer` (default: none).
    """

    def __init__(
        self,
        state: StateAdapter[Conn],
        notify: NotifyAdapter,
        jobs: Registry | Iterable[JobsItem],
        *,
        codecs: Sequence[Codec] = (),
        generate_id: GenerateId = generate_uuid7,
        validate_id: ValidateId = validate_uuid,
        poll_interval: float = 1.0,
        migrate: bool = True,
        observers: Sequence[Observer] = (),
    ) -> None:
        told = all_of(observers)
        channel: NotifyAdapter = BoundedNotify(notify)
        if told is not None:
            state, channel = watched(state, channel, told)
        registry = jobs if isinstance(jobs, Registry) else Registry(jobs, codecs=codecs)
        engine = Engine(registry, state.operations, channel, generate_id, validate_id, told)
        super().__init__(Sessions(state.provider, engine, migrate=migrate))
        self._state = state
        self._notify = channel
        self._waiting = ChainWaiting(channel, self._read_chain, self._ended_chains, poll_interval)

    async def __aenter__(self) -> Self:
        self._check_open()
        try:
            await self._sessions.enter_schema()
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close everything that the client has opened.

        The `with` block does this. A second call does nothing.
        """
        if self._sessions.closed:
            return
        # Each runs even if the one before fails or is cancelled.
        async with AsyncExitStack() as closing:
            closing.push_async_callback(self._state.close)
            closing.push_async_callback(self._notify.close)
            closing.push_async_callback(self._waiting.close)
            await self._sessions.close()

    async def migrate(self) -> list[int]:
        """Create or update the tables. Returns the schema versions that were applied."""
        return await self._sessions.migrate()

    async def vacuum(self) -> None:
        """Return free space to the file system, as far as possible while the database is in use."""
        await self._run((self._engine.state.vacuum(), None))

    # Transactions

    def transaction(self) -> AbstractAsyncContextManager[Transaction[Conn], None]:
        """Open a transaction.

        It commits at the end of the block, and an error in the block rolls it back.

            async with client.transaction() as tx:
                await client.start(tx, Greet(who="you"))

        A task or thread can have one open at a time; a second one raises `TransactionNested`.
        """
        return self._sessions.transaction()

    def after_commit(self, connection: Conn) -> AbstractAsyncContextManager[Transaction[Conn], None]:
        """Use a transaction that you commit yourself. Put this block around the block that commits.

            async with client.after_commit(connection) as tx, connection.transaction():
                await client.start(tx, Greet(who="you"))

        Entering does no I/O. When the block ends without an error, workers are notified. If the
        connection is still inside a transaction then, that is a `TransactionMisused` error.

        Args:
            connection: A connection of the driver that the client uses.
        """
        return self._sessions.after_commit(connection)

    def savepoint(self, tx: Tx[Conn]) -> AbstractAsyncContextManager[None, None]:
        """A part of a transaction: an error in the block rolls back this block only.

        Args:
            tx: The open transaction.
        """
        return self._sessions.savepoint(tx)

    # Starting

    async def start(self, tx: Tx[Conn], job: E, **options: Unpack[StartOptions]) -> Chain[E]:
        """Start a chain with its first job. The options replace those of `job.set(…)`.

        Args:
            tx: The open transaction that starts the chain.
            job: The first job.
            dedup: A deduplication key or a `Dedup`: return the chain that has this key and start no
                new one.
            at: When the job may run, as a datetime with a time zone (default: now).
            after: How long to wait before the job may run, as a timedelta or in seconds. Give this
                or `at`.
            priority: The lowest number runs first (default: 100).
            id: The id of the job and of the chain (default: a new UUIDv7).
            deadline: The job expires if its handler has not begun by then: a datetime, or a
                timedelta or seconds from now.
        """
        (chain,) = await self._run(self._start(tx, [job], options, "start"))
        return chain

    async def start_many(self, tx: Tx[Conn], jobs: Sequence[E]) -> list[Chain[E]]:
        """Start a chain for each job, of any types, in one round trip. All of them start, or none.

        Args:
            tx: The open transaction that starts the chains.
            jobs: The first job of each chain. `job.set(…)` gives a job its options.
        """
        return await self._run(self._start(tx, jobs, {}, "start_many"))

    async def submit(self, job: E, **options: Unpack[StartOptions]) -> Chain[E]:
        """Start a chain in a transaction of its own, which is committed when this returns.

        Use `start` if the chain must commit with other changes. If this task has a transaction
        open, that is a `TransactionNested` error. The options replace those of `job.set(…)`.

        Args:
            job: The first job.
            dedup: A deduplication key or a `Dedup`: return the chain that has this key and start no
                new one.
            at: When the job may run, as a datetime with a time zone (default: now).
            after: How long to wait before the job may run, as a timedelta or in seconds. Give this
                or `at`.
            priority: The lowest number runs first (default: 100).
            id: The id of the job and of the chain (default: a new UUIDv7).
            deadline: The job expires if its handler has not begun by then: a datetime, or a
                timedelta or seconds from now.
        """
        (chain,) = await self._submit([job], options, "submit")
        return chain

    async def submit_many(self, jobs: Sequence[E]) -> list[Chain[E]]:
        """Start a chain for each job, of any types, in a transaction of their own.

        All of them start, or none.

        Args:
            jobs: The first job of each chain. `job.set(…)` gives a job its options.
        """
        return await self._submit(jobs, {}, "submit_many")

    async def _submit(self, jobs: Sequence[E], options: StartOptions, operation: str) -> list[Chain[E]]:
        with in_own_transaction(operation):
            async with self.transaction() as tx:
                return await self._run(self._start(tx, jobs, options, operation))

    # Reading

    @overload
    async def get_chain(
        self, chain: ChainOrId, chain_type: type[J], *, tx: Tx[Conn] | None = None
    ) -> Chain[J] | None: ...
    @overload
    async def get_chain(self, chain: Chain[J], *, tx: Tx[Conn] | None = None) -> Chain[J] | None: ...
    @overload
    async def get_chain(
        self, chain: ChainOrId, chain_type: str | None = None, *, tx: Tx[Conn] | None = None
    ) -> Chain[Any] | None: ...
    async def get_chain(
        self, chain: ChainOrId, chain_type: TypeOrName | None = None, *, tx: Tx[Conn] | None = None
    ) -> Chain[Any] | None:
        """A chain as it is now, or None if it does not exist.

        Args:
            chain: A `Chain` or a chain id.
            chain_type: The type that the chain started with, as a class or its name. A class types
                the result. Any other type raises `JobTypeMismatch`.
            tx: Read in this transaction, and see its uncommitted changes (default: on a connection
                of the client's own).
        """
        return await self._run(self._get_chain(chain, chain_type, tx))

    @overload
    async def get_job(self, job: JobOrId, job_type: type[J], *, tx: Tx[Conn] | None = None) -> JobRecord[J] | None: ...
    @overload
    async def get_job(self, job: JobRecord[J], *, tx: Tx[Conn] | None = None) -> JobRecord[J] | None: ...
    @overload
    async def get_job(
        self, job: JobOrId, job_type: str | None = None, *, tx: Tx[Conn] | None = None
    ) -> JobRecord[Any] | None: ...
    async def get_job(
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
        return await self._run(self._get_job(job, job_type, tx))

    async def get_blockers(self, job: JobOrId, *, tx: Tx[Conn] | None = None) -> list[Chain[Any]] | None:
        """The chains that a job waits or waited for, in the order of its fields.

        None if the job does not exist.

        Args:
            job: A `JobRecord` or a job id.
            tx: Read in this transaction, and see its uncommitted changes (default: on a connection
                of the client's own).
        """
        return await self._run(self._get_blockers(job, tx))

    @overload
    async def list_chains(
        self,
        chain_type: type[J],
        *,
        root_only: bool = False,
        tx: Tx[Conn] | None = None,
        **options: Unpack[ListOptions],
    ) -> Page[Chain[J]]: ...
    @overload
    async def list_chains(
        self,
        chain_type: str | None = None,
        *,
        root_only: bool = False,
        tx: Tx[Conn] | None = None,
        **options: Unpack[ListOptions],
    ) -> Page[Chain[Any]]: ...
    async def list_chains(
        self,
        chain_type: TypeOrName | None = None,
        *,
        root_only: bool = False,
        tx: Tx[Conn] | None = None,
        **options: Unpack[ListOptions],
    ) -> Page[Chain[Any]]:
        """One page of chains, in the order of their creation. `iter_chains` goes through all pages.

        With `status`, the order is that in which the current jobs of the chains were created.

        Args:
            chain_type: Only chains that started with this type, a class or its name (default: all
                types).
            root_only: Only chains that no job has as a blocker (default: False).
            tx: Read in this transaction, and see its uncommitted changes (default: on a connection
                of the client's own).
            status: Only chains whose current job has this status.
            ids: Only chains with these ids.
            created_after: Only chains created after this datetime.
            created_before: Only chains created before this datetime.
            order: "asc" (oldest first, the default) or "desc".
            limit: The size of the page, 1 to 1,000 (default: 50).
            cursor: The `next_cursor` of the page before (default: start at the beginning).
        """
        return await self._run(self._list_chains(chain_type, root_only, options, tx))

    @overload
    def iter_chains(
        self,
        chain_type: type[J],
        *,
        root_only: bool = False,
        page_size: int = 100,
        tx: Tx[Conn] | None = None,
        **filters: Unpack[IterOptions],
    ) -> AsyncIterator[Chain[J]]: ...
    @overload
    def iter_chains(
        self,
        chain_type: str | None = None,
        *,
        root_only: bool = False,
        page_size: int = 100,
        tx: Tx[Conn] | None = None,
        **filters: Unpack[IterOptions],
    ) -> AsyncIterator[Chain[Any]]: ...
    def iter_chains(
        self,
        chain_type: TypeOrName | None = None,
        *,
        root_only: bool = False,
        page_size: int = 100,
        tx: Tx[Conn] | None = None,
        **filters: Unpack[IterOptions],
    ) -> AsyncIterator[Chain[Any]]:
        """All chains that `list_chains` lists: `async for chain in client.iter_chains():`.

        Each page is read when it is needed, so chains may change in between. With `status`, a chain
        that moves on to another job meanwhile may come twice. You may change or delete the chains
        that you have received.

        Args:
            chain_type: Only chains that started with this type, a class or its name (default: all
                types).
            root_only: Only chains that no job has as a blocker (default: False).
            page_size: How many to read at a time, 1 to 1,000 (default: 100).
            tx: Read in this transaction, and see its uncommitted changes (default: on a connection
                of the client's own).
            status: Only chains whose current job has this status.
            ids: Only chains with these ids.
            created_after: Only chains created after this datetime.
            created_before: Only chains created before this datetime.
            order: "asc" (oldest first, the default) or "desc".
        """
        check_keywords("iter_chains", filters, IterOptions)
        return self._each(lambda options: self._list_chains(chain_type, root_only, options, tx), filters, page_size)

    @overload
    async def list_jobs(
        self, job_type: type[J], *, tx: Tx[Conn] | None = None, **options: Unpack[ListOptions]
    ) -> Page[JobRecord[J]]: ...
    @overload
    async def list_jobs(
        self, job_type: str | None = None, *, tx: Tx[Conn] | None = None, **options: Unpack[ListOptions]
    ) -> Page[JobRecord[Any]]: ...
    async def list_jobs(
        self,
        job_type: TypeOrName | None = None,
        *,
        tx: Tx[Conn] | None = None,
        **options: Unpack[ListOptions],
    ) -> Page[JobRecord[Any]]:
        """One page of jobs, in the order of their creation. `iter_jobs` goes through all pages.

        Args:
            job_type: Only jobs of this type, a class or its name (default: all types).
            tx: Read in this transaction, and see its uncommitted changes (default: on a connection
                of the client's own).
            status: Only jobs with this status.
            ids: Only jobs with these ids.
            created_after: Only jobs created after this datetime.
            created_before: Only jobs created before this datetime.
            order: "asc" (oldest first, the default) or "desc".
            limit: The size of the page, 1 to 1,000 (default: 50).
            cursor: The `next_cursor` of the page before (default: start at the beginning).
        """
        return await self._run(self._list_jobs(job_type, options, tx))

    @overload
    def iter_jobs(
        self,
        job_type: type[J],
        *,
        page_size: int = 100,
        tx: Tx[Conn] | None = None,
        **filters: Unpack[IterOptions],
    ) -> AsyncIterator[JobRecord[J]]: ...
    @overload
    def iter_jobs(
        self,
        job_type: str | None = None,
        *,
        page_size: int = 100,
        tx: Tx[Conn] | None = None,
        **filters: Unpack[IterOptions],
    ) -> AsyncIterator[JobRecord[Any]]: ...
    def iter_jobs(
        self,
        job_type: TypeOrName | None = None,
        *,
        page_size: int = 100,
        tx: Tx[Conn] | None = None,
        **filters: Unpack[IterOptions],
    ) -> AsyncIterator[JobRecord[Any]]:
        """All jobs that `list_jobs` lists: `async for job in client.iter_jobs():`.

        Each page is read when it is needed, so jobs may change in between.

        Args:
            job_type: Only jobs of this type, a class or its name (default: all types).
            page_size: How many to read at a time, 1 to 1,000 (default: 100).
            tx: Read in this transaction, and see its uncommitted changes (default: on a connection
                of the client's own).
            status: Only jobs with this status.
            ids: Only jobs with these ids.
            created_after: Only jobs created after this datetime.
            created_before: Only jobs created before this datetime.
            order: "asc" (oldest first, the default) or "desc".
        """
        check_keywords("iter_jobs", filters, IterOptions)
        return self._each(lambda options: self._list_jobs(job_type, options, tx), filters, page_size)

    async def _each(
        self, list_page: Callable[[ListOptions], Plan[Page[T], Conn]], filters: IterOptions, page_size: int
    ) -> AsyncIterator[T]:
        options: ListOptions = {**filters, "limit": page_size, "cursor": None}
        while True:
            page = await self._run(list_page(options))
            for item in page.items:
                yield item
            if page.next_cursor is None:
                return
            options["cursor"] = page.next_cursor

    async def list_chain_jobs(
        self, chain: ChainOrId, *, tx: Tx[Conn] | None = None, **options: Unpack[PageOptions]
    ) -> Page[JobRecord[Any]]:
        """One page of the jobs of a chain, from first to last.

        Args:
            chain: A `Chain` or a chain id.
            tx: Read in this transaction, and see its uncommitted changes (default: on a connection
                of the client's own).
            limit: The size of the page, 1 to 1,000 (default: 50).
            cursor: The `next_cursor` of the page before (default: start at the beginning).
            order: "asc" (first to last, the default) or "desc".
        """
        return await self._run(self._list_chain_jobs(chain, options, tx))

    async def list_blocked_jobs(
        self, chain: ChainOrId, *, tx: Tx[Conn] | None = None, **options: Unpack[PageOptions]
    ) -> Page[JobRecord[Any]]:
        """One page of the jobs that have this chain as a blocker, also those that no longer wait
        for it.

        Args:
            chain: A `Chain` or a chain id.
            tx: Read in this transaction, and see its uncommitted changes (default: on a connection
                of the client's own).
            limit: The size of the page, 1 to 1,000 (default: 50).
            cursor: The `next_cursor` of the page before (default: start at the beginning).
            order: "asc" (oldest first, the default) or "desc".
        """
        return await self._run(self._list_blocked_jobs(chain, options, tx))

    async def stats(self, *, tx: Tx[Conn] | None = None) -> list[TypeStats]:
        """How many open and failed jobs there are of each type.

        Completed jobs are not counted, so it is cheap.

        Args:
            tx: Read in this transaction, and see its uncommitted changes (default: on a connection
                of the client's own).
        """
        return await self._run(self._stats(tx))

    # Changing

    async def trigger(self, tx: Tx[Conn], chains: OneOrMore[ChainOrId]) -> list[Chain[Any]]:
        """Make chains that wait for their time due now.

        If one does not wait for its time, `ChainNotTriggerable` is raised and none is changed.

        Args:
            tx: The open transaction that makes the change.
            chains: One chain or a list of them, each a `Chain` or a chain id.
        """
        return await self._run(self._trigger(tx, chains))

    async def cancel(self, tx: Tx[Conn], chains: OneOrMore[ChainOrId], *, cascade: bool = False) -> list[Chain[Any]]:
        """Cancel chains that have not ended.

        Returns those that were cancelled; the others are left as they are.

        A worker that is running such a job tells its handler to stop. Nothing that the handler
        still does has an effect.

        Args:
            tx: The open transaction that makes the change.
            chains: One chain or a list of them, each a `Chain` or a chain id.
            cascade: Also cancel the chains that wait for these (default: False).
        """
        return await self._run(self._cancel(tx, chains, cascade))

    async def retry(self, tx: Tx[Conn], chains: OneOrMore[ChainOrId]) -> list[Chain[Any]]:
        """Give failed chains new attempts at the job that failed.

        If one has not failed, `ChainNotRetryable` is raised and none is changed.

        Args:
            tx: The open transaction that makes the change.
            chains: One chain or a list of them, each a `Chain` or a chain id.
        """
        return await self._run(self._retry(tx, chains))

    async def delete(self, tx: Tx[Conn], chains: OneOrMore[ChainOrId], *, cascade: bool = False) -> list[Chain[Any]]:
        """Delete chains with all their jobs.

        Returns them as they were; those that do not exist are left out.

        Raises `ChainInUse`, and deletes nothing, if a job of another chain waits or waited for one
        of them.

        Args:
            tx: The open transaction that makes the change.
            chains: One chain or a list of them, each a `Chain` or a chain id.
            cascade: Also delete the chains that these wait or waited for (default: False).
        """
        return await self._run(self._delete(tx, chains, cascade))

    @overload
    def take_over(
        self, tx: Tx[Conn], chain: ChainOrId, job_type: type[J]
    ) -> AbstractAsyncContextManager[Completion[J], None]: ...
    @overload
    def take_over(
        self, tx: Tx[Conn], chain: ChainOrId, job_type: str | None = None
    ) -> AbstractAsyncContextManager[Completion[Any], None]: ...
    def take_over(self, tx: Any, chain: Any, job_type: Any = None) -> Any:
        """Complete the chain's current job yourself, without a worker.

            async with client.take_over(tx, chain, Approve) as current:
                await current.settle(True)

        The job is locked until the transaction ends. Leaving the block without `settle` changes
        nothing.

        Args:
            tx: The open transaction that locks and completes the job.
            chain: A `Chain` or a chain id.
            job_type: The type of the current job, as a class or its name. A class types the result.
                Any other type raises `JobTypeMismatch`.
        """
        return self._take_over(tx, chain, job_type)

    @async_context
    async def _take_over(
        self, tx: Tx[Conn], chain: ChainOrId, job_type: TypeOrName | None
    ) -> AsyncIterator[Completion[Any]]:
        yield Completion(self._sessions, tx, await self._run(self._take(tx, chain, job_type)))

    # Waiting

    @overload
    async def wait(self, chain: ChainOrId, chain_type: type[Job[R, Any]], *, timeout: Duration | None = None) -> R: ...
    @overload
    async def wait(self, chain: Chain[Job[R, Any]], *, timeout: Duration | None = None) -> R: ...
    @overload
    async def wait(
        self, chain: ChainOrId, chain_type: str | None = None, *, timeout: Duration | None = None
    ) -> Any: ...
    async def wait(
        self, chain: ChainOrId, chain_type: TypeOrName | None = None, *, timeout: Duration | None = None
    ) -> Any:
        """Wait until the chain has an output, and return it.

        Raises `ChainFailed`, `ChainCancelled`, `ChainExpired` or `ChainNotFound` if the chain ends
        without one, and `WaitTimeout` if it does not end in time. Do not call it inside the
        transaction that starts the chain: no worker sees the chain before the commit.

        Args:
            chain: A `Chain` or a chain id.
            chain_type: The type that the chain started with, as a class or its name. A class types
                the result. Any other type raises `JobTypeMismatch`.
            timeout: How long to wait, as a timedelta or in seconds (default: no limit).
        """
        self._check_open()
        return await self._waiting.wait(chain_id(chain), self._type_name(chain_type), timeout)

    async def _read_chain(self, chain: str, chain_type: str | None) -> Chain[Any] | None:
        return await self._run(self._get_chain(chain, chain_type, None))

    async def _ended_chains(self, ids: list[str]) -> list[str]:
        return await self._run((queries.ended_chains(self._engine, ids), None))

    async def _run(self, plan: Plan[T, Conn]) -> T:
        return await self._sessions.run(*plan)


class Completion(Generic[J_co]):
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

    async def settle(self: Completion[Job[R, N]], result: R | N) -> None:
        """End the chain with a value, or continue it with another job.

        That job is then the current one.

        Args:
            result: The chain's output, or the next job.
        """
        connection = self._sessions.writing("settle", self._tx).connection
        await self._sessions.run(self._taken.settle(result), connection)
