"""The public modules and names, as docs/api.md lists them. That page is the one list."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
PAGE = ROOT / "docs" / "api.md"

SECTION = re.compile(r"^## `(?P<module>[\w.]+)`$(?P<text>.*?)(?=^#|\Z)", re.MULTILINE | re.DOTALL)
NAMES = re.compile(r"`(\w+)`")


@dataclass(frozen=True)
class Topic:
    """A row of the page: what it is about, in Markdown, and its names."""

    about: str
    names: tuple[str, ...]


@cache
def topics() -> dict[str, tuple[Topic, ...]]:
    """For each public module, the rows of its table."""
    return {section["module"]: tuple(_rows(section["text"])) for section in SECTION.finditer(PAGE.read_text("utf-8"))}


@cache
def surface() -> dict[str, list[str]]:
    """For each public module, its public names."""
    return {module: [name for topic in rows for name in topic.names] for module, rows in topics().items()}


def _rows(text: str) -> list[Topic]:
    rows = [line.strip("| ").rsplit(" | ", 1) for line in text.splitlines() if line.startswith("| ")]
    return [Topic(about, tuple(NAMES.findall(names))) for about, names in rows if NAMES.search(names)]
