"""Names for parametrized tests that are the same in every process."""

from __future__ import annotations

import re


def short(value: object) -> str:
    """What a value is called in a test's name: its text without addresses, cut."""
    if isinstance(value, set | frozenset):
        value = sorted(value, key=repr)
    return re.sub(r" at 0x[0-9a-f]+", "", ascii(value))[:60]
