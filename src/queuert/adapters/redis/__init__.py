"""Notifications through Redis: pub/sub, and wake hints.

The redis package is imported when it is used.
"""

from __future__ import annotations

from typing import Any

from queuert.adapters.broadcast import BroadcastNotify
from queuert.errors import InvalidArgument

__all__ = ["redis_notify"]


def redis_notify(source: str | Any, *, prefix: str = "queuert") -> BroadcastNotify:
    """Notifications and wake hints through Redis.

    Args:
        source: A URL, or a `redis.asyncio.Redis`, which is not closed.
        prefix: The prefix of channels and keys (default: "queuert"). Databases that share a server
            need different prefixes.
    """
    from queuert.adapters.redis.provider import RedisProvider, connect

    if not prefix or set(prefix) & set("{}\0"):
        raise InvalidArgument(f"the prefix must be a text without braces and NUL characters, got {prefix!r}")
    if not isinstance(source, str):
        return BroadcastNotify(RedisProvider(source, prefix), prefix=prefix, separator=":")
    connect(source)  # a wrong URL is an error now, not later
    return BroadcastNotify(lambda: RedisProvider(connect(source), prefix, owned=True), prefix=prefix, separator=":")
