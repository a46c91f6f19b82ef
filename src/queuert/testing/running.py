"""Running the handlers of an application in a test: a worker in async code, and the same work in
the calling thread in sync code.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any, TypeVar, overload

from queuert.base.arguments import Duration, seconds
from queuert.base.backoff import Backoff
from queuert.base.blocking import run_blocking
from queuert.base.contexts import async_context, context
from queuert.client.base import BaseClient, ChainOrId, chain_id
from queuert.client.client import Client
from queuert.client.sync_client import SyncClient
from queuert.engine.transaction import Hooks
from queuert.errors import InvalidArgument, RateLimited, Reschedule
from queuert.features.schedules.declared import Schedules, declarations_of
from queuert.features.why import NoWorker, Why
from queuert.jobs.chain import Chain
from queuert.jobs.job import Job
from queuert.records.model import Created, NewJob
from queuert.testing.crash_points import Points
from queuert.testing.inline import InlineWorker
from queuert.testing.time_skipping import TimeSkipping
from queuert.worker.handlers.attempt import BaseAttempt
from queuert.worker.handlers.middleware import Middleware
from queuert.worker.handlers.registry import HandlerPlan, Handlers, SharedSettings, resolve, with_middleware
from queuert.worker.worker import Worker

R = TypeVar("R")

POLL = 0.02
"""Seconds between two looks of the worker."""


@dataclass(frozen=True)
class HandlerFailure:
    """An error that a handler raised."""

    job: Job[Any, Any]
    """The job."""
    number: int
    """The number of the attempt."""
    error: BaseException
    """The error."""
    chain_id: str
    """The id of the job's chain."""


class _Base:
    def __init__(
        self,
        client: BaseClient[Any],
        handlers: Sequence[Handlers[Any]],
        recorder: _Recorder,
        functions: Sequence[str] = (),
    ) -> None:
        self._recorder = recorder
        self._plans: dict[str, HandlerPlan] = resolve(handlers, client.sessions.engine.jobs, SharedSettings())
        self._time = TimeSkipping(client, self._plans, functions)

    @property
    def failures(self) -> list[HandlerFailure]:
        """The errors that handlers have raised so far, oldest first. Each failed its attempt."""
        return list(self._recorder.failures)

    def _without_output(self, chain_id: str, why: Why | None) -> AssertionError:
        if why is not None:
            # Handlers that run without a worker are here, and no worker is needed for them.
            reasons = [
                each for each in why.reasons if not (isinstance(each, NoWorker) and each.job_type in self._plans)
            ]
            why = replace(why, reasons=tuple(reasons))
        error = AssertionError(f"the chain has no output: {'it was deleted' if why is None else why}")
        of_chain = [failure.error for failure in self._recorder.failures if failure.chain_id == chain_id]
        error.__cause__ = of_chain[-1] if of_chain else None
        return error


class Running(_Base):
    """A worker that runs in a test. `running` makes it."""

    def __init__(
        self,
        client: Client[Any],
        worker: Worker | InlineWorker,
        handlers: Sequence[Handlers[Any]],
        recorder: _Recorder,
        functions: Sequence[str] = (),
    ) -> None:
        super().__init__(client, handlers, recorder, functions)
        self._client = client
        self._worker = worker

    async def until_idle(self, *, skip_time: bool = False, timeout: Duration = 60) -> None:
        """Work until no job can run.

        Args:
            skip_time: Move the virtual time to the next moment at which a job is due, a limit lets
                one begin, or a pause or a lease ends, again and again, until there is none
                (default: False).
            timeout: How long this may take in real time, as a timedelta or in seconds (default:
                60). Then it raises `AssertionError`.
        """
        deadline = time.monotonic() + seconds(timeout, "timeout")
        if skip_time:
            self._time.begin()
        await self._drain(deadline)
        while skip_time and (moment := await self._time.next_moment()) is not None:
            if moment <= self._time.clock.now():
                await asyncio.sleep(POLL)  # the worker is about to notice
            self._time.jump(moment)
            await self._drain(deadline)

    async def advance(self, by: Duration, *, timeout: Duration = 60) -> None:
        """Move the virtual time forward, and work whenever something is due on the way. Schedules
        fire at each of their ticks.

        Args:
            by: How far, as a timedelta or in seconds.
            timeout: How long this may take in real time, as a timedelta or in seconds (default:
                60). Then it raises `AssertionError`.
        """
        deadline = time.monotonic() + seconds(timeout, "timeout")
        self._time.begin()
        end = self._time.after(by)
        await self._drain(deadline)
        while (moment := await self._time.next_moment(schedules=True)) is not None and moment <= end:
            if moment <= self._time.clock.now():
                await asyncio.sleep(POLL)
            self._time.jump(moment)
            await self._drain(deadline)
        self._time.jump(end)
        await self._drain(deadline)

    @overload
    async def output(self, chain: Chain[Job[R, Any]], *, skip_time: bool = False, timeout: Duration = 60) -> R: ...
    @overload
    async def output(self, chain: str, *, skip_time: bool = False, timeout: Duration = 60) -> Any: ...
    async def output(self, chain: ChainOrId, *, skip_time: bool = False, timeout: Duration = 60) -> Any:
        """Work until no job can run, and return the output of a chain.

        If it has none, this raises `AssertionError`, which explains why. The last error of a
        handler is its cause.

        Args:
            chain: The chain, or its id.
            skip_time: Move the virtual time, as `until_idle` does (default: False).
            timeout: How long this may take in real time, as a timedelta or in seconds (default:
                60).
        """
        await self.until_idle(skip_time=skip_time, timeout=timeout)
        found = await self._client.get_chain(chain)
        if found is not None and found.status == "completed":
            return found.output
        raise self._without_output(chain_id(chain), None if found is None else await self._client.why(chain))

    async def _drain(self, deadline: float) -> None:
        try:
            async with asyncio.timeout(deadline - time.monotonic()):
                await self._worker.drain()
        except TimeoutError:
            running = await self._client.list_jobs(status="running", limit=10)
            jobs = ", ".join(f"{record.job_type} {record.id}" for record in running.items)
            trouble = self._worker.health().error if isinstance(self._worker, Worker) else None
            raise AssertionError(
                f"the worker is not idle after all this time; running: {jobs or 'nothing'}"
                + ("" if trouble is None else f"; the worker itself fails with {trouble}")
            ) from None


