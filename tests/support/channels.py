"""The notify adapter that a client was given, under what the client wraps around it."""

from __future__ import annotations

from typing import Any


def adapter_of(client: Any) -> Any:
    found = client.sessions.channel
    while hasattr(found, "adapter"):
        found = found.adapter
    return found
