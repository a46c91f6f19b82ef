"""Retrying a job with a corrected input."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, cast

import msgspec

from queuert.base.own_types import is_own
from queuert.base.statuses import REPAIRABLE
from queuert.engine.engine import Engine
from queuert.engine.operations.chains import lock_chains
from queuert.engine.transaction import Hooks
from queuert.errors import ChainNotRetryable, InvalidArgument, JobTypeMismatch, JobTypeValidationError
from queuert.jobs.chain import Chain, plain_json
from queuert.jobs.codecs.values import field_names, has_nul, unstorable
from queuert.jobs.job import Job, name_of, options_of
from queuert.jobs.job_type import JobType
from queuert.jobs.options import NO_OPTIONS
from queuert.jobs.registry import Registry
from queuert.ports.program import Program
from queuert.records.limits import split_lane
from queuert.records.model import BlockerRow, ChainRow, JobRow, When


class Correction(NamedTuple):
    """What is stored in place of the old input."""

    data: bytes
    lane: str | None
    weight: float | None


def repair(
    engine: Engine, hooks: Hooks, chain_id: str, job: Job[Any, Any], deadline: When | None
) -> Program[list[Chain[Any]]]:
    """Give the current job of a chain new attempts, with the input of `job`."""
    job_type = engine.jobs.of(job)
    if options_of(job) is not NO_OPTIONS:
        raise InvalidArgument("the input of retry() has no options of its own: give deadline= to retry() instead")
    correction = _correction(job_type, job, job_type.encode_input(job))
    (chain,) = yield from lock_chains(engine, [chain_id])
    yield from _check(engine, chain, job_type, job, correction.data)
    return (yield from _carry_out(engine, hooks, chain, correction, deadline))


def repair_plain(
    engine: Engine, hooks: Hooks, chain_id: str, given: str, jobs: Registry | None
) -> Program[list[Chain[Any]]]:
    """The same with an input as JSON, for a caller without job classes. See `check_plain`."""
    (chain,) = yield from lock_chains(engine, [chain_id])
    correction = yield from check_plain(engine, chain, given, jobs)
    return (yield from _carry_out(engine, hooks, chain, correction, None))


def check_plain(engine: Engine, chain: ChainRow, given: str, jobs: Registry | None) -> Program[Correction]:
    """Whether the current job could be retried with this JSON, as far as that can be known. The
    classes of `jobs` check it. Returns what would be stored.

    The name that a job is stored with includes the version of its input, so this is an input of
    that version.
    """
    data = _object(given)
    row = chain.current
    if is_own(row.type_name):
        raise InvalidArgument(f"{row.type_name} is one of the library's own job types: its input stays as it is")
    blockers = yield from _check_state(engine, chain)
    _check_fields_with(blockers, row, data)
    if jobs is None:
        return Correction(data, _same_lane(row), None)
    job_type = jobs.require(row.type_name)
    _check_class(job_type, row, data)
    job = job_type.decode_input(data)
    _check_stored(chain, job_type, job, blockers)
    return _correction(job_type, job, data)


def _correction(job_type: JobType, job: Job[Any, Any], data: bytes) -> Correction:
    return Correction(data, job_type.lane_of(job), job_type.weight_of(job))


def _same_lane(row: JobRow) -> str | None:
    """The lane of a job whose class is not known, if it cannot depend on the input."""
    name, key = (None, None) if row.lane is None else split_lane(row.lane)
    if key:
        raise InvalidArgument(
            f"the job has the key {key!r} of the limit {name!r}, and only the class of {row.type_name!r} can tell "
            "the key of another input: retry it with its class (`queuert retry --app`, or `client.retry`)"
        )
    return row.lane


def _object(given: str) -> bytes:
    """The JSON of an object, in the form that is stored."""
    try:
        value = msgspec.json.decode(given)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as error:
        raise InvalidArgument(f"the input is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise InvalidArgument(f'the input of a job is a JSON object, like {{"order": 7}}, got {given[:100]}')
    data = msgspec.json.encode(value)
    problem = unstorable(cast("object", value))
    if has_nul(data) or problem is not None:
        text = "a text with a NUL character cannot be stored" if problem is None else problem.message
        raise InvalidArgument(f"the input cannot be stored: {text}")
    return data


def _check_class(job_type: JobType, row: JobRow, data: bytes) -> None:
    job_type.decode_input(data)
    _check_blocker_fields(job_type, row, data)
    known = field_names(job_type.cls)
    unknown = [name for name in plain_json(data) if name not in known and name not in plain_json(row.input)]
    if unknown and row.type_name == name_of(job_type.cls):
        raise JobTypeValidationError(
            "invalid_input",
            job_type.name,
            f"{job_type.cls.__qualname__} has no field {unknown[0]!r}: its fields are {', '.join(known)}",
            {"field": unknown[0]},
        )


def _check_fields_with(blockers: Sequence[BlockerRow], row: JobRow, data: bytes) -> None:
    """Fields that hold the chains that the job waited for must stay, also if the class is not
    known.
    """
    before, after = plain_json(row.input), plain_json(data)
    for name, value in cast("dict[str, Any]", before).items() if isinstance(before, dict) else ():
        text = msgspec.json.encode(value).decode()
        if after.get(name) != value and any(blocker.chain_id in text for blocker in blockers):
            raise JobTypeValidationError(
                "invalid_blockers",
                row.type_name,
                f"field {name!r}: a job that is retried keeps the chains that it waited for",
                {"field": name},
            )


def _carry_out(
    engine: Engine, hooks: Hooks, chain: ChainRow, given: Correction, deadline: When | None
) -> Program[list[Chain[Any]]]:
    row = yield from engine.state.repair(chain.current.id, given.data, deadline, given.lane, given.weight)
    # The row was locked and checked above, so the state port found it in the same status.
    current = row or chain.current
    engine.notifications(hooks).add("job_scheduled", current.type_name)
    if engine.observers is not None:
        engine.observations(hooks).repaired(current)
    first = current if current.id == chain.first.id else chain.first
    return [engine.jobs.chain_from_row(ChainRow(first, current))]


def _check(engine: Engine, chain: ChainRow, job_type: JobType, job: Job[Any, Any], data: bytes) -> Program[None]:
    row = chain.current
    _check_status(chain)
    if job_type.name != row.type_name:
        raise JobTypeMismatch(row.id, job_type.name, row.type_name)
    _check_blocker_fields(job_type, row, data)
    blockers = yield from _check_state(engine, chain)
    _check_stored(chain, job_type, job, blockers)


def _check_status(chain: ChainRow) -> None:
    status = chain.current.status
    if status not in REPAIRABLE:
        ends = "'failed', 'cancelled' or 'expired'"
        raise ChainNotRetryable(chain.first.id, status, f"its status is {status!r}, not {ends}")


def _check_state(engine: Engine, chain: ChainRow) -> Program[list[BlockerRow]]:
    """Whether it can run again. Returns the chains that it waited for."""
    _check_status(chain)
    (blockers,) = yield from engine.state.job_blockers([chain.current.id])
    for blocker in blockers:
        if blocker.status != "completed":
            reason = f"it needs the output of chain {blocker.chain_id}, which is {blocker.status!r}"
            raise ChainNotRetryable(chain.first.id, chain.current.status, reason)
    return blockers


def _check_stored(chain: ChainRow, job_type: JobType, job: Job[Any, Any], blockers: Sequence[BlockerRow]) -> None:
    """A job that was cancelled or has expired does not keep its blockers from being deleted."""
    stored = {blocker.chain_id for blocker in blockers}
    for needed in job_type.blockers_of(job):
        if needed.chain_id not in stored:
            reason = f"it needs the output of chain {needed.chain_id}, which is not stored any more"
            raise ChainNotRetryable(chain.first.id, chain.current.status, reason)


def _check_blocker_fields(job_type: JobType, row: JobRow, data: bytes) -> None:
    """The stored input may no longer fit the class, so both are compared as plain JSON."""
    before, after = plain_json(row.input), plain_json(data)
    for field in job_type.blocker_fields:
        if not isinstance(before, dict) or before.get(field) != after.get(field):  # pyright: ignore[reportUnknownMemberType]
            raise JobTypeValidationError(
                "invalid_blockers",
                job_type.name,
                f"field {field!r}: a job that is retried keeps the chains that it waited for",
                {"field": field},
            )
