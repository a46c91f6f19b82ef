"""Deleting chains, unless other jobs still need them."""

from __future__ import annotations

from collections.abc import Sequence

from queuert.adapters.memory.command import write
from queuert.adapters.memory.tables import Tables
from queuert.records.model import Deleted


class Deleting:
    @write
    def delete_chains(self, tables: Tables, ids: Sequence[str], *, cascade: bool) -> Deleted:
        """The answer has the chains that were named, then those of the cascade in id order."""
        chosen = [chain_id for chain_id in dict.fromkeys(ids) if tables.chain(chain_id) is not None]
        if cascade:
            chosen += sorted(_blockers_below(tables, chosen))
        waiting = needed_by_others(tables, chosen)
        if waiting:
            return Deleted([], waiting)
        chains = [chain for chain_id in chosen if (chain := tables.chain(chain_id)) is not None]
        for chain in chains:
            delete_chain(tables, chain.first.id)
        return Deleted(chains, {})


def _blockers_below(tables: Tables, chain_ids: Sequence[str]) -> set[str]:
    """The blockers of these chains, the blockers of those, and so on, without these chains."""
    seen, to_visit = set(chain_ids), list(chain_ids)
    while to_visit:
        for row in tables.chain_jobs(to_visit.pop()):
            below = {each.chain_id for each in tables.blockers.get(row.id, ())} - seen
            seen |= below
            to_visit += below
    return seen - set(chain_ids)


def needed_by_others(tables: Tables, chain_ids: Sequence[str]) -> dict[str, list[str]]:
    """Chain → the jobs of other chains that it blocks and that may run: a failed job may be
    retried.
    """
    waiting: dict[str, list[str]] = {}
    for chain_id in sorted(chain_ids):
        for job_id in tables.dependents(chain_id):
            row = tables.jobs[job_id]
            if row.chain_id not in chain_ids and row.status in ("blocked", "pending", "running", "failed"):
                waiting.setdefault(chain_id, []).append(job_id)
    return waiting


def delete_chain(tables: Tables, chain_id: str) -> None:
    """The chain's jobs, its entries as a blocker, and its key unless a later chain has it."""
    first = tables.jobs[chain_id]
    if first.dedup_key is not None and tables.keys.get((first.chain_type, first.dedup_key)) == chain_id:
        del tables.keys[first.chain_type, first.dedup_key]
        tables.windows.pop((first.chain_type, first.dedup_key), None)
    for job_id in tables.dependents(chain_id):
        left = tuple(each for each in tables.blockers.pop(job_id) if each.chain_id != chain_id)
        if left:
            tables.blockers[job_id] = left
    tables.unblocking.pop(chain_id, None)
    jobs = {row.id for row in tables.chain_jobs(chain_id)}
    for row in tables.chain_jobs(chain_id):
        if row.status == "running":
            tables.happened(row, "deleted", row.last_attempt_at)
    for freeing, to_free in tables.unblocking.items():
        tables.unblocking[freeing] = tuple(job_id for job_id in to_free if job_id not in jobs)
    for job_id in jobs:
        tables.remove(job_id)
