"""Every page, through the doors: what it shows, and that nothing on it is taken for HTML."""

from __future__ import annotations

import asyncio
import html
import re
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.behaviour.steps import Gate
from tests.dashboard import shop

import queuert
from queuert import Attempt, ChainFailed, Client, Handlers, Worker, testing
from queuert.operate.dashboard.drawing.hiding import HIDDEN
from queuert.operate.dashboard.rendering import short_id
from queuert.records.schedules import chain_id

ALLOWED = frozenset(
    re.findall(
        r"\w+",
        "a article b bdi body br button circle code dd defs details dialog div dl dt em figure footer form g h1 h2 h3 "
        "head header html i input kbd label li link main marker meta meter nav ol p path pre rect script section small "
        "span summary svg symbol table tbody td text textarea th thead time title tr ul use",
    )
)


class Checked(HTMLParser):
    """Only our own elements, no inline script or style, nothing from elsewhere, and labels for every field."""

    def __init__(self) -> None:
        super().__init__()
        self.problems: list[str] = []
        self.labelled: set[str] = set()
        self.fields: list[tuple[str, dict[str, str | None]]] = []
        self.in_script = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.in_script = tag == "script"
        if tag not in ALLOWED:
            self.problems.append(f"element {tag}")
        self.problems += [f"{tag} {name}" for name in given if name.startswith("on") or name in ("style", "srcdoc")]
        for name in ("href", "src", "action", "formaction", "hx-get"):
            value = given.get(name)
            if value is not None and not value.startswith(("/", "#")):
                self.problems.append(f"{tag} {name}={value}")
        if tag == "label" and given.get("for"):
            self.labelled.add(str(given["for"]))
        if tag in ("input", "textarea", "select") and given.get("type") != "hidden":
            self.fields.append((tag, given))

    def handle_data(self, data: str) -> None:
        if self.in_script and data.strip():
            self.problems.append(f"inline script {data[:40]}")

    def handle_endtag(self, tag: str) -> None:
        self.in_script = False

    def check(self) -> list[str]:
        unlabelled = [
            str(given) for _, given in self.fields
            if given.get("id") not in self.labelled and not given.get("aria-label") and given.get("type") != "checkbox"
        ]  # fmt: skip
        return [*self.problems, *unlabelled]


def check(page: httpx.Response) -> None:
    parser = Checked()
    parser.feed(page.text)
    assert parser.check() == [], page.url
    assert "default-src 'none'" in page.headers["content-security-policy"]
    assert page.headers["x-frame-options"] == "DENY"
    assert page.headers["cache-control"] == "no-store"


async def test_every_page_shows_hostile_text_as_text(web: httpx.AsyncClient, stock: shop.Stock) -> None:
    for path in shop.paths(stock):
        page = await web.get(path)
        assert page.status_code == 200, (path, page.text)
        check(page)


@pytest.mark.parametrize("part", ["/nothing", "/chain/nothing", "/job/ffff", "/chains?where=zzz", "/schedule?name=x"])
async def test_what_does_not_exist_is_404(web: httpx.AsyncClient, part: str) -> None:
    assert (await web.get(part)).status_code == 404


async def test_a_filter_that_cannot_be_read_is_explained(web: httpx.AsyncClient) -> None:
    page = await web.get("/chains", params={"where": "colour:<b>red</b>"})
    assert page.status_code == 400
    assert "colour" in page.text
    assert "<b>red</b>" not in page.text


async def test_the_overview_names_what_needs_attention(web: httpx.AsyncClient) -> None:
    page = (await web.get("/")).text
    assert "1 charge-card failed" in page
    assert "type send-mail is paused" in page
    assert page.index("no worker is alive, and 3 jobs wait") < page.index("1 charge-card failed")
    assert "<title>2 need attention · shop</title>" in page


async def test_what_does_not_fit_is_a_link(client: Client[Any]) -> None:
    async with client.transaction() as tx:
        for number in range(25):
            await client.pause(tx, f"type-{number}", by="ada")
    async with shop.browser(shop.make(client)) as web:
        page = (await web.get("/?span=24h")).text
        link = html.unescape(re.findall(r'<a href="([^"]+)">and 15 more</a>', page)[0])
        assert "span=24h" in link
        everything = (await web.get(link)).text
    assert page.count("is paused") == 10
    assert everything.count("is paused") == 25


