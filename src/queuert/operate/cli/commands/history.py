"""`queuert history`: what happened to jobs, in steps of time."""

from __future__ import annotations

import argparse
from datetime import timedelta
from typing import Any

import msgspec

from queuert.client.client import Client
from queuert.operate.cli.arguments import Parsers, duration, time_or_duration
from queuert.operate.cli.database import add_client_command
from queuert.operate.exits import DONE
from queuert.operate.terminal import Column, Output
from queuert.operate.times import local
from queuert.records.history import Histogram, HistoryPoint

TEXT = """\
Shows how many attempts began, and how many jobs were completed, failed, were retried, expired and
were cancelled, in steps of time; within which time half of the attempts began, and 95 %; and how
long half of those took that completed their jobs, 95 % and 99 %. Steps in which nothing happened are
left out.
"""

NUMBERS = ("begun", "completed", "failed", "retried", "expired", "cancelled")
COLUMNS = (
    Column("since"),
    *(Column(name, right=True) for name in NUMBERS),
    Column("waited", right=True),
    Column("95 %", right=True),
    Column("took", right=True),
    Column("95 %", right=True),
    Column("99 %", right=True),
)


def add(parsers: Parsers) -> None:
    parser = add_client_command(parsers, "history", "what happened to jobs, minute by minute", TEXT, _history)
    parser.add_argument("type", nargs="?", help="a job type (default: all types together)")
    parser.add_argument(
        "--since",
        metavar="WHEN",
        type=time_or_duration,
        default=timedelta(hours=1),
        help="how long ago, such as 6h or 7d, or a time (default: 1h)",
    )
    parser.add_argument(
        "--step", metavar="TIME", type=duration, help="how long each step is, such as 5m or 1d (default: chosen)"
    )


async def _history(arguments: argparse.Namespace, client: Client[Any]) -> int:
    output = Output(arguments)
    found = await client.history(arguments.type, since=arguments.since, step=arguments.step)
    if output.json:
        for name, points in found.types.items():
            for point in filter(_happened, points):
                output.json_line({"type": name, "step": found.step.total_seconds(), **msgspec.structs.asdict(point)})
        return DONE
    rows = [_row(point) for point in filter(_happened, found.total())]
    if rows:
        output.table(COLUMNS, rows)
    else:
        output.line(f"nothing happened since {local(found.since)}")
    return DONE


def _happened(point: HistoryPoint) -> bool:
    return point != HistoryPoint(point.at)


def _row(point: HistoryPoint) -> tuple[object, ...]:
    times = (*_times(point.waited, 0.5, 0.95), *_times(point.took, 0.5, 0.95, 0.99))
    return (local(point.at), *(getattr(point, name) for name in NUMBERS), *times)


def _times(histogram: Histogram, *parts: float) -> list[str]:
    return [_seconds(histogram.quantile(part)) for part in parts]


def _seconds(seconds: float | None) -> str:
    if seconds is None:
        return ""
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.3g} s"
