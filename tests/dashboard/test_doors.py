"""Mounted below a prefix in each framework: links, forms and `access` with the framework's own request."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest
from litestar import Litestar, asgi
from starlette.applications import Starlette
from starlette.requests import Request as StarletteRequest
from tests.dashboard import shop

import queuert
from queuert import Client, InvalidArgument
from queuert.dashboard import Access
from queuert.operate.dashboard.messages import LARGEST_BODY


async def use(app: Any, prefix: str, stock: shop.Stock, client: Client[Any]) -> None:
    """Read a page, follow its link, and retry a chain."""
    transport = httpx.ASGITransport(app=app)
    headers = {"x-user": "ada", "sec-fetch-site": "same-origin"}
    async with httpx.AsyncClient(transport=transport, base_url="http://jobs.example", headers=headers) as web:
        assert (await web.get(f"{prefix}/", headers={"x-user": "eve"})).status_code == 403
        page = await web.get(f"{prefix}/chain/{stock.failed}")
        assert page.status_code == 200, page.text
        assert f'href="{prefix}/change/retry/{stock.failed}"' in page.text
        assert f'data-events="{prefix}/events"' in page.text
        sheet = page.text.split('rel="stylesheet" href="')[1].split('"')[0]
        assert (await web.get(sheet)).headers["content-type"].startswith("text/css")
        done = await shop.carry_out(web, f"{prefix}/change/retry/{stock.failed}", reason="INC-42")
        assert done.headers["location"] == f"{prefix}/chain/{stock.failed}?done=retried"
    (record,) = (await client.list_audit(stock.failed)).items
    assert record.by == "ada"


async def test_starlette(client: Client[Any], stock: shop.Stock) -> None:
    async def who(request: StarletteRequest) -> Access | None:
        return Access("operator", "ada") if request.headers.get("x-user") == "ada" else None

    app = Starlette()
    app.mount("/ops/jobs", shop.make(client, who).asgi)
    await use(app, "/ops/jobs", stock, client)
    await use_root_path(app, stock)


async def use_root_path(app: Any, stock: shop.Stock) -> None:
    """Behind a proxy that removes a prefix: the server is told of it."""
    transport = httpx.ASGITransport(app=app, root_path="/proxied")
    async with httpx.AsyncClient(transport=transport, base_url="http://x", headers={"x-user": "ada"}) as web:
        page = await web.get(f"/proxied/ops/jobs/chain/{stock.completed}")
        assert 'href="/proxied/ops/jobs/chains"' in page.text


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
async def test_litestar(client: Client[Any], stock: shop.Stock) -> None:
    def who(request: Any) -> Access | None:
        return Access("operator", "ada") if request.headers.get("x-user") == "ada" else None

    dashboard = shop.make(client, who)

    @asgi("/ops/jobs", is_mount=True, copy_scope=True)
    async def mounted(scope: Any, receive: Any, send: Any) -> None:
        await dashboard.asgi(scope, receive, send)

    await use(Litestar([mounted]), "/ops/jobs", stock, client)


def test_wsgi_runs_an_async_access_and_refuses_large_forms() -> None:
    async def who(environ: Any) -> Access | None:
        await asyncio.sleep(0)
        return Access("reader", "bob") if environ.get("HTTP_X_USER") == "bob" else None

    with queuert.connect_sync("memory://", jobs=shop.JOBS) as client:
        transport = httpx.WSGITransport(app=shop.make(client, who).wsgi)
        with httpx.Client(transport=transport, base_url="http://jobs.example") as web:
            assert web.get("/").status_code == 403
            assert web.get("/", headers={"x-user": "bob"}).status_code == 200
            assert web.head("/", headers={"x-user": "bob"}).content == b""
            assert web.post("/", content=b"x" * (LARGEST_BODY + 1)).status_code == 413


async def test_asgi_refuses_large_forms_and_answers_what_is_not_a_page(client: Client[Any]) -> None:
    door = shop.make(client).asgi
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=door), base_url="http://jobs.example") as web:
        assert (await web.post("/", content=b"x" * (LARGEST_BODY + 1))).status_code == 413
        assert (await web.head("/")).content == b""
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        return {"type": "lifespan.shutdown" if sent else "lifespan.startup"}

    await door({"type": "lifespan"}, receive, send)
    await door({"type": "websocket"}, receive, send)
    kinds = [message["type"] for message in sent]
    assert kinds == ["lifespan.startup.complete", "lifespan.shutdown.complete", "websocket.close"]


def test_a_door_needs_its_kind_of_client(client: Client[Any]) -> None:
    with queuert.connect_sync("memory://", jobs=shop.JOBS) as sync_client:
        for door, wrong in (("asgi", sync_client), ("wsgi", client)):
            core = getattr(shop.make(wrong), door)._core
            with pytest.raises(InvalidArgument, match=r"needs? a"):
                core.client()
