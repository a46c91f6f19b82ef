"""Pages that update themselves: events over ASGI."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, MutableMapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
from tests.dashboard import shop
from tests.support.postgres import server, template

import queuert
from queuert import Client
from queuert.dashboard import Access
from queuert.operate.dashboard import live
from queuert.operate.dashboard.doors.asgi import AsgiDoor


class Stream:
    """What a browser hears. It leaves at the end of the block."""

    def __init__(self) -> None:
        self.status: int | None = None
        self.heard: asyncio.Queue[str] = asyncio.Queue()
        self.gone = asyncio.Event()

    async def send(self, message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
        else:
            self.heard.put_nowait(message["body"].decode())

    async def receive(self) -> MutableMapping[str, Any]:
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def event(self, name: str) -> None:
        while f"event: {name}" not in await asyncio.wait_for(self.heard.get(), 45):
            pass


@asynccontextmanager
async def listening(door: AsgiDoor) -> AsyncGenerator[Stream]:
    stream = Stream()
    scope = {"type": "http", "method": "GET", "path": "/events", "root_path": "", "query_string": b"", "headers": []}
    task = asyncio.create_task(door(scope, stream.receive, stream.send))
    try:
        assert "retry" in await asyncio.wait_for(stream.heard.get(), 45)
        yield stream
    finally:
        stream.gone.set()
        await asyncio.wait_for(task, 45)


async def test_a_change_is_heard_by_every_stream(client: Client[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "LONGEST", 3600.0)
    door = shop.make(client).asgi
    async with listening(door) as one, listening(door) as other:
        assert one.status == 200
        await client.submit(shop.Poll(round=1))
        await one.event("changed")
        await other.event("changed")


async def test_without_a_change_it_looks_again_after_a_while(
    client: Client[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "LONGEST", 0.01)
    monkeypatch.setattr(live, "SHORTEST", 0.0)
    async with listening(shop.make(client).asgi) as stream:
        await stream.event("changed")
        await stream.event("changed")


async def test_a_stream_ends_when_access_is_taken_away(client: Client[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "LONGEST", 0.01)
    monkeypatch.setattr(live, "SHORTEST", 0.0)
    monkeypatch.setattr(live, "ACCESS_EVERY", 0.0)
    allowed = [True]
    door = shop.make(client, lambda _: Access("reader", "bob") if allowed[0] else None).asgi
    async with listening(door) as stream:
        await stream.event("changed")
        allowed[0] = False
        await stream.event("closed")
    assert door._changes is not None
    assert not door._changes._streams


async def test_streams_hold_no_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "LONGEST", 3600.0)
    async with AsyncExitStack() as stack:
        url = stack.enter_context(server().fresh(template=template()))
        client = await stack.enter_async_context(queuert.connect(url, jobs=shop.JOBS, pool_size=2))
        door = shop.make(client).asgi
        streams = [await stack.enter_async_context(listening(door)) for _ in range(5)]  # more than connections
        await asyncio.wait_for(client.submit(shop.Poll(round=1)), 20)
        for stream in streams:
            await stream.event("changed")
