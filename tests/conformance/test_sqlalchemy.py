"""The state suite over SQLAlchemy: sessions and connections, with each driver.

What a provider can get wrong is in a few families of cases. These run always; the whole suite is for soak.
"""

from __future__ import annotations

from typing import Any

import pytest
from tests.conformance.sqlalchemy_harness import harness

from queuert.conformance.pytest_plugin import state_tests

WITH_CONNECTIONS = ("transactions", "isolation")
WITH_SESSIONS = (*WITH_CONNECTIONS, "migrations", "values", "create", "claim", "concurrency")


def _add(tests: dict[str, Any], driver: str, *, is_async: bool) -> None:
    for name, some in (("session", WITH_SESSIONS), ("connection", WITH_CONNECTIONS)):
        made = harness(driver, sessions=name == "session", is_async=is_async)
        full_name = f"{'async_' if is_async else ''}{name}_{driver}"
        tests[f"test_{full_name}"] = state_tests(made, only=some)
        tests[f"test_all_{full_name}"] = pytest.mark.soak(state_tests(made))


for name in ("psycopg", "pysqlite"):
    _add(globals(), name, is_async=False)
for name in ("psycopg", "asyncpg", "aiosqlite"):
    _add(globals(), name, is_async=True)
