"""Adapters that are wrong on purpose, each in one respect: the machine has to find out."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from msgspec.structs import replace
from tests.machine.driver import AnyStateAdapter
from tests.machine.machine import Factory
from tests.machine.world import Clock

from queuert.adapters.memory import MemoryConnection, MemoryOperations, MemoryProvider, MemoryStore
from queuert.adapters.memory.command import write
from queuert.adapters.memory.operations.deleting import delete_chain
from queuert.adapters.memory.tables import Tables
from queuert.base.statuses import STATUSES
from queuert.ports.program import Program
from queuert.ports.state import SyncStateAdapter
from queuert.records.listings import ChainFilter, JobFilter, Listed, PageRequest
from queuert.records.model import (
    NO_DELAYS,
    ChainRow,
    ClaimRequest,
    ClaimResult,
    Created,
    Deleted,
    Freed,
    JobRow,
    Lease,
    NewJob,
    Settled,
    Settlement,
    TypeStats,
)


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
        settled = yield from super().settle(settlements)
        yield from self._block_again([each.job_id for each in settled.unblocked])
        return replace(settled, unblocked=[])

    @write
    def _block_again(self, tables: Tables, job_ids: Sequence[str]) -> None:
        for job_id in job_ids:
            tables.put(replace(tables.jobs[job_id], status="blocked", blockers_left=1))


class FreesJobsThatCameLater(MemoryOperations):
    """Counts down every dependent that is not yet free, also those that never waited for the chain."""

    def continue_unblocking(self, limit: int) -> Program[Freed]:
        yield from self._look_again(True)
        return (yield from super().continue_unblocking(limit))

    @write
    def _look_again(self, tables: Tables, always: bool) -> None:
        for chain_id in tables.unblocking:
            jobs = [job_id for job_id in tables.dependents(chain_id) if tables.jobs[job_id].status == "blocked"]
            tables.unblocking[chain_id] = tuple(jobs)


class KeepsAttemptsGivenBack(MemoryOperations):
    def settle(self, settlements: Sequence[Settlement]) -> Program[Settled]:
        settled = yield from super().settle(settlements)
        pairs = zip(settlements, settled.applied, strict=True)
        yield from self._count([each.job_id for each, held in pairs if held and each.give_back])
        return settled

    @write
    def _count(self, tables: Tables, job_ids: Sequence[str]) -> None:
        for job_id in job_ids:
            row = tables.jobs[job_id]
            tables.put(replace(row, attempt=row.attempt + 1))


class CountsUncountedRuns(MemoryOperations):
    def settle(self, settlements: Sequence[Settlement]) -> Program[Settled]:
        return (yield from super().settle([replace(each, uncounted=False) for each in settlements]))


class ForgetsEarlierRuns(MemoryOperations):
    def claim(self, request: ClaimRequest) -> Program[ClaimResult]:
        result = yield from super().claim(request)
        return replace(result, jobs=[replace(claimed, ran_before=False) for claimed in result.jobs])


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
        deleted = yield from super().delete_chains(ids, cascade=cascade)
        return (yield from self.delete_chain(list(deleted.waiting))) if deleted.waiting else deleted

    @write
    def delete_chain(self, tables: Tables, ids: Sequence[str]) -> Deleted:
        chains = [chain for chain in map(tables.chain, ids) if chain is not None]
        for chain in chains:
            delete_chain(tables, chain.first.id)
        return Deleted(chains, {})


class NeverCascades(MemoryOperations):
    def delete_chains(self, ids: Sequence[str], *, cascade: bool) -> Program[Deleted]:
        return super().delete_chains(ids, cascade=False)


class ReapsIgnoredJobs(MemoryOperations):
    def reap(
        self,
        types: Sequence[str],
        ignored: Sequence[str],
        limit: int,
        error: bytes,
        dead: Sequence[str] = (),
        delays: Mapping[str, Sequence[float]] = NO_DELAYS,
    ) -> Program[list[JobRow]]:
        return super().reap(types, (), limit, error, dead, delays)


class RetriesWithOldAttempts(MemoryOperations):
    def retry(self, job_ids: Sequence[str]) -> Program[list[JobRow | None]]:
        before = yield from self.get_jobs(job_ids)
        retried = yield from super().retry(job_ids)
        wrong = [old and new and replace(new, attempt=old.attempt) for old, new in zip(before, retried, strict=True)]
        yield from self._put([row for row in wrong if row is not None])
        return wrong

    @write
    def _put(self, tables: Tables, rows: Sequence[JobRow]) -> None:
        for row in rows:
            tables.put(row)


class RepeatsTheLastRow(MemoryOperations):
    """A descending page begins with the row that its cursor stands for."""

    def list_jobs(self, where: JobFilter, page: PageRequest) -> Program[Listed[JobRow]]:
        if page.after is not None and page.order == "desc":
            page = replace(page, after=f"{page.after}~")
        return super().list_jobs(where, page)


class ListsChainsByTheirFirstStatus(MemoryOperations):
    def list_chains(self, where: ChainFilter, page: PageRequest) -> Program[Listed[ChainRow]]:
        chains = yield from super().list_chains(replace(where, statuses=None), page)
        return Listed([chain for chain in chains.rows if chain.first.status in (where.statuses or STATUSES)])


class CountsNoFailures(MemoryOperations):
    def stats(self, *, limit: int | None = None) -> Program[list[TypeStats]]:
        return [replace(each, failed=0) for each in (yield from super().stats(limit=limit))]


class ReadsUncommitted(MemoryProvider):
    _latest: MemoryConnection | None = None

    def transaction(self, first: Any = None) -> Any:
        block = super().transaction(first)
        self._latest = block._connection
        return block

    def execute(self, connection: MemoryConnection | None, command: Any) -> Any:
        if connection is None and not command.writes and self._latest is not None and self._latest.in_transaction:
            connection = self._latest
        return super().execute(connection, command)


class KeepsWhatSavepointsUndo(MemoryProvider):
    def savepoint(self, connection: MemoryConnection) -> Any:
        return nullcontext()


class CommitsWhatIsRolledBack(MemoryProvider):
    def transaction(self, first: Any = None) -> Any:
        return _committed_in_any_case(super().transaction(first))


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
            CountsUncountedRuns,
            ForgetsEarlierRuns,
            FreesJobsThatCameLater,
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
