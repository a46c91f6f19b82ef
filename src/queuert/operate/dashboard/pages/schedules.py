"""Schedules: when they fire next, what they have started, and how they are."""

from __future__ import annotations

from datetime import datetime
from typing import Any, NamedTuple

from queuert.errors import InvalidArgument, InvalidSchedule, ScheduleNotFound
from queuert.features.schedules.schedule import Schedule
from queuert.features.schedules.stored import state_of
from queuert.features.schedules.times import Tick
from queuert.jobs.chain import Chain
from queuert.jobs.filter import Filter
from queuert.operate.dashboard.drawing.json_tree import tree
from queuert.operate.dashboard.messages import Response
from queuert.operate.dashboard.site import Visit
from queuert.records.schedules import chain_id, read_chain_id

LIMIT = 50
TICKS = 5
STARTED = 10
"""Chains that are shown of those that a schedule started."""
LATELY = 50
"""The latest chains of its type, among which those are looked for that it was triggered for."""


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
    asked = await _asked(visit, name)
    chains = await _started(visit, schedule, asked)
    redactor = visit.site.hiding.redactor(schedule.job_type, schedule.input)
    return visit.page(
        "schedule.html",
        f"{schedule.status}: {schedule.name}",
        live=True,
        schedule=schedule,
        ticks=ticks,
        chains=chains,
        waiting_since=asked.waiting[0] if asked.waiting else None,
        input=None if schedule.input is None else tree(redactor.value(schedule.input)),
        redactor=redactor,
    )


class Asked(NamedTuple):
    """What people have asked of a schedule with `trigger`."""

    incarnation: int
    last: datetime | None
    """When a function was last asked for."""
    waiting: tuple[datetime, ...]
    """Those that no worker has fired yet."""


async def _asked(visit: Visit, name: str) -> Asked:
    sessions = visit.sessions
    (row,) = (await sessions.run(sessions.engine.state.get_schedules([name]))).rows
    if row is None:
        raise ScheduleNotFound(name)
    try:
        state = state_of(row)
    except InvalidSchedule:  # a newer version has stored it
        return Asked(row.incarnation, None, ())
    return Asked(row.incarnation, state.triggered_at, state.triggers)


async def _started(visit: Visit, schedule: Schedule, asked: Asked) -> list[Chain[Any]]:
    """What its last tick started, and what it was triggered for lately: the latest first."""
    ids = list(schedule.last_chain_ids)
    if asked.last is not None:
        ids += [chain_id(asked.incarnation, asked.last, place, triggered=True) for place in range(STARTED)]
    found = list((await visit.client.list_chains(ids=ids)).items) if ids else []
    if schedule.job_type is not None:
        where = Filter(chain_type=schedule.job_type)
        latest = (await visit.client.list_chains(where=where, order="desc", limit=LATELY)).items
        found += [chain for chain in latest if _was_triggered(chain, asked.incarnation)]
    return sorted(found, key=lambda chain: chain.id, reverse=True)[:STARTED]


def _was_triggered(chain: Chain[Any], incarnation: int) -> bool:
    known = read_chain_id(chain.id)
    return known is not None and known.triggered and known.incarnation == incarnation