class SyncRunning(_Base):
    """Runs jobs in the thread of a test that has no event loop. `running` makes it."""

    def __init__(
        self,
        client: SyncClient[Any],
        handlers: Sequence[Handlers[Any]],
        recorder: _Recorder,
        points: Points | None = None,
    ) -> None:
        super().__init__(client, handlers, recorder)
        self._client = client
        self._worker = InlineWorker(client, self._plans, points)
        self._busy = False

    def until_idle(self, *, skip_time: bool = False) -> None:
        """Run jobs until no job can run.

        Args:
            skip_time: Move the virtual time to the next moment at which a job is due, a limit lets
                one begin, or a pause or a lease ends, again and again, until there is none
                (default: False).
        """
        if skip_time:
            self._time.begin()
        self._drain()
        while skip_time and (moment := run_blocking(self._time.next_moment())) is not None:
            self._time.jump(moment)
            self._drain()

    def advance(self, by: Duration) -> None:
        """Move the virtual time forward, and run jobs whenever one is due on the way.

        Args:
            by: How far, as a timedelta or in seconds.
        """
        self._time.begin()
        end = self._time.after(by)
        self._drain()
        while (moment := run_blocking(self._time.next_moment())) is not None and moment <= end:
            self._time.jump(moment)
            self._drain()
        self._time.jump(end)
        self._drain()

    @overload
    def output(self, chain: Chain[Job[R, Any]], *, skip_time: bool = False) -> R: ...
    @overload
    def output(self, chain: str, *, skip_time: bool = False) -> Any: ...
    def output(self, chain: ChainOrId, *, skip_time: bool = False) -> Any:
        """Run jobs until no job can run, and return the output of a chain.

        If it has none, this raises `AssertionError`, which explains why. The last error of a
        handler is its cause.

        Args:
            chain: The chain, or its id.
            skip_time: Move the virtual time, as `until_idle` does (default: False).
        """
        self.until_idle(skip_time=skip_time)
        found = self._client.get_chain(chain)
        if found is not None and found.status == "completed":
            return found.output
        raise self._without_output(chain_id(chain), None if found is None else self._client.why(chain))

    def _drain(self) -> None:
        if self._busy:
            return  # a handler has started a job in eager mode: it runs afterwards
        self._busy = True
        try:
            run_blocking(self._worker.drain())
        finally:
            self._busy = False

    def _started(self, hooks: Hooks, new_jobs: Sequence[NewJob], created: Sequence[Created]) -> None:  # noqa: ARG002
        hooks.after_commit(self._drain)


