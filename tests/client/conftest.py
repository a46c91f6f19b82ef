"""Each client test runs over memory and SQLite, and through the async and the sync client."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.worlds import KINDS, Database, Flavour, World

from queuert.client.client import Client


@pytest.fixture(params=KINDS, ids=lambda kind: "-".join(kind))
def kind(request: pytest.FixtureRequest) -> tuple[Database, Flavour]:
    value: tuple[Database, Flavour] = request.param
    return value


@pytest.fixture
def world(kind: tuple[Database, Flavour], tmp_path: Path) -> World:
    return World(*kind, tmp_path)


@pytest.fixture
async def client(world: World) -> AsyncIterator[Client[Any]]:
    """A client that is open. The async one, or the sync one in its clothes."""
    async with world.client() as client:
        yield client
