"""Firing schedules that are due: their jobs are stored and the schedules moved on, in one
transaction.

Locks. A transaction that fires never waits while it has a schedule locked:

- Schedules with a stored job: rows that are locked are skipped, and the jobs have neither keys nor
  blockers, so nothing that follows can wait.
- Schedules with a function: everything that its jobs have to wait for comes first. Then the
  schedule is locked, if no other transaction has it. If one has, or if it has changed, all is
  rolled back.
- Chains are cancelled in a separate transaction, which has locked no schedule.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Any, NamedTuple, cast

from msgspec.structs import replace

from queuert.base.statuses import TERMINAL
from queuert.base.times import MICROSECOND
from queuert.engine.engine import Engine
from queuert.engine.events.observations import later
from queuert.engine.operations import chains as changing_chains
from queuert.engine.operations.collapsing import Merge
from queuert.engine.operations.starting import first_job, merge_of, store
from queuert.engine.transaction import Hooks
from queuert.errors import DriverMissing, InvalidArgument, InvalidSchedule, JobIdExists
from queuert.features.schedules.planning import Chains, Fire, ReadSchedule, Work, failed, plan
from queuert.features.schedules.stored import Definition, encode, state_of
from queuert.jobs.job import Job, options_of
from queuert.jobs.options import JobOptions
from queuert.ports.program import Program, atomically
from queuert.records.model import DEFAULT_PRIORITY, NewJob, When
from queuert.records.schedules import MOST_JOBS, ScheduleRow

UNREADABLE_FOR = timedelta(minutes=5)
"""How long a schedule of a newer version is left alone."""


class Outrun(Exception):
    """Another transaction has the schedule, or has changed it: this one is rolled back."""


class Failure(NamedTuple):
    """Why a schedule could not be fired, and in how many seconds it is tried again."""

    error: str
    retry_in: float


@dataclass
class Fired:
    """What a transaction has done."""

    now: datetime
    seen: int = 0
    """How many schedules were due and could be locked."""
    works: list[Work] = field(default_factory=list[Work])
    """What was done."""
    functions: list[str] = field(default_factory=list[str])
    """Due schedules whose functions are to be called first."""
    cancelling: list[str] = field(default_factory=list[str])
    """Schedules with chains that are to be cancelled."""
    waiting: dict[str, str] = field(default_factory=dict[str, str])
    """Chain → the schedule that waits for its end."""
    chains: list[list[tuple[Fire, list[str]]]] = field(default_factory=list[list[tuple[Fire, list[str]]]])
    """For each of `works`, the ticks that have fired, with their chains."""
    failed: dict[str, Failure] = field(default_factory=dict[str, Failure])
    """Schedule → what is wrong with it."""


def fire_due(
    engine: Engine, hooks: Hooks, limit: int, functions: Sequence[str], names: Sequence[str] = (), worker: str = ""
) -> Program[Fired]:
    """Fire some of what is due, or the named schedules. All or nothing."""
    return atomically(_fire_due(engine, hooks, limit, functions, names, worker))


def _fire_due(
    engine: Engine, hooks: Hooks, limit: int, functions: Sequence[str], names: Sequence[str], worker: str
) -> Program[Fired]:
    if names:
        look = yield from engine.state.get_schedules(names, lock=True)
        now, rows = look.now, [row for row in look.rows if row is not None]
    else:
        due = yield from engine.state.due_schedules(limit, functions, lock=True)
        now, rows = due.now, due.rows
    fired, reads, saving = Fired(now, len(rows)), list[ReadSchedule](), list[ScheduleRow]()
    for row in rows:
        try:
            read = ReadSchedule(row)
        except (InvalidSchedule, DriverMissing) as error:
            saving.append(_unreadable(row, now, str(error)))
            fired.failed[row.name] = failure(saving[-1], now, str(error))
            continue
        if read.state.cancelling:
            fired.cancelling.append(row.name)
        elif row.by_function:
            fired.functions.append(row.name)
        else:
            reads.append(read)
    chains = yield from chains_of(engine, reads)
    works: list[Work] = []
    for read in reads:
        try:
            works.append(plan(read, now, chains))
        except Exception as error:  # whatever is wrong with one of them must not stop the others
            text = f"{type(error).__qualname__}: {error}"
            saving.append(failed(read.row, read.state, now, text))
            fired.failed[read.row.name] = failure(saving[-1], now, text)
    new = [[[stored_job(work.read.definition, work.chain_id(fire, 0))] for fire in work.fires] for work in works]
    started = yield from _store_missing(engine, hooks, [job for work in new for jobs in work for job in jobs])
    for work, jobs_of_fires in zip(works, new, strict=True):
        saving.append(_done(fired, work, [[started[job.id] for job in jobs] for jobs in jobs_of_fires]))
    yield from _save(engine, saving)
    _announce(engine, hooks, fired, worker)
    return fired


def fire_one(
    engine: Engine,
    hooks: Hooks,
    work: Work,
    jobs: Sequence[Sequence[Job[Any, Any]]],
    errors: Mapping[int, str] = MappingProxyType({}),
    worker: str = "",
) -> Program[Fired]:
    """Store the jobs that a function has made, and for which ticks it has failed, if its schedule
    is as it was. Raises `Outrun` if it is not.
    """
    return atomically(_fire_one(engine, hooks, work, jobs, errors, worker))


def _fire_one(
    engine: Engine,
    hooks: Hooks,
    work: Work,
    jobs: Sequence[Sequence[Job[Any, Any]]],
    errors: Mapping[int, str],
    worker: str,
) -> Program[Fired]:
    new = [
        [function_job(engine, job, work.chain_id(fire, place)) for place, job in enumerate(made)]
        for fire, made in zip(work.fires, jobs, strict=True)
    ]
    pairs = [pair for row, made in zip(new, jobs, strict=True) for pair in zip(row, made, strict=True)]
    merges = {stored.id: merge_of(job, None) for stored, job in pairs if stored.collapse == "hold"}
    started = yield from _store_missing(engine, hooks, [job for made in new for job in made], merges)
    row = work.read.row
    look = yield from engine.state.get_schedules([row.name], lock=True)
    if look.rows[0] is None or look.rows[0].version != row.version:
        raise Outrun(row.name)
    fired = Fired(work.now)
    done = _done(fired, work, [[started[job.id] for job in made] for made in new], errors)
    yield from _save(engine, [done])
    again = {(each.at, each.triggered): each.retry_at for each in state_of(done).failing}
    for place, error in errors.items():
        fire = work.fires[place]
        at = again.get((fire.tick.at, fire.triggered), done.due_at)
        fired.failed[row.name] = failure(replace(done, due_at=at), work.now, error)
    _announce(engine, hooks, fired, worker)
    return fired


def look_at(engine: Engine, name: str) -> Program[Work | None]:
    """What there is to do for a schedule with a function. None if it is gone."""
    look = yield from engine.state.get_schedules([name])
    row = look.rows[0]
    if row is None:
        return None
    read = ReadSchedule(row)
    chains = yield from chains_of(engine, [read])
    return plan(read, look.now, chains)


def record_failure_of_first(engine: Engine, functions: Sequence[str], error: str) -> Program[str | None]:
    """The schedule that is due first could not be fired, and it was alone. Returns its name."""
    due = yield from engine.state.due_schedules(1, functions)
    if not due.rows:
        return None
    row = due.rows[0]
    (saved,) = yield from engine.state.save_schedules([_unreadable(row, due.now, error)])
    return row.name if saved else None


def cancel_overlapped(engine: Engine, hooks: Hooks, name: str) -> Program[None]:
    """Cancel the chains of earlier ticks, as was stored with the later one."""
    look = yield from engine.state.get_schedules([name])
    row = look.rows[0]
    if row is None:
        return
    ids = state_of(row).cancelling
    yield from atomically(_cancel(engine, hooks, ids))
    while True:
        look = yield from engine.state.get_schedules([name])
        row = look.rows[0]
        if row is None:
            return
        state = state_of(row)
        left = tuple(each for each in state.cancelling if each not in ids)
        if left == state.cancelling:
            return
        state = replace(state, cancelling=left)
        next_due = row.next_at if state.paused_at is None and state.disabled_at is None else state.paused_until
        # Also if it waits for chains: it may have been changed to do so since.
        at_once = left or state.triggers or state.backfills or state.waiting_since is not None
        row = replace(row, due_at=look.now if at_once else _due(row, next_due), state=encode(state))
        (saved,) = yield from engine.state.save_schedules([row])
        if saved:
            return


def _due(row: ScheduleRow, at: datetime | None) -> datetime | None:
    """When the next tick fires, with its jitter."""
    if at is None or at != row.next_at:
        return at
    times = ReadSchedule(row).times
    tick = times.next(at - MICROSECOND, name=row.name)
    return at if tick is None or tick.at != at else tick.due


def _cancel(engine: Engine, hooks: Hooks, ids: Sequence[str]) -> Program[None]:
    known = yield from engine.state.get_chains(ids)
    stored = [chain.first.id for chain in known if chain is not None]
    yield from changing_chains.cancel(engine, hooks, stored, cascade=False)


# What chains are made of


def stored_job(definition: Definition, job_id: str) -> NewJob:
    """The job of a schedule without a function. Its class need not be known here."""
    type_name = definition.type
    assert type_name is not None
    return NewJob(
        id=job_id,
        type_name=type_name,
        chain_id=job_id,
        chain_type=type_name,
        chain_index=0,
        input=bytes(definition.input),
        priority=DEFAULT_PRIORITY if definition.priority is None else definition.priority,
        deadline=None if definition.deadline is None else When(after=definition.deadline),
        lane=definition.lane,
        weight=definition.weight,
    )


def function_job(engine: Engine, job: Job[Any, Any], job_id: str) -> NewJob:
    if options_of(job).id is not None:
        raise InvalidArgument("a job of a schedule cannot have an id of its own: it is made from the tick")
    return first_job(engine, job, JobOptions(id=job_id))


def check_jobs(engine: Engine, name: str, made: object) -> list[Job[Any, Any]]:
    """What a schedule's function has returned, as a list of jobs."""
    several = isinstance(made, list | tuple)
    jobs: list[Any] = [] if made is None else list(cast("Sequence[Any]", made)) if several else [made]
    for job in jobs:
        if not isinstance(job, Job):
            kind = type(job).__name__
            raise InvalidSchedule(
                f"the function of schedule {name!r} must return a job, a list of jobs or None, got {kind}"
            )
        engine.jobs.of(job)  # pyright: ignore[reportUnknownArgumentType]
    if len(jobs) > MOST_JOBS:
        raise InvalidSchedule(f"the function of schedule {name!r} returned {len(jobs)} jobs: {MOST_JOBS} at most")
    return jobs


