"""The attributes of an exception that are JSON: they are kept in its error record."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import msgspec

from queuert.errors import JobError

MAX_BYTES = 10_000
"""Of all attributes of one exception. An attribute that does not fit is left out as a whole."""
MAX_DEPTH = 20
MAX_INTEGER = 2**63
"""Larger ones are left out: not every reader of JSON has them."""


class NotJson(Exception):
    pass


def json_attributes(error: BaseException, clean: Callable[[str], str]) -> dict[str, Any]:
    """What the exception's own class, or the code that raised it, has set on it. `clean` makes text
    that every adapter can store.
    """
    recorded = ("code", "retry") if isinstance(error, JobError) else ()
    kept: dict[str, Any] = {}
    room = MAX_BYTES
    for name, value in list(vars(error).items()):
        if name.startswith("_") or name in recorded:
            continue
        try:
            plain = _plain(value, clean, MAX_DEPTH)
            size = len(msgspec.json.encode({name: plain}))
        except Exception:
            continue
        if size <= room:
            kept[clean(name)] = plain
            room -= size
    return kept


def _plain(value: object, clean: Callable[[str], str], depth: int) -> Any:
    """The value, made of built-in types only. Raises if it is not JSON.

    Base classes are called, because subclasses (`HTTPStatus`, for example) may override anything.
    """
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return _whole(value, clean)
    if isinstance(value, int):
        number = int.__index__(value)
        if abs(number) < MAX_INTEGER:
            return number
    elif isinstance(value, float):
        real = float.__float__(value)
        if math.isfinite(real):
            return real
    elif depth and isinstance(value, (list, tuple)):
        return [_plain(each, clean, depth - 1) for each in cast("Sequence[object]", value)]
    elif depth and isinstance(value, dict):
        items = cast("Mapping[object, object]", value).items()
        return {_key(key, clean): _plain(each, clean, depth - 1) for key, each in items}
    raise NotJson


def _key(key: object, clean: Callable[[str], str]) -> str:
    if not isinstance(key, str):
        raise NotJson
    return _whole(key, clean)


def _whole(text: str, clean: Callable[[str], str]) -> str:
    if str.__len__(text) > MAX_BYTES:
        raise NotJson  # not a part of it
    return clean(text)
