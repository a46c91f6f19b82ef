"""Schedules as they are stored: what travels between the storage port and everything above it.

The port knows when a schedule is to be looked at, and nothing of cron. What the schedule does
(`definition`) and how far it has come (`state`) are JSON: see `queuert.features.schedules.stored`.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import NamedTuple
from uuid import UUID

import msgspec

from queuert.base.ids import is_uuid
from queuert.base.times import EPOCH

MAX_INCARNATION = 2**60
"""An incarnation is a random number from 1 to below this. It is part of the ids of its chains."""


class ScheduleRow(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule. Times are by the database's clock."""

    name: str
    incarnation: int
    """Another one after the schedule was deleted and made again. No two schedules have the same."""
    version: int = 0
    """How often it was written. 0: it is not stored yet."""
    next_at: datetime | None = None
    """Its next tick. None if there is none, or if that is not known yet."""
    due_at: datetime | None = None
    """When a worker has something to do with it. None: not before something else changes it."""
    by_function: bool = False
    """A function of the program makes its jobs: only workers that have it can fire it."""
    declared: bool = False
    """Workers declare it. Otherwise a client has put it."""
    definition: bytes
    state: bytes


class ScheduleLook(msgspec.Struct, frozen=True):
    """Schedules, and the time of the database's clock when they were read."""

    now: datetime
    rows: list[ScheduleRow | None]


class DueSchedules(msgspec.Struct, frozen=True):
    """The schedules that are due, the longest first, and when they were read. `next_in`: seconds
    until the next one that is not due yet; None if there is none.
    """

    now: datetime
    rows: list[ScheduleRow]
    next_in: float | None = None


class SeenRelease(msgspec.Struct, frozen=True):
    """Workers of this release have declared this schedule."""

    schedule: str
    release: str
    first_seen_at: datetime
    """Since when, without an interruption of more than the time after which it is not alive."""
    seen_at: datetime
    """When the last of them did."""


MOST_JOBS = 1000
"""How many jobs one tick starts at most."""

_MILLISECOND = timedelta(milliseconds=1)
_TICKS, _PLACES = 1 << 48, 1 << 12


class ScheduledId(NamedTuple):
    """What the id of a chain contains about its schedule."""

    incarnation: int
    at: datetime
    """The tick."""
    place: int
    triggered: bool
    """It is not of a tick: the schedule was triggered by hand."""


def chain_id(incarnation: int, at: datetime, place: int, *, triggered: bool = False) -> str:
    tick = (at - EPOCH) // _MILLISECOND % _TICKS
    rest = 0b10 << 62 | triggered << 61 | incarnation % MAX_INCARNATION
    return str(UUID(int=tick << 80 | 8 << 76 | place % _PLACES << 64 | rest))


def read_chain_id(text: str) -> ScheduledId | None:
    """None if it is not the id of a scheduled chain."""
    if is_uuid(text) is None or text[14] != "8":
        return None
    number = UUID(text).int
    if number >> 60 & 0b1101 != 0b1000:
        return None
    try:
        at = EPOCH + (number >> 80) * _MILLISECOND
    except OverflowError:  # after the year 9999: the id is of other origin
        return None
    return ScheduledId(number % MAX_INCARNATION, at, number >> 64 & _PLACES - 1, bool(number >> 61 & 1))


def whole_milliseconds(moment: datetime) -> datetime:
    """A moment as an id has it."""
    return moment.replace(microsecond=moment.microsecond // 1000 * 1000)
