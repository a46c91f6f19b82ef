"""A worker for tests that runs one job at a time, so that every run is the same.

Over a sync client, handlers run in the calling thread, and nothing here suspends. Over an async
client, each runs in a task or, if it is a plain `def`, in a thread.
"""

from __future__ import annotations

import asyncio
import threading
import time
import uuid
from collections.abc import Callable, Hashable, Mapping
from contextlib import nullcontext
from dataclasses import replace
from typing import Any, TypeVar

from queuert.base.blocking import run_blocking
from queuert.client.base import BaseClient
from queuert.client.client import Client
from queuert.client.sync_client import SyncClient
from queuert.engine.current import current_job
from queuert.engine.operations.ending import settle
from queuert.engine.operations.unblocking import continue_unblocking
from queuert.engine.sessions import Sessions
from queuert.engine.transaction import Hooks
from queuert.errors import InvalidArgument
from queuert.ports.program import Program
from queuert.records.limits import ALIVE_FOR
from queuert.records.model import NOT_BEGUN, UNBLOCKED_AT_ONCE, Claimed, Settlement
from queuert.testing.crash_points import Killed, Points
from queuert.testing.in_sync_code import call_with_middleware
from queuert.worker.attempts.client_for_threads import client_for_threads
from queuert.worker.attempts.ending import checked, end_attempt
from queuert.worker.attempts.execution import refuse_awaitable
from queuert.worker.attempts.outcome import EndedInside, Outcome, Raised, Returned, Settled
from queuert.worker.attempts.phases import PhasesInTask, PhasesInThread
from queuert.worker.attempts.settling import ITEM_AT_FAULT
from queuert.worker.attempts.verdict import Verdicts
from queuert.worker.base import failure
from queuert.worker.handlers.attempt import Attempt, SyncAttempt
from queuert.worker.handlers.claim import Claim
from queuert.worker.handlers.registry import HandlerPlan
from queuert.worker.policy.claiming import ClaimPolicy

T = TypeVar("T")

_LOST = failure.record(failure.LEASE_EXPIRED, "the worker that ran the job stopped renewing its lease")


