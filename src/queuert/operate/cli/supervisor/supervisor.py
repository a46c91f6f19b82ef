"""Keeps a number of worker processes running: starts, watches, replaces and stops them."""

from __future__ import annotations

import asyncio
import logging
import signal
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from queuert.base.backoff import Backoff, Recovery
from queuert.base.contexts import context
from queuert.operate.cli.supervisor.metrics import Family, merged, render
from queuert.operate.cli.supervisor.process import WorkerProcess
from queuert.operate.cli.supervisor.systemd import ServiceManager
from queuert.operate.exits import DONE, LEFT, NOT_DONE, USAGE

logger = logging.getLogger("queuert.supervisor")

PAUSES = Backoff(initial=0.5, maximum=30.0)
"""Between the end of a process and the start of the next one: longer each time."""
STEADY_AFTER = 60.0
"""Seconds that a process must have run for the next pause to be short again."""
TICK = 0.25
"""Seconds between two looks at all processes."""
ASK_AGAIN = 1.0
"""Seconds until a question is asked again that no process could answer."""
METRICS_WITHIN = 2.0
"""Seconds that a process may take to answer with its metrics."""


@dataclass(frozen=True)
class SupervisorOptions:
    place: str
    processes: int
    start_timeout: float
    """How long importing the user's code may take, and becoming ready when another process is
    replaced."""
    kill_after: float
    """How long a process may be silent. 0: for ever."""
    max_jobs: int | None
    """After how many jobs a process is replaced."""
    until_empty: bool
    """End when no job can run in any process."""
    until_done: Sequence[str]
    """End when these chains have ended."""
    log_level: str
    log_format: str
    traceback: bool

    def arguments(self) -> list[str]:
        """What a worker process is started with."""
        return [
            self.place,
            f"--log-level={self.log_level}",
            f"--log-format={self.log_format}",
            *(["--traceback"] if self.traceback else []),
        ]


