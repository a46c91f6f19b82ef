"""The tools of a state case: the operations, awaited, and the hooks of the harness."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from contextvars import Context
from datetime import datetime
from typing import Any, TypeVar

from msgspec.structs import replace

from queuert.base.statuses import Status
from queuert.records.archive import ArchiveRow, ChainToArchive
from queuert.records.audit import KEPT, AuditRecord, NewAudit
from queuert.records.circumstances import Circumstances
from queuert.records.examination import Damage, Look, RepairOutcome, Surroundings
from queuert.records.failed_attempts import FailedAttempt
from queuert.records.history import HistoryLook
from queuert.records.limits import ALIVE_FOR, Change, DeclaredLimit, KnownLimit, LimitRow
from queuert.records.listings import ChainFilter, JobFilter, PageRequest
from queuert.records.model import (
    NO_DELAYS,
    Available,
    BlockerRow,
    Cancelled,
    ChainRow,
    Claimed,
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
    When,
    new_token,
)
from queuert.records.pauses import Pause, PauseTarget
from queuert.records.retention import KeepPolicy, Pruned, PruneRequest, Retention, Vacuumed
from queuert.records.schedules import DueSchedules, ScheduleLook, ScheduleRow, SeenRelease
from queuert.records.workers import LastHandled, WorkerRow
from queuert_conformance.case import Suite
from queuert_conformance.checks import only, present, raises
from queuert_conformance.state.build import LEASE, TASK, completed, new_job, queue, request
from queuert_conformance.state.driver import AnyStateAdapter, drive
from queuert_conformance.state.harness import StateHarness

T = TypeVar("T")

_CLOSING = 10.0
_ALL = PageRequest(1_000_000)


class Undo(Exception):
    """The error that a case raises to roll back a transaction or savepoint."""


class Store:
    """One set of connections to the storage.

    Every operation takes the transaction to run in as `tx`.
    """

    def __init__(self, harness: StateHarness, adapter: AnyStateAdapter, exits: AsyncExitStack) -> None:
        self._harness = harness
        self._exits = exits
        self.driver = drive(adapter)
        self.operations = self.driver.operations
        self.single_writer = harness.single_writer
        exits.push_async_callback(self._close)

    def transaction(self) -> AbstractAsyncContextManager[Any]:
        return self.driver.transaction()

    def holding(self, claim: Claimed, *, lock: bool = True) -> AbstractAsyncContextManager[tuple[Any, bool]]:
        """A transaction that begins with `hold`, and its answer."""
        token = present(claim.job.token, "token")
        return self.driver.beginning_with(self.operations.hold(claim.job.id, token, lock=lock))

    def savepoint(self, tx: Any) -> AbstractAsyncContextManager[None]:
        return self.driver.savepoint(tx)

    @asynccontextmanager
    async def rolled_back(self) -> AsyncGenerator[Any, None]:
        """A transaction that is rolled back at the end of the block."""
        with raises(Undo, "the error that a transaction ends with"):
            async with self.transaction() as tx:
                yield tx
                raise Undo

    @asynccontextmanager
    async def undone(self, tx: Any) -> AsyncGenerator[None, None]:
        """A savepoint that is rolled back at the end of the block."""
        with raises(Undo, "the error that a savepoint ends with"):
            async with self.savepoint(tx):
                yield
                raise Undo

    # The operations.

    async def create(self, *jobs: NewJob, tx: Any = None) -> list[Created]:
        return await self.driver.run(self.operations.create_jobs(jobs), tx)

    async def replace_waiting(self, *jobs: NewJob, tx: Any = None) -> list[ChainRow]:
        return await self.driver.run(self.operations.replace_waiting(jobs), tx)

    async def jobs(self, *ids: str, tx: Any = None) -> list[JobRow | None]:
        return await self.driver.run(self.operations.get_jobs(ids), tx)

    async def chains(self, *ids: str, lock: bool = False, tx: Any = None) -> list[ChainRow | None]:
        return await self.driver.run(self.operations.get_chains(ids, lock=lock), tx)

    async def claim(self, claim: ClaimRequest | None = None, *, tx: Any = None) -> ClaimResult:
        """Each call is a claim of its own, also if a case makes several from one request."""
        wanted = replace(claim or request(), first_token=new_token())
        return await self.driver.run(self.operations.claim(wanted), tx)

    async def renew(self, *leases: Lease, tx: Any = None) -> list[str]:
        return await self.driver.run(self.operations.renew(leases), tx)

    async def hold(self, claim: Claimed, *, lock: bool = True, tx: Any) -> bool:
        token = present(claim.job.token, "token")
        return await self.driver.run(self.operations.hold(claim.job.id, token, lock=lock), tx)

    async def settle(self, *settlements: Settlement, tx: Any = None) -> Settled:
        return await self.driver.run(self.operations.settle(settlements), tx)

    async def reap(
        self,
        *types: str,
        ignored: Sequence[str] = (),
        limit: int = 100,
        error: bytes = b'{"code":"LEASE_EXPIRED"}',
        dead: Sequence[str] = (),
        delays: Mapping[str, Sequence[float]] = NO_DELAYS,
        tx: Any = None,
    ) -> list[JobRow]:
        return await self.driver.run(self.operations.reap(types, ignored, limit, error, dead, delays), tx)

    async def begin_alone(self, claim: Claimed, *, tx: Any = None) -> bool:
        return await self.driver.run(self.operations.begin_alone(claim.job.id, present(claim.job.token, "token")), tx)

    async def register(self, worker_id: str, *, tx: Any = None, **fields: Any) -> WorkerRow:
        return await self.driver.run(self.operations.register_worker(worker_id, **fields), tx)

    async def move_horizon(self, worker_id: str, horizon: int) -> bool:
        return await self.driver.run(self.operations.move_horizon(worker_id, horizon))

    async def forget(self, worker_id: str) -> bool:
        return await self.driver.run(self.operations.forget_worker(worker_id))

    async def clean_workers(self, unseen_for: float) -> list[str]:
        return await self.driver.run(self.operations.clean_workers(unseen_for=unseen_for))

    async def dead_workers(self, worker_id: str, *types: str, grace: float = 0) -> list[str]:
        return await self.driver.run(self.operations.dead_workers(worker_id, types, grace=grace))

    async def workers(self) -> list[WorkerRow]:
        return await self.driver.run(self.operations.list_workers())

    async def handled_types(self, *types: str) -> list[str]:
        return await self.driver.run(self.operations.handled_types(types))

    async def last_handled(self, *types: str) -> list[LastHandled | None]:
        return await self.driver.run(self.operations.last_handled(types))

    async def release(self, worker: str, held: Sequence[str], *, tx: Any = None) -> list[JobRow]:
        return await self.driver.run(self.operations.release(worker, held), tx)

    async def next_available_in(self, *types: str, tx: Any = None) -> float | None:
        return (await self.driver.run(self.operations.next_available_in(types), tx)).next_in

    async def available(self, types: Sequence[str], queues: Sequence[str] = (), *, tx: Any = None) -> Available:
        return await self.driver.run(self.operations.next_available_in(types, queues), tx)

    async def pause(self, target: PauseTarget, *, tx: Any = None, **values: Any) -> Pause:
        return await self.driver.run(self.operations.pause(target, **values), tx)

    async def resume(self, target: PauseTarget, *, tx: Any = None) -> Pause | None:
        return await self.driver.run(self.operations.resume(target), tx)

    async def pauses(self, *, tx: Any = None) -> list[Pause]:
        return await self.driver.run(self.operations.list_pauses(), tx)

    async def declare_limits(
        self, types: Sequence[str], *declared: DeclaredLimit, alive_for: float = ALIVE_FOR, tx: Any = None
    ) -> list[KnownLimit]:
        return await self.driver.run(self.operations.declare_limits(types, declared, alive_for=alive_for), tx)

    async def set_limit(self, name: str, key: str | None, change: Change, *, tx: Any = None) -> LimitRow:
        return await self.driver.run(self.operations.set_limit(name, key, change), tx)

    async def clear_limit(self, name: str, key: str | None, *, tx: Any = None) -> bool:
        return await self.driver.run(self.operations.clear_limit(name, key), tx)

    async def get_limit(self, name: str, key: str | None) -> LimitRow:
        return await self.driver.run(self.operations.get_limit(name, key))

    async def limits(self, limit: int = 1000, after: tuple[str, str | None] | None = None) -> list[LimitRow]:
        return await self.driver.run(self.operations.list_limits(limit, after))

    async def before(self, job_id: str) -> int:
        """How many jobs of its lane come before this one."""
        return await self.driver.run(self.operations.jobs_before(await self.job(job_id)))

    async def get_schedules(self, *names: str, lock: bool = False, tx: Any = None) -> list[ScheduleRow | None]:
        return (await self.driver.run(self.operations.get_schedules(names, lock=lock), tx)).rows

    async def find_schedule(self, incarnation: int, *, tx: Any = None) -> ScheduleRow | None:
        return await self.driver.run(self.operations.find_schedule(incarnation), tx)

    async def list_schedules(self, limit: int, after: str | None = None, *, tx: Any = None) -> ScheduleLook:
        return await self.driver.run(self.operations.list_schedules(limit, after), tx)

    async def due_schedules(
        self, limit: int = 100, *, functions: Sequence[str] = (), lock: bool = False, tx: Any = None
    ) -> DueSchedules:
        return await self.driver.run(self.operations.due_schedules(limit, functions, lock=lock), tx)

    async def save_schedules(self, *rows: ScheduleRow, tx: Any = None) -> list[bool]:
        return await self.driver.run(self.operations.save_schedules(rows), tx)

    async def delete_schedules(self, *names: str, tx: Any = None) -> list[ScheduleRow]:
        return await self.driver.run(self.operations.delete_schedules(names), tx)

    async def see_releases(
        self, *declared: tuple[str, str], alive_for: float, forget_after: float = 3600, tx: Any = None
    ) -> list[SeenRelease]:
        program = self.operations.see_releases(declared, alive_for=alive_for, forget_after=forget_after)
        return await self.driver.run(program, tx)

    async def undeclared(
        self, limit: int = 100, *, alive_for: float, after: str | None = None, tx: Any = None
    ) -> ScheduleLook:
        return await self.driver.run(self.operations.undeclared_schedules(limit, alive_for=alive_for, after=after), tx)

    async def continue_unblocking(self, limit: int, *, tx: Any = None) -> Freed:
        return await self.driver.run(self.operations.continue_unblocking(limit), tx)

    async def is_unblocking(self, *, tx: Any = None) -> bool:
        """Whether dependents of a completed chain are still to be freed."""
        return (await self.driver.run(self.operations.next_available_in([TASK]), tx)).unblocking

    async def trigger(self, *ids: str, tx: Any = None) -> list[JobRow | None]:
        return await self.driver.run(self.operations.trigger(ids), tx)

    async def retry(self, *ids: str, tx: Any = None) -> list[JobRow | None]:
        return await self.driver.run(self.operations.retry(ids), tx)

    async def set_priority(self, *ids: str, priority: int, tx: Any = None) -> list[JobRow | None]:
        return await self.driver.run(self.operations.set_priority(ids, priority), tx)

    async def record(self, *entries: NewAudit, kept: float = KEPT, tx: Any = None) -> None:
        await self.driver.run(self.operations.record_audit(entries, kept), tx)

    async def audit(
        self, limit: int, after: int | None = None, chain_id: str | None = None, *, tx: Any = None
    ) -> list[AuditRecord]:
        return await self.driver.run(self.operations.list_audit(limit, after, chain_id), tx)

    async def cancel(self, *ids: str, cascade: bool = False, tx: Any = None) -> Cancelled:
        return await self.driver.run(self.operations.cancel_chains(ids, cascade=cascade), tx)

    async def delete(self, *ids: str, cascade: bool = False, tx: Any = None) -> Deleted:
        return await self.driver.run(self.operations.delete_chains(ids, cascade=cascade), tx)

    async def repair(
        self,
        job_id: str,
        input: bytes,
        deadline: When | None = None,
        *,
        lane: str | None = None,
        weight: float | None = None,
        tx: Any = None,
    ) -> JobRow | None:
        return await self.driver.run(self.operations.repair(job_id, input, deadline, lane, weight), tx)

    async def list_jobs(self, page: PageRequest = _ALL, *, tx: Any = None, **where: Any) -> list[JobRow]:
        return (await self.driver.run(self.operations.list_jobs(JobFilter(**where), page), tx)).rows

    async def list_chains(self, page: PageRequest = _ALL, *, tx: Any = None, **where: Any) -> list[ChainRow]:
        return (await self.driver.run(self.operations.list_chains(ChainFilter(**where), page), tx)).rows

    async def chain_jobs(self, chain_id: str, page: PageRequest = _ALL) -> list[JobRow]:
        return await self.driver.run(self.operations.list_chain_jobs(chain_id, page))

    async def blocked_jobs(self, chain_id: str, page: PageRequest = _ALL) -> list[JobRow]:
        return await self.driver.run(self.operations.list_blocked_jobs(chain_id, page))

    async def blockers(self, *job_ids: str) -> list[list[BlockerRow]]:
        return await self.driver.run(self.operations.job_blockers(job_ids))

    async def attempts(self, job_id: str, *, tx: Any = None) -> list[FailedAttempt]:
        return await self.driver.run(self.operations.failed_attempts(job_id), tx)

    async def circumstances(self, chain_id: str, *, tx: Any = None) -> Circumstances | None:
        return await self.driver.run(self.operations.circumstances(chain_id), tx)

    async def examine(self, part: str, after: tuple[str, ...] | None, limit: int, seconds: float) -> Look:
        return await self.driver.run(self.operations.examine(part, after, limit, seconds))

    async def repair_damage(self, damage: Damage) -> RepairOutcome:
        return await self.driver.run(self.operations.repair_damage(damage))

    async def surroundings(self, *, full: bool) -> Surroundings:
        return await self.driver.run(self.operations.surroundings(full=full))

    async def stats(self, limit: int | None = None) -> list[TypeStats]:
        return await self.driver.run(self.operations.stats(limit=limit))

    async def keep(self, *policies: KeepPolicy) -> list[str]:
        return await self.driver.run(self.operations.store_policies(policies))

    async def prune(self, limit: int = 1000, **options: Any) -> Pruned:
        """One step. It does not wait for chains to get older than they must be."""
        return await self.driver.run(self.operations.prune(PruneRequest(limit, exact=True, **options)))

    async def retention(self) -> Retention:
        return await self.driver.run(self.operations.retention())

    async def waiting_to_archive(self, *types: str) -> list[str]:
        return await self.driver.run(self.operations.waiting_to_archive(types))

    async def take_archive(self, type_name: str = TASK, limit: int = 100, *, tx: Any = None) -> list[ChainToArchive]:
        return await self.driver.run(self.operations.take_archive(type_name, limit), tx)

    async def store_archive(self, *rows: ArchiveRow, tx: Any = None) -> None:
        await self.driver.run(self.operations.store_archive(rows), tx)

    async def get_archived(self, *ids: str, tx: Any = None) -> list[ArchiveRow | None]:
        return await self.driver.run(self.operations.get_archived(ids), tx)

    async def archive_failed(self, type_name: str, error: str | None) -> None:
        await self.driver.run(self.operations.archive_failed(type_name, error))

    async def tend_archive(self) -> bool:
        return await self.driver.run(self.operations.tend_archive())

    async def history(
        self, step: int, since: datetime | float, type_name: str | None = None, *, tx: Any = None
    ) -> HistoryLook:
        return await self.driver.run(self.operations.history(step, since, type_name), tx)

    async def roll_up(self, limit: int) -> bool:
        return await self.driver.run(self.operations.roll_up(limit))

    async def migrate(self) -> list[int]:
        return await self.driver.run(self.operations.migrate())

    async def vacuum(self) -> Vacuumed:
        return await self.driver.run(self.operations.vacuum())

    # Common first and last steps of cases.

    async def start(self, type_name: str = TASK, *, tx: Any = None, **fields: Any) -> str:
        """Store one new chain. Returns its id."""
        job = new_job(type_name, **fields)
        await self.create(job, tx=tx)
        return job.id

    async def running(self, type_name: str = TASK, *, lease: float = LEASE, **fields: Any) -> Claimed:
        """Store one new chain and claim its job. No other job of the type may be ready."""
        await self.start(type_name, **fields)
        return await self.claim_one(type_name, lease=lease)

    async def claim_one(self, type_name: str = TASK, *, lease: float = LEASE, tx: Any = None) -> Claimed:
        """Claim the first ready job of this type, which must exist."""
        result = await self.claim(request(queue(type_name, lease=lease), limit=1), tx=tx)
        return only(result.jobs, f"claimed jobs of type {type_name!r}")

    async def finish(self, chain_id: str, output: bytes = b"null", *, tx: Any = None) -> Settled:
        """Complete a chain of one job without a worker."""
        return await self.settle(completed(chain_id, output), tx=tx)

    async def job(self, job_id: str, *, tx: Any = None) -> JobRow:
        """A job that must be stored."""
        return present((await self.jobs(job_id, tx=tx))[0], f"stored job {job_id}")

    async def chain(self, chain_id: str, *, tx: Any = None) -> ChainRow:
        """A chain that must be stored."""
        return present((await self.chains(chain_id, tx=tx))[0], f"stored chain {chain_id}")

    async def statuses(self, *job_ids: str, tx: Any = None) -> list[Status | None]:
        """The status of each job, None for an unknown id."""
        return [None if job is None else job.status for job in await self.jobs(*job_ids, tx=tx)]

    # Hooks.

    async def second(self) -> Store:
        """Other connections to the same storage."""
        return Store(self._harness, await self._harness.second(), self._exits)

    async def poison(self, tx: Any) -> None:
        """Make a statement fail in the transaction."""
        await self.driver.call(lambda: self._harness.poison(tx))

    @property
    def has_clock(self) -> bool:
        """Whether the harness can move the database's clock, so that days need not pass."""
        return type(self._harness).advance is not StateHarness.advance

    async def elapse(self, seconds: float) -> None:
        """Let time pass for the database."""
        try:
            await self._harness.advance(seconds)
        except NotImplementedError:
            await asyncio.sleep(seconds)

    def spawn(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Start something that may have to wait.

        A task that still runs is cancelled after the case.
        """
        task = asyncio.get_running_loop().create_task(work, context=Context())
        self._exits.push_async_callback(_cancel, task)
        return task

    async def _close(self) -> None:
        try:
            await asyncio.wait_for(self.driver.close(), _CLOSING)
        finally:
            self.driver.release()


STATE: Suite[Store] = Suite("state")
case = STATE.case
driver_case = STATE.driver_case


@asynccontextmanager
async def open_store(harness: StateHarness) -> AsyncGenerator[Store, None]:
    """The store of one case, on empty storage."""
    async with AsyncExitStack() as exits:
        exits.push_async_callback(harness.dispose)
        store = Store(harness, harness.adapter, exits)
        await harness.reset()
        await store.migrate()
        yield store


async def settled_soon(task: asyncio.Task[Any], seconds: float = 0.1) -> bool:
    """Whether the task ends within a moment. A task that waits for another transaction does not."""
    done, _ = await asyncio.wait([task], timeout=seconds)
    return bool(done)


async def _cancel(task: asyncio.Task[Any]) -> None:
    task.cancel()
    await asyncio.wait([task], timeout=_CLOSING)
