"""The jobs that a worker has claimed, until they are settled.

Follow a job: `_begin` starts its task → `_handler_ended` → `_conclude` asks for a verdict → the
settler (or the attempt's own transaction) settles it → `_release`.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Coroutine, Hashable, Iterable, Sequence
from typing import Any

from queuert.client.client import Client
from queuert.errors import TransactionMisused
from queuert.records.model import ALONE_AFTER, Claimed, Settlement
from queuert.records.pauses import Pause, is_paused, stops
from queuert.worker.attempts.ending import LEFT_OPEN, checked, end_attempt
from queuert.worker.attempts.execution import Execution
from queuert.worker.attempts.outcome import EndedInside, Outcome, Raised, Settled
from queuert.worker.attempts.overdue import Overdue
from queuert.worker.attempts.settling import Settler
from queuert.worker.attempts.transaction import AttemptTransaction
from queuert.worker.attempts.unhandled import Unhandled
from queuert.worker.attempts.verdict import Verdicts
from queuert.worker.base.abort import AbortReason
from queuert.worker.base.next_turn import NextTurn
from queuert.worker.handlers.claim import Claim
from queuert.worker.handlers.listener import AttemptListener
from queuert.worker.policy.horizon import ClaimedAhead
from queuert.worker.policy.options import WorkerOptions
from queuert.worker.policy.prefetch import Prefetch

logger = logging.getLogger("queuert.worker")


class Attempts:
    def __init__(
        self,
        worker_id: str,
        client: Client[Any],
        options: WorkerOptions,
        next_turn: NextTurn,
        listener: AttemptListener,
        *,
        left_running: set[str],
        when_unknown: Callable[[], None],
    ) -> None:
        """`left_running`: see `WorkerRun`. `when_unknown` is called when the database no longer
        knows this worker.
        """
        self._worker_id = worker_id
        self._sessions = client.sessions
        self._options = options
        self._next_turn = next_turn
        self._listener = listener
        self._left_running = left_running
        self._when_unknown = when_unknown
        self._verdicts = Verdicts(self._sessions.engine, worker_id)
        self._execution = Execution(client, self._verdicts, listener)
        self._limit = options.limit
        self._settler = self._new_settler()
        self._overdue = Overdue(self._new_settler(), self._verdicts, options.concurrency)
        self._unhandled = Unhandled(worker_id, self._sessions, self._limit, self.spawn)
        self._claim_by_task: dict[asyncio.Task[Any], Claim] = {}
        self._own_tasks: set[asyncio.Task[None]] = set()
        self._loop = asyncio.get_running_loop()
        self._closed = False
        self._ahead = ClaimedAhead(
            options.policy.ordinals, options.concurrency, self._store_horizon, self.spawn, self._start_waiting
        )
        self._waiting = self._ahead.claims
        self.claims: dict[str, Claim] = {}
        """By job id."""
        self.alone: Claim | None = None
        """A job that was lost again and again: nothing else begins here before it has ended."""
        self._alone_waits = False
        """It has not begun."""
        self.busy_slots = 0
        self.ended = 0
        """How many handlers have ended, ever."""
        self.prefetch = Prefetch(
            options.concurrency,
            # With limits, jobs that are claimed ahead would count against them, and other workers
            # could run fewer jobs.
            0 if options.policy.limited else options.prefetch,
            time.monotonic(),
        )
        self.all_ended = asyncio.Event()
        """No handler is running, except overdue ones."""
        self.all_ended.set()

    def _new_settler(self) -> Settler:
        return Settler(self._sessions, self._verdicts, self._next_turn, self._on_settled, self._options)

    @property
    def unsettled(self) -> int:
        """How many have ended, or are overdue, and wait to be settled."""
        return len(self.claims) - self.running - len(self._waiting)

    @property
    def running(self) -> int:
        """How many handlers are running whose results count."""
        return self.busy_slots - len(self._overdue.claims)

    @property
    def occupying(self) -> Collection[Claim]:
        """All that count against limits, including overdue ones whose jobs are settled."""
        overdue = self._overdue.claims
        return {*self.claims.values(), *overdue} if overdue else self.claims.values()

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
        return self._ahead.since

    @property
    def at_once(self) -> int:
        """How many jobs of the next claim may begin as soon as they are claimed."""
        return self._ahead.at_once(self._options.concurrency - self.busy_slots)

    # One job

    def begin_all(self, jobs: Sequence[Claimed], claimed_at: float, *, stopping: bool) -> None:
        alone = None if stopping else next(filter(self._runs_alone, jobs), None)
        for claimed in jobs:
            self._begin(claimed, claimed_at, give_back=stopping or alone not in (None, claimed))
        if alone is None:
            self._ahead.look_ahead()
        else:
            self.give_back_waiting()
            self._begin_alone_soon()

    def _runs_alone(self, claimed: Claimed) -> bool:
        row = claimed.job
        return ALONE_AFTER <= row.losses < self._options.plans[row.type_name].max_losses and not claimed.expired

    def _begin(self, claimed: Claimed, claimed_at: float, *, give_back: bool) -> None:
        row = claimed.job
        plan = self._options.plans[row.type_name]
        claim = Claim(claimed, plan, claimed_at)
        before = self.claims.get(row.id)
        if before is not None and before.active:
            # Its lease had ended, and we have claimed the job again before we noticed.
            self.abort(before, "taken_by_another_worker")
        self.claims[row.id] = claim
        if self._left_running:
            self._left_running.discard(row.id)
        if give_back:
            self._settler.add(claim, self._verdicts.given_back(claim))
        elif claimed.expired:
            self._settler.add(claim, self._verdicts.expired(claim))
        elif row.attempt > 1 and (over := self._verdicts.before_running(claim)) is not None:
            self._settler.add(claim, over)
        elif row.losses >= ALONE_AFTER:
            self.alone = claim
            self._alone_waits = claim.waiting = True
        elif self.busy_slots < self._options.concurrency and not self._waiting and self._ahead.covers(claim):
            self._start(claim)
        else:
            claim.waiting = True
            self._ahead.add(claim)

    def _start(self, claim: Claim) -> None:
        plan = claim.plan
        if not self.busy_slots:
            self.prefetch.busy(time.monotonic())
        if self.all_ended.is_set():
            self.all_ended.clear()
        self.busy_slots += 1
        claim.running = True
        task = self._loop.create_task(self._execution.run(claim))
        claim.task = task
        self._claim_by_task[task] = claim
        if plan.timeout is not None:
            claim.timer = self._loop.call_later(plan.timeout, self._time_is_over, claim)
        task.add_done_callback(self._handler_ended)

    def _time_is_over(self, claim: Claim) -> None:
        self.abort(claim, "timeout")
        claim.timer = self._loop.call_later(claim.plan.timeout_grace, self._take_from_handler, claim)

    def _take_from_handler(self, claim: Claim) -> None:
        """The handler goes on, although its time and the grace are over."""
        if claim.running and not self._closed:
            self.spawn(self._settle_overdue(claim))

    async def _settle_overdue(self, claim: Claim) -> None:
        await self._overdue.settle(claim)
        if not self.running:
            self.all_ended.set()

    def _ended_overdue(
        self, claim: Claim, task: asyncio.Task[Outcome], transaction: AttemptTransaction[Any] | None
    ) -> None:
        self._overdue.ended(claim)
        self.spawn(self._roll_back_overdue(transaction, task))
        self._next_turn.claim_soon()

    async def _roll_back_overdue(self, transaction: AttemptTransaction[Any] | None, task: Hashable) -> None:
        await self._sessions.blocks.roll_back_left_open(task, TransactionMisused(LEFT_OPEN))
        if transaction is not None:
            await transaction.roll_back()

    def _start_waiting(self) -> None:
        while self.busy_slots < self._options.concurrency and (claim := self._ahead.next()) is not None:
            claim.waiting = False
            # Probably no longer ours. The token decides when it is settled.
            if claim.aborted or time.monotonic() >= claim.lease_end:
                self._settler.add(claim, self._verdicts.given_back(claim))
            else:
                self._start(claim)
        self._ahead.look_ahead()

    # A job that was lost again and again. It may end the process, and must not take others with it.
    # Others may end the process before it has begun: the database knows that it has not.

    def _begin_alone_soon(self) -> None:
        """Begin the job that runs alone, if nothing else is left here."""
        claim = self.alone
        if claim is not None and claim.waiting and len(self.claims) == 1 and not self.running:
            claim.waiting = False
            self.spawn(self._begin_alone(claim))

    async def _begin_alone(self, claim: Claim) -> None:
        begins = False
        try:
            if not claim.is_lost:
                program = self._sessions.engine.state.begin_alone(claim.row.id, claim.token)
                begins = await self._sessions.run_within(self._limit, program)
        except Exception as error:
            logger.warning("job %s (%s) is given back: that it begins could not be stored: %s", claim.row.id,
                           claim.row.type_name, error, extra=self._verdicts.extra(claim))  # fmt: skip
        if self.alone is not claim:
            return  # it was given back meanwhile
        if begins and not claim.is_lost:
            self._alone_waits = False
            self._start(claim)
        else:
            self.give_back_alone()

    def give_back_alone(self) -> None:
        """Give back the job that is to run alone, unless it has begun."""
        claim = self.alone
        if claim is not None and self._alone_waits:
            self.alone = None
            self._give_back([claim])

    async def _store_horizon(self, horizon: int) -> bool:
        program = self._sessions.engine.state.move_horizon(self._worker_id, horizon)
        # Claims and settlements take long, and handlers may wait for this.
        known = await self._sessions.run_within(self._limit._replace(urgent=True), program)
        if not known:
            self._when_unknown()
        return known

    def give_back_waiting(self) -> None:
        """Give back the jobs that were claimed ahead, for other workers."""
        self._give_back(self._ahead.give_up())

    def _give_back(self, claims: Iterable[Claim]) -> None:
        for claim in claims:
            claim.waiting = False
            self._settler.add(claim, self._verdicts.given_back(claim))

    def heed(self, pauses: Sequence[Pause]) -> None:
        """Give back what was claimed ahead and is paused now. Stop running handlers, if the pause
        demands it.
        """
        self._give_back(self._ahead.give_up(lambda claim: is_paused(pauses, claim.plan.name, claim.plan.queue)))
        self._ahead.look_ahead()
        if self.alone is not None and is_paused(pauses, self.alone.plan.name, self.alone.plan.queue):
            self.give_back_alone()
        stopping = [pause for pause in pauses if pause.cancel_running]
        for claim in list(self.claims.values()) if stopping else ():
            if (
                claim.running
                and not claim.overdue
                and not claim.aborted
                and any(stops(pause, claim.plan.name, claim.plan.queue, claim.row.lane) for pause in stopping)
            ):
                self.abort(claim, "paused")

    def _handler_ended(self, task: asyncio.Task[Outcome]) -> None:
        claim = self._claim_by_task.pop(task)
        claim.handler_ended()
        self.ended += 1
        self.busy_slots -= 1
        if self._waiting:
            self._start_waiting()
        if claim.timer is not None:
            claim.timer.cancel()
        if not self.busy_slots:
            self.prefetch.idle(time.monotonic())
        if self.busy_slots == len(self._overdue.claims):
            self.all_ended.set()
        if self._listener.listens:
            self._listener.handler_ended(claim)
        # A handler in a thread has already ended its own transaction there.
        phases = claim.phases if claim.plan.is_async else None
        transaction = None if phases is None else phases.hand_over()
        if claim.overdue:
            self._ended_overdue(claim, task, transaction)
            return
        # A task that was cancelled before its first step has no outcome of its own.
        outcome: Outcome = Raised(asyncio.CancelledError()) if task.cancelled() else task.result()
        if self._closed and not isinstance(outcome, (Settled, EndedInside)):
            self._drop(claim, transaction)
            return
        # Check this now: garbage collection may soon close what the handler left open.
        left_open = self._sessions.blocks.has_left_open(task)
        if left_open or claim.phases is not None:
            outcome = checked(claim, outcome, left_open=left_open)
        if transaction is None and not left_open:
            self._conclude(claim, outcome)
        else:
            self.spawn(self._end(claim, outcome, transaction, task))
        if self._next_turn.wants_claim and len(self._waiting) <= self.prefetch.refill_at:
            self._next_turn.event.set()

    async def _end(
        self, claim: Claim, outcome: Outcome, transaction: AttemptTransaction[Any] | None, task: Hashable
    ) -> None:
        self._conclude(claim, await end_attempt(claim, outcome, transaction, self._sessions, task, self._verdicts))

    def _drop(self, claim: Claim, transaction: AttemptTransaction[Any] | None) -> None:
        logger.warning("job %s (%s) ended after its worker had stopped: its result is dropped, and it runs "
                       "again when its lease expires", claim.row.id, claim.row.type_name,
                       extra=self._verdicts.extra(claim))  # fmt: skip
        self._listener.dropped(claim)
        if transaction is not None:
            self.spawn(transaction.roll_back())

    def _conclude(self, claim: Claim, outcome: Outcome) -> None:
        """Decide the result of a job whose handler has ended and has no transaction open."""
        if isinstance(outcome, Settled):
            self._on_settled(claim, outcome.settlement, took_effect=True)
            self._next_turn.claim_soon()
            if outcome.more:
                self._next_turn.unblock_soon()
            return
        if isinstance(outcome, EndedInside):
            logger.info("job %s (%s) was ended by its own handler, in its transaction: what the handler returned is "
                        "ignored", claim.row.id, claim.row.type_name, extra=self._verdicts.extra(claim))  # fmt: skip
            self._release(claim)
            self._next_turn.claim_soon()
            return
        settlement = self._verdicts.on(claim, outcome)
        if settlement is None:
            self._release(claim)
        else:
            self._settler.add(claim, settlement)

    def _on_settled(
        self, claim: Claim, settlement: Settlement, *, took_effect: bool, error: Exception | None = None
    ) -> None:
        if error is not None:
            self._left_running.add(claim.row.id)
            self._listener.not_settled(claim, settlement, error)
        elif not took_effect:
            logger.info("job %s (%s) was no longer ours: its result was dropped", claim.row.id, claim.row.type_name,
                        extra=self._verdicts.extra(claim))  # fmt: skip
            # Perhaps our own COMMIT did that, and its answer was lost. Then nothing was announced
            # yet.
            self._next_turn.claim_soon()
        else:
            if self._listener.listens:
                self._listener.settled(claim, settlement)
            following = settlement.continuation
            if following is not None and following.type_name not in self._options.plans:
                self._unhandled.stored(following)
            if settlement.status == "pending":
                self._put_back(settlement)
        self._release(claim)

    def _put_back(self, settlement: Settlement) -> None:
        """This worker may claim the job again when it is due: a lost notification must not delay
        that.
        """
        if settlement.schedule.after:
            self._next_turn.claim_in(settlement.schedule.after)
            self._next_turn.event.set()
        else:
            self._next_turn.claim_soon()

    def _release(self, claim: Claim) -> None:
        # Only if it is this claim: the same job may have been claimed again.
        if self.claims.get(claim.row.id) is claim:
            del self.claims[claim.row.id]
        if self._ahead.leaving:
            self._ahead.has_left(claim)
        if claim is self.alone:
            self.alone = None
            self._next_turn.claim_soon()
        elif self.alone is not None:
            self._begin_alone_soon()
        if self._listener.listens and (rest := self._listener.released(claim)) is not None:
            self.spawn(rest)
        if self._options.policy.limited or self._options.policy.by_key:
            # The limits count claimed jobs, so another job may be claimable now.
            self._next_turn.wants_claim = True
        if self._next_turn.wants_claim or not self.claims:
            self._next_turn.event.set()

    def abort(self, claim: Claim, reason: AbortReason) -> None:
        """Tell the handler to stop.

        Only user code is ever cancelled: a task that has ended is not touched.
        """
        self._listener.aborting(claim, reason)
        claim.signal.abort(reason)
        if claim.running and claim.plan.is_async and claim.task is not None and self._options.cancel_on_abort:
            claim.task.cancel()

    # The end

    async def async_handlers_ended(self) -> None:
        tasks = [claim.task for claim in self.claims.values() if claim.task is not None and claim.plan.is_async]
        if tasks:
            await asyncio.wait(tasks)

    async def everything_settled(self) -> None:
        while self._own_tasks or self._settler.busy or self._overdue.settler.busy:
            if self._own_tasks:
                await asyncio.wait(self._own_tasks)
            await self._settler.finish()
            await self._overdue.settler.finish()

    def abort_running(self, reason: AbortReason) -> None:
        for claim in list(self.claims.values()):
            if claim.running:
                self.abort(claim, reason)

    def abandon_running(self) -> None:
        """Close the connections of handlers that were cancelled and have not ended. Threads go on:
        they may still commit."""
        for claim in list(self.claims.values()):
            if claim.phases is not None and claim.plan.is_async:
                claim.phases.cut_off()

    def close(self) -> list[asyncio.Task[None]]:
        """From now on, the results of handlers that are still running have no effect. Returns the
        tasks that are left, cancelled."""
        self._closed = True
        self._left_running.update(self.claims)
        for claim in self.claims.values():
            if claim.overdue or not claim.running:  # the others are dropped when their handlers end
                self._listener.dropped(claim)
        left = [*self._settler.give_up(), *self._overdue.settler.give_up(), *self._own_tasks]
        for task in left:
            task.cancel()
        return left

    def type_of(self, task: asyncio.Task[Any]) -> str | None:
        """The job type whose handler runs in this task."""
        claim = self._claim_by_task.get(task)
        return None if claim is None else claim.plan.name

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a task of the worker's own, independent of any handler."""
        task = asyncio.create_task(work)
        self._own_tasks.add(task)
        task.add_done_callback(self._own_tasks.discard)
