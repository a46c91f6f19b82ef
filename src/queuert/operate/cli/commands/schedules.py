"""`queuert schedules`: jobs that start again and again, and what is to be done with them."""

from __future__ import annotations

import argparse
from datetime import UTC, datetime, timedelta
from typing import Any

from msgspec.structs import asdict

from queuert.base.times import MICROSECOND
from queuert.client.client import Client
from queuert.engine.operations.reading import MAX_PAGE
from queuert.features.schedules.changing import MOST_BACKFILLED
from queuert.features.schedules.schedule import Schedule
from queuert.features.schedules.times import After, Tick
from queuert.operate.cli.arguments import Parsers, add_who, positive, time_or_duration, who
from queuert.operate.cli.commands.pause import end as end_of_pause
from queuert.operate.cli.database import Work, add_client_command
from queuert.operate.exits import DONE, NOT_DONE, CommandError
from queuert.operate.terminal import Column, Output, clean, confirm
from queuert.operate.times import local

TEXT = """\
Shows the schedules, or changes them. Without an action, it lists them. `queuert schedules ACTION
--help` explains each action.
"""
LIST = """\
Lists the schedules by name: when they fire, what they start, how they are, their next tick and
their last one.
"""
SHOW = "Shows all that is stored about schedules."
PREVIEW = """\
Shows the next ticks of a schedule in its own time zone, with the offset from UTC, and where clocks
change.
"""
PAUSE = """\
Pauses schedules: their ticks do not fire, and are not caught up with. What they have started goes
on.
"""
RESUME = "Ends the pauses of schedules. The exit code is 1 if one was not paused."
TRIGGER = """\
Fires schedules now, besides their ticks. If a function of your program makes the jobs, a worker
calls it soon.
"""
BACKFILL = """\
Fires the ticks of a schedule in the past, from --from to before --to. Workers do it soon. A tick
whose chains exist is not fired again. It first shows how many ticks there are, and asks.
"""
DELETE = """\
Deletes schedules, after a question. What they have started goes on. One that workers declare comes
back: pause it instead. The exit code is 1 if one does not exist.
"""

LIMIT = 1000
PREVIEWED = 10

COLUMNS = (
    Column("name", flexible=True),
    Column("times", flexible=True),
    Column("starts", flexible=True),
    Column("status"),
    Column("next tick"),
    Column("last tick"),
)
PREVIEW_COLUMNS = (Column("tick"), Column("utc"), Column("fires"), Column("note"))


def add(parsers: Parsers) -> None:
    parser = add_client_command(parsers, "schedules", "show schedules, or change them", TEXT, _list)
    parser.set_defaults(limit=LIMIT)
    actions = parser.add_subparsers(title="actions", metavar="ACTION")

    parser = _add_action(actions, "list", "list all schedules (the default)", LIST, _list)
    parser.add_argument(
        "--limit", metavar="N", type=positive, default=LIMIT, help=f"how many to show (default: {LIMIT})"
    )

    _add_action(actions, "show", "all that is stored about schedules", SHOW, _show, names=True)

    parser = _add_action(actions, "preview", "the next ticks of a schedule", PREVIEW, _preview)
    parser.add_argument("name", metavar="NAME", help="the schedule")
    parser.add_argument(
        "--count", metavar="N", type=positive, default=PREVIEWED, help=f"how many ticks (default: {PREVIEWED})"
    )

    parser = _add_action(actions, "pause", "pause schedules", PAUSE, _pause, names=True)
    parser.add_argument(
        "--until",
        metavar="TIME",
        type=end_of_pause,
        default=None,
        help="when it ends by itself: 30m, 2h, 1d, or a time like 2026-11-17T12:00, which is in your zone unless it "
        "has one (default: when it is resumed)",
    )
    _add_action(actions, "resume", "end pauses of schedules", RESUME, _resume, names=True)
    _add_action(actions, "trigger", "fire schedules now", TRIGGER, _trigger, names=True)

    parser = _add_action(actions, "backfill", "fire ticks of the past", BACKFILL, _backfill)
    parser.add_argument("name", metavar="NAME", help="the schedule")
    for option, meaning in (("from", "the first tick, or a time before it"), ("to", "the time before which they are")):
        parser.add_argument(
            f"--{option}",
            dest=f"{option}_time",
            metavar="TIME",
            type=moment,
            required=True,
            help=f"{meaning}: like 2026-11-17T12:00, in your zone unless it has one, or 2d for two days ago",
        )
    _add_yes(parser)

    parser = _add_action(actions, "delete", "delete schedules", DELETE, _delete, names=True)
    _add_yes(parser)


