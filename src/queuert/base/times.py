"""Moments and lengths of time: what stored times are counted from, and how people read them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)

_UNITS = ((86400 * 365, "y"), (86400, "d"), (3600, "h"), (60, "min"), (1, "s"))


def length_of(seconds: float) -> str:
    """The two largest units: "3 d 4 h", "12 min 5 s", "0 s"."""
    left, parts = int(seconds), list[str]()
    for size, name in _UNITS:
        if left >= size or parts:
            if left // size:
                parts.append(f"{left // size} {name}")
            left %= size
            if len(parts) == 2 or (parts and not left):
                break
    return " ".join(parts) or "0 s"


def distance_of(seconds: float) -> str:
    """How long ago or how soon: "12 min 5 s ago", "in 3 d"."""
    return f"in {length_of(seconds)}" if seconds > 0 else f"{length_of(-seconds)} ago"


def clock(moment: datetime, now: datetime) -> str:
    """A time of day, with the date unless it is today, and how far away it is."""
    day = "" if moment.date() == now.date() else f"{moment:%Y-%m-%d} "
    return f"{day}{moment:%H:%M:%S} UTC ({distance_of((moment - now).total_seconds())})"
