"""What the tests of brokers share."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest
from tests.support.brokers import BROKERS, Broker
from tests.support.proxy import Proxy, proxy_to


@pytest.fixture(params=BROKERS)
def broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    """A server that this test may stop and restart."""
    found = BROKERS[request.param]()
    try:
        yield found
    finally:
        found.remove()


@pytest.fixture
async def network(broker: Broker) -> AsyncIterator[Proxy]:
    """The way to the broker, which can be cut and frozen."""
    async with proxy_to(broker.port) as proxy:
        yield proxy
    # Connections that were cut are closed in the next turns of the loop.
    for _ in range(3):
        await asyncio.sleep(0)
