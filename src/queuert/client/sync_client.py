"""The sync client: the same methods without `await`, for Django, Flask, scripts and threads.

Written by tools/make_sync.py from client.py: change that file instead, and run `make format`.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, suppress
from typing import Any, Generic, Self, overload

from typing_extensions import TypeVar, Unpack

from queuert.client.base import (
    BaseClient,
    ChainOrId,
    Conn,
    JobOrId,
    ListOptions,
    OpenBlock,
    PageOptions,
    Plan,
    StartOptions,
    Tx,
    TypeOrName,
    chain_id,
)
from queuert.client.waiting import SyncChainWaiting
from queuert.contexts import context
from queuert.ids import GenerateId, ValidateId, generate_uuid7, validate_uuid
from queuert.jobs.chain import Chain
from queuert.jobs.job import EntryJob, Job
from queuert.jobs.record import JobRecord
from queuert.jobs.registry import Registry
from queuert.model import Duration, Page, Status, TypeStats
from queuert.operations.notifications import Publisher
from queuert.operations.observers import all_of
from queuert.operations.publishing import SyncBoundedPublisher
from queuert.operations.take_over import TakenOver
from queuert.operations.watched import watched
from queuert.ports.notify import SyncNotifyAdapter
from queuert.ports.observer import Observer
from queuert.ports.provider import SyncBlock, run
from queuert.ports.state import SyncStateAdapter
from queuert.transaction import Hooks, Transaction

J = TypeVar("J", bound=Job[Any, Any])
J_co = TypeVar("J_co", bound=Job[Any, Any], covariant=True)
E = TypeVar("E", bound=EntryJob[Any, Any])
R = TypeVar("R")
N = TypeVar("N")
T = TypeVar("T")


class SyncClient(BaseClient[Conn]):
    """Starts, reads, changes and awaits job chains. Made by `queuert.connect_sync`; use it in a `with` block.

    Mutations take a `Transaction` first: what they do commits with everything else in it, or not at all. Reads
    take one as `tx=` to see its uncommitted work, else they use a connection of their own. Where the connection or
    session tells when its transaction has ended (Django's, SQLAlchemy's), it can itself be given as the transaction.
    """

    def __init__(
        self,
        state: SyncStateAdapter[Conn],
        notify: SyncNotifyAdapter,
        jobs: Registry,
        *,
        generate_id: GenerateId = generate_uuid7,
        validate_id: ValidateId = validate_uuid,
        poll_interval: float = 1.0,
        migrate: bool = True,
        observers: Sequence[Observer] = (),
    ) -> None:
        told = all_of(observers)
        self._publisher = SyncBoundedPublisher(notify)
        publisher: Publisher = self._publisher
        if told is not None:
            state, notify, publisher = watched(state, notify, publisher, told)
        super().__init__(state.operations, state.provider, publisher, jobs, generate_id, validate_id, told)
        self.state = state
        self.notify = notify
        self._provider = state.provider
        self._migrate_on_open = migrate
        self._waiting = SyncChainWaiting(notify, self.get_chain, poll_interval)

    def __enter__(self) -> Self:
        self._check_open()
        try:
            if self._migrate_on_open:
                self.migrate()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Release everything the client opened itself. A second call does nothing."""
        if self._closed:
            return
        self._closed = True
        # Each in spite of what becomes of the one before: a close that is cancelled must not leave the rest open.
        with ExitStack() as closing:
            closing.callback(self.state.close)
            closing.callback(self.notify.close)
            closing.callback(self._publisher.stop)
            closing.callback(self._waiting.close)

    def migrate(self) -> list[int]:
        """Bring the schema up to date; returns the versions that were applied."""
        return self._run((self.engine.state.migrate(), None))

    def vacuum(self) -> None:
        """Give free space back to the file system, as far as that is possible while others work."""
        self._run((self.engine.state.vacuum(), None))

    # Transactions

    def transaction(self) -> AbstractContextManager[Transaction[Conn], None]:
        """Open a transaction; it commits at the end of the block, and is rolled back by an error."""
        return self._begin(None)

    def _begin(self, block: SyncBlock[Conn] | None) -> AbstractContextManager[Transaction[Conn], None]:
        opened = OpenBlock()
        transaction = self._transaction(opened, block)
        opened.is_that_of(transaction)
        return transaction

    @context
    def _transaction(self, opened: OpenBlock, block: SyncBlock[Conn] | None) -> Iterator[Transaction[Conn]]:
        self._check_open()
        thread = threading.get_ident()
        self._nesting.enter(thread, opened)
        try:
            with self._provider.transaction() if block is None else block as connection:
                tx = Transaction(connection, self._provider, joined=False)
                try:
                    yield tx
                finally:
                    tx.end()
        finally:
            self._nesting.leave(thread)
        self.flush(tx.hooks)

    def after_commit(self, connection: Conn) -> AbstractContextManager[Transaction[Conn], None]:
        """Join a transaction that is yours to commit. Stand this block outside of the one that commits.

        Entering does no I/O. When the block ends without error, what the jobs have to announce is sent; if the
        connection is then still inside a transaction, that is a `TransactionMisused` error.
        """
        return self._after_commit(connection)

    @context
    def _after_commit(self, connection: Conn) -> Iterator[Transaction[Conn]]:
        tx = self._join(connection)
        try:
            yield tx
        finally:
            tx.end()
        self._check_ended(tx, connection)
        self._flush_joined(tx.hooks)

    def savepoint(self, tx: Tx[Conn]) -> AbstractContextManager[None, None]:
        """A part of the transaction that may fail on its own: an error rolls back this block, and no more."""
        return self._savepoint(tx)

    @context
    def _savepoint(self, tx: Tx[Conn]) -> Iterator[None]:
        transaction = self._writing("savepoint", tx)
        roll_back = transaction.hooks.checkpoint()
        try:
            with self._provider.savepoint(transaction.connection):
                yield
        except BaseException:
            roll_back()
            raise

    def _flush_joined(self, hooks: Hooks) -> None:
        program = self._unconfirmed(hooks)
        if program is not None:
            # If the database cannot be asked, the end without an error is believed.
            with suppress(Exception):
                self._run((program, None))
        self.flush(hooks)

    def flush(self, hooks: Hooks) -> None:
        """Do what waited for a commit. Never raises: the commit stands whatever happens here."""
        hooks.flush()
        self.hook_failures += hooks.failures

    def _flush_enlisted(self, hooks: Hooks) -> None:
        self._flush_joined(hooks)

    # Starting

    def start(self, tx: Tx[Conn], job: E, **options: Unpack[StartOptions]) -> Chain[E]:
        """Start a chain with its first job. The keywords go over those of `job.set(…)`."""
        (chain,) = self._run(self._start(tx, [job], options, "start"))
        return chain

    def start_many(self, tx: Tx[Conn], jobs: Sequence[E]) -> list[Chain[E]]:
        """Start a chain for each job, of any types, in one round trip: all or none."""
        return self._run(self._start(tx, jobs, {}, "start_many"))

    # Reading

    @overload
    def get_chain(self, which: type[J], chain: ChainOrId, /, *, tx: Tx[Conn] | None = None) -> Chain[J] | None: ...
    @overload
    def get_chain(self, which: Chain[J], /, *, tx: Tx[Conn] | None = None) -> Chain[J] | None: ...
    @overload
    def get_chain(self, which: str, /, *, tx: Tx[Conn] | None = None) -> Chain[Any] | None: ...
    def get_chain(self, which: Any, chain: Any = None, /, *, tx: Tx[Conn] | None = None) -> Any:
        """A chain as it is now, or None. With its type first, the result is typed and the type is checked."""
        return self._run(self._get_chain(which, chain, tx))

    @overload
    def get_job(self, which: type[J], job: JobOrId, /, *, tx: Tx[Conn] | None = None) -> JobRecord[J] | None: ...
    @overload
    def get_job(self, which: JobRecord[J], /, *, tx: Tx[Conn] | None = None) -> JobRecord[J] | None: ...
    @overload
    def get_job(self, which: str, /, *, tx: Tx[Conn] | None = None) -> JobRecord[Any] | None: ...
    def get_job(self, which: Any, job: Any = None, /, *, tx: Tx[Conn] | None = None) -> Any:
        """A stored job as it is now, or None. With its type first, the result is typed and the type is checked."""
        return self._run(self._get_job(which, job, tx))

    @overload
    def list_chains(
        self,
        job_type: type[J],
        *,
        root_only: bool = False,
        tx: Tx[Conn] | None = None,
        **options: Unpack[ListOptions],
    ) -> Page[Chain[J]]: ...
    @overload
    def list_chains(
        self,
        job_type: str | None = None,
        *,
        root_only: bool = False,
        tx: Tx[Conn] | None = None,
        **options: Unpack[ListOptions],
    ) -> Page[Chain[Any]]: ...
    def list_chains(
        self,
        job_type: TypeOrName | None = None,
        *,
        root_only: bool = False,
        tx: Tx[Conn] | None = None,
        **options: Unpack[ListOptions],
    ) -> Page[Chain[Any]]:
        """A page of chains in the order of their creation. `root_only`: those that no job has as a blocker.

        With a `status`, in the order in which their current jobs were created.
        """
        return self._run(self._list_chains(job_type, root_only, options, tx))

    @overload
    def list_jobs(
        self, job_type: type[J], *, tx: Tx[Conn] | None = None, **options: Unpack[ListOptions]
    ) -> Page[JobRecord[J]]: ...
    @overload
    def list_jobs(
        self, job_type: str | None = None, *, tx: Tx[Conn] | None = None, **options: Unpack[ListOptions]
    ) -> Page[JobRecord[Any]]: ...
    def list_jobs(
        self,
        job_type: TypeOrName | None = None,
        *,
        tx: Tx[Conn] | None = None,
        **options: Unpack[ListOptions],
    ) -> Page[JobRecord[Any]]:
        """A page of jobs in the order of their creation."""
        return self._run(self._list_jobs(job_type, options, tx))

    def list_chain_jobs(
        self, chain: ChainOrId, *, tx: Tx[Conn] | None = None, **options: Unpack[PageOptions]
    ) -> Page[JobRecord[Any]]:
        """The jobs of a chain, first to last."""
        return self._run(self._list_chain_jobs(chain, options, tx))

    def list_blocked_jobs(
        self, chain: ChainOrId, *, tx: Tx[Conn] | None = None, **options: Unpack[PageOptions]
    ) -> Page[JobRecord[Any]]:
        """The jobs that have this chain as a blocker (also those that no longer wait)."""
        return self._run(self._list_blocked_jobs(chain, options, tx))

    def get_blockers(self, job: JobOrId, *, tx: Tx[Conn] | None = None) -> list[Chain[Any]]:
        """The chains that a job waits (or waited) for, in the order they were named."""
        return self._run(self._get_blockers(job, tx))

    def stats(self, *, tx: Tx[Conn] | None = None) -> list[TypeStats]:
        """Open and failed jobs by type. Cheap: completed jobs are not looked at."""
        return self._run(self._stats(tx))

    # Changing

    def trigger(self, tx: Tx[Conn], *chains: ChainOrId) -> list[Chain[Any]]:
        """Make chains that wait for their time due now: all of them, or `ChainNotTriggerable` and none."""
        return self._run(self._trigger(tx, chains))

    def cancel(self, tx: Tx[Conn], *chains: ChainOrId, cascade: bool = False) -> list[Chain[Any]]:
        """Cancel chains that have not ended; with `cascade` also those that wait for them. Returns the cancelled.

        A worker that is running such a job is told to stop, and whatever it still does has no effect.
        """
        return self._run(self._cancel(tx, chains, cascade))

    def retry(self, tx: Tx[Conn], *chains: ChainOrId) -> list[Chain[Any]]:
        """Give failed chains new attempts from where they stopped: all of them, or `ChainNotRetryable` and none."""
        return self._run(self._retry(tx, chains))

    def delete(self, tx: Tx[Conn], *chains: ChainOrId, cascade: bool = False) -> list[Chain[Any]]:
        """Delete chains; with `cascade` also the chains they wait (or waited) for. Returns them as they were.

        `ChainInUse`, and nothing is deleted, if a job outside still needs one of them.
        """
        return self._run(self._delete(tx, chains, cascade))

    @overload
    def take_over(
        self, tx: Tx[Conn], chain: ChainOrId, job_type: type[J]
    ) -> AbstractContextManager[SyncCompletion[J], None]: ...
    @overload
    def take_over(self, tx: Tx[Conn], chain: ChainOrId) -> AbstractContextManager[SyncCompletion[Any], None]: ...
    def take_over(self, tx: Any, chain: Any, job_type: Any = None) -> Any:
        """Settle the chain's current job yourself, without a worker; it is locked until the transaction ends.

        With a type: `JobTypeMismatch` if the chain has come to another job. Leaving the block without `settle`
        changes nothing.
        """
        return self._take_over(tx, chain, job_type)

    @context
    def _take_over(self, tx: Tx[Conn], chain: ChainOrId, job_type: TypeOrName | None) -> Iterator[SyncCompletion[Any]]:
        yield SyncCompletion(self, tx, self._run(self._take(tx, chain, job_type)))

    # Waiting

    def wait(self, chain: Chain[Job[R, Any]], *, timeout: Duration | None = None) -> R:
        """The chain's output, once it has one.

        Raises `ChainFailed`, `ChainCancelled`, `ChainExpired` or `ChainNotFound` if it ends in another way, and
        `WaitTimeout` if it does not end in time. Do not call it inside the transaction that starts the chain.
        """
        self._check_open()
        output: R = self._waiting.wait(chain_id(chain), timeout)
        return output

    def _run(self, plan: Plan[T, Conn]) -> T:
        program, connection = plan
        self._check_open()
        return run(self._provider, connection, program)


class SyncCompletion(Generic[J_co]):
    """A job taken over: `job` is its typed input, `status` what it was (it may be blocked or running)."""

    def __init__(self, client: SyncClient[Any], tx: Tx[Any], taken: TakenOver) -> None:
        self._client = client
        self._tx = tx
        self._taken = taken

    @property
    def job(self) -> J_co:
        job: Any = self._taken.job
        return job  # type: ignore[no-any-return]

    @property
    def status(self) -> Status:
        return self._taken.row.status

    def settle(self: SyncCompletion[Job[R, N]], result: R | N) -> None:
        """Finish the job with a value, or continue its chain with another job, which then is the current one."""
        self._client._run(self._client._settle_taken(self._tx, self._taken, result))
