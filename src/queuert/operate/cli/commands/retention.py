"""`queuert retention` and `queuert prune`: how long ended chains are kept; deleting them now."""

from __future__ import annotations

import argparse
from typing import Any

from msgspec import structs

from queuert.base.ids import time_of
from queuert.base.times import length_of
from queuert.client.client import Client
from queuert.operate.cli.arguments import Parsers, add_who, who
from queuert.operate.cli.database import add_client_command
from queuert.operate.exits import DONE, NOT_DONE, CommandError
from queuert.operate.terminal import Column, Output, clean
from queuert.operate.times import with_age
from queuert.records.retention import NOTED_COUNTED, Retention, TypeRetention

RETENTION = """\
Shows how long ended chains of each job type are kept, by the policies that workers have stored, and
how far deleting them is: up to which creation time chains were looked at. Types without a stored
policy are not deleted, and not shown.
"""
PRUNE = """\
Deletes now what has been kept long enough, by the stored policies. Workers do this by themselves.
The exit code is 1 if another process was deleting all the time.
"""

COLUMNS = (
    Column("type", flexible=True),
    Column("completed"),
    Column("failed"),
    Column("cancelled"),
    Column("expired"),
    Column("then"),
    Column("looked at up to", flexible=True),
)
DELETED = (Column("type", flexible=True), Column("chains", right=True))


def add(parsers: Parsers) -> None:
    add_client_command(parsers, "retention", "how long ended chains are kept", RETENTION, _retention)
    parser = add_client_command(parsers, "prune", "delete what has been kept long enough", PRUNE, _prune)
    parser.add_argument("--now", action="store_true", help="delete it: without this, nothing is done")
    parser.add_argument("--full", action="store_true", help="look at all chains that are kept, whatever their ids")
    add_who(parser)


async def _retention(arguments: argparse.Namespace, client: Client[Any]) -> int:
    output = Output(arguments)
    found = await client.retention()
    if output.json:
        output.json_line({**structs.asdict(found), "types": [_plain(each) for each in found.types]})
        return DONE
    if not found.types:
        output.line("no worker has stored a policy: nothing is deleted")
        return DONE
    rows = [
        (
            each.policy.chain_type,
            _kept(each.policy.completed),
            _kept(each.policy.failed),
            _kept(each.policy.cancelled),
            _kept(each.policy.expired),
            "archived" if each.policy.archived else "deleted",
            _walked(each.walked),
        )
        for each in found.types
    ]
    output.table(COLUMNS, rows)
    _show_archives(found.types, output)
    _show_progress(found, output)
    return DONE


def _show_archives(types: list[TypeRetention], output: Output) -> None:
    for each in types:
        if each.policy.archived:
            name, number = clean(each.policy.chain_type), _counted(each.waiting)
            output.line(f"\n{name}: {number} chains are due and wait to be archived, "
                        "by a process that has the function for it")  # fmt: skip
            if each.archive_error is not None:
                output.line(f"  it failed {with_age(each.archive_failed_at)}: {clean(each.archive_error)}")


def _counted(number: int) -> str:
    return f"{NOTED_COUNTED}+" if number >= NOTED_COUNTED else str(number)


def _show_progress(found: Retention, output: Output) -> None:
    output.line(f"\nto be looked at again: {_counted(found.noted)} chains")
    output.line(f"last step: {with_age(found.pruned_at) or 'never'}")
    if found.lap_ended_at is not None:
        output.line(f"last lap: ended {with_age(found.lap_ended_at)}")
    elif found.lap_began_at is not None:
        output.line(f"lap: under way since {with_age(found.lap_began_at)}")


async def _prune(arguments: argparse.Namespace, client: Client[Any]) -> int:
    if not arguments.now:
        raise CommandError("this deletes chains: give --now. `queuert retention` shows what is kept")
    output = Output(arguments)
    pruned = await client.prune(full=arguments.full, **who(arguments))
    if output.json:
        output.json_line({**structs.asdict(pruned), "chains": dict(pruned.chains), "waiting": dict(pruned.waiting)})
    elif pruned.busy:
        output.line("another process is deleting: nothing was done")
    else:
        if pruned.chains:
            output.table(DELETED, list(pruned.chains.items()))
        output.line(f"deleted: {pruned.deleted} chains, {pruned.jobs} jobs")
        for name, number in pruned.waiting.items():
            chains = f"{_counted(number)} chains of {clean(name)}"
            output.line(f"left: {chains}, to be archived by a worker that has the function for it")
    return NOT_DONE if pruned.busy else DONE


def _plain(kept: TypeRetention) -> dict[str, Any]:
    fields = structs.asdict(kept)
    del fields["policy"]
    return {**structs.asdict(kept.policy), **fields}


def _kept(seconds: float | None) -> str:
    return "for ever" if seconds is None else length_of(seconds)


def _walked(chain_id: str | None) -> str:
    """When the chain was started, if its id tells."""
    if chain_id is None:
        return ""
    return with_age(time_of(chain_id)) or chain_id
