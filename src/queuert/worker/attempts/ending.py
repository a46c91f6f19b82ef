"""The end of an attempt that has left something open."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from queuert.engine.sessions import Sessions
from queuert.errors import TransactionMisused
from queuert.records.model import Settlement
from queuert.worker.attempts.outcome import EndedInside, Outcome, Raised, Returned, Settled
from queuert.worker.attempts.transaction import AttemptTransaction
from queuert.worker.attempts.verdict import Verdicts
from queuert.worker.base import failure
from queuert.worker.handlers.claim import Claim

LEFT_OPEN = (
    "the handler returned with a client.transaction() open: what was done in it is rolled back. "
    "Open it in a `with` block, or use complete()"
)


def checked(claim: Claim, outcome: Outcome, *, left_open: bool) -> Outcome:
    """The outcome.

    A failure if the handler swallowed an error of a phase or left a transaction open.
    """
    if not isinstance(outcome, Returned):
        return outcome
    problem = None if claim.phases is None else claim.phases.problem()
    if problem is None and left_open:
        problem = TransactionMisused(LEFT_OPEN)
    return outcome if problem is None else Raised(problem)


async def end_attempt(
    claim: Claim,
    outcome: Outcome,
    transaction: AttemptTransaction[Any] | None,
    sessions: Sessions[Any],
    holder: Hashable,
    verdicts: Verdicts,
) -> Outcome:
    """Settle the job in the transaction of its phases, or roll that back. Roll back a transaction
    of the client's own that the handler, in the task or thread `holder`, has not ended: it could
    block other writers.
    """
    await sessions.blocks.roll_back_left_open(holder, TransactionMisused(LEFT_OPEN))
    if transaction is None:
        return outcome
    if isinstance(outcome, Returned):
        outcome = await _commit(claim, outcome.value, transaction, verdicts)
        if not isinstance(outcome, Raised):
            return outcome
    await transaction.roll_back(outcome.error if isinstance(outcome, Raised) else None)
    return outcome


async def _commit(
    claim: Claim, value: Any, transaction: AttemptTransaction[Any], verdicts: Verdicts
) -> Settled | EndedInside | Raised:
    settlement: Settlement | None = None
    unfit: Raised | None = None
    try:
        settlement = verdicts.completed(claim, value)
    except Exception as error:
        unfit = Raised(error, failure.code_of_result(error))
    try:
        if unfit is not None and not await transaction.has_ended_inside():
            return unfit
        applied = await transaction.commit(settlement)
    except Exception as error:
        # Rolled back; or, if the connection broke during COMMIT, perhaps not. Then the token is no
        # longer valid, and the put-back that follows has no effect.
        return Raised(error)
    if not applied or settlement is None:
        return EndedInside()
    return Settled(settlement, transaction.left_dependents)
