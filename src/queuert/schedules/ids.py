"""The ids of chains that a schedule starts: they identify the schedule and the tick.

Such an id is a UUID of version 8. The tick comes first, so ids are sorted by time, as others are:

    48 bits: the tick, in milliseconds since 1970      12 bits: the place in the list of jobs
     1 bit: whether it was triggered by hand           60 bits: the schedule's incarnation

So one tick of a schedule can start each of its chains once only, in whatever process.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import NamedTuple
from uuid import UUID

from queuert.ids import is_uuid
from queuert.moments import EPOCH
from queuert.schedule_records import MAX_INCARNATION

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
