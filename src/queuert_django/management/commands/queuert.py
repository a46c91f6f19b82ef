"""`manage.py queuert …`: the `queuert` command on a database of this project."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import connections

from queuert.errors import QueuertError
from queuert.operate.cli import main
from queuert_django.clients import conninfo, database_file
from queuert_django.options import DatabaseOptions, options_of

URL = "QUEUERT_URL"


class Command(BaseCommand):
    help = "Runs the queuert command on a database of this project: manage.py queuert status"
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--database", default="default", help="the alias of the database with the jobs")
        parser.add_argument("arguments", nargs=argparse.REMAINDER, metavar="COMMAND …", help="see: queuert --help")

    def handle(self, *_: Any, **options: Any) -> None:
        alias = options["database"]
        if alias not in connections:
            raise CommandError(f"there is no database {alias!r} in DATABASES")
        try:
            url, places = url_of(alias), table_options(options_of(alias))
        except QueuertError as error:
            raise CommandError(str(error)) from error
        # Not an argument: all users of the machine see those, and this may have a password in it.
        os.environ[URL] = url
        main([*options["arguments"], *(places if options["arguments"][:1] != ["worker"] else [])])


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
