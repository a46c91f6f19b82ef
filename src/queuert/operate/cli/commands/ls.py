"""`queuert ls`: the chains that match a filter."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from queuert.client.client import Client
from queuert.jobs.chain import Chain
from queuert.operate.cli.arguments import Parsers, positive
from queuert.operate.cli.database import add_client_command
from queuert.operate.exits import DONE
from queuert.operate.filters import read_filter
from queuert.operate.listing import latest_chains, types_of
from queuert.operate.terminal import Column, Output
from queuert.operate.times import local

TEXT = """\
Lists the chains that match a filter, the latest ones first:

  queuert ls status:failed type:charge-card error:TIMEOUT since:2h

Status, type and error are those of the chain's current job. Without a filter, all chains match.
queue:NAME means the job types that the workers serve through that queue.
"""

LIMIT = 50
SHORT_PAGES = 10
"""Pages that may be read although few of the chains on them match. Each reads a bounded number."""
STOPPED = "only the latest chains were looked at: name a status, a type or a time, or give --all to read on\n"
COLUMNS = (
    Column("id"),
    Column("type", flexible=True),
    Column("status"),
    Column("created", flexible=True),
    Column("error", flexible=True),
)


def add(parsers: Parsers) -> None:
    parser = add_client_command(parsers, "ls", "list the chains that match a filter", TEXT, _ls)
    parser.add_argument("filter", metavar="FILTER", nargs="*", help="words like status:failed; all of them must match")
    parser.add_argument(
        "--all",
        action="store_true",
        help="show all chains that match, and read on, however many do not; with --limit, show that many",
    )
    parser.add_argument("--limit", metavar="N", type=positive, help=f"how many chains to show (default: {LIMIT})")


async def _ls(arguments: argparse.Namespace, client: Client[Any]) -> int:
    output = Output(arguments)
    where = await read_filter(client, arguments.filter)
    limit = arguments.limit or (sys.maxsize if arguments.all else LIMIT)
    page = await latest_chains(client, where, limit, short_pages=None if arguments.all else SHORT_PAGES)
    chains, cursor = page.items, page.next_cursor
    if output.json:
        for chain in chains:
            output.json_line(chain_object(chain))
    elif chains:
        rows = [
            (chain.id, types_of(chain), chain.status, local(chain.created_at), (chain.last_error or {}).get("code"))
            for chain in chains
        ]
        output.table(COLUMNS, rows, colours="status")
        if len(chains) == limit and cursor is not None:
            output.line(f"there are more: these are the latest {len(chains)}")
    elif cursor is None:
        output.line("no chain matches")
    if len(chains) < limit and cursor is not None:
        sys.stderr.write(STOPPED)
    return DONE


def chain_object(chain: Chain[Any]) -> dict[str, Any]:
    names = (
        "id",
        "chain_type",
        "status",
        "created_at",
        "completed_at",
        "current_job_id",
        "current_job_type",
        "last_error",
    )
    return {name: getattr(chain, name) for name in names}
