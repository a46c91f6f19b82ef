"""`submit`: chains that many callers start at once are stored together.

The first caller stores its own jobs. The jobs that other tasks or threads submit meanwhile are
collected, and a task or thread of our own stores them with one statement and one commit. While it
does, the next group is collected. No timer forms the groups, and no caller depends on another one:

- A group with jobs that cannot be stored is split in halves until they are alone.
- If the answer is lost, the ids are looked up. Nothing is sent again: it could be stored twice.
- If a caller is cancelled while it waits, its jobs are withdrawn. If its group is already being
  stored, they are stored.
- A group that takes long, perhaps on a connection that hangs, does not hold up the next one.

The worker's settler forms groups in the same way, but tries again until they are stored. A caller
gets the error and decides.
"""

from __future__ import annotations

import asyncio
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Coroutine, Sequence
from concurrent.futures import Future, wait
from contextlib import suppress
from contextvars import Context
from itertools import accumulate, pairwise
from time import monotonic
from typing import Any

from queuert.base.blocking import run_blocking
from queuert.client.submitted import Item, as_created
from queuert.engine.operations import starting as create
from queuert.engine.sessions import Sessions, SyncSessions
from queuert.errors import (
    BlockerNotFound,
    ChainError,
    ClientClosed,
    InvalidArgument,
    JobIdExists,
    JobTypeError,
    StorageBusy,
    StorageError,
    StorageRejected,
    StorageUnavailable,
    TransactionNested,
)
from queuert.jobs.chain import Chain
from queuert.ports.program import atomically
from queuert.records.model import Created, NewJob

MAX_JOBS, MAX_BYTES = 1_000, 4_000_000
"""Of one group. A single call may have more."""
SLOW = 1.0
"""Seconds that a group waits for the one before it."""

JOBS_AT_FAULT = (StorageRejected, InvalidArgument, JobTypeError, ChainError, JobIdExists, BlockerNotFound)
"""Nothing was stored, because of the jobs: they would fail again."""
NOTHING_STORED = (*JOBS_AT_FAULT, StorageBusy, ClientClosed, TransactionNested)
NOT_AT_FAULT = (StorageError, OSError, ClientClosed, TransactionNested)
"""The jobs are not the cause: without some of them, the others would fail too."""


class Turn:
    """A call or a group that is under way."""

    __slots__ = ("began",)

    def __init__(self) -> None:
        self.began = monotonic()


