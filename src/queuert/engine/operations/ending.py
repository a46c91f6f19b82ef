"""Ending a job: with a value, with the next job, or with an error."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from queuert.base.statuses import TERMINAL
from queuert.engine.engine import Engine
from queuert.engine.operations.starting import continuation
from queuert.engine.transaction import Hooks
from queuert.jobs.job import Job
from queuert.jobs.job_type import JobType
from queuert.ports.program import Program
from queuert.ports.state import SettlingLast
from queuert.records.model import Created, JobRow, Settled, Settlement


def settlement_for(
    engine: Engine, job_type: JobType, row: JobRow, result: Any, *, token: int | None, worker: str | None = None
) -> Settlement:
    """The settlement for what a handler returned: a job continues the chain, anything else is its
    output.
    """
    following, output, discard = None, None, False
    if isinstance(result, Job):
        job: Job[Any, Any] = result  # pyright: ignore[reportUnknownVariableType]
        job_type.check_continuation(job)
        following = continuation(engine, row, job)
    else:
        output = job_type.encode_output(result)
        discard = engine.jobs.discards(row.chain_type)
    return Settlement(
        job_id=row.id,
        token=token,
        status="completed",
        output=output,
        continuation=following,
        worker=worker,
        discard=discard,
    )


def settle(
    engine: Engine, hooks: Hooks, items: Sequence[tuple[JobRow, Settlement]], *, again: bool = False
) -> Program[Settled]:
    """Apply settlements, and collect their notifications.

    `items` pairs each settlement with the job as it was read. `again`: they were tried before, and
    the answer may have been lost.
    """
    if engine.observers is not None:
        items = yield from engine.observations(hooks).settling(items)
    settled = yield from engine.state.settle([settlement for _, settlement in items])
    if again:
        yield from _count_discarded(engine, items, settled)
    _announce(engine, hooks, items, settled)
    if engine.observers is not None:
        yield from engine.observations(hooks).settled(items, settled)
    return settled


def last_command(engine: Engine, settlement: Settlement) -> Any | None:
    """The settlement as the last command of its transaction; None if it has to be settled before.

    Observers need what was read in the transaction, after the settlement.
    """
    if engine.observers is not None or not hasattr(engine.state, "settle_last"):
        return None
    return cast("SettlingLast", engine.state).settle_last(settlement)


def announce_last(engine: Engine, hooks: Hooks, row: JobRow, settlement: Settlement) -> None:
    """The last command has taken effect: collect the notifications."""
    job = settlement.continuation
    created = None if job is None else Created(job.id, job.chain_id, "pending", ready=True)
    _announce(engine, hooks, [(row, settlement)], Settled([True], [created], []))


def _announce(engine: Engine, hooks: Hooks, items: Sequence[tuple[JobRow, Settlement]], settled: Settled) -> None:
    notifications = engine.notifications(hooks)
    for (row, settlement), applied, created in zip(items, settled.applied, settled.created, strict=True):
        if not applied:
            continue
        if settlement.continuation is not None:
            if created is not None and created.status == "pending":
                notifications.add("job_scheduled", settlement.continuation.type_name)
        elif settlement.status in TERMINAL:
            notifications.add("chain_ended", row.chain_id)
        else:
            notifications.add("job_scheduled", row.type_name)
        if settlement.token is None and row.status == "running":
            notifications.add("ownership_lost", row.id)
    for unblocked in settled.unblocked:
        notifications.add("job_scheduled", unblocked.type_name)


def _count_discarded(engine: Engine, items: Sequence[tuple[JobRow, Settlement]], settled: Settled) -> Program[None]:
    """Settlements that had deleted their jobs when they were tried before took effect then."""
    places = [
        place
        for place, (_, settlement) in enumerate(items)
        if settlement.discard and not settled.applied[place] and settlement.token is not None
    ]
    rows = yield from engine.state.get_jobs([items[place][1].job_id for place in places])
    for place, row in zip(places, rows, strict=True):
        settled.applied[place] = row is None