def chains_of(engine: Engine, reads: Sequence[ReadSchedule]) -> Program[Chains]:
    """What happened to the last chains, if that matters."""
    ids = [each for read in reads if read.asks_for_chains for each in read.state.last_chains]
    if not ids:
        return {}
    rows = yield from engine.state.get_chains(ids)
    return {
        row.first.id: (row.current.completed_at or row.current.scheduled_at) if row.current.status in TERMINAL else None
        for row in rows
        if row is not None
    }


def _store_missing(
    engine: Engine, hooks: Hooks, jobs: list[NewJob], merges: Mapping[str, Merge] = MappingProxyType({})
) -> Program[dict[str, str]]:
    """Start the chains that do not exist: one that exists has been started by its tick. Returns the
    chain of each job: another one if it was found under its key. `merges` are named by the job's
    id.
    """
    if not jobs:
        return {}
    jobs = list({job.id: job for job in jobs}.values())  # a tick may be due and be backfilled
    try:
        at = {position: merges[job.id] for position, job in enumerate(jobs) if job.id in merges}
        chains = yield from store(engine, hooks, jobs, at)
        return {job.id: chain.id for job, chain in zip(jobs, chains, strict=True)}
    except JobIdExists:
        known = yield from engine.state.get_jobs([job.id for job in jobs])
    missing = [job for job, row in zip(jobs, known, strict=True) if row is None]
    if len(missing) == len(jobs):
        raise Outrun("a chain was started and deleted meanwhile")
    started = yield from _store_missing(engine, hooks, missing, merges)
    return {job.id: started.get(job.id, job.id) for job in jobs}