def _add_action(
    actions: Parsers, name: str, summary: str, text: str, work: Work, *, names: bool = False
) -> argparse.ArgumentParser:
    parser = add_client_command(actions, name, summary, text, work, inherits=True)
    if names:
        parser.add_argument("names", metavar="NAME", nargs="+", help="the names of the schedules")
    if name not in ("list", "show", "preview"):
        add_who(parser)
    return parser


def _add_yes(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--yes", "-y", action="store_true", default=False, help="do not ask")


def moment(text: str) -> datetime:
    """A time, or how long ago it was."""
    found = time_or_duration(text)
    return datetime.now(UTC) - found if isinstance(found, timedelta) else found


# Looking


async def _list(arguments: argparse.Namespace, client: Client[Any]) -> int:
    output, found, cursor = Output(arguments), list[Schedule](), None
    while len(found) < arguments.limit:
        page = await client.list_schedules(limit=min(arguments.limit - len(found), MAX_PAGE), cursor=cursor)
        found += page.items
        cursor = page.next_cursor
        if cursor is None:
            break
    if output.json:
        for each in found:
            output.json_line(_object(each))
    elif found:
        output.table(COLUMNS, [_row(each) for each in found])
        if cursor is not None:
            output.line(f"there are more: these are the first {len(found)}")
    else:
        output.line("there is no schedule")
    return DONE


async def _show(arguments: argparse.Namespace, client: Client[Any]) -> int:
    output = Output(arguments)
    for schedule in [await _get(client, name) for name in dict.fromkeys(arguments.names)]:
        if output.json:
            output.json_line(_object(schedule))
        else:
            for line in str(schedule).splitlines():
                output.line(clean(line))
    return DONE


async def _preview(arguments: argparse.Namespace, client: Client[Any]) -> int:
    output = Output(arguments)
    ticks = await client.preview(arguments.name, arguments.count)
    changes = [_change(before, tick) for before, tick in zip([None, *ticks], ticks, strict=False)]
    if output.json:
        for tick, change in zip(ticks, changes, strict=True):
            output.json_line(
                {
                    "at": tick.at.isoformat(),
                    "local": tick.local.isoformat(),
                    "due": tick.due.isoformat(),
                    "clocks_changed": change,
                }
            )
    elif ticks:
        rows = [
            (_spaced(tick.local), _spaced(tick.at), _spaced(tick.due.astimezone(tick.local.tzinfo)), change)
            for tick, change in zip(ticks, changes, strict=True)
        ]
        output.table(PREVIEW_COLUMNS, rows)
    else:
        output.line("it has no more ticks")
    return DONE


def _spaced(time: datetime) -> str:
    return time.isoformat(sep=" ", timespec="seconds")


def _change(before: Tick | None, tick: Tick) -> str | None:
    """What clocks did between two ticks."""
    if before is None:
        return None
    difference = (tick.local.utcoffset() or timedelta()) - (before.local.utcoffset() or timedelta())
    if not difference:
        return None
    return f"clocks went {'forward' if difference > timedelta() else 'back'} by {abs(difference)}"


# Changing


async def _pause(arguments: argparse.Namespace, client: Client[Any]) -> int:
    async with client.transaction() as tx:
        done = [
            await client.pause_schedule(tx, name, until=arguments.until, **who(arguments))
            for name in dict.fromkeys(arguments.names)
        ]
    output = Output(arguments)
    for schedule in done:
        until = schedule.paused_until
        _report(output, schedule.name, "paused", "" if until is None else f" until {local(until)}", until=until)
    return DONE


async def _resume(arguments: argparse.Namespace, client: Client[Any]) -> int:
    names = list(dict.fromkeys(arguments.names))
    async with client.transaction() as tx:
        # Only to tell which of them were paused.
        before = [await client.get_schedule(name, tx=tx) for name in names]
        done = [await client.resume_schedule(tx, name, **who(arguments)) for name in names]
    output, code = Output(arguments), DONE
    for was, schedule in zip(before, done, strict=True):
        if was is not None and was.status == "paused":
            _report(output, schedule.name, "resumed")
        else:
            _report(output, schedule.name, "not paused")
            code = NOT_DONE
    return code


async def _trigger(arguments: argparse.Namespace, client: Client[Any]) -> int:
    names = list(dict.fromkeys(arguments.names))
    async with client.transaction() as tx:
        chains = [await client.trigger_schedule(tx, name, **who(arguments)) for name in names]
    output = Output(arguments)
    for name, chain in zip(names, chains, strict=True):
        chain_id = None if chain is None else chain.id
        what = " soon, by a worker" if chain is None else f" as chain {chain_id}"
        _report(output, name, "triggered", what, chain_id=chain_id)
    return DONE


async def _backfill(arguments: argparse.Namespace, client: Client[Any]) -> int:
    output, name = Output(arguments), arguments.name
    start, end = arguments.from_time, arguments.to_time
    if start >= end:
        raise CommandError(f"--from must be before --to, got {local(start)} and {local(end)}")
    schedule = await _get(client, name)
    times = schedule.times
    if times is None:
        raise CommandError(f"{name!r} cannot be read here: {schedule.error}")
    if isinstance(times, After):
        raise CommandError(f"{name!r} has no ticks to backfill: it runs {times}")
    until = min(end - MICROSECOND, schedule.read_at)
    ticks = times.last_ticks(until, MOST_BACKFILLED + 1, after=start - MICROSECOND)
    if not ticks:
        raise CommandError(f"{name!r} has no tick from {local(start)} to {local(end)} that has passed", NOT_DONE)
    if len(ticks) > MOST_BACKFILLED:
        raise CommandError(f"{name!r} has more than {MOST_BACKFILLED} ticks in that time: backfill them in parts")
    if not output.json:
        number = f"{len(ticks)} ticks" if len(ticks) > 1 else "1 tick"
        output.line(f"{clean(name)}: {number}, from {_spaced(ticks[0].local)} to {_spaced(ticks[-1].local)}")
    confirm(arguments, "fire them?")
    async with client.transaction() as tx:
        done = await client.backfill(tx, name, start, end, **who(arguments))
    _report(output, name, "backfilled", f": workers fire {done} of its ticks soon", ticks=done)
    return DONE


async def _delete(arguments: argparse.Namespace, client: Client[Any]) -> int:
    output, names = Output(arguments), list(dict.fromkeys(arguments.names))
    confirm(arguments, f"delete {len(names)} schedule{'s' if len(names) > 1 else ''}?")
    async with client.transaction() as tx:
        gone = [await client.delete_schedule(tx, name, **who(arguments)) for name in names]
    for name, schedule in zip(names, gone, strict=True):
        if schedule is None:
            _report(output, name, "not found")
        else:
            comes_back = ": workers declare it, so it comes back within a minute" if schedule.declared else ""
            _report(output, name, "deleted", comes_back)
    return DONE if None not in gone else NOT_DONE


async def _get(client: Client[Any], name: str) -> Schedule:
    schedule = await client.get_schedule(name)
    if schedule is None:
        raise CommandError(f"there is no schedule {clean(name)!r}")
    return schedule


def _report(output: Output, name: str, done: str, more: str = "", **values: object) -> None:
    if output.json:
        output.json_line({"name": name, "done": done, **values})
    else:
        output.line(f"{done}: {clean(name)}{more}")


# What is shown


def _row(schedule: Schedule) -> tuple[object, ...]:
    starts = schedule.job_type or "a function"
    return (
        schedule.name,
        schedule.times or "?",
        starts,
        schedule.status,
        local(schedule.next_at if schedule.status not in ("paused", "disabled") else None),
        local(schedule.last_tick),
    )


def _object(schedule: Schedule) -> dict[str, Any]:
    names = (
        "name", "job_type", "input", "priority", "overlap", "catch_up", "catch_up_max", "declared", "status", "next_at",
        "last_tick", "last_chain_ids", "queued", "skips", "skipped_at", "error", "error_at", "errors", "paused_until",
        "disabled_at", "release", "created_at",
    )  # fmt: skip
    durations = {
        name: None if (value := getattr(schedule, name)) is None else value.total_seconds()
        for name in ("deadline", "within")
    }
    return {
        **{name: getattr(schedule, name) for name in names},
        **durations,
        "failing_ticks": [asdict(each) for each in schedule.failing_ticks],
        "times": None if schedule.times is None else {**schedule.times.to_data(), "text": str(schedule.times)},
    }
