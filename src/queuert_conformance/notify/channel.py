"""The tools of a notify case: adapters, topics and recording listeners."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from time import monotonic
from uuid import uuid4

from queuert.ports.notify import TOPICS, Callback, Dispose, NotifyAdapter
from queuert.ports.sync_notify import SyncNotify
from queuert_conformance.case import Suite
from queuert_conformance.checks import CheckFailed, skip
from queuert_conformance.notify.harness import NotifyHarness

_HEAR_SECONDS = 5.0
_GRACE = 0.05


@dataclass(frozen=True)
class Topic:
    """Publishing and listening, for one topic of one adapter."""

    name: str
    publish: Callable[[Sequence[str]], Awaitable[None]]
    listen: Callable[[Callback], Awaitable[Dispose]]


def topics(adapter: NotifyAdapter) -> list[Topic]:
    """The topics of an adapter."""
    return [Topic(name, partial(adapter.publish, name), partial(adapter.listen, name)) for name in TOPICS]


class Ear:
    """A callback that records what it was called with."""

    def __init__(self) -> None:
        self.heard: list[str] = []

    def __call__(self, value: str) -> None:
        self.heard.append(value)

    async def hears(self, *values: str) -> None:
        """Wait until exactly these were received, in any order."""
        deadline = monotonic() + _HEAR_SECONDS
        while sorted(self.heard) != sorted(values):
            if monotonic() > deadline or len(self.heard) > len(values):
                raise CheckFailed(f"expected to receive {sorted(values)}, received {sorted(self.heard)}")
            await asyncio.sleep(0.005)

    async def stays_silent(self) -> None:
        """Fail if something is received within a moment.

        Call it after other listeners have received something.
        """
        await asyncio.sleep(_GRACE)
        if self.heard:
            raise CheckFailed(f"expected to receive nothing, received {self.heard}")


class Channel:
    """The adapter under test, and others on the same channel."""

    def __init__(self, harness: NotifyHarness, exits: AsyncExitStack) -> None:
        self._harness = harness
        self._exits = exits
        self.adapter = harness.adapter
        exits.push_async_callback(self.adapter.close)

    @property
    def topics(self) -> list[Topic]:
        """The topics. Skips the case if the adapter does not deliver."""
        if not self._harness.delivers:
            skip("the adapter delivers nothing")
        return topics(self.adapter)

    def needs_hints(self) -> None:
        """Skip the case for adapters without wake hints."""
        if not self._harness.hints:
            skip("the adapter has no wake hints")

    async def second(self) -> NotifyAdapter:
        adapter = await self._harness.second()
        self._exits.push_async_callback(adapter.close)
        return adapter

    async def sync_adapter(self) -> SyncNotify:
        adapter = SyncNotify(await self._harness.sync_adapter())
        self._exits.callback(adapter.close)
        return adapter


NOTIFY: Suite[Channel] = Suite("notify")
case = NOTIFY.case


@asynccontextmanager
async def open_channel(harness: NotifyHarness) -> AsyncGenerator[Channel, None]:
    """The channel of one case."""
    async with AsyncExitStack() as exits:
        exits.push_async_callback(harness.dispose)
        channel = Channel(harness, exits)
        await harness.reset()
        yield channel


def fresh(what: str = "name") -> str:
    """A unique text: other processes may publish on the same channel."""
    return f"{what}-{uuid4()}"
