"""Deleting chains, unless somebody still needs them."""

from __future__ import annotations

from collections.abc import Sequence

from queuert.adapters.sqlite.reading import get_chains
from queuert.adapters.sqlite.rows import Row
from queuert.adapters.sqlite.store import Store, array
from queuert.adapters.sqlite.unit import as_unit
from queuert.model import Deleted
from queuert.ports.program import Program


def delete_chains(store: Store, ids: Sequence[str], *, cascade: bool) -> Program[Deleted]:
    if not ids:
        return Deleted([], {})
    return (yield from as_unit(_delete(store, list(dict.fromkeys(ids)), cascade=cascade)))


def _delete(store: Store, ids: Sequence[str], *, cascade: bool) -> Program[Deleted]:
    """The chains that were named come first in the answer, then those that the cascade took, in id order."""
    rows: list[Row] = yield store("delete_chains.cascade" if cascade else "delete_chains.named", ids=array(ids))
    found = {row[0] for row in rows}
    named = [chain_id for chain_id in ids if chain_id in found]
    doomed = [*named, *sorted(found.difference(named))]
    if not doomed:
        return Deleted([], {})
    chains = array(doomed)
    edges: list[tuple[str, str]] = yield store("delete_chains.waiting", chains=chains)
    if edges:
        waiting: dict[str, list[str]] = {}
        for chain_id, job_id in sorted(edges):
            waiting.setdefault(chain_id, []).append(job_id)
        return Deleted([], waiting)
    gone = yield from get_chains(store, doomed)
    for name in ("edges_to", "edges_from", "keys", "jobs"):
        yield store(f"delete_chains.{name}", chains=chains)
    return Deleted([chain for chain in gone if chain is not None], {})
