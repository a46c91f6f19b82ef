"""Finds what JSON in a database cannot store, in a value or a type."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from decimal import Decimal
from typing import Any, NamedTuple, cast

from msgspec import Struct, inspect

# A NUL is written as \u0000. The backslash before it must not be escaped itself, or it is the text
# "\u0000".
_NUL = re.compile(rb"(?<!\\)(?:\\\\)*\\u0000")


def has_nul(data: bytes) -> bool:
    """Whether a string in this JSON contains a NUL character, which PostgreSQL rejects."""
    return b"\\u0000" in data and _NUL.search(data) is not None


NOT_FINITE = "a number that is not finite cannot be stored"
NAIVE = "a datetime without a time zone cannot be stored: use datetime.now(timezone.utc)"


class Problem(NamedTuple):
    """A value that cannot be stored, and its path, as in `$.items[0].price`."""

    message: str
    path: str


def unstorable(value: object, path: str = "$") -> Problem | None:
    """The first value that msgspec would encode although it cannot be read back: a NaN or infinity,
    which becomes null, or a naive datetime, which means another moment on each machine.
    """
    if isinstance(value, float):
        return None if math.isfinite(value) else Problem(NOT_FINITE, path)
    if isinstance(value, Decimal):
        return None if value.is_finite() else Problem(NOT_FINITE, path)
    if isinstance(value, datetime):
        return None if value.utcoffset() is not None else Problem(NAIVE, path)
    for place, item in _items(value):
        found = unstorable(item, path + place)
        if found is not None:
            return found
    return None


def _items(value: Any) -> Iterator[tuple[str, object]]:
    if value is None or isinstance(value, str | bytes | int):
        return
    if isinstance(value, Mapping):
        for key, item in cast("Mapping[object, object]", value).items():
            yield f"[{key!r}]", key
            yield f"[{key!r}]", item
    elif isinstance(value, list | tuple | set | frozenset):
        for index, item in enumerate(cast("Iterable[object]", value)):
            yield f"[{index}]", item
    else:
        for name in field_names(type(value)):
            yield f".{name}", getattr(value, name, None)


def field_names(cls: Any) -> tuple[str, ...]:
    """The fields of a Struct, dataclass or attrs class. Empty for other types."""
    if issubclass(cls, Struct):
        names: tuple[str, ...] = cls.__struct_fields__
        return names
    if dataclasses.is_dataclass(cls):
        return tuple(field.name for field in dataclasses.fields(cls))
    return tuple(attribute.name for attribute in getattr(cls, "__attrs_attrs__", ()))


def parts(info: inspect.Type) -> list[inspect.Type]:
    """A type and all types that it contains, each once."""
    found: dict[int, inspect.Type] = {}
    waiting: list[object] = [info]
    while waiting:
        node = waiting.pop()
        if isinstance(node, inspect.Field):
            waiting.append(node.type)
        elif isinstance(node, tuple):
            waiting.extend(cast("tuple[object, ...]", node))
        elif isinstance(node, inspect.Type) and id(node) not in found:
            found[id(node)] = node
            waiting.extend(getattr(node, name) for name in node.__struct_fields__)
    return list(found.values())