class Submissions(ABC):
    """What both kinds of clients do. Written as coroutines: see `queuert.base.blocking`."""

    def __init__(self, sessions: Sessions[Any], *, gathers: bool = True) -> None:
        """`gathers`: False if connections belong to threads."""
        self._sessions = sessions
        self._gathers = gathers
        self._waiting: deque[Item] = deque()
        self._turn: Turn | None = None
        """What is under way, unless it has taken too long."""
        self._calls = 0
        """How many callers, and groups, there are."""
        self._idle: Any = None
        self._mutex = threading.Lock()

    async def submit(self, jobs: list[NewJob], *, given_ids: bool = False) -> list[Chain[Any]]:
        """Store the first jobs of chains in a transaction of their own. `given_ids`: their ids are
        not all new.
        """
        sessions, hooks = self._sessions, None
        await sessions.check_alone()
        self._count(1)
        try:
            engine = sessions.engine
            # One that has to wait for a lock, because of its key, its blockers or its id, would
            # keep others waiting.
            gathers = self._gathers and not given_ids and not any(job.dedup or job.blockers for job in jobs)
            # If no observer needs each start, one announcement is enough for a group.
            if not gathers or engine.observers is not None or engine.on_start:
                hooks = sessions.new_hooks()
                if engine.observers is not None:
                    jobs = await sessions.drive(create.traced(engine, hooks, jobs))
            if not gathers:
                created = await self._store(jobs, new_ids=not given_ids)
            elif (turn := self._begin_turn()) is not None:
                hooks = hooks or sessions.new_hooks()
                try:
                    created = await self._store(jobs)
                finally:
                    self._go_on(turn)
            else:
                created = await self._wait(Item(jobs, hooks, self._new_future()))
            if hooks is None:  # the group has announced it
                return create.chains_of(engine, jobs, created)
            chains = create.stored(engine, hooks, jobs, created)
            await sessions.flush(hooks)
            return chains
        finally:
            self._count(-1)

    async def finish(self, seconds: float) -> None:
        """Wait until nothing is under way, but not longer than this."""
        with self._mutex:
            if not self._calls:
                return
            idle = self._idle = self._new_future()
        await self._wait_within(seconds, idle)

    def _count(self, change: int) -> None:
        with self._mutex:
            self._calls += change
            if not self._calls and self._idle is not None and not self._idle.done():
                self._idle.set_result(None)

    def _begin_turn(self) -> Turn | None:
        """None: something is under way."""
        with self._mutex:
            if self._turn is not None:
                return None
            turn = self._turn = Turn()
            return turn

    async def _wait(self, item: Item) -> list[Created]:
        with self._mutex:
            self._waiting.append(item)
            turn = None
            if self._turn is None:  # what was under way has just ended, in another thread
                turn = self._turn = Turn()
        if turn is not None:
            self._begin(self._work(turn))
        try:
            return await self._answer(item)
        except BaseException:
            self._leave(item)
            raise

    def _leave(self, item: Item) -> None:
        """Its caller is gone. If the jobs are stored anyway, they are announced."""
        answer = item.answer
        if answer.cancel() or answer.cancelled() or not answer.done() or answer.exception() is not None:
            return
        if item.hooks is not None:  # else the group has announced it
            create.stored(self._sessions.engine, item.hooks, item.jobs, answer.result())
            self._sessions.flush_later(item.hooks)

    # The groups

    def _go_on(self, turn: Turn) -> None:
        """A call has ended: those that wait make the next group."""
        with self._mutex:
            if self._turn is not turn:  # it took too long, and others went on
                return
            if not self._waiting:
                self._turn = None
                return
            turn = self._turn = Turn()
        self._begin(self._work(turn))

    def overtake(self) -> None:
        """If what is under way has taken too long, those that wait go on without it."""
        with self._mutex:
            if self._turn is None or not self._waiting or monotonic() - self._turn.began < SLOW:
                return
            turn = self._turn = Turn()
        self._begin(self._work(turn))

    async def _work(self, turn: Turn) -> None:
        group: list[Item] = []
        self._count(1)
        try:
            while group := self._next_group(turn):
                await self._store_group(group)
                # Callers that have their answers may submit more. Without this, half of them would
                # always be one group late.
                await self._sessions.let_others_run()
        except BaseException as error:  # the event loop ends
            with self._mutex:
                if self._turn is turn:
                    group += self._waiting
                    self._waiting.clear()
                    self._turn = None
            for item in group:
                item.fail(error)
            raise
        finally:
            self._count(-1)

    def _next_group(self, turn: Turn) -> list[Item]:
        group: list[Item] = []
        number = size = 0
        with self._mutex:
            if self._turn is not turn:
                return []
            turn.began = monotonic()
            while self._waiting:
                item = self._waiting[0]
                for job in item.jobs:
                    number += 1
                    size += len(job.input)
                if group and (number > MAX_JOBS or size > MAX_BYTES):
                    break
                self._waiting.popleft()
                if self._is_wanted(item):
                    group.append(item)
            if not group:
                self._turn = None
        return group

    async def _store_group(self, group: Sequence[Item]) -> None:
        try:
            created = await self._store([job for item in group for job in item.jobs])
        except Exception as error:
            await self._store_others(group, error)
            return
        places = [0, *accumulate([len(item.jobs) for item in group])]
        answers = [created[place:end] for place, end in pairwise(places)]
        hooks = self._sessions.new_hooks()
        unannounced = [(item.jobs, answer) for item, answer in zip(group, answers, strict=True) if item.hooks is None]
        create.announce_created(
            self._sessions.engine,
            hooks,
            [job for new_jobs, _ in unannounced for job in new_jobs],
            [made for _, answer in unannounced for made in answer],
        )
        await self._sessions.flush(hooks)
        for item, answer in zip(group, answers, strict=True):
            if item.answer.done():
                await self._announce_late(item, answer)
            else:
                item.answer.set_result(answer)

    async def _store_others(self, group: Sequence[Item], error: Exception) -> None:
        """Nothing of the group is stored. Find the jobs that are the cause."""
        if len(group) == 1 or (isinstance(error, NOT_AT_FAULT) and not isinstance(error, JOBS_AT_FAULT)):
            for item in group:
                item.fail(error)
            return
        middle = len(group) // 2
        await self._store_group(group[:middle])
        await self._store_group(group[middle:])

    async def _announce_late(self, item: Item, created: list[Created]) -> None:
        """Its caller was cancelled when it was too late."""
        if item.hooks is not None:
            create.stored(self._sessions.engine, item.hooks, item.jobs, created)
            await self._sessions.flush(item.hooks)

    # The database

    async def _store(self, jobs: Sequence[NewJob], *, new_ids: bool = True) -> list[Created]:
        """All of them, or none."""
        program = self._sessions.engine.state.create_jobs(jobs)
        if len(jobs) > 1 and any(job.dedup is not None for job in jobs):
            program = atomically(program)  # keys may need more than one statement
        try:
            return await self._sessions.drive(program)
        except NOTHING_STORED:
            raise
        except Exception as error:
            if not new_ids or (isinstance(error, StorageUnavailable) and not error.sent):
                raise
            created = await self._look_up(jobs)
            if created is None:
                raise
            return created

    async def _look_up(self, jobs: Sequence[NewJob]) -> list[Created] | None:
        """The answer, which was lost, if the jobs are stored."""
        try:
            rows = await self._sessions.drive(self._sessions.engine.state.get_jobs([job.id for job in jobs]))
        except Exception:
            return None
        found = [row for row in rows if row is not None]
        return [as_created(row) for row in found] if len(found) == len(jobs) else None

    # How to wait

    @abstractmethod
    def _new_future(self) -> Any: ...

    @abstractmethod
    def _is_wanted(self, item: Item) -> bool:
        """Whether its caller still waits. It is about to be stored."""

    @abstractmethod
    async def _answer(self, item: Item) -> list[Created]:
        """Wait for the answer, and make sure that `overtake` is called."""

    @abstractmethod
    async def _wait_within(self, seconds: float, idle: Any) -> None: ...

    @abstractmethod
    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        """Start a task or a thread."""


