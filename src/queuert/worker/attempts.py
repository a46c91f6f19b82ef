"""The jobs that a worker holds, from their claim until they are settled.

Follow a job: `begin` starts its task → `_handler_ended` → `_conclude` asks for a verdict → the settler (or the
attempt's own transaction) settles it → `_forget`.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Collection, Coroutine, Sequence
from contextlib import suppress
from typing import Any

from queuert.client.base import OpenBlock
from queuert.client.client import Client
from queuert.errors import OwnershipLost, TransactionMisused
from queuert.model import Claimed, JobRow, Lease, Settled, Settlement
from queuert.operations.settle import settle
from queuert.ports.notify import MISSED
from queuert.transaction import Hooks, Transaction
from queuert.worker import failure
from queuert.worker.abort import AbortReason, lost_reason
from queuert.worker.agenda import Agenda
from queuert.worker.attempt_transaction import AttemptTransaction
from queuert.worker.client_for_threads import client_for_threads
from queuert.worker.execution import Execution
from queuert.worker.held import Held
from queuert.worker.options import WorkerOptions
from queuert.worker.outcome import LEFT_OPEN, Outcome, Raised, Returned, SettledInThread
from queuert.worker.prefetch import Prefetch
from queuert.worker.settling import Item, Settler
from queuert.worker.verdict import Verdicts

logger = logging.getLogger("queuert.worker")


class Attempts:
    def __init__(self, worker_id: str, client: Client[Any], options: WorkerOptions, agenda: Agenda) -> None:
        self._client = client
        self._engine = client.engine
        self._options = options
        self._agenda = agenda
        self._execution = Execution(client, client_for_threads(client), worker_id)
        self._verdicts = Verdicts(client.engine, worker_id)
        self._settler = Settler(self._settle_group, self._on_settled, self._instead, options.recovery_backoff)
        self._type_by_task: dict[asyncio.Task[Any], str] = {}
        self._engine_tasks: set[asyncio.Task[None]] = set()
        self._loop = asyncio.get_running_loop()
        self._closed = False
        self._waiting: deque[Held] = deque()
        self.held: dict[str, Held] = {}
        self.busy_slots = 0
        self.ended = 0
        """How many handlers have ended, ever."""
        self.prefetch = Prefetch(
            options.concurrency,
            # Where there are limits, what is claimed ahead would use up room in which others could run theirs.
            0 if options.policy.limited else options.prefetch,
            time.monotonic(),
        )
        self.all_ended = asyncio.Event()
        """No handler is running."""
        self.all_ended.set()

    @property
    def unsettled(self) -> int:
        """How many have ended and wait to be settled."""
        return len(self.held) - self.active

    @property
    def active(self) -> int:
        """How many are running, or wait for a slot."""
        return self.busy_slots + len(self._waiting)

    @property
    def waiting(self) -> int:
        """How many were claimed ahead, and wait for a slot."""
        return len(self._waiting)

    @property
    def waiting_since(self) -> float | None:
        """When the first of them was claimed."""
        return self._waiting[0].claimed_at if self._waiting else None

    # One job

    def begin(self, claimed: Claimed, claimed_at: float, *, stopping: bool) -> None:
        row = claimed.job
        plan = self._options.plans[row.type_name]
        held = Held(claimed, plan, claimed_at)
        before = self.held.get(row.id)
        if before is not None and before.active:
            # Its lease had ended, and the job has come back to us before we noticed.
            self.abort(before, "taken_by_another_worker")
        self.held[row.id] = held
        if stopping:
            self._settler.add(held, self._verdicts.given_back(held))
        elif claimed.expired:
            self._settler.add(held, self._verdicts.expired(held))
        elif plan.max_attempts is not None and row.attempt > plan.max_attempts:
            self._settler.add(held, self._verdicts.exhausted(held))
        elif self.busy_slots < self._options.concurrency:
            self._start(held)
        else:
            held.waiting = True
            self._waiting.append(held)

    def _start(self, held: Held) -> None:
        plan = held.plan
        if not self.busy_slots:
            self.all_ended.clear()
            self.prefetch.busy(time.monotonic())
        self.busy_slots += 1
        held.running = True
        task = self._loop.create_task(self._execution.run(held))
        held.task = task
        self._type_by_task[task] = plan.name
        if plan.timeout is not None:
            held.timer = self._loop.call_later(plan.timeout, self.abort, held, "timeout")
        task.add_done_callback(lambda task: self._handler_ended(held, task))

    def _start_waiting(self) -> None:
        while self._waiting and self.busy_slots < self._options.concurrency:
            held = self._waiting.popleft()
            held.waiting = False
            # No longer ours, as far as we know; the fence decides.
            if held.signal.aborted or time.monotonic() >= held.lease_end:
                self._settler.add(held, self._verdicts.given_back(held))
            else:
                self._start(held)

    def give_back_waiting(self) -> None:
        """Let others have what was claimed ahead."""
        while self._waiting:
            held = self._waiting.popleft()
            held.waiting = False
            self._settler.add(held, self._verdicts.given_back(held))

    def _handler_ended(self, held: Held, task: asyncio.Task[Outcome]) -> None:
        held.running = False
        self.ended += 1
        self.busy_slots -= 1
        if self._waiting:
            self._start_waiting()
        del self._type_by_task[task]
        if held.timer is not None:
            held.timer.cancel()
        if not self.busy_slots:
            self.all_ended.set()
            self.prefetch.idle(time.monotonic())
        if self._closed:
            logger.warning("job %s (%s) ended after its worker had stopped: what it returned is dropped, and it runs "
                           "again once its lease has ended", held.row.id, held.row.type_name,
                           extra=self._verdicts.extra(held))  # fmt: skip
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
        if self._agenda.wants_claim and len(self._waiting) <= self.prefetch.refill_at:
            self._agenda.event.set()

    async def _conclude_in_transaction(
        self, held: Held, outcome: Outcome, transaction: AttemptTransaction[Any]
    ) -> None:
        """Settle the job in the transaction that the handler left open; or roll that back, and settle the failure."""
        if isinstance(outcome, Returned):
            try:
                settlement = self._verdicts.completed(held, outcome.value)
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
                    self._agenda.claim_soon()
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
            self._agenda.claim_soon()
            return
        settlement = self._verdicts.on(held, outcome)
        if settlement is None:
            self._forget(held)
        else:
            self._settler.add(held, settlement)

    # Settling

    def _instead(self, held: Held, error: Exception) -> Settlement:
        """The result could not be stored (a continuation's id exists, say): the attempt has failed with that."""
        return self._verdicts.failed(held, error, None)

    async def _settle_group(self, items: Sequence[Item]) -> Settled:
        hooks = Hooks()
        pairs: list[tuple[JobRow, Settlement]] = [(held.row, settlement) for held, settlement in items]
        settled = await self._client._run((settle(self._engine, hooks, pairs), None))
        if settled.unblocked or any(created is not None for created in settled.created):
            self._agenda.claim_soon()
        await self._client.flush(hooks)
        return settled

    def _on_settled(self, held: Held, settlement: Settlement, *, took_effect: bool) -> None:
        if not took_effect:
            logger.info("job %s (%s) had moved on: its result was dropped", held.row.id, held.row.type_name,
                        extra=self._verdicts.extra(held))  # fmt: skip
            # Perhaps by ourselves, in a COMMIT whose answer got lost, and then nothing was announced.
            self._agenda.claim_soon()
        elif settlement.status == "pending":
            self._put_back(settlement)
        self._forget(held)

    def _put_back(self, settlement: Settlement) -> None:
        """The job may be ours again when its time comes: a lost notification must not delay it."""
        if settlement.schedule.after:
            self._agenda.due_in(settlement.schedule.after)
            self._agenda.event.set()
        else:
            self._agenda.claim_soon()

    def _forget(self, held: Held) -> None:
        # Only if it is this claim: the same job may have been claimed again.
        if self.held.get(held.row.id) is held:
            del self.held[held.row.id]
        if self._options.policy.limited:
            # The limits count what is held: this may have been what kept another job waiting.
            self._agenda.wants_claim = True
        if self._agenda.wants_claim or not self.held:
            self._agenda.event.set()

    # Ownership

    async def renew(self, leases: Sequence[Lease]) -> list[str]:
        return await self._client._run((self._engine.state.renew(leases), None))

    def maybe_lost(self, job_id: str) -> None:
        """A hint, perhaps an old one: the database decides."""
        if job_id == MISSED:
            suspects = [held.row.id for held in self.held.values() if held.active]
        else:
            suspects = [job_id] if job_id in self.held else []
        if suspects:
            self._spawn(self.look_into(suspects))

    async def look_into(self, job_ids: Collection[str]) -> None:
        mine = [self.held[job_id] for job_id in job_ids if job_id in self.held]
        try:
            rows = await self._client._run((self._engine.state.get_jobs([held.row.id for held in mine]), None))
        except Exception:
            logger.warning("cannot tell whether %d jobs are still ours; the next renewal will", len(mine),
                           exc_info=True)  # fmt: skip
            return
        for held, row in zip(mine, rows, strict=True):
            reason = lost_reason(row, held.token)
            if reason is not None and held.active:
                self.abort(held, reason)

    def abort(self, held: Held, reason: AbortReason) -> None:
        """Tell the handler to stop. Only user code is ever cancelled: a task that has ended is not touched."""
        held.signal.abort(reason)
        if held.running and held.plan.is_async and held.task is not None and self._options.cancel_on_abort:
            held.task.cancel()

    # The end

    async def async_handlers_ended(self) -> None:
        tasks = [held.task for held in self.held.values() if held.task is not None and held.plan.is_async]
        if tasks:
            await asyncio.wait(tasks)

    async def everything_settled(self) -> None:
        while self._engine_tasks or self._settler.busy:
            if self._engine_tasks:
                await asyncio.wait(self._engine_tasks)
            await self._settler.finish()

    def abort_running(self, reason: AbortReason) -> None:
        for held in list(self.held.values()):
            if held.running:
                self.abort(held, reason)

    async def close(self) -> None:
        """From here on, what a handler that would not end still does has no effect."""
        self._closed = True
        await self._settler.give_up()
        left = list(self._engine_tasks)
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)

    def type_of(self, task: asyncio.Task[Any]) -> str | None:
        """The job type whose handler runs in this task."""
        return self._type_by_task.get(task)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """A task of the engine's own, which no handler's end touches."""
        task = asyncio.create_task(work)
        self._engine_tasks.add(task)
        task.add_done_callback(self._engine_tasks.discard)
