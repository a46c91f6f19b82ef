"""Each test gets a database of its own, and is run for each driver."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.adapters.postgres.drivers import DRIVERS, Driver, Watcher
from tests.support.matrix import spread
from tests.support.postgres import database_url, migrated_url, own_server, postgres

__all__ = ["database_url", "migrated_url", "own_server", "postgres"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = [item for item in items if item.path.parent == Path(__file__).parent]
    spread([item for item in here if not _is_about_pairs(item)], "driver", [DRIVERS], str)


def _is_about_pairs(item: pytest.Item) -> bool:
    """Whether the test has a second driver. Then each pair matters."""
    called: Any = getattr(item, "callspec", None)
    return called is not None and sum(isinstance(value, Driver) for value in called.params.values()) > 1


@pytest.fixture(params=DRIVERS, ids=str)
def driver(request: pytest.FixtureRequest) -> Driver:
    found: Driver = request.param
    return found


@pytest.fixture
def watch(database_url: str) -> Iterator[Watcher]:
    """Looks on from outside; there is a table `t (n int primary key)`."""
    watcher = Watcher(database_url)
    watcher("CREATE TABLE t (n int PRIMARY KEY)")
    yield watcher
    watcher.close()


@pytest.fixture
async def provider(driver: Driver, database_url: str, watch: Watcher) -> AsyncIterator[Any]:
    """With a pool of its own, of one connection: what leaks is missed at once."""
    found = driver.provider(database_url, max_size=1, timeout=30)
    yield found
    await found.close()


@pytest.fixture
async def connection(driver: Driver, database_url: str, watch: Watcher) -> AsyncIterator[Any]:
    """A connection of the user's."""
    found = await driver.connect(database_url)
    yield found
    await driver.close(found)
