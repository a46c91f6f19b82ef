"""The first page: how things are, and what needs attention."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from queuert.dashboard.charts import SPANS, charts_of, rate_now, span_of, type_rates
from queuert.dashboard.messages import Response
from queuert.dashboard.site import Visit
from queuert.durations import length_of
from queuert.jobs.filter import Filter
from queuert.model import Pause, TypeStats, is_own
from queuert.operating.counts import BOUND, Count, total
from queuert.schedules.schedule import Schedule
from queuert.worker_records import WorkerInfo

LATE = 60.0
"""Seconds that a job may be ready before that is something to look at."""
SCHEDULES = 200
"""Schedules that are looked at."""


@dataclass(frozen=True)
class TypeLine:
    """What is known of one job type."""

    job_type: str
    blocked: Count
    pending: Count
    running: Count
    failed: Count
    oldest: float | None
    handled: bool
    """A worker that is alive has a handler for it."""


@dataclass(frozen=True)
class Attention:
    """Something that a person should look at. `level` is "bad" or "warn"."""

    level: str
    text: str
    link: str
    hint: str


async def view(visit: Visit) -> Response:
    client = visit.client
    stats = await client.stats(limit=BOUND + 1)
    workers = await client.list_workers()
    pauses = await client.list_pauses()
    schedules = (await client.list_schedules(limit=SCHEDULES)).items
    span = span_of(visit.request.one("span"))
    history = await client.history(since=span.since)
    handled = {name for worker in workers if worker.state == "alive" for name in worker.job_types}
    rates = {each.job_type: each for each in type_rates(history)}
    quiet = [TypeStats(name) for name in sorted(rates.keys() - {each.job_type for each in stats})]
    lines = [_line(each, handled) for each in (*stats, *quiet) if not is_own(each.job_type)]
    attention = [*_attention(visit, lines, workers, pauses, schedules)]
    failed = total(line.failed for line in lines)
    bad = sum(each.level == "bad" for each in attention)
    return visit.page(
        "overview.html",
        f"{bad} need{'s' * (bad == 1)} attention" if bad else "Overview",
        live=True,
        scripts=("uPlot.iife.min.js", "charts.js"),
        lines=lines,
        attention=attention,
        oldest=max((line.oldest for line in lines if line.oldest is not None), default=None),
        running=total(line.running for line in lines),
        pending=total(line.pending for line in lines),
        blocked=total(line.blocked for line in lines),
        failed=failed,
        charts=charts_of(history),
        rate=rate_now(history),
        rates=rates,
        span=span,
        spans=SPANS,
        alive=sum(worker.state == "alive" for worker in workers),
        slots=sum(worker.slots or 0 for worker in workers if worker.state == "alive"),
        busy=sum(worker.busy for worker in workers if worker.state == "alive"),
    )


def _line(stats: TypeStats, handled: set[str]) -> TypeLine:
    return TypeLine(
        stats.job_type,
        blocked=Count.up_to(BOUND, stats.blocked),
        pending=Count.up_to(BOUND, stats.pending),
        running=Count.up_to(BOUND, stats.running),
        failed=Count.up_to(BOUND, stats.failed),
        oldest=stats.oldest_ready_age,
        handled=stats.job_type in handled,
    )


def _attention(
    visit: Visit,
    lines: Sequence[TypeLine],
    workers: Sequence[WorkerInfo],
    pauses: Sequence[Pause],
    schedules: Sequence[Schedule],
) -> Iterator[Attention]:
    url = visit.request.url
    for line in lines:
        if line.failed.number:
            where = str(Filter(status="failed", type=line.job_type))
            text = f"{line.failed} {line.job_type} failed"
            yield Attention("bad", text, url("/chains", where=where), "see why, then retry")
    for line in lines:
        if line.pending.number and line.oldest is not None and not line.handled:
            where = str(Filter(status="pending", type=line.job_type))
            text = f"no worker that is alive has a handler for {line.job_type}"
            yield Attention("bad", text, url("/chains", where=where), f"{line.pending} wait")
        elif line.oldest is not None and line.oldest > LATE:
            where = str(Filter(status="pending", type=line.job_type))
            text = f"{line.job_type} has been ready for {length_of(line.oldest)}"
            yield Attention("warn", text, url("/chains", where=where), "see why it waits")
    for worker in workers:
        if worker.state != "alive":
            seen = length_of((visit.now - worker.seen_at).total_seconds())
            text = f"worker {worker.host or worker.id} is {worker.state}, last seen {seen} ago"
            yield Attention("warn", text, url("/workers"), "look at the workers")
    for pause in pauses:
        why = f": {pause.reason}" if pause.reason else ""
        yield Attention("warn", f"{pause.target} is paused{why}", url("/queues"), "resume")
    for schedule in schedules:
        if schedule.status == "failing":
            text = f"schedule {schedule.name} cannot fire: {schedule.error}"
            yield Attention("bad", text, url("/schedule", name=schedule.name), "look at it")
