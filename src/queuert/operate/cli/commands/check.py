"""`queuert check`: whether this code can run the jobs that are stored, before it is deployed."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import Any

from queuert.client.client import Client
from queuert.features.compatibility import Compatibility, check
from queuert.operate.cli.application import Application, places_in
from queuert.operate.cli.arguments import Parsers, positive
from queuert.operate.cli.database import add_client_command
from queuert.operate.exits import DONE, NOT_DONE, CommandError
from queuert.operate.terminal import Output, clean

TEXT = """\
Decodes the jobs that are stored and open with the classes of your code, before you deploy it. It
lists inputs that no longer fit their class, types that your code does not know, and types without a
handler, also of schedules. If --app names a worker, it also lists the schedules that your code
would change. Nothing is changed.

--app names a client, a Worker, Handlers, or a plain function that returns one of these. Give it
several times to name a client and its handlers. Without handlers, they are not checked.

It ends with 0 if this code can run all jobs that were examined, and with 1 otherwise.
"""

EXAMINED = 10_000


def add(parsers: Parsers) -> None:
    parser = add_client_command(
        parsers, "check", "find out whether your code can run the jobs that are stored", TEXT, _check
    )
    parser.add_argument("--app", metavar="PLACE", action="append", help="package.module:name, like shop.jobs:worker")
    parser.add_argument("--against", metavar="URL", dest="url", help="the database, the same as --url")
    parser.add_argument(
        "--limit", metavar="N", type=positive, default=EXAMINED, help=f"examine this many jobs (default: {EXAMINED})"
    )
    parser.add_argument("--all", action="store_true", help="examine all open jobs")


async def _check(arguments: argparse.Namespace, client: Client[Any]) -> int:
    places = places_in(arguments)
    if not places:
        raise CommandError("which code? Give --app, like --app shop.jobs:worker")
    application, sessions = Application(places), client.sessions
    registry = application.registry()
    if not len(registry):
        raise CommandError(f"there are no job types in {', '.join(places)}: name a client, or handlers")
    limit = None if arguments.all else arguments.limit
    found = await sessions.run(check(sessions.engine, registry, application.handled(), limit, application.declared()))
    _show(Output(arguments), found)
    return DONE if found.fits else NOT_DONE


def _show(output: Output, found: Compatibility) -> None:
    for problem in found.problems:
        if output.json:
            output.json_line(asdict(problem))
            continue
        number = "1 job" if problem.jobs == 1 else f"{problem.jobs} jobs"
        what = output.coloured(problem.problem.replace("_", " "), "red")
        output.line(f"{what}: {number} of type {clean(problem.job_type)}, the first is {problem.first_id}")
        output.line(f"  {clean(problem.message)}")
    for finding in found.findings:
        if output.json:
            output.json_line(asdict(finding))
            continue
        what = output.coloured(
            finding.problem.replace("_", " "), "red" if finding.problem != "would_change" else "yellow"
        )
        output.line(f"{what}: schedule {clean(finding.schedule)}")
        output.line(f"  {clean(finding.message)}")
    if output.json:
        return
    wrong = sum(problem.jobs for problem in found.problems)
    more = "" if found.complete else ", and there are more: use --all"
    result = f"this code cannot run {wrong} of them" if wrong else "this code can run them"
    output.line(f"{found.examined} open jobs examined{more}: {result}")
    if found.schedules:
        wrong = sum(each.problem != "would_change" for each in found.findings)
        result = f"this code cannot start {wrong} of them" if wrong else "this code can start them"
        output.line(f"{found.schedules} schedules examined: {result}")
