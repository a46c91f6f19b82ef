"""Changing chains from outside: trigger, cancel, retry, delete."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from queuert.base.statuses import Status
from queuert.engine.engine import Engine
from queuert.engine.events.observations import Observations
from queuert.engine.notifications import Notifications
from queuert.engine.operations.archived import not_found
from queuert.engine.operations.cascades import CancelCascade, needed_by_none_else
from queuert.engine.transaction import Hooks
from queuert.errors import ChainInUse, ChainNotRetryable, ChainNotTriggerable
from queuert.jobs.chain import Chain
from queuert.ports.program import Program
from queuert.records.model import ChainRow, JobRow


def lock_chains(engine: Engine, chain_ids: Sequence[str]) -> Program[list[ChainRow]]:
    """The chains, their current jobs locked; `ChainNotFound` if one is missing."""
    rows = yield from engine.state.get_chains(chain_ids, lock=True)
    found: list[ChainRow] = []
    for chain_id, row in zip(chain_ids, rows, strict=True):
        if row is None:
            raise (yield from not_found(engine, chain_id))
        found.append(row)
    return found


def trigger(engine: Engine, hooks: Hooks, chain_ids: Sequence[str]) -> Program[list[Chain[Any]]]:
    """Make the current jobs of these chains due now; all of them, or an error and none."""
    state = engine.state
    return _revive(engine, hooks, chain_ids, "pending", ChainNotTriggerable, state.trigger, Observations.triggered)


def retry(engine: Engine, hooks: Hooks, chain_ids: Sequence[str]) -> Program[list[Chain[Any]]]:
    """Give the failed current jobs of these chains new attempts; all of them, or an error and
    none.
    """
    state = engine.state
    return _revive(engine, hooks, chain_ids, "failed", ChainNotRetryable, state.retry, Observations.retried)


def _revive(
    engine: Engine,
    hooks: Hooks,
    chain_ids: Sequence[str],
    status: Status,
    refusal: Callable[[str, Status], Exception],
    change: Callable[[Sequence[str]], Program[list[JobRow | None]]],
    tell: Callable[[Observations, Sequence[JobRow | None]], None],
) -> Program[list[Chain[Any]]]:
    chains = yield from lock_chains(engine, list(dict.fromkeys(chain_ids)))
    for chain in chains:
        if chain.current.status != status:
            raise refusal(chain.first.id, chain.current.status)
    jobs = yield from change([chain.current.id for chain in chains])
    announce_revived(engine, hooks, jobs, tell)
    # The rows were locked and checked above, so the state port found them in the same status.
    return [
        engine.jobs.chain_from_row(ChainRow(chain.first, job or chain.current))
        for chain, job in zip(chains, jobs, strict=True)
    ]


def announce_revived(
    engine: Engine,
    hooks: Hooks,
    jobs: Sequence[JobRow | None],
    tell: Callable[[Observations, Sequence[JobRow | None]], None],
) -> None:
    """Tell workers and observers of jobs that are due now."""
    if engine.observers is not None:
        tell(engine.observations(hooks), jobs)
    notifications = engine.notifications(hooks)
    for job in jobs:
        if job is not None:
            notifications.add("job_scheduled", job.type_name)


def cancel(
    engine: Engine, hooks: Hooks, chain_ids: Sequence[str], *, cascade: bool | CancelCascade
) -> Program[list[Chain[Any]]]:
    """Cancel what has not ended, and failed chains that stop a key.

    "dependents", or True: also the chains whose jobs wait for these, and so on upward. "blockers":
    also the chains that only these wait for, and so on downward.
    """
    wanted = list(dict.fromkeys(chain_ids))
    if cascade == "blockers":
        below = yield from needed_by_none_else(engine, wanted, lock=True)
        wanted += [row.first.id for row in below]
    cancelled = yield from engine.state.cancel_chains(wanted, cascade=cascade in (True, "dependents"))
    if cancelled.missing:
        raise (yield from not_found(engine, cancelled.missing[0]))
    notifications = engine.notifications(hooks)
    for chain in cancelled.chains:
        notifications.add("chain_ended", chain.first.id)
        if chain.current.id in cancelled.running:
            notifications.add("ownership_lost", chain.current.id)
        _announce_key(notifications, chain)
    if engine.observers is not None:
        engine.observations(hooks).cancelled(cancelled.chains)
    return [engine.jobs.chain_from_row(chain) for chain in cancelled.chains]


def delete(engine: Engine, hooks: Hooks, chain_ids: Sequence[str], *, cascade: bool) -> Program[list[Chain[Any]]]:
    """Delete chains; those they wait for too with `cascade`.

    Returns them as they were; `ChainInUse` if others wait.
    """
    wanted = list(dict.fromkeys(chain_ids))
    deleted = yield from engine.state.delete_chains(wanted, cascade=cascade)
    if deleted.waiting:
        raise ChainInUse(deleted.waiting)
    notifications = engine.notifications(hooks)
    for chain in deleted.chains:
        notifications.add("chain_ended", chain.first.id)
        if chain.current.status == "running":
            notifications.add("ownership_lost", chain.current.id)
        _announce_key(notifications, chain)
    if engine.observers is not None:
        engine.observations(hooks).deleted(deleted.chains)
    return [engine.jobs.chain_from_row(chain) for chain in deleted.chains]


def _announce_key(notifications: Notifications, chain: ChainRow) -> None:
    """Wake workers: the chain may have held a key that others wait for."""
    if chain.current.lane is not None:
        notifications.add("job_scheduled", chain.current.type_name)
