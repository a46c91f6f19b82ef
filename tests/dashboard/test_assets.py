"""The files that pages load: unchanged, with their licences, and little."""

from __future__ import annotations

import hashlib
from importlib.resources import files
from typing import Any

import httpx
from tests.dashboard import shop

from queuert import Client
from queuert.operate.dashboard.assets import NAMES, assets

VENDORED = {
    # htmx.org 4.0.1
    "htmx.min.js": "a0abb04f2f45a1f89d1d4844023245537e5e6014c87b144553e0607b4cc32130",
    "htmx.LICENSE.txt": "d3d2456f76414f2456104660ebd65aff1c04cd7966b942bdabd63f3cdb316a38",
    # uplot 1.6.32
    "uPlot.iife.min.js": "19c8d4c6ad88929a79f4ae49d6f7161566dfd0ba3d15cc495e974f787eb78f1f",
    "uPlot.min.css": "df630c6a8d6f8eeaff264b50f73ce5b114f646ffd9a0bb74f049b0a00135fa04",
    "uPlot.LICENSE.txt": "8f989229699b4fe2f1a0432d0e9edc338a8a911e250e2d1b01ecd770a5f5b1bd",
}
LIMIT = 150_000
"""Bytes of a first load, without compression."""


def test_vendored_files_are_what_was_published() -> None:
    folder = files("queuert.operate.dashboard") / "static"
    found = {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in VENDORED}
    assert found == VENDORED


def test_no_file_is_left_out_or_unknown() -> None:
    ours = {each.name for each in (files("queuert.operate.dashboard") / "static").iterdir()}
    assert ours == {*NAMES, *(name for name in VENDORED if name.endswith(".txt"))}


async def test_a_first_load_is_small_and_kept_by_the_browser(web: httpx.AsyncClient, client: Client[Any]) -> None:
    page = await web.get("/")
    links = [part.split('"')[0] for part in page.text.split('="/static/')[1:]]
    names = {link.partition("?")[0] for link in links}
    assert len(page.content) + sum(len(assets()[name].data) for name in names) < LIMIT
    for link in links:
        file = await web.get(f"/static/{link}")
        assert file.status_code == 200
        assert "immutable" in file.headers["cache-control"]
        assert file.headers["x-content-type-options"] == "nosniff"
    for path in ("/static/nothing.js", "/static/../core.py", "/static/htmx.LICENSE.txt"):
        assert (await web.get(path)).status_code == 404


async def test_scripts_need_no_eval(client: Client[Any]) -> None:
    for name in ("dashboard.js", "charts.js"):
        text = assets()[name].data.decode()
        assert "innerHTML" not in text
        assert "eval(" not in text
    async with shop.browser(shop.make(client)) as web:
        policy = (await web.get("/")).headers["content-security-policy"]
    assert "unsafe" not in policy
    assert "script-src 'self'" in policy
