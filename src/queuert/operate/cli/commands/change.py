"""`queuert retry`, `cancel`, `trigger` and `delete`: they change chains, after a plan and a yes.

Chains are given by their ids, or by a filter: see `change_many`.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from functools import partial
from typing import Any

from queuert.client.client import Client
from queuert.jobs.chain import Chain
from queuert.operate.changes import CHANGES, Change
from queuert.operate.cli.arguments import Parsers, who
from queuert.operate.cli.commands import repair
from queuert.operate.cli.commands.change_many import add_change_options, change_many, filter_in
from queuert.operate.cli.database import add_client_command
from queuert.operate.exits import DONE, NOT_DONE, CommandError
from queuert.operate.ids import find_chains
from queuert.operate.terminal import Column, Output, confirm

COLUMNS = (Column("id"), Column("type", flexible=True), Column("status"), Column("plan", flexible=True))

HOW = """

Chains are given by their ids, or by a filter:

  queuert {name} 01a0 01b0
  queuert {name} type:charge-card since:2h

With ids: all of them are changed in one transaction, or none. An id that cannot be changed so is
left out, and the exit code is 1 then. The beginning of an id is enough, if no other id begins so.
The id of a job means its chain.

With a filter: workers change the chains that match now, a page at a time. The command waits for
them. If no worker is alive, it does that itself. Ctrl-C does not undo what is done: workers go on,
or another command does. The exit code is 1 if some chains were left as they are.

The command shows what it will do, and asks.
"""


def add(parsers: Parsers) -> None:
    for change in CHANGES:
        text = change.text + HOW.format(name=change.name) + repair.HOW * (change.name == "retry")
        parser = add_client_command(parsers, change.name, change.summary, text, partial(_change, change))
        parser.add_argument(
            "chains", metavar="ID|FILTER", nargs="+", help="ids of chains, or words like type:charge-card"
        )
        if change.name == "retry":
            repair.add_options(parser)
        else:
            parser.set_defaults(input=None, app=None)
        if change.cascade is not None:
            which = parser.add_mutually_exclusive_group()
            which.add_argument("--cascade", action="store_true", help=change.cascade)
            if change.blockers is not None:
                text = f"{change.blockers}: for ids, not for a filter"
                which.add_argument("--blockers", dest="cascade", action="store_const", const="blockers", help=text)
        else:
            parser.set_defaults(cascade=False)
        add_change_options(parser)


async def _change(change: Change, arguments: argparse.Namespace, client: Client[Any]) -> int:
    where = await filter_in(client, arguments.chains)
    if arguments.app is not None and arguments.input is None:
        raise CommandError("--app checks an input: give --input, too")
    if where is not None:
        if arguments.input is not None:
            raise CommandError("--input is for one chain: give its id instead of a filter")
        if arguments.cascade == "blockers":
            raise CommandError("--blockers is for ids, not for a filter")
        return await change_many(client, change.name, change.done, where, arguments)
    if arguments.per_second is not None:
        raise CommandError("--per-second is for a filter: the chains of ids are changed at once")
    if arguments.input is not None:
        return await repair.retry_with_input(arguments, client)
    return await _change_named(change, arguments, client)


async def _change_named(change: Change, arguments: argparse.Namespace, client: Client[Any]) -> int:
    output = Output(arguments)
    chains = await find_chains(client, arguments.chains)
    fit = [chain for chain in chains if await change.allows(client, chain)]
    if arguments.plan or not output.json:
        cascade = arguments.cascade
        others = await change.cascaded(client, [chain.id for chain in fit], cascade) if cascade else []
        plans = [change.name if chain in fit else f"left as it is: not {change.needs}" for chain in chains]
        _show_plan(change, [*zip(chains, plans, strict=True)], others, _option(cascade), output)
    code = DONE if len(fit) == len(chains) else NOT_DONE
    if arguments.plan or not fit:
        return code
    confirm(arguments, f"{change.name} {_counted(len(fit))}{' and what belongs to it' * bool(arguments.cascade)}?")
    async with client.transaction() as tx:
        ids = [chain.id for chain in fit]
        changed = await change.carry_out(client, tx, ids, cascade=arguments.cascade, **who(arguments))
    if output.json:
        for chain in changed:
            output.json_line({"id": chain.id, "type": chain.chain_type, "status": chain.status, "done": change.done})
    else:
        output.line(f"{change.done}: {_counted(len(changed))}")
    return code if len(changed) >= len(fit) else NOT_DONE


def _show_plan(
    change: Change,
    named: Sequence[tuple[Chain[Any], str]],
    others: Sequence[Chain[Any]],
    option: str,
    output: Output,
) -> None:
    planned = [*named, *((chain, f"{change.name}, because of {option}") for chain in others)]
    rows = [(chain.id, chain.chain_type, chain.status or "", plan) for chain, plan in planned]
    if output.json:
        for chain_id, chain_type, status, plan in rows:
            output.json_line({"id": chain_id, "type": chain_type, "status": status, "plan": plan})
        return
    output.table(COLUMNS, rows, colours="status")


def _option(cascade: object) -> str:
    return "--blockers" if cascade == "blockers" else "--cascade"


def _counted(number: int) -> str:
    return f"{number} chain{'s' * (number != 1)}"
