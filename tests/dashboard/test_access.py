"""Who may see and change what: closed by default, roles, and forms that others have made."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from tests.dashboard import shop

from queuert import Client, InvalidArgument
from queuert.dashboard import Access, Dashboard
from queuert.operate.dashboard.access import local_operator
from queuert.operate.dashboard.csrf import make_token


async def test_without_access_everything_is_refused(client: Client[Any], stock: shop.Stock) -> None:
    async with shop.browser(Dashboard(client, secret=shop.SECRET)) as web:
        for path in [*shop.paths(stock), "/static/dashboard.css", "/events"]:
            page = await web.get(path)
            assert page.status_code == 403
            assert "charge-card" not in page.text


async def test_access_that_answers_none_is_refused_and_may_be_async(client: Client[Any]) -> None:
    async def who(scope: Any) -> Access | None:
        headers = dict(scope["headers"])
        return Access("reader", "bob") if headers.get(b"x-user") == b"bob" else None

    async with shop.browser(shop.make(client, who)) as web:
        assert (await web.get("/")).status_code == 403
        assert (await web.get("/", headers={"x-user": "bob"})).status_code == 200


async def test_an_answer_that_is_no_access_is_an_error(client: Client[Any]) -> None:
    async with shop.browser(shop.make(client, lambda _: True)) as web:
        assert (await web.get("/")).status_code == 500


async def test_a_reader_sees_no_button_and_can_change_nothing(client: Client[Any], stock: shop.Stock) -> None:
    async with shop.browser(shop.make(client, shop.reader)) as web:
        for path in shop.paths(stock):
            page = await web.get(path)
            assert page.status_code == (403 if path.startswith("/change/") else 200)
            assert 'class="button' not in page.text or path in ("/storage",)
            assert "/change/" not in page.text.replace("/change/many/retry", "") or path.startswith("/change/")
        token = make_token(shop.SECRET.encode(), Access("reader", "bob"))
        refused = await web.post(f"/change/delete/{stock.completed}", data={"token": token, "reason": "x"})
    assert refused.status_code == 403
    assert await client.get_chain(stock.completed) is not None


@pytest.mark.parametrize(
    ("headers", "token", "accepted"),
    [
        ({"sec-fetch-site": "same-origin"}, "own", True),
        ({"sec-fetch-site": "cross-site"}, "own", False),
        ({"sec-fetch-site": "same-site"}, "own", False),
        ({"origin": "http://jobs.example"}, "own", True),
        ({"origin": "https://jobs.example"}, "own", True),  # a proxy ends TLS
        ({"origin": "http://evil.example"}, "own", False),
        ({"origin": "null"}, "own", False),
        ({}, "own", True),
        ({"sec-fetch-site": "same-origin"}, "", False),
        ({"sec-fetch-site": "same-origin"}, "1.abc", False),
        ({"sec-fetch-site": "same-origin"}, "of another", False),
        ({"sec-fetch-site": "same-origin"}, "old", False),
    ],
)
async def test_a_form_must_come_from_a_page_of_ours(
    client: Client[Any], stock: shop.Stock, headers: dict[str, str], token: str, accepted: bool
) -> None:
    key, ada = shop.SECRET.encode(), Access("operator", "ada")
    tokens = {
        "own": make_token(key, ada),
        "of another": make_token(key, Access("operator", "eve")),
        "old": make_token(key, ada, now=1_000_000_000),
    }
    transport = httpx.ASGITransport(app=shop.make(client).asgi)
    async with httpx.AsyncClient(transport=transport, base_url="http://jobs.example") as web:
        data = {"token": tokens.get(token, token), "reason": "x"}
        answer = await web.post(f"/change/retry/{stock.failed}", data=data, headers=headers)
    assert answer.status_code == (303 if accepted else 403)
    chain = await client.get_chain(stock.failed)
    assert chain is not None
    assert chain.status == ("pending" if accepted else "failed")


async def test_nothing_is_changed_by_get(web: httpx.AsyncClient, client: Client[Any], stock: shop.Stock) -> None:
    await web.get(f"/change/retry/{stock.failed}?reason=x&sure=1")
    assert (await web.put("/")).status_code == 405
    assert (await web.post("/")).status_code == 405
    chain = await client.get_chain(stock.failed)
    assert chain is not None
    assert chain.status == "failed"


@pytest.mark.parametrize(
    ("peer", "headers", "allowed"),
    [
        ("127.0.0.1", {"host": "127.0.0.1:8000"}, True),
        ("127.0.0.1", {"host": "localhost:8000"}, True),
        ("::1", {"host": "[::1]:8000"}, True),
        ("127.0.0.1", {"host": "evil.example"}, False),
        ("127.0.0.1", {"host": "localhost.evil.example"}, False),
        ("127.0.0.1", {}, False),
        ("192.168.1.7", {"host": "localhost"}, False),
        ("127.0.0.1", {"host": "localhost", "x-forwarded-for": "1.2.3.4"}, False),
        ("127.0.0.1", {"host": "localhost", "forwarded": "for=1.2.3.4"}, False),
        ("127.0.0.1", {"host": "localhost", "x-forwarded-proto": "https"}, False),
        ("127.0.0.1", {"host": "localhost", "x-real-ip": "1.2.3.4"}, False),
        ("127.0.0.1", {"host": "localhost", "via": "1.1 proxy"}, False),
        ("127.0.0.1", {"host": "localhost", "cf-connecting-ip": "1.2.3.4"}, False),
        ("127.0.0.1", {"host": "127.0.0.1.evil.example"}, False),
        ("127.0.0.1", {"host": "localhost@evil.example"}, False),
        ("127.0.0.1", {"host": "0.0.0.0:8000"}, False),
        ("not an address", {"host": "localhost"}, False),
    ],
)
def test_the_command_answers_this_machine_only(peer: str, headers: dict[str, str], allowed: bool) -> None:
    scope = {"client": (peer, 1234), "headers": [(name.encode(), value.encode()) for name, value in headers.items()]}
    assert (local_operator("ada")(scope) is not None) is allowed


async def test_settings_that_cannot_work_are_refused(client: Client[Any]) -> None:
    with pytest.raises(InvalidArgument, match="needs secret="):
        _ = Dashboard(client, access=shop.operator).asgi
    with pytest.raises(InvalidArgument, match="16 characters"):
        Dashboard(client, secret="short")
    with pytest.raises(InvalidArgument, match="list of field names"):
        Dashboard(client, hide="card")
    with pytest.raises(InvalidArgument, match="'reader' or 'operator'"):
        Access("admin", "ada")  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="must not be empty"):
        Access("reader", "")