class AsyncSubmissions(Submissions):
    """Gathers the submissions of tasks."""

    def __init__(self, sessions: Sessions[Any]) -> None:
        super().__init__(sessions)
        self._tasks: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None

    def _new_future(self) -> asyncio.Future[Any]:
        return asyncio.get_running_loop().create_future()

    def _is_wanted(self, item: Item) -> bool:
        return not item.answer.done()

    async def _answer(self, item: Item) -> list[Created]:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(SLOW, self._watch)
        answer: Any = item.answer
        created: list[Created] = await answer
        return created

    def _watch(self) -> None:
        self._timer = None
        self.overtake()
        if self._waiting:
            self._timer = asyncio.get_running_loop().call_later(SLOW, self._watch)

    async def _wait_within(self, seconds: float, idle: asyncio.Future[None]) -> None:
        await asyncio.wait([idle], timeout=seconds)

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        # Without the context of the caller that happens to be here.
        task = asyncio.get_running_loop().create_task(work, name="queuert-submitter", context=Context())
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # marks it as retrieved: the callers have it


class SyncSubmissions(Submissions):
    """Gathers the submissions of threads."""

    def __init__(self, sessions: SyncSessions[Any]) -> None:
        super().__init__(sessions, gathers=not sessions.lends_to_threads)

    def _new_future(self) -> Future[Any]:
        return Future()

    def _is_wanted(self, item: Item) -> bool:
        answer: Any = item.answer
        return bool(answer.set_running_or_notify_cancel())

    async def _answer(self, item: Item) -> list[Created]:
        answer: Any = item.answer
        while not answer.done():
            wait([answer], SLOW)
            self.overtake()
        created: list[Created] = answer.result()
        return created

    async def _wait_within(self, seconds: float, idle: Future[None]) -> None:
        with suppress(TimeoutError):
            idle.result(seconds)

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        thread = threading.Thread(target=run_blocking, args=(work,), name="queuert-submitter", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # the interpreter shuts down: no thread can start
            run_blocking(work)
