from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from tests.dashboard import shop

import queuert
from queuert import Client


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
