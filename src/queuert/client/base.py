"""What the async and the sync client share: arguments are checked and programs made here, the clients drive them."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Awaitable, Hashable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Generic, TypeAlias, TypedDict, cast

from typing_extensions import TypeVar

from queuert.contexts import context
from queuert.errors import (
    ClientClosed,
    InvalidArgument,
    TransactionMisused,
    TransactionNested,
    TransactionRequired,
)
from queuert.ids import GenerateId, ValidateId
from queuert.jobs.chain import Chain
from queuert.jobs.job import Job
from queuert.jobs.options import make_options
from queuert.jobs.record import JobRecord
from queuert.jobs.registry import Registry
from queuert.model import Dedup, Duration, Order, Page, Status, TypeStats, check_unicode
from queuert.operations import chains, create, queries, take_over
from queuert.operations.engine import Engine
from queuert.operations.notifications import Publisher
from queuert.operations.observers import Observers
from queuert.ports.program import Program
from queuert.ports.provider import AsyncProvider, Enlisting, SyncProvider
from queuert.ports.state import StateOperations
from queuert.transaction import Enlisted, Hooks, Transaction

Conn = TypeVar("Conn", default=Any)
T = TypeVar("T")

ChainOrId = Chain[Any] | str
JobOrId = JobRecord[Any] | str
TypeOrName = type[Job[Any, Any]] | str
OneOrMore: TypeAlias = T | Sequence[T]

Tx: TypeAlias = Transaction[Conn] | Conn
"""A transaction, or, where the provider can tell when that ends, the connection or session that it is open on."""

Plan = tuple[Program[T], Conn | None]
"""A program, and the connection to run it on (None: one of the client's own)."""


class StartOptions(TypedDict, total=False):
    """The keywords of `start`. They go over those that the job carries from `job.set(…)`."""

    dedup: Dedup | str | None
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

    status: Status | None
    ids: Sequence[str] | None
    created_after: datetime | None
    created_before: datetime | None
    order: Order


class ListOptions(IterOptions, total=False):
    """The keywords of `list_jobs` and `list_chains`."""

    limit: int
    cursor: str | None


class BaseClient(Generic[Conn]):
    """Made by its subclasses; the names with an underscore are the shared half of their methods."""

    def __init__(
        self,
        operations: StateOperations,
        provider: AsyncProvider[Conn] | SyncProvider[Conn],
        notify: Publisher,
        jobs: Registry,
        generate_id: GenerateId,
        validate_id: ValidateId,
        observers: Observers | None,
    ) -> None:
        self.jobs = jobs
        self.engine = Engine(jobs, operations, notify, generate_id, validate_id, observers)
        self.hook_failures = 0
        """How many after-commit steps failed (each was logged). They never undo a commit."""
        self._base_provider = provider
        self._enlisting = cast("Enlisting[Conn] | None", provider if hasattr(provider, "enlist") else None)
        self._closed = False
        self._nesting = Nesting()

    def flush(self, hooks: Hooks) -> Awaitable[None] | None:
        """Do what waited for a commit; the subclasses know how."""
        raise NotImplementedError

    def _flush_enlisted(self, hooks: Hooks) -> Awaitable[None] | None:
        """A transaction that was not ours has been committed, as far as its owner knows: PostgreSQL answers the COMMIT
        of a broken one with a rollback, and no driver minds."""
        raise NotImplementedError

    # Which connection

    def _check_open(self) -> None:
        if self._closed:
            raise ClientClosed

    def _writing(self, operation: str, tx: Tx[Conn]) -> Transaction[Conn]:
        """The transaction that a mutation was given, by itself or by the connection that it is open on."""
        self._check_open()
        if isinstance(tx, Transaction):
            transaction = cast("Transaction[Conn]", tx)
            self._connection(transaction)
            return transaction
        if self._enlisting is None:
            raise TransactionRequired(operation, tx)
        enlisted = self._enlisting.enlist(tx, operation, lambda: Enlisted(self._flush_enlisted))
        return Transaction(tx, self._base_provider, joined=True, hooks=enlisted.hooks)

    def _reading(self, tx: Tx[Conn] | None) -> Conn | None:
        self._check_open()
        if tx is None:
            return None
        if isinstance(tx, Transaction):
            return self._connection(cast("Transaction[Conn]", tx))
        if self._enlisting is None:
            raise InvalidArgument(
                f"tx= takes a Transaction, got {type(tx).__name__}: pass what client.transaction() or "
                "client.after_commit(connection) gave you, or leave it out"
            )
        self._base_provider.check(tx)
        return tx

    def _connection(self, tx: Transaction[Conn]) -> Conn:
        connection = tx.connection
        if tx.provider is not self._base_provider:
            raise TransactionMisused("this transaction belongs to another client: use the client that opened it")
        if tx.joined:
            self._base_provider.check(connection)
        return connection

    def _join(self, connection: Conn) -> Transaction[Conn]:
        self._check_open()
        try:
            self._base_provider.in_transaction(connection)
        except AttributeError:
            raise TransactionMisused(
                f"after_commit() takes a connection of this database's driver, got {type(connection).__name__}"
            ) from None
        return Transaction(connection, self._base_provider, joined=True)

    def _check_ended(self, tx: Transaction[Conn], connection: Conn) -> None:
        """A joined block has ended: the user's transaction must have, too."""
        if self._base_provider.in_transaction(connection):
            tx.hooks.discard()
            raise TransactionMisused(
                "after_commit() ended while the connection is still inside a transaction, so nothing was announced. "
                "Put after_commit() outside of the block that commits: "
                "`with client.after_commit(connection) as tx, <your transaction>:`"
            )

    def _unconfirmed(self, hooks: Hooks) -> Program[None] | None:
        """A look at what a joined transaction has left behind, before observers are told; None if there are none."""
        return None if self.engine.observers is None else self.engine.observations(hooks).confirm()

    # Starting

    def _start(
        self, tx: Tx[Conn], jobs: Sequence[Job[Any, Any]], options: StartOptions, operation: str
    ) -> Plan[list[Chain[Any]], Conn]:
        tx = self._writing(operation, tx)
        if not isinstance(jobs, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidArgument(f"{operation}() takes a list of jobs, got {jobs!r}")
        check_keywords(operation, options, StartOptions)
        extra = make_options(**options) if options else None
        return create.start(self.engine, tx.hooks, jobs, extra), tx.connection

    # Reading

    def _get_chain(
        self, chain: ChainOrId, chain_type: TypeOrName | None, tx: Tx[Conn] | None
    ) -> Plan[Chain[Any] | None, Conn]:
        return queries.get_chain(self.engine, chain_id(chain), self._type_name(chain_type)), self._reading(tx)

    def _get_job(
        self, job: JobOrId, job_type: TypeOrName | None, tx: Tx[Conn] | None
    ) -> Plan[JobRecord[Any] | None, Conn]:
        return queries.get_job(self.engine, job_id(job), self._type_name(job_type)), self._reading(tx)

    def _list_chains(
        self, chain_type: TypeOrName | None, root_only: bool, options: ListOptions, tx: Tx[Conn] | None
    ) -> Plan[Page[Chain[Any]], Conn]:
        check_keywords("list_chains", options, ListOptions)
        where = queries.chain_filter(self._type_name(chain_type), root_only=root_only, **_filters(options))
        return queries.list_chains(self.engine, where, _page(options)), self._reading(tx)

    def _list_jobs(
        self, job_type: TypeOrName | None, options: ListOptions, tx: Tx[Conn] | None
    ) -> Plan[Page[JobRecord[Any]], Conn]:
        check_keywords("list_jobs", options, ListOptions)
        where = queries.job_filter(self._type_name(job_type), **_filters(options))
        return queries.list_jobs(self.engine, where, _page(options)), self._reading(tx)

    def _list_chain_jobs(
        self, chain: ChainOrId, options: PageOptions, tx: Tx[Conn] | None
    ) -> Plan[Page[JobRecord[Any]], Conn]:
        check_keywords("list_chain_jobs", options, PageOptions)
        return queries.list_chain_jobs(self.engine, chain_id(chain), _page(options)), self._reading(tx)

    def _list_blocked_jobs(
        self, chain: ChainOrId, options: PageOptions, tx: Tx[Conn] | None
    ) -> Plan[Page[JobRecord[Any]], Conn]:
        check_keywords("list_blocked_jobs", options, PageOptions)
        return queries.list_blocked_jobs(self.engine, chain_id(chain), _page(options)), self._reading(tx)

    def _get_blockers(self, job: JobOrId, tx: Tx[Conn] | None) -> Plan[list[Chain[Any]] | None, Conn]:
        return queries.get_blockers(self.engine, job_id(job)), self._reading(tx)

    def _stats(self, tx: Tx[Conn] | None) -> Plan[list[TypeStats], Conn]:
        return self.engine.state.stats(), self._reading(tx)

    # Changing

    def _trigger(self, tx: Tx[Conn], which: OneOrMore[ChainOrId]) -> Plan[list[Chain[Any]], Conn]:
        tx = self._writing("trigger", tx)
        return chains.trigger(self.engine, tx.hooks, chain_ids(which)), tx.connection

    def _retry(self, tx: Tx[Conn], which: OneOrMore[ChainOrId]) -> Plan[list[Chain[Any]], Conn]:
        tx = self._writing("retry", tx)
        return chains.retry(self.engine, tx.hooks, chain_ids(which)), tx.connection

    def _cancel(self, tx: Tx[Conn], which: OneOrMore[ChainOrId], cascade: bool) -> Plan[list[Chain[Any]], Conn]:
        tx = self._writing("cancel", tx)
        return chains.cancel(self.engine, tx.hooks, chain_ids(which), cascade=cascade), tx.connection

    def _delete(self, tx: Tx[Conn], which: OneOrMore[ChainOrId], cascade: bool) -> Plan[list[Chain[Any]], Conn]:
        tx = self._writing("delete", tx)
        return chains.delete(self.engine, tx.hooks, chain_ids(which), cascade=cascade), tx.connection

    def _take(self, tx: Tx[Conn], chain: ChainOrId, job_type: TypeOrName | None) -> Plan[take_over.TakenOver, Conn]:
        tx = self._writing("take_over", tx)
        return take_over.take_over(self.engine, tx.hooks, chain_id(chain), self._type_name(job_type)), tx.connection

    def _settle_taken(self, tx: Tx[Conn], taken: take_over.TakenOver, result: Any) -> Plan[None, Conn]:
        return taken.settle(result), self._writing("settle", tx).connection

    def _type_name(self, job_type: TypeOrName | None) -> str | None:
        if job_type is None:
            return None
        if isinstance(job_type, str):
            return check_unicode(job_type, "the name of a job type")
        return self.jobs.require(job_type).name


class Nesting:
    """Who has a transaction open. A second one in the same task or thread would wait for the first for ever."""

    def __init__(self) -> None:
        self._blocks: dict[Hashable, OpenBlock | None] = {}
        self._lock = threading.Lock()

    def enter(self, holder: Hashable, block: OpenBlock | None = None) -> None:
        with self._lock:
            if holder in self._blocks:
                raise TransactionNested(
                    "client.transaction() inside another one of the same task or thread: pass the outer tx on, "
                    "or use client.savepoint(tx) for a part that may fail on its own"
                )
            self._blocks[holder] = block

    def leave(self, holder: Hashable) -> None:
        with self._lock:
            self._blocks.pop(holder, None)

    def left_open_by(self, holder: Hashable) -> OpenBlock | None:
        """The transaction that a task or thread, now at its end, has opened and never left."""
        return self._blocks.get(holder)


@context
def in_own_transaction(operation: str) -> Iterator[None]:
    """Around the transaction of a call that opens one by itself: tells what to call inside an open one."""
    try:
        yield
    except TransactionNested as error:
        raise TransactionNested(
            f"{operation}() opens a transaction of its own, but this task or thread already has one open: "
            f"call client.{operation.replace('submit', 'start')}(tx, …) with the open one"
        ) from error


class OpenBlock:
    """The block of a transaction, so that whoever ran the code that has forgotten it can end it."""

    __slots__ = ("_block",)

    def __init__(self) -> None:
        self._block: weakref.ref[Any] | None = None

    def is_that_of(self, block: Any) -> None:
        # Weakly: if nobody else holds on to it, the interpreter ends the block by itself, and that is better.
        self._block = weakref.ref(block)

    def get(self) -> Any:
        """The block; None if the interpreter is about to end it."""
        return None if self._block is None else self._block()


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
    """A keyword that is not known must not pass in silence: a misspelt filter would list everything."""
    unknown = given.keys() - (known.__required_keys__ | known.__optional_keys__)
    if unknown:
        raise InvalidArgument(f"{operation}() has no keyword {', '.join(sorted(unknown))}")


def _page(options: PageOptions) -> queries.PageQuery:
    return queries.PageQuery(options.get("limit", 50), options.get("cursor"), options.get("order", "asc"))


def _filters(options: ListOptions) -> queries.Filters:
    return {
        "status": options.get("status"),
        "ids": options.get("ids"),
        "created_after": options.get("created_after"),
        "created_before": options.get("created_before"),
    }
