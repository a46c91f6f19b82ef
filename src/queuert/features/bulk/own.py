"""The library's own jobs. Each is done in one transaction: claimed, carried out and settled.

So there is no lease, and no other transaction ever sees such a job running. If the process dies, or
its connection is lost, the transaction is rolled back, and the job waits for the next worker.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from queuert.base.own_types import OWN_QUEUE
from queuert.engine.engine import Engine
from queuert.engine.operations.ending import settlement_for
from queuert.engine.transaction import Hooks
from queuert.errors import QueuertError
from queuert.features.bulk import pages as bulk
from queuert.features.bulk.jobs import BULK_CLASSES, OWN_NAMES
from queuert.jobs.job import name_of
from queuert.ports.program import Program
from queuert.records.model import ClaimRequest, JobRow, QueueLimit, Settlement, TypeLimit, When

LEASE = 60.0
"""Never seen outside of the transaction."""
FIRST_DELAY, LAST_DELAY = 1.0, 60.0
"""Seconds until a job that has failed is tried again: twice as many each time."""
LONGEST_MESSAGE = 2000
_QUEUE = QueueLimit(OWN_QUEUE, 0, tuple(TypeLimit(name, 1, LEASE) for name in OWN_NAMES))


RUN: dict[str, Callable[[Engine, Hooks, JobRow], Program[Any]]] = {
    name_of(cls): bulk.page for cls in BULK_CLASSES.values()
}
"""Job type → what it does: returns the output of its chain, or the next job."""


class Step(msgspec.Struct, frozen=True):
    """What was done. `chain_id`: of which chain; None if no job was due. `next_in`: seconds until
    another one is due, as far as that is known. `more`: jobs that waited for the chain are left for
    `continue_unblocking`.
    """

    chain_id: str | None = None
    next_in: float | None = None
    more: bool = False


class StepFailed(QueuertError):
    """A job could not be carried out. The cause is the error."""

    def __init__(self, row: JobRow) -> None:
        super().__init__(f"job {row.id} ({row.type_name}) of the library itself failed")
        self.job_id = row.id
        self.delay = min(FIRST_DELAY * 2 ** (row.attempt - 1), LAST_DELAY) if row.attempt < 30 else LAST_DELAY


def step(engine: Engine, hooks: Hooks, worker: str, begun: list[JobRow] | None = None) -> Program[Step]:
    """Do the next job that is due, in a transaction of its own. It is added to `begun`."""
    claimed = yield from engine.state.claim(ClaimRequest(worker, 1, (_QUEUE,)))
    if not claimed.jobs:
        return Step(next_in=claimed.next_in)
    row = claimed.jobs[0].job
    if begun is not None:
        begun.append(row)
    try:
        result = yield from RUN[row.type_name](engine, hooks, row)
        settlement = settlement_for(
            engine, engine.jobs.require(row.type_name), row, result, token=row.token, worker=worker
        )
        return (yield from _settle(engine, hooks, row, settlement))
    except Exception as error:
        raise StepFailed(row) from error


def _settle(engine: Engine, hooks: Hooks, row: JobRow, settlement: Settlement) -> Program[Step]:
    settled = yield from engine.state.settle([settlement])
    notifications = engine.notifications(hooks)
    following = settlement.continuation
    if following is None:
        notifications.add("chain_ended", row.chain_id)
    # A continuation is not announced: the process that has done this page goes on with the next
    # one.
    for unblocked in settled.unblocked:
        notifications.add("job_scheduled", unblocked.type_name)
    next_in = None if following is None else following.schedule.after or 0.0
    return Step(row.chain_id, next_in, settled.more)


def put_back(engine: Engine, worker: str, failed: StepFailed) -> Program[None]:
    """Record that a job has failed, in a transaction of its own, if it is still the next one. It is
    due again a little later, each time later.
    """
    claimed = yield from engine.state.claim(ClaimRequest(worker, 1, (_QUEUE,)))
    for each in claimed.jobs:
        row = each.job
        if row.id == failed.job_id:
            settlement = Settlement(
                job_id=row.id,
                token=row.token,
                status="pending",
                error=_record(failed.__cause__ or failed),
                schedule=When(after=failed.delay),
            )
        else:
            settlement = Settlement(job_id=row.id, token=row.token, status="pending", give_back=True)
        yield from engine.state.settle([settlement])


def _record(error: BaseException) -> bytes:
    name, text = type(error).__qualname__, str(error)[:LONGEST_MESSAGE].replace("\0", "")
    return msgspec.json.encode({"code": "UNHANDLED_ERROR", "type": name, "message": text})
