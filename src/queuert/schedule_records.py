"""Schedules as they are stored: what travels between the storage port and everything above it.

The port knows when a schedule is to be looked at, and nothing of cron. What the schedule does
(`definition`) and how far it has come (`state`) are JSON: see `queuert.schedules.stored`.
"""

from __future__ import annotations

from datetime import datetime

import msgspec

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