class InlineWorker:
    """`points`: where it may be killed, if it may. Then it goes on as another worker would."""

    def __init__(self, client: BaseClient[Any], plans: Mapping[str, HandlerPlan], points: Points | None = None) -> None:
        self._client = client
        self._sessions = client.sessions
        self._points = points or Points()
        able = {name: plan for name, plan in plans.items() if isinstance(client, Client) or not plan.is_async}
        self._plans = {name: replace(plan, function=self._points.watched(plan)) for name, plan in able.items()}
        self._unable = [name for name in plans if name not in able]
        self._dead: list[str] = []
        self._begin_life()

    def _begin_life(self) -> None:
        self._id = f"testing-{uuid.uuid4()}"
        self._verdicts = Verdicts(self._sessions.engine, self._id)
        self._policy = ClaimPolicy(
            self._id,
            self._plans,
            self._sessions.engine.jobs,
            queues=None,
            concurrency=1,
            prefetch=0,
            max_claim_batch=None,
            max_claim_per_worker=None,
            cluster_cap=None,
        )

    async def drain(self) -> None:
        """Run jobs, one after the other, until none can run."""
        while True:
            try:
                await self._drain()
                break
            except Killed:
                self._dead.append(self._id)
                self._points.revive()
                self._begin_life()
        for name in self._unable:
            if (await self._sessions.run(self._sessions.engine.state.next_available_in([name]))).next_in == 0:
                raise InvalidArgument(
                    f"a job waits for the handler of {name!r}, which is `async def`. A sync client cannot run it: use "
                    "an async client, and `async with testing.running(…)`"
                )

    async def _drain(self) -> None:
        state = self._sessions.engine.state
        # Without this, a claim takes no jobs that have a limit.
        declare = state.declare_limits(self._policy.types, self._policy.declared, alive_for=ALIVE_FOR)
        self._policy.know_limits(await self._sessions.run(declare))
        while True:
            await self._sessions.run(state.reap(self._policy.types, [], 500, _LOST, self._dead))
            while (await self._write(self._unblock)).unblocked:
                pass
            request = self._policy.request([], 0, 0)
            if request is None:
                return
            result = await self._sessions.run(state.claim(request))
            if not result.jobs:
                return
            for claimed in result.jobs:
                await self._attempt(claimed)

    async def _attempt(self, claimed: Claimed) -> None:
        claim = Claim(claimed, self._plans[claimed.job.type_name], time.monotonic())
        settlement: Settlement | None
        if claimed.expired:
            settlement = self._verdicts.expired(claim)
        elif claimed.job.attempt > 1 and (over := self._verdicts.before_running(claim)) is not None:
            settlement = over
        else:
            if claimed.ordinal == NOT_BEGUN:
                await self._sessions.run(self._sessions.engine.state.begin_alone(claim.row.id, claim.token))
            self._points.reach(f"before the handler of {claim.plan.name!r} begins")
            outcome = await self._handle(claim)
            if isinstance(outcome, Settled | EndedInside):
                return
            if isinstance(outcome, Raised) and isinstance(outcome.error, Killed):
                raise outcome.error
            settlement = self._verdicts.on(claim, outcome)
        if settlement is not None:
            self._points.reach(f"before the result of {claim.plan.name!r} is stored")
            try:
                await self._settle(claim, settlement)
            except ITEM_AT_FAULT as error:
                await self._settle(claim, self._verdicts.failed(claim, error, None))
            self._points.reach(f"after the result of {claim.plan.name!r} was stored")

    # The handler

    async def _handle(self, claim: Claim) -> Outcome:
        try:
            claim.job = claim.plan.job_type.decode_input(claim.row.input, claim.claimed.blockers)
        except Exception as error:
            return Raised(error, failure.SERIALIZATION_ERROR)
        if isinstance(self._client, SyncClient):
            return self._in_this_thread(claim, self._client, None)
        assert isinstance(self._client, Client)
        if not claim.plan.is_async:
            return await self._in_thread(claim, self._client)
        task = asyncio.create_task(self._in_task(claim, self._client))
        claim.task = task
        outcome = await task
        return await self._end(claim, outcome, self._sessions, task)

    async def _in_task(self, claim: Claim, client: Client[Any]) -> Outcome:
        current_job.set(claim.row)
        attempt: Attempt[Any, Any] = Attempt(claim, self._id, client, PhasesInTask)

        async def innermost() -> Any:
            asyncio.get_running_loop().call_soon(claim.mark_suspended)
            return refuse_awaitable(await claim.plan.function(attempt))

        try:
            return Returned(await claim.plan.middleware.call(attempt, innermost))
        except BaseException as error:
            return Raised(error)

    async def _in_thread(self, claim: Claim, client: Client[Any]) -> Outcome:
        loop, for_threads = asyncio.get_running_loop(), client_for_threads(client)
        around: Callable[[], Any] = getattr(client.sessions.storage.sync_provider, "in_thread", nullcontext)

        def body() -> Outcome:
            with around():
                return self._in_this_thread(claim, for_threads, loop)

        return await asyncio.to_thread(body)

    def _in_this_thread(
        self, claim: Claim, client: SyncClient[Any] | None, loop: asyncio.AbstractEventLoop | None
    ) -> Outcome:
        current = current_job.set(claim.row)
        attempt: SyncAttempt[Any, Any] = SyncAttempt(claim, self._id, client, PhasesInThread)
        outcome: Outcome
        try:
            call = lambda: refuse_awaitable(claim.plan.function(attempt))  # noqa: E731
            outcome = Returned(call_with_middleware(claim, attempt, call, loop))
        except BaseException as error:
            outcome = Raised(error)
        finally:
            current_job.reset(current)
        if client is None:
            return outcome  # then there was nothing to open
        return run_blocking(self._end(claim, outcome, client.sessions, threading.get_ident()))

    async def _end(self, claim: Claim, outcome: Outcome, sessions: Sessions[Any], holder: Hashable) -> Outcome:
        name = claim.plan.name
        outcome = checked(claim, outcome, left_open=sessions.blocks.has_left_open(holder))
        transaction = None if claim.phases is None else claim.phases.hand_over()
        commits = transaction is not None and isinstance(outcome, Returned)
        try:
            if commits:
                self._points.reach(f"before the commit of {name!r}")
            outcome = await end_attempt(claim, outcome, transaction, sessions, holder, self._verdicts)
            if commits and isinstance(outcome, Settled):
                self._points.reach(f"after the commit of {name!r}")
        except Killed as killed:
            outcome = Raised(killed)
            if transaction is not None:
                await transaction.roll_back(killed)
        return outcome

    # The database

    async def _settle(self, claim: Claim, settlement: Settlement) -> None:
        await self._write(lambda hooks: settle(self._sessions.engine, hooks, [(claim.row, settlement)]))

    def _unblock(self, hooks: Hooks) -> Program[Any]:
        return continue_unblocking(self._sessions.engine, hooks, UNBLOCKED_AT_ONCE)

    async def _write(self, make: Callable[[Hooks], Program[T]]) -> T:
        hooks = Hooks(blocking=isinstance(self._client, SyncClient))
        result = await self._sessions.run(make(hooks))
        await self._sessions.flush(hooks)
        return result
