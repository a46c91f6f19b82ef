"""The dashboard in a real browser: what no other test can see."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.sync_api import BrowserContext, Page, expect
from tests.dashboard import shop
from tests.dashboard.serving import Served, served

from queuert import Client, StorageUnavailable
from queuert.records.model import TypeStats
from queuert.records.pauses import Pause, PauseTarget
from queuert.records.workers import WorkerInfo

pytestmark = [pytest.mark.xdist_group("browser"), pytest.mark.timeout(300)]

WIDTHS = {1280: ("light", 800), 390: ("dark", 844)}
CONTRAST = (Path(__file__).parent / "contrast.js").read_text("utf-8")


@pytest.fixture(scope="module")
def site() -> Iterator[Served]:
    with served() as site:
        yield site


def test_every_page_at_both_widths_and_schemes(site: Served, page: Page) -> None:
    """Nothing is too wide, nothing is hard to read, and hostile text does nothing."""
    shots = os.environ.get("QUEUERT_SCREENSHOTS")
    for width, (scheme, height) in WIDTHS.items():
        page.set_viewport_size({"width": width, "height": height})
        page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
        for number, path in enumerate(shop.paths(site.stock)):
            page.goto(f"{site.url}{path}")
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), (path, width)
            assert page.evaluate(CONTRAST) == [], (path, width)
            assert page.title()
            if shots:
                page.screenshot(path=f"{shots}/{number:02}-{width}.png", full_page=True)


def test_a_failed_order_is_found_understood_repaired_and_seen_to_end(site: Served, page: Page) -> None:
    page.goto(f"{site.url}/")
    page.get_by_role("link", name="charge-card failed").click()
    page.get_by_role("link", name="reserve-stock → charge-card").click()
    expect(page.get_by_role("heading", name="Why?")).to_be_visible()
    expect(page.locator(".why")).to_contain_text("the bank refused •••")
    page.get_by_role("link", name="Edit and retry").click()
    dialog = page.locator("#ask")
    dialog.get_by_label("Input of charge-card").fill('{"order": 12, "card": "•••"}')
    dialog.get_by_role("button", name="Retry with this input").click()
    assert "Edit and retry" not in page.title()  # the reason is missing, so nothing was sent
    dialog.get_by_label("Why?").fill("the number was wrong")
    dialog.get_by_role("button", name="Retry with this input").click()
    expect(page.get_by_role("status")).to_contain_text("Retried")
    page.evaluate("window.stays = true")
    site.working()
    expect(page.locator("h1 .status")).to_have_text("completed")
    assert page.evaluate("window.stays"), "the page was loaded again"
    expect(page.get_by_text("the number was wrong")).to_be_visible()


def test_a_live_list_keeps_what_was_chosen_and_can_be_stopped(site: Served, page: Page) -> None:
    def submit(client: Client[Any]) -> Any:
        return client.submit(shop.Poll(round=9), after=3600)

    page.goto(f"{site.url}/chains?where=chain-type:poll-carrier")
    page.locator("tbody input").first.check()
    expect(page.locator(".chosen")).to_contain_text("1 chosen")
    page.get_by_text("Filters", exact=True).click()
    before = page.locator("tbody tr").count()
    site.run(submit)
    expect(page.locator("tbody tr")).to_have_count(before + 1)
    assert page.locator("tbody input:checked").count() == 1
    assert page.locator("details.help").get_attribute("open") is not None
    page.get_by_role("button", name="live").click()
    site.run(submit)
    page.get_by_role("button", name="stopped").click()  # it was stopped: only now it looks again
    expect(page.locator("tbody tr")).to_have_count(before + 2)


HIDE = """
(hidden) => {
  Object.defineProperty(document, "hidden", { configurable: true, get: () => hidden });
  document.dispatchEvent(new Event("visibilitychange"));
}
"""


def test_a_tab_in_the_background_does_nothing(site: Served, page: Page) -> None:
    page.goto(f"{site.url}/chains?where=chain-type:poll-carrier")
    rows = page.locator("tbody tr")
    before = rows.count()
    site.run(lambda client: client.submit(shop.Poll(round=9), after=3600))
    expect(rows).to_have_count(before + 1)  # it is live
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.evaluate(HIDE, True)
    site.wait_for_streams(0)
    site.run(lambda client: client.submit(shop.Poll(round=9), after=3600))
    page.evaluate("htmx.trigger(document, 'nothing')")
    assert rows.count() == before + 1
    assert asked == []
    page.evaluate(HIDE, False)
    expect(rows).to_have_count(before + 2)


@pytest.fixture
def troubled(context: BrowserContext) -> Iterator[Page]:
    """A page whose console may complain, and whose clock can be moved."""
    page = context.new_page()
    page.clock.install()
    yield page
    page.close()


def one_more(site: Served) -> None:
    site.run(lambda client: client.submit(shop.Poll(round=9), after=3600))


def test_a_page_recovers_from_a_refresh_that_failed(
    site: Served, troubled: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if the stream of events was refused, and does not come back."""
    troubled.route("**/events", lambda route: route.fulfill(status=502))
    troubled.goto(f"{site.url}/chains?where=chain-type:poll-carrier")
    rows, button, banner = troubled.locator("tbody tr"), troubled.locator("#pause-live"), troubled.locator("#trouble")
    before = rows.count()
    expect(button).to_have_text("live")

    async def away(*_: Any, **__: Any) -> Any:
        raise StorageUnavailable("the server is restarting")

    with monkeypatch.context() as patched:
        patched.setattr(site._client, "list_chains", away)
        troubled.clock.run_for(20_000)
        expect(banner).to_contain_text("Not up to date: the server answers 503")
        troubled.clock.run_for(3_000)
        expect(button).to_have_text(re.compile(r"not up to date, \d+ s old"))
        assert int(re.findall(r"\d+", button.inner_text())[0]) >= 20
        expect(rows).to_have_count(before)
        assert "Chains" in troubled.title()
    one_more(site)
    troubled.clock.run_for(5_000)
    expect(rows).to_have_count(before + 1)
    expect(button).to_have_text("live")
    expect(banner).to_be_hidden()
    one_more(site)
    troubled.clock.run_for(5_000)
    expect(rows).to_have_count(before + 2)  # not only once


