"""One run of a worker, from start to stop: its main loop, the jobs it holds, and how it ends.

Follow a job: `_fill` claims it → `_begin` starts its task → `_handler_ended` → `_conclude` decides what becomes of it →
the settler (or the attempt's own transaction) settles it → `_forget`.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Collection, Coroutine, Sequence
from contextlib import suppress
from typing import Any, Generic, TypeVar

from queuert.client.base import OpenBlock
from queuert.client.client import Client
from queuert.client.sync_client import SyncClient
from queuert.errors import InvalidArgument, OwnershipLost, Reschedule, TransactionMisused
from queuert.model import Claimed, JobRow, Lease, Settled, Settlement, When, aware, seconds
from queuert.operations.settle import completion, settle
from queuert.ports.program import Program
from queuert.ports.state import SyncStateAdapter
from queuert.transaction import Hooks, Transaction
from queuert.worker import failure
from queuert.worker.abort import AbortReason, lost_reason
from queuert.worker.backoff import LONGEST, Recovery
from queuert.worker.claiming import ClaimPolicy
from queuert.worker.execution import Execution
from queuert.worker.held import Held
from queuert.worker.leases import LeaseKeeper
from queuert.worker.options import WorkerOptions
from queuert.worker.outcome import LEFT_OPEN, Late, Outcome, Raised, Returned, SettledInThread
from queuert.worker.phases import AttemptTransaction
from queuert.worker.settling import Item, Settler
from queuert.worker.thread_notify import ThreadNotify
from queuert.worker.wake import Wake
from queuert.worker.watchdog import Watchdog

logger = logging.getLogger("queuert.worker")

T = TypeVar("T")
Conn = TypeVar("Conn")

MAX_UNSETTLED = 1000
CLEAN_UP = (1.0, 5.0)
"""Seconds, at least and at most, for cancelled handlers to come to their end when the worker stops."""
LOST: frozenset[AbortReason] = frozenset(("taken_by_another_worker", "not_found", "already_completed", "cancelled"))
_LEASE_EXPIRED = failure.record(failure.LEASE_EXPIRED, "the worker that ran the job stopped renewing its lease")


class WorkerRun(Generic[Conn]):
    def __init__(self, worker_id: str, client: Client[Conn], options: WorkerOptions) -> None:
        self._worker_id = worker_id
        self._client = client
        self._options = options
        self._engine = client.engine
        self._policy: ClaimPolicy = options.policy
        self._plans = options.plans
        self._held: dict[str, Held] = {}
        self._busy_slots = 0
        self._wants_claim = True
        self._due_at: float | None = None
        self._poll_at = 0.0
        self._reap_at = 0.0
        self._recovery = Recovery(options.recovery_backoff)
        self._settler = Settler(self._settle_group, self._on_settled, self._instead, options.recovery_backoff)
        self._keeper = LeaseKeeper(self._held, self._renew, self._look_into, self._abort, options.renew_interval)
        self._wake = Wake(client.notify, self._policy.types, self._maybe_lost, options.coalesce_notifies)
        self._execution = Execution(client, self._sync_client(), worker_id)
        self._watchdog = Watchdog(self._type_of_task)
        self._type_by_task: dict[asyncio.Task[Any], str] = {}
        self._engine_tasks: set[asyncio.Task[None]] = set()
        self._stopping = asyncio.Event()
        self._migrated = True
        self._closed = False
        """The run is over: what a handler that would not end still does has no effect."""
        self._hurry = asyncio.Event()
        self._quiet = asyncio.Event()
        """Nothing is held, and the last claim found nothing."""
        self._all_ended = asyncio.Event()
        """No handler is running."""
        self._all_ended.set()
        self._keeper_task: asyncio.Task[None] | None = None
        self._main_task: asyncio.Task[None] | None = None

    # Life

    def start(self, *, migrated: bool) -> None:
        self._migrated = migrated
        self._main_task = asyncio.create_task(self._main(), name=f"queuert-worker {self._worker_id}")
        self._keeper_task = asyncio.create_task(self._keeper.run(), name=f"queuert-leases {self._worker_id}")
        self._watchdog.start()
        logger.info("worker %s started", self._worker_id, extra={"worker": self._worker_id})

    def hurry(self) -> None:
        """Stop waiting for running handlers."""
        self._hurry.set()

    async def drain(self) -> None:
        """Until nothing is runnable, or the worker stops."""
        if self._closed:
            return
        self._wants_claim = True
        self._quiet.clear()
        self._wake.event.set()
        await self._quiet.wait()

    async def stop(self) -> bool:
        """End this run. True if every job was settled, False if some had to be aborted or left to their leases."""
        logger.info("worker %s stopping", self._worker_id, extra={"worker": self._worker_id})
        timeout = self._options.shutdown_timeout
        self._stopping.set()
        self._wake.event.set()
        # A claim that is under way gives back what it gets, so from here on running handlers only become fewer.
        clean = await self._handlers_ended(timeout)
        if not clean:
            self._abort_running()
            # Cancelled handlers get a moment to clean up; threads cannot be cancelled and keep their leases.
            await self._within(min(max(timeout, CLEAN_UP[0]), CLEAN_UP[1]), self._async_handlers_ended())
        if not await self._within(max(timeout, 1.0), self._everything_settled()):
            logger.error("worker %s stopped with results unsettled: those jobs will run again once their leases have "
                         "ended", self._worker_id, extra={"worker": self._worker_id})  # fmt: skip
            clean = False
        await self._close()
        logger.info("worker %s stopped", self._worker_id, extra={"worker": self._worker_id, "clean": clean})
        return clean

    async def _close(self) -> None:
        self._closed = True
        self._quiet.set()
        await self._settler.give_up()
        left = {task for task in (self._main_task, self._keeper_task, *self._engine_tasks) if task is not None}
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        await self._wake.dispose()
        if self._main_task is not None:
            self._watchdog.stop()

    async def _handlers_ended(self, timeout: float) -> bool:
        """Whether all handlers ended in time, and before a second signal."""
        if self._busy_slots:
            second_signal = asyncio.ensure_future(self._hurry.wait())
            ended = asyncio.ensure_future(self._all_ended.wait())
            await asyncio.wait((second_signal, ended), timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
            second_signal.cancel()
            ended.cancel()
        return not self._busy_slots

    def _abort_running(self) -> None:
        for held in list(self._held.values()):
            if held.running:
                self._abort(held, "shutdown")

    async def _within(self, timeout: float, work: Coroutine[Any, Any, None]) -> bool:
        """Whether this came to its end in time."""
        task = asyncio.ensure_future(work)
        await asyncio.wait({task}, timeout=timeout)
        if not task.done():
            task.cancel()
            return False
        return True

    async def _async_handlers_ended(self) -> None:
        tasks = [held.task for held in self._held.values() if held.task is not None and held.plan.is_async]
        if tasks:
            await asyncio.wait(tasks)

    async def _everything_settled(self) -> None:
        if self._main_task is not None:
            # Not cancelled: a claim that is under way would be lost, and its jobs left leased.
            await asyncio.wait({self._main_task})
        while self._engine_tasks or self._settler.busy:
            if self._engine_tasks:
                await asyncio.wait(self._engine_tasks)
            await self._settler.finish()

    # The main loop

    async def _main(self) -> None:
        while not self._stopping.is_set():
            try:
                await self._turn()
                self._recovery.reset()
            except Exception:
                delay = self._recovery.next_delay()
                logger.exception(
                    "worker %s: a turn of the main loop failed, trying again in %.1f s", self._worker_id, delay,
                    extra={"worker": self._worker_id},
                )  # fmt: skip
                # Not on the wake-up event: one that came before the failure would make this a busy loop.
                await _wait_for(self._stopping, delay)

    async def _turn(self) -> None:
        """Fill the free slots, reap, then wait for a reason to do so again."""
        if not self._migrated:
            await self._client.migrate()
            self._migrated = True
        if self._wants_claim:
            await self._fill()
        await self._reap()
        now = time.monotonic()
        if now >= self._poll_at:
            await self._poll()
            self._poll_at = now + self._options.poll_interval  # afterwards: if it fails, the next turn asks again
        if self._wants_claim and self._has_room():
            return
        if not self._held:
            self._quiet.set()
        await self._wait()

    async def _poll(self) -> None:
        """What notifications would have told, asked of the database: it is right, whatever got lost."""
        await self._wake.listen()
        if not self._wants_claim:
            available = await self._run(self._engine.state.next_available_in(self._policy.types))
            # Only ever added to: what happened here while the database was asked may be news to its answer.
            if available == 0:
                self._wants_claim = True
            elif available is not None:
                self._due_in(available)

    def _due_in(self, delay: float) -> None:
        """Look for jobs then, at the latest."""
        due_at = time.monotonic() + delay
        self._due_at = due_at if self._due_at is None else min(self._due_at, due_at)

    async def _wait(self) -> None:
        now = time.monotonic()
        until = min(self._poll_at, self._reap_at)
        if self._due_at is not None:
            until = min(until, self._due_at)
        if until > now and not self._stopping.is_set():
            await _wait_for(self._wake.event, until - now)
        self._wake.event.clear()
        if self._due_at is not None and time.monotonic() >= self._due_at:
            self._due_at = None
            self._wants_claim = True
        if await self._wake.should_claim(able=self._has_room() and not self._stopping.is_set()):
            self._wants_claim = True

    def _has_room(self) -> bool:
        return self._request() is not None

    def _request(self) -> Any:
        unsettled = len(self._held) - self._busy_slots
        return None if unsettled >= MAX_UNSETTLED else self._policy.request(self._held.values(), self._busy_slots)

    async def _fill(self) -> None:
        request = self._request()
        if request is None:
            return
        claimed_at = time.monotonic()
        # Before the claim: what is announced while it is under way must not be forgotten.
        self._wants_claim = False
        try:
            result = await self._run(self._engine.state.claim(request))
        except BaseException:
            self._wants_claim = True
            raise
        # An empty claim that reports more has met only jobs that somebody else holds: asking again at once would not help.
        if result.more and result.jobs:
            self._wants_claim = True
        if result.next_in is not None:
            self._due_in(result.next_in)
        for claimed in result.jobs:
            self._begin(claimed, claimed_at)

    async def _reap(self) -> None:
        now = time.monotonic()
        if now < self._reap_at:
            return
        hooks = Hooks()
        reaped = await self._run(self._engine.state.reap(self._policy.types, list(self._held), 1, _LEASE_EXPIRED))
        if not reaped:
            self._reap_at = now + self._options.reap_interval
            return
        # There may be more: the next turn looks again.
        self._wants_claim = True
        notifications = self._engine.notifications(hooks)
        for row in reaped:
            logger.warning("job %s (%s) was taken back: its lease had ended", row.id, row.type_name,
                           extra={"job_id": row.id, "job_type": row.type_name})  # fmt: skip
            notifications.job_scheduled(row.type_name)
            notifications.ownership_lost(row.id)
        await self._client.flush(hooks)

    # One job

    def _begin(self, claimed: Claimed, claimed_at: float) -> None:
        row = claimed.job
        plan = self._plans[row.type_name]
        held = Held(claimed, plan, claimed_at)
        before = self._held.get(row.id)
        if before is not None and before.running:
            # Its lease had ended, and the job has come back to us before we noticed.
            self._abort(before, "taken_by_another_worker")
        self._held[row.id] = held
        self._quiet.clear()
        if self._stopping.is_set():
            self._settler.add(held, Settlement(job_id=row.id, token=held.token, status="pending", give_back=True))
        elif claimed.expired:
            self._settler.add(held, self._expired(held))
        elif plan.max_attempts is not None and row.attempt > plan.max_attempts:
            self._exhausted(held)
        else:
            self._busy_slots += 1
            self._all_ended.clear()
            held.running = True
            task = asyncio.create_task(self._execution.run(held))
            held.task = task
            self._type_by_task[task] = plan.name
            if plan.timeout is not None:
                held.timer = asyncio.get_running_loop().call_later(plan.timeout, self._abort, held, "timeout")
            task.add_done_callback(lambda task: self._handler_ended(held, task))

    def _handler_ended(self, held: Held, task: asyncio.Task[Outcome]) -> None:
        held.running = False
        self._busy_slots -= 1
        del self._type_by_task[task]
        if held.timer is not None:
            held.timer.cancel()
        if not self._busy_slots:
            self._all_ended.set()
        if self._closed:
            logger.warning("job %s (%s) ended after its worker had stopped: what it returned is dropped, and it runs "
                           "again once its lease has ended", held.row.id, held.row.type_name,
                           extra=self._extra(held))  # fmt: skip
            if held.phases is not None and (left_open := held.phases.left_open()) is not None:
                self._spawn(left_open.roll_back())
            return
        # A task that was cancelled before its first step has no outcome of its own.
        outcome: Outcome = Raised(asyncio.CancelledError()) if task.cancelled() else task.result()
        phases = held.phases
        problem = None if phases is None else phases.problem()
        if problem is not None and isinstance(outcome, Returned):
            # The handler has swallowed an error that a phase ended with: what it returned says nothing.
            outcome = Raised(problem)
        transaction = None if phases is None else phases.left_open()
        forgotten = self._client._nesting.left_open_by(task)
        if forgotten is not None:
            self._spawn(self._conclude_after_forgotten(held, outcome, transaction, forgotten))
        elif transaction is None:
            self._conclude(held, outcome)
        else:
            self._spawn(self._conclude_in_transaction(held, outcome, transaction))
        if self._wants_claim:
            self._wake.event.set()

    async def _conclude_in_transaction(
        self, held: Held, outcome: Outcome, transaction: AttemptTransaction[Any]
    ) -> None:
        """Settle the job in the transaction that the handler left open; or roll that back, and settle the failure."""
        if isinstance(outcome, Returned):
            try:
                settlement = self._completion(held, outcome.value)
            except Exception as error:
                outcome = Raised(error, failure.SERIALIZATION_ERROR)
            else:
                try:
                    await transaction.commit(lambda tx: self._settle_in(tx, held, settlement))
                except Exception as error:
                    # Rolled back; or, if the connection broke during COMMIT, perhaps not: then the token is gone,
                    # and the put-back that follows finds that out.
                    outcome = Raised(error)
                else:
                    self._on_settled(held, settlement, took_effect=True)
                    self._created_work()
                    return
        await transaction.roll_back()
        self._conclude(held, outcome)

    async def _conclude_after_forgotten(
        self, held: Held, outcome: Outcome, transaction: AttemptTransaction[Any] | None, forgotten: OpenBlock
    ) -> None:
        """The handler has opened a transaction of the client's own and never left it: nobody else could write."""
        error = TransactionMisused(LEFT_OPEN)
        block = forgotten.get()
        if block is not None:
            with suppress(Exception):
                await block.__aexit__(TransactionMisused, error, None)
        if transaction is not None:
            await transaction.roll_back()
        self._conclude(held, Raised(error) if isinstance(outcome, Returned) else outcome)

    async def _settle_in(self, tx: Transaction[Any], held: Held, settlement: Settlement) -> None:
        program = settle(self._engine, tx.hooks, [(held.row, settlement)])
        settled = await self._client._run((program, tx.connection))
        if not settled.held[0]:
            raise OwnershipLost(held.row.id, "taken_by_another_worker")

    def _conclude(self, held: Held, outcome: Outcome) -> None:
        """What becomes of a job whose handler has ended, and which is not settled yet."""
        if isinstance(outcome, SettledInThread):
            self._forget(held)
            self._created_work()
            return
        try:
            settlement = self._settlement(held, outcome)
        except Exception as error:
            # What the handler returned cannot be stored, or the time it asked for is none.
            code = failure.SERIALIZATION_ERROR if isinstance(outcome, Returned) else None
            settlement = self._failed(held, error, code)
        if settlement is None:
            self._forget(held)
        else:
            self._settler.add(held, settlement)

    def _settlement(self, held: Held, outcome: Returned | Raised | Late) -> Settlement | None:
        """How the job goes on; None if that is not ours to say any more."""
        match outcome:
            case Returned(value):
                return self._completion(held, value)
            case Late():
                return self._expired(held)
            case Raised(error, code):
                return self._after_error(held, error, code)

    def _after_error(self, held: Held, error: BaseException, code: str | None) -> Settlement | None:
        reason = held.signal.reason
        if reason in LOST or (isinstance(error, OwnershipLost) and error.job_id == held.row.id):
            logger.info("job %s (%s) was stopped: %s", held.row.id, held.row.type_name, reason or error,
                        extra=self._extra(held))  # fmt: skip
            return None
        if reason == "shutdown" and isinstance(error, asyncio.CancelledError):
            return Settlement(job_id=held.row.id, token=held.token, status="pending")
        if isinstance(error, Reschedule):
            return self._rescheduled(held, error)
        if reason == "timeout":
            return self._timed_out(held, error)
        return self._failed(held, error, code)

    def _completion(self, held: Held, value: Any) -> Settlement:
        return completion(self._engine, held.row, value, token=held.token, worker=self._worker_id)

    def _timed_out(self, held: Held, error: BaseException) -> Settlement:
        if isinstance(error, asyncio.CancelledError):
            # That was our doing: say why.
            cancelled, error = error, TimeoutError(f"the attempt took longer than {held.plan.timeout:g} s")
            error.__cause__ = cancelled
        return self._failed(held, error, failure.TIMEOUT)

    def _failed(self, held: Held, error: BaseException, code: str | None) -> Settlement:
        plan, row = held.plan, held.row
        last = plan.max_attempts is not None and row.attempt >= plan.max_attempts
        delay = plan.backoff.delay(row.attempt)
        code = code or failure.code_of(error)
        next_one = "that was the last one" if last else f"next one in {delay:.1f} s"
        failure.log(
            error, "attempt %d of job %s (%s) failed: %s, %s", row.attempt, row.id, row.type_name, code, next_one,
            extra={**self._extra(held), "error_code": code},
        )  # fmt: skip
        return Settlement(
            job_id=row.id,
            token=held.token,
            status="failed" if last else "pending",
            error=failure.record_of(error, code),
            schedule=When(after=delay),
            worker=self._worker_id if last else None,
        )

    def _instead(self, held: Held, error: Exception) -> Settlement:
        """The result could not be stored (a continuation's id exists, say): the attempt has failed with that."""
        return self._failed(held, error, None)

    def _rescheduled(self, held: Held, request: Reschedule) -> Settlement:
        cause = request.cause if request.cause is not None else request.__cause__
        return Settlement(
            job_id=held.row.id,
            token=held.token,
            status="pending",
            error=None if cause is None else failure.record_of(cause),
            schedule=_asked_for(request),
        )

    def _expired(self, held: Held) -> Settlement:
        error = failure.record(failure.EXPIRED, "the deadline passed before the work began")
        return Settlement(job_id=held.row.id, token=held.token, status="expired", error=error, worker=self._worker_id)

    def _exhausted(self, held: Held) -> None:
        """The job has used up its attempts without an end of its own: each time, its worker died or lost it."""
        error = held.row.last_error or failure.record(
            failure.LEASE_EXPIRED, f"all {held.plan.max_attempts} attempts ended without a result"
        )
        self._settler.add(
            held,
            Settlement(job_id=held.row.id, token=held.token, status="failed", error=error, worker=self._worker_id),
        )

    # Settling

    async def _settle_group(self, items: Sequence[Item]) -> Settled:
        hooks = Hooks()
        pairs: list[tuple[JobRow, Settlement]] = [(held.row, settlement) for held, settlement in items]
        settled = await self._run(settle(self._engine, hooks, pairs))
        if settled.unblocked or any(created is not None for created in settled.created):
            self._created_work()
        await self._client.flush(hooks)
        return settled

    def _on_settled(self, held: Held, settlement: Settlement, *, took_effect: bool) -> None:
        if not took_effect:
            logger.info("job %s (%s) had moved on: its result was dropped", held.row.id, held.row.type_name,
                        extra=self._extra(held))  # fmt: skip
            # Perhaps by ourselves, in a COMMIT whose answer got lost, and then nothing was announced.
            self._created_work()
        elif settlement.status == "pending":
            self._put_back(settlement)
        self._forget(held)

    def _put_back(self, settlement: Settlement) -> None:
        """The job may be ours again when its time comes: a lost notification must not delay it."""
        if settlement.schedule.after:
            self._due_in(settlement.schedule.after)
        else:
            self._wants_claim = True
        self._wake.event.set()

    def _created_work(self) -> None:
        """We made a job runnable: look for it without waiting to be told."""
        self._wants_claim = True
        self._wake.event.set()

    def _forget(self, held: Held) -> None:
        # Only if it is this claim: the same job may have been claimed again.
        if self._held.get(held.row.id) is held:
            del self._held[held.row.id]
        if self._policy.limited:
            # The limits count what is held: this may have been what kept another job waiting.
            self._wants_claim = True
        if self._wants_claim or not self._held:
            self._wake.event.set()

    # Leases and ownership

    async def _renew(self, leases: Sequence[Lease]) -> list[str]:
        return await self._run(self._engine.state.renew(leases))

    def _maybe_lost(self, job_id: str) -> None:
        """A hint, perhaps an old one: the database decides."""
        if job_id in self._held:
            self._spawn(self._look_into([job_id]))

    async def _look_into(self, job_ids: Collection[str]) -> None:
        mine = [self._held[job_id] for job_id in job_ids if job_id in self._held]
        try:
            rows = await self._run(self._engine.state.get_jobs([held.row.id for held in mine]))
        except Exception:
            logger.warning("cannot tell whether %d jobs are still ours; the next renewal will", len(mine),
                           exc_info=True)  # fmt: skip
            return
        for held, row in zip(mine, rows, strict=True):
            reason = lost_reason(row, held.token)
            if reason is not None and held.running:
                self._abort(held, reason)

    def _abort(self, held: Held, reason: AbortReason) -> None:
        """Tell the handler to stop. Only user code is ever cancelled: a task that has ended is not touched."""
        held.signal.abort(reason)
        if held.running and held.plan.is_async and held.task is not None and self._options.cancel_on_abort:
            held.task.cancel()

    # Small things

    async def _run(self, program: Program[T]) -> T:
        return await self._client._run((program, None))

    def _spawn(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._engine_tasks.add(task)
        task.add_done_callback(self._engine_tasks.discard)

    def _type_of_task(self, task: asyncio.Task[Any]) -> str | None:
        return self._type_by_task.get(task)

    def _sync_client(self) -> SyncClient[Any] | None:
        provider = self._client.state.sync_provider
        if provider is None:
            return None
        return SyncClient(
            SyncStateAdapter(self._engine.state, provider),
            ThreadNotify(self._client.notify, asyncio.get_running_loop()),
            self._engine.jobs,
            generate_id=self._engine.generate_id,
            validate_id=self._engine.validate_id,
            migrate=False,
        )

    def _extra(self, held: Held) -> dict[str, Any]:
        row = held.row
        return {
            "job_id": row.id,
            "job_type": row.type_name,
            "chain_id": row.chain_id,
            "attempt": row.attempt,
            "worker": self._worker_id,
        }


def _asked_for(request: Reschedule) -> When:
    """The time that a handler asked for; `InvalidArgument` if no database could store it."""
    if request.at is not None:
        return When(at=aware(request.at, "Reschedule(at=…)"))
    after = seconds(request.after or 0.0, "Reschedule(after=…)")
    if after > LONGEST:
        raise InvalidArgument(f"Reschedule(after={request.after!r}) lies too far ahead: a hundred years are the most")
    return When(after=after)


async def _wait_for(event: asyncio.Event, delay: float) -> None:
    """Until the event is set, or the time is up."""
    try:
        async with asyncio.timeout(delay):
            await event.wait()
    except TimeoutError:
        return
