"""What the arguments of all commands have in common."""

from __future__ import annotations

import argparse
import getpass
import math
import os
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeVar

from queuert.base.arguments import MAX_NAME_LENGTH
from queuert.errors import InvalidArgument
from queuert.jobs.filter_text import duration_of
from queuert.operate import pauses
from queuert.operate.exits import CommandError
from queuert.operate.names import UnknownName

if TYPE_CHECKING:
    # At run time the class cannot be subscripted.
    Parsers = argparse._SubParsersAction[argparse.ArgumentParser]  # pyright: ignore[reportPrivateUsage]
else:
    Parsers = argparse._SubParsersAction

Run = Callable[[argparse.Namespace], int]
T = TypeVar("T")


def add_command(
    parsers: Parsers, name: str, summary: str, text: str, run: Run, *, inherits: bool = False
) -> argparse.ArgumentParser:
    """A parser for one command. `text` is its long help, `summary` its line in the list.

    `inherits`: it is an action of another command. An option that is not given here has the value
    that it has there, unless it has a default of its own.
    """
    parser = parsers.add_parser(
        name,
        help=summary,
        description=text,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
        argument_default=argparse.SUPPRESS if inherits else None,
    )
    parser.add_argument("--traceback", action="store_true", help="show where an error comes from")
    parser.set_defaults(run=run)
    return parser


def add_by(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--by", metavar="WHO", default=None, help="who does it, for `queuert audit` (default: your user name)"
    )


def add_who(parser: argparse.ArgumentParser) -> None:
    """The options of all commands that change something."""
    add_by(parser)
    parser.add_argument("--reason", metavar="TEXT", default=None, help="why, for `queuert audit`")


def by_of(arguments: argparse.Namespace) -> str:
    """Who does it: the user of the system, unless it was given."""
    if arguments.by is not None:
        return str(arguments.by)
    try:
        name = getpass.getuser()
    except (ImportError, KeyError, OSError):  # a container, perhaps: its user has a number and no name
        name = f"user {os.getuid()}" if hasattr(os, "getuid") else "user"
    return name[:MAX_NAME_LENGTH]


def who(arguments: argparse.Namespace) -> dict[str, Any]:
    """Who does it and why, as the client takes it."""
    return {"by": by_of(arguments), "reason": arguments.reason}


def add_anyway(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--anyway", action="store_true", help="also names that nothing in the database has yet")


async def known(arguments: argparse.Namespace, check: Awaitable[None]) -> None:
    """Refuse names that are not known, unless `--anyway` is given."""
    try:
        await check
    except UnknownName as error:
        if not arguments.anyway:
            raise CommandError(f"{error} (for a name that does not exist yet: --anyway)") from None


def positive(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text) > 0):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of 1 or more")
    return int(text)


def not_negative(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of 0 or more")
    return int(text)


def seconds(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 <= number < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds")
    return number


def duration(text: str) -> timedelta:
    found = duration_of(text)
    if found is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a duration, like 90s, 15m, 2h or 3d")
    return found


def given(read: Callable[[str], T], text: str) -> T:
    """What `read` makes of an argument."""
    try:
        return read(text)
    except InvalidArgument as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def time_or_duration(text: str) -> datetime | timedelta:
    """A time, in the local zone unless it has one, or a duration."""
    return given(pauses.time_or_duration, text)
