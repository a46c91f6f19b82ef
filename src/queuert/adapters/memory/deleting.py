"""Deleting chains, unless somebody still needs them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from queuert.adapters.memory.tables import Tables
from queuert.model import ChainRow, Deleted


def delete_chains(tables: Tables, ids: Sequence[str], *, cascade: bool) -> Deleted:
    """The chains that were named come first in the answer, then those that the cascade took, in id order."""
    doomed = [chain_id for chain_id in dict.fromkeys(ids) if _is_chain(tables, chain_id)]
    if cascade:
        doomed += sorted(_needed_by(tables, doomed))
    waiting = _still_needed(tables, doomed)
    if waiting:
        return Deleted([], waiting)
    chains = [chain for chain_id in doomed if (chain := tables.chain(chain_id)) is not None]
    for chain in chains:
        _delete(tables, chain)
    return Deleted(chains, {})


def _is_chain(tables: Tables, chain_id: str) -> bool:
    row = tables.job(chain_id)
    return row is not None and row.chain_index == 0


def _needed_by(tables: Tables, chain_ids: Iterable[str]) -> set[str]:
    """The chains that these have as blockers, and so on downward."""
    seen = set(chain_ids)
    start, found = frozenset(seen), list(seen)
    while found:
        for row in tables.chain_jobs(found.pop()):
            below = {edge.chain_id for edge in tables.edges(row.id)} - seen
            seen |= below
            found += below
    return seen - start


def _still_needed(tables: Tables, chain_ids: Sequence[str]) -> dict[str, list[str]]:
    inside = set(chain_ids)
    waiting: dict[str, list[str]] = {}
    for chain_id in sorted(inside):
        for job_id in sorted(tables.dependents(chain_id)):
            row = tables.rows[job_id]
            if row.chain_id not in inside and row.status in ("blocked", "pending", "running", "failed"):
                waiting.setdefault(chain_id, []).append(job_id)
    return waiting


def _delete(tables: Tables, chain: ChainRow) -> None:
    first = chain.first
    key = None if first.dedup_key is None else (first.chain_type, first.dedup_key)
    if key is not None and tables.key(key) == first.id:
        tables.put_key(key, None)
    for job_id in tables.dependents(first.id):
        remaining = tuple(edge for edge in tables.edges(job_id) if edge.chain_id != first.id)
        tables.put_edges(job_id, remaining)
    for row in reversed(list(tables.chain_jobs(first.id))):
        if tables.edges(row.id):
            tables.put_edges(row.id, ())
        tables.remove(row.id)
