"""Reads the arguments, runs a command, and turns what it raises into one line and an exit code."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import NoReturn

from queuert.errors import ChainError, DriverMissing, QueuertError, ScheduleNotFound, SchemaMissing, StorageError
from queuert.operate.cli.commands import COMMANDS
from queuert.operate.exits import CLOSED_PIPE, DATABASE, INTERRUPTED, NOT_DONE, USAGE, CommandError
from queuert.operate.terminal import clean, hidden


def main(arguments: Sequence[str] | None = None, *, app: str | None = None) -> NoReturn:
    """Run the `queuert` command, and end the process with its exit code.

    `app`: the place of the application, for commands that need its code and are given none.
    """
    parsed = _parser().parse_args(arguments, argparse.Namespace(default_app=app))
    try:
        code: int = parsed.run(parsed)
        sys.stdout.flush()
    except BrokenPipeError:
        # The interpreter flushes stdout once more when it ends, and would complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = CLOSED_PIPE
    except KeyboardInterrupt:
        code = INTERRUPTED
    except (CommandError, QueuertError, OSError) as error:
        if parsed.traceback:
            raise
        print(f"queuert {parsed.command}: {_one_line(error)}", file=sys.stderr)  # noqa: T201
        code = _code(error)
    sys.exit(code)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        super().error(hidden(clean(message)))


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="queuert", description="Look at jobs, change them, and run workers.", allow_abbrev=False)
    parser.add_argument("--version", action="version", version=f"queuert {_version()}")
    parsers = parser.add_subparsers(title="commands", metavar="COMMAND", dest="command", required=True)
    for command in COMMANDS:
        command.add(parsers)
    return parser


def _version() -> str:
    try:
        return version("queuert")
    except PackageNotFoundError:
        return "(not installed)"


def _one_line(error: Exception) -> str:
    if isinstance(error, SchemaMissing):
        return "the tables of this version are not in the database: run `queuert migrate` with the same --url"
    if isinstance(error, ScheduleNotFound):
        return f"there is no schedule {clean(repr(error.name))}: `queuert schedules` shows all of them"
    return hidden(clean(" ".join(str(error).split()))) or type(error).__name__


def _code(error: Exception) -> int:
    if isinstance(error, CommandError):
        return error.code
    if isinstance(error, ChainError):
        return NOT_DONE  # it has changed in the meantime, or is needed by another one
    return DATABASE if isinstance(error, StorageError | DriverMissing | OSError) else USAGE
