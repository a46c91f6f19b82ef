"""Bulk operations and how far they are, and the audit: who did what, and why."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from queuert.features.bulk.jobs import BULK_CLASSES, TOTAL, BulkResult
from queuert.jobs.chain import Chain
from queuert.jobs.filter import Filter
from queuert.jobs.job import name_of
from queuert.operate.dashboard.messages import Response
from queuert.operate.dashboard.site import Visit

OPERATIONS = 10
AUDIT = 30


@dataclass(frozen=True)
class Operation:
    """A bulk operation, and how far it is."""

    chain: Chain[Any]
    action: str
    where: str
    by: str | None
    changed: int
    unchanged: int
    cascaded: int
    total: int | None
    """How many chains it is about, counted up to one more than `TOTAL`. None: that is not known
    yet."""

    @property
    def progress(self) -> str:
        """How many are done, of how many."""
        done = self.changed + self.unchanged
        if self.chain.status == "completed":
            return f"{done:,} of {done:,}, 100 %"
        if self.total is None:
            return "not begun" if self.chain.current_job_id in (None, self.chain.id) else f"{done:,}"
        if self.total > TOTAL:
            return f"{done:,} of {TOTAL:,}+"
        return f"{done:,} of {self.total:,}, {min(99, 100 * done // max(1, self.total))} %"


async def view(visit: Visit) -> Response:
    client, cursor = visit.client, visit.request.one("cursor") or None
    types = [name_of(each) for each in BULK_CLASSES.values()]
    chains = (await client.list_chains(where=Filter(chain_type=types), order="desc", limit=OPERATIONS)).items
    found = [await _operation(visit, chain) for chain in chains]
    records = await client.list_audit(visit.request.one("chain") or None, limit=AUDIT, cursor=cursor)
    under_way = sum(each.chain.completed_at is None for each in found)
    return visit.page(
        "operations.html",
        f"{under_way} under way: operations" if under_way else "Operations and audit",
        live=cursor is None,
        operations=found,
        records=records.items,
        cursor=records.next_cursor,
        first=cursor is None,
    )


async def _operation(visit: Visit, chain: Chain[Any]) -> Operation:
    """The job that it has reached knows how far it is."""
    given: dict[str, Any] = chain.input or {}
    progress = given
    if chain.status == "completed":
        result = chain.output
        progress = {name: getattr(result, name) for name in BulkResult.__struct_fields__}
    elif chain.current_job_id not in (None, chain.id):
        current = await visit.client.get_job(chain.current_job_id or chain.id)
        progress = given if current is None else current.input
    return Operation(
        chain=chain,
        action=chain.chain_type.removeprefix("queuert.bulk-").replace("-", " "),
        where=str(given.get("filter", "")),
        by=given.get("by"),
        changed=int(progress.get("changed") or 0),
        unchanged=int(progress.get("unchanged") or 0),
        cascaded=int(progress.get("cascaded") or 0),
        total=progress.get("total"),
    )
