"""Adapters that are wrong on purpose, each in one respect: the machine has to find out."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from msgspec.structs import replace
from tests.machine.driver import AnyStateAdapter
from tests.machine.machine import Factory
from tests.machine.world import Clock

from queuert.adapters.memory import MemoryConnection, MemoryOperations, MemoryProvider, MemoryStore
from queuert.adapters.memory import deleting as memory_deleting
from queuert.adapters.memory import settling as memory_settling
from queuert.adapters.memory.operations import _write
from queuert.adapters.memory.tables import Tables
from queuert.model import (
    ChainFilter,
    ChainRow,
    ClaimRequest,
    ClaimResult,
    Created,
    Deleted,
    JobFilter,
    JobRow,
    Lease,
    NewJob,
    PageRequest,
    Settled,
    Settlement,
    TypeStats,
)
from queuert.ports.program import Program
from queuert.ports.state import SyncStateAdapter


class SettlesWithAnyToken(MemoryOperations):
    def settle(self, settlements: Sequence[Settlement]) -> Program[Settled]:
        return super().settle([each if each.status == "pending" else replace(each, token=None) for each in settlements])


class RenewsWithAnyToken(MemoryOperations):
    def renew(self, leases: Sequence[Lease]) -> Program[list[str]]:
        rows = yield from self.get_jobs([lease.job_id for lease in leases])
        tokens = [-1 if row is None or row.token is None else row.token for row in rows]
        fresh = [replace(lease, token=token) for lease, token in zip(leases, tokens, strict=True)]
        return (yield from super().renew(fresh))


class NeverUnblocks(MemoryOperations):
    def settle(self, settlements: Sequence[Settlement]) -> Program[Settled]:
        def settle(tables: Tables) -> Settled:
            settled = memory_settling.settle(tables, settlements)
            for each in settled.unblocked:
                tables.put(replace(tables.rows[each.job_id], status="blocked", blockers_left=1))
            return replace(settled, unblocked=[])

        return _write(settle)


class KeepsAttemptsGivenBack(MemoryOperations):
    def settle(self, settlements: Sequence[Settlement]) -> Program[Settled]:
        def settle(tables: Tables) -> Settled:
            settled = memory_settling.settle(tables, settlements)
            for each, held in zip(settlements, settled.held, strict=True):
                if held and each.give_back:
                    row = tables.rows[each.job_id]
                    tables.put(replace(row, attempt=row.attempt + 1))
            return settled

        return _write(settle)


class IgnoresQueueCaps(MemoryOperations):
    def claim(self, request: ClaimRequest) -> Program[ClaimResult]:
        queues = tuple(replace(queue, max_concurrency=None) for queue in request.queues)
        return super().claim(replace(request, queues=queues))


class IgnoresClusterCap(MemoryOperations):
    def claim(self, request: ClaimRequest) -> Program[ClaimResult]:
        return super().claim(replace(request, cluster_cap=None))


class IgnoresQueuePriorities(MemoryOperations):
    def claim(self, request: ClaimRequest) -> Program[ClaimResult]:
        return super().claim(replace(request, queues=tuple(replace(queue, priority=0) for queue in request.queues)))


class OverlooksDeadlines(MemoryOperations):
    def claim(self, request: ClaimRequest) -> Program[ClaimResult]:
        result = yield from super().claim(request)
        return replace(result, jobs=[replace(claimed, expired=False) for claimed in result.jobs])


class IgnoresExcludedChains(MemoryOperations):
    def create_jobs(self, jobs: Sequence[NewJob]) -> Program[list[Created]]:
        return super().create_jobs([_with_dedup(job, exclude=()) for job in jobs])


class IgnoresWindows(MemoryOperations):
    def create_jobs(self, jobs: Sequence[NewJob]) -> Program[list[Created]]:
        return super().create_jobs([_with_dedup(job, window=None) for job in jobs])


class LeavesHalfBehind(MemoryOperations):
    """An error comes too late for the jobs before it."""

    def create_jobs(self, jobs: Sequence[NewJob]) -> Program[list[Created]]:
        created: list[Created] = []
        for job in jobs:
            created += yield from super().create_jobs([job])
        return created


class DeletesWhatOthersNeed(MemoryOperations):
    def delete_chains(self, ids: Sequence[str], *, cascade: bool) -> Program[Deleted]:
        def delete(tables: Tables) -> Deleted:
            deleted = memory_deleting.delete_chains(tables, ids, cascade=cascade)
            if not deleted.waiting:
                return deleted
            chains = [chain for chain in map(tables.chain, deleted.waiting) if chain is not None]
            for chain in chains:
                memory_deleting._delete(tables, chain)
            return Deleted(chains, {})

        return _write(delete)


class NeverCascades(MemoryOperations):
    def delete_chains(self, ids: Sequence[str], *, cascade: bool) -> Program[Deleted]:
        return super().delete_chains(ids, cascade=False)


class ReapsIgnoredJobs(MemoryOperations):
    def reap(self, types: Sequence[str], ignored: Sequence[str], limit: int, error: bytes) -> Program[list[JobRow]]:
        return super().reap(types, (), limit, error)


class RetriesWithOldAttempts(MemoryOperations):
    def retry(self, job_ids: Sequence[str]) -> Program[list[JobRow | None]]:
        def retry(tables: Tables) -> list[JobRow | None]:
            attempts = {row.id: row.attempt for row in map(tables.job, job_ids) if row is not None}
            for row in memory_settling.retry(tables, job_ids):
                if row is not None:
                    tables.put(replace(row, attempt=attempts[row.id]))
            return [row and tables.job(row.id) for row in map(tables.job, job_ids)]

        return _write(retry)


class RepeatsTheLastRow(MemoryOperations):
    """A descending page begins with the row that its cursor stands for."""

    def list_jobs(self, where: JobFilter, page: PageRequest) -> Program[list[JobRow]]:
        if page.after is not None and page.order == "desc":
            page = replace(page, after=f"{page.after}~")
        return super().list_jobs(where, page)


class ListsChainsByTheirFirstStatus(MemoryOperations):
    def list_chains(self, where: ChainFilter, page: PageRequest) -> Program[list[ChainRow]]:
        chains = yield from super().list_chains(replace(where, status=None), page)
        return [chain for chain in chains if where.status in (None, chain.first.status)]


class CountsNoFailures(MemoryOperations):
    def stats(self) -> Program[list[TypeStats]]:
        return [replace(each, failed=0) for each in (yield from super().stats())]


class ReadsUncommitted(MemoryProvider):
    def _run(self, connection: MemoryConnection | None, command: Any) -> Any:
        return self.store.run(command, in_transaction=True)


class KeepsWhatSavepointsUndo(MemoryProvider):
    def savepoint(self, connection: MemoryConnection) -> Any:
        return nullcontext()


class CommitsWhatIsRolledBack(MemoryProvider):
    def transaction(self, first: Any = None) -> Any:
        return _committed_in_any_case(super().transaction())


@contextmanager
def _committed_in_any_case(block: AbstractContextManager[MemoryConnection]) -> Generator[MemoryConnection, None, None]:
    connection = block.__enter__()
    try:
        yield connection
    finally:
        block.__exit__(None, None, None)


def _with_dedup(job: NewJob, **changes: Any) -> NewJob:
    dedup = job.dedup
    if dedup is None:
        return job
    options: dict[str, Any] = {"scope": dedup.scope, "window": dedup.window, "exclude": dedup.exclude, **changes}
    return replace(job, dedup=type(dedup)(dedup.key, **options))


def broken_operations(operations: Callable[[], MemoryOperations]) -> Factory:
    @contextmanager
    def factory(clock: Clock) -> Generator[AnyStateAdapter, None, None]:
        yield SyncStateAdapter(operations(), MemoryProvider(MemoryStore(clock)))

    return factory


def broken_provider(provider: Callable[[MemoryStore], MemoryProvider]) -> Factory:
    @contextmanager
    def factory(clock: Clock) -> Generator[AnyStateAdapter, None, None]:
        yield SyncStateAdapter(MemoryOperations(), provider(MemoryStore(clock)))

    return factory


BROKEN: dict[str, Factory] = {
    **{
        operations.__name__: broken_operations(operations)
        for operations in (
            SettlesWithAnyToken,
            RenewsWithAnyToken,
            NeverUnblocks,
            KeepsAttemptsGivenBack,
            IgnoresQueueCaps,
            IgnoresClusterCap,
            IgnoresQueuePriorities,
            OverlooksDeadlines,
            IgnoresExcludedChains,
            IgnoresWindows,
            LeavesHalfBehind,
            DeletesWhatOthersNeed,
            NeverCascades,
            ReapsIgnoredJobs,
            RetriesWithOldAttempts,
            RepeatsTheLastRow,
            ListsChainsByTheirFirstStatus,
            CountsNoFailures,
        )
    },
    **{
        provider.__name__: broken_provider(provider)
        for provider in (ReadsUncommitted, KeepsWhatSavepointsUndo, CommitsWhatIsRolledBack)
    },
}
