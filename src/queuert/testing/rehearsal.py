"""One call of a handler without a worker and without a stored job.

The handler is given a real attempt. Its phases are real transactions, but there is no claim that
they could check, and no job to settle.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, ExitStack, nullcontext
from datetime import UTC, datetime, timedelta
from typing import Any, Generic, TypeVar

import msgspec

from queuert.base.blocking import run_blocking
from queuert.base.ids import generate_uuid7
from queuert.base.statuses import Status
from queuert.base.transaction import Transaction
from queuert.client.client import Client
from queuert.client.sync_client import SyncClient
from queuert.engine.current import current_job
from queuert.engine.sessions import Sessions
from queuert.engine.transaction import OpenTransaction
from queuert.errors import InvalidArgument
from queuert.jobs.chain import Chain
from queuert.jobs.job import Job, name_of
from queuert.jobs.registry import Registry
from queuert.records.model import BlockerRow, Claimed, JobRow, Settlement, new_token
from queuert.testing.in_sync_code import call_with_middleware
from queuert.testing.started import Started, started
from queuert.wiring import connect, connect_sync
from queuert.worker.attempts.client_for_threads import client_for_threads
from queuert.worker.attempts.ending import checked, end_attempt
from queuert.worker.attempts.execution import refuse_awaitable
from queuert.worker.attempts.outcome import Outcome, Raised, Returned, Settled
from queuert.worker.attempts.phases import Phases, PhasesInTask, PhasesInThread
from queuert.worker.attempts.transaction import AttemptTransaction, TransactionInTask, TransactionInThread
from queuert.worker.attempts.verdict import Verdicts
from queuert.worker.base import failure
from queuert.worker.handlers.attempt import Attempt, BaseAttempt, SyncAttempt
from queuert.worker.handlers.claim import Claim, Mode, Phase
from queuert.worker.handlers.middleware import Key
from queuert.worker.handlers.registry import HandlerPlan, Handlers, SharedSettings, registry_of, resolve

J = TypeVar("J", bound=Job[Any, Any])
J_co = TypeVar("J_co", bound=Job[Any, Any], covariant=True)
R = TypeVar("R")
N = TypeVar("N")

WORKER = "testing"


class AttemptResult(Generic[J_co]):
    """How a handler ended, and what a worker would do with its job."""

    __slots__ = ("_value", "mode", "phases", "raised", "retry_in", "started", "status")

    raised: BaseException | None
    """What the handler raised, or why its result cannot be stored. None if it ended well."""
    status: Status
    """The status that the job would have now: "completed", "pending" if it would be tried again,
    or "failed"."""
    retry_in: float | None
    """Seconds until the next attempt, if there would be one."""
    phases: tuple[Phase, ...]
    """The phases that the handler opened, in their order: "prepare", "complete"."""
    mode: Mode | None
    """Whether its phases were one transaction ("atomic") or two ("staged"). None without phases."""
    started: Started
    """The chains that the handler started."""

    def __init__(
        self, outcome: Outcome, value: Any, settlement: Settlement | None, phases: _Phases, started: Started
    ) -> None:
        self._value = value
        self.raised = outcome.error if isinstance(outcome, Raised) else None
        self.status = "pending" if settlement is None else settlement.status
        schedule = None if settlement is None or settlement.status != "pending" else settlement.schedule
        self.retry_in = None
        if schedule is not None:
            until = None if schedule.at is None else (schedule.at - datetime.now(UTC)).total_seconds()
            self.retry_in = (schedule.after or 0.0) if until is None else max(0.0, until)
        self.phases = tuple(phases.opened)
        self.mode = phases.mode
        self.started = started

    @property
    def returned(self: AttemptResult[Job[R, Any]]) -> R:
        """The output that the handler ended the chain with.

        If the handler raised an error, it is raised here. If it continued with another job, that is
        an `AssertionError`.
        """
        if self.raised is None and _is_job(self._value):
            raise AssertionError(f"the handler did not end the chain: it continued with {self._value!r}")
        value: R = self._ended_well()
        return value

    @property
    def continued(self: AttemptResult[Job[Any, N]]) -> N:
        """The job that the handler continued with.

        If the handler raised an error, it is raised here. If it ended the chain, that is an
        `AssertionError`.
        """
        if self.raised is None and not _is_job(self._value):
            raise AssertionError(f"the handler did not continue with a job: it ended with {self._value!r}")
        value: N = self._ended_well()
        return value

    def _ended_well(self) -> Any:
        if self.raised is not None:
            raise self.raised
        return self._value

    def __repr__(self) -> str:
        how = f"raised {self.raised!r}" if self.raised is not None else f"returned {self._value!r}"
        return f"<AttemptResult: {how}, the job would be {self.status}>"


async def attempt(
    handler: Callable[[Attempt[J, Any]], Awaitable[object]] | Callable[[SyncAttempt[J, Any]], object],
    job: J,
    *,
    client: Client[Any] | None = None,
    handlers: Handlers[Any] | None = None,
    number: int = 1,
    last_error: BaseException | Mapping[str, Any] | None = None,
    may_have_run: bool | None = None,
    values: Mapping[Key[Any], Any] | None = None,
    keep: bool = True,
) -> AttemptResult[J]:
    """Call a handler once, as a worker would. No job is stored.

        result = await testing.attempt(charge, ChargeCard(order_id=7), number=3)
        assert result.continued == SendReceipt(order_id=7)

    Args:
        handler: The handler: `async def`, or a plain `def`, which runs in a thread.
        job: The job that it is given. Use `completed` for chains in its fields.
        client: The client that it is given, for the database that it uses (default: one in memory).
        handlers: The registry that has the handler. Then the registry's middleware runs, and its
            settings decide about a retry (default: no middleware, no settings).
        number: The number of the attempt (default: 1).
        last_error: The error of the attempt before, as an exception or a record (default: none).
        may_have_run: Whether an earlier run has begun (default: whether `number` is above 1).
        values: What middleware would set, by `Key` (default: nothing).
        keep: Commit what the handler writes in its phases (default: True). If not, each phase is
            rolled back.
    """
    async with AsyncExitStack() as stack:
        if client is None:
            client = await stack.enter_async_context(connect("memory://", jobs=_classes(job, handlers)))
        sessions = client.sessions
        rehearsal = _Rehearsal(sessions, handler, job, handlers, number, last_error, may_have_run, values)
        found = stack.enter_context(started(client))
        if rehearsal.plan.is_async:
            made: Attempt[Any, Any] = Attempt(rehearsal.claim, WORKER, client, PhasesInTask)
            phases: _Phases = InTask(sessions, rehearsal.claim, made, keep=keep)
            task = asyncio.get_running_loop().create_task(rehearsal.run_in_task(made))
            rehearsal.claim.task = task
            outcome = await task
            outcome = await rehearsal.end(outcome, phases, task, keep=keep)
        else:
            state = client.sessions.storage
            around = getattr(state.sync_provider, "in_thread", nullcontext)
            for_threads = client_for_threads(client)
            plain: SyncAttempt[Any, Any] = SyncAttempt(rehearsal.claim, WORKER, for_threads, PhasesInThread)
            in_thread: Sessions[Any] = sessions if for_threads is None else for_threads.sessions
            phases = InThread(in_thread, rehearsal.claim, plain, keep=keep)
            rehearsal.sessions = in_thread

            loop = asyncio.get_running_loop()

            def body() -> Outcome:
                with around():
                    return rehearsal.run_in_thread(plain, phases, keep=keep, loop=loop)

            outcome = await asyncio.to_thread(body)
        return rehearsal.result(outcome, phases, found)


def attempt_sync(
    handler: Callable[[SyncAttempt[J, Any]], object],
    job: J,
    *,
    client: SyncClient[Any] | None = None,
    handlers: Handlers[Any] | None = None,
    number: int = 1,
    last_error: BaseException | Mapping[str, Any] | None = None,
    may_have_run: bool | None = None,
    values: Mapping[Key[Any], Any] | None = None,
    keep: bool = True,
) -> AttemptResult[J]:
    """`attempt` for code without an event loop. The handler, a plain `def`, runs in this thread.

    So it works inside the transaction of a Django `TestCase`.

    Args:
        handler: The handler.
        job: The job that it is given. Use `completed` for chains in its fields.
        client: The client that it is given, for the database that it uses (default: one in memory).
        handlers: The registry that has the handler. Then the registry's middleware runs, and its
            settings decide about a retry (default: no middleware, no settings).
        number: The number of the attempt (default: 1).
        last_error: The error of the attempt before, as an exception or a record (default: none).
        may_have_run: Whether an earlier run has begun (default: whether `number` is above 1).
        values: What middleware would set, by `Key` (default: nothing).
        keep: Commit what the handler writes in its phases (default: True). If not, each phase is
            rolled back.
    """
    with ExitStack() as stack:
        if client is None:
            client = stack.enter_context(connect_sync("memory://", jobs=_classes(job, handlers)))
        sessions = client.sessions
        rehearsal = _Rehearsal(sessions, handler, job, handlers, number, last_error, may_have_run, values)
        if rehearsal.plan.is_async:
            raise InvalidArgument("attempt_sync() takes a plain `def` handler: use `await attempt(…)` for this one")
        found = stack.enter_context(started(client))
        plain: SyncAttempt[Any, Any] = SyncAttempt(rehearsal.claim, WORKER, client, PhasesInThread)
        phases = InThread(sessions, rehearsal.claim, plain, keep=keep)
        outcome = rehearsal.run_in_thread(plain, phases, keep=keep)
        return rehearsal.result(outcome, phases, found)


def completed(job_type: type[J], output: Any) -> Chain[J]:
    """A chain that has this output, for a field of a job that waits for one.

        result = await testing.attempt(close, CloseDay(rate=testing.completed(GetRate, 1.07)))

    Args:
        job_type: The class that the chain started with.
        output: Its output.
    """
    registry = Registry([job_type])
    known = registry.require(job_type)
    row = BlockerRow(generate_uuid7(), known.name, "completed", known.encode_output(output))
    return registry.chain_from_blocker(row)


def _is_job(value: object) -> bool:
    return isinstance(value, Job)


class _Rehearsal:
    """A claim that no database knows of."""

    def __init__(
        self,
        sessions: Sessions[Any],
        handler: Callable[..., Any],
        job: Job[Any, Any],
        handlers: Handlers[Any] | None,
        number: int,
        last_error: BaseException | Mapping[str, Any] | None,
        may_have_run: bool | None,
        values: Mapping[Key[Any], Any] | None,
    ) -> None:
        if type(number) is not int or number < 1:
            raise InvalidArgument(f"number must be a number of 1 or more, got {number!r}")
        self.sessions = sessions
        engine = sessions.engine
        self.plan = _plan(handler, job, handlers, engine.jobs)
        self._values = values or {}
        row = _row(engine.jobs, job, number, _record(last_error), self.plan.lease)
        ran = number > 1 if may_have_run is None else may_have_run
        blockers = _blockers(engine.jobs, job)
        self.claim = Claim(Claimed(row, False, blockers, None, ran), self.plan, time.monotonic())  # noqa: FBT003
        self.claim.job = self.plan.job_type.decode_input(row.input, blockers)
        self.verdicts = Verdicts(engine, WORKER)
        self._value: Any = None

    async def run_in_task(self, attempt: Attempt[Any, Any]) -> Outcome:
        current_job.set(self.claim.row)
        self._set_values(attempt)

        async def innermost() -> Any:
            asyncio.get_running_loop().call_soon(self.claim.mark_suspended)
            return refuse_awaitable(await self.plan.function(attempt))

        try:
            return Returned(await self.plan.middleware.call(attempt, innermost))
        except BaseException as error:
            return Raised(error)

    async def end(self, outcome: Outcome, phases: _Phases, holder: Any, *, keep: bool) -> Outcome:
        """What a worker does when a handler has ended, without a job to settle."""
        outcome = checked(self.claim, outcome, left_open=self.sessions.blocks.has_left_open(holder))
        if isinstance(outcome, Returned):
            self._value = outcome.value
        transaction = phases.hand_over()
        if transaction is not None and not keep and isinstance(outcome, Returned):
            try:
                self.verdicts.completed(self.claim, outcome.value)
            except Exception as error:
                outcome = Raised(error, failure.code_of_result(error))
            await transaction.roll_back()
            transaction = None
        return await end_attempt(self.claim, outcome, transaction, self.sessions, holder, self.verdicts)

    def run_in_thread(
        self,
        attempt: SyncAttempt[Any, Any],
        phases: _Phases,
        *,
        keep: bool,
        loop: asyncio.AbstractEventLoop | None = None,
    ) -> Outcome:
        current = current_job.set(self.claim.row)
        self._set_values(attempt)
        try:
            call = lambda: refuse_awaitable(self.plan.function(attempt))  # noqa: E731
            outcome: Outcome = Returned(call_with_middleware(self.claim, attempt, call, loop))
        except BaseException as error:
            outcome = Raised(error)
        finally:
            current_job.reset(current)
        return run_blocking(self.end(outcome, phases, threading.get_ident(), keep=keep))

    def result(self, outcome: Outcome, phases: _Phases, started: Started) -> AttemptResult[Any]:
        settlement: Settlement | None
        if isinstance(outcome, Settled):
            settlement = outcome.settlement
        elif isinstance(outcome, Returned | Raised):
            if isinstance(outcome, Returned):
                try:
                    self.verdicts.completed(self.claim, outcome.value)
                except Exception as error:
                    outcome = Raised(error, failure.code_of_result(error))
            settlement = self.verdicts.on(self.claim, outcome)
        else:
            settlement = None
        return AttemptResult(outcome, self._value, settlement, phases, started)

    def _set_values(self, attempt: BaseAttempt[Any, Any]) -> None:
        for key, value in self._values.items():
            attempt.values[key] = value


class _Phases(Phases[Any]):
    """Phases without a claim, which are rolled back if their writes are not kept."""

    def __init__(self, sessions: Sessions[Any], claim: Claim, attempt: BaseAttempt[Any, Any], *, keep: bool) -> None:
        super().__init__(sessions, claim, attempt)
        self._keep = keep
        self.opened: list[Phase] = []
        claim.phases = self

    @property
    def mode(self) -> Mode | None:
        return self._mode

    def _begin(self, phase: Phase, mode: Mode | None) -> None:
        super()._begin(phase, mode)
        self.opened.append(phase)

    async def _commit(self) -> None:
        if self._keep:
            await super()._commit()
            return
        transaction = self.hand_over()
        if transaction is not None:
            await transaction.roll_back()


class _WithoutClaim(AttemptTransaction[Any]):
    async def _begin(self) -> OpenTransaction[Any]:
        # Like the transaction of a real attempt, it begins with this question. The answer is no.
        block, tx = await self._enter(lock=False)
        self._tx = tx
        self._open = block, tx
        return tx

    async def _settle(self, tx: OpenTransaction[Any], settlement: Settlement) -> bool:  # noqa: ARG002
        return True

    async def _has_ended_in(self, tx: Transaction[Any]) -> bool:  # noqa: ARG002
        return False


class _TransactionInTask(_WithoutClaim, TransactionInTask[Any]):
    pass


class _TransactionInThread(_WithoutClaim, TransactionInThread[Any]):
    pass


class InTask(_Phases, PhasesInTask[Any]):
    _transaction_type = _TransactionInTask


class InThread(_Phases, PhasesInThread[Any]):
    _transaction_type = _TransactionInThread


def _classes(job: Job[Any, Any], handlers: Handlers[Any] | None) -> list[type[Job[Any, Any]]]:
    handled = () if handlers is None else registry_of(handlers).by_name.values()
    return [type(job), *(handler.job_class for handler in handled)]


def _plan(
    handler: Callable[..., Any], job: Job[Any, Any], handlers: Handlers[Any] | None, jobs: Registry
) -> HandlerPlan:
    name = name_of(type(job))
    if handlers is None:
        handlers = Handlers()
        register: Any = handlers.handles(type(job))
        register(handler)
    known = registry_of(handlers).by_name.get(name)
    if known is None or known.function is not handler:
        raise InvalidArgument(f"handlers= has another handler for {name!r}, or none: pass the registry of {handler!r}")
    return resolve([handlers], jobs, SharedSettings())[jobs.of(job).name]


def _row(jobs: Registry, job: Job[Any, Any], number: int, last_error: bytes | None, lease: float) -> JobRow:
    job_type, job_id, now = jobs.of(job), generate_uuid7(), datetime.now(UTC)
    return JobRow(
        id=job_id,
        type_name=job_type.name,
        chain_id=job_id,
        chain_type=job_type.name,
        chain_index=0,
        input=job_type.encode_input(job),
        output=None,
        status="running",
        priority=100,
        created_at=now,
        scheduled_at=now,
        completed_at=None,
        completed_by=None,
        continued_to=None,
        attempt=number,
        last_attempt_at=now,
        last_error=last_error,
        leased_by=WORKER,
        leased_until=now + timedelta(seconds=lease),
        token=new_token(),
        deadline=None,
        dedup_key=None,
        blockers_left=0,
        trace_context=None,
        chain_trace_context=None,
    )


def _record(error: BaseException | Mapping[str, Any] | None) -> bytes | None:
    if error is None:
        return None
    if isinstance(error, BaseException):
        return failure.record_of(error)
    return msgspec.json.encode(error)


def _blockers(jobs: Registry, job: Job[Any, Any]) -> tuple[BlockerRow, ...]:
    """The chains in the fields of a job, with what is known of them."""
    found: dict[str, BlockerRow] = {}
    for field, (many, _) in jobs.of(job).blocker_fields.items():
        value: Any = getattr(job, field)
        for chain in value if many else (value,):
            output = None
            if chain.status == "completed":
                output = jobs.require(chain.chain_type).encode_output(chain.output)
            found[chain.id] = BlockerRow(chain.id, chain.chain_type, chain.status or "pending", output)
    return tuple(found.values())
