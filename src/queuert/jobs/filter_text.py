"""Filters as text: `status:failed type:charge-card,refund error:TIMEOUT since:2h`.

Words are separated by spaces. A word is a name, a colon, and one value or several with commas
between them. A value that has spaces, commas or double quotes in it is written in double quotes,
with a backslash before each double quote and backslash inside. The same name may come twice.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NoReturn

from queuert.base.arguments import aware
from queuert.base.statuses import TERMINAL
from queuert.errors import InvalidArgument

LISTS = ("status", "type", "chain-type", "queue", "error", "chain", "job", "key")
RANGES = ("created", "ended")
NAMES = sorted((*LISTS, *RANGES, "since"))

_QUOTED = r'"(?:[^"\\]|\\.)*"'
_BARE = r'[^\s",]+'
_WORD = re.compile(rf'\s*([^\s:",]+):((?:{_QUOTED}|{_BARE})(?:,(?:{_QUOTED}|{_BARE}))*)(?=\s|$)', re.DOTALL)
_VALUE = re.compile(rf"{_QUOTED}|{_BARE}", re.DOTALL)
_IS_BARE = re.compile(_BARE)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_PART = re.compile("([0-9]{1,9})([smhdw])")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def write(values: Mapping[str, Any]) -> str:
    """The text of a filter: of each list of values, and of each range."""
    words = [f"{name}:{','.join(map(_quoted, values[name]))}" for name in LISTS if values.get(name) is not None]
    for name in RANGES:
        if values.get(name) is not None:
            start, end = values[name]
            words.append(f"{name}:{_moment(start)}..{_moment(end)}")
    return " ".join(words)


def read(text: str, now: datetime) -> dict[str, Any]:
    """The values of a filter. Durations are counted back from `now`."""
    lists: dict[str, list[str]] = {}
    ranges: dict[str, tuple[datetime | None, datetime | None]] = {}
    since: datetime | None = None
    for name, values in _words(text):
        if name in LISTS:
            lists.setdefault(name, []).extend(values)
            continue
        if len(values) != 1 or name in ranges or (name == "since" and since is not None):
            raise InvalidArgument(f"a filter takes one value for {name}: got another one in {text!r}")
        if name == "since":
            since = _moment_of(name, values[0], now)
        else:
            ranges[name] = _range_of(name, values[0], now)
    if since is not None:
        name = "ended" if lists.get("status") and TERMINAL.issuperset(lists["status"]) else "created"
        if name in ranges:
            raise InvalidArgument(f"since means {name} here, which the filter has already: {text!r}")
        ranges[name] = since, None
    return {**lists, **ranges}


def _words(text: str) -> Iterable[tuple[str, Sequence[str]]]:
    place = 0
    while text[place:].strip():
        word = _WORD.match(text, place)
        if word is None:
            _explain(text[place:].split(maxsplit=1)[0])
        name = word[1]
        if name not in NAMES:
            raise InvalidArgument(f"a filter has no word {name!r}: it has {', '.join(NAMES)}")
        yield name, [_plain(each) for each in _VALUE.findall(word[2])]
        place = word.end()


def _explain(word: str) -> NoReturn:
    if ":" not in word:
        raise InvalidArgument(
            f"a filter has words like status:failed, got {word!r}: put one of {', '.join(NAMES)} and a colon before it"
        )
    name, value = word.split(":", 1)
    if not value:
        raise InvalidArgument(f"{name}: has no value: write {name}:value, without a space")
    raise InvalidArgument(
        f'{word!r} cannot be read: put a value that has spaces, commas or quotes in it into "double quotes"'
    )


def _quoted(value: str) -> str:
    if _IS_BARE.fullmatch(value):
        return value
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _plain(value: str) -> str:
    return _ESCAPED.sub(r"\1", value[1:-1]) if value.startswith('"') else value


def _moment(moment: datetime | None) -> str:
    return "" if moment is None else moment.astimezone(UTC).isoformat().replace("+00:00", "Z")


def _range_of(name: str, value: str, now: datetime) -> tuple[datetime | None, datetime | None]:
    start, dots, end = value.partition("..")
    if not dots or not (start or end):
        raise InvalidArgument(f"{name} takes a range like {name}:2h.. or {name}:..2026-01-31T00:00Z, got {value!r}")
    return _moment_of(name, start, now) if start else None, _moment_of(name, end, now) if end else None


def _moment_of(name: str, value: str, now: datetime) -> datetime:
    """A moment with its time zone, or a duration before now."""
    try:
        duration = duration_of(value)
        if duration is not None:
            return now - duration
        return aware(datetime.fromisoformat(value), name)
    except (ValueError, OverflowError):  # `InvalidArgument` is a ValueError, too
        raise InvalidArgument(
            f"{name}: {value!r} is neither a time with its zone, like 2026-01-31T12:00Z, nor a duration, like 90s, "
            "15m, 2h or 3d"
        ) from None


def duration_of(value: str) -> timedelta | None:
    """90s, 15m, 2h, 1d12h, 3w: None if it is something else."""
    parts = _PART.findall(value)
    if not parts or "".join(number + unit for number, unit in parts) != value:
        return None
    return sum((timedelta(**{_UNITS[unit]: int(number)}) for number, unit in parts), timedelta())
