"""Adapters that are wrong in one way each, made out of the memory adapter."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from msgspec.structs import replace
from tests.conformance.harnesses import MemoryHarness

from queuert.adapters.memory import AsyncMemoryProvider, MemoryConnection, MemoryOperations, MemoryStore
from queuert.adapters.memory.command import Command, write
from queuert.adapters.memory.operations.settling import count_down
from queuert.adapters.memory.tables import Tables
from queuert.ports.program import Program
from queuert.ports.state import StateAdapter
from queuert.records.circumstances import Circumstances
from queuert.records.dedup import Dedup
from queuert.records.examination import Damage, Look, RepairOutcome
from queuert.records.listings import JobFilter, Listed, PageRequest
from queuert.records.model import (
    NO_DELAYS,
    NOW,
    Available,
    Cancelled,
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
    new_token,
)
from queuert.records.retention import KeepPolicy, Pruned, PruneRequest
from queuert.records.workers import LastHandled, WorkerAbout, WorkerRow
from queuert_conformance.state.driver import AnyStateAdapter


class IgnoresTokens(MemoryOperations):
    def settle(self, settlements: Sequence[Settlement]) -> Program[Settled]:
        ending = [each if each.status == "pending" else replace(each, token=None) for each in settlements]
        return (yield from super().settle(ending))


class IgnoresPriority(MemoryOperations):
    def claim(self, request: ClaimRequest) -> Program[ClaimResult]:
        result = yield from super().claim(request)
        return replace(result, jobs=result.jobs[::-1])


class IgnoresTypeLimits(MemoryOperations):
    def claim(self, request: ClaimRequest) -> Program[ClaimResult]:
        queues = tuple(
            replace(queue, types=tuple(replace(each, limit=request.limit) for each in queue.types))
            for queue in request.queues
        )
        return (yield from super().claim(replace(request, queues=queues)))


class IgnoresQueueCaps(MemoryOperations):
    def claim(self, request: ClaimRequest) -> Program[ClaimResult]:
        queues = tuple(replace(queue, max_concurrency=None) for queue in request.queues)
        return (yield from super().claim(replace(request, queues=queues)))


class CountsTypesNotQueues(MemoryOperations):
    def claim(self, request: ClaimRequest) -> Program[ClaimResult]:
        queues = tuple(replace(queue, name=",".join(sorted(queue.members))) for queue in request.queues)
        return (yield from super().claim(replace(request, queues=queues)))


class MakesItsOwnTokens(MemoryOperations):
    def claim(self, request: ClaimRequest) -> Program[ClaimResult]:
        return (yield from super().claim(replace(request, first_token=new_token())))


class ForgetsPausedQueues(MemoryOperations):
    def next_available_in(self, types: Sequence[str], queues: Sequence[str] = ()) -> Program[Available]:
        return super().next_available_in(types)  # not by their queues


class PrunesByTheWalkAlone(MemoryOperations):
    def prune(self, request: PruneRequest) -> Program[Pruned]:
        return (yield from super().prune(replace(request, lap_every=None)))


class PrunesWithoutPolicies(MemoryOperations):
    def store_policies(self, policies: Sequence[KeepPolicy]) -> Program[list[str]]:
        return super().store_policies([replace(each, failed=0.0, expired=0.0) for each in policies])


class KeepsWhatIsDiscarded(MemoryOperations):
    def settle(self, settlements: Sequence[Settlement]) -> Program[Settled]:
        return (yield from super().settle([replace(each, discard=False) for each in settlements]))


class IgnoresTheClusterCap(MemoryOperations):
    def claim(self, request: ClaimRequest) -> Program[ClaimResult]:
        return (yield from super().claim(replace(request, cluster_cap=None)))


class NeverMore(MemoryOperations):
    def claim(self, request: ClaimRequest) -> Program[ClaimResult]:
        return replace((yield from super().claim(request)), more=False)


class NeverExpired(MemoryOperations):
    def claim(self, request: ClaimRequest) -> Program[ClaimResult]:
        result = yield from super().claim(request)
        return replace(result, jobs=[replace(each, expired=False) for each in result.jobs])


class ForgetsBlockerOutputs(MemoryOperations):
    def claim(self, request: ClaimRequest) -> Program[ClaimResult]:
        result = yield from super().claim(request)
        return replace(result, jobs=[replace(each, blockers=()) for each in result.jobs])


class AlwaysCreates(MemoryOperations):
    def create_jobs(self, jobs: Sequence[NewJob]) -> Program[list[Created]]:
        return (yield from super().create_jobs([replace(job, dedup=None) for job in jobs]))


class IgnoresExclude(MemoryOperations):
    def create_jobs(self, jobs: Sequence[NewJob]) -> Program[list[Created]]:
        changed = [
            replace(job, dedup=job.dedup and Dedup(job.dedup.key, scope=job.dedup.scope, window=job.dedup.window))
            for job in jobs
        ]
        return (yield from super().create_jobs(changed))


class NeverBlocks(MemoryOperations):
    def create_jobs(self, jobs: Sequence[NewJob]) -> Program[list[Created]]:
        return (yield from super().create_jobs([replace(job, blockers=()) for job in jobs]))


class AnswersInIdOrder(MemoryOperations):
    def create_jobs(self, jobs: Sequence[NewJob]) -> Program[list[Created]]:
        return sorted((yield from super().create_jobs(jobs)), key=lambda created: created.job_id)


class LosesTheWakeUp(MemoryOperations):
    """Ends chains without completing them: whoever waits for one waits for ever."""

    def settle(self, settlements: Sequence[Settlement]) -> Program[Settled]:
        quiet = [replace(each, status="cancelled") if each.status == "completed" else each for each in settlements]
        lost = [each for each in settlements if each.status == "completed" and each.continuation is None]
        return (yield from super().settle(quiet if lost else settlements))


class DoesNotReportTheFreed(MemoryOperations):
    def settle(self, settlements: Sequence[Settlement]) -> Program[Settled]:
        return replace((yield from super().settle(settlements)), unblocked=[])


class FreesABatchTwice(MemoryOperations):
    """Moves the position of the work item after the step, and so takes the step again."""

    def continue_unblocking(self, limit: int) -> Program[Freed]:
        def again(tables: Tables) -> Freed:
            chain_id = min(tables.unblocking, default=None)
            if chain_id is None:
                return Freed([])
            step = tables.unblocking[chain_id][:limit]
            return Freed(count_down(tables, step), more=True)

        yield Command(again, writes=True)
        return (yield from super().continue_unblocking(limit))


class FreesJobsThatCameLater(MemoryOperations):
    """Takes all dependents from the position on, also those that were stored after the completion."""

    def continue_unblocking(self, limit: int) -> Program[Freed]:
        def more(tables: Tables) -> None:
            for chain_id, left in tables.unblocking.items():
                later = [each for each in tables.dependents(chain_id) if not left or each > left[0]]
                tables.unblocking[chain_id] = tuple(sorted({*left, *later}))

        yield Command(more, writes=True)
        return (yield from super().continue_unblocking(limit))


class FreesEveryoneAtOnce(MemoryOperations):
    """One transaction, however many dependents there are."""

    def settle(self, settlements: Sequence[Settlement]) -> Program[Settled]:
        limit, self.unblocked_at_once = self.unblocked_at_once, 1_000_000
        settled = yield from super().settle(settlements)
        self.unblocked_at_once = limit
        return settled


class ForgetsTheRest(MemoryOperations):
    """Has nothing left to do after the first step."""

    def continue_unblocking(self, limit: int) -> Program[Freed]:
        freed = yield from super().continue_unblocking(limit)
        yield Command(lambda tables: tables.unblocking.clear(), writes=True)
        return replace(freed, more=False)


class LimitsByHand(MemoryOperations):
    """A completion without a worker leaves dependents for later, too."""

    def settle(self, settlements: Sequence[Settlement]) -> Program[Settled]:
        def free_later(tables: Tables) -> None:
            for each in settlements:
                jobs = tables.dependents(each.job_id)[self.unblocked_at_once :]
                if each.token is None and each.status == "completed" and jobs:
                    tables.unblocking[each.job_id] = tuple(jobs)
                    for job_id in jobs:
                        tables.put(replace(tables.jobs[job_id], status="blocked", blockers_left=1))

        settled = yield from super().settle(settlements)
        yield Command(free_later, writes=True)
        return settled


class CountsAttemptsGivenBack(MemoryOperations):
    def settle(self, settlements: Sequence[Settlement]) -> Program[Settled]:
        return (yield from super().settle([replace(each, give_back=False) for each in settlements]))


class CountsUncountedRuns(MemoryOperations):
    def settle(self, settlements: Sequence[Settlement]) -> Program[Settled]:
        return (yield from super().settle([replace(each, uncounted=False) for each in settlements]))


class GivesBackAsRun(MemoryOperations):
    """A job that is given back keeps the time of the claim, as if its handler had begun."""

    def settle(self, settlements: Sequence[Settlement]) -> Program[Settled]:
        before = yield from super().get_jobs([each.job_id for each in settlements])
        settled = yield from super().settle(settlements)
        for each, row, applied in zip(settlements, before, settled.applied, strict=True):
            if each.give_back and applied and row is not None:
                yield from self._keep_the_time(row)
        return settled

    @write
    def _keep_the_time(self, tables: Tables, row: JobRow) -> None:
        tables.put(replace(tables.jobs[row.id], last_attempt_at=row.last_attempt_at))


class ForgetsRetriedRuns(MemoryOperations):
    """Tells of earlier runs by the number of the attempt."""

    def claim(self, request: ClaimRequest) -> Program[ClaimResult]:
        result = yield from super().claim(request)
        return replace(result, jobs=[replace(each, ran_before=each.job.attempt > 1) for each in result.jobs])


class NullIsNoOutput(MemoryOperations):
    def settle(self, settlements: Sequence[Settlement]) -> Program[Settled]:
        changed = [replace(each, output=None) if each.output == b"null" else each for each in settlements]
        return (yield from super().settle(changed))


class RetriesAtOnce(MemoryOperations):
    def settle(self, settlements: Sequence[Settlement]) -> Program[Settled]:
        return (yield from super().settle([replace(each, schedule=NOW) for each in settlements]))


class HoldsWhateverThereIs(MemoryOperations):
    def hold(self, job_id: str, token: int, *, lock: bool = True) -> Program[bool]:
        (row,) = yield from super().get_jobs([job_id])
        return row is not None and token > 0


class NeverLosesALease(MemoryOperations):
    def renew(self, leases: Sequence[Lease]) -> Program[list[str]]:
        yield from super().renew(leases)
        return []


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
        return (yield from super().reap(types, (), limit, error, dead, delays))


class ReapsWithoutALimit(MemoryOperations):
    def reap(
        self,
        types: Sequence[str],
        ignored: Sequence[str],
        limit: int,
        error: bytes,
        dead: Sequence[str] = (),
        delays: Mapping[str, Sequence[float]] = NO_DELAYS,
    ) -> Program[list[JobRow]]:
        return (yield from super().reap(types, ignored, limit + 1000, error, dead, delays))


class CountsWhatNeverBegan(MemoryOperations):
    def claim(self, request: ClaimRequest) -> Program[ClaimResult]:
        result = yield from super().claim(replace(request, at_once=None))
        at_once = len(result.jobs) if request.at_once is None else request.at_once
        jobs = [
            replace(each, ordinal=request.first_ordinal + place if place >= at_once else None)
            for place, each in enumerate(result.jobs)
        ]
        return replace(result, jobs=jobs)


class MovesTheHorizonBack(MemoryOperations):
    def move_horizon(self, worker_id: str, horizon: int) -> Program[bool]:
        yield from super().forget_worker(worker_id)
        yield from super().register_worker(worker_id, horizon=horizon)
        return True


class ForgetsTheDead(MemoryOperations):
    def last_handled(self, types: Sequence[str]) -> Program[list[LastHandled | None]]:
        found = yield from super().last_handled(types)
        return found if (yield from super().list_workers()) else [None] * len(types)


class CountsLateWorkers(MemoryOperations):
    def handled_types(self, types: Sequence[str]) -> Program[list[str]]:
        found = yield from super().last_handled(types)
        return [each.type_name for each in found if each is not None]


class KeepsWhatWasToldFirst(MemoryOperations):
    def register_worker(
        self, worker_id: str, *, lock_key: int | None = None, horizon: int = 0, about: WorkerAbout | None = None
    ) -> Program[WorkerRow]:
        known = [row.about for row in (yield from super().list_workers()) if row.id == worker_id]
        told = known[0] if known and known[0] is not None else about
        return (yield from super().register_worker(worker_id, lock_key=lock_key, horizon=horizon, about=told))


class ExplainsByIds(MemoryOperations):
    def circumstances(self, chain_id: str) -> Program[Circumstances | None]:
        found = yield from super().circumstances(chain_id)
        return None if found is None else replace(found, due=sorted(found.due, key=lambda each: each.id))


class AlwaysCascades(MemoryOperations):
    def delete_chains(self, ids: Sequence[str], *, cascade: bool) -> Program[Deleted]:
        return (yield from super().delete_chains(ids, cascade=True))


class CancelsOneLevel(MemoryOperations):
    """Goes from a chain to those that wait for it, and no further."""

    def cancel_chains(self, ids: Sequence[str], *, cascade: bool) -> Program[Cancelled]:
        above: list[str] = []
        for each in ids if cascade else ():
            jobs = yield from self.list_blocked_jobs(each, PageRequest(100))
            above += [job.chain_id for job in jobs if job.status == "blocked"]
        return (yield from super().cancel_chains([*ids, *above], cascade=False))


class DeletesWhatOthersNeed(MemoryOperations):
    def delete_chains(self, ids: Sequence[str], *, cascade: bool) -> Program[Deleted]:
        deleted = yield from super().delete_chains(ids, cascade=cascade)
        wanted = [*ids, *(job for jobs in deleted.waiting.values() for job in jobs)]
        return (yield from super().delete_chains(wanted, cascade=cascade))


class PagesFromTheStart(MemoryOperations):
    def list_jobs(self, where: JobFilter, page: PageRequest) -> Program[Listed[JobRow]]:
        return (yield from super().list_jobs(where, replace(page, after=None)))


class AlwaysAscending(MemoryOperations):
    def list_jobs(self, where: JobFilter, page: PageRequest) -> Program[Listed[JobRow]]:
        return (yield from super().list_jobs(where, replace(page, order="asc")))


class NeverSleeps(MemoryOperations):
    def next_available_in(self, types: Sequence[str], queues: Sequence[str] = ()) -> Program[Available]:
        found = yield from super().next_available_in(types, queues)
        return found if found.next_in is None else replace(found, next_in=0)


class ForgetsFailures(MemoryOperations):
    def stats(self, *, limit: int | None = None) -> Program[list[TypeStats]]:
        return [replace(each, failed=0) for each in (yield from super().stats(limit=limit))]


class FindsNoEnd(MemoryOperations):
    """Goes on with a look after the last row."""

    def examine(self, part: str, after: tuple[str, ...] | None, limit: int, seconds: float) -> Program[Look]:
        look = yield from super().examine(part, after, limit, seconds)
        return Look(look.damages, look.rows, look.after or ("1000",))


class CountsTheFreedToo(MemoryOperations):
    """Takes jobs that are freed later for damaged ones."""

    def examine(self, part: str, after: tuple[str, ...] | None, limit: int, seconds: float) -> Program[Look]:
        look = yield from super().examine(part, after, limit, seconds)
        busy = (yield from self.next_available_in(["task"])).unblocking
        return Look([Damage("miscounted", "id", "")] if busy else look.damages, look.rows, look.after)


class RepairsAnything(MemoryOperations):
    """Repairs without looking again."""

    def repair_damage(self, damage: Damage) -> Program[RepairOutcome]:
        yield from super().repair_damage(damage)
        return "repaired"


class KeepsSavepoints(AsyncMemoryProvider):
    """Never rolls back to a savepoint."""

    @asynccontextmanager
    async def savepoint(self, connection: MemoryConnection) -> AsyncGenerator[None, None]:  # type: ignore[override]
        yield


class ForgetsTheFirstCommand(AsyncMemoryProvider):
    """Begins a transaction without the command that it was given."""

    def transaction(self, first: Any = None) -> Any:
        return super().transaction()


class NeverRollsBack(AsyncMemoryProvider):
    """Commits a transaction that failed."""

    @asynccontextmanager
    async def transaction(self, first: Any = None) -> AsyncGenerator[MemoryConnection, None]:  # type: ignore[override]
        failure: BaseException | None = None
        async with super().transaction(first) as connection:
            try:
                yield connection
            except Exception as error:
                failure = error
        if failure is not None:
            raise failure


class MutantHarness(MemoryHarness):
    """Memory with other operations, or with another provider."""

    def __init__(self, mutant: type[Any]) -> None:
        def make(store: MemoryStore) -> AnyStateAdapter:
            operations = mutant() if issubclass(mutant, MemoryOperations) else MemoryOperations()
            provider = mutant(store) if issubclass(mutant, AsyncMemoryProvider) else AsyncMemoryProvider(store)
            return StateAdapter(operations, provider)

        super().__init__(make)


def harness_of(mutant: type[Any]) -> Callable[[], MutantHarness]:
    return lambda: MutantHarness(mutant)
