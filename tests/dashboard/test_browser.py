"""The dashboard in a real browser: what no other test can see."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.sync_api import BrowserContext, Page, expect
from tests.dashboard import shop
from tests.dashboard.serving import Served, served

from queuert import Client

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


def test_an_open_form_and_the_scroll_position_are_kept(site: Served, page: Page) -> None:
    page.set_viewport_size({"width": 1280, "height": 300})
    page.goto(f"{site.url}/chain/{site.stock.loop}")
    page.get_by_role("link", name="Delete").click()
    reason = page.locator("#ask").get_by_label("Why?")
    reason.fill("half a rea")
    page.evaluate("document.addEventListener('htmx:before:request', () => { window.refreshed = true; })")
    site.run(lambda client: client.submit(shop.Poll(round=9), after=3600))
    site.heard_by_all()
    expect(reason).to_have_value("half a rea")
    assert page.evaluate("window.refreshed") is None
    page.evaluate("scrollTo(0, 200)")
    page.locator("#ask").get_by_text("Keep it as it is").click()
    page.wait_for_function("window.refreshed === true")  # what was missed is read now
    assert page.evaluate("scrollY") == 200
    page.set_viewport_size({"width": 1280, "height": 800})


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
    change(f"/chain/{site.stock.loop}", "Delete", "Deleted")
    page.goto(f"{site.url}/operations")
    for told in ("Paused", "The limit is changed", "undone", "It is due now", "What was due is deleted", "Deleted"):
        expect(page.locator("#audit-title ~ .scroll")).to_contain_text(f"because of {told}")


def test_a_reader_sees_no_buttons(site: Served, page: Page) -> None:
    page.set_extra_http_headers({"x-user": "bob"})
    page.goto(f"{site.url}/chain/{site.stock.completed}")
    expect(page.locator(".role")).to_contain_text("bob")
    assert page.locator(".button").count() == 0
