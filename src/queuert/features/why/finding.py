"""Why a job is not running: the reasons, from what the database knows.

The rules here are those of a claim (see `worker/claiming` and `StateOperations.claim`). A random
machine in the tests holds both together: nothing is in the way if and only if the claim of an idle
worker would take the job.

To add a reason: give `Circumstances` the facts, `queuert.why` a class, and `REASONS` a function. If
it depends on the worker that would take the job, add it to `_Claim` instead.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from math import inf
from typing import Any

from queuert.base.own_types import is_own
from queuert.base.statuses import TERMINAL
from queuert.engine.engine import Engine
from queuert.engine.operations.archived import not_found
from queuert.features.schedules.schedule import schedule_from
from queuert.features.schedules.times import After
from queuert.features.why import (
    BeingUnblocked,
    Blocked,
    BlockingChain,
    ClusterFull,
    Ended,
    FailedBefore,
    Holder,
    InLine,
    LimitClosed,
    LimitFull,
    Lost,
    NotDue,
    NoWorker,
    OrderHeld,
    PastDeadline,
    Paused,
    QueueFull,
    Reason,
    Running,
    SlotsBusy,
    Why,
)
from queuert.jobs.chain import error_record
from queuert.ports.program import Program
from queuert.records.circumstances import Circumstances, RunningGroup
from queuert.records.limits import LimitRow, split_lane
from queuert.records.model import ALONE_AFTER
from queuert.records.pauses import Pause, PauseTarget, is_paused
from queuert.records.schedules import read_chain_id
from queuert.records.workers import UNTOLD, WorkerAbout, WorkerQueue, WorkerRow, WorkerState


def why(engine: Engine, chain_id: str) -> Program[Why]:
    found = yield from engine.state.circumstances(chain_id)
    if found is None:
        raise (yield from not_found(engine, chain_id))
    explained = explain(found)
    if found.chain.current.lane is not None:
        explained = yield from _with_limit(engine, found, explained)
    return explained if chain_id[14:15] != "8" else (yield from _with_schedule(engine, explained))


def _with_limit(engine: Engine, facts: Circumstances, explained: Why) -> Program[Why]:
    """What its limit says, if the job is due. Read after the other facts: both may have changed in
    between.
    """
    job = facts.chain.current
    if job.lane is None or job.status != "pending" or job.scheduled_at > facts.now:
        return explained
    name, key = split_lane(job.lane)
    row = yield from engine.state.get_limit(name, key)
    ahead = yield from engine.state.jobs_before(job)
    found: list[Reason] = list(
        _reasons(facts, (each for each in facts.pauses if each.target == PauseTarget("key", job.lane)))
    )
    if row.rule.concurrency is not None and row.running >= row.rule.concurrency:
        found.append(LimitFull(name, key, row.rule.concurrency, row.running, row.held_by, ahead))
    elif row.holder not in (None, job.id):
        (holder,) = yield from engine.state.get_jobs([row.holder or ""])
        if holder is not None:
            found.append(OrderHeld(name, key, holder.id, holder.status, ahead))
    if row.opens_at is not None:
        found.append(LimitClosed(name, key, row.opens_at, facts.now, ahead))
    if not found and row.holder is None and _most(row) <= ahead:
        found.append(InLine(ahead))
    return replace(explained, reasons=(*explained.reasons, *found))


def _most(row: LimitRow) -> float:
    """How many jobs of a key could begin now, at most."""
    rate, concurrency = row.rule.rate, row.rule.concurrency
    most = inf if concurrency is None else concurrency - row.running
    return most if rate is None else min(most, 1 if rate.smooth else rate.number)


def _with_schedule(engine: Engine, explained: Why) -> Program[Why]:
    """Which schedule has started the chain, and what it does meanwhile."""
    known = read_chain_id(explained.chain_id)
    row = None if known is None else (yield from engine.state.find_schedule(known.incarnation))
    if known is None or row is None:
        return explained
    schedule = schedule_from(row, explained.looked_at)
    held_up: str | None = None
    if explained.status not in TERMINAL and explained.chain_id in schedule.last_chain_ids:
        if schedule.overlap == "skip":
            held_up = f"ticks of {row.name} are skipped (a blocked chain counts as running)"
        elif schedule.overlap == "queue":
            held_up = f"one tick of {row.name} waits, and others are skipped (a blocked chain counts as running)"
        elif isinstance(schedule.times, After):
            held_up = f"{row.name} does not run again"
    return replace(explained, schedule=row.name, tick=known.at, held_up=held_up)


def explain(facts: Circumstances) -> Why:
    job = facts.chain.current
    return Why(
        chain_id=facts.chain.first.id,
        chain_type=facts.chain.first.type_name,
        job_id=job.id,
        job_type=job.type_name,
        status=job.status,
        looked_at=facts.now,
        reasons=tuple(reason for find in REASONS for reason in find(facts)),
    )


def _ended(facts: Circumstances) -> Iterator[Reason]:
    job = facts.chain.current
    if job.status in TERMINAL:
        yield Ended(job.status, job.completed_at, error_record(job.last_error), facts.now)


def _running(facts: Circumstances) -> Iterator[Reason]:
    job = facts.chain.current
    if job.status == "running" and job.leased_by is not None and job.leased_until is not None:
        states: list[WorkerState] = [row.state for row in facts.workers if row.id == job.leased_by]
        state = states[0] if states else "unknown"
        yield Running(job.leased_by, state, job.last_attempt_at, job.leased_until, facts.now)


def _blocked(facts: Circumstances) -> Iterator[Reason]:
    job = facts.chain.current
    if job.status != "blocked":
        return
    chains = tuple(BlockingChain(each.chain_id, each.chain_type, each.status) for each in facts.blockers)
    yield Blocked(chains, max(job.blockers_left, len(chains))) if chains else BeingUnblocked()


def _not_due(facts: Circumstances) -> Iterator[Reason]:
    job = facts.chain.current
    if job.status != "pending" or job.scheduled_at <= facts.now:
        return
    error = error_record(job.last_error)
    if error is not None and job.attempt > job.losses:
        yield FailedBefore(job.attempt - job.losses, job.scheduled_at, error, facts.now)
    else:
        yield NotDue(job.scheduled_at, facts.now)


def _paused(facts: Circumstances) -> Iterator[Reason]:
    """Also for a job that is not due or blocked. Workers may serve a type through different queues:
    pauses of queues are found here if they stop all workers, else `_no_room` looks at them.
    """
    if facts.chain.current.status not in ("blocked", "pending"):
        return
    name = facts.chain.current.type_name
    yield from _reasons(facts, (pause for pause in facts.pauses if pause.target.covers(name, None)))
    told = [row.about for row in facts.workers if row.about is not None and name in row.about.types]
    serving = [about for _, about in _alive(facts)] or told
    queues = {each.name for about in serving for each in about.queues if any(kind.name == name for kind in each.types)}
    paused = _of_queues(facts, queues)
    if len(paused) == len(queues):
        yield from _reasons(facts, paused)


def _of_queues(facts: Circumstances, queues: Collection[str]) -> list[Pause]:
    return [each for each in facts.pauses if each.target.scope == "queue" and each.target.name in queues]


def _reasons(facts: Circumstances, pauses: Iterable[Pause]) -> Iterator[Reason]:
    for each in pauses:
        yield Paused(each.target, each.since, each.until, each.reason, each.by, facts.now)


def _no_worker(facts: Circumstances) -> Iterator[Reason]:
    """Also for a job that is not due or blocked: nothing else would run it then."""
    job = facts.chain.current
    if job.status not in ("blocked", "pending") or _alive(facts) or _untold(facts):
        return
    told = [row for row in facts.workers if row.about is not None]
    known = [(row.seen_at, row.about or UNTOLD) for row in told if job.type_name in (row.about or UNTOLD).types]
    last = max(known, key=lambda each: each[0], default=None)
    seen_at, host, release = (last[0], last[1].host, last[1].release) if last is not None else (None, None, None)
    gone = facts.last_handled
    if gone is not None and (seen_at is None or gone.seen_at > seen_at):
        seen_at, host, release = gone.seen_at, gone.host, gone.release
    uncertain = tuple(row.id for row in told if row.state == "unknown")
    yield NoWorker(job.type_name, seen_at, host, release, uncertain, facts.others_alive, facts.now)


def _no_room(facts: Circumstances) -> Iterator[Reason]:
    """Caps, slots, and the jobs that come first: what a claim of each worker would meet.

    A worker for which the job is paused does not take it. If it is paused for all of them, this is
    what else is in the way.
    """
    job, alive = facts.chain.current, _alive(facts)
    if job.status != "pending" or job.scheduled_at > facts.now or not alive or is_own(job.type_name):
        return
    claims = [_Claim(facts, worker, about) for worker, about in alive]
    shut = [claim for claim in claims if claim.paused]
    some_shut = len(shut) < len(claims)
    obstacles = [claim.obstacle() for claim in claims if not (some_shut and claim.paused)]
    met = [obstacle for obstacle in obstacles if obstacle is not None]
    if len(met) < len(obstacles) or _untold(facts):
        return  # one of them would take it, or may
    busy = [each for each in met if isinstance(each, SlotsBusy)]
    in_line = [each for each in met if isinstance(each, InLine)]
    if some_shut:
        yield from _reasons(facts, _of_queues(facts, {claim.queue for claim in shut}))
    yield from dict.fromkeys(each for each in met if isinstance(each, QueueFull))
    yield from dict.fromkeys(each for each in met if isinstance(each, ClusterFull))
    if busy:
        yield SlotsBusy(
            len(busy),
            sum(each.slots for each in busy),
            sum(each.busy for each in busy),
            all(each.of_type for each in busy),
            _oldest_of(each.oldest for each in busy),
        )
    if in_line:
        yield min(in_line, key=lambda each: each.ahead)


def _lost(facts: Circumstances) -> Iterator[Reason]:
    job = facts.chain.current
    if job.losses and job.status not in TERMINAL:
        yield Lost(job.losses, job.losses >= ALONE_AFTER)


def _past_deadline(facts: Circumstances) -> Iterator[Reason]:
    job = facts.chain.current
    if job.status in ("blocked", "pending") and job.deadline is not None and job.deadline <= facts.now:
        yield PastDeadline(job.deadline, facts.now)


REASONS: Sequence[Callable[[Circumstances], Iterable[Reason]]] = (
    _ended,
    _running,
    _blocked,
    _not_due,
    _paused,
    # Limits and schedules belong here: they end before a worker or a cap matters.
    _no_worker,
    _no_room,
    _past_deadline,
    _lost,
)
"""What finds the reasons, in the order in which they have to end."""


def _alive(facts: Circumstances) -> list[tuple[WorkerRow, WorkerAbout]]:
    """The workers that are alive and have a handler for the job."""
    return [
        (row, row.about)
        for row in facts.workers
        if row.state == "alive" and row.about is not None and facts.chain.current.type_name in row.about.types
    ]


def _untold(facts: Circumstances) -> bool:
    """Whether a worker of an older version is alive: it may have a handler, or not. It does not
    know the library's own types.
    """
    return not is_own(facts.chain.current.type_name) and any(
        row.state == "alive" and row.about is None for row in facts.workers
    )


class _Claim:
    """The claim that a worker would make now, for its free slots."""

    def __init__(self, facts: Circumstances, worker: WorkerRow, about: WorkerAbout) -> None:
        self._facts = facts
        self._job = facts.chain.current
        self._about = about
        # The library's own jobs have a slot of their own.
        served = [(queue, each) for queue in about.queues for each in queue.types if not is_own(each.name)]
        self._queue_of = {each.name: queue for queue, each in served}
        self._limit_of = {each.name: each.concurrency for _, each in served}
        self._mine = [group for group in facts.running if group.worker == worker.id]
        self.queue = self._queue_of[self._job.type_name].name
        """The queue that it would take the job through."""
        self.paused = self._is_paused(self._job.type_name)

    def _is_paused(self, name: str) -> bool:
        return is_paused(self._facts.pauses, name, self._queue_of[name].name)

    def obstacle(self) -> Reason | None:
        """What, besides a pause, keeps it from taking the job. None: it would take it."""
        return self._full() or self._busy() or self._in_line()

    def _full(self) -> Reason | None:
        queue, facts = self._queue_of[self._job.type_name], self._facts
        if queue.max_concurrency is not None:
            groups = _counted(facts.running, queue)
            if _number(groups) >= queue.max_concurrency:
                return QueueFull(queue.name, queue.max_concurrency, _number(groups), self._oldest(groups))
        cap = self._about.cluster_cap
        if cap is not None and _number(facts.running) >= cap:
            return ClusterFull(cap, _number(facts.running), self._oldest(facts.running))
        return None

    def _busy(self) -> Reason | None:
        of_type = [group for group in self._mine if group.type_name == self._job.type_name]
        for slots, groups, is_type in (
            (self._about.slots, self._mine, False),
            (self._limit_of[self._job.type_name], of_type, True),
        ):
            if slots is not None and _number(groups) >= slots:
                return SlotsBusy(1, slots, _number(groups), is_type, self._oldest(groups))
        return None

    def _in_line(self) -> Reason | None:
        """Take the jobs that come first, as the claim would, until it is this one's turn."""
        room = {queue.name: self._room_of(queue) for queue in self._about.queues}
        left = {
            name: None if limit is None else limit - _number(group for group in self._mine if group.type_name == name)
            for name, limit in self._limit_of.items()
        }
        cap, slots = self._about.cluster_cap, self._about.slots
        limits = (
            None if cap is None else cap - _number(self._facts.running),
            None if slots is None else slots - _number(self._mine),
        )
        total = min((each for each in limits if each is not None), default=None)
        taken = 0
        for due in sorted(self._facts.due, key=self._order):
            if due.id == self._job.id or due.type_name not in self._queue_of or self._is_paused(due.type_name):
                continue
            if self._order(due) > self._order(self._job):
                break
            if (
                not _is_empty(left[due.type_name])
                and not _is_empty(room[self._queue_of[due.type_name].name])
                and (total is None or taken < total)
            ):
                taken += 1
                left[due.type_name] = _less(left[due.type_name])
                queue = self._queue_of[due.type_name].name
                room[queue] = _less(room[queue])
        own = (left[self._job.type_name], room[self._queue_of[self._job.type_name].name])
        blocked = any(_is_empty(each) for each in own) or (total is not None and taken >= total)
        return InLine(taken) if blocked else None

    def _order(self, job: Any) -> tuple[Any, ...]:
        queue = self._queue_of.get(job.type_name)
        return (0 if queue is None else queue.priority, job.priority, job.scheduled_at, job.id)

    def _room_of(self, queue: WorkerQueue) -> int | None:
        if queue.max_concurrency is None:
            return None
        return max(0, queue.max_concurrency - _number(_counted(self._facts.running, queue)))

    def _oldest(self, groups: Iterable[RunningGroup]) -> Holder | None:
        return _oldest_of(
            Holder(group.oldest_id, group.type_name, group.worker, group.oldest_at, self._facts.now) for group in groups
        )


def _counted(running: Sequence[RunningGroup], queue: WorkerQueue) -> list[RunningGroup]:
    """The running jobs that count for the cap of a queue: by the queue that they were claimed
    through, or by their types where that is not stored.
    """
    return [
        group
        for group in running
        if group.queue == queue.name or (group.queue is None and group.type_name in queue.members)
    ]


def _number(groups: Iterable[RunningGroup]) -> int:
    return sum(group.number for group in groups)


def _is_empty(room: int | None) -> bool:
    return room is not None and room <= 0


def _less(room: int | None) -> int | None:
    return None if room is None else room - 1


def _oldest_of(holders: Iterable[Holder | None]) -> Holder | None:
    return min((each for each in holders if each is not None), key=lambda each: each.since, default=None)
