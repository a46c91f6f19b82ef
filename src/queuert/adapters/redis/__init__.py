"""Notifications through Redis: pub/sub, and wake hints."""

from queuert.adapters.redis.adapter import redis_notify, sync_redis_notify

__all__ = ["redis_notify", "sync_redis_notify"]
