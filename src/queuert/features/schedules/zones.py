"""Time zones: finding one by its name, and what its clocks do.

`zoneinfo` answers only one question: which offset a zone has at a moment. So a change of the offset
is found by asking at two moments, and halving what is between them.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache
from zoneinfo import ZoneInfo

from queuert.errors import InvalidSchedule

ONE_DAY = timedelta(days=1)
ONE_SECOND = timedelta(seconds=1)

# "localtime" is another zone on each host. The clocks of "right/" count leap seconds.
NOT_PORTABLE = ("localtime", "posixrules", "posix/", "right/")


@lru_cache(maxsize=1024)
def zone(name: str) -> tzinfo:
    """The zone of this name. Raises `InvalidSchedule` if there is none."""
    if name == "UTC":
        # Needs no tzdata.
        return UTC
    if not name.startswith(NOT_PORTABLE):
        try:
            return ZoneInfo(name)
        # A folder ("America") is an OSError, "../x" a ValueError, an unknown name a KeyError.
        except (KeyError, ValueError, OSError):
            pass
    raise InvalidSchedule(
        f"{name!r} is not a time zone on this host: use a name such as 'Europe/Berlin' (if the system has no zones, "
        "install the package tzdata)"
    )


def wall(where: tzinfo, at: datetime) -> datetime:
    """What a clock on the wall shows at this moment, as a datetime without a zone."""
    return at.astimezone(where).replace(tzinfo=None, fold=0)


def first_change(where: tzinfo, after: datetime, until: datetime) -> datetime | None:
    """The first moment in (after, until] that has another offset than `after`.

    Both are in UTC and in whole seconds. No zone changes its offset and back within a day, so a
    look at each day is enough.
    """
    offset = after.astimezone(where).utcoffset()
    low = after
    while low < until:
        high = min(low + ONE_DAY, until)
        if high.astimezone(where).utcoffset() == offset:
            low = high
            continue
        while high - low > ONE_SECOND:
            middle = low + timedelta(seconds=(high - low) // ONE_SECOND // 2)
            if middle.astimezone(where).utcoffset() == offset:
                low = middle
            else:
                high = middle
        return high
    return None


def first_showing(where: tzinfo, time: datetime) -> datetime:
    """The first moment, in UTC, at which clocks show this time or a later one.

    For a time that clocks show twice, that is the first of the two. For a time that clocks skip, it
    is the moment of the change.
    """
    # Of a skipped time, `fold` chooses the offset before the change (0) or after it (1). So the two
    # moments are on the two sides of the change.
    at = time.replace(tzinfo=where, fold=0).astimezone(UTC)
    if wall(where, at) == time:
        return at
    before_the_change = time.replace(tzinfo=where, fold=1).astimezone(UTC)
    return first_change(where, before_the_change, at) or at
