"""What the async and the sync client share: arguments are checked and programs made here, the
clients drive them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypedDict

from typing_extensions import TypeVar

from queuert.client.sessions import Sessions, Tx
from queuert.contexts import context
from queuert.errors import InvalidArgument, TransactionNested
from queuert.jobs.chain import Chain
from queuert.jobs.job import Job
from queuert.jobs.options import make_options
from queuert.jobs.record import JobRecord
from queuert.model import Dedup, Duration, Order, Page, Status, TypeStats, check_unicode
from queuert.operations import chains, create, queries, take_over
from queuert.operations.engine import Engine
from queuert.ports.program import Program
from queuert.transaction import OpenTransaction

if TYPE_CHECKING:
    from queuert.client.client import Client
    from queuert.ports.notify import NotifyAdapter
    from queuert.ports.state import StateAdapter

Conn = TypeVar("Conn", default=Any)
T = TypeVar("T")

ChainOrId = Chain[Any] | str
JobOrId = JobRecord[Any] | str
TypeOrName = type[Job[Any, Any]] | str
OneOrMore: TypeAlias = T | Sequence[T]

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

    def __init__(self, sessions: Sessions[Conn]) -> None:
        self._sessions = sessions

    @property
    def _engine(self) -> Engine:
        return self._sessions.engine

    @property
    def hook_failures(self) -> int:
        """How many after-commit steps failed (each was logged). They never undo a commit."""
        return self._sessions.hook_failures

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

    # Reading

    def _get_chain(
        self, chain: ChainOrId, chain_type: TypeOrName | None, tx: Tx[Conn] | None
    ) -> Plan[Chain[Any] | None, Conn]:
        return queries.get_chain(self._engine, chain_id(chain), self._type_name(chain_type)), self._reading(tx)

    def _get_job(
        self, job: JobOrId, job_type: TypeOrName | None, tx: Tx[Conn] | None
    ) -> Plan[JobRecord[Any] | None, Conn]:
        return queries.get_job(self._engine, job_id(job), self._type_name(job_type)), self._reading(tx)

    def _list_chains(
        self, chain_type: TypeOrName | None, root_only: bool, options: ListOptions, tx: Tx[Conn] | None
    ) -> Plan[Page[Chain[Any]], Conn]:
        check_keywords("list_chains", options, ListOptions)
        where = queries.chain_filter(self._type_name(chain_type), root_only=root_only, **_filters(options))
        return queries.list_chains(self._engine, where, _page(options)), self._reading(tx)

    def _list_jobs(
        self, job_type: TypeOrName | None, options: ListOptions, tx: Tx[Conn] | None
    ) -> Plan[Page[JobRecord[Any]], Conn]:
        check_keywords("list_jobs", options, ListOptions)
        where = queries.job_filter(self._type_name(job_type), **_filters(options))
        return queries.list_jobs(self._engine, where, _page(options)), self._reading(tx)

    def _list_chain_jobs(
        self, chain: ChainOrId, options: PageOptions, tx: Tx[Conn] | None
    ) -> Plan[Page[JobRecord[Any]], Conn]:
        check_keywords("list_chain_jobs", options, PageOptions)
        return queries.list_chain_jobs(self._engine, chain_id(chain), _page(options)), self._reading(tx)

    def _list_blocked_jobs(
        self, chain: ChainOrId, options: PageOptions, tx: Tx[Conn] | None
    ) -> Plan[Page[JobRecord[Any]], Conn]:
        check_keywords("list_blocked_jobs", options, PageOptions)
        return queries.list_blocked_jobs(self._engine, chain_id(chain), _page(options)), self._reading(tx)

    def _get_blockers(self, job: JobOrId, tx: Tx[Conn] | None) -> Plan[list[Chain[Any]] | None, Conn]:
        return queries.get_blockers(self._engine, job_id(job)), self._reading(tx)

    def _stats(self, tx: Tx[Conn] | None) -> Plan[list[TypeStats], Conn]:
        return self._engine.state.stats(), self._reading(tx)

    # Changing

    def _trigger(self, tx: Tx[Conn], which: OneOrMore[ChainOrId]) -> Plan[list[Chain[Any]], Conn]:
        tx = self._writing("trigger", tx)
        return chains.trigger(self._engine, tx.hooks, chain_ids(which)), tx.connection

    def _retry(self, tx: Tx[Conn], which: OneOrMore[ChainOrId]) -> Plan[list[Chain[Any]], Conn]:
        tx = self._writing("retry", tx)
        return chains.retry(self._engine, tx.hooks, chain_ids(which)), tx.connection

    def _cancel(self, tx: Tx[Conn], which: OneOrMore[ChainOrId], cascade: bool) -> Plan[list[Chain[Any]], Conn]:
        tx = self._writing("cancel", tx)
        return chains.cancel(self._engine, tx.hooks, chain_ids(which), cascade=cascade), tx.connection

    def _delete(self, tx: Tx[Conn], which: OneOrMore[ChainOrId], cascade: bool) -> Plan[list[Chain[Any]], Conn]:
        tx = self._writing("delete", tx)
        return chains.delete(self._engine, tx.hooks, chain_ids(which), cascade=cascade), tx.connection

    def _take(self, tx: Tx[Conn], chain: ChainOrId, job_type: TypeOrName | None) -> Plan[take_over.TakenOver, Conn]:
        tx = self._writing("take_over", tx)
        return take_over.take_over(self._engine, tx.hooks, chain_id(chain), self._type_name(job_type)), tx.connection

    def _type_name(self, job_type: TypeOrName | None) -> str | None:
        if job_type is None:
            return None
        if isinstance(job_type, str):
            return check_unicode(job_type, "the name of a job type")
        return self._engine.jobs.require(job_type).name


@context
def in_own_transaction(operation: str) -> Iterator[None]:
    """Around the transaction of a call that opens one by itself: tells what to call inside an open
    one.
    """
    try:
        yield
    except TransactionNested as error:
        raise TransactionNested(
            f"{operation}() opens a transaction of its own, but this task or thread already has one open: "
            f"call client.{operation.replace('submit', 'start')}(tx, …) with the open one"
        ) from error


def sessions_of(client: BaseClient[Conn]) -> Sessions[Conn]:
    """How a worker uses the database of its client."""
    return client._sessions  # pyright: ignore[reportPrivateUsage]


def adapters_of(client: Client[Conn]) -> tuple[StateAdapter[Conn], NotifyAdapter]:
    """The storage and the channel of a worker's client."""
    return client._state, client._notify  # pyright: ignore[reportPrivateUsage]


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
