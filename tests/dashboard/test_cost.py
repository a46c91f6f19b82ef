"""What pages read does not grow with the number of jobs: pages are counted, or steps of SQLite's machine."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.cli.test_cost import ID, SIZES, Postgres, Sqlite
from tests.dashboard import shop
from tests.support.postgres import server, template

import queuert
from queuert import Client, testing
from queuert.engine.sessions import Sessions
from queuert.features.doctor import examining as doctor

PAGES = {
    "overview": "/",
    "overview of 30 days": "/?span=30d",
    "the latest": "/chains",
    "by status": "/chains?where=status:failed",
    "by type and status": "/chains?where=status:pending type:rare",
    "no such error": "/chains?where=status:failed error:NONE",
    "before all": "/chains?where=status:completed ended:..2001-01-01T00:00Z",
    "chain": f"/chain/{ID.format(6)}",
    "job": f"/job/{ID.format(7)}",
    "workers": "/workers",
    "queues": "/queues",
    "schedules": "/schedules",
    "operations": "/operations",
    "storage": "/storage",
    "retry": f"/change/retry/{ID.format(6)}",
    "plan": "/change/many/retry?where=status:failed",
}


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/jobs.db"
        return
    with server().fresh(template=template()) as fresh:
        yield fresh


def look(url: str, path: str) -> None:
    with queuert.connect_sync(url, jobs=[], migrate=False, notify=None) as client:
        transport = httpx.WSGITransport(app=shop.make(client).wsgi)
        with httpx.Client(transport=transport, base_url="http://jobs.example") as web:
            page = web.get(path)
            assert page.status_code == 200, page.text


@pytest.mark.parametrize(("some", "all_of_them"), SIZES)
def test_what_pages_read_does_not_grow(url: str, some: int, all_of_them: int, monkeypatch: pytest.MonkeyPatch) -> None:
    if all_of_them < 100_000:  # bounds that are reached with few jobs
        monkeypatch.setattr("queuert.operate.dashboard.pages.overview.BOUND", 100)
        monkeypatch.setattr("queuert.operate.dashboard.pages.queues.BOUND", 100)
        monkeypatch.setattr("queuert.operate.dashboard.pages.chains.SHORT_PAGES", 1)
        monkeypatch.setattr(doctor, "ROWS", 100)
    place = Sqlite(url) if url.startswith("sqlite") else Postgres(url)
    looks: dict[str, Callable[[], object]] = {name: partial(look, url, path) for name, path in PAGES.items()}
    place.fill(1, some)
    before = {name: place.cost(each) for name, each in looks.items()}
    place.fill(some + 1, all_of_them)
    after = {name: place.cost(each) for name, each in looks.items()}
    for name in looks:
        print(f"{name:22} {before[name]:>10,} {after[name]:>10,}")  # noqa: T201
    # Trees are higher, and pages are fuller or emptier.
    grown = {name: (before[name], after[name]) for name in looks if after[name] > 1.5 * before[name] + 500}
    assert grown == {}


async def test_a_chain_of_many_jobs_takes_as_many_reads_as_one_of_few(
    client: Client[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    short = await client.submit(shop.Poll(round=4))
    long = await client.submit(shop.Poll(round=-30))
    async with testing.running(client, shop.handlers) as run:
        await run.until_idle()
    reads = 0
    original = Sessions[Any].run

    async def counted(self: Any, *args: Any) -> Any:
        nonlocal reads
        reads += 1
        return await original(self, *args)

    monkeypatch.setattr(Sessions, "run", counted)
    found: list[int] = []
    async with shop.browser(shop.make(client)) as web:
        for chain in (short, long):
            reads = 0
            page = await web.get(f"/chain/{chain.id}")
            assert re.search(r"×(2|36)<", page.text)
            found.append(reads)
    assert found[0] == found[1] <= 7


def test_the_size_of_tables_or_of_the_file_is_shown(url: str) -> None:
    with queuert.connect_sync(url, jobs=shop.JOBS) as client:
        client.submit(shop.Poll(round=1))
        transport = httpx.WSGITransport(app=shop.make(client).wsgi)
        with httpx.Client(transport=transport, base_url="http://jobs.example") as web:
            page = web.get("/storage").text
    assert re.search(r"The file has <b>[\d.]+ kB</b>|<code>queuert_job</code></td><td [^>]*>[\d.]+ kB</td>", page)