def test_ids_that_a_schedule_made_can_be_told_apart() -> None:
    at = datetime(2026, 11, 17, 8, tzinfo=UTC)
    ids = [
        chain_id(incarnation, at + timedelta(hours=hours), place)
        for incarnation in (0x123456789ABCDEF, 0x123456789AB1234)
        for hours in (0, 1, 24)
        for place in (0, 1)
    ]
    assert len({short_id(each) for each in ids}) == len(ids)
    assert max(map(len, map(short_id, ids))) <= 18


async def test_a_search_by_the_beginning_of_an_id_opens_the_chain(web: httpx.AsyncClient, stock: shop.Stock) -> None:
    page = await web.get("/chains", params={"where": stock.waiting[:-1]})
    assert (page.status_code, page.headers["location"]) == (303, f"/chain/{stock.waiting}")


async def test_the_chain_has_a_picture_of_jobs_blockers_dependents_and_loops(
    web: httpx.AsyncClient, stock: shop.Stock
) -> None:
    failed = (await web.get(f"/chain/{stock.failed}")).text
    assert failed.count('class="box job completed"') == 2  # once for each direction
    assert failed.count('class="box job failed"') == 2
    assert failed.count('class="box dependent blocked"') == 2
    blocked = (await web.get(f"/chain/{stock.blocked}")).text
    assert blocked.count('class="box blocker failed"') == 2
    assert "It waits for ever" in blocked
    loop = (await web.get(f"/chain/{stock.loop}")).text
    assert "×5" in loop


async def test_of_many_chains_that_a_job_waits_for_the_failed_are_seen(client: Client[Any]) -> None:
    good = await client.submit_many([shop.Reserve(order=number) for number in range(12)])
    bad = await client.submit_many([shop.Reserve(order=-1), shop.Reserve(order=-2)])
    late = await client.submit(shop.Reserve(order=99), after=3600)
    invoice = await client.submit(shop.Invoice(customer="ada", orders=[*good, late, *bad]))
    async with testing.running(client, shop.handlers) as run:
        for chain in bad:
            with pytest.raises(ChainFailed):
                await client.wait(chain)
        await run.until_idle()
    async with shop.browser(shop.make(client)) as web:
        page = (await web.get(f"/chain/{invoice.id}")).text
        down = page.split('class="graph down"')[1].split("</svg>")[0]
        assert re.findall(r'class="box blocker (\w+)"', down) == ["failed", "failed", "pending"]
        assert "and 12 more" in down
        assert "12 completed" in down
        assert "15 chains</a>: 2 failed, 1 pending, 12 completed." in page
        why = page.split('class="why')[1].split("</section>")[0]
        for chain in (*bad, late):
            assert f'<a href="/chain/{chain.id}"><code>{chain.id}</code></a>' in why
        job = (await web.get(f"/job/{invoice.id}")).text.split("Waits for")[1]
        assert "15 chains: 2 failed, 1 pending, 12 completed" in job
        assert re.findall(r'<span class="status (\w+)">', job)[:4] == ["failed", "failed", "pending", "completed"]


async def test_ids_of_jobs_that_hold_a_limit_are_links(client: Client[Any], stock: shop.Stock) -> None:
    gate = Gate()
    handlers = Handlers[Any]()

    @handlers.handles(shop.Sync)
    async def wait(attempt: Attempt[shop.Sync, Any]) -> None:
        await gate()

    async with Worker(client, handlers, concurrency=3), shop.browser(shop.make(client)) as web:
        await gate.arrival()
        waiting = await client.submit(shop.Sync(tenant="acme"))
        running = (await client.list_jobs(shop.Sync, status="running")).items
        (oldest, *_) = (job for job in running if job.input["tenant"] == "acme")
        page = (await web.get(f"/chain/{waiting.id}")).text
        gate.open()
    assert f'<a href="/job/{oldest.id}"><code>{oldest.id}</code></a>' in page.split('class="why')[1]


@pytest.mark.parametrize("page", ["chain", "job"])
async def test_a_page_shows_one_moment_although_the_chain_ends_while_it_is_read(
    client: Client[Any], monkeypatch: pytest.MonkeyPatch, page: str
) -> None:
    chain = await client.submit(shop.Poll(round=9))
    original, ended = client.why, False

    async def late(asked: Any) -> Any:
        nonlocal ended
        if not ended:
            ended = True
            async with testing.running(client, shop.handlers) as run:
                await run.until_idle()
        return await original(asked)

    monkeypatch.setattr(client, "why", late)
    async with shop.browser(shop.make(client)) as web:
        shown = (await web.get(f"/{page}/{chain.id}")).text
    assert ended
    assert "<title>completed: poll-carrier" in shown
    assert "It has ended" not in shown


