"""`queuert show`: all that is stored about a chain or a job."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from msgspec import structs

from queuert.client.client import Client
from queuert.jobs.chain import Chain
from queuert.jobs.record import JobRecord
from queuert.operate.cli.arguments import Parsers
from queuert.operate.cli.database import add_client_command
from queuert.operate.exits import DONE
from queuert.operate.ids import find_job
from queuert.operate.terminal import Column, Output, clean, plain
from queuert.operate.times import local, with_age
from queuert.records.failed_attempts import FailedAttempt
from queuert.records.schedules import read_chain_id

TEXT = """\
Shows a chain: its jobs, what its current job waits for, its input, output, last error and failed
attempts. With the
id of a job that is not the first of its chain, that job is shown instead of the current one. The
beginning of an id is enough, if no other id begins so.
"""

JOBS_SHOWN = 50
"""Jobs of a chain, the latest ones."""
JOBS = (
    Column("#", right=True),
    Column("type", flexible=True),
    Column("status"),
    Column("attempt", right=True),
    Column("created", flexible=True),
    Column("id"),
)
ATTEMPTS = (
    Column("#", right=True),
    Column("outcome"),
    Column("ended", flexible=True),
    Column("worker", flexible=True),
    Column("code"),
    Column("message", flexible=True),
)
BLOCKERS = (Column("status"), Column("type", flexible=True), Column("id"))
FIELDS = ("id", "job_type", "chain_id", "chain_type", "chain_index", "status", "priority", "created_at",
          "scheduled_at", "completed_at", "completed_by", "continued_to", "attempt_number", "last_attempt_at",
          "leased_by", "leased_until", "deadline", "dedup_key", "input", "output", "last_error", "losses")  # fmt: skip


def add(parsers: Parsers) -> None:
    parser = add_client_command(parsers, "show", "all that is stored about a chain or a job", TEXT, _show)
    parser.add_argument("id", metavar="ID", help="the id of a chain or a job, or the beginning of one")


async def _show(arguments: argparse.Namespace, client: Client[Any]) -> int:
    output = Output(arguments)
    job = await find_job(client, arguments.id)
    page = await client.list_chain_jobs(job.chain_id, order="desc", limit=JOBS_SHOWN)
    jobs = list(reversed(page.items))
    if job.chain_index == 0 and jobs:
        job = jobs[-1]  # the id of a chain: its current job
    blockers = await client.get_blockers(job) or []
    schedule, tick = await _schedule(client, job.chain_id)
    attempts = await client.attempts(job)
    if output.json:
        output.json_line(
            {
                **{name: getattr(job, name) for name in FIELDS},
                "schedule": schedule,
                "tick": tick,
                "blockers": [_blocker(chain) for chain in blockers],
                "failed_attempts": [structs.asdict(each) for each in attempts],
                "jobs": [{name: getattr(each, name) for name in ("id", "job_type", "status")} for each in jobs],
            }
        )
        return DONE
    _show_job(job, output, schedule, tick)
    if attempts:
        output.line("\nfailed attempts")
        _show_attempts(attempts, output)
    if blockers:
        output.line("\nblockers")
        rows = [(chain.status or "", chain.chain_type, chain.id) for chain in blockers]
        output.table(BLOCKERS, rows, colours="status")
    if len(jobs) > 1:
        output.line(f"\njobs of the chain{', the latest ones' if page.next_cursor else ''}")
        _show_jobs(jobs, output)
    return DONE


async def _schedule(client: Client[Any], chain_id: str) -> tuple[str | None, datetime | None]:
    """The schedule that started a chain, and its tick. The schedule may be gone."""
    known = read_chain_id(chain_id)
    if known is None:
        return None, None
    schedule = await client.schedule_of(chain_id)
    return None if schedule is None else schedule.name, known.at


def _blocker(chain: Chain[Any]) -> dict[str, Any]:
    return {"id": chain.id, "type": chain.chain_type, "status": chain.status}


def _show_job(job: JobRecord[Any], output: Output, schedule: str | None, tick: datetime | None) -> None:
    lines: list[tuple[str, str | None]] = [
        ("chain", f"{job.chain_id}  {clean(job.chain_type)}"),
        ("job", f"{job.id}  {clean(job.job_type)}"),
        ("status", output.status(job.status)),
        ("attempt", str(job.attempt_number)),
        ("lost", f"{job.losses}, with their workers" if job.losses else None),
        ("priority", str(job.priority)),
        ("created", with_age(job.created_at)),
        ("scheduled", with_age(job.scheduled_at)),
        ("deadline", with_age(job.deadline)),
        ("claimed", with_age(job.last_attempt_at)),
        ("worker", job.leased_by or job.completed_by),
        ("lease until", with_age(job.leased_until)),
        ("ended", with_age(job.completed_at)),
        ("key", job.dedup_key),
        ("schedule", schedule),
        ("tick", with_age(tick)),
        ("input", _json(job.input)),
        ("output", None if job.status != "completed" or job.continued_to else _json(job.output)),
    ]
    for name, text in lines:
        if text:
            output.line(f"{name:<12}{text if name == 'status' else clean(text)}")
    if job.last_error is not None:
        _show_error(job.last_error, output)


def _show_error(error: Mapping[str, Any], output: Output) -> None:
    text = f"{error.get('code', '')}: {error.get('message', '')}"
    output.line(f"{'last error':<12}{output.coloured(clean(text), 'red')}")
    for line in str(error.get("traceback") or "").splitlines():
        output.line(f"    {clean(line)}")


def _show_attempts(attempts: Sequence[FailedAttempt], output: Output) -> None:
    rows = [
        (
            each.number,
            each.outcome,
            local(each.ended_at),
            each.worker_id or "",
            each.code or "",
            _first_line(each.message),
        )
        for each in attempts
    ]
    output.table(ATTEMPTS, rows)


def _first_line(text: str | None) -> str:
    return (text or "").partition("\n")[0]


def _show_jobs(jobs: Sequence[JobRecord[Any]], output: Output) -> None:
    rows = [
        (each.chain_index, each.job_type, each.status, each.attempt_number, local(each.created_at), each.id)
        for each in jobs
    ]
    output.table(JOBS, rows, colours="status")


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=plain)
