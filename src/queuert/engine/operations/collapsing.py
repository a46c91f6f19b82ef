"""Starting chains that may change the chain that waits under their key: debounce and throttle."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace as with_fields
from typing import Any, NamedTuple

from msgspec.structs import replace

from queuert.engine.engine import Engine
from queuert.errors import InvalidArgument, JobTypeValidationError
from queuert.jobs.job import Job
from queuert.ports.program import Program, atomically
from queuert.records.model import Created, JobRow, NewJob


class Merge(NamedTuple):
    """A job that is to be merged with the one that waits under its key."""

    job: Job[Any, Any]
    function: Callable[[Any, Any], Any]


def create(engine: Engine, jobs: Sequence[NewJob], merges: Mapping[int, Merge]) -> Program[list[Created]]:
    """`create_jobs`. `merges` are named by their position."""
    if not any(job.collapse for job in jobs):
        return (yield from engine.state.create_jobs(jobs))
    turns = _turns(jobs)
    if len(jobs) == 1 or (len(turns) == 1 and not merges):
        return (yield from _create(engine, jobs, merges))
    return (yield from atomically(_in_turns(engine, jobs, merges, turns)))


def _turns(jobs: Sequence[NewJob]) -> list[range]:
    """Positions that can be stored with one call: each key is in it once."""
    turns, begin = list[range](), 0
    keys = set[tuple[str, str]]()
    for position, job in enumerate(jobs):
        key = None if job.dedup is None else (job.chain_type, job.dedup.key)
        if key in keys:
            turns.append(range(begin, position))
            begin = position
            keys.clear()
        if key is not None:
            keys.add(key)
    return [*turns, range(begin, len(jobs))]


def _in_turns(
    engine: Engine, jobs: Sequence[NewJob], merges: Mapping[int, Merge], turns: Sequence[range]
) -> Program[list[Created]]:
    created: list[Created] = []
    for turn in turns:
        ours = {position - turn.start: merges[position] for position in turn if position in merges}
        created += yield from _create(engine, jobs[turn.start : turn.stop], ours)
    return created


def _create(engine: Engine, jobs: Sequence[NewJob], merges: Mapping[int, Merge]) -> Program[list[Created]]:
    created = yield from engine.state.create_jobs(jobs)
    merged: dict[int, NewJob] = {}
    for position, merge in merges.items():
        new = jobs[position]
        while (waiting := created[position].existing) is not None:
            job = _merged(engine, new, waiting.first, merge)
            if job is not None:
                merged[position] = job
                break
            # This code cannot read what waits. That chain stays as it is, and this one is new.
            assert new.dedup is not None
            exclude = (*new.dedup.exclude, waiting.first.id)
            new = replace(new, dedup=with_fields(new.dedup, exclude=exclude))
            (created[position],) = yield from engine.state.create_jobs([new])
    chains = yield from engine.state.replace_waiting(list(merged.values()))
    for position, chain in zip(merged, chains, strict=True):
        created[position] = replace(created[position], existing=chain, replaced=True)
    return created


def _merged(engine: Engine, new: NewJob, waiting: JobRow, merge: Merge) -> NewJob | None:
    """The job into which both are merged. None if the stored one cannot be read."""
    job_type = engine.jobs.of(merge.job)
    try:
        before = job_type.decode_input(waiting.input)
    except JobTypeValidationError:
        return None
    job = merge.function(before, merge.job)
    if type(job) is not type(merge.job):
        raise InvalidArgument(
            f"merge must return a job of the type {new.type_name!r}, as it was given, got {type(job).__name__}"
        )
    if job_type.blockers_of(job):
        raise InvalidArgument(f"merge returned a {new.type_name!r} that waits for other chains: it cannot")
    data, lane, weight = job_type.encode_input(job), job_type.lane_of(job), job_type.weight_of(job)
    return replace(new, id=waiting.id, chain_id=waiting.id, input=data, lane=lane, weight=weight)
