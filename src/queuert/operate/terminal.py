"""What a command writes: tables that fit the terminal, or one JSON object a line."""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec

from queuert.operate.exits import NOT_DONE, CommandError
from queuert.operate.times import iso

NARROWEST = 6
"""Columns of a cell that is cut."""
NARROWEST_ID = 20
"""The same for a column that is cut only if nothing else helps: an id. Its beginning is enough for
other commands."""
GAP = "  "

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
"""Control characters of terminals, and of Unicode: those that change the direction of text, too."""
_PASSWORD = re.compile(r"(password\s*=\s*)(?:'(?:[^'\\]|\\.)*'|[^\s&]+)|(://[^\s:/@]*:)[^\s@]+(?=@)", re.IGNORECASE)

COLOURS = {"red": "31", "green": "32", "yellow": "33", "blue": "34", "dim": "2", "bold": "1"}
STATUS_COLOURS = {
    "running": "blue",
    "completed": "green",
    "failed": "red",
    "expired": "red",
    "cancelled": "dim",
    "blocked": "yellow",
    "alive": "green",
    "dead": "red",
    "paused": "yellow",
    "failing": "red",
}
"""Of chains, workers and schedules, also in `queuert top`."""


@dataclass(frozen=True)
class Column:
    """`flexible`: it is cut if the table is too wide."""

    title: str
    right: bool = False
    flexible: bool = False


def add_output_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="write one JSON object a line")


class Output:
    """stdout, with or without colours. Text from the database is never trusted with it."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.json = bool(arguments.json)
        is_terminal = sys.stdout.isatty()
        self.is_terminal = is_terminal
        self._colours = is_terminal and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"
        # Into a pipe or a file, nothing is cut.
        self._width = shutil.get_terminal_size().columns if is_terminal or "COLUMNS" in os.environ else None

    def line(self, text: str = "") -> None:
        sys.stdout.write(f"{text}\n")

    def json_line(self, value: Mapping[str, Any]) -> None:
        text = json.dumps(value, default=plain, ensure_ascii=False)
        self.line(_CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", text))

    def cut(self, text: str, used: int = 0) -> str:
        """What fits the rest of a line of which this many columns are used."""
        room = None if self._width is None else max(1, self._width - used)
        return text if room is None or len(text) <= room else f"{text[: room - 1]}…"

    def coloured(self, text: str, colour: str | None) -> str:
        return f"\x1b[{COLOURS[colour]}m{text}\x1b[0m" if self._colours and colour and text.strip() else text

    def status(self, status: str) -> str:
        return self.coloured(status, STATUS_COLOURS.get(status))

    def table(self, columns: Sequence[Column], rows: Sequence[Sequence[object]], colours: str = "") -> None:
        """`colours` names the column whose text is a status."""
        cells = [[clean("" if cell is None else str(cell)) for cell in row] for row in rows]
        widths = self._widths(columns, cells)
        titles = [column.title.upper() for column in columns]
        for number, row in enumerate([titles, *cells]):
            shown = [
                self._cell(text, width, column, heading=number == 0, is_status=column.title == colours)
                for text, width, column in zip(row, widths, columns, strict=True)
            ]
            self.line(GAP.join(shown).rstrip())

    def _cell(self, text: str, width: int, column: Column, *, heading: bool, is_status: bool) -> str:
        cut = text if len(text) <= width else f"{text[: width - 1]}…"
        padded = cut.rjust(width) if column.right else cut.ljust(width)
        if heading:
            return self.coloured(padded, "bold")
        return self.coloured(padded, STATUS_COLOURS.get(text)) if is_status else padded

    def _widths(self, columns: Sequence[Column], cells: Sequence[Sequence[str]]) -> list[int]:
        widths = [max(len(column.title), *(len(row[at]) for row in cells), 1) if cells else len(column.title)
                  for at, column in enumerate(columns)]  # fmt: skip
        if self._width is None:
            return widths
        flexible = [at for at, column in enumerate(columns) if column.flexible]
        room = self._width - len(GAP) * (len(widths) - 1)
        narrow(widths, flexible, NARROWEST, room)
        narrow(widths, range(len(widths)), NARROWEST_ID, room)
        narrow(widths, range(len(widths)), NARROWEST, room)
        return widths

    def clear_screen(self) -> None:
        if self.is_terminal:
            sys.stdout.write("\x1b[H\x1b[2J")


def narrow(widths: list[int], which: Sequence[int], narrowest: int, room: int) -> None:
    """Make the widest of these columns narrower, until all columns together have room."""
    while which and sum(widths) > room:
        widest = max(which, key=lambda at: widths[at])
        if widths[widest] <= narrowest:
            break
        widths[widest] -= 1


def clean(text: str) -> str:
    """Without control characters: they could move the cursor, or hide text."""
    return _CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def hidden(text: str) -> str:
    """Without passwords, as they are in URLs and in the settings of PostgreSQL."""
    return _PASSWORD.sub(lambda found: f"{found[1] or found[2]}…", text)


def confirm(arguments: argparse.Namespace, question: str) -> None:
    """Ask, unless `--yes` was given. Raises if the answer is not yes."""
    if arguments.yes:
        return
    if not sys.stdin.isatty():
        raise CommandError("not confirmed: there is no terminal to ask on, so give --yes", NOT_DONE)
    sys.stdout.flush()
    # The event loop's handler of Ctrl-C only cancels the task, which waits here.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        sys.stderr.write(f"{question} [y/N] ")
        sys.stderr.flush()
        answer = sys.stdin.readline()
    finally:
        signal.signal(signal.SIGINT, before)
    if answer.strip().lower() not in ("y", "yes"):
        raise CommandError("not confirmed: nothing was changed", NOT_DONE)


def plain(value: object) -> Any:
    # The output of a bulk operation, and no target of a pause, which has a text of its own.
    if isinstance(value, msgspec.Struct) and type(value).__str__ is object.__str__:
        return msgspec.to_builtins(value)
    return iso(value) if isinstance(value, datetime) else str(value)
