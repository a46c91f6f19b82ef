"""Deleting chains, unless other jobs still need them."""

from __future__ import annotations

from collections.abc import Sequence

from queuert.adapters.sqlite.connections.commands import together
from queuert.adapters.sqlite.operations.base import array
from queuert.adapters.sqlite.operations.counting import Counting
from queuert.adapters.sqlite.operations.reading import Reading
from queuert.adapters.sqlite.operations.rows import Row
from queuert.ports.program import Program
from queuert.records.model import Deleted


class Deleting(Reading, Counting):
    def delete_chains(self, ids: Sequence[str], *, cascade: bool) -> Program[Deleted]:
        if not ids:
            return Deleted([], {})
        return (yield from together(self._delete(list(dict.fromkeys(ids)), cascade=cascade)))

    def _delete(self, ids: Sequence[str], *, cascade: bool) -> Program[Deleted]:
        """The answer has the chains that were named, then those of the cascade in id order."""
        name = "delete_chains.cascade" if cascade else "delete_chains.named"
        rows: list[Row] = yield self.statement(name, ids=array(ids))
        found = {row[0] for row in rows}
        named = [chain_id for chain_id in ids if chain_id in found]
        chosen = [*named, *sorted(found.difference(named))]
        if not chosen:
            return Deleted([], {})
        chains = array(chosen)
        edges: list[tuple[str, str]] = yield self.statement("delete_chains.waiting", chains=chains)
        if edges:
            waiting: dict[str, list[str]] = {}
            for chain_id, job_id in sorted(edges):
                waiting.setdefault(chain_id, []).append(job_id)
            return Deleted([], waiting)
        deleted = yield from self.get_chains(chosen)
        claims = yield from self.claims("claims_in", chains=chains)
        yield from self.count([claim.ended("deleted", self.now()) for claim in claims.values()])
        yield self.statement("delete_chains.keys", chains=chains)
        yield from self.delete_jobs(chains)
        return Deleted([chain for chain in deleted if chain is not None], {})

    def delete_jobs(self, chains: str) -> Program[None]:
        """All but the keys of chains, as an `array`."""
        for name in ("edges_to", "edges_from", "unblocking", "attempts", "jobs"):
            yield self.statement(f"delete_chains.{name}", chains=chains)
