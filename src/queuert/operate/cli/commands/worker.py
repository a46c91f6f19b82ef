"""`queuert worker`: runs your worker in one or several processes."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from queuert.operate.cli.arguments import Parsers, add_command, positive, seconds
from queuert.operate.exits import CommandError

if TYPE_CHECKING:
    from queuert.operate.cli.supervisor.supervisor import SupervisorOptions

TEXT = """\
Runs a worker in one or several processes, and keeps them running.

WORKER names a Worker, or a function without arguments that returns one (also async, or as an async
context manager). The default name is "worker": shop.jobs means shop.jobs:worker.

signals:
  SIGTERM, SIGINT  all processes finish their jobs and end; a second signal aborts running jobs
  SIGHUP           all processes are replaced, one after the other: the new one is ready before the
                   old one stops; if it does not become ready, the old one is kept
"""


def add(parsers: Parsers) -> None:
    parser = add_command(parsers, "worker", "run your worker, in one or several processes", TEXT, run)
    parser.add_argument("place", metavar="WORKER", nargs="?", help="package.module:name")
    parser.add_argument(
        "--processes",
        metavar="N",
        type=_processes,
        default=1,
        help="how many processes to run, or 'auto' for one per core (default: 1)",
    )
    parser.add_argument("--health", metavar="HOST:PORT", help="answer /live, /ready and /metrics there")
    until = parser.add_mutually_exclusive_group()
    until.add_argument(
        "--until-empty",
        action="store_true",
        help="end when no job can run in any process; the last line and the exit code tell what is left",
    )
    until.add_argument(
        "--until-done",
        metavar="CHAIN",
        nargs="+",
        default=(),
        help="end when these chains have ended; the exit code is 1 if one has no output",
    )
    parser.add_argument(
        "--max-jobs", metavar="N", type=positive, help="replace a process when it has run this many jobs, or a few more"
    )
    parser.add_argument(
        "--kill-after",
        metavar="SECONDS",
        type=seconds,
        default=60.0,
        help="kill a process whose event loop has not answered for this long; 0: never (default: 60)",
    )
    parser.add_argument(
        "--start-timeout",
        metavar="SECONDS",
        type=seconds,
        default=120.0,
        help="how long a process may take to import your code, and a new one to become ready (default: 120)",
    )
    parser.add_argument(
        "--log-level",
        metavar="LEVEL",
        type=str.upper,
        choices=("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"),
        default="INFO",
        help="for processes whose code does not set up logging (default: INFO)",
    )
    parser.add_argument(
        "--log-format",
        choices=("text", "json"),
        default="text",
        help="json: one object a line, with tracebacks inside; text: a traceback once a minute per error, or all of "
        "them with --log-level DEBUG (default: text)",
    )


def run(arguments: argparse.Namespace) -> int:
    # Imported here: other commands need none of it.
    from queuert.operate.cli.supervisor.health import parse_address
    from queuert.operate.cli.supervisor.logs import set_up_logging
    from queuert.operate.cli.supervisor.supervisor import SupervisorOptions

    address = None if arguments.health is None else parse_address(arguments.health)
    place = arguments.place or arguments.default_app
    if place is None:
        raise CommandError("which worker? Name it, like shop.jobs:worker")
    set_up_logging(arguments.log_level, arguments.log_format)
    options = SupervisorOptions(
        place=place,
        processes=arguments.processes,
        start_timeout=arguments.start_timeout,
        kill_after=arguments.kill_after,
        max_jobs=arguments.max_jobs,
        until_empty=arguments.until_empty,
        until_done=arguments.until_done,
        log_level=arguments.log_level,
        log_format=arguments.log_format,
        traceback=arguments.traceback,
    )
    return asyncio.run(_run(options, address))


async def _run(options: SupervisorOptions, address: tuple[str, int] | None) -> int:
    from queuert.operate.cli.supervisor.health import serving_health
    from queuert.operate.cli.supervisor.supervisor import Supervisor
    from queuert.operate.cli.supervisor.systemd import ServiceManager

    supervisor = Supervisor(options, ServiceManager(os.environ))
    async with AsyncExitStack() as stack:
        if address is not None:
            await stack.enter_async_context(serving_health(supervisor, *address))
        code = await supervisor.run()
    if supervisor.error is not None:
        raise CommandError(supervisor.error)
    if supervisor.result is not None:
        sys.stdout.write(f"{supervisor.result}\n")
    return code


def _processes(text: str) -> int:
    if text != "auto":
        return positive(text)
    # Not all cores of the machine may be for this process.
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
