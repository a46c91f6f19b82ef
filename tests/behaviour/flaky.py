"""Storage and notifications that fail as the weather does: errors for a while, then none; one seed, one weather."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

from queuert import StorageError
from queuert.ports.notify import Callback, Dispose, Topic


class Weather:
    """Says for each step whether it fails. `good` and `bad` are the longest runs of successes and of errors."""

    def __init__(self, seed: int, *, good: int, bad: int) -> None:
        self._random = random.Random(seed)
        self._longest = {False: good, True: bad}
        self._failing = True
        self._left = 0
        self.failures = 0
        self.steps = 0

    def step(self, where: str) -> None:
        self.steps += 1
        if self._left == 0:
            self._failing = not self._failing
            self._left = self._random.randint(1, self._longest[self._failing])
        self._left -= 1
        if self._failing:
            self.failures += 1
            raise self._random.choice([StorageError, ConnectionResetError, TimeoutError])(f"{where} failed, on purpose")

    def clear_up(self) -> None:
        """From here on nothing fails."""
        self._longest[True] = 1
        self._failing, self._left = False, 10**9


class FlakyNotify:
    """A channel on which everything may fail; what does not goes to the real one."""

    def __init__(self, notify: Any, weather: Weather) -> None:
        self._notify = notify
        self._weather = weather

    async def provide_wake_hints(self, counts: Mapping[str, int]) -> None:
        self._weather.step("provide_wake_hints")
        await self._notify.provide_wake_hints(counts)

    async def consume_wake_hint(self, type_name: str) -> bool:
        self._weather.step("consume_wake_hint")
        wanted: bool = await self._notify.consume_wake_hint(type_name)
        return wanted

    async def publish(self, topic: Topic, values: Sequence[str]) -> None:
        self._weather.step(topic)
        await self._notify.publish(topic, values)

    async def listen(self, topic: Topic, callback: Callback) -> Dispose:
        self._weather.step(f"listen_{topic}")
        return self._flaky_dispose(await self._notify.listen(topic, callback))

    async def close(self) -> None:
        await self._notify.close()

    def _flaky_dispose(self, dispose: Dispose) -> Dispose:
        async def flaky_dispose() -> None:
            await dispose()
            self._weather.step("dispose")

        return flaky_dispose
