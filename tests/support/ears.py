"""Callbacks that remember what they heard, and can be waited for."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

from queuert.ports.notify import MISSED

PATIENCE = 45.0


class Ear:
    """On an event loop."""

    def __init__(self) -> None:
        self.heard: list[str] = []
        self._news = asyncio.Event()

    def __call__(self, value: str) -> None:
        self.heard.append(value)
        self._news.set()

    async def until(self, value: str, times: int = 1) -> None:
        await self.until_so(lambda: self.heard.count(value) >= times)

    async def until_so(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE):
            while not condition():
                self._news.clear()
                await self._news.wait()

    @property
    def messages(self) -> list[str]:
        """Without the word that some may have been missed."""
        return [value for value in self.heard if value != MISSED]


class ThreadEar:
    """The same, for threads."""

    def __init__(self) -> None:
        self.heard: list[str] = []
        self._news = threading.Condition()

    def __call__(self, value: str) -> None:
        with self._news:
            self.heard.append(value)
            self._news.notify_all()

    def until(self, value: str) -> None:
        with self._news:
            assert self._news.wait_for(lambda: value in self.heard, PATIENCE), self.heard
