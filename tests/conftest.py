"""What all tests share."""

from __future__ import annotations

import gc
from collections.abc import Generator

import pytest
from tests.support.matrix import Soak, leave_out_of_coverage, mark_postgres
from tests.support.places import use_shared_memory
from tests.support.remembering import remember_types
from tests.support.summary import pytest_terminal_summary

__all__ = ["pytest_terminal_summary"]

use_shared_memory()
remember_types()


def pytest_configure(config: pytest.Config) -> None:
    Soak.configure(config)
    gc.disable()


def pytest_collection_finish() -> None:
    gc.freeze()  # what is imported and collected stays: the garbage collector need not look at it again and again
    gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """What a passed test has logged need not be sent from process to process."""
    report = yield
    if report.passed and hasattr(item.config, "workerinput"):
        report.sections.clear()
    return report


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    mark_postgres(items)
    if config.getoption("cov_source", None):
        leave_out_of_coverage(items)
