"""The database that a command looks at, without any code of the application."""

from __future__ import annotations

import argparse
import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Any

from queuert.base.contexts import async_context
from queuert.client.client import Client
from queuert.operate.cli.arguments import Parsers, add_command
from queuert.operate.exits import DATABASE, DONE, CommandError
from queuert.operate.terminal import add_output_options
from queuert.wiring import ClientOptions, connect
from queuert.wiring.urls import database_file, is_postgres

URL = "QUEUERT_URL"

Work = Callable[[argparse.Namespace, Client[Any]], Awaitable[int]]
"""What a command does with the client. It returns the exit code."""


def add_client_command(
    parsers: Parsers,
    name: str,
    summary: str,
    text: str,
    work: Work,
    *,
    goes_on: Callable[[argparse.Namespace], bool] = lambda _: False,
    inherits: bool = False,
) -> argparse.ArgumentParser:
    """A command that reads or changes jobs, with the options that all of them have.

    `goes_on` tells whether it runs until Ctrl-C, which is no error then. `inherits`: see
    `add_command`.
    """
    parser = add_command(parsers, name, summary, text, partial(_run, work, goes_on), inherits=inherits)
    add_output_options(parser)
    add_database_options(parser)
    return parser


def _run(work: Work, goes_on: Callable[[argparse.Namespace], bool], arguments: argparse.Namespace) -> int:
    try:
        return run_with_client(arguments, work)
    except KeyboardInterrupt:
        if not goes_on(arguments):
            raise
        return DONE


def add_database_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("the database")
    group.add_argument(
        "--url", help=f"postgresql://user@host/database or sqlite:///file.db (default: the variable {URL})"
    )
    group.add_argument("--schema", help="PostgreSQL: the schema of the tables (default: public)")
    group.add_argument("--table-prefix", metavar="PREFIX", help="the prefix of table names (default: queuert_)")
    group.add_argument(
        "--notify",
        metavar="CHANNEL",
        help="how workers are told of changes: the broker's URL that your application uses, or 'none' "
        "(default: through the database). With another channel than theirs, they notice by polling",
    )


def url_of(arguments: argparse.Namespace) -> str:
    url: str | None = arguments.url or os.environ.get(URL)
    if not url:
        raise CommandError(f"which database? Give --url, or set {URL}")
    if url.startswith("memory:"):
        raise CommandError("a database in memory can be seen only by the process that made it")
    return url


def table_options(arguments: argparse.Namespace) -> ClientOptions:
    options: ClientOptions = {}
    if arguments.schema is not None:
        options["schema"] = arguments.schema
    if arguments.table_prefix is not None:
        options["table_prefix"] = arguments.table_prefix
    return options


def make_client(arguments: argparse.Namespace) -> Client[Any]:
    """A client that changes no tables by itself, and knows no job types: it shows plain JSON."""
    url = url_of(arguments)
    options = table_options(arguments)
    if arguments.notify is not None:
        options["notify"] = None if arguments.notify == "none" else arguments.notify
    if is_postgres(url):
        options["pool_size"] = 2
    options["migrate"] = False
    return connect(url, jobs=[], **options)


@async_context
async def open_client(arguments: argparse.Namespace) -> AsyncIterator[Client[Any]]:
    """The client of a command that reads or changes jobs. It creates no file."""
    client = make_client(arguments)
    file = database_file(url_of(arguments))
    if file is not None and not file.exists():
        raise CommandError(
            f"there is no file {file}: check --url, or create the database with `queuert migrate`", DATABASE
        )
    async with client:
        yield client


def run_with_client(arguments: argparse.Namespace, work: Work) -> int:
    async def run() -> int:
        async with open_client(arguments) as client:
            return await work(arguments, client)

    return asyncio.run(run())
