"""The worker as users see it."""

from __future__ import annotations

import asyncio
import re
import uuid
from collections.abc import Sequence
from typing import Any, Self

from typing_extensions import TypeVar

from queuert.base.arguments import MAX_NAME_LENGTH, Duration, check_text, seconds
from queuert.base.backoff import RECOVERY_BACKOFF, Backoff, check_backoff
from queuert.base.contexts import OnlyAsync
from queuert.client.client import Client
from queuert.errors import InvalidArgument
from queuert.features.schedules.declared import Schedules, declarations_of
from queuert.features.schedules.defining import define
from queuert.features.schedules.stored import Definition
from queuert.jobs.queue import Queue, check_cap
from queuert.worker.ended import Ended
from queuert.worker.handlers.middleware import Middleware
from queuert.worker.handlers.registry import DEFAULT_GRACE, DEFAULT_LOSSES, Handlers, SharedSettings, resolve
from queuert.worker.health import WorkerHealth
from queuert.worker.policy.claiming import ClaimPolicy
from queuert.worker.policy.options import WorkerOptions
from queuert.worker.run import WorkerRun
from queuert.worker.signals import calling_on_signals
from queuert.worker.stopping import longest_stop

Conn = TypeVar("Conn", default=Any)

_NAME = re.compile(r"[A-Za-z0-9._-]{1,100}")


