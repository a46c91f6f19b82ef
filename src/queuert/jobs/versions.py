"""The names that jobs of a type are stored with: one for each version of the input, and earlier
names.

The version is part of the name. So a worker does not claim jobs of a version that it does not know,
at no cost.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from queuert.base.arguments import MAX_NAME_LENGTH, check_text
from queuert.errors import InvalidArgument

MAX_VERSION = 100
"""Every version is one more name for claims to look for."""


def stored_names(name: str, version: int, aliases: Sequence[str]) -> dict[str, int]:
    """The version of the inputs under each name, the current one first."""
    given: Any = aliases
    if type(version) is not int or not 1 <= version <= MAX_VERSION:
        raise InvalidArgument(f"version must be a number from 1 to {MAX_VERSION}, got {version!r}")
    if not isinstance(given, list | tuple):
        raise InvalidArgument(f"aliases takes a list of names, got {given!r}")
    names = (name, *aliases)
    for each in aliases:
        check_text(each, "each of aliases", MAX_NAME_LENGTH)
        if names.count(each) > 1:
            raise InvalidArgument(f"{each!r} is named twice")
    found = {_stored(each, number): number for each in names for number in range(version, 0, -1)}
    if len(_stored(name, version)) > MAX_NAME_LENGTH:
        raise InvalidArgument(f"name must leave room for its version: {_stored(name, version)!r} is too long")
    return found


def names_a_version(name: str) -> bool:
    """Whether this is the stored name of one version, like `charge@2`, and not the name of a
    type.
    """
    first, _, version = name.rpartition("@")
    return bool(first) and version.isdigit()


def is_version_of(stored: str, name: str) -> bool:
    """Whether jobs with this stored name are those of a later version of `name`."""
    first, _, version = stored.rpartition("@")
    return first == name and version.isdigit()


def _stored(name: str, version: int) -> str:
    return name if version == 1 else f"{name}@{version}"
