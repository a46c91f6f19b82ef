"""`queuert top`: the dashboard in a terminal."""

from __future__ import annotations

import argparse
import sys
from typing import Any
from urllib.parse import urlsplit

from queuert.client.client import Client
from queuert.errors import DriverMissing
from queuert.operate.cli.arguments import Parsers, add_by, by_of
from queuert.operate.cli.database import add_client_command, url_of
from queuert.operate.exits import DONE, CommandError

TEXT = """\
Shows jobs, workers, queues and schedules in the terminal, and keeps them up to date. Keys are shown
at the bottom; ? shows all of them. Changes ask for a reason, which is recorded with your name.
"""


def add(parsers: Parsers) -> None:
    parser = add_client_command(parsers, "top", "look at everything, live, in the terminal", TEXT, _top)
    add_by(parser)


async def _top(arguments: argparse.Namespace, client: Client[Any]) -> int:
    try:
        from queuert.operate.top.app import Top
    except ImportError as error:
        raise DriverMissing("textual", ["tui"], error) from None
    if arguments.json:
        raise CommandError("top is for people: use `queuert status --watch --json`")
    if not sys.stdout.isatty():
        raise CommandError("top needs a terminal: use `queuert status`")
    await Top(client, by_of(arguments), _named(url_of(arguments))).run_async()
    return DONE


def _named(url: str) -> str:
    """Where the database is, without user and password."""
    parts = urlsplit(url)
    return f"{parts.hostname or ''}{parts.path}".replace("//", "/")
