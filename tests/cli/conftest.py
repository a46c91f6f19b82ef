"""What the tests of the command share."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.matrix import parametrize
from tests.support.postgres import database_url, migrated_url, own_server, postgres
from tests.support.sqlite import with_tables

__all__ = ["database_url", "migrated_url", "own_server", "postgres"]


@pytest.fixture(autouse=True)
def no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is run in this process looks the same in every terminal, and under pytest-xdist."""
    for name in ("COLUMNS", "LINES", "NO_COLOR", "QUEUERT_URL"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/jobs.db"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    parametrize(metafunc, "url", always=["sqlite"], drivers=["postgres"])


@pytest.fixture
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A database with our tables: SQLite, and PostgreSQL for tests that are marked `drivers`."""
    if request.param == "sqlite":
        return f"sqlite:///{with_tables(tmp_path / 'jobs.db')}"
    found: str = request.getfixturevalue("migrated_url")
    return found


@pytest.fixture(params=["sqlite", "postgres"])
def empty_url(request: pytest.FixtureRequest, sqlite_url: str) -> str:
    """A database of each kind, without tables."""
    found: str = sqlite_url if request.param == "sqlite" else request.getfixturevalue("database_url")
    return found
