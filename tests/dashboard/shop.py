"""A small shop whose chains are in every state, for tests of the dashboard."""

from __future__ import annotations

import html
import re
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import httpx

from queuert import Attempt, Backoff, Chain, ChainFailed, Client, EntryJob, Every, Handlers, Job, Limit, testing
from queuert.dashboard import Access, Dashboard

SECRET = "a secret of the tests, long enough"
CARD = "4111 1111 1111 1111"
ATTACK = "<script>alert('xss')</script><img src=x onerror=alert(1)>\"'}{{7*7}} \u202eevil\u202c 🦊"


class Ship(Job[str], name="ship-order"):
    order: int


class Charge(Job[str, "Ship"], name="charge-card"):
    order: int
    card: str


class Reserve(EntryJob[str, "Charge"], name="reserve-stock"):
    order: int


class Invoice(EntryJob[None], name="send-invoice"):
    customer: str
    orders: list[Chain[Reserve]]


class Poll(EntryJob[int, "Poll"], name="poll-carrier"):
    round: int


class Mail(EntryJob[None], name="send-mail"):
    to: str
    data: Any = None


class Sync(EntryJob[None], name="sync-tenant", limit=Limit("partner-api", by="tenant", concurrency=2)):
    tenant: str


WIDE = "WWWWWWWW-MMMMMMMM-of-every-partner-and-bank"


class Wide(EntryJob[int, "Wide"], name=WIDE):
    """Started by tests of what fits where."""

    round: int


LIMIT = "partner-api"


class CountStock(EntryJob[None], name="count-stock"):
    """Never started: a worker that has only this one can be seen, and does nothing."""


JOBS = (Reserve, Invoice, Poll, Mail, Sync, CountStock, Wide)

handlers = Handlers[Any]()


@handlers.handles(Reserve)
async def reserve(attempt: Attempt[Reserve, Any]) -> Charge:
    return Charge(order=attempt.job.order, card=CARD)


@handlers.handles(Charge, max_attempts=2, backoff=Backoff(initial=0.001))
async def charge(attempt: Attempt[Charge, Any]) -> Ship:
    if attempt.job.order < 0:
        raise ValueError(f"the bank refused {attempt.job.card} for {ATTACK}")
    return Ship(order=attempt.job.order)


@handlers.handles(Ship)
async def ship(attempt: Attempt[Ship, Any]) -> str:
    return f"P{attempt.job.order}"


@handlers.handles(Invoice)
async def invoice(attempt: Attempt[Invoice, Any]) -> None: ...


@handlers.handles(Poll)
async def poll(attempt: Attempt[Poll, Any]) -> int | Poll:
    return attempt.job.round if attempt.job.round >= 5 else Poll(round=attempt.job.round + 1)


@handlers.handles(Wide)
async def wide(attempt: Attempt[Wide, Any]) -> int | Wide:
    return attempt.job.round if attempt.job.round >= 12 else Wide(round=attempt.job.round + 1)


@handlers.handles(Sync)
async def sync_tenant(attempt: Attempt[Sync, Any]) -> None: ...


idle_handlers = Handlers[Any]()


@idle_handlers.handles(CountStock)
async def count_stock(attempt: Attempt[CountStock, Any]) -> None: ...


@dataclass
class Stock:
    """Ids of chains, by what has become of them."""

    completed: str
    failed: str
    blocked: str
    waiting: str
    loop: str


async def fill(client: Client[Any]) -> Stock:
    completed, failed = await client.submit_many([Reserve(order=1), Reserve(order=-1)])
    blocked = await client.submit(Invoice(customer=ATTACK, orders=[completed, failed]))
    loop = await client.submit(Poll(round=1))
    waiting = await client.submit(Mail(to=ATTACK), after=timedelta(hours=2), dedup=f"key {ATTACK}")
    async with client.transaction() as tx:
        await client.put_schedule(tx, f"daily {ATTACK}", Every(timedelta(days=1)), Mail(to="ops@example.com"))
        await client.pause(tx, Mail, reason=f"moving {ATTACK}", by=f"ada {ATTACK}", until=timedelta(hours=3))
    async with testing.running(client, handlers) as run:
        with suppress(ChainFailed):
            await client.wait(failed)
        await run.until_idle()
    await client.submit_many([Sync(tenant=tenant) for tenant in ("acme", "acme", ATTACK)])
    return Stock(completed.id, failed.id, blocked.id, waiting.id, loop.id)


def paths(stock: Stock) -> list[str]:
    """Every page."""
    return [
        "/",
        "/chains",
        "/chains?where=status:failed",
        "/chains?where=status:cancelled",
        f"/chain/{stock.completed}",
        f"/chain/{stock.failed}",
        f"/chain/{stock.failed}?at=2026-01-01T00:00:00Z",
        f"/chain/{stock.blocked}",
        f"/chain/{stock.waiting}",
        f"/chain/{stock.loop}",
        f"/job/{stock.completed}",
        f"/job/{stock.waiting}",
        "/workers",
        "/queues",
        "/schedules",
        f"/schedule?name={httpx.QueryParams({'': f'daily {ATTACK}'})!s}".replace("name==", "name="),
        "/operations",
        "/storage",
        f"/change/retry/{stock.failed}",
        f"/change/repair/{stock.failed}",
        f"/change/cancel/{stock.waiting}",
        f"/change/trigger/{stock.waiting}",
        f"/change/delete/{stock.completed}",
        "/change/many/retry?where=status:failed",
        "/change/many/set_priority?where=status:pending",
        "/change/pause?target=everything",
        "/change/resume?target=type:send-mail",
        f"/change/pause?target=key:{LIMIT}%1Facme",
        f"/change/limit/set?lane={LIMIT}",
        f"/change/limit/set?lane={LIMIT}%1Facme",
        f"/change/limit/clear?lane={LIMIT}",
        "/change/prune",
    ]


def operator(_: Any) -> Access:
    return Access("operator", "ada")


def reader(_: Any) -> Access:
    return Access("reader", "bob")


def make(client: Any, access: Any = operator, **options: Any) -> Dashboard:
    return Dashboard(client, title="shop", secret=SECRET, access=access, **options)


def browser(dashboard: Dashboard) -> httpx.AsyncClient:
    """It sends what a browser sends."""
    headers = {"sec-fetch-site": "same-origin"}
    transport = httpx.ASGITransport(app=dashboard.asgi)
    return httpx.AsyncClient(transport=transport, base_url="http://jobs.example", headers=headers)


def form_of(page: str) -> dict[str, str]:
    """The hidden fields of the form on a page."""
    form = page[page.index('method="post"') :]
    found = re.findall(r'<input type="hidden" name="([^"]+)" value="([^"]*)">', form)
    return {name: html.unescape(value) for name, value in found}


async def carry_out(web: httpx.AsyncClient, path: str, **fields: str) -> httpx.Response:
    """Open the page that asks, and answer it."""
    asked = await web.get(path)
    assert asked.status_code == 200, asked.text
    return await web.post(path.partition("?")[0], data={**form_of(asked.text), **fields})
