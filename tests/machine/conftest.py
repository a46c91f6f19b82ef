"""Random programs are run untraced: under coverage they would take four times as long, and cover nothing new.

`pytest.mark.no_cover` would say so too, but has no effect in the processes of xdist.
"""

from __future__ import annotations

import sys
from collections.abc import Generator

import pytest


@pytest.fixture(autouse=True)
def untraced() -> Generator[None, None, None]:
    trace = sys.gettrace()
    sys.settrace(None)
    yield
    sys.settrace(trace)


def pytest_itemcollected(item: pytest.Item) -> None:
    """Hypothesis refuses draws during which the state of `random` changes. psycopg's pool rolls dice in threads of its
    own, for the age that a connection may reach: that is no part of any draw."""
    item.add_marker(pytest.mark.filterwarnings("ignore:Do not use the `random` module inside strategies"))
