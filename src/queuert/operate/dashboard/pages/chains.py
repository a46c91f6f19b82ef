"""The list of chains, by the filter language that the command has, too."""

from __future__ import annotations

from typing import Any

from queuert.base.statuses import STATUSES, Status
from queuert.errors import InvalidArgument, QueuertError
from queuert.features.bulk.jobs import CHANGEABLE
from queuert.jobs.chain import Chain
from queuert.jobs.filter import Filter
from queuert.operate.dashboard.messages import Response, redirect
from queuert.operate.dashboard.site import Visit
from queuert.operate.filters import read_filter
from queuert.operate.ids import IdNotFound, find_job
from queuert.operate.listing import latest_chains, types_of

LIMIT = 50
SHORT_PAGES = 2
"""Pages that may be read although few of the chains on them match."""


async def view(visit: Visit) -> Response:
    text = visit.request.one("where").strip()
    if text and ":" not in text:
        return await _by_id(visit, text)
    error: str | None = None
    where: Filter | None = None
    chains: list[Chain[Any]] = []
    cursor: str | None = None
    try:
        where = await read_filter(visit.client, text.split())
        page = await latest_chains(
            visit.client, where, LIMIT, cursor=visit.request.one("cursor") or None, short_pages=SHORT_PAGES
        )
        chains, cursor = list(page.items), page.next_cursor
    except InvalidArgument as problem:
        error = str(problem)
    return visit.page(
        "chains.html",
        f"Chains: {text}" if text else "Chains",
        status=400 if error else 200,
        live=not error,
        filter=text,
        error=error,
        chains=chains,
        cursor=cursor,
        first=not visit.request.one("cursor"),
        full=len(chains) == LIMIT,
        statuses=STATUSES,
        actions=[action for action, statuses in CHANGEABLE.items() if _may_change(where, statuses)],
        types_of=types_of,
    )


def _may_change(where: Filter | None, statuses: frozenset[Status] | None) -> bool:
    """Whether chains that match could have one of these statuses. None: any will do."""
    return where is not None and (where.status is None or statuses is None or not statuses.isdisjoint(where.status))


async def _by_id(visit: Visit, text: str) -> Response:
    """An id, or the beginning of one, instead of a filter."""
    try:
        job = await find_job(visit.client, text)
    except IdNotFound:
        raise
    except QueuertError as error:
        raise IdNotFound(str(error)) from None
    page = "/chain/" if job.id == job.chain_id else "/job/"
    return redirect(visit.request.url(f"{page}{job.id}"))
