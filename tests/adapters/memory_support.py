"""A memory store with a clock that stands still, and short words for what the tests do with it."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from queuert.adapters.memory import MemoryConnection, MemoryOperations, MemoryProvider, MemoryStore
from queuert.ports.program import Program
from queuert.ports.provider import run
from queuert.records.listings import ChainFilter, JobFilter, PageRequest
from queuert.records.model import (
    BlockerRef,
    Claimed,
    ClaimRequest,
    ClaimResult,
    JobRow,
    NewJob,
    QueueLimit,
    Settlement,
    TypeLimit,
)

T = TypeVar("T")

START = datetime(2030, 1, 1, tzinfo=UTC)
ALL = PageRequest(limit=1_000_000)


class _RollBack(Exception):
    pass


class Memory:
    """Everything outside a transaction unless a connection is given."""

    def __init__(self, **options: Any) -> None:
        self.time = START
        self.store = MemoryStore(lambda: self.time, **options)
        self.provider = MemoryProvider(self.store)
        self.ops = MemoryOperations()

    def do(self, program: Program[T], tx: MemoryConnection | None = None) -> T:
        return run(self.provider, tx, program)

    def pass_time(self, seconds: float) -> None:
        self.time += timedelta(seconds=seconds)

    def create(self, *jobs: NewJob, tx: MemoryConnection | None = None) -> None:
        self.do(self.ops.create_jobs(jobs), tx)

    def job(self, job_id: str, tx: MemoryConnection | None = None) -> JobRow | None:
        return self.do(self.ops.get_jobs([job_id]), tx)[0]

    def status(self, job_id: str, tx: MemoryConnection | None = None) -> str | None:
        row = self.job(job_id, tx)
        return None if row is None else row.status

    def claim(self, *queues: QueueLimit, limit: int = 1000, tx: MemoryConnection | None = None) -> ClaimResult:
        request = ClaimRequest("w", limit, queues or (queue("t"),))
        return self.do(self.ops.claim(request), tx)

    def claimed_ids(self, *queues: QueueLimit, limit: int = 1000, tx: MemoryConnection | None = None) -> list[str]:
        return [claimed.job.id for claimed in self.claim(*queues, limit=limit, tx=tx).jobs]

    def complete(self, claimed: Claimed, tx: MemoryConnection | None = None, **how: Any) -> None:
        done = Settlement(job_id=claimed.job.id, token=claimed.job.token, status="completed", **how)
        assert self.do(self.ops.settle([done]), tx).applied == [True]

    def end(self, job_id: str, status: Any = "completed", tx: MemoryConnection | None = None) -> None:
        done = Settlement(job_id=job_id, token=None, status=status)
        assert self.do(self.ops.settle([done]), tx).applied == [True]

    @contextmanager
    def rolled_back(self) -> Generator[MemoryConnection, None, None]:
        """A transaction that comes to nothing."""
        with suppress(_RollBack), self.provider.transaction() as tx:
            yield tx
            raise _RollBack

    def everything(self, tx: MemoryConnection | None = None) -> list[Any]:
        """All that queries can tell. Two stores with equal answers are equal."""
        jobs = self.do(self.ops.list_jobs(JobFilter(), ALL), tx).rows
        ids = [row.id for row in jobs]
        types = sorted({row.type_name for row in jobs})
        statuses: Sequence[Any] = sorted({row.status for row in jobs})
        return [
            jobs,
            self.do(self.ops.get_jobs(ids), tx),
            self.do(self.ops.get_chains(ids), tx),
            self.do(self.ops.list_chains(ChainFilter(), ALL), tx),
            self.do(self.ops.list_chains(ChainFilter(root_only=True), ALL), tx),
            [self.do(self.ops.list_chains(ChainFilter(statuses=(status,)), ALL), tx) for status in statuses],
            [self.do(self.ops.list_chain_jobs(job_id, ALL), tx) for job_id in ids],
            [self.do(self.ops.list_blocked_jobs(job_id, ALL), tx) for job_id in ids],
            self.do(self.ops.job_blockers(ids), tx),
            [self.do(self.ops.next_available_in([name]), tx) for name in types],
            self.do(self.ops.stats(), tx),
        ]


def new_job(job_id: str, type_name: str = "t", *, waits_for: Sequence[str] = (), **options: Any) -> NewJob:
    blockers = tuple(BlockerRef(chain_id, options.get("chain_type", type_name)) for chain_id in waits_for)
    values: dict[str, Any] = {"chain_id": job_id, "chain_type": type_name, "chain_index": 0, "input": b"{}", **options}
    return NewJob(id=job_id, type_name=type_name, blockers=blockers, **values)


def next_job(row: JobRow, job_id: str, type_name: str = "t", **options: Any) -> NewJob:
    return NewJob(
        id=job_id,
        type_name=type_name,
        chain_id=row.chain_id,
        chain_type=row.chain_type,
        chain_index=row.chain_index + 1,
        input=b"{}",
        **options,
    )


def queue(*types: str | TypeLimit, priority: int = 0, max_concurrency: int | None = None) -> QueueLimit:
    limits = tuple(TypeLimit(each, 1000, 60.0) if isinstance(each, str) else each for each in types)
    names = tuple(limit.name for limit in limits)
    return QueueLimit("+".join(names), priority, limits, names, max_concurrency)
