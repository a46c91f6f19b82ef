"""What users pass: durations, moments and texts, checked, and the bounds that every adapter can
store.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from math import inf

from queuert.errors import InvalidArgument

MAX_NAME_LENGTH = 200
MAX_KEY_LENGTH = 1000
MAX_REASON_LENGTH = 1000
PRIORITY_RANGE = (-(2**31), 2**31 - 1)
LONGEST = timedelta(days=36500).total_seconds()
"""100 years, in seconds. A moment this far from now can be stored with every database."""

Duration = timedelta | float
"""A `timedelta`, or seconds."""


def seconds(duration: Duration, what: str, *, minimum: float = 0) -> float:
    """A duration as finite seconds, not below `minimum`."""
    value = duration.total_seconds() if isinstance(duration, timedelta) else duration
    if isinstance(value, bool) or not isinstance(value, int | float):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidArgument(f"{what} must be a timedelta or seconds, got {type(value).__name__}")
    try:
        number = float(value)
    except OverflowError:  # an integer of more than 300 digits
        number = inf
    if not minimum <= number < inf:
        raise InvalidArgument(f"{what} must be finite and not below {minimum:g} seconds, got {number:g}")
    return number


def aware(moment: datetime, what: str) -> datetime:
    """An aware datetime in UTC, or a clear error: a naive one means something else on each
    machine.
    """
    if not isinstance(moment, datetime):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidArgument(f"{what} must be a datetime, got {type(moment).__name__}")
    if moment.tzinfo is None or moment.utcoffset() is None:
        raise InvalidArgument(f"{what} must have a time zone, got the naive {moment!r}: use datetime.now(timezone.utc)")
    try:
        return moment.astimezone(UTC)
    except OverflowError:
        raise InvalidArgument(f"{what} must lie between the years 1 and 9999 in UTC, got {moment!r}") from None


EARLIEST = datetime(2, 1, 1, tzinfo=UTC)
LATEST = datetime(9998, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)
"""Moments between these two can be stored and read with every driver, in every time zone. Python's
calendar ends a year later on both sides, and some drivers treat its first and its last moment as
minus and plus infinity.
"""


def storable(moment: datetime, what: str) -> datetime:
    """A moment that is to be stored, in UTC."""
    utc = aware(moment, what)
    if not EARLIEST <= utc <= LATEST:
        raise InvalidArgument(f"{what} must lie between the years 2 and 9998 in UTC, got {moment!r}")
    return utc


def storable_delay(duration: Duration, what: str) -> float:
    """Seconds from now until a moment that is to be stored."""
    value = seconds(duration, what)
    try:
        late = datetime.now(UTC) + timedelta(seconds=value) > LATEST
    except OverflowError:
        late = True
    if late:
        raise InvalidArgument(f"{what} is too long: {value:g} seconds from now is later than the year 9998")
    return value


def check_text(value: object, what: str, limit: int) -> str:
    """A non-empty string of at most `limit` characters without NUL: what every adapter can
    store.
    """
    text = check_unicode(value, what)
    if not text:
        raise InvalidArgument(f"{what} must not be empty")
    if len(text) > limit:
        raise InvalidArgument(f"{what} may have {limit} characters at most, got {len(text)}")
    if "\0" in text:
        raise InvalidArgument(f"{what} must not contain NUL characters")
    return text


def check_unicode(value: object, what: str) -> str:
    """A string that can be sent to a database: half of a surrogate pair cannot."""
    if not isinstance(value, str):
        raise InvalidArgument(f"{what} must be a string, got {type(value).__name__}")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise InvalidArgument(f"{what} is not valid Unicode: {error.reason}") from None
    return value
