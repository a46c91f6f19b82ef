"""The pytest plugin: fixtures for `queuert.testing`.

It is a package of its own, so that pytest does not import queuert for test runs that do not use it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

if TYPE_CHECKING:
    from queuert.testing import Clock

__all__ = ["queuert_clock", "queuert_url"]


@pytest.fixture
def queuert_clock() -> Clock:
    """Virtual time for one test: `queuert.connect(queuert_url, jobs=[…], clock=queuert_clock)`."""
    from queuert.testing import Clock

    return Clock()


@pytest.fixture
def queuert_url() -> str:
    """The URL of a database in memory that only this test uses.

    Override it in your `conftest.py` to run the same tests on another database.
    """
    return f"memory://{uuid4()}"
