"""Client tests run over memory and SQLite, and through the async and the sync client."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.matrix import parametrize, spread
from tests.support.worlds import KINDS, Database, Flavour, World

from queuert.client.client import Client

ALWAYS: list[tuple[Database, Flavour]] = [("memory", "async"), ("sqlite", "sync")]
"""Each database and each client once. The sync client is generated from the async one: see `tools/make_sync.py`."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    parametrize(metafunc, "kind", always=ALWAYS, drivers=KINDS, ids="-".join)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = [item for item in items if item.path.parent == Path(__file__).parent]
    for is_marked, turns in ((False, [ALWAYS]), (True, [KINDS[:2], KINDS[2:]])):
        chosen = [item for item in here if is_marked is (item.get_closest_marker("drivers") is not None)]
        spread(chosen, "kind", turns, "-".join)


@pytest.fixture
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