def _done(
    fired: Fired, work: Work, chains: list[list[str]], errors: Mapping[int, str] = MappingProxyType({})
) -> ScheduleRow:
    row = work.done(chains, errors)
    state = state_of(row)
    fired.works.append(work)
    fired.chains.append(
        [(fire, ids) for place, (fire, ids) in enumerate(zip(work.fires, chains, strict=True)) if place not in errors]
    )
    if state.cancelling:
        fired.cancelling.append(row.name)
    if state.waiting_since is not None:
        fired.waiting.update(dict.fromkeys(state.last_chains, row.name))
    return row


def _save(engine: Engine, rows: Sequence[ScheduleRow]) -> Program[None]:
    saved = yield from engine.state.save_schedules(rows)
    if not all(saved):
        raise Outrun("a schedule was changed although it was locked")


def failure(row: ScheduleRow, now: datetime, error: str) -> Failure:
    """The failure after which this row is stored."""
    return Failure(error, 0.0 if row.due_at is None else max(0.0, (row.due_at - now).total_seconds()))


def _unreadable(row: ScheduleRow, now: datetime, error: str) -> ScheduleRow:
    try:
        return failed(row, state_of(row), now, error)
    except InvalidSchedule:
        return replace(row, due_at=now + UNREADABLE_FOR)


def _announce(engine: Engine, hooks: Hooks, fired: Fired, worker: str) -> None:
    """Tell observers of it, after the commit."""
    tell = engine.observers
    if tell is None:
        return
    for work, chains in zip(fired.works, fired.chains, strict=True):
        name, events = work.read.row.name, list[Callable[[], None]]()
        for fire, ids in chains:
            lag = max(0.0, (work.now - fire.tick.due).total_seconds())
            later(events, tell.schedule_fired, schedule=name, tick=fire.tick.at.isoformat(), lag=lag, chain_ids=ids,
                  triggered=fire.extra, worker_id=worker)  # fmt: skip
        for tick in work.skipped:
            later(events, tell.schedule_skipped, schedule=name, tick=tick.at.isoformat(), worker_id=worker)
        if events:
            engine.observations(hooks).scheduled(name, events)
    for name, (error, retry_in) in fired.failed.items():
        events = list[Callable[[], None]]()
        later(events, tell.schedule_failed, schedule=name, error_message=error, retry_in=retry_in, worker_id=worker)
        engine.observations(hooks).scheduled(name, events)
