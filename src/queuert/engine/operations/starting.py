"""Starting chains."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, islice
from types import MappingProxyType
from typing import Any, NamedTuple

from queuert.engine.engine import Engine
from queuert.engine.operations import collapsing
from queuert.engine.operations.collapsing import Merge
from queuert.engine.transaction import Hooks
from queuert.errors import InvalidArgument
from queuert.jobs.chain import Chain
from queuert.jobs.deduplication import Debounce, check_with, due_of, rule_of
from queuert.jobs.job import Job, options_of
from queuert.jobs.job_type import JobType
from queuert.jobs.options import NO_OPTIONS, JobOptions
from queuert.ports.program import Pause, Program, atomically
from queuert.records.model import DEFAULT_PRIORITY, NOW, Created, JobRow, NewJob

PART_JOBS, PART_BYTES = 2_000, 8_000_000
"""Of jobs that are started together: how many are in memory as rows, and stored by one
statement."""

JOBS_AT_ONCE, BYTES_AT_ONCE = 500, 1_000_000
"""How many are encoded before others may use the event loop."""


_NO_MERGES: Mapping[int, Merge] = MappingProxyType({})


class _Part(NamedTuple):
    jobs: list[NewJob]
    merges: dict[int, Merge]
    """By the position of the job."""


def start(
    engine: Engine, hooks: Hooks, jobs: Sequence[Job[Any, Any]], extra: JobOptions | None = None
) -> Program[list[Chain[Any]]]:
    """Start one chain per job, all or none. `extra` options override those of the jobs.

    Many jobs are encoded and stored in parts: so they take little memory at a time, and an event
    loop can do other work in between.
    """
    if isinstance(jobs, list) and len(jobs) == 1:
        new = first_job(engine, jobs[0], extra)
        merges = {0: merge_of(jobs[0], extra)} if new.collapse == "hold" else _NO_MERGES
        return (yield from store(engine, hooks, [new], merges))
    remaining = iter(jobs)
    part = yield from _next_part(engine, remaining, extra)
    following = list(islice(remaining, 1))
    if not following:
        return (yield from store(engine, hooks, part.jobs, part.merges))
    remaining = chain(following, remaining)
    return (yield from atomically(_store_parts(engine, hooks, part, remaining, extra)))


def _store_parts(
    engine: Engine, hooks: Hooks, part: _Part, remaining: Iterator[Job[Any, Any]], extra: JobOptions | None
) -> Program[list[Chain[Any]]]:
    """In a savepoint: an error undoes the parts before it."""
    roll_back, chains = hooks.checkpoint(), list[Chain[Any]]()
    try:
        while part.jobs:
            chains += yield from store(engine, hooks, part.jobs, part.merges)
            part = yield from _next_part(engine, remaining, extra)
    except BaseException:
        roll_back()
        raise
    return chains


def _next_part(engine: Engine, remaining: Iterator[Job[Any, Any]], extra: JobOptions | None) -> Program[_Part]:
    """Encode jobs, and pause now and then."""
    part, size, since = _Part([], {}), 0, (0, 0)
    ids, known, plain = engine.new_ids(), None, None
    for job in remaining:
        if type(job) is not known:
            known, job_type = type(job), engine.jobs.of(job)
            plain = job_type if job_type.is_plain and extra is None else None
        if plain is not None and options_of(job) is NO_OPTIONS:
            new = _plain_job(plain, job, next(ids))
        else:
            new = first_job(engine, job, extra, ids)
            if new.collapse == "hold":
                part.merges[len(part.jobs)] = merge_of(job, extra)
        part.jobs.append(new)
        size += len(new.input)
        if len(part.jobs) == PART_JOBS or size >= PART_BYTES:
            break
        if len(part.jobs) - since[0] >= JOBS_AT_ONCE or size - since[1] >= BYTES_AT_ONCE:
            since = len(part.jobs), size
            yield Pause(0)
    return part


def _plain_job(job_type: JobType, job: Job[Any, Any], job_id: str) -> NewJob:
    """What `first_job` makes of a job without options, whose type is plain."""
    name = job_type.name
    return NewJob(
        id=job_id, type_name=name, chain_id=job_id, chain_type=name, chain_index=0, input=job_type.encode_input(job)
    )


def merge_of(job: Job[Any, Any], extra: JobOptions | None) -> Merge:
    """How a job is merged with the one that waits under its key, if its `collapse` is "hold"."""
    options = options_of(job)
    dedup = (options if extra is None else options.merged(extra)).dedup
    assert isinstance(dedup, Debounce)
    assert dedup.merge is not None
    return Merge(job, dedup.merge)


def store(
    engine: Engine, hooks: Hooks, new_jobs: list[NewJob], merges: Mapping[int, Merge] = _NO_MERGES
) -> Program[list[Chain[Any]]]:
    """Store jobs that start chains, and announce them. Few enough for one statement."""
    if engine.observers is not None:
        new_jobs = yield from traced(engine, hooks, new_jobs)
    if len(new_jobs) == 1 and new_jobs[0].collapse is None:
        created = yield from engine.state.create_jobs(new_jobs)
    else:
        created = yield from collapsing.create(engine, new_jobs, merges)
    return stored(engine, hooks, new_jobs, created)


def traced(engine: Engine, hooks: Hooks, new_jobs: list[NewJob]) -> Program[list[NewJob]]:
    """The jobs as they are to be stored. Only for clients with observers."""
    return (yield from engine.observations(hooks).creating(new_jobs))


def stored(engine: Engine, hooks: Hooks, new_jobs: Sequence[NewJob], created: Sequence[Created]) -> list[Chain[Any]]:
    """The chains of jobs that are stored. They are announced after the commit."""
    announce_created(engine, hooks, new_jobs, created)
    for tell in engine.on_start:
        tell(hooks, new_jobs, created)
    if engine.observers is not None:
        engine.observations(hooks).created(new_jobs, created)
    return chains_of(engine, new_jobs, created)


def chains_of(engine: Engine, new_jobs: Sequence[NewJob], created: Sequence[Created]) -> list[Chain[Any]]:
    return [_chain(engine, new, made) for new, made in zip(new_jobs, created, strict=True)]


def announce_created(engine: Engine, hooks: Hooks, new_jobs: Sequence[NewJob], created: Sequence[Created]) -> None:
    """Collect the notifications to send once these jobs are committed."""
    # Jobs that are due later are announced too: an idle worker must know when to wake up. A chain
    # that was found may be due earlier now.
    types = [
        new.type_name
        for new, made in zip(new_jobs, created, strict=True)
        if made.status == "pending" and (new.collapse is not None or not made.deduplicated)
    ]
    if types:
        engine.notifications(hooks).add("job_scheduled", *types)


def continuation(engine: Engine, row: JobRow, job: Job[Any, Any]) -> NewJob:
    """The next job of the chain that `row` is the current job of."""
    job_type, options = engine.jobs.of(job), options_of(job)
    if options.dedup is not None:
        raise InvalidArgument(
            f"a continuation cannot have a deduplication key ({job_type.name!r}): keys belong to whole chains"
        )
    return _new_job(engine, job_type, job, options, row)


def first_jobs(
    engine: Engine, jobs: Sequence[Job[Any, Any]], extra: JobOptions | None
) -> tuple[list[NewJob], bool] | None:
    """Jobs that start chains, and whether the caller has given ids for some of them. None: they are
    too large to be encoded at once, or may need more than one statement (`collapsing`).
    """
    made, size = list[NewJob](), 0
    given_ids = extra is not None and extra.id is not None
    for job in jobs:
        new = first_job(engine, job, extra)
        made.append(new)
        given_ids = given_ids or options_of(job).id is not None
        size += len(new.input)
        if new.collapse is not None or (size > BYTES_AT_ONCE and len(jobs) > 1):
            return None
    return made, given_ids


def first_job(engine: Engine, job: Job[Any, Any], extra: JobOptions | None, ids: Iterator[str] | None = None) -> NewJob:
    """A job that starts a chain. `extra` options override its own. `ids`: for those without one of
    their own.
    """
    job_type, options = engine.jobs.of(job), options_of(job)
    job_type.check_entry()
    return _new_job(engine, job_type, job, options if extra is None else options.merged(extra), None, ids)


def _new_job(
    engine: Engine,
    job_type: JobType,
    job: Job[Any, Any],
    options: JobOptions,
    previous: JobRow | None,
    ids: Iterator[str] | None = None,
) -> NewJob:
    job_id = _job_id(engine, options, ids)
    blockers = job_type.blockers_of(job)
    dedup, collapse, schedule = None, None, options.schedule
    if options.dedup is not None:
        check_with(options.dedup, scheduled=schedule is not None, blockers=bool(blockers))
        dedup, collapse = rule_of(options.dedup)
        schedule = schedule or due_of(options.dedup)
    return NewJob(
        id=job_id,
        type_name=job_type.name,
        chain_id=job_id if previous is None else previous.chain_id,
        chain_type=job_type.name if previous is None else previous.chain_type,
        chain_index=0 if previous is None else previous.chain_index + 1,
        input=job_type.encode_input(job),
        priority=DEFAULT_PRIORITY if options.priority is None else options.priority,
        schedule=schedule or NOW,
        deadline=options.deadline,
        dedup=dedup,
        collapse=collapse,
        blockers=blockers,
        chain_trace_context=None if previous is None else previous.chain_trace_context,
        lane=job_type.lane_of(job),
        weight=job_type.weight_of(job),
    )


def _job_id(engine: Engine, options: JobOptions, ids: Iterator[str] | None) -> str:
    if options.id is None:
        return engine.new_id() if ids is None else next(ids)
    engine.check_id(options.id)
    return options.id


def _chain(engine: Engine, new: NewJob, made: Created) -> Chain[Any]:
    if made.existing is not None:
        return engine.jobs.chain_from_row(made.existing, deduplicated=True, replaced=made.replaced)
    if made.pruned:
        return engine.jobs.pruned_chain(made.chain_id, new.chain_type, made.status)
    return engine.jobs.new_chain(made.chain_id, new.chain_type, made.status, new.input)
