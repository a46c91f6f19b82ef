"""The listener that all brokers share, and drivers that keep a cancellation for themselves (before Python 3.12)."""

from __future__ import annotations

import asyncio

import pytest

from queuert import ClientClosed
from queuert.adapters.broadcast.listener import Link, Listener, OnLost, OnMessage
from queuert.adapters.broadcast.messages import Subscriptions


class QuietLink:
    def __init__(self) -> None:
        self.closed = False

    async def ping(self) -> None: ...

    async def close(self) -> None:
        self.closed = True


@pytest.mark.parametrize("end", ["connected", "failed"])
async def test_a_driver_that_swallows_the_end(end: str) -> None:
    links: list[QuietLink] = []
    began = asyncio.Event()

    async def open_link(on_message: OnMessage, on_lost: OnLost) -> Link:
        began.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            if end == "failed":
                raise OSError("no connection") from None
        links.append(QuietLink())
        return links[-1]

    listener = Listener(open_link, Subscriptions({}), 30)
    active = asyncio.create_task(listener.active())
    await began.wait()
    task = listener._life.task if listener._life is not None else None
    assert task is not None
    listener.stop()
    async with asyncio.timeout(30):
        await listener.stopped()
    with pytest.raises(ClientClosed):
        await active
    assert task.cancelled() or task.exception() is None
    assert [link.closed for link in links] == ([True] if end == "connected" else [])
