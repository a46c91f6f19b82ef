"""`queuert limits`: how many jobs of a key run or begin, and changing that at run time."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from queuert.cli.arguments import Parsers, given
from queuert.cli.database import add_client_command
from queuert.cli.exits import DONE, NOT_DONE, CommandError
from queuert.cli.terminal import Column, Output
from queuert.cli.times import local
from queuert.client.client import Client
from queuert.errors import InvalidArgument
from queuert.jobs.limits import Rate
from queuert.limit_records import LimitRow, RateRule

LIMITS = """\
Shows limits by key, and their keys that have jobs or something of their own. With the name of a
limit, it changes the limit, for one key (--key) or for all keys that have nothing of their own. What
is not given stays as it is. A limit without a name has the name of its job type.
"""
NONE = "none"
PAGE = 1000

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
)


def add(parsers: Parsers) -> None:
    parser = add_client_command(parsers, "limits", "limits by key", LIMITS, _limits)
    parser.add_argument("name", metavar="NAME", nargs="?", help="the limit to change (default: show all)")
    parser.add_argument("--key", help="the key to change (default: all keys)")
    parser.add_argument(
        "--concurrency", metavar="NUMBER", type=_concurrency, help="how many jobs may run at once; none: no limit"
    )
    parser.add_argument(
        "--rate",
        metavar="NUMBER/SECONDS",
        type=_rate,
        help="how many jobs may begin in so many seconds, like 100/10, or 100/10/smooth; none: no limit",
    )
    parser.add_argument("--weight", metavar="NUMBER", type=float, help="how many turns a key gets, beside 1 of others")
    parser.add_argument("--clear", action="store_true", help="undo what was set: what the code declares holds again")
    parser.add_argument("--reason", help="why, for `queuert audit`")
    parser.add_argument("--by", help="who does it, for `queuert audit`")


async def _limits(arguments: argparse.Namespace, client: Client[Any]) -> int:
    output = Output(arguments)
    fields = ("concurrency", "rate", "weight")
    given_values = {name: value for name in fields if (value := getattr(arguments, name)) is not None}
    change: dict[str, Any] = {name: None if value == NONE else value for name, value in given_values.items()}
    if arguments.name is None:
        if change or arguments.clear or arguments.key is not None:
            raise CommandError("which limit? Name it")
        _show(await _all(client), output)
        return DONE
    about = {"key": arguments.key, "by": arguments.by, "reason": arguments.reason}
    if arguments.clear:
        async with client.transaction() as tx:
            cleared = await client.clear_limit(tx, arguments.name, **about)
        output.line("cleared" if cleared else "nothing was set")
        return DONE if cleared else NOT_DONE
    if not change:
        _show([row for row in await _all(client) if row.name == arguments.name], output)
        return DONE
    async with client.transaction() as tx:
        row = await client.set_limit(tx, arguments.name, **about, **change)
    _show([row], output)
    return DONE


async def _all(client: Client[Any]) -> list[LimitRow]:
    rows: list[LimitRow] = []
    cursor: str | None = None
    while True:
        page = await client.list_limits(limit=PAGE, cursor=cursor)
        rows += page.items
        cursor = page.next_cursor
        if cursor is None:
            return rows


def _show(rows: Sequence[LimitRow], output: Output) -> None:
    if output.json:
        for row in rows:
            output.json_line(
                {
                    "limit": row.name,
                    "key": row.key,
                    "concurrency": row.rule.concurrency,
                    "rate": None if row.rule.rate is None else _text(row.rule.rate),
                    "weight": row.rule.weight,
                    "ordered": row.rule.ordered,
                    "running": row.running,
                    "waiting": row.waiting,
                    "opens_at": row.opens_at,
                    "holder": row.holder,
                    "set": row.is_set,
                }
            )
    elif rows:
        output.table(COLUMNS, [_cells(row) for row in rows])
    else:
        output.line("no limits")


def _cells(row: LimitRow) -> tuple[Any, ...]:
    rule = row.rule
    return (
        row.name,
        "(all)" if row.key is None else row.key,
        row.running,
        rule.concurrency,
        None if row.key is None else row.waiting,
        None if rule.rate is None else _text(rule.rate),
        f"{rule.weight:g}",
        local(row.opens_at),
        "yes" if row.is_set else None,
    )


def _text(rate: RateRule) -> str:
    return f"{rate.number}/{rate.per:g}{'/smooth' if rate.smooth else ''}"


def _concurrency(text: str) -> int | str:
    return NONE if text == NONE else int(text)


def _rate(text: str) -> Rate | str:
    return NONE if text == NONE else given(_read_rate, text)


def _read_rate(text: str) -> Rate:
    number, _, rest = text.partition("/")
    per, slash, smooth = rest.partition("/")
    try:
        parsed = int(number), float(per)
    except ValueError:
        raise InvalidArgument(f"a rate is NUMBER/SECONDS, like 100/10, not {text!r}") from None
    if slash and smooth != "smooth":
        raise InvalidArgument(f"a rate ends with the seconds or with /smooth, not {text!r}")
    return Rate(*parsed, smooth=bool(slash))
