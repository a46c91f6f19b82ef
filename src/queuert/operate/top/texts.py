"""Texts for the terminal. What comes from the database is never markup, and moves no cursor."""

from __future__ import annotations

import json
from typing import Any

from rich.text import Text

from queuert.base.times import length_of
from queuert.operate.terminal import STATUS_COLOURS, clean, plain

STATUS_MARKS = {
    "running": "▶",
    "completed": "✓",
    "failed": "✗",
    "expired": "✗",
    "cancelled": "–",
    "blocked": "⏸",
    "pending": "·",
}
"""So that nothing depends on colours."""
LONGEST_VALUE = 20_000
"""Characters of a value as JSON."""


def text(value: object, style: str = "") -> Text:
    return Text(clean("" if value is None else str(value)), style=style, no_wrap=True, overflow="ellipsis")


def lines(value: str, style: str = "") -> Text:
    return Text("\n".join(clean(line) for line in value.splitlines()), style=style)


def status(value: str | None) -> Text:
    mark = STATUS_MARKS.get(value or "", "")
    return text(f"{mark} {value or ''}".strip(), STATUS_COLOURS.get(value or "", ""))


def age(seconds: float | None) -> Text:
    return text("" if seconds is None else length_of(seconds))


def as_json(value: Any) -> Text:
    found = json.dumps(value, ensure_ascii=False, default=plain, indent=2)
    return lines(found if len(found) <= LONGEST_VALUE else f"{found[:LONGEST_VALUE]}\n… `queuert show` has all of it")
