"""One chain as people look at it: read so that its parts agree, with what holds it up first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from queuert.base.statuses import Status
from queuert.client.client import Client
from queuert.errors import ChainNotFound
from queuert.features.why import Why
from queuert.jobs.chain import Chain
from queuert.jobs.record import JobRecord
from queuert.records.listings import Page

LOOKS = 3
"""How often a chain is read that moves on meanwhile."""
BY_URGENCY: tuple[Status, ...] = ("failed", "expired", "cancelled", "running", "pending", "blocked", "completed")
"""What a person looks for first among the chains that a job waits for."""

Waited = TypeVar("Waited")


@dataclass(frozen=True)
class Look:
    """A chain at one moment."""

    chain: Chain[Any]
    page: Page[JobRecord[Any]]
    """Its latest jobs, the latest first."""
    why: Why | None
    """Why it does not go on. None: it is completed, or it did not stay still."""


async def look_at(client: Client[Any], chain_id: str, jobs: int) -> Look:
    """Read a chain, so many of its jobs, and why it waits: again, if it has moved on meanwhile."""
    left = LOOKS
    while True:
        left -= 1
        chain = await client.get_chain(chain_id)
        if chain is None:
            raise ChainNotFound(chain_id)
        page = await client.list_chain_jobs(chain, order="desc", limit=jobs)
        why = None if chain.status == "completed" else await client.why(chain)
        current = page.items[0]
        agree = (current.id, current.status) == (chain.current_job_id or chain.id, chain.status)
        if agree and (why is None or (why.job_id, why.status) == (current.id, current.status)):
            return Look(chain, page, why)
        if not left:
            return Look(chain, page, None)


def most_urgent_first(found: Iterable[Waited], status: Callable[[Waited], str | None]) -> list[Waited]:
    """The chains that a job waits for: those that failed, then those that are running."""
    return sorted(found, key=lambda each: _URGENCY.get(status(each) or "", len(_URGENCY)))


def totals(statuses: Iterable[str | None]) -> str:
    """How many have each status: "2 failed, 1 running, 197 completed"."""
    numbers = Counter(status for status in statuses if status)
    known: Sequence[str] = [status for status in BY_URGENCY if status in numbers]
    return ", ".join(f"{numbers[status]:,} {status}" for status in known)


_URGENCY = {str(status): place for place, status in enumerate(BY_URGENCY)}
