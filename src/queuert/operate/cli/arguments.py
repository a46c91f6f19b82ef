"""What the arguments of all commands have in common."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, TypeVar

from queuert.errors import InvalidArgument
from queuert.jobs.filter_text import duration_of
from queuert.operate import pauses

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
