"""Cancelling chains, and those that wait for them."""

from __future__ import annotations

from collections.abc import Sequence

from queuert.adapters.sqlite.connections.commands import together
from queuert.adapters.sqlite.operations.base import array
from queuert.adapters.sqlite.operations.rows import Row
from queuert.adapters.sqlite.operations.settling import Settling
from queuert.model import OPEN, Cancelled, Settlement
from queuert.ports.program import Program


class Cancelling(Settling):
    def cancel_chains(self, ids: Sequence[str], *, cascade: bool) -> Program[Cancelled]:
        if not ids:
            return Cancelled([])
        return (yield from together(self._cancel(list(dict.fromkeys(ids)), cascade=cascade)))

    def _cancel(self, ids: Sequence[str], *, cascade: bool) -> Program[Cancelled]:
        """The answer has the chains that were named, then those of the cascade in id order."""
        name = "cancel_chains.cascade" if cascade else "cancel_chains.named"
        rows: list[Row] = yield self.statement(name, ids=array(ids))
        found = {row[0] for row in rows}
        missing = tuple(chain_id for chain_id in ids if chain_id not in found)
        if missing:
            return Cancelled([], missing=missing)
        before = yield from self.get_chains([*ids, *sorted(found.difference(ids))])
        open_chains = [chain for chain in before if chain is not None and chain.current.status in OPEN]
        jobs = [chain.current for chain in open_chains]
        if not jobs:
            return Cancelled([])
        yield from self.settle_all([Settlement(job_id=job.id, token=None, status="cancelled") for job in jobs])
        after = yield from self.get_chains([chain.first.id for chain in open_chains])
        return Cancelled(
            [chain for chain in after if chain is not None],
            frozenset(job.id for job in jobs if job.status == "running"),
        )
