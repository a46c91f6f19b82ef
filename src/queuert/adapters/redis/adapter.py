"""Making the adapters. The redis package is imported when they are made, not before."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from queuert.adapters.redis.names import Names

if TYPE_CHECKING:
    from queuert.adapters.redis.notify import RedisNotify
    from queuert.adapters.redis.notify_sync import SyncRedisNotify

DEFAULT_PREFIX = "queuert"


def redis_notify(source: str | Any, *, prefix: str = DEFAULT_PREFIX) -> RedisNotify:
    """For an async client. `source` is a URL, or a `redis.asyncio.Redis` of yours, which stays open when we close.

    Channels and keys begin with `prefix`: installations that share a server need different ones.
    """
    from queuert.adapters.redis.notify import RedisNotify, connect

    names = Names(prefix)
    if isinstance(source, str):
        return RedisNotify(connect(source), names, owned=True)
    return RedisNotify(source, names)


def sync_redis_notify(source: str | Any, *, prefix: str = DEFAULT_PREFIX) -> SyncRedisNotify:
    """For a sync client. `source` is a URL, or a `redis.Redis` of yours, which stays open when we close."""
    from queuert.adapters.redis.notify_sync import SyncRedisNotify, connect

    names = Names(prefix)
    if isinstance(source, str):
        return SyncRedisNotify(connect(source), names, owned=True)
    return SyncRedisNotify(source, names)
