"""`queuert retry FILTER` and so on: a bulk operation, its plan, and waiting for its end."""

from __future__ import annotations

import argparse
import asyncio
import os
import socket
import sys
from collections.abc import Sequence
from typing import Any

from queuert.client.client import Client
from queuert.errors import ChainError, WaitTimeout
from queuert.features.bulk.jobs import BulkAction, BulkResult
from queuert.features.bulk.pages import SLOWEST
from queuert.features.bulk.plan import BulkPlan
from queuert.features.bulk.work import carry_out
from queuert.features.why import Ended, NotDue, NoWorker, Reason
from queuert.jobs.chain import Chain
from queuert.jobs.filter import Filter
from queuert.jobs.filter_text import NAMES
from queuert.operate.cli.arguments import add_who, seconds, who
from queuert.operate.exits import DONE, NOT_DONE, CommandError
from queuert.operate.filters import read_filter
from queuert.operate.terminal import Column, Output, clean, confirm
from queuert.operate.times import local

LOOK = 2.0
"""Seconds between two looks at why it is not done."""
COLUMNS = (Column("id"), Column("type", flexible=True), Column("status"), Column("created", flexible=True))


def add_change_options(parser: argparse.ArgumentParser) -> None:
    """Those of all commands that change chains."""
    parser.add_argument("--plan", action="store_true", help="only show what would be done")
    parser.add_argument("--yes", action="store_true", help="do not ask")
    parser.add_argument(
        "--per-second", metavar="N", type=_rate, help="with a filter: how many to change in a second, at most"
    )
    add_who(parser)


def _rate(text: str) -> float:
    number = seconds(text)
    if not number:
        raise argparse.ArgumentTypeError("0 chains a second would never end")
    if number < SLOWEST:
        raise argparse.ArgumentTypeError(f"{text} chains a second are too few: {SLOWEST:g} is the least")
    return number


async def filter_in(client: Client[Any], words: Sequence[str]) -> Filter | None:
    """The filter that these words are. None: they are ids."""
    are_filter = [word.partition(":")[0] in NAMES and ":" in word for word in words]
    if not any(are_filter):
        return None
    if not all(are_filter):
        other = words[are_filter.index(False)]
        raise CommandError(f"give ids or a filter, not both: {clean(other)!r} is not a word of a filter")
    return await read_filter(client, words)


async def change_many(
    client: Client[Any], action: BulkAction, done: str, where: Filter, arguments: argparse.Namespace
) -> int:
    output = Output(arguments)
    plan = await client.plan(action, where, cascade=arguments.cascade)
    if arguments.plan or not output.json:
        _show(plan, output)
    if arguments.plan or not plan.number:
        return DONE
    confirm(arguments, f"{_words(action)} {plan.counted}{' and what belongs to them' * arguments.cascade}?")
    operation = await _start(client, action, where, arguments)
    if not output.json:
        output.line(f"operation: {operation.id}")
        sys.stdout.flush()
    try:
        result = await _result(client, operation)
    except asyncio.CancelledError:  # Ctrl-C
        sys.stderr.write(f"not waited for: workers do the rest of {operation.id}, or a command like this one\n")
        raise
    except ChainError as error:
        if output.json:
            output.json_line({"id": operation.id, "done": "not done", "error": str(error)})
        raise CommandError(f"the operation has not come to its end: {error}", NOT_DONE) from None
    if output.json:
        counts = {name: getattr(result, name) for name in ("changed", "unchanged", "cascaded")}
        output.json_line({"id": operation.id, "done": done, **counts})
    else:
        more = f" and {result.cascaded:,} because of --cascade" * bool(result.cascaded)
        left = f", {result.unchanged:,} left as they are" * bool(result.unchanged)
        output.line(f"{done}: {result.changed:,} chain{'s' * (result.changed != 1)}{more}{left}")
    return NOT_DONE if result.unchanged else DONE


async def _start(client: Client[Any], action: BulkAction, where: Filter, arguments: argparse.Namespace) -> Chain[Any]:
    options: dict[str, Any] = {"per_second": arguments.per_second, **who(arguments)}
    if action in ("cancel", "delete"):
        options["cascade"] = arguments.cascade
    more = (arguments.priority,) if action == "set_priority" else ()
    async with client.transaction() as tx:
        operation: Chain[Any] = await getattr(client, f"bulk_{action}")(tx, where, *more, **options)
    return operation


async def _result(client: Client[Any], operation: Chain[Any]) -> BulkResult:
    """Wait for workers, or do it here while there is none."""
    told: list[str] = []
    while True:
        reasons = (await client.why(operation)).reasons
        if any(isinstance(reason, NoWorker) for reason in reasons):
            await carry_out(client.sessions, operation.id, f"command-{socket.gethostname()}-{os.getpid()}")
        else:
            _tell(reasons, told)
        try:
            result: BulkResult = await client.wait(operation, timeout=LOOK)
        except WaitTimeout:
            continue
        return result


def _tell(reasons: Sequence[Reason], told: list[str]) -> None:
    """Why it has to wait, if that is something else than before."""
    texts = [clean(str(reason)) for reason in reasons if not isinstance(reason, NotDue | Ended)]
    if texts and texts != told:
        sys.stderr.write(f"waiting: {'; '.join(texts)}\n")
    told[:] = texts


def _show(plan: BulkPlan, output: Output) -> None:
    if output.json:
        output.json_line(
            {
                "action": plan.action,
                "filter": plan.filter,
                "chains": plan.number,
                "more": plan.more,
                "types": plan.types,
                "sample": [chain.id for chain in plan.sample],
                "cascaded": [chain.id for chain in plan.cascaded],
                "notes": [{"text": note.text, "chains": note.chains} for note in plan.notes],
            }
        )
        return
    if not plan.number:
        output.line("no chain matches")
        return
    _table(plan.sample, output)
    kinds = ", ".join(f"{number:,} {clean(name)}" for name, number in plan.types.items())
    output.line(f"{_words(plan.action)}: {plan.counted} ({kinds})")
    if plan.cascaded:
        output.line(f"because of --cascade, also {len(plan.cascaded):,}:")
        _table(plan.cascaded, output)
    for note in plan.notes:
        output.line(f"note: {clean(note.text)}")


def _words(action: BulkAction) -> str:
    return action.replace("_", " ")


def _table(chains: Sequence[Chain[Any]], output: Output) -> None:
    rows = [(chain.id, chain.current_job_type, chain.status, local(chain.created_at)) for chain in chains]
    output.table(COLUMNS, rows, colours="status")
