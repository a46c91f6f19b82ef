"""What is computed once, though each test asks for it."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from msgspec import inspect


def remember_types() -> None:
    """Let msgspec look at each type once. Each client looks at all fields of all its jobs, and most tests make a
    client of the same jobs: this was a tenth of their time."""
    look: Any = inspect.type_info
    remembered = lru_cache(maxsize=4096)(look)

    def type_info(type: Any) -> inspect.Type:
        try:
            found: inspect.Type = remembered(type)
        except TypeError:  # it has no hash, or it is none that can be stored
            found = look(type)
        return found

    inspect.type_info = type_info
