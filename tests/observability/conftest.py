"""Each database once, through the public API."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.behaviour.conftest import Setting
from tests.observability.recorder import Recorder

DATABASES = [("memory", "in-process"), ("sqlite", "in-process"), ("postgres", "postgres")]


@pytest.fixture(params=DATABASES, ids=lambda pair: pair[0])
def setting(request: pytest.FixtureRequest, tmp_path: Path) -> Setting:
    state, notify = request.param
    return Setting(state, notify, tmp_path)


@pytest.fixture
def sqlite(tmp_path: Path) -> Setting:
    """Where the database makes no difference."""
    return Setting("sqlite", "in-process", tmp_path)


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()
