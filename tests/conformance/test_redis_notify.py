"""The notify suite over Redis, with clients of ours and of the user's."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import redis.asyncio
from tests.support.redis import redis_url

from queuert.adapters.redis import redis_notify
from queuert.ports.notify import NotifyAdapter
from queuert_conformance import NotifyHarness
from queuert_conformance.pytest_plugin import notify_tests


class RedisHarness(NotifyHarness):
    """Each case has channels and keys of its own: budgets outlive a case."""

    def __init__(self) -> None:
        self.prefix = f"case-{uuid4()}"
        super().__init__(self.make())

    def make(self) -> NotifyAdapter:
        return redis_notify(redis_url(), prefix=self.prefix)

    async def second(self) -> NotifyAdapter:
        return self.make()


class OwnClientHarness(RedisHarness):
    """The user's own client, which decodes what it reads; it is not closed."""

    def __init__(self) -> None:
        self.client: Any = redis.asyncio.Redis.from_url(redis_url(), decode_responses=True)
        super().__init__()

    def make(self) -> NotifyAdapter:
        return redis_notify(self.client, prefix=self.prefix)

    async def sync_adapter(self) -> NotifyAdapter:
        return redis_notify(redis_url(), prefix=self.prefix)

    async def dispose(self) -> None:
        assert await self.client.ping(), "a client that is not ours was closed"
        await self.client.aclose()


test_redis = notify_tests(RedisHarness)
test_own_client = notify_tests(OwnClientHarness)
