"""`queuert pause` and `queuert resume`: what workers must not take, at run time."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from queuert.client.client import Client
from queuert.operate.cli.arguments import Parsers, add_anyway, add_who, given, known, who
from queuert.operate.cli.database import add_client_command
from queuert.operate.exits import DONE, NOT_DONE, CommandError
from queuert.operate.names import check_targets
from queuert.operate.pauses import end_of_pause, target_of, with_versions
from queuert.operate.terminal import Column, Output, clean
from queuert.operate.times import local
from queuert.records.pauses import Pause, PauseTarget

TARGETS = """
A target is the name of a job type (charge-card, or type:charge-card), queue:NAME, or everything.
"""
PAUSE = (
    """\
Pauses job types, queues or everything, in all workers. Jobs can still be started: they wait. Jobs
that are running go on, unless --cancel-running is given. A target that is paused already gets the
new values. Without a target, the command shows what is paused.
"""
    + TARGETS
)
RESUME = (
    """\
Ends pauses, each exactly as it was made: a job type whose queue is paused, too, does not run yet.
The exit code is 1 if a target was not paused.
"""
    + TARGETS
)

COLUMNS = (
    Column("target", flexible=True),
    Column("since"),
    Column("until"),
    Column("by", flexible=True),
    Column("reason", flexible=True),
)


def add(parsers: Parsers) -> None:
    parser = add_client_command(parsers, "pause", "pause job types, queues or everything", PAUSE, _pause)
    parser.add_argument("targets", metavar="TARGET", nargs="*", type=target, help="what to pause")
    parser.add_argument(
        "--until",
        metavar="TIME",
        type=end,
        help="when it ends by itself: 30m, 2h, 1d, or a time like 2026-11-17T12:00, which is in your zone unless it "
        "has one (default: when it is resumed)",
    )
    add_who(parser)
    add_anyway(parser)
    parser.add_argument(
        "--cancel-running", action="store_true", help="also stop jobs that are running, and put them back"
    )
    parser = add_client_command(parsers, "resume", "end pauses", RESUME, _resume)
    parser.add_argument("targets", metavar="TARGET", nargs="+", type=target, help="what to resume")
    add_who(parser)


def target(text: str) -> PauseTarget:
    return given(target_of, text)


def end(text: str) -> datetime | timedelta:
    return given(end_of_pause, text)


async def _pause(arguments: argparse.Namespace, client: Client[Any]) -> int:
    output = Output(arguments)
    if not arguments.targets:
        if arguments.until or arguments.reason or arguments.by or arguments.cancel_running:
            raise CommandError("what to pause? Name a job type, queue:NAME, or everything")
        _show(await client.list_pauses(), output)
        return DONE
    await known(arguments, check_targets(client, arguments.targets))
    values = {"until": arguments.until, "cancel_running": arguments.cancel_running, **who(arguments)}
    async with client.transaction() as tx:
        made = [await client.pause(tx, each, **values) for each in await with_versions(client, arguments.targets)]
    _show(made, output)
    return DONE


async def _resume(arguments: argparse.Namespace, client: Client[Any]) -> int:
    output = Output(arguments)
    targets = await with_versions(client, arguments.targets, paused=True)
    async with client.transaction() as tx:
        ended = [await client.resume(tx, each, **who(arguments)) for each in targets]
    for each, pause in zip(targets, ended, strict=True):
        if output.json:
            output.json_line(
                {"scope": each.scope, "name": each.name, "done": "not paused" if pause is None else "resumed"}
            )
        else:
            output.line(f"{'not paused' if pause is None else 'resumed'}: {clean(str(each))}")
    return DONE if None not in ended else NOT_DONE


def _show(pauses: Sequence[Pause], output: Output) -> None:
    if output.json:
        for each in pauses:
            output.json_line(
                {
                    "scope": each.target.scope,
                    "name": each.target.name,
                    "since": each.since,
                    "until": each.until,
                    "by": each.by,
                    "reason": each.reason,
                    "cancel_running": each.cancel_running,
                }
            )
    elif pauses:
        rows = [(each.target, local(each.since), local(each.until), each.by, each.reason) for each in pauses]
        output.table(COLUMNS, rows)
    else:
        output.line("nothing is paused")
