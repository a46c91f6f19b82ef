"""Each database once, through the public API."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.behaviour.conftest import Setting
from tests.observability.otel import Telemetry
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


@pytest.fixture
def telemetry() -> Iterator[Telemetry]:
    telemetry = Telemetry()
    yield telemetry
    telemetry.close()
