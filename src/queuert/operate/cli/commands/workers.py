"""`queuert workers`: which workers there are, and whether they are alive."""

from __future__ import annotations

import argparse
from typing import Any

import msgspec

from queuert.client.client import Client
from queuert.operate.cli.arguments import Parsers
from queuert.operate.cli.database import add_client_command
from queuert.operate.exits import DONE
from queuert.operate.terminal import Column, Output
from queuert.operate.times import local
from queuert.records.workers import WorkerInfo

TEXT = """\
Shows the workers that the database knows: whether they are alive, how many of their slots are busy,
where they run, and the job types that they have handlers for. A worker that has stopped is not
listed.
"""

COLUMNS = (
    Column("state"),
    Column("busy", right=True),
    Column("host", flexible=True),
    Column("pid", right=True),
    Column("release", flexible=True),
    Column("last seen", flexible=True),
    Column("types", flexible=True),
    Column("id", flexible=True),
)


def add(parsers: Parsers) -> None:
    add_client_command(parsers, "workers", "which workers there are", TEXT, _workers)


async def _workers(arguments: argparse.Namespace, client: Client[Any]) -> int:
    output = Output(arguments)
    workers = await client.list_workers()
    if output.json:
        for worker in workers:
            output.json_line(
                {**msgspec.to_builtins(worker), "started_at": worker.started_at, "seen_at": worker.seen_at}
            )
    elif workers:
        output.table(COLUMNS, [_row(worker) for worker in workers])
    else:
        output.line("no worker is known")
    return DONE


def _row(worker: WorkerInfo) -> tuple[object, ...]:
    busy = f"{worker.busy} of {'?' if worker.slots is None else worker.slots}"
    types = ", ".join(worker.job_types)
    return worker.state, busy, worker.host, worker.pid, worker.release, local(worker.seen_at), types, worker.id
