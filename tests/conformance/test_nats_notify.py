"""The notify suite over NATS, with wake hints and without, on connections of ours and of the user's."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import nats
from tests.support.nats import nats_url

from queuert.adapters.nats import nats_notify
from queuert.ports.notify import NotifyAdapter
from queuert_conformance import NotifyHarness
from queuert_conformance.pytest_plugin import notify_tests

BUCKET = "conformance"


class PlainHarness(NotifyHarness):
    """Each case has subjects of its own."""

    hints = False
    bucket: str | None = None

    def __init__(self) -> None:
        self.prefix = f"case.{uuid4()}"
        super().__init__(self.make())

    def make(self) -> NotifyAdapter:
        return nats_notify(nats_url(), prefix=self.prefix, bucket=self.bucket)

    async def second(self) -> NotifyAdapter:
        return self.make()

    async def sync_adapter(self) -> NotifyAdapter:
        return nats_notify(nats_url(), prefix=self.prefix, bucket=self.bucket)


class BucketHarness(PlainHarness):
    """And keys of its own in the bucket that all of them share."""

    hints = True
    bucket = BUCKET


class OwnConnectionHarness(BucketHarness):
    """On the user's own connection, which is his to close."""

    def __init__(self, connection: Any) -> None:
        self.connection = connection
        super().__init__()

    def make(self) -> NotifyAdapter:
        return nats_notify(self.connection, prefix=self.prefix, bucket=self.bucket)

    async def dispose(self) -> None:
        await self.connection.flush()  # not closed by us
        await self.connection.close()


async def own_connection() -> NotifyHarness:
    return OwnConnectionHarness(await nats.connect(nats_url()))


test_nats = notify_tests(PlainHarness)
test_nats_with_a_bucket = notify_tests(BucketHarness)
test_own_connection = notify_tests(own_connection)
