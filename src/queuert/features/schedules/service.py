"""Fires schedules that are due.

Any worker fires any schedule, so there is no leader. A worker that has nothing to fire sleeps until
the next schedule is due, or until a message reports that one has changed. It looks at the table now
and then, because messages may be lost; claims never do.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple, TypeVar

from queuert.base.backoff import Backoff, Recovery
from queuert.base.failure_log import FailureLog
from queuert.engine.operations.reading import ended_chains
from queuert.engine.sessions import Sessions
from queuert.engine.transaction import Hooks
from queuert.errors import QueuertError, SchemaMissing, StorageBusy, StorageUnavailable
from queuert.features.schedules.calling import call
from queuert.features.schedules.declared import Declaration
from queuert.features.schedules.declaring import COUNTED_EVERY, DECLARED_EVERY, count_undeclared, declare
from queuert.features.schedules.defining import define
from queuert.features.schedules.firing import (
    Fired,
    Outrun,
    cancel_overlapped,
    check_jobs,
    fire_due,
    fire_one,
    look_at,
    record_failure_of_first,
)
from queuert.features.schedules.planning import Work
from queuert.ports.notify import MISSED, Dispose, NotifyAdapter
from queuert.ports.program import Program
from queuert.ports.provider import TimeLimit

logger = logging.getLogger("queuert.worker")

T = TypeVar("T")

PAGE = 50
"""Schedules that fire in one transaction."""
AT_ONCE = 10
"""Functions that run at once."""
UNUSED_INTERVAL = 1.0
"""Seconds between two looks, at least, as long as there are no schedules."""
LOCKED_FOR = 0.5
"""Seconds until the next look if others have locked all that is due."""
MAX_WAITED_FOR = 100_000
"""Chains whose ends this worker listens for. Others are noticed a little later."""


class Made(NamedTuple):
    """What a function has made."""

    work: Work
    jobs: list[list[Any]]
    """Those of each tick; none, if it has failed."""
    errors: dict[int, Exception]
    """Why ticks have failed, by position."""


class Firing:
    def __init__(
        self,
        worker_id: str,
        sessions: Sessions[Any],
        notify: NotifyAdapter,
        declarations: Mapping[str, Declaration],
        *,
        limit: TimeLimit,
        poll_interval: float,
        backoff: Backoff,
        release: str | None,
    ) -> None:
        self._worker_id = worker_id
        self._sessions = sessions
        self._engine = sessions.engine
        self._notify = notify
        self._limit = limit
        self._release = release
        self._poll_interval = poll_interval
        self._declarations = declarations
        self._definitions = {
            name: define(self._engine, each.times, each.job, each.options) for name, each in declarations.items()
        }
        self._recovery = Recovery(backoff)
        self._log = FailureLog(logger)
        self._turn = asyncio.Lock()
        self._wake = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._listening: dict[str, Dispose] = {}
        self._begin_to_listen = asyncio.Lock()
        self._used = bool(declarations)
        """There are schedules, or there were."""
        self._look_at = 0.0
        self._wants_look = False
        """Something may be due that was not when the table was last looked at."""
        self._declare_at = 0.0
        self._count_at = time.monotonic() + COUNTED_EVERY
        self._begun = False
        self._stopping = False
        self._page = PAGE
        self._calls: dict[str, asyncio.Task[None]] = {}
        """The functions that are running."""
        self._waited_for: dict[str, str] = {}
        """Chain → the schedule that waits for its end."""
        self._ended: set[str] = set()
        """Schedules whose chains may have ended."""

    async def run(self) -> None:
        """Until it is cancelled."""
        try:
            while True:
                failed_for = await self._try_step()
                if self._stopping:
                    break
                # After a failure, do not wait for the wake-up event: that would make this a busy
                # loop.
                await (self._sleep() if failed_for is None else asyncio.sleep(failed_for))
        finally:
            for task in self._calls.values():
                task.cancel()
            for dispose in self._listening.values():
                await dispose()

    def stop_soon(self) -> None:
        """Begin nothing new. What is being fired is committed and announced."""
        self._stopping = True
        self._wake.set()

    async def drain(self) -> None:
        """Fire everything that is due, also by functions."""
        while True:
            self._wants_look = True
            if await self._try_step() is not None or not self._calls:
                return
            await asyncio.wait(list(self._calls.values()))

    async def _try_step(self) -> float | None:
        """None, or after how many seconds to try again."""
        try:
            async with self._turn:
                self._wake.clear()
                await self._step()
            self._recovery.reset()
            self._log.worked("schedules")
            return None
        except Exception as error:
            delay, self._wants_look = self._recovery.next_delay(), True
            if isinstance(error, SchemaMissing) and not self._declarations:
                return delay  # tables of an older version have no schedules
            self._log.failed("schedules", error, "worker %s could not look for schedules, trying again in %.1f s",
                             self._worker_id, delay, extra={"worker_id": self._worker_id})  # fmt: skip
            return delay

    async def _sleep(self) -> None:
        until = self._look_at
        if self._definitions:
            until = min(until, self._declare_at)
        try:
            async with asyncio.timeout(max(0.0, until - time.monotonic())):
                await self._wake.wait()
        except TimeoutError:
            return

    # One step

    async def _step(self) -> None:
        await self._listen("schedule_changed")
        await self._declare()
        if self._ended:
            names, self._ended = sorted(self._ended), set()
            for start in range(0, len(names), PAGE):
                await self._fire(names[start : start + PAGE])
            self._wants_look = True  # they may be due soon
        if self._wants_look or time.monotonic() >= self._look_at:
            # Reset this before the look, so that an announcement during it is not lost.
            self._wants_look = False
            await self._fire_all()
        if self._used and time.monotonic() >= self._count_at:
            self._count_at = time.monotonic() + COUNTED_EVERY
            for name in await self._run(count_undeclared(self._engine)):
                logger.warning("schedule %s is disabled: no worker has declared it for 24 hours", name,
                               extra={"schedule": name, "worker_id": self._worker_id})  # fmt: skip

    async def _declare(self) -> None:
        now = time.monotonic()
        if not self._definitions or now < self._declare_at:
            return
        hooks = Hooks()
        program = declare(self._engine, hooks, self._definitions, self._release, begins=not self._begun)
        refused = await self._run(program)
        self._declare_at, self._begun = now + DECLARED_EVERY, True
        for name, reason in refused.items():
            error = QueuertError(reason)
            self._log.failed(f"schedule {name}", error, "schedule %s cannot be declared", name,
                             extra={"schedule": name, "worker_id": self._worker_id})  # fmt: skip
        await self._sessions.flush(hooks)

    async def _fire_all(self) -> None:
        """Page after page, until nothing is left of what was due at first."""
        began: datetime | None = None
        while True:
            due = await self._run(self._engine.state.due_schedules(1, self._functions()))
            if not due.rows:
                break
            began, due_at = began or due.now, due.rows[0].due_at
            if due_at is not None and due_at > began:
                # A schedule may be due again and again. There is more to do than to fire it.
                self._look_at = 0.0
                return
            self._used = True
            fired = await self._fire([])
            if not fired.seen or self._stopping:
                self._look_at = time.monotonic() + LOCKED_FOR
                return
            await asyncio.sleep(0)
        if due.next_in is not None:
            self._used = True
        interval = self._poll_interval if self._used else max(self._poll_interval, UNUSED_INTERVAL)
        self._look_at = time.monotonic() + (interval if due.next_in is None else min(interval, due.next_in))

    def _functions(self) -> list[str]:
        """The schedules whose functions can be called now."""
        if len(self._calls) >= AT_ONCE:
            return []
        return [
            name for name, each in self._declarations.items() if each.function is not None and name not in self._calls
        ]

    async def _fire(self, names: Sequence[str]) -> Fired:
        hooks = Hooks()
        program = fire_due(self._engine, hooks, self._page, self._functions(), names, self._worker_id)
        try:
            fired = await self._run(program)
        except (Outrun, StorageUnavailable, StorageBusy):
            raise
        except Exception as error:
            # One of them may be what fails. The next pages are smaller, until it is alone: then it
            # is left out for a while, and the others fire.
            if self._page == 1 and not names:
                text = f"{type(error).__qualname__}: {error}"[:1000]
                await self._run(record_failure_of_first(self._engine, self._functions(), text))
            self._page = max(1, self._page // 2)
            raise
        self._page = min(PAGE, self._page * 2)
        await self._after(fired, hooks)
        for name, failure in fired.failed.items():
            logger.error("schedule %s cannot be fired: %s", name, failure.error,
                         extra={"schedule": name, "worker_id": self._worker_id})  # fmt: skip
        for name in fired.functions:
            # Of those that were named, this worker may not have the function.
            if name in self._functions():
                self._call(name)
        return fired

    async def _after(self, fired: Fired, hooks: Hooks) -> None:
        """What follows a firing, in other transactions."""
        # Before the jobs are announced: they may end at once.
        if fired.waiting and len(self._waited_for) < MAX_WAITED_FOR:
            self._waited_for.update(fired.waiting)
        await self._sessions.flush(hooks)
        if self._waited_for and await self._listen("chain_ended"):
            for chain_id in await self._run(ended_chains(self._engine, list(self._waited_for))):
                self._end(chain_id)
        for name in fired.cancelling:
            hooks = Hooks()
            await self._run(cancel_overlapped(self._engine, hooks, name))
            await self._sessions.flush(hooks)

    # Functions

    def _call(self, name: str) -> None:
        task = self._calls[name] = asyncio.create_task(self._fire_by_function(name), name=f"queuert-schedule {name}")
        task.add_done_callback(lambda _: self._called(name))

    def _called(self, name: str) -> None:
        del self._calls[name]
        self._wants_look = True
        self._wake.set()

    async def _fire_by_function(self, name: str) -> None:
        try:
            work = await self._run(look_at(self._engine, name))
            if work is None or not work.read.row.by_function:
                return
            made = await self._make(name, work)
            try:
                await self._store(made)
            except (Outrun, StorageUnavailable, StorageBusy):
                raise
            except Exception as refused:
                await self._store_first(made, refused)
        except Outrun:
            logger.debug("schedule %s was fired or changed by another", name)
        except Exception as error:
            self._log.failed(f"schedule {name}", error, "schedule %s could not be fired, it is tried again", name,
                             extra={"schedule": name, "worker_id": self._worker_id})  # fmt: skip
            await asyncio.sleep(self._recovery.next_delay())

    async def _make(self, name: str, work: Work) -> Made:
        """Call the function for each tick. After a failure, the other extra ticks are left for the
        next look, and so are the other ordinary ones: it may take its whole time for each.
        """
        jobs, errors, called = list[list[Any]](), dict[int, Exception](), [0, 0]
        for is_ordinary in (False, True):
            for fire in work.fires:
                if fire.extra is is_ordinary:
                    continue
                called[is_ordinary] += 1
                try:
                    jobs.append(check_jobs(self._engine, name, await call(self._declarations[name], fire.tick)))
                except Exception as error:
                    errors[len(jobs)] = error
                    jobs.append([])
                    break
        return Made(work.cut(called[0], max(1, called[1])) if errors else work, jobs, errors)

    async def _store_first(self, made: Made, refused: Exception) -> None:
        """The library or the database refuses the jobs of one tick: find out whether it is the
        first. The others are looked at again.
        """
        work = made.work.alone()
        if len(made.jobs) > 1 and 0 not in made.errors:
            try:
                return await self._store(Made(work, made.jobs[:1], {}))
            except (Outrun, StorageUnavailable, StorageBusy):
                raise
            except Exception as error:
                refused = error
        return await self._store(Made(work, [[]], {0: made.errors.get(0, refused)}))

    async def _store(self, made: Made) -> None:
        hooks, name = Hooks(), made.work.read.row.name
        texts = {place: f"{type(error).__qualname__}: {error}"[:1000] for place, error in made.errors.items()}
        fired = await self._run(fire_one(self._engine, hooks, made.work, made.jobs, texts, self._worker_id))
        await self._after(fired, hooks)
        for place, error in made.errors.items():
            self._log.failed(f"schedule {name}", error, "schedule %s could not be fired for %s", name,
                             made.work.fires[place].tick.at.isoformat(),
                             extra={"schedule": name, "worker_id": self._worker_id})  # fmt: skip
        if not made.errors and not made.work.state.failing:
            self._log.worked(f"schedule {name}")

    async def _run(self, program: Program[T]) -> T:
        return await self._sessions.run_within(self._limit, program)

    # Messages

    async def _listen(self, topic: Any) -> bool:
        """Whether it has just begun to listen."""
        if topic in self._listening:
            return False
        heard = self._schedule_changed if topic == "schedule_changed" else self._chain_ended
        async with self._begin_to_listen:
            if topic in self._listening:  # by the function of another schedule
                return False
            try:
                self._listening[topic] = await self._notify.listen(topic, heard)
            except Exception:
                logger.debug("cannot listen for changes of schedules: polling", exc_info=True)
                return False
        return True

    # These may be called from any thread.

    def _schedule_changed(self, name: str) -> None:
        self._soon(self._look, name)

    def _chain_ended(self, chain_id: str) -> None:
        if chain_id == MISSED or chain_id in self._waited_for:
            self._soon(self._end, chain_id)

    def _soon(self, function: Any, value: str) -> None:
        try:
            self._loop.call_soon_threadsafe(function, value)
        except RuntimeError:
            return  # the loop is closed, and the worker with it

    def _look(self, name: str) -> None:
        # On SQLite, `MISSED` comes with every commit of another process that uses the same file. A
        # worker that has never seen a schedule must not look each time.
        if name != MISSED or self._used:
            self._wants_look = True
            self._wake.set()

    def _end(self, chain_id: str) -> None:
        if chain_id == MISSED:
            self._ended.update(self._waited_for.values())
            self._waited_for.clear()
        else:
            self._ended.add(self._waited_for.pop(chain_id, ""))
            self._ended.discard("")
        if self._ended:
            self._wake.set()
