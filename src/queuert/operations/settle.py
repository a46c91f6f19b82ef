"""Ending a job: with a value, with the next job, or with an error."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from queuert.jobs.job import Job
from queuert.model import TERMINAL, JobRow, Settled, Settlement
from queuert.operations.create import continuation
from queuert.operations.engine import Engine
from queuert.ports.program import Program
from queuert.transaction import Hooks


def settlement_for(
    engine: Engine, row: JobRow, result: Any, *, token: int | None, worker: str | None = None
) -> Settlement:
    """The settlement for what a handler returned: a job continues the chain, anything else is its
    output.
    """
    job_type = engine.jobs.require(row.type_name)
    following, output = None, None
    if isinstance(result, Job):
        job: Job[Any, Any] = result  # pyright: ignore[reportUnknownVariableType]
        job_type.check_continuation(job)
        following = continuation(engine, row, job)
    else:
        output = job_type.encode_output(result)
    return Settlement(
        job_id=row.id, token=token, status="completed", output=output, continuation=following, worker=worker
    )


def settle(engine: Engine, hooks: Hooks, items: Sequence[tuple[JobRow, Settlement]]) -> Program[Settled]:
    """Apply settlements, and collect their notifications.

    `items` pairs each settlement with the job as it was read.
    """
    if engine.observers is not None:
        items = yield from engine.observations(hooks).settling(items)
    settled = yield from engine.state.settle([settlement for _, settlement in items])
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
    if engine.observers is not None:
        yield from engine.observations(hooks).settled(items, settled)
    return settled
