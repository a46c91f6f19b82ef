"""One run of a worker, from start to stop: its main loop, and how it ends.

What it claims goes on in `attempts`.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine
from math import inf
from typing import Any, Generic, TypeVar

from queuert.base.backoff import Recovery
from queuert.base.failure_log import FailureLog
from queuert.client.client import Client
from queuert.features.bulk.jobs import OWN_NAMES
from queuert.features.bulk.service import QUEUES, OwnWork
from queuert.features.retention.service import Pruner
from queuert.features.schedules.service import Firing
from queuert.ports.notify import MISSED
from queuert.ports.observer import Observer
from queuert.records.limits import ALIVE_FOR
from queuert.worker.attempts.attempts import Attempts
from queuert.worker.attempts.observed import listener_for
from queuert.worker.attempts.unblocking import Unblocker
from queuert.worker.base.next_turn import NextTurn
from queuert.worker.base.watchdog import Watchdog
from queuert.worker.claims.crowd import Crowd
from queuert.worker.claims.filling import Filling
from queuert.worker.claims.leases import LeaseKeeper
from queuert.worker.claims.orphans import Orphans
from queuert.worker.claims.presence import Presence
from queuert.worker.claims.reaping import Reaper
from queuert.worker.claims.wake import Wake
from queuert.worker.health import WorkerHealth, WorkerState
from queuert.worker.policy.claiming import ClaimPolicy
from queuert.worker.policy.options import WorkerOptions
from queuert.worker.starting import HOPELESS, check_room, has_schema
from queuert.worker.stopping import CLEAN_UP, CLOSE, SETTLE, between, longest_stop, within

logger = logging.getLogger("queuert.worker")

Conn = TypeVar("Conn")

LATE = 5.0
"""The main loop counts as stuck if it has had no turn for this many seconds, plus the time that one
statement may take.
"""
MISSED_PAUSES = 1.0
"""Seconds within which a worker whose slots are busy notices a pause, if messages were missed."""
DECLARE_INTERVAL = 60.0
"""Seconds between two declarations of limits: well under `ALIVE_FOR`."""


class WorkerRun(Generic[Conn]):
    def __init__(
        self,
        worker_id: str,
        client: Client[Conn],
        options: WorkerOptions,
        *,
        left_running: set[str],
        on_give_up: Callable[[WorkerRun[Any]], None],
    ) -> None:
        """`left_running`: the ids of jobs that began here and were never settled, perhaps in an
        earlier run of this worker. The database may still hold them as running, and only the end of
        their leases puts them back. `on_give_up` is called when the main loop has ended by itself.
        """
        self._worker_id = worker_id
        self._sessions = client.sessions
        self._engine = self._sessions.engine
        self._options = options
        self._on_give_up = on_give_up
        self.failure: Exception | None = None
        """The error that ended it."""
        self.out_of_tries = False
        """It ended because of `recovery_max_attempts`, not because of an error that a retry cannot
        repair.
        """
        self._policy: ClaimPolicy = options.policy
        self._next_turn = NextTurn()
        self._stopping = asyncio.Event()
        self._quiet = asyncio.Event()
        """Nothing is held, and the last claim found nothing."""
        self._observer = self._engine.observers or Observer()
        """Told of the worker itself; its attempts have a listener of their own."""
        listener = listener_for(worker_id, self._sessions)
        notify = client.sessions.channel
        self._presence = Presence(worker_id, self._sessions, notify, options)
        self._attempts = Attempts(
            worker_id,
            client,
            options,
            self._next_turn,
            listener,
            left_running=left_running,
            when_unknown=self._presence.register_soon,
        )
        self._poll_at = 0.0
        self._declare_at = 0.0
        self._polled_at = 0.0
        self._pauses_heard = 0
        """How often something was paused or resumed."""
        self._pauses_seen = 0
        """How many of these changes the last poll can have seen."""
        self._recovery = Recovery(options.recovery_backoff, options.recovery_max_attempts)
        self._limit = options.limit
        self._failures = FailureLog(logger)
        self._unblocker = Unblocker(self._sessions, self._next_turn, options.recovery_backoff, self._limit)
        self._own_work = OwnWork(
            worker_id,
            self._sessions,
            options.recovery_backoff,
            self._limit,
            on_rest=self._next_turn.event.set,  # the main loop may wait for it
            on_left=self._next_turn.unblock_soon,
        )
        self._orphans = Orphans(
            self._sessions, worker_id, options, held=self._attempts.claims, left_running=left_running
        )
        self._filling = Filling(
            self._sessions, self._attempts, self._orphans, self._next_turn, options, self._stopping, self._quiet
        )
        self._keeper = LeaseKeeper(self._sessions, self._attempts, listener, self._orphans, options)
        self._reaper = Reaper(worker_id, self._sessions, self._attempts, self._presence, self._next_turn, options)
        self._pruner = Pruner(worker_id, self._sessions, options.policy.types, options.recovery_backoff)
        self._firing = Firing(
            worker_id,
            self._sessions,
            notify,
            options.schedules,
            limit=options.limit,
            poll_interval=options.poll_interval,
            backoff=options.recovery_backoff,
            release=options.release,
        )
        self._crowd = Crowd(worker_id, self._sessions, options)
        self._wake = Wake(
            notify,
            self._policy.types,
            self._next_turn,
            self._crowd,
            coalesce=options.coalesce_notifies,
            on_ownership_lost=self._keeper.maybe_lost,
            on_pause_changed=self._pause_changed,
            on_own_work=self._own_work.begin,
        )
        self._watchdog = Watchdog(self._attempts.type_of)
        self._turned_at: float | None = None
        """When a turn last had its answers from the database."""
        self._trouble: Exception | None = None
        """What the last turn failed with."""
        self._migrated = True
        self._reserved = False
        self._closed = False
        self._hurry = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        """All of this worker's own, until it is closed."""
        self._main_task: asyncio.Task[None] | None = None
        self._own_task: asyncio.Task[None] | None = None
        self._is_pruning = False

    # Life

    async def start(self) -> None:
        """Begin to work. With a limit of tries, wait for the database first."""
        tries = self._options.recovery_max_attempts
        try:
            self._migrated = await has_schema(
                self._sessions, self._policy.types, self._limit, self._recovery, limited=tries > 0
            )
        except Exception as error:
            if self._recovery.exhausted:
                self._fail(error)
            raise
        check_room(self._worker_id, self._sessions, self._policy.concurrency)
        self._main_task = self._spawn(self._main(), "worker")
        self._spawn(self._keeper.run(), "leases")
        self._spawn(self._presence.run(), "presence")
        self._spawn(self._crowd.run(), "crowd")
        self._own_task = self._spawn(self._own_work.run(), "own-work")
        self._spawn(self._firing.run(), "schedules")
        self._watchdog.start()
        logger.info("worker %s started", self._worker_id, extra={"worker_id": self._worker_id})
        self._observer.worker_started(
            worker_id=self._worker_id, job_types=self._policy.types, concurrency=self._policy.concurrency
        )

    def _spawn(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        task = asyncio.create_task(work, name=f"queuert-{name} {self._worker_id}")
        self._tasks.append(task)
        return task

    def _fail(self, error: Exception) -> None:
        """This error ends the run."""
        self.failure = error
        self.out_of_tries = self._recovery.exhausted
        if self.out_of_tries:
            error.add_note(f"queuert: worker {self._worker_id} gave up after {self._recovery.failures} failures in a "
                           "row (recovery_max_attempts)")  # fmt: skip
        logger.critical("worker %s gives up after %d failures in a row: %s", self._worker_id, self._recovery.failures,
                        error, extra={"worker_id": self._worker_id})  # fmt: skip

    def health(self) -> WorkerHealth:
        age = None if self._turned_at is None else time.monotonic() - self._turned_at
        state: WorkerState = "starting" if age is None else "running"
        if self._stopping.is_set():
            state = "stopping"
        turning = age is not None and age < self._limit.seconds + LATE
        return WorkerHealth(
            worker_id=self._worker_id,
            state=state,
            ready=state == "running" and turning and self._trouble is None,
            error=None if self._trouble is None else f"{type(self._trouble).__name__}: {self._trouble}",
            turn_age=age,
            running=self._attempts.running,
            ended=self._attempts.ended,
            stops_within=longest_stop(self._options.shutdown_timeout),
        )

    def hurry(self) -> None:
        """Stop waiting for running handlers."""
        self._hurry.set()

    async def drain(self) -> None:
        """Until nothing is runnable, or the worker stops."""
        if self._closed:
            return
        await self._firing.drain()
        self._quiet.clear()
        self._own_work.look()
        self._next_turn.claim_soon()
        await self._quiet.wait()

    async def stop(self) -> bool:
        """End this run.

        True if every job was settled, False if some had to be aborted or left to their leases.
        """
        logger.info("worker %s stopping", self._worker_id, extra={"worker_id": self._worker_id})
        self._observer.worker_stopping(worker_id=self._worker_id)
        timeout = self._options.shutdown_timeout
        self._stopping.set()
        self._firing.stop_soon()
        self._next_turn.event.set()
        self._own_work.stop()
        self._attempts.give_back_waiting()
        self._attempts.give_back_alone()
        # A claim that is under way gives back what it gets, so from here on running handlers only
        # become fewer.
        clean = await self._handlers_ended(timeout)
        if not clean:
            self._attempts.abort_running("shutdown")
            # Cancelled handlers get a moment to clean up; threads cannot be cancelled and keep
            # their leases.
            if not await within(between(timeout, CLEAN_UP), self._attempts.async_handlers_ended()):
                self._attempts.abandon_running()
        if not await within(between(timeout, SETTLE), self._everything_settled()):
            logger.error("worker %s stopped with results unsettled: those jobs will run again once their leases have "
                         "ended", self._worker_id, extra={"worker_id": self._worker_id})  # fmt: skip
            clean = False
        if self._own_task is not None:
            # What takes longer is rolled back, and done by another worker.
            await asyncio.wait({self._own_task}, timeout=CLOSE)
        await self._close()
        logger.info("worker %s stopped", self._worker_id, extra={"worker_id": self._worker_id, "clean": clean})
        self._observer.worker_stopped(
            worker_id=self._worker_id, job_types=self._policy.types, concurrency=self._policy.concurrency, clean=clean
        )
        return clean

    async def _close(self) -> None:
        """Takes limited time: the database may hang."""
        self._closed = True
        self._quiet.set()
        self._attempts.abandon_running()
        left: list[asyncio.Task[None]] = self._attempts.close()
        for task in self._tasks:
            task.cancel()
        left += self._tasks
        if left:
            await asyncio.wait(left, timeout=CLOSE)
        await within(CLOSE, self._say_goodbye())
        await within(CLOSE, self._wake.dispose())
        if self._main_task is not None:
            self._watchdog.stop()

    async def _say_goodbye(self) -> None:
        try:
            await self._orphans.give_back()  # before the row, which is kept while jobs are running
            await self._presence.end()
        finally:
            if self._reserved:
                await self._sessions.unreserve()

    async def _handlers_ended(self, timeout: float) -> bool:
        """Whether all handlers ended in time, and before a second signal."""
        if self._attempts.running:
            second_signal = asyncio.ensure_future(self._hurry.wait())
            ended = asyncio.ensure_future(self._attempts.all_ended.wait())
            await asyncio.wait((second_signal, ended), timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
            second_signal.cancel()
            ended.cancel()
        return not self._attempts.running

    async def _everything_settled(self) -> None:
        if self._main_task is not None:
            # Not cancelled: a claim that is under way would be lost, and its jobs left leased.
            await asyncio.wait({self._main_task})
        await self._attempts.everything_settled()

    # The main loop

    async def _main(self) -> None:
        while not self._stopping.is_set():
            try:
                await self._turn()
                self._recovery.reset()
                self._failures.worked("main loop")
            except Exception as error:
                # Announcements that came meanwhile have not been read. And if another step keeps
                # failing, jobs must still be claimed.
                self._next_turn.wants_claim = True
                self._trouble = error
                delay = self._recovery.next_delay()
                if self._recovery.exhausted or (isinstance(error, HOPELESS) and not self._migrated):
                    self._give_up(error)
                    return
                self._failures.failed(
                    "main loop", error, "worker %s: a turn of the main loop failed, trying again in %.1f s",
                    self._worker_id, delay, extra={"worker_id": self._worker_id},
                )  # fmt: skip
                self._tell_of(error, delay)
                # Do not wait for the wake-up event here: if it was set before the failure, this
                # would be a busy loop.
                await _wait_for(self._stopping, delay)

    def _give_up(self, error: Exception) -> None:
        self._fail(error)
        self._tell_of(error, None)
        self._on_give_up(self)

    def _tell_of(self, error: Exception, retry_in: float | None) -> None:
        self._observer.worker_error(
            worker_id=self._worker_id, error_type=type(error).__qualname__, error_message=str(error), retry_in=retry_in
        )

    async def _turn(self) -> None:
        """Fill the free slots, reap, then wait for a reason to do so again."""
        if not self._migrated:
            await self._sessions.ensure_schema()
            self._migrated = True
        if not self._reserved:
            await self._sessions.reserve(self._limit.seconds)
            self._reserved = True
        if not self._presence.registered:
            await self._wake.listen()  # the connection that listens holds the lock
            await self._presence.register()
        if time.monotonic() >= self._declare_at:
            await self._declare_limits()
        if not self._is_pruning:
            self._is_pruning = True
            self._spawn(self._pruner.run(), "pruner")
        self._filling.give_back_stale()
        if self._next_turn.wants_claim:
            await self._filling.fill()
        await self._unblocker.step()
        await self._reaper.step()
        now = time.monotonic()
        heard = self._pauses_heard
        if now >= self._poll_at or heard > self._pauses_seen:
            await self._poll()
            # Set this afterwards: if the poll fails, the next turn polls again.
            self._poll_at, self._polled_at, self._pauses_seen = now + self._options.poll_interval, now, heard
        self._turned_at, self._trouble = now, None
        if self._next_turn.wants_claim and self._filling.has_room():
            return
        if not self._attempts.claims and self._unblocker.due_at is None and self._own_work.idle:
            self._quiet.set()
        await self._wait()

    async def _declare_limits(self) -> None:
        """Store which limits this code declares, and ask which ones apply to its types."""
        policy = self._policy
        program = self._engine.state.declare_limits(policy.types, policy.declared, alive_for=ALIVE_FOR)
        policy.know_limits(await self._sessions.run_within(self._limit, program))
        # Without limits there is nothing to repeat.
        self._declare_at = time.monotonic() + (DECLARE_INTERVAL if policy.declared or policy.by_key else inf)

    async def _poll(self) -> None:
        """Ask the database for what notifications would have reported: its answer is right even if
        messages were lost.
        """
        await self._wake.listen()
        types, queues = self._policy.types, self._policy.queues
        program = self._engine.state.next_available_in((*types, *OWN_NAMES), (*queues, *QUEUES))
        available = await self._sessions.run_within(self._limit, program)
        # Only add reasons, never remove one: something may have happened here since the database
        # read its answer.
        if available.next_in == 0:
            self._next_turn.wants_claim = True
            self._own_work.look()
        elif available.next_in is not None:
            self._next_turn.claim_in(available.next_in)
        if available.unblocking:
            self._next_turn.wants_unblocking = True
        if available.paused:
            self._attempts.heed(available.paused)

    def _pause_changed(self, target: str) -> None:
        """Something was paused or resumed: the next turn asks what, and claims what may run
        again.
        """
        if target != MISSED:
            self._pauses_heard += 1
            self._next_turn.claim_soon()
        elif not self._filling.has_room():
            # With free slots, a claim would report the pause. On SQLite, `MISSED` comes with every
            # commit of another process that uses the same file, so this worker must not ask the
            # database each time.
            self._poll_at = min(self._poll_at, self._polled_at + MISSED_PAUSES)
            self._next_turn.event.set()

    async def _wait(self) -> None:
        next_turn, now = self._next_turn, time.monotonic()
        until = min(self._poll_at, self._reaper.due_at, self._presence.look_at)
        for due_at in (next_turn.due_at, self._unblocker.due_at, self._filling.stale_at):
            if due_at is not None:
                until = min(until, due_at)
        if until > now and not self._stopping.is_set():
            await _wait_for(next_turn.event, until - now)
        next_turn.event.clear()
        next_turn.check_due()
        if await self._wake.should_claim(able=self._filling.has_room() and not self._stopping.is_set()):
            next_turn.wants_claim = True


async def _wait_for(event: asyncio.Event, delay: float) -> None:
    """Until the event is set, or the time is up."""
    try:
        async with asyncio.timeout(delay):
            await event.wait()
    except TimeoutError:
        return
