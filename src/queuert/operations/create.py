"""Starting chains."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from queuert.errors import InvalidArgument
from queuert.jobs.chain import Chain
from queuert.jobs.job import Job, options_of
from queuert.jobs.job_type import JobType
from queuert.jobs.options import JobOptions
from queuert.model import DEFAULT_PRIORITY, NOW, Created, JobRow, NewJob
from queuert.operations.engine import Engine
from queuert.ports.program import Program
from queuert.transaction import Hooks


def start(
    engine: Engine, hooks: Hooks, jobs: Sequence[Job[Any, Any]], extra: JobOptions | None = None
) -> Program[list[Chain[Any]]]:
    """Start one chain per job, all or none. `extra` options override those of the jobs."""
    new_jobs = [_first_job(engine, job, extra) for job in jobs]
    if engine.observers is not None:
        new_jobs = yield from engine.observations(hooks).creating(new_jobs)
    created = yield from engine.state.create_jobs(new_jobs)
    announce_created(engine, hooks, new_jobs, created)
    if engine.observers is not None:
        engine.observations(hooks).created(new_jobs, created)
    return [_chain(engine, new, made) for new, made in zip(new_jobs, created, strict=True)]


def announce_created(engine: Engine, hooks: Hooks, new_jobs: Sequence[NewJob], created: Sequence[Created]) -> None:
    """Collect the notifications to send once these jobs are committed."""
    notifications = engine.notifications(hooks)
    for new, made in zip(new_jobs, created, strict=True):
        # Jobs that are due later are announced too: an idle worker must know when to wake up.
        if made.status == "pending" and made.existing is None:
            notifications.add("job_scheduled", new.type_name)


def continuation(engine: Engine, row: JobRow, job: Job[Any, Any]) -> NewJob:
    """The next job of the chain that `row` is the current job of."""
    job_type, options = engine.jobs.of(job), options_of(job)
    if options.dedup is not None:
        raise InvalidArgument(
            f"a continuation cannot have a deduplication key ({job_type.name!r}): keys belong to whole chains"
        )
    return _new_job(engine, job_type, job, options, row)


def _first_job(engine: Engine, job: Job[Any, Any], extra: JobOptions | None) -> NewJob:
    job_type, options = engine.jobs.of(job), options_of(job)
    job_type.check_entry()
    return _new_job(engine, job_type, job, options if extra is None else options.merged(extra), None)


def _new_job(
    engine: Engine, job_type: JobType, job: Job[Any, Any], options: JobOptions, previous: JobRow | None
) -> NewJob:
    job_id = _job_id(engine, options)
    return NewJob(
        id=job_id,
        type_name=job_type.name,
        chain_id=job_id if previous is None else previous.chain_id,
        chain_type=job_type.name if previous is None else previous.chain_type,
        chain_index=0 if previous is None else previous.chain_index + 1,
        input=job_type.encode_input(job),
        priority=DEFAULT_PRIORITY if options.priority is None else options.priority,
        schedule=options.schedule or NOW,
        deadline=options.deadline,
        dedup=options.dedup,
        blockers=job_type.blockers_of(job),
        chain_trace_context=None if previous is None else previous.chain_trace_context,
    )


def _job_id(engine: Engine, options: JobOptions) -> str:
    if options.id is None:
        return engine.new_id()
    engine.check_id(options.id)
    return options.id


def _chain(engine: Engine, new: NewJob, made: Created) -> Chain[Any]:
    if made.existing is not None:
        return engine.jobs.chain_from_row(made.existing, deduplicated=True)
    return engine.jobs.new_chain(made.chain_id, new.chain_type, made.status)
