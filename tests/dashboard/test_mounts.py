"""Below a prefix in each framework, in a real browser: every page, and a change."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from playwright.sync_api import Page, Response, expect
from tests.dashboard import shop
from tests.dashboard.mounting import MOUNTS, PREFIX

import queuert

pytestmark = [
    pytest.mark.xdist_group("browser"),
    pytest.mark.timeout(300),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]


@pytest.mark.parametrize("mount", MOUNTS)
def test_every_page_and_a_change(mount: str, page: Page, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/jobs.db"

    async def fill() -> shop.Stock:
        async with queuert.connect(url, jobs=shop.JOBS) as client:
            return await shop.fill(client)

    def answered(response: Response) -> None:
        if response.status >= 400 or not response.url.startswith(root):
            refused.append(f"{response.status} {response.url}")

    with ThreadPoolExecutor(1) as pool:  # the browser keeps an event loop in this thread
        stock = pool.submit(lambda: asyncio.run(fill())).result()
    refused: list[str] = []
    with MOUNTS[mount](url) as root:
        page.on("response", answered)
        for path in shop.paths(stock):
            page.goto(f"{root}{path}")
            expect(page.locator("nav.pages a").first).to_have_attribute("href", f"{PREFIX}/")
            assert page.evaluate("getComputedStyle(document.querySelector('.top')).display") == "flex", "no style"
        page.goto(f"{root}/")
        page.get_by_role("link", name="charge-card failed").click()
        page.get_by_role("link", name="reserve-stock → charge-card").click()
        page.get_by_role("link", name="Retry", exact=True).click()
        page.locator("#ask").get_by_label("Why?").fill("INC-42")
        page.locator("#ask").get_by_role("button", name="Retry").click()
        expect(page.get_by_role("status")).to_contain_text("Retried")
        assert page.url == f"{root}/chain/{stock.failed}?done=retried"
        expect(page.locator("h1 .status")).to_have_text("pending")
        expect(page.get_by_text("INC-42")).to_be_visible()
        page.goto("about:blank")
    assert refused == []