class _Slot:
    """The place of one process. At times another one is started to replace it."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.process: WorkerProcess | None = None
        self.changing = asyncio.Lock()
        """Held while a process is started for this slot."""
        self.failures = Recovery(PAUSES)
        self.soon = asyncio.Event()
        """Do not wait before the next process is started."""
        self.wants_replacement = False


class Supervisor:
    def __init__(self, options: SupervisorOptions, manager: ServiceManager) -> None:
        self._options = options
        self._manager = manager
        self._slots = [_Slot(number) for number in range(options.processes)]
        self._living: set[WorkerProcess] = set()
        """All processes, including those that are being replaced."""
        self._stopping = asyncio.Event()
        self._wants_reload = asyncio.Event()
        self._replacing = asyncio.Lock()
        self._first_is_known = asyncio.Event()
        """A process has loaded the user's code, or has ended."""
        self._anything_was_ready = False
        self._announced = False
        """systemd knows that everything is up."""
        self._code = DONE
        self._restarts: Counter[str] = Counter()
        """How many processes were replaced, by reason."""
        self._renewals: set[asyncio.Task[object]] = set()
        self.result: str | None = None
        """With a condition for its end: what is left, or how the chains have ended."""
        self.error: str | None = None
        """Why there is no such result."""

    # What is asked from outside

    @property
    def is_ready(self) -> bool:
        """Every process is ready, and none is stopping."""
        return not self._stopping.is_set() and all(_is_ready(slot) for slot in self._slots)

    def describe(self) -> dict[str, Any]:
        return {
            "ready": self.is_ready,
            "stopping": self._stopping.is_set(),
            "processes": [
                {
                    "process": process.number,
                    "pid": process.pid,
                    "ready": process.is_ready,
                    **{name: process.state.get(name) for name in ("worker_id", "state", "error", "running", "ended")},
                }
                for process in sorted(self._living, key=lambda process: (process.number, process.pid))
            ],
        }

    async def metrics(self) -> str:
        processes = [slot.process for slot in self._slots if slot.process is not None]
        texts = await asyncio.gather(*(process.ask("metrics", timeout=METRICS_WITHIN) for process in processes))
        own = render(self._families())
        return own + merged({process.number: text or "" for process, text in zip(processes, texts, strict=True)})

    def _families(self) -> Iterator[Family]:
        current = [slot.process for slot in self._slots if slot.process is not None]
        labelled = [({"process": process.number}, process) for process in current]
        yield ("queuert_supervisor_processes", "gauge", "Worker processes that should run.",
               [({}, len(self._slots))])  # fmt: skip
        yield ("queuert_supervisor_ready_processes", "gauge", "Worker processes that are ready.",
               [({}, sum(process.is_ready for process in current))])  # fmt: skip
        yield ("queuert_supervisor_restarts_total", "counter", "Worker processes that were replaced, by reason.",
               [({"reason": reason}, self._restarts[reason]) for reason in sorted(REASONS)])  # fmt: skip
        yield ("queuert_supervisor_jobs_running", "gauge", "Jobs that a worker process is running.",
               [(labels, process.state.get("running", 0)) for labels, process in labelled])  # fmt: skip
        yield ("queuert_supervisor_jobs_ended_total", "counter", "Jobs that a worker process has run.",
               [(labels, process.jobs_ended) for labels, process in labelled])  # fmt: skip

    # Life

    async def run(self) -> int:
        """Until a signal, or until every process has ended by itself. Returns the exit code."""
        watching = asyncio.create_task(self._watch())
        reloading = asyncio.create_task(self._reload_when_told())
        leaving = asyncio.create_task(self._leave_together())
        with self._on_signals():
            try:
                keepers = [asyncio.create_task(self._keep(self._slots[0]))]
                if await self._first_is_loaded():
                    keepers += [asyncio.create_task(self._keep(slot)) for slot in self._slots[1:]]
                await asyncio.wait(keepers)
                for keeper in keepers:
                    keeper.result()
            finally:
                leaving.cancel()
                self._stopping.set()
                for process in list(self._living):
                    if not process.is_retired:
                        process.retire()
                for process in list(self._living):
                    await self._gone(process)
                reloading.cancel()
                watching.cancel()
        return self._code

    async def _first_is_loaded(self) -> bool:
        """The first process goes first: an error in the user's code is then shown once. False if
        there is no point in starting the others.
        """
        await _first_of(self._first_is_known.wait(), self._stopping.wait())
        return not self._stopping.is_set()

    @context
    def _on_signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        handlers = {
            signal.SIGTERM: self._told_to_stop,
            signal.SIGINT: self._told_to_stop,
            signal.SIGHUP: self._told_to_reload,
        }
        for number, handler in handlers.items():
            loop.add_signal_handler(number, handler, number)
        try:
            yield
        finally:
            for number in handlers:
                loop.remove_signal_handler(number)

    def _told_to_stop(self, number: signal.Signals) -> None:
        if self._stopping.is_set():
            logger.warning("%s again: running jobs are aborted", number.name)
        else:
            logger.info("%s: the worker processes finish their jobs and end", number.name)
            self._manager.stopping()
        self._stop()

    def _stop(self) -> None:
        self._stopping.set()
        for process in self._living:
            process.retire()

    def _told_to_reload(self, number: signal.Signals) -> None:
        if not self._stopping.is_set():
            logger.info("%s: the worker processes are replaced, one after the other", number.name)
            self._wants_reload.set()

    # The end of the work

    async def _leave_together(self) -> None:
        """If there is a condition for the end, wait for it, and then end all processes."""
        if self._options.until_done:
            self._code = NOT_DONE  # unless they are completed
            found = await self._answer_of_one("ended", given=self._options.until_done)
            self._code = NOT_DONE if found.get("waits") else DONE
        elif self._options.until_empty:
            await self._no_job_can_run()
            found = await self._answer_of_one("left")
            self._code = LEFT if found["waits"] else DONE
        else:
            return
        self.error = found.get("error")
        self.result = found.get("text")
        logger.info("all worker processes end together")
        self._stop()

    async def _no_job_can_run(self) -> None:
        """Wait until no process has a job, and none can claim one, all at the same time.

        Each process answers when it is quiet, with how many jobs it has run. If all of them answer
        twice with the same numbers, all were quiet between the first answers and the second ones.
        """
        before: dict[int, int] = {}
        while True:
            asked = list(self._living)  # also those that are being replaced
            answers = await asyncio.gather(*(process.ask("quiet") for process in asked))
            now = {process.pid: answer for process, answer in zip(asked, answers, strict=True)}
            complete = all(slot.process in asked for slot in self._slots) and None not in answers
            if complete and now == before:
                return
            before = now
            if not complete:
                await asyncio.sleep(TICK)

    async def _answer_of_one(self, question: str, **asked: Any) -> dict[str, Any]:
        """Of any process, and of another one if that ends before."""
        while True:
            for process in list(self._living):
                found: dict[str, Any] | None = await process.ask(question, **asked)
                if found is not None:
                    return found
            await asyncio.sleep(ASK_AGAIN)

    # One slot

    async def _keep(self, slot: _Slot) -> None:
        """Keep a process running in this slot."""
        while True:
            async with slot.changing:
                if self._stopping.is_set():
                    return
                if slot.process is None:
                    slot.process = await self._start(slot)
            if slot.process is None:
                await self._wait_before_next(slot)
                continue
            process, started = slot.process, time.monotonic()
            await process.ended.wait()
            async with slot.changing:
                if slot.process is not process:
                    continue  # it was replaced
                slot.process = None
            if self._is_over(process):
                return
            await self._pause(slot, process, time.monotonic() - started)

    async def _start(self, slot: _Slot) -> WorkerProcess | None:
        """None if the system cannot start a process now."""
        process = WorkerProcess(slot.number, self._changed)
        try:
            await process.start(self._options.arguments())
        except OSError as error:
            logger.error("a worker process could not be started: %s", error)
            return None
        self._living.add(process)
        logger.info("worker process %d started (number %d)", process.pid, slot.number)
        if self._stopping.is_set():  # the signal has missed it
            process.retire()
        return process

    def _is_over(self, process: WorkerProcess) -> bool:
        """Whether no other process takes its place."""
        self._count_end(process)
        if self._stopping.is_set():
            return True
        if process.code == USAGE and not self._anything_was_ready:
            # The process has told why. Trying again would not help.
            self._code = USAGE
            self._stop()
            return True
        return False

    def _count_end(self, process: WorkerProcess) -> None:
        if process in self._living:
            self._living.discard(process)
            # One that is stopped before it was ready has nothing to finish.
            if (
                process.code != DONE
                and process.was_ready.is_set()
                and self._code in (DONE, LEFT)
                and self._stopping.is_set()
            ):
                self._code = NOT_DONE

    async def _pause(self, slot: _Slot, process: WorkerProcess, ran_for: float) -> None:
        self._restarts["unresponsive" if process.is_hung else "ended"] += 1
        if ran_for > STEADY_AFTER:
            slot.failures.reset()
        logger.error("worker process %d %s: another one takes its place", process.pid, process.how_it_ended())
        await self._wait_before_next(slot)

    async def _wait_before_next(self, slot: _Slot) -> None:
        delay = slot.failures.next_delay()
        logger.info("the next process with number %d starts in %.1f s", slot.number, delay)
        await _first_of(self._stopping.wait(), slot.soon.wait(), timeout=delay)
        slot.soon.clear()

    # Replacing

    async def _reload_when_told(self) -> None:
        while True:
            await self._wants_reload.wait()
            self._wants_reload.clear()
            self._manager.reloading()
            done = True
            for slot in self._slots:
                done = done and await self._replace(slot, "reload")
            if done:
                logger.info("all worker processes are replaced")
            self._manager.ready()

    async def _replace(self, slot: _Slot, reason: str) -> bool:
        """Start another process, wait until it is ready, then let the old one finish its jobs.

        One at a time, and its end is awaited: so there is never more than one process too many.
        False if the new one did not become ready: then the old one stays.
        """
        async with self._replacing:
            return await self._replace_now(slot, reason)

    async def _replace_now(self, slot: _Slot, reason: str) -> bool:
        async with slot.changing:
            old = slot.process
            if self._stopping.is_set():
                return False
            if old is None:
                # The next one is a new one anyway. Its pause may be long, and the reason for it may
                # be gone.
                slot.failures.reset()
                slot.soon.set()
                return True
            new = await self._start(slot)
            if new is None:
                return False
            await _first_of(
                new.was_ready.wait(), new.ended.wait(), self._stopping.wait(), timeout=self._options.start_timeout
            )
            if not new.was_ready.is_set():
                if not self._stopping.is_set():
                    how = new.how_it_ended() if new.ended.is_set() else "did not become ready in time"
                    logger.error("the new worker process %d %s: the old one, %d, is kept", new.pid, how, old.pid)
                    new.retire()
                await self._gone(new)
                return False
            slot.process = new
            self._restarts[reason] += 1
            logger.info("worker process %d replaces %d (%s)", new.pid, old.pid, reason)
            old.retire()
        await self._gone(old)
        return True

    async def _gone(self, process: WorkerProcess) -> None:
        await process.ended.wait()
        self._count_end(process)

    # Watching

    async def _watch(self) -> None:
        """Look at all processes, all the time."""
        looked, told_at = time.monotonic(), 0.0
        while True:
            await asyncio.sleep(TICK)
            now = time.monotonic()
            # If this process was paused, the others may have been, too: that does not count.
            passed, looked = min(now - looked, 2 * TICK), now
            for process in list(self._living):
                process.check(passed, start_timeout=self._options.start_timeout, kill_after=self._options.kill_after)
            self._replace_those_with_many_jobs()
            interval = self._manager.watchdog_interval
            if interval is not None and now - told_at >= interval - TICK:
                told_at = now
                self._manager.alive()

    def _replace_those_with_many_jobs(self) -> None:
        limit = self._options.max_jobs
        for slot in self._slots:
            process = slot.process
            if limit and process is not None and process.jobs_ended >= limit and not slot.wants_replacement:
                slot.wants_replacement = True
                task: asyncio.Task[object] = asyncio.create_task(self._renew(slot))
                self._renewals.add(task)
                task.add_done_callback(self._renewals.discard)

    async def _renew(self, slot: _Slot) -> None:
        try:
            if not await self._replace(slot, "max_jobs"):
                await asyncio.sleep(slot.failures.next_delay())
        finally:
            slot.wants_replacement = False

    def _changed(self) -> None:
        """A process has loaded the user's code, has reported something new, or has ended."""
        self._first_is_known.set()
        ready = sum(_is_ready(slot) for slot in self._slots)
        self._anything_was_ready = self._anything_was_ready or ready > 0
        up = all(slot.process is not None and slot.process.loaded.is_set() for slot in self._slots)
        if up and not self._announced:
            self._announced = True
            self._manager.ready()
        self._manager.status(f"{ready} of {len(self._slots)} worker processes are ready")


REASONS = ("ended", "unresponsive", "reload", "max_jobs")


def _is_ready(slot: _Slot) -> bool:
    return slot.process is not None and slot.process.is_ready


async def _first_of(*awaitables: Any, timeout: float | None = None) -> None:
    """Until one of them is done, or the time is up."""
    tasks = [asyncio.ensure_future(awaitable) for awaitable in awaitables]
    try:
        await asyncio.wait(tasks, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
