"""`queuert status`: how many jobs wait, run and have failed."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from queuert.base.statuses import IN_STATS, Status
from queuert.base.times import length_of
from queuert.client.client import Client
from queuert.operate.cli.arguments import Parsers, seconds
from queuert.operate.cli.database import add_client_command
from queuert.operate.counts import BOUND, Count, total
from queuert.operate.exits import DONE
from queuert.operate.terminal import Column, Output
from queuert.operate.times import local

TEXT = f"""\
Shows how many jobs of each type are blocked, pending, running and failed, and how long the oldest
job that could run has waited. Completed jobs are not counted. Of each type and status, up to
{BOUND:,} jobs are counted: "{BOUND:,}+" means that there are more.
"""

COLUMNS = (
    Column("type", flexible=True),
    *(Column(status, right=True) for status in IN_STATS),
    Column("oldest ready", right=True),
)
EVERY = 2.0
"""Seconds between two looks of `--watch`."""


@dataclass(frozen=True)
class Line:
    """What is known of one job type."""

    job_type: str
    counts: Mapping[Status, Count]
    """By status."""
    oldest: float | None


def add(parsers: Parsers) -> None:
    parser = add_client_command(
        parsers,
        "status",
        "how many jobs wait, run and have failed",
        TEXT,
        _status,
        goes_on=lambda arguments: arguments.watch is not None,
    )
    parser.add_argument(
        "--watch",
        metavar="SECONDS",
        nargs="?",
        type=seconds,
        const=EVERY,
        help=f"show it again and again, until Ctrl-C (default: every {EVERY:g} seconds)",
    )
    parser.add_argument("--exact", action="store_true", help="count all jobs, which takes longer if there are many")


async def _status(arguments: argparse.Namespace, client: Client[Any]) -> int:
    output = Output(arguments)
    bound = None if arguments.exact else BOUND
    while True:
        lines = await _read(client, bound)
        if arguments.watch is not None:
            output.clear_screen()
        _show(lines, output, at=None if arguments.watch is None else datetime.now(UTC))
        if arguments.watch is None:
            return DONE
        if not output.json:
            output.line()
        sys.stdout.flush()
        await asyncio.sleep(max(arguments.watch, 0.1))


async def _read(client: Client[Any], bound: int | None) -> list[Line]:
    stats = await client.stats(limit=None if bound is None else bound + 1)
    return [
        Line(
            each.job_type,
            {status: Count.up_to(bound, getattr(each, status)) for status in IN_STATS},
            each.oldest_ready_age,
        )
        for each in stats
    ]


def _show(lines: Sequence[Line], output: Output, at: datetime | None) -> None:
    if output.json:
        for each in lines:
            output.json_line({**({} if at is None else {"at": at}), **_object(each)})
        return
    if at is not None:
        output.line(local(at))
    if not lines:
        output.line("no open and no failed jobs")
        return
    shown = [*lines, _sum(lines)] if len(lines) > 1 else lines
    rows = [
        (each.job_type, *each.counts.values(), "" if each.oldest is None else length_of(each.oldest)) for each in shown
    ]
    output.table(COLUMNS, rows)


def _sum(lines: Sequence[Line]) -> Line:
    counts: dict[Status, Count] = {status: total(each.counts[status] for each in lines) for status in IN_STATS}
    return Line("all", counts, max((each.oldest for each in lines if each.oldest is not None), default=None))


def _object(line: Line) -> dict[str, Any]:
    """`at_least` names the counts that may be larger."""
    return {
        "job_type": line.job_type,
        **{status: count.number for status, count in line.counts.items()},
        "oldest_ready_age": line.oldest,
        "at_least": [status for status, count in line.counts.items() if count.at_least],
    }
