"""docs/observability.md names everything that there is, and nothing else."""

from __future__ import annotations

import inspect
import logging
import re
from pathlib import Path

from queuert import Observer
from queuert.observability.logging import MESSAGES
from queuert.ports.observer import EVENTS

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "observability.md").read_text("utf-8")

ROW = re.compile(r"^\| `([a-z_.]+)` \| (.*?) \|", re.MULTILINE)


def rows(heading: str) -> dict[str, str]:
    """The tables below a heading: first column → second."""
    _, _, rest = PAGE.partition(f"\n### {heading}\n")
    section = re.split(r"^##", rest, maxsplit=1, flags=re.MULTILINE)[0]
    return dict(ROW.findall(section))


def test_every_event_is_listed_with_its_arguments() -> None:
    listed = {event: re.findall(r"`(\w+)`", arguments) for event, arguments in rows("Events").items()}
    actual = {
        event: [name for name in inspect.signature(getattr(Observer, event)).parameters if name != "self"]
        for event in EVENTS
    }
    assert listed == actual


def test_every_level_of_the_event_log_is_listed() -> None:
    assert rows("Levels of the event log") == {
        event: logging.getLevelName(level) for event, (level, _) in MESSAGES.items()
    }
