"""What a schedule does, made of the arguments of the user, and checked."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec.structs import replace

from queuert.base.arguments import seconds
from queuert.base.times import EPOCH
from queuert.engine.engine import Engine
from queuert.errors import InvalidArgument
from queuert.features.schedules.options import ScheduleOptions, check_options
from queuert.features.schedules.stored import Definition
from queuert.features.schedules.times import After, Cron, Every, Times
from queuert.jobs.job import Job, options_of
from queuert.records.schedules import chain_id


def define(engine: Engine, times: Times, job: Job[Any, Any] | None, options: ScheduleOptions) -> Definition:
    """The definition of a schedule. Without a job, a function makes its jobs."""
    if not isinstance(times, Cron | Every | After):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidArgument(f"a schedule takes a Cron, an Every or an After, got {times!r}")
    check_options(options)
    if isinstance(times, After) and options:
        raise InvalidArgument(f"{next(iter(options))}= is for ticks, and After has none: its runs never overlap")
    engine.check_id(chain_id(1, EPOCH, 0))  # a client may refuse ids that it has not made
    within = options.get("within")
    made = Definition(
        times=dict(times.to_data()),
        overlap=options.get("overlap", "allow"),
        catch_up=options.get("catch_up", "last"),
        catch_up_max=options.get("catch_up_max", 100),
        within=None if within is None else seconds(within, "within"),
    )
    return made if job is None else _with_job(engine, made, job)


def _with_job(engine: Engine, made: Definition, job: Job[Any, Any]) -> Definition:
    job_type, options = engine.jobs.of(job), options_of(job)
    job_type.check_entry()
    if job_type.blockers_of(job):
        raise InvalidArgument(
            f"a scheduled {job_type.name!r} cannot wait for chains, which would be the same ones at every tick: "
            "declare a function that makes the job"
        )
    if options.id is not None or options.schedule is not None or options.dedup is not None:
        raise InvalidArgument(
            f"a scheduled {job_type.name!r} takes no id, at, after or dedup: the schedule decides when it starts, "
            "and overlap= what happens if the last one has not ended"
        )
    deadline = options.deadline
    if deadline is not None and deadline.after is None:
        raise InvalidArgument("the deadline of a scheduled job is counted from each tick: give a timedelta")
    return replace(
        made,
        type=job_type.name,
        input=msgspec.Raw(job_type.encode_input(job)),
        priority=options.priority,
        deadline=None if deadline is None else deadline.after,
        lane=job_type.lane_of(job),
        weight=job_type.weight_of(job),
    )
