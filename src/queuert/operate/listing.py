"""Chains that match a filter, the latest first, and never many rows read for few that match."""

from __future__ import annotations

from typing import Any

from queuert.client.client import Client
from queuert.engine.operations.reading import MAX_PAGE
from queuert.jobs.chain import Chain
from queuert.jobs.filter import Filter
from queuert.records.listings import Page


async def latest_chains(
    client: Client[Any], where: Filter, limit: int, *, cursor: str | None = None, short_pages: int | None
) -> Page[Chain[Any]]:
    """So many chains at most. `short_pages`: pages that may be read although few of the chains on
    them match, each of which reads a bounded number; None: read on, however many that are.
    """
    chains: list[Chain[Any]] = []
    short = 0
    while len(chains) < limit and (short_pages is None or short < short_pages):
        size = min(limit - len(chains), MAX_PAGE)
        page = await client.list_chains(where=where, order="desc", limit=size, cursor=cursor)
        chains += page.items
        cursor = page.next_cursor
        if cursor is None:
            break
        short += len(page.items) < size
    return Page(chains, cursor)


def types_of(chain: Chain[Any]) -> str:
    """The type of the chain, and that of its current job if it is another one."""
    now = chain.current_job_type
    return chain.chain_type if now in (None, chain.chain_type) else f"{chain.chain_type} → {now}"
