"""Pauses: what is stored of them, and which jobs they cover."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from enum import Enum
from typing import Literal

import msgspec

from queuert.base.own_types import is_own
from queuert.records.limits import split_lane

PauseScope = Literal["everything", "queue", "type", "key"]


class Everything(Enum):
    """The type of `EVERYTHING`."""

    EVERYTHING = "everything"


EVERYTHING = Everything.EVERYTHING
"""All job types, as a target of `client.pause`."""


class PauseTarget(msgspec.Struct, frozen=True):
    """What is paused: the jobs of one type, those of a queue, those of one key of a limit, or
    everything (then the name is empty).
    """

    scope: PauseScope
    name: str = ""

    def __str__(self) -> str:
        if self.scope == "key":
            limit, key = split_lane(self.name)
            return f"key {key!r} of limit {limit}"
        return f"{self.scope} {self.name}".rstrip()

    def covers(self, type_name: str, queue: str | None) -> bool:
        """Whether jobs of this type, claimed through this queue, are meant. "Everything" leaves out
        the library's own types.
        """
        if self.scope == "everything":
            return not is_own(type_name)
        if self.scope == "key":
            return False
        return self.name == (type_name if self.scope == "type" else queue)


class Pause(msgspec.Struct, frozen=True):
    """No worker claims jobs of the target. Times are by the database's clock."""

    target: PauseTarget
    """What is paused: its `scope` ("everything", "queue", "type" or "key") and its `name`."""
    since: datetime
    """Since when."""
    until: datetime | None = None
    """When it ends by itself. None: when it is resumed."""
    reason: str | None = None
    """Why, in the words of the one who paused it."""
    by: str | None = None
    """Who paused it."""
    cancel_running: bool = False
    """Jobs that were running were told to stop, too."""


def is_paused(pauses: Iterable[Pause], type_name: str, queue: str | None) -> bool:
    return any(pause.target.covers(type_name, queue) for pause in pauses)


def stops(pause: Pause, type_name: str, queue: str | None, lane: str | None) -> bool:
    """Whether a pause says that a running job has to stop."""
    if not pause.cancel_running:
        return False
    return pause.target.name == lane if _stops_key(pause) else pause.target.covers(type_name, queue)


def _stops_key(pause: Pause) -> bool:
    """Whether running jobs of one key have to stop. Which types these have is not known."""
    return pause.cancel_running and pause.target.scope == "key"


def lanes_of(types: Sequence[str], queues: Sequence[str]) -> list[tuple[str, str | None]]:
    """Pairs of type and queue. Without queues, they are not known."""
    return list(zip(types, queues, strict=True)) if queues else [(name, None) for name in types]


def in_the_way(pauses: Iterable[Pause], lanes: Sequence[tuple[str, str | None]]) -> tuple[Pause, ...]:
    """The pauses that cover one of these pairs of type and queue."""
    return tuple(each for each in pauses if _stops_key(each) or any(each.target.covers(*lane) for lane in lanes))


def sooner(next_in: float | None, pauses: Iterable[Pause], now: datetime) -> float | None:
    """Seconds until then, or until one of these pauses ends."""
    moments = [max(0.0, (each.until - now).total_seconds()) for each in pauses if each.until is not None]
    return min([*moments, *([] if next_in is None else [next_in])], default=None)
