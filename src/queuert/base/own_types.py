"""The names of the library's own job types."""

from __future__ import annotations

OWN_TYPES = "queuert."
"""The names of the library's own job types begin with this."""
OWN_QUEUE = "queuert"
"""The queue that they are claimed through."""


def is_own(type_name: str) -> bool:
    """Whether it is one of the library's own job types."""
    return type_name.startswith(OWN_TYPES)
