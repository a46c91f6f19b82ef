"""Mounted below a prefix in each framework: links, forms and `access` with the framework's own request."""

from __future__ import annotations

import asyncio
import html
from typing import Any

import httpx
import pytest
from litestar import Litestar, asgi
from starlette.applications import Starlette
from starlette.requests import Request as StarletteRequest
from tests.dashboard import shop

import queuert
from queuert import Client, InvalidArgument
from queuert.dashboard import Access, Dashboard
from queuert.operate.dashboard.messages import LARGEST_EDITED, LARGEST_FORM, LARGEST_WITH_INPUT


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


def test_wsgi_runs_an_async_access() -> None:
    async def who(environ: Any) -> Access | None:
        await asyncio.sleep(0)
        return Access("reader", "bob") if environ.get("HTTP_X_USER") == "bob" else None

    with queuert.connect_sync("memory://", jobs=shop.JOBS) as client:
        transport = httpx.WSGITransport(app=shop.make(client, who).wsgi)
        with httpx.Client(transport=transport, base_url="http://jobs.example") as web:
            assert web.get("/").status_code == 403
            assert web.get("/", headers={"x-user": "bob"}).status_code == 200
            assert web.head("/", headers={"x-user": "bob"}).content == b""


async def test_asgi_answers_what_is_not_a_page(client: Client[Any]) -> None:
    door = shop.make(client).asgi
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=door), base_url="http://jobs.example") as web:
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


FORM = {"content-type": "application/x-www-form-urlencoded"}


class Body:
    """The body of a request, in pieces, for any server. It knows how much of it was read."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.taken = 0

    async def receive(self) -> Any:
        """As ASGI reads it."""
        piece = self.read(65536)
        return {"type": "http.request", "body": piece, "more_body": self.taken < self.size}

    def read(self, number: int = -1) -> bytes:
        """As WSGI reads it."""
        rest = self.size - self.taken
        piece = b"x" * (rest if number < 0 else min(number, rest))
        self.taken += len(piece)
        return piece


async def post_asgi(dashboard: Dashboard, path: str, body: Body, *, told: bool) -> int:
    """The status. `told`: the headers say how long it is."""
    headers = [(b"content-type", FORM["content-type"].encode()), (b"sec-fetch-site", b"same-origin")]
    if told:
        headers.append((b"content-length", str(body.size).encode()))
    scope = {"type": "http", "method": "POST", "path": path, "root_path": "", "query_string": b"", "headers": headers}
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    await dashboard.asgi(scope, body.receive, send)
    status: int = sent[0]["status"]
    return status


def post_wsgi(dashboard: Dashboard, path: str, body: Body) -> int:
    environ = {
        "REQUEST_METHOD": "POST",
        "PATH_INFO": path,
        "CONTENT_TYPE": FORM["content-type"],
        "CONTENT_LENGTH": str(body.size),
        "wsgi.input": body,
    }
    statuses: list[str] = []
    dashboard.wsgi(environ, lambda status, _: statuses.append(status))
    return int(statuses[0].split()[0])


NOT_FOR_FORMS = [
    (lambda _: None, "/change/prune", 403),
    (shop.reader, "/change/prune", 403),
    (shop.operator, "/chains", 405),
    (shop.operator, "/nothing", 404),
]


@pytest.mark.parametrize(("access", "path", "status"), NOT_FOR_FORMS)
async def test_no_byte_of_a_form_is_read_before_access_and_page_allow_it(
    client: Client[Any], access: Any, path: str, status: int
) -> None:
    for told in (True, False):
        body = Body(15_000_000)
        assert await post_asgi(shop.make(client, access), path, body, told=told) == status
        assert body.taken == 0


@pytest.mark.parametrize(("access", "path", "status"), NOT_FOR_FORMS)
def test_wsgi_reads_no_byte_of_a_form_either(access: Any, path: str, status: int) -> None:
    with queuert.connect_sync("memory://", jobs=shop.JOBS) as sync_client:
        body = Body(15_000_000)
        assert post_wsgi(shop.make(sync_client, access), path, body) == status
        assert body.taken == 0


@pytest.mark.parametrize(
    ("path", "largest"), [("/change/prune", LARGEST_FORM), ("/change/repair/x", LARGEST_WITH_INPUT)]
)
async def test_of_a_form_no_more_is_read_than_its_page_needs(client: Client[Any], path: str, largest: int) -> None:
    told, untold = Body(largest + 1), Body(15_000_000)
    assert await post_asgi(shop.make(client), path, told, told=True) == 413
    assert told.taken == 0
    assert await post_asgi(shop.make(client), path, untold, told=False) == 413
    assert untold.taken <= largest + 65536
    fits = Body(largest)
    assert await post_asgi(shop.make(client), path, fits, told=False) == 403  # read, and not signed
    assert fits.taken == largest
    with queuert.connect_sync("memory://", jobs=shop.JOBS) as sync_client:
        over = Body(largest + 1)
        assert post_wsgi(shop.make(sync_client), path, over) == 413
        assert over.taken == 0


async def test_what_no_browser_sends_as_a_form_is_not_read(
    client: Client[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(FORM, "content-type", "multipart/form-data; boundary=x")
    body = Body(1000)
    assert await post_asgi(shop.make(client), "/change/prune", body, told=True) == 403
    assert body.taken == 0


async def test_the_largest_input_that_can_be_edited_fits_its_form(client: Client[Any]) -> None:
    chain = await client.submit(shop.Mail(to="ada", data="%" * (LARGEST_EDITED - 100)), after=3600)
    async with client.transaction() as tx:
        await client.cancel(tx, chain)
    async with shop.browser(shop.make(client)) as web:
        asked = await web.get(f"/change/repair/{chain.id}")
        typed = html.unescape(asked.text.split("required>")[1].split("</textarea>")[0])
        done = await shop.carry_out(web, f"/change/repair/{chain.id}", input=typed, reason="INC-42")
    assert done.headers["location"] == f"/chain/{chain.id}?done=retried"
