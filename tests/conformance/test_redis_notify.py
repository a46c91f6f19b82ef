"""The notify suite over Redis, with clients of ours and of the user's; the sync adapter takes part in each."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import redis
import redis.asyncio
from tests.support.redis import redis_url

from queuert.adapters.redis import redis_notify, sync_redis_notify
from queuert.conformance import NotifyHarness
from queuert.conformance.pytest_plugin import notify_tests
from queuert.ports.notify import NotifyAdapter, SyncNotifyAdapter


class RedisHarness(NotifyHarness):
    """Each case has channels and keys of its own: budgets outlive a case."""

    def __init__(self) -> None:
        self.prefix = f"case-{uuid4()}"
        super().__init__(self.make())

    def make(self) -> NotifyAdapter:
        return redis_notify(redis_url(), prefix=self.prefix)

    async def second(self) -> NotifyAdapter:
        return self.make()

    async def sync_adapter(self) -> SyncNotifyAdapter:
        return sync_redis_notify(redis_url(), prefix=self.prefix)


class OwnClientHarness(RedisHarness):
    """The user's own clients, which decode what they read; they are the user's to close."""

    def __init__(self) -> None:
        self.client: Any = redis.asyncio.Redis.from_url(redis_url(), decode_responses=True)
        self.sync_client: Any = redis.Redis.from_url(redis_url(), decode_responses=True)
        super().__init__()

    def make(self) -> NotifyAdapter:
        return redis_notify(self.client, prefix=self.prefix)

    async def sync_adapter(self) -> SyncNotifyAdapter:
        return sync_redis_notify(self.sync_client, prefix=self.prefix)

    async def dispose(self) -> None:
        assert await self.client.ping(), "a client that is not ours was closed"
        await self.client.aclose()
        self.sync_client.close()


test_redis = notify_tests(RedisHarness)
test_own_clients = notify_tests(OwnClientHarness)
