from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx
import pytest
from playwright.sync_api import BrowserContext, Page, expect, sync_playwright
from tests.dashboard import shop
from tests.support.browser import FLAGS, MISSING, find_browser

import queuert
from queuert import Client

PATIENCE = 45_000
"""Milliseconds that a page may take on a busy machine."""


@pytest.fixture
async def client() -> AsyncIterator[Client[Any]]:
    async with queuert.connect("memory://", jobs=shop.JOBS) as client:
        yield client


@pytest.fixture
async def stock(client: Client[Any]) -> shop.Stock:
    return await shop.fill(client)


@pytest.fixture
async def web(client: Client[Any], stock: shop.Stock) -> AsyncIterator[httpx.AsyncClient]:
    async with shop.browser(shop.make(client)) as web:
        yield web


@pytest.fixture(scope="module")
def context(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrowserContext]:
    """One browser for all tests of this module, and no longer: it keeps an event loop in this thread."""
    path = find_browser()
    if path is None:
        pytest.skip(MISSING)
    with sync_playwright() as playwright:
        profile = tmp_path_factory.mktemp("browser")
        context = playwright.chromium.launch_persistent_context(
            profile, executable_path=path, args=list(FLAGS), headless=True, viewport={"width": 1280, "height": 800}
        )
        context.set_default_timeout(PATIENCE)
        expect.set_options(timeout=PATIENCE)
        yield context
        context.close()


@pytest.fixture
def page(context: BrowserContext) -> Iterator[Page]:
    """A page that may not complain: no error of a script, and nothing that the policy refuses."""
    page = context.new_page()
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text) if message.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("dialog", lambda dialog: said.append(f"dialog {dialog.message}"))
    yield page
    page.close()
    assert said == []
