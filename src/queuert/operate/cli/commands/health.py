"""`queuert health`: one line and an exit code, for monitors."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Sequence

from queuert.base.times import length_of
from queuert.errors import QueuertError, SchemaMissing
from queuert.operate.cli.arguments import Parsers, add_command, not_negative, seconds
from queuert.operate.cli.database import add_database_options, open_client
from queuert.operate.counts import BOUND, Count, total
from queuert.operate.exits import DONE, CommandError
from queuert.operate.terminal import Output, add_output_options, clean, hidden
from queuert.records.model import TypeStats

TEXT = """\
Checks limits, writes one line, and ends with the exit codes that monitors know: 0 if all is well, 2
if a limit is passed, 3 if the database could not be asked. Without limits, only the database is
checked.
"""

CRITICAL = 2
UNKNOWN = 3
NAMED = 5
"""Job types that are named in the line."""


def add(parsers: Parsers) -> None:
    parser = add_command(parsers, "health", "one line and an exit code, for monitors", TEXT, run)
    parser.add_argument(
        "--max-age",
        metavar="SECONDS",
        type=seconds,
        help="how long the oldest job that could run may have waited (default: no limit)",
    )
    parser.add_argument(
        "--max-failed", metavar="N", type=not_negative, help="how many jobs may have failed (default: no limit)"
    )
    parser.add_argument(
        "--timeout", metavar="SECONDS", type=seconds, default=30.0, help="how long the check may take (default: 30)"
    )
    add_output_options(parser)
    add_database_options(parser)


def run(arguments: argparse.Namespace) -> int:
    output = Output(arguments)
    try:
        stats = asyncio.run(_stats(arguments))
    except (CommandError, QueuertError, OSError) as error:
        if arguments.traceback:
            raise
        missing = isinstance(error, SchemaMissing)
        text = "the database has no tables: run `queuert migrate`" if missing else " ".join(str(error).split())
        return _report(output, UNKNOWN, "UNKNOWN", [text or type(error).__name__], [])
    bound = _bound(arguments)
    problems = [*_too_old(stats, arguments.max_age), *_too_many_failed(stats, arguments.max_failed, bound)]
    if problems:
        return _report(output, CRITICAL, "CRITICAL", problems, stats, bound)
    return _report(output, DONE, "OK", [], stats, bound)


def _bound(arguments: argparse.Namespace) -> int:
    """How many jobs of each type and status are counted. It is enough for the limit."""
    return max(BOUND, arguments.max_failed or 0)


async def _stats(arguments: argparse.Namespace) -> list[TypeStats]:
    try:
        async with asyncio.timeout(arguments.timeout or None), open_client(arguments) as client:
            return await client.stats(limit=_bound(arguments) + 1)
    except TimeoutError:
        raise CommandError(f"the database has not answered within {arguments.timeout:g} s", UNKNOWN) from None


def _too_old(stats: Sequence[TypeStats], limit: float | None) -> list[str]:
    if limit is None:
        return []
    ages = {each.job_type: each.oldest_ready_age or 0.0 for each in stats}
    waiting = sorted(((age, name) for name, age in ages.items() if age > limit), reverse=True)
    return [f"{clean(name)} has waited for {length_of(age)}" for age, name in waiting[:NAMED]] + _more(waiting)


def _too_many_failed(stats: Sequence[TypeStats], limit: int | None, bound: int) -> list[str]:
    failed = sorted(((each.failed, each.job_type) for each in stats if each.failed), reverse=True)
    if limit is None or sum(count for count, _ in failed) <= limit:
        return []
    named = [f"{Count.up_to(bound, count)} of {clean(name)} failed" for count, name in failed[:NAMED]]
    return named + _more(failed)


def _more(found: Sequence[object]) -> list[str]:
    return [f"and {len(found) - NAMED} other types"] if len(found) > NAMED else []


def _report(
    output: Output, code: int, word: str, problems: Sequence[str], stats: Sequence[TypeStats], bound: int = BOUND
) -> int:
    ages = [each.oldest_ready_age for each in stats if each.oldest_ready_age is not None]
    is_open = total(
        Count.up_to(bound, number) for each in stats for number in (each.blocked, each.pending, each.running)
    )
    failed = total(Count.up_to(bound, each.failed) for each in stats)
    problems = [hidden(clean(each)) for each in problems]
    if output.json:
        figures = {
            "open": is_open.number,
            "failed": failed.number,
            "oldest_ready_age": max(ages, default=0.0),
            "at_least": [name for name, count in (("open", is_open), ("failed", failed)) if count.at_least],
        }
        output.json_line({"status": word, "problems": list(problems), **({} if code == UNKNOWN else figures)})
    elif code == UNKNOWN:
        sys.stderr.write(f"UNKNOWN: {'; '.join(problems)}\n")
    else:
        oldest = f"the oldest ready job has waited for {length_of(max(ages))}" if ages else "no job is ready"
        state = f"{is_open} open jobs, {failed} failed, {oldest}"
        output.line(f"{word}: {'; '.join(problems) or state}")
    return code
