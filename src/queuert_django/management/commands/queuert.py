"""`manage.py queuert …`: the `queuert` command on a database of this project, with its jobs."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import connections

from queuert.errors import QueuertError
from queuert.operate.cli import main
from queuert_django.clients import conninfo, database_file
from queuert_django.options import DatabaseOptions, options_of
from queuert_django.worker import CONCURRENCY, OPTIONS, PLACE

URL = "QUEUERT_URL"


class Command(BaseCommand):
    help = "Runs the queuert command on a database of this project: manage.py queuert status"
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--database", default="default", help="the alias of the database with the jobs")
        parser.add_argument("arguments", nargs=argparse.REMAINDER, metavar="COMMAND …", help="see: queuert --help")

    def handle(self, *_: Any, **options: Any) -> None:
        command, *arguments = options["arguments"] or ["--help"]
        worker: dict[str, Any] = {"database": options["database"]}
        if command == "worker":
            worker, arguments = _worker_options(worker, arguments)
        alias = worker["database"]
        if alias not in connections:
            raise CommandError(f"there is no database {alias!r} in DATABASES")
        try:
            url, places = url_of(alias), table_options(options_of(alias))
        except QueuertError as error:
            raise CommandError(str(error)) from error
        # Not an argument: all users of the machine see those, and this may have a password in it.
        os.environ[URL] = url
        os.environ[OPTIONS] = json.dumps(worker)
        if command == "worker":
            self.check()
            places = []
        main([command, *arguments, *places], app=PLACE)


def _worker_options(given: dict[str, Any], arguments: Sequence[str]) -> tuple[dict[str, Any], list[str]]:
    """The options of the project's worker, and the rest, which is for `queuert worker`."""
    parser = argparse.ArgumentParser(
        prog="manage.py queuert worker",
        usage="manage.py queuert worker [option …]",
        description="Runs the handlers and schedules of this project. Its own options:",
        add_help=False,
        allow_abbrev=False,
        argument_default=argparse.SUPPRESS,
    )
    parser.add_argument("--database", help="the alias of the database with the jobs (default: default)")
    parser.add_argument(
        "--concurrency", type=int, metavar="N", help=f"how many jobs a process runs at once (default: {CONCURRENCY})"
    )
    parser.add_argument("--queues", type=_names, help="the names of the queues to serve, with commas (default: all)")
    parser.add_argument(
        "--poll-interval",
        type=float,
        metavar="SECONDS",
        help="how often to look for jobs without a notification (default: 5)",
    )
    parser.add_argument("--name", help="the beginning of the ids of the workers")
    parser.add_argument("--release", help="the release of your code, for `queuert workers`")
    found, rest = parser.parse_known_args(arguments)
    if {"-h", "--help"} & set(rest):
        parser.print_help()
    return {**given, **vars(found)}, rest


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",")]


def url_of(alias: str) -> str:
    """The database of the settings in the form that the command accepts."""
    wrapper: Any = connections[alias]
    if wrapper.vendor != "postgresql":
        return f"sqlite:///{quote(str(Path(database_file(wrapper)).absolute()))}"
    from psycopg.conninfo import conninfo_to_dict

    parameters = conninfo_to_dict(conninfo(wrapper))
    return f"postgresql:///{quote(str(parameters.pop('dbname', '')), safe='')}?{urlencode(parameters, quote_via=quote)}"


def table_options(options: DatabaseOptions) -> list[str]:
    found = [("--schema", options.get("schema")), ("--table-prefix", options.get("table_prefix"))]
    return [part for name, value in found if value is not None for part in (name, value)]