class Worker(OnlyAsync):
    """Runs the handlers of jobs on this event loop.

        async with Worker(client, [handlers], concurrency=10):
            ...

    You can start and stop it any number of times. All workers of a database share the work, in any
    number of processes. Durations are a timedelta or seconds.

    Args:
        client: A client from `queuert.connect`.
        handlers: One registry of handlers, or a list of them.
        name: The first part of the worker's id, for logs: letters, digits, ".", "_" and "-"
            (default: "worker").
        release: Which version of your code this is, for `client.list_workers()`: any text, for
            example a tag or a commit (default: none).
        concurrency: How many handlers run at once (default: 1).
        prefetch: How many jobs the worker may claim in advance while handlers are quick. 0 turns
            this off (default: 2000).
        queues: The queues to serve, as names or `Queue`s (default: all queues of its handlers).
        max_claim_batch: How many jobs one claim takes at most (default: as many as there is room
            for).
        max_claim_per_worker: How many jobs the worker holds at most, including those that have run
            but are not settled yet (default: no limit).
        cluster_cap: How many jobs may run at once in the whole database. 0 pauses all work
            (default: no limit).
        poll_interval: How often to look for jobs if no notification arrives (default: 5 s).
        lease: How long the worker owns a job without renewing its lease. If a worker crashes, its
            jobs wait this long at most, where nothing else shows that it is gone (default: 60 s).
        renew_interval: How often leases are renewed (default: half of the lease).
        backoff: How long to wait after a failed attempt (default: 10 s, doubled each time, up to
            300 s).
        max_attempts: The number of attempts after which a job fails, unless its handler or registry
            has another number (default: no limit). Attempts that are lost with their worker do not
            count.
        max_losses: How often a job may be lost with its worker, unless its handler or registry has
            another number: then it fails (default: 3).
        timeout_grace: How long a handler may go on after its `timeout`. Then its job is settled
            without it (default: 10 s).
        recovery_backoff: How long to wait after an error of the worker itself, for example when the
            database is unavailable (default: 0.5 s, doubled each time, up to 30 s, with jitter).
        recovery_max_attempts: After how many such errors in a row the worker gives up. Then
            `start()` and the `with` block raise the last error, and `run()` returns 3. 0 means
            never (default: 0).
        shutdown_timeout: How long running handlers may go on when the worker stops. Then they are
            aborted (default: 30 s).
        required_middleware: Middleware that every registry must have, in this order. If one is
            missing, that is an `InvalidArgument` error (default: none).
        coalesce_notifies: How many notifications the worker reads before it looks for jobs
            (default: 100).
        cancel_on_abort: Whether to cancel the task of an `async def` handler that should stop. If
            not, only `attempt.signal` is set (default: True).
        schedules: The schedules that this program declares, as a list of `Schedules`. Every worker
            fires those that clients have put (default: none).

    Attributes:
        id: The id of the worker: its name and a UUID.
    """

    def __init__(
        self,
        client: Client[Conn],
        handlers: Handlers[Conn] | Sequence[Handlers[Conn]],
        *,
        name: str | None = None,
        release: str | None = None,
        concurrency: int = 1,
        prefetch: int = 2000,
        queues: Sequence[Queue | str] | None = None,
        max_claim_batch: int | None = None,
        max_claim_per_worker: int | None = None,
        cluster_cap: int | None = None,
        poll_interval: Duration = 5.0,
        lease: Duration = 60.0,
        renew_interval: Duration | None = None,
        backoff: Backoff | None = None,
        max_attempts: int | None = None,
        max_losses: int = DEFAULT_LOSSES,
        timeout_grace: Duration = DEFAULT_GRACE,
        recovery_backoff: Backoff = RECOVERY_BACKOFF,
        recovery_max_attempts: int = 0,
        shutdown_timeout: Duration = 30.0,
        required_middleware: Sequence[Middleware] = (),
        coalesce_notifies: int = 100,
        cancel_on_abort: bool = True,
        schedules: Schedules | Sequence[Schedules] = (),
    ) -> None:
        if not isinstance(client, Client):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidArgument(f"a worker takes a client from queuert.connect(), got {client!r}")
        registries = _registries(handlers)
        _check_name(name)
        if release is not None:
            check_text(release, "release", MAX_NAME_LENGTH)
        for number, what in (
            (concurrency, "concurrency"),
            (max_claim_batch, "max_claim_batch"),
            (max_claim_per_worker, "max_claim_per_worker"),
            (coalesce_notifies, "coalesce_notifies"),
        ):
            if number is not None and (type(number) is not int or number < 1):
                raise InvalidArgument(f"{what} must be a number of 1 or more, got {number!r}")
        if type(prefetch) is not int or prefetch < 0:
            raise InvalidArgument(f"prefetch must be 0 (off) or a positive number, got {prefetch!r}")
        if type(recovery_max_attempts) is not int or recovery_max_attempts < 0:
            raise InvalidArgument(
                f"recovery_max_attempts must be 0 (no limit) or a positive number, got {recovery_max_attempts!r}"
            )
        check_cap(cluster_cap, "cluster_cap")
        check_backoff(recovery_backoff, "recovery_backoff")
        jobs = client.sessions.engine.jobs
        plans = resolve(
            registries,
            jobs,
            SharedSettings(lease, renew_interval, backoff, max_attempts, timeout_grace, max_losses),
            required_middleware,
        )
        if not plans:
            raise InvalidArgument("a worker needs at least one handler: register it with @handlers.handles(…)")
        declarations = declarations_of(schedules)
        for each in declarations.values():
            define(client.sessions.engine, each.times, each.job, each.options)
        self.id = f"{name or 'worker'}-{uuid.uuid4()}"
        self._client: Client[Any] = client
        self._options = WorkerOptions(
            plans=plans,
            policy=ClaimPolicy(
                self.id,
                plans,
                jobs,
                queues=queues,
                concurrency=concurrency,
                prefetch=prefetch,
                max_claim_batch=max_claim_batch,
                max_claim_per_worker=max_claim_per_worker,
                cluster_cap=cluster_cap,
            ),
            concurrency=concurrency,
            prefetch=prefetch,
            poll_interval=seconds(poll_interval, "poll_interval", minimum=0.001),
            recovery_backoff=recovery_backoff,
            recovery_max_attempts=recovery_max_attempts,
            shutdown_timeout=seconds(shutdown_timeout, "shutdown_timeout"),
            coalesce_notifies=coalesce_notifies,
            cancel_on_abort=cancel_on_abort,
            release=release,
            schedules=declarations,
        )
        self._left_running: set[str] = set()
        """By all runs: see `WorkerRun`."""
        self._run: WorkerRun[Any] | None = None
        self._start_task: asyncio.Task[None] | None = None
        self._stop_task: asyncio.Task[bool] | None = None
        self._runs: list[asyncio.Future[Ended]] = []
        """The calls of `run()` that wait for the end."""
        self._failure: BaseException | None = None
        """What the worker gave up with."""
        self._drains = 0
        self._only_drains = False
        """`drain()` started the worker, so the last `drain()` to end stops it."""

    @property
    def job_types(self) -> tuple[str, ...]:
        """The names of the job types that the worker claims, with older versions and aliases."""
        return self._options.policy.types

    @property
    def client(self) -> Client[Any]:
        """The client that the worker was made with."""
        return self._client

    def health(self) -> WorkerHealth:
        """How the worker is, for readiness probes. It costs nothing: no statement is sent."""
        run = self._run
        if run is None:
            limit = longest_stop(self._options.shutdown_timeout)
            return WorkerHealth(self.id, "stopped", ready=False, error=None, turn_age=None, running=0, ended=0,
                                stops_within=limit)  # fmt: skip
        return run.health()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, kind: object, *_: object) -> None:
        await self.stop()
        if kind is None and self._failure is not None:
            raise self._failure

    async def start(self) -> None:
        """Start the worker. If it is running, this does nothing. If it is stopping, this waits.

        If the database is unavailable, the worker keeps trying and this returns. With
        `recovery_max_attempts`, this waits for the database, and raises the last error after so
        many tries.
        """
        await self._start()
        self._only_drains = False

    async def _start(self) -> None:
        while self._stop_task is not None:
            await asyncio.wait({self._stop_task})
        if self._run is None:
            self._failure = None
            self._run = WorkerRun(
                self.id, self._client, self._options, left_running=self._left_running, on_give_up=self._gave_up
            )
            self._start_task = asyncio.create_task(self._begin(self._run))
        if self._start_task is None:
            return
        starting = self._start_task
        try:
            await asyncio.shield(starting)
        except asyncio.CancelledError:
            if not starting.cancelled():
                await self.stop()  # it is this call that was cancelled
                raise

    async def _begin(self, run: WorkerRun[Any]) -> None:
        try:
            await run.start()
        except BaseException as error:
            self._run = None
            if self._stop_task is None:
                self._tell_runs(Ended(clean=True, failure=error, out_of_tries=run.out_of_tries))
            raise
        finally:
            self._start_task = None

    def _gave_up(self, run: WorkerRun[Any]) -> None:
        """The main loop has ended by itself: stop the rest."""
        if self._run is run and self._stop_task is None:
            self._stop_task = asyncio.create_task(self._end(run))

    async def stop(self) -> bool:
        """Stop the worker. It also ends `run()`.

        Running handlers may finish within `shutdown_timeout`, then they are aborted.

        Returns True if every job was settled. You can call it at any time, also twice at once.
        """
        if self._stop_task is None:
            if self._run is None:
                self._tell_runs(Ended(clean=True))
                return True
            self._stop_task = asyncio.create_task(self._end(self._run))
        return await asyncio.shield(self._stop_task)

    async def _end(self, run: WorkerRun[Any]) -> bool:
        clean = False
        try:
            if self._start_task is not None:
                self._start_task.cancel()
                await asyncio.wait({self._start_task})
            clean = await run.stop()
            return clean
        finally:
            self._failure = run.failure
            self._run = None
            self._start_task = self._stop_task = None
            self._tell_runs(Ended(clean, run.failure, run.out_of_tries))

    def _tell_runs(self, ended: Ended) -> None:
        for waiting in self._runs:
            if not waiting.done():
                waiting.set_result(ended)

    async def drain(self) -> None:
        """Work until no job can run. For scripts and tests.

        If the worker is not running, it is started, and stopped again at the end.
        """
        if self._run is None or self._stop_task is not None:
            self._only_drains = True
        await self._start()
        run = self._run
        if run is None:
            return  # it was stopped meanwhile
        self._drains += 1
        try:
            await run.drain()
        finally:
            self._drains -= 1
            if self._only_drains and not self._drains:
                self._only_drains = False
                await self.stop()
        if run.failure is not None:
            raise run.failure

    async def run(self) -> int:
        """Work until SIGTERM, SIGINT or `stop()`. A second signal aborts running handlers at once.

        If signals cannot be handled (outside of the main thread, or on Windows), the log says so,
        and only `stop()` ends it. If this call is cancelled, the worker is stopped.

        Returns the exit code for the process: 0 if every job was settled, 1 if some were aborted, 3
        if the worker gave up after `recovery_max_attempts` failures in a row.
        """
        ended: asyncio.Future[Ended] = asyncio.get_running_loop().create_future()
        told = asyncio.Event()

        def on_signal() -> None:
            if told.is_set() and self._run is not None:
                self._run.hurry()
            told.set()

        while self._stop_task is not None:  # else the end of the last run would end this one
            await asyncio.wait({self._stop_task})
        self._runs.append(ended)
        try:
            with calling_on_signals(on_signal):
                return (await self._until_ended(ended, told)).exit_code()
        finally:
            self._runs.remove(ended)

    async def _until_ended(self, ended: asyncio.Future[Ended], told: asyncio.Event) -> Ended:
        starting = asyncio.ensure_future(self.start())
        signalled = asyncio.ensure_future(told.wait())
        try:
            await asyncio.wait((starting, signalled, ended), return_when=asyncio.FIRST_COMPLETED)
            if starting.done() and not ended.done():
                starting.result()
                await asyncio.wait((signalled, ended), return_when=asyncio.FIRST_COMPLETED)
            if not ended.done():
                await self.stop()
            return ended.result()
        finally:
            signalled.cancel()
            if not starting.done():
                starting.cancel()
            # What it raised is in the result, too.
            await asyncio.gather(starting, return_exceptions=True)
            if not ended.done():  # this call was cancelled
                await self.stop()


