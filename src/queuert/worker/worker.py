"""The worker as users see it."""

from __future__ import annotations

import asyncio
import logging
import re
import signal
import uuid
from collections.abc import Sequence
from typing import Any, Self

from typing_extensions import TypeVar

from queuert.client.base import sessions_of
from queuert.client.client import Client
from queuert.errors import InvalidArgument, SchemaTooNew, StorageError, StorageNotADatabase, StorageReadOnly
from queuert.model import Duration, seconds
from queuert.worker.backoff import RECOVERY_BACKOFF, Backoff, check_backoff
from queuert.worker.claiming import ClaimPolicy, Queue, check_cap
from queuert.worker.handlers import Handlers, LeaseSettings, resolve
from queuert.worker.middleware import Middleware
from queuert.worker.options import WorkerOptions
from queuert.worker.run import WorkerRun

logger = logging.getLogger("queuert.worker")

Conn = TypeVar("Conn", default=Any)

_NAME = re.compile(r"[A-Za-z0-9._-]{1,100}")
_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Worker:
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
        concurrency: How many handlers run at once (default: 1).
        prefetch: How many jobs the worker may claim in advance while handlers are quick. 0 turns
            this off (default: 1000).
        queues: The queues to serve, as names or `Queue`s (default: all queues of its handlers).
        max_claim_batch: How many jobs one claim takes at most (default: as many as there is room
            for).
        max_claim_per_worker: How many jobs the worker holds at most, including those that have run
            but are not settled yet (default: no limit).
        cluster_cap: How many jobs may run at once in the whole database. 0 pauses all work
            (default: no limit).
        poll_interval: How often to look for jobs if no notification arrives (default: 5 s).
        lease: How long the worker owns a job without renewing its lease. If a worker crashes, its
            jobs wait this long (default: 60 s).
        renew_interval: How often leases are renewed (default: half of the lease).
        backoff: How long to wait after a failed attempt (default: 10 s, doubled each time, up to
            300 s).
        recovery_backoff: How long to wait after an error of the worker itself, for example when the
            database is unavailable (default: 0.5 s, doubled each time, up to 30 s, with jitter).
        shutdown_timeout: How long running handlers may go on when the worker stops. Then they are
            aborted (default: 30 s).
        required_middleware: Middleware that every registry must have, in this order. If one is
            missing, that is an `InvalidArgument` error (default: none).
        coalesce_notifies: How many notifications the worker reads before it looks for jobs
            (default: 100).
        cancel_on_abort: Whether to cancel the task of an `async def` handler that should stop. If
            not, only `attempt.signal` is set (default: True).

    Attributes:
        id: The id of the worker: its name and a UUID.
    """

    def __init__(
        self,
        client: Client[Conn],
        handlers: Handlers[Conn] | Sequence[Handlers[Conn]],
        *,
        name: str | None = None,
        concurrency: int = 1,
        prefetch: int = 1000,
        queues: Sequence[Queue | str] | None = None,
        max_claim_batch: int | None = None,
        max_claim_per_worker: int | None = None,
        cluster_cap: int | None = None,
        poll_interval: Duration = 5.0,
        lease: Duration = 60.0,
        renew_interval: Duration | None = None,
        backoff: Backoff | None = None,
        recovery_backoff: Backoff = RECOVERY_BACKOFF,
        shutdown_timeout: Duration = 30.0,
        required_middleware: Sequence[Middleware] = (),
        coalesce_notifies: int = 100,
        cancel_on_abort: bool = True,
    ) -> None:
        if not isinstance(client, Client):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidArgument(f"a worker takes a client from queuert.connect(), got {client!r}")
        registries = _registries(handlers)
        _check_name(name)
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
        check_cap(cluster_cap, "cluster_cap")
        check_backoff(recovery_backoff, "recovery_backoff")
        jobs = sessions_of(client).engine.jobs
        plans = resolve(registries, jobs, LeaseSettings(lease, renew_interval, backoff), required_middleware)
        if not plans:
            raise InvalidArgument("a worker needs at least one handler: register it with @handlers.handles(…)")
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
            shutdown_timeout=seconds(shutdown_timeout, "shutdown_timeout"),
            coalesce_notifies=coalesce_notifies,
            cancel_on_abort=cancel_on_abort,
        )
        self._run: WorkerRun[Any] | None = None
        self._start_task: asyncio.Task[None] | None = None
        self._stop_task: asyncio.Task[bool] | None = None
        self._drains = 0
        self._only_drains = False
        """`drain()` started the worker, so the last `drain()` to end stops it."""

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Start the worker. If it is running, this does nothing. If it is stopping, this waits."""
        await self._start()
        self._only_drains = False

    async def _start(self) -> None:
        while self._stop_task is not None:
            await asyncio.wait({self._stop_task})
        if self._run is None:
            self._run = WorkerRun(self.id, self._client, self._options)
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
            run.start(migrated=await self._ensure_schema())
        except BaseException:
            self._run = None
            raise
        finally:
            self._start_task = None

    async def stop(self) -> bool:
        """Stop the worker.

        Running handlers may finish within `shutdown_timeout`, then they are aborted.

        Returns True if every job was settled. You can call it at any time, also twice at once.
        """
        if self._stop_task is None:
            if self._run is None:
                return True
            self._stop_task = asyncio.create_task(self._end(self._run))
        return await asyncio.shield(self._stop_task)

    async def _end(self, run: WorkerRun[Any]) -> bool:
        try:
            if self._start_task is not None:
                self._start_task.cancel()
                await asyncio.wait({self._start_task})
            return await run.stop()
        finally:
            self._run = None
            self._start_task = self._stop_task = None

    async def drain(self) -> None:
        """Work until no job can run. For scripts and tests.

        If the worker is not running, it is started, and stopped again at the end.
        """
        if self._run is None or self._stop_task is not None:
            self._only_drains = True
        await self._start()
        if self._run is None:
            return  # it was stopped meanwhile
        self._drains += 1
        try:
            await self._run.drain()
        finally:
            self._drains -= 1
            if self._only_drains and not self._drains:
                self._only_drains = False
                await self.stop()

    async def run(self) -> int:
        """Work until SIGTERM or SIGINT, then stop. A second signal aborts running handlers at once.

        Returns the exit code for the process: 0 if every job was settled, 1 if some were aborted.
        """
        loop = asyncio.get_running_loop()
        told = asyncio.Event()

        def on_signal() -> None:
            if told.is_set() and self._run is not None:
                self._run.hurry()
            told.set()

        for number in _SIGNALS:
            loop.add_signal_handler(number, on_signal)
        try:
            starting = asyncio.ensure_future(self.start())
            first_signal = asyncio.ensure_future(told.wait())
            await asyncio.wait((starting, first_signal), return_when=asyncio.FIRST_COMPLETED)
            if starting.done():
                starting.result()
            await first_signal
            return 0 if await self.stop() else 1
        finally:
            for number in _SIGNALS:
                loop.remove_signal_handler(number)

    async def _ensure_schema(self) -> bool:
        """Whether the schema is up to date.

        A worker starts even while the database is unavailable.
        """
        try:
            await sessions_of(self._client).ensure_schema()
        except (SchemaTooNew, StorageNotADatabase, StorageReadOnly):
            raise  # waiting does not help
        except (StorageError, OSError) as error:
            logger.error("the database is unavailable, the worker keeps trying: %s", error)
            return False
        return True


def _check_name(name: Any) -> None:
    if name is not None and not (isinstance(name, str) and _NAME.fullmatch(name)):
        raise InvalidArgument(f"{name!r} cannot be a worker's name: use 1 to 100 letters, digits, '.', '_' and '-'")


def _registries(handlers: Any) -> list[Handlers[Any]]:
    if isinstance(handlers, Handlers):
        return [handlers]  # pyright: ignore[reportUnknownVariableType]
    if isinstance(handlers, list | tuple):
        return list(handlers)  # pyright: ignore[reportUnknownVariableType,reportUnknownArgumentType]
    raise InvalidArgument(f"a worker takes Handlers, or a list of them, got {handlers!r}")
