"""What all tests share."""

from __future__ import annotations

import gc

import pytest
from tests.support.matrix import Soak, leave_out_of_coverage
from tests.support.places import use_shared_memory

use_shared_memory()


def pytest_configure(config: pytest.Config) -> None:
    Soak.configure(config)


def pytest_collection_finish() -> None:
    gc.freeze()  # what is imported and collected stays: the garbage collector need not look at it again and again


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    leave_out_of_coverage(items)