def _check_name(name: Any) -> None:
    if name is not None and not (isinstance(name, str) and _NAME.fullmatch(name)):
        raise InvalidArgument(f"{name!r} cannot be a worker's name: use 1 to 100 letters, digits, '.', '_' and '-'")


def _registries(handlers: Any) -> list[Handlers[Any]]:
    if isinstance(handlers, Handlers):
        return [handlers]  # pyright: ignore[reportUnknownVariableType]
    if isinstance(handlers, list | tuple):
        return list(handlers)  # pyright: ignore[reportUnknownVariableType,reportUnknownArgumentType]
    raise InvalidArgument(f"a worker takes Handlers, or a list of them, got {handlers!r}")


def definitions_of(worker: Worker) -> dict[str, Definition]:
    """The schedules that a worker declares, as they are stored."""
    engine, options = worker.client.sessions.engine, worker._options  # pyright: ignore[reportPrivateUsage]
    return {name: define(engine, each.times, each.job, each.options) for name, each in options.schedules.items()}


async def quiet(worker: Worker) -> int | None:
    """Wait until no job can run here, and return how many have run. With the same number the next
    time, none has run in between. None: the worker is not running. Unlike `drain`, this never
    starts it.
    """
    run = worker._run  # pyright: ignore[reportPrivateUsage]
    if run is None or not _is_up(worker):
        return None
    await run.drain()
    return run.health().ended if _is_up(worker) else None


def _is_up(worker: Worker) -> bool:
    moving = (worker._start_task, worker._stop_task)  # pyright: ignore[reportPrivateUsage]
    return moving == (None, None) and worker._run is not None  # pyright: ignore[reportPrivateUsage]
