"""What all tests share."""

from __future__ import annotations

import pytest
from tests.support.matrix import Soak
from tests.support.places import use_shared_memory

use_shared_memory()


def pytest_configure(config: pytest.Config) -> None:
    Soak.configure(config)