@overload
def running(
    client: Client[Any],
    handlers: Handlers[Any] | Sequence[Handlers[Any]],
    *,
    concurrency: int = 4,
    backoff: Backoff | None = None,
    max_attempts: int | None = None,
    schedules: Schedules | Sequence[Schedules] = (),
) -> AbstractAsyncContextManager[Running, None]: ...
@overload
def running(
    client: SyncClient[Any], handlers: Handlers[Any] | Sequence[Handlers[Any]], *, eager: bool = False
) -> AbstractContextManager[SyncRunning, None]: ...
def running(
    client: Any,
    handlers: Any,
    *,
    concurrency: int | None = None,
    backoff: Backoff | None = None,
    max_attempts: int | None = None,
    schedules: Schedules | Sequence[Schedules] = (),
    eager: bool | None = None,
) -> Any:
    """Run the handlers while the block runs.

        async with testing.running(client, handlers) as run:
            await checkout(order)
            await run.until_idle()

    With an async client, a worker runs. With a sync client, jobs run in the calling thread, when
    `until_idle` is called: that works inside the transaction of a Django `TestCase`, too. Handlers
    must be plain `def` functions then.

    Args:
        client: The client that your code uses.
        handlers: The handlers, or a list of registries.
        concurrency: Async only: how many handlers run at once (default: 4).
        backoff: Async only: the worker's `backoff` (default: 10 s, doubled each time).
        max_attempts: Async only: the worker's `max_attempts` (default: no limit).
        schedules: Async only: the schedules that the worker declares (default: none). A worker
            fires those that clients have put, too.
        eager: Sync only: run jobs as soon as the transaction that started them is committed
            (default: False).
    """
    recorder = _Recorder()
    registries: list[Handlers[Any]] = [handlers] if isinstance(handlers, Handlers) else list(handlers)
    recorded = [with_middleware(each, recorder) for each in registries]
    of_workers = {
        "concurrency": concurrency,
        "backoff": backoff,
        "max_attempts": max_attempts,
        "schedules": schedules or None,
    }
    given: dict[str, Any] = {name: value for name, value in of_workers.items() if value is not None}
    made: Any = client  # checked below, whatever its connections are
    if isinstance(client, Client):
        if eager is not None:
            raise InvalidArgument("eager is for sync clients: a worker runs all the time")
        return _running(made, recorded, recorder, given)
    if isinstance(client, SyncClient):
        if given:
            raise InvalidArgument(f"{', '.join(given)} is for async clients: a sync client has no worker")
        return _running_sync(made, recorded, recorder, eager=bool(eager))
    raise InvalidArgument(f"running() takes a client from connect() or connect_sync(), got {client!r}")


def run_one_by_one(client: Any, handlers: Any, points: Points) -> Any:
    """`running`, with jobs that run one after the other, and with points to be killed at."""
    recorder, made = _Recorder(), client
    registries: list[Handlers[Any]] = [handlers] if isinstance(handlers, Handlers) else list(handlers)
    recorded = [with_middleware(each, recorder) for each in registries]
    if isinstance(client, Client):
        return _one_by_one(made, recorded, recorder, points)
    return nullcontext(SyncRunning(made, recorded, recorder, points))


@async_context
async def _one_by_one(
    client: Client[Any], handlers: Sequence[Handlers[Any]], recorder: _Recorder, points: Points
) -> AsyncIterator[Running]:
    plans = resolve(handlers, client.sessions.engine.jobs, SharedSettings())
    yield Running(client, InlineWorker(client, plans, points), handlers, recorder)


@async_context
async def _running(
    client: Client[Any], handlers: Sequence[Handlers[Any]], recorder: _Recorder, options: dict[str, Any]
) -> AsyncIterator[Running]:
    options = {"concurrency": 4, **options}
    declared = declarations_of(options.get("schedules", ()))
    functions = [name for name, each in declared.items() if each.function is not None]
    async with Worker(client, handlers, name="testing", poll_interval=POLL, shutdown_timeout=5, **options) as worker:
        yield Running(client, worker, handlers, recorder, functions)


@context
def _running_sync(
    client: SyncClient[Any], handlers: Sequence[Handlers[Any]], recorder: _Recorder, *, eager: bool = False
) -> Iterator[SyncRunning]:
    run = SyncRunning(client, handlers, recorder)
    on_start = client.sessions.engine.on_start
    tell = run._started  # pyright: ignore[reportPrivateUsage]
    if eager:
        on_start.append(tell)
    try:
        yield run
    finally:
        if eager:
            on_start.remove(tell)


class _Recorder(Middleware):
    """Keeps the errors of handlers. It is the outermost layer."""

    def __init__(self) -> None:
        self.failures: list[HandlerFailure] = []
        self._lock = threading.Lock()

    async def wrap_handler(self, attempt: BaseAttempt[Any, Any], call_next: Callable[[], Awaitable[Any]]) -> Any:
        try:
            return await call_next()
        except BaseException as error:
            cause = (error.cause or error.__cause__) if isinstance(error, Reschedule) else error
            if isinstance(error, RateLimited):
                cause = None
            if cause is not None:
                self.failures.append(HandlerFailure(attempt.job, attempt.number, cause, attempt.chain_id))
            raise
