"""Dates in the local zone with its offset, as people read them."""

from __future__ import annotations

from datetime import UTC, datetime

from queuert.base.times import distance_of


def iso(moment: datetime) -> str:
    """For programs: 2026-11-17T08:00:00.123456+01:00."""
    return moment.astimezone().isoformat()


def local(moment: datetime | None) -> str:
    """For people: 2026-11-17 08:00:00+01:00."""
    return "" if moment is None else moment.astimezone().isoformat(sep=" ", timespec="seconds")


def brief(moment: datetime | None) -> str:
    """For narrow tables: 08:00:00 of today, or 11-16 08:00."""
    if moment is None:
        return ""
    found = moment.astimezone()
    return f"{found:%H:%M:%S}" if found.date() == datetime.now().astimezone().date() else f"{found:%m-%d %H:%M}"


def with_age(moment: datetime | None) -> str:
    """A date, and how long ago it was or how soon it will be."""
    if moment is None:
        return ""
    return f"{local(moment)} ({distance_of((moment - datetime.now(UTC)).total_seconds())})"
