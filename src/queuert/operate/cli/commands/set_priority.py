"""`queuert set-priority`: waiting chains run earlier or later than others."""

from __future__ import annotations

import argparse
from typing import Any

from queuert.client.client import Client
from queuert.errors import InvalidArgument
from queuert.jobs.filter import Filter
from queuert.jobs.options import check_priority
from queuert.operate.cli.arguments import Parsers
from queuert.operate.cli.commands.change_many import add_change_options, change_many, filter_in
from queuert.operate.cli.database import add_client_command
from queuert.operate.ids import find_chains

TEXT = """\
Gives chains that are blocked or pending another priority. Jobs with a lower number run first.

  queuert set-priority -5 01a0 01b0
  queuert set-priority 10 type:report status:pending

Both ways, this is a bulk operation: workers do it, a page at a time, and the command waits for
them. If no worker is alive, it does that itself. Only the current job of a chain is changed. The
command shows what it will do, and asks. The exit code is 1 if some chains were left as they are.
"""


def add(parsers: Parsers) -> None:
    parser = add_client_command(parsers, "set-priority", "run waiting chains earlier or later", TEXT, _set_priority)
    parser.add_argument("priority", metavar="NUMBER", type=_priority, help="the new priority: lower runs first")
    parser.add_argument("chains", metavar="ID|FILTER", nargs="+", help="ids of chains, or words like type:report")
    parser.set_defaults(cascade=False)
    add_change_options(parser)


def _priority(text: str) -> int:
    try:
        return check_priority(int(text))
    except (ValueError, InvalidArgument) as error:
        if isinstance(error, InvalidArgument):
            raise argparse.ArgumentTypeError(str(error)) from None
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from None


async def _set_priority(arguments: argparse.Namespace, client: Client[Any]) -> int:
    where = await filter_in(client, arguments.chains)
    if where is None:
        where = Filter(chain=await find_chains(client, arguments.chains))
    return await change_many(client, "set_priority", "changed", where, arguments)