async def test_the_chain_at_an_earlier_moment(client: Client[Any], web: httpx.AsyncClient, stock: shop.Stock) -> None:
    first, second = (await client.list_chain_jobs(stock.failed)).items
    before = await web.get(f"/chain/{stock.failed}", params={"at": first.created_at.isoformat()})
    assert before.text.count('class="box job pending"') == 2
    assert before.text.count('class="box job not-yet"') == 2
    assert second.completed_at is not None
    after = await web.get(f"/chain/{stock.failed}", params={"at": second.completed_at.isoformat()})
    assert after.text.count('class="box job failed"') == 2


async def test_the_job_shows_attempts_error_and_why(
    client: Client[Any], web: httpx.AsyncClient, stock: shop.Stock
) -> None:
    (job,) = (await client.list_jobs("charge-card", status="failed")).items
    page = (await web.get(f"/job/{job.id}")).text
    assert page.count('<li class="failed">') == 2
    assert "the bank refused" in page
    assert "It has ended: failed" in page
    assert '<pre dir="ltr" tabindex="0" role="region" aria-label="Traceback">' in page  # it scrolls


async def test_hidden_fields_are_hidden_everywhere(client: Client[Any], stock: shop.Stock) -> None:
    (job,) = (await client.list_jobs("charge-card", status="failed")).items
    async with shop.browser(shop.make(client, hide={"charge-card": ["card"]})) as web:
        for path in (
            f"/job/{job.id}",
            f"/job/{job.id}/input.json",
            f"/job/{job.id}/error.json",
            f"/chain/{stock.failed}",
            f"/change/repair/{stock.failed}",
        ):
            page = await web.get(path)
            assert page.status_code == 200
            assert shop.CARD not in page.text, path
            assert HIDDEN in page.text, path


async def test_ten_megabytes_of_json_are_cut_and_whole_as_a_file(client: Client[Any]) -> None:
    big = {"rows": [{"number": number, "text": "x" * 9000} for number in range(1200)]}
    chain = await client.submit(shop.Mail(to="ada", data=big))
    async with shop.browser(shop.make(client)) as web:
        page = await web.get(f"/job/{chain.id}")
        assert len(page.content) < 200_000
        assert "Only the beginning is shown" in page.text
        whole = await web.get(f"/job/{chain.id}/input.json")
    assert len(whole.content) > 10_000_000
    assert whole.headers["content-type"] == "application/json"
    assert whole.headers["x-content-type-options"] == "nosniff"
    assert whole.headers["content-disposition"].startswith("attachment")


async def test_a_large_input_is_not_edited_in_the_page(client: Client[Any]) -> None:
    chain = await client.submit(shop.Mail(to="ada", data="x" * 10_000_000), after=3600)
    async with client.transaction() as tx:
        await client.cancel(tx, chain)
    async with shop.browser(shop.make(client)) as web:
        page = await web.get(f"/change/repair/{chain.id}")
    assert page.status_code == 409
    assert len(page.content) < 20_000
    assert "too large to be edited here" in page.text


async def test_deep_json_is_cut(client: Client[Any]) -> None:
    deep: Any = "the end"
    for _ in range(200):
        deep = [deep]
    chain = await client.submit(shop.Mail(to="ada", data=deep))
    async with shop.browser(shop.make(client)) as web:
        page = await web.get(f"/job/{chain.id}")
        check(page)
        assert "the end" not in page.text
        assert "the end" in (await web.get(f"/job/{chain.id}/input.json")).text


@pytest.mark.parametrize("id", ['a/b/input.json "x"', "ä\r\nx-evil: 1", "?where=#x%2F", shop.ATTACK[:150]])
async def test_ids_of_any_kind_have_addresses(id: str) -> None:
    async with (
        queuert.connect("memory://", jobs=shop.JOBS, validate_id=lambda _: True) as client,
        shop.browser(shop.make(client)) as web,
    ):
        await client.submit(shop.Mail(to="ada"), id=id, after=3600)
        listed = await web.get("/chains")
        check(listed)
        link = html.unescape(re.findall(r'data-open href="([^"]+)"', listed.text)[0])
        page = await web.get(link)
        assert page.status_code == 200, link
        check(page)
        file = await web.get(link.replace("/chain/", "/job/") + "/input.json")
        assert file.headers["content-disposition"].startswith('attachment; filename="input-')
        assert "x-evil" not in file.headers
        done = await shop.carry_out(web, link.replace("/chain/", "/change/cancel/"), reason="x")
        assert done.status_code == 303
        assert (await web.get(done.headers["location"])).status_code == 200


