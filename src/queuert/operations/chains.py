"""Changing chains from outside: trigger, cancel, retry, delete."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from queuert.errors import ChainInUse, ChainNotFound, ChainNotRetryable, ChainNotTriggerable
from queuert.jobs.chain import Chain
from queuert.model import OPEN, ChainRow, JobRow, PageRequest, Settlement, Status
from queuert.operations.engine import Engine
from queuert.operations.observations import Observations
from queuert.operations.settle import settle
from queuert.ports.program import Program
from queuert.transaction import Hooks

_DEPENDENTS_PER_READ = 500


def lock_chains(engine: Engine, chain_ids: Sequence[str]) -> Program[list[ChainRow]]:
    """The chains, their current jobs locked; `ChainNotFound` if one is missing."""
    rows = yield from engine.state.get_chains(chain_ids, lock=True)
    found: list[ChainRow] = []
    for chain_id, row in zip(chain_ids, rows, strict=True):
        if row is None:
            raise ChainNotFound(chain_id)
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
    if engine.observers is not None:
        tell(engine.observations(hooks), jobs)
    notifications = engine.notifications(hooks)
    revived: list[Chain[Any]] = []
    for chain, job in zip(chains, jobs, strict=True):
        # The row was locked and checked above, so the state port found it in the same status.
        current = job or chain.current
        notifications.add("job_scheduled", current.type_name)
        revived.append(engine.jobs.chain_from_row(ChainRow(chain.first, current)))
    return revived


def cancel(engine: Engine, hooks: Hooks, chain_ids: Sequence[str], *, cascade: bool) -> Program[list[Chain[Any]]]:
    """Cancel what has not ended.

    With `cascade`, also the chains whose jobs wait for these, and so on upward.
    """
    wanted = list(dict.fromkeys(chain_ids))
    chains = yield from lock_chains(engine, wanted)
    if cascade:
        chains = yield from _with_dependents(engine, chains)
    open_chains = [chain for chain in chains if chain.current.status in OPEN]
    settlements = [
        (chain.current, Settlement(job_id=chain.current.id, token=None, status="cancelled")) for chain in open_chains
    ]
    yield from settle(engine, hooks, settlements)
    after = yield from engine.state.get_chains([chain.first.id for chain in open_chains])
    return [engine.jobs.chain_from_row(chain) for chain in after if chain is not None]


def _with_dependents(engine: Engine, chains: list[ChainRow]) -> Program[list[ChainRow]]:
    found = {chain.first.id: chain for chain in chains}
    frontier = list(found)
    while frontier:
        blocked: dict[str, None] = {}
        for chain_id in frontier:
            jobs = yield from _blocked_jobs(engine, chain_id)
            blocked |= dict.fromkeys(
                job.chain_id for job in jobs if job.status == "blocked" and job.chain_id not in found
            )
        frontier = list(blocked)
        locked = yield from engine.state.get_chains(frontier, lock=True)
        # A chain that was deleted, or whose job was freed meanwhile, needs no cancelling.
        found |= {row.first.id: row for row in locked if row is not None and row.current.status in OPEN}
    return list(found.values())


def _blocked_jobs(engine: Engine, chain_id: str) -> Program[list[JobRow]]:
    jobs: list[JobRow] = []
    after: str | None = None
    while True:
        page = yield from engine.state.list_blocked_jobs(chain_id, PageRequest(_DEPENDENTS_PER_READ, after))
        jobs += page
        if len(page) < _DEPENDENTS_PER_READ:
            return jobs
        after = page[-1].id


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
    if engine.observers is not None:
        engine.observations(hooks).deleted(deleted.chains)
    return [engine.jobs.chain_from_row(chain) for chain in deleted.chains]
