"""`queuert worker`: runs your worker in one or several processes."""

from __future__ import annotations

import argparse
import asyncio
import os
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from queuert.operate.cli.arguments import Parsers, add_command, positive, seconds

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
    parser.add_argument("place", metavar="WORKER", help="package.module:name")
    parser.add_argument(
        "--processes",
        metavar="N",
        type=_processes,
        default=1,
        help="how many processes to run, or 'auto' for one per core (default: 1)",
    )
    parser.add_argument("--health", metavar="HOST:PORT", help="answer /live, /ready and /metrics there")
    parser.add_argument(
        "--until-empty", action="store_true", help="end when no job can run (jobs that wait for their time stay)"
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


def run(arguments: argparse.Namespace) -> int:
    # Imported here: other commands need none of it.
    from queuert.operate.cli.supervisor.health import parse_address
    from queuert.operate.cli.supervisor.logs import set_up_logging
    from queuert.operate.cli.supervisor.supervisor import SupervisorOptions

    address = None if arguments.health is None else parse_address(arguments.health)
    set_up_logging(arguments.log_level)
    options = SupervisorOptions(
        place=arguments.place,
        processes=arguments.processes,
        start_timeout=arguments.start_timeout,
        kill_after=arguments.kill_after,
        max_jobs=arguments.max_jobs,
        until_empty=arguments.until_empty,
        log_level=arguments.log_level,
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
        return await supervisor.run()


def _processes(text: str) -> int:
    if text != "auto":
        return positive(text)
    # Not all cores of the machine may be for this process.
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