async def test_titles_say_what_is_wrong(web: httpx.AsyncClient, client: Client[Any], stock: shop.Stock) -> None:
    (job,) = (await client.list_jobs("charge-card", status="failed")).items
    for path, title in (
        (f"/job/{job.id}", "failed: charge-card"),
        (f"/chain/{stock.blocked}", "blocked: send-invoice"),
        ("/queues", "1 paused: queues"),
        ("/chain/ffff", "Not found"),
    ):
        assert f"<title>{title} · shop</title>" in (await web.get(path)).text


async def test_a_pager_keeps_the_rest_of_the_address(
    web: httpx.AsyncClient, client: Client[Any], stock: shop.Stock
) -> None:
    async with client.transaction() as tx:
        for number in range(40):
            await client.pause(tx, f"type-{number}", by="ada")
            await client.trigger(tx, stock.waiting, by="ada")
    page = (await web.get(f"/operations?chain={stock.waiting}")).text
    link = html.unescape(page.split('rel="next" href="')[1].split('"')[0])
    assert f"chain={stock.waiting}" in link
    assert "type-" not in (await web.get(link)).text.split("Audit</h2>")[1]


async def test_an_empty_database_says_what_to_do(client: Client[Any]) -> None:
    async with shop.browser(shop.make(client)) as web:
        for path, text in (
            ("/", "Start a chain"),
            ("/chains", "There are no chains yet"),
            ("/workers", "queuert worker"),
            ("/schedules", "There is no schedule"),
            ("/operations", "Nothing was recorded"),
        ):
            assert text in (await web.get(path)).text


async def test_the_doctor_looks_when_it_is_asked(web: httpx.AsyncClient) -> None:
    assert "What the doctor found" not in (await web.get("/storage")).text
    page = await web.get("/storage?doctor=1")
    check(page)
    assert "What the doctor found" in page.text


def test_the_same_pages_over_wsgi_below_a_prefix(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/jobs.db"

    async def fill() -> shop.Stock:
        async with queuert.connect(url, jobs=shop.JOBS) as client:
            return await shop.fill(client)

    stock = asyncio.run(fill())
    with queuert.connect_sync(url, jobs=shop.JOBS) as sync_client:
        transport = httpx.WSGITransport(app=shop.make(sync_client).wsgi, script_name="/ops/jobs")
        with httpx.Client(transport=transport, base_url="http://jobs.example") as web:
            for path in shop.paths(stock):
                page = web.get(path)
                assert page.status_code == 200, (path, page.text)
                check(page)
                assert 'href="/ops/jobs/chains"' in page.text
                assert "data-events" not in page.text  # a stream would pin a thread
            asked = web.get(f"/change/retry/{stock.failed}")
            done = web.post(f"/change/retry/{stock.failed}", data={**shop.form_of(asked.text), "reason": "INC-42"})
            assert done.headers["location"] == f"/ops/jobs/chain/{stock.failed}?done=retried"
        (record,) = sync_client.list_audit(stock.failed).items
        assert (record.action, record.by, record.reason) == ("retry", "ada", "INC-42")


async def test_a_list_goes_on_with_a_cursor(client: Client[Any]) -> None:
    await client.submit_many([shop.Poll(round=9) for _ in range(60)])
    async with shop.browser(shop.make(client)) as web:
        first = (await web.get("/chains?where=status:pending")).text
        assert first.count('type="checkbox"') == 50
        link = first.split('rel="next" href="')[1].split('"')[0].replace("&amp;", "&")
        second = (await web.get(link)).text
        assert second.count('type="checkbox"') == 10
        assert 'rel="next"' not in second


async def test_limits_by_key_are_listed_with_who_waits(web: httpx.AsyncClient, client: Client[Any]) -> None:
    async with client.transaction() as tx:
        await client.set_limit(tx, shop.Sync, key=shop.ATTACK, concurrency=1, by="ada", reason="INC-42")
    page = await web.get("/queues")
    check(page)
    assert "Limits by key" in page.text
    assert page.text.count("changed by hand") == 1
    assert re.findall(r'data-label="waiting">(\d+)<', page.text) == ["1", "2"]