def test_a_page_recovers_when_its_server_comes_back(site: Served, troubled: Page) -> None:
    troubled.goto(f"{site.url}/chains?where=chain-type:poll-carrier")
    rows, button = troubled.locator("tbody tr"), troubled.locator("#pause-live")
    before = rows.count()
    with site.gone():
        troubled.clock.run_for(90_000)
        expect(troubled.locator("#trouble")).to_contain_text("the server does not answer")
        expect(button).to_have_text(re.compile(r"not up to date, \d+ (s|min) old"))
        expect(rows).to_have_count(before)
    one_more(site)
    troubled.clock.run_for(5_000)
    expect(rows).to_have_count(before + 1)
    expect(button).to_have_text("live")
    one_more(site)
    expect(rows).to_have_count(before + 2)  # by an event


def test_a_page_that_was_opened_while_the_database_was_away_recovers(
    site: Served, troubled: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(*_: Any, **__: Any) -> Any:
        raise StorageUnavailable("the server is restarting")

    with monkeypatch.context() as patched:
        patched.setattr(site._client, "list_workers", away)
        troubled.goto(f"{site.url}/workers")
        expect(troubled.locator("h1")).to_have_text("The database does not answer")
        expect(troubled.locator("#pause-live")).to_contain_text("not up to date")
    troubled.clock.run_for(5_000)
    expect(troubled.locator("h1")).to_contain_text("Workers")
    expect(troubled.locator("#pause-live")).to_have_text("live")


def test_a_login_page_instead_of_the_page_is_not_taken_for_it(site: Served, troubled: Page) -> None:
    troubled.goto(f"{site.url}/workers")
    troubled.route("**/workers", lambda route: route.fulfill(body="<title>Log in</title><main>Who are you?</main>"))
    troubled.clock.run_for(20_000)
    expect(troubled.locator("#trouble")).to_contain_text("load the page again")
    expect(troubled.locator("h1")).to_contain_text("Workers")


def test_an_open_form_and_the_scroll_position_are_kept(site: Served, page: Page) -> None:
    page.set_viewport_size({"width": 1280, "height": 300})
    page.goto(f"{site.url}/chain/{site.stock.loop}")
    page.get_by_role("link", name="Delete").click()
    reason = page.locator("#ask").get_by_label("Why?")
    reason.fill("half a rea")
    page.evaluate("document.addEventListener('htmx:after:swap', () => { window.refreshed = true; })")
    site.run(lambda client: client.submit(shop.Poll(round=9), after=3600))
    site.heard_by_all()
    expect(reason).to_have_value("half a rea")
    assert page.evaluate("window.refreshed") is None
    page.evaluate("scrollTo(0, 200)")
    page.locator("#ask").get_by_text("Keep it as it is").click()
    page.wait_for_function("window.refreshed === true")  # what was missed is read now
    assert page.evaluate("scrollY") == 200
    page.set_viewport_size({"width": 1280, "height": 800})


LINES = """
(cell) => {
  const walker = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT);
  let most = 0;
  while (walker.nextNode()) {
    const range = document.createRange();
    range.selectNodeContents(walker.currentNode);
    if (walker.currentNode.textContent.trim()) most = Math.max(most, range.getClientRects().length);
  }
  return most;
}
"""


def full(site: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """Large numbers beside long names, a paused type, and a worker that has died."""
    now = datetime.now(UTC)
    stats = [
        TypeStats(f"{name}-with-the-statements-of-the-bank", 5_062, 12_345, 0, 4_321, 2_944, 86_400.0 * 40)
        for name in ("reconcile-the-ledger", "reconcile-the-accounts-of-every-partner")
    ]
    pause = Pause(PauseTarget("type", stats[0].job_type), now, now, "INC-42: the bank is down", "ada")
    dead = WorkerInfo(
        id="worker-1", state="dead", known_by="lock", host="shop-1", pid=4711, version="1", release="7", queues=(),
        slots=4, busy=1, held=1, cluster_cap=None, started_at=now, seen_at=now,
    )  # fmt: skip

    def answers(value: Any) -> Any:
        async def answer(*_: Any, **__: Any) -> Any:
            return value

        return answer

    monkeypatch.setattr(site._client, "stats", answers(stats))
    monkeypatch.setattr(site._client, "list_pauses", answers([pause]))
    monkeypatch.setattr(site._client, "list_workers", answers([dead]))


@pytest.mark.parametrize("width", [1440, 390])
def test_numbers_stay_on_one_line_and_texts_are_no_columns_of_letters(
    site: Served, page: Page, monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    full(site, monkeypatch)
    page.set_viewport_size({"width": width, "height": 900})
    for path in ("/", "/queues"):
        page.goto(f"{site.url}{path}")
        numbers = page.locator("td.right:visible", has_text=re.compile(r"\d"))
        assert numbers.count() >= 4
        for tile in page.locator(".tile").all():
            assert tile.evaluate("(tile) => tile.scrollWidth <= tile.clientWidth"), tile.inner_text()
        for cell in numbers.all():
            assert cell.evaluate(LINES) == 1, cell.inner_text()
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), path
    told = page.locator(".queue td .small", has_text="INC-42").first.bounding_box()
    assert told is not None
    assert told["width"] > 150
    page.set_viewport_size({"width": 1280, "height": 800})


def test_text_stays_in_its_box(site: Served, page: Page) -> None:
    chain = site.run(lambda client: client.submit(shop.Wide(round=1)))
    site.working()
    late = site.run(lambda client: client.submit(shop.Wide(round=1), after=86_400 * 11 + 7_200))
    page.set_viewport_size({"width": 1440, "height": 900})
    for chain_id in (chain.id, late.id, site.stock.blocked, site.stock.failed):
        page.goto(f"{site.url}/chain/{chain_id}")
        boxes = page.locator(".picture.right .box").all()
        assert boxes
        for box in boxes:
            inside = box.evaluate(
                "(box) => { const outer = box.querySelector('rect').getBoundingClientRect();"
                " return [...box.querySelectorAll('text')].map((text) => text.getBoundingClientRect())"
                ".every((text) => text.left >= outer.left && text.right <= outer.right); }"
            )
            assert inside, box.text_content()
            title, times = box.locator(".title").bounding_box(), box.locator(".times")
            if times.count():
                place = times.bounding_box()
                assert title is not None
                assert place is not None
                assert title["x"] + title["width"] <= place["x"]
    page.set_viewport_size({"width": 1280, "height": 800})


def test_a_dead_worker_is_easy_to_read(site: Served, page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    full(site, monkeypatch)
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        page.goto(f"{site.url}/workers")
        expect(page.locator(".card.dead")).to_be_visible()
        assert page.evaluate(OPACITY) == 1
        assert page.evaluate(CONTRAST) == []


OPACITY = "Number(getComputedStyle(document.querySelector('.card.dead')).opacity)"


def test_what_has_the_focus_can_be_seen(site: Served, page: Page) -> None:
    page.goto(f"{site.url}/chains")
    seen = 0
    for _ in range(25):
        page.keyboard.press("Tab")
        style = page.evaluate(
            "(() => { const style = getComputedStyle(document.activeElement);"
            " return [document.activeElement.tagName, style.outlineStyle, parseFloat(style.outlineWidth)]; })()"
        )
        if style[0] != "BODY":
            assert style[1] != "none" and style[2] >= 1, style  # noqa: PT018
            seen += 1
    assert seen > 20


def test_keys(site: Served, page: Page) -> None:
    page.goto(f"{site.url}/chains")
    page.keyboard.press("?")
    expect(page.get_by_role("heading", name="Keys")).to_be_visible()
    page.keyboard.press("Escape")
    page.keyboard.press("j")
    page.keyboard.press("j")
    page.keyboard.press("k")
    page.keyboard.press("x")
    first = page.locator("tbody tr").first
    expect(first).to_have_class("current")
    expect(first.locator("input")).to_be_checked()
    page.keyboard.press("/")
    expect(page.locator("#search")).to_be_focused()
    page.keyboard.type("status:failed,completed")
    page.keyboard.press("Enter")
    expect(page.locator("h1")).to_contain_text("status:failed,completed")


def test_over_plain_http_an_id_is_copied_and_a_form_is_accepted(site: Served, page: Page) -> None:
    page.goto(f"{site.insecure_url}/chain/{site.stock.waiting}")
    assert not page.evaluate("window.isSecureContext")
    button = page.locator("[data-copy]").first
    button.click()
    expect(button).to_have_attribute("title", "Copied")
    page.get_by_role("link", name="Make due now").click()
    page.locator("#ask").get_by_label("Why?").fill("now")
    page.locator("#ask").get_by_role("button", name="Make due now").click()
    expect(page.get_by_role("status")).to_contain_text("It is due now")


def test_a_chain_is_scrubbed_through_time(site: Served, page: Page) -> None:
    page.goto(f"{site.url}/chain/{site.stock.loop}")
    page.locator("[data-scrub]").evaluate(
        "(range) => { range.value = 0; range.dispatchEvent(new Event('change', {bubbles: true})); }"
    )
    expect(page.get_by_text("This is how it was at")).to_be_visible()
    assert "at=" in page.url


def test_no_page_is_blank_without_javascript(site: Served, context: BrowserContext) -> None:
    browser = context.browser
    assert browser is not None
    with browser.new_context(java_script_enabled=False, viewport={"width": 390, "height": 844}) as plain:
        page = plain.new_page()
        for path in shop.paths(site.stock):
            page.goto(f"{site.url}{path}")
            text = page.locator("main").inner_text()
            assert len(text) > 20, path
            assert page.locator("[data-copy]:visible, [data-scrub]:visible, #pause-live:visible").count() == 0, path


def test_without_javascript_everything_can_be_read_and_changed(site: Served, context: BrowserContext) -> None:
    browser = context.browser
    assert browser is not None
    with browser.new_context(java_script_enabled=False) as plain:
        page = plain.new_page()
        page.goto(f"{site.url}/chains?where=chain-type:send-mail")
        page.locator("tbody a").first.click()
        page.get_by_role("link", name="Cancel").click()
        page.get_by_label("Why?").fill("not needed")
        page.get_by_role("button", name="Cancel").click()
        expect(page.locator("h1 .status")).to_have_text("cancelled")


def test_each_kind_of_change_asks_and_is_recorded(site: Served, page: Page) -> None:
    def change(path: str, link: str, told: str, **fields: str) -> None:
        page.goto(f"{site.url}{path}")
        page.get_by_role("link", name=link, exact=True).first.click()
        dialog = page.locator("#ask")
        for name, value in {"reason": f"because of {told}", **fields}.items():
            dialog.locator(f"[name={name}]").fill(value)
        dialog.locator("form button").click()
        expect(page.get_by_role("status")).to_contain_text(told)

    # A worker of a test before may have run all jobs of the key.
    site.run(lambda client: client.submit_many([shop.Sync(tenant="acme")]))
    schedule = str(httpx.URL("/schedule", params={"name": f"daily {shop.ATTACK}"}))
    change("/queues", "Pause everything", "Paused", until="2h")
    change("/queues", "Resume everything", "Resumed")
    change("/queues", "Change", "The limit is changed", key="acme", concurrency="5", rate="100/10")
    expect(page.locator("#limits-title ~ .scroll")).to_contain_text("changed by hand")
    change("/queues", "Undo", "undone")
    page.goto(f"{site.url}/queues")
    limits = page.locator("tr", has_text="acme")
    for link, paused in (("Pause", 1), ("Resume", 0)):
        limits.get_by_role("link", name=link).click()
        page.locator("#ask [name=reason]").fill("INC-42")
        page.locator("#ask form button").click()
        expect(page.get_by_role("status")).to_contain_text(f"{link}d")
        expect(limits.locator(".status", has_text="paused")).to_have_count(paused)
    change(schedule, "Pause", "Paused", until="1d")
    change(schedule, "Resume", "Resumed")
    change(schedule, "Trigger now", "It is due now")
    change("/chains?where=status:pending", "Set priority …", "The operation has begun", priority="5", per_second="10")
    change("/storage", "Delete what is due", "What was due is deleted")
    own = site.run(lambda client: client.submit(shop.Poll(round=9), after=3600))  # other tests need the stock
    change(f"/chain/{own.id}", "Delete", "Deleted")
    page.goto(f"{site.url}/operations")
    for told in ("Paused", "The limit is changed", "undone", "It is due now", "What was due is deleted", "Deleted"):
        expect(page.locator("#audit-title ~ .scroll")).to_contain_text(f"because of {told}")


def test_a_reader_sees_no_buttons(site: Served, page: Page) -> None:
    page.set_extra_http_headers({"x-user": "bob"})
    page.goto(f"{site.url}/chain/{site.stock.completed}")
    expect(page.locator(".role")).to_contain_text("bob")
    assert page.locator(".button").count() == 0
