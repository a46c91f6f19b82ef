"""Moments, counted by the store's clock."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from queuert.errors import InvalidArgument
from queuert.model import When


def resolve(when: When, now: datetime) -> datetime:
    """A moment as it was given, or counted from now."""
    if when.at is not None:
        return when.at.astimezone(UTC)
    return now if when.after is None else after(now, when.after)


def after(now: datetime, seconds: float) -> datetime:
    try:
        return now + timedelta(seconds=seconds)
    except OverflowError:
        raise InvalidArgument(f"{seconds:g} seconds from now is later than the year 9999") from None
