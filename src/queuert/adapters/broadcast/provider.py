"""A provider with its optional members filled in, and its errors translated."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from queuert.errors import NotifyUnavailable, QueuertError
from queuert.ports.notify import NotifyProvider, OnMessage

T = TypeVar("T")

MAX_PAYLOAD = 7500
"""Bytes. PostgreSQL allows 7,999; few brokers allow less."""
HINT_SECONDS = 60
"""How long a broker keeps a budget of wake hints. Without one, every worker wakes."""


class CompleteProvider:
    def __init__(self, provider: NotifyProvider, echo: str) -> None:
        """`echo` is a channel that nothing else uses."""
        self._provider: Any = provider
        self._name: str = getattr(provider, "name", type(provider).__name__)
        self.max_payload: int = getattr(provider, "max_payload", MAX_PAYLOAD)
        self.has_hints = hasattr(provider, "consume_wake_hint")
        self.can_extend = hasattr(provider, "extend")
        self._echo = None if hasattr(provider, "ping") else Echo(self.publish, echo)

    async def publish(self, channel: str, messages: Sequence[str]) -> None:
        await self._translated(self._provider.publish(channel, messages))

    async def subscribe(self, channels: Sequence[str], on_message: OnMessage, ready: Callable[[], None]) -> None:
        if self._echo is not None:
            channels, on_message = [*channels, self._echo.channel], self._echo.filter(on_message)
        await self._translated(self._provider.subscribe(channels, on_message, ready))

    async def extend(self, channels: Sequence[str]) -> None:
        await self._translated(self._provider.extend(channels))

    async def confirm(self) -> None:
        """Check that a new subscription is active, unless the provider guarantees it."""
        if self._echo is not None:
            await self._echo.ping()

    async def ping(self) -> None:
        await (self._provider if self._echo is None else self._echo).ping()

    async def provide_wake_hints(self, counts: Mapping[str, int]) -> None:
        added = {name: count for name, count in counts.items() if count > 0}
        if self.has_hints and added:
            await self._translated(self._provider.provide_wake_hints(added))

    async def consume_wake_hint(self, type_name: str) -> bool:
        return not self.has_hints or await self._translated(self._provider.consume_wake_hint(type_name))

    async def hold(self, key: int) -> int | None:
        if not hasattr(self._provider, "hold"):
            return None
        session: int | None = await self._translated(self._provider.hold(key))
        return session

    async def release(self, key: int) -> None:
        if hasattr(self._provider, "release"):
            await self._translated(self._provider.release(key))

    async def close(self) -> None:
        if hasattr(self._provider, "close"):
            await self._provider.close()

    async def _translated(self, call: Awaitable[T]) -> T:
        try:
            return await call
        except QueuertError:
            raise
        except Exception as error:
            raise NotifyUnavailable(f"{self._name} is unavailable: {str(error) or type(error).__name__}") from error


class Echo:
    """Checks a subscription by sending a message to ourselves."""

    FIRST, LAST = 0.05, 2.0
    """Seconds between two messages."""

    def __init__(self, publish: Callable[[str, Sequence[str]], Awaitable[None]], channel: str) -> None:
        self.channel = channel
        self._publish = publish
        self._heard = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    def filter(self, on_message: OnMessage) -> OnMessage:
        """Wrap `on_message` so that it does not get our own messages.

        They may arrive in any thread.
        """

        def receive(channel: str, payload: str | bytes) -> None:
            if channel == self.channel:
                self._loop.call_soon_threadsafe(self._heard.set)
            else:
                on_message(channel, payload)

        return receive

    async def ping(self) -> None:
        """Send messages until one arrives: some brokers lose messages sent right after
        subscribing.
        """
        self._heard.clear()
        pause = self.FIRST
        while not self._heard.is_set():
            await self._publish(self.channel, ["[]"])
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._heard.wait()
            pause = min(2 * pause, self.LAST)
