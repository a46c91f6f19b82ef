"""`queuert audit`: who did what."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from queuert.client.client import Client
from queuert.engine.operations.reading import MAX_PAGE
from queuert.operate.cli.arguments import Parsers, positive
from queuert.operate.cli.database import add_client_command
from queuert.operate.exits import DONE
from queuert.operate.terminal import Column, Output
from queuert.operate.times import local
from queuert.records.audit import AuditRecord

TEXT = """\
Shows what was recorded, the latest first: every change that was made with this command, on the page
or with `queuert top`, bulk operations, and what code has changed with by=. With the id of a chain,
what was done to it, also if it was deleted.
"""

LIMIT = 50
COLUMNS = (
    Column("at"),
    Column("by", flexible=True),
    Column("action"),
    Column("target", flexible=True),
    Column("chain"),
    Column("reason", flexible=True),
)


def add(parsers: Parsers) -> None:
    parser = add_client_command(parsers, "audit", "who did what", TEXT, _audit)
    parser.add_argument("id", metavar="ID", nargs="?", help="the whole id of a chain (default: all records)")
    parser.add_argument(
        "--limit", metavar="N", type=positive, default=LIMIT, help=f"how many records to show (default: {LIMIT})"
    )


async def _audit(arguments: argparse.Namespace, client: Client[Any]) -> int:
    output = Output(arguments)
    records: list[AuditRecord] = []
    cursor: str | None = None
    while len(records) < arguments.limit:
        size = min(arguments.limit - len(records), MAX_PAGE)
        page = await client.list_audit(arguments.id, limit=size, cursor=cursor)
        records += page.items
        cursor = page.next_cursor
        if cursor is None:
            break
    _show(records, output)
    if cursor is not None and not output.json:
        output.line(f"there are more: these are the latest {len(records)}")
    return DONE


def _show(records: Sequence[AuditRecord], output: Output) -> None:
    if output.json:
        for each in records:
            output.json_line({name: getattr(each, name) for name in each.__struct_fields__})
    elif records:
        rows = [(local(each.at), each.by, each.action, each.target, each.chain_id, each.reason) for each in records]
        output.table(COLUMNS, rows)
    else:
        output.line("nothing was recorded")
