"""Schedules: when they fire next, what they have started, and how they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from queuert.errors import InvalidArgument, ScheduleNotFound
from queuert.features.schedules.times import Tick
from queuert.jobs.chain import Chain
from queuert.operate.dashboard.drawing.json_tree import tree
from queuert.operate.dashboard.messages import Response
from queuert.operate.dashboard.site import Visit

LIMIT = 50
TICKS = 5


async def view(visit: Visit) -> Response:
    page = await visit.client.list_schedules(limit=LIMIT, cursor=visit.request.one("cursor") or None)
    failing = sum(schedule.status == "failing" for schedule in page.items)
    return visit.page(
        "schedules.html",
        f"{failing} failing: schedules" if failing else "Schedules",
        live=True,
        schedules=page.items,
        cursor=page.next_cursor,
        first=not visit.request.one("cursor"),
    )


async def one(visit: Visit) -> Response:
    name = visit.request.one("name")
    schedule = await visit.client.get_schedule(name) if name else None
    if schedule is None:
        raise ScheduleNotFound(name)
    ticks: list[Tick] = []
    if schedule.times is not None and schedule.status not in ("ended", "disabled"):
        try:
            ticks = await visit.client.preview(name, TICKS)
        except InvalidArgument:  # an `After`: its ticks are not known before
            ticks = []
    chains: Sequence[Chain[Any]] = ()
    if schedule.last_chain_ids:
        chains = (await visit.client.list_chains(ids=list(schedule.last_chain_ids))).items
    redactor = visit.site.hiding.redactor(schedule.job_type, schedule.input)
    return visit.page(
        "schedule.html",
        f"{schedule.status}: {schedule.name}",
        live=True,
        schedule=schedule,
        ticks=ticks,
        chains=chains,
        input=None if schedule.input is None else tree(redactor.value(schedule.input)),
        redactor=redactor,
    )
