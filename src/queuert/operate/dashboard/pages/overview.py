"""The first page: how things are, and what needs attention."""

from __future__ import annotations

from dataclasses import dataclass

from queuert.base.own_types import is_own
from queuert.operate.attention import LATE, SCHEDULES, Attention, attention
from queuert.operate.counts import BOUND, Count, total
from queuert.operate.dashboard.drawing.charts import SPANS, charts_of, rate_now, span_of, type_rates
from queuert.operate.dashboard.messages import Response
from queuert.operate.dashboard.site import Visit
from queuert.records.model import TypeStats

FIRST = 10
"""What needs attention is shown up to here, unless all of it is asked for."""


@dataclass(frozen=True)
class TypeLine:
    """What is known of one job type."""

    job_type: str
    blocked: Count
    pending: Count
    running: Count
    failed: Count
    oldest: float | None


async def view(visit: Visit) -> Response:
    client = visit.client
    stats = await client.stats(limit=BOUND + 1)
    workers = await client.list_workers()
    pauses = await client.list_pauses()
    schedules = (await client.list_schedules(limit=SCHEDULES)).items
    span = span_of(visit.request.one("span"))
    history = await client.history(since=span.since)
    lately = history if span == SPANS[0] else await client.history(since=SPANS[0].since)
    rates = {each.job_type: each for each in type_rates(history)}
    quiet = [TypeStats(name) for name in sorted(rates.keys() - {each.job_type for each in stats})]
    lines = [_line(each) for each in (*stats, *quiet) if not is_own(each.job_type)]
    found = attention(stats, workers, pauses, schedules, visit.now)
    failed = total(line.failed for line in lines)
    all_of_it = visit.request.one("attention") == "all"
    bad = sum(each.level == "bad" for each in found)
    return visit.page(
        "overview.html",
        f"{bad} need{'s' * (bad == 1)} attention" if bad else "Overview",
        live=True,
        scripts=("uPlot.iife.min.js", "charts.js"),
        lines=lines,
        attention=[(each, _link(visit, each)) for each in (found if all_of_it else found[:FIRST])],
        more=0 if all_of_it else max(0, len(found) - FIRST),
        late=LATE,
        oldest=max((line.oldest for line in lines if line.oldest is not None), default=None),
        running=total(line.running for line in lines),
        pending=total(line.pending for line in lines),
        blocked=total(line.blocked for line in lines),
        failed=failed,
        charts=charts_of(history),
        rate=rate_now(lately),
        rates=rates,
        span=span,
        spans=SPANS,
        alive=sum(worker.state == "alive" for worker in workers),
        slots=sum(worker.slots or 0 for worker in workers if worker.state == "alive"),
        busy=sum(worker.busy for worker in workers if worker.state == "alive"),
    )


def _line(stats: TypeStats) -> TypeLine:
    return TypeLine(
        stats.job_type,
        blocked=Count.up_to(BOUND, stats.blocked),
        pending=Count.up_to(BOUND, stats.pending),
        running=Count.up_to(BOUND, stats.running),
        failed=Count.up_to(BOUND, stats.failed),
        oldest=stats.oldest_ready_age,
    )


def _link(visit: Visit, found: Attention) -> str:
    url = visit.request.url
    if found.where == "chains":
        return url("/chains", where=found.subject)
    return url("/schedule", name=found.subject) if found.where == "schedule" else url(f"/{found.where}")
