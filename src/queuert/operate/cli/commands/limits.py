"""`queuert limits`: how many jobs of a key run or begin, and changing that at run time."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from functools import partial
from typing import Any

from queuert.client.client import Client
from queuert.engine.operations.reading import MAX_PAGE
from queuert.operate.cli.arguments import Parsers, add_anyway, add_who, given, known, who
from queuert.operate.cli.commands.pause import end
from queuert.operate.cli.database import add_client_command
from queuert.operate.exits import DONE, NOT_DONE, CommandError
from queuert.operate.limits import (
    key_pauses,
    key_target,
    not_listed,
    rate_text,
    read_concurrency,
    read_rate,
    read_weight,
    weight_text,
)
from queuert.operate.names import check_limit
from queuert.operate.terminal import Column, Output, clean
from queuert.operate.times import local
from queuert.records.limits import COUNTED, LimitRow
from queuert.records.pauses import Pause

LIMITS = """\
Shows limits by key, and their keys that have jobs or something of their own. With the name of a
limit, it changes the limit, for one key (--key) or for all keys that have nothing of their own. What
is not given stays as it is. A limit without a name has the name of its job type.

With --key and --pause, no job of this key begins, until --resume.
"""
CHANGES = ("concurrency", "rate", "weight")

COLUMNS = (
    Column("limit", flexible=True),
    Column("key", flexible=True),
    Column("running", right=True),
    Column("of", right=True),
    Column("waiting", right=True),
    Column("rate"),
    Column("weight", right=True),
    Column("opens at"),
    Column("set"),
    Column("paused", flexible=True),
)


def add(parsers: Parsers) -> None:
    parser = add_client_command(parsers, "limits", "limits by key", LIMITS, _limits)
    parser.add_argument("name", metavar="NAME", nargs="?", help="the limit to change (default: show all)")
    parser.add_argument("--key", help="the key to change (default: all keys)")
    # Without a default: None means that there is no limit.
    for name, shown, read, text in (
        ("concurrency", "NUMBER", read_concurrency, "how many jobs may run at once; none: no limit"),
        (
            "rate",
            "NUMBER/SECONDS",
            read_rate,
            "how many jobs may begin in how many seconds, like 100/10, or 100/10/smooth; none: no limit",
        ),
        ("weight", "NUMBER", read_weight, "how many turns a key gets, beside 1 of others"),
    ):
        parser.add_argument(f"--{name}", metavar=shown, type=partial(given, read), default=argparse.SUPPRESS, help=text)
    other = parser.add_mutually_exclusive_group()
    other.add_argument("--clear", action="store_true", help="undo what was set: what the code declares applies again")
    other.add_argument("--pause", action="store_true", help="with --key: no job of the key begins any more")
    other.add_argument("--resume", action="store_true", help="with --key: jobs of the key begin again")
    parser.add_argument(
        "--until", metavar="TIME", type=end, help="when the pause ends by itself: see `queuert pause --help`"
    )
    parser.add_argument(
        "--cancel-running", action="store_true", help="with --pause: also stop jobs that are running, and put them back"
    )
    add_who(parser)
    add_anyway(parser)


async def _limits(arguments: argparse.Namespace, client: Client[Any]) -> int:
    output = Output(arguments)
    change: dict[str, Any] = {name: getattr(arguments, name) for name in CHANGES if hasattr(arguments, name)}
    other = arguments.clear or arguments.pause or arguments.resume
    name: str | None = arguments.name
    if name is None and (change or other or arguments.key is not None):
        raise CommandError("which limit? Name it")
    if change and other:
        raise CommandError("one thing at a time: change the limit, or clear, pause or resume it")
    if (arguments.until is not None or arguments.cancel_running) and not arguments.pause:
        raise CommandError("--until and --cancel-running are for --pause")
    if name is not None and not arguments.resume and not arguments.clear:
        await known(arguments, check_limit(client, name))
    if arguments.pause or arguments.resume:
        return await _pause(arguments, client, output)
    about = {"key": arguments.key, **who(arguments)}
    if arguments.clear and name is not None:
        async with client.transaction() as tx:
            cleared = await client.clear_limit(tx, name, **about)
        output.line("cleared" if cleared else "nothing was set")
        return DONE if cleared else NOT_DONE
    if change and name is not None:
        async with client.transaction() as tx:
            rows = [await client.set_limit(tx, name, **about, **change)]
    else:
        rows = [row for row in await _all(client) if name in (None, row.name)]
    paused = key_pauses(await client.list_pauses())
    _show(rows, paused, output)
    if not change and not output.json:
        for limit, _, pause in not_listed(paused, rows):
            if name in (None, limit):
                output.line(clean(f"paused, without jobs: {pause.target}{_why(pause)}"))
    return DONE


async def _pause(arguments: argparse.Namespace, client: Client[Any], output: Output) -> int:
    if arguments.key is None:
        raise CommandError("which key? Give --key. `queuert pause` pauses job types and queues")
    target, about = key_target(arguments.name, arguments.key), who(arguments)
    async with client.transaction() as tx:
        if arguments.pause:
            await client.pause(tx, target, until=arguments.until, cancel_running=arguments.cancel_running, **about)
            done = "paused"
        else:
            done = "not paused" if await client.resume(tx, target, **about) is None else "resumed"
    output.line(clean(f"{done}: {target}"))
    return NOT_DONE if done == "not paused" else DONE


async def _all(client: Client[Any]) -> list[LimitRow]:
    rows: list[LimitRow] = []
    cursor: str | None = None
    while True:
        page = await client.list_limits(limit=MAX_PAGE, cursor=cursor)
        rows += page.items
        cursor = page.next_cursor
        if cursor is None:
            return rows


def _show(rows: Sequence[LimitRow], paused: dict[tuple[str, str], Pause], output: Output) -> None:
    found = [(row, None if row.key is None else paused.get((row.name, row.key))) for row in rows]
    if output.json:
        for row, pause in found:
            output.json_line(
                {
                    "limit": row.name,
                    "key": row.key,
                    "concurrency": row.rule.concurrency,
                    "rate": None if row.rule.rate is None else rate_text(row.rule.rate),
                    "weight": row.rule.weight,
                    "ordered": row.rule.ordered,
                    "running": row.running,
                    "waiting": row.waiting,
                    "more_waiting": row.waiting >= COUNTED,
                    "opens_at": row.opens_at,
                    "holder": row.holder,
                    "set": row.is_set,
                    "paused": pause is not None,
                }
            )
    elif rows:
        output.table(COLUMNS, [_cells(row, pause) for row, pause in found])
    else:
        output.line("no limits")


def _cells(row: LimitRow, pause: Pause | None) -> tuple[Any, ...]:
    rule = row.rule
    return (
        row.name,
        "(all)" if row.key is None else row.key,
        row.running,
        rule.concurrency,
        None if row.key is None else f"{row.waiting}{'+' * (row.waiting >= COUNTED)}",
        None if rule.rate is None else rate_text(rule.rate),
        weight_text(rule),
        local(row.opens_at),
        "yes" if row.is_set else None,
        None if pause is None else f"yes{_why(pause)}",
    )


def _why(pause: Pause) -> str:
    return f": {pause.reason}" if pause.reason else ""
