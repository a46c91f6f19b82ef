"""The state suite over SQLAlchemy: sessions and connections, with each driver."""

from __future__ import annotations

from tests.conformance.driver_tests import add_driver_tests, add_soak_tests
from tests.conformance.sqlalchemy_harness import harness

from queuert_conformance.pytest_plugin import state_tests

DRIVERS = [("psycopg", False), ("pysqlite", False), ("psycopg", True), ("asyncpg", True), ("aiosqlite", True)]
REPEATED = [("pysqlite", False), ("psycopg", True)]
"""With the statements of one of the others, and the sessions of another one."""

for driver, is_async in DRIVERS:
    name = f"{'async_' if is_async else ''}%s_{driver}"
    add = add_soak_tests if (driver, is_async) in REPEATED else add_driver_tests
    add(globals(), **{name % "session": harness(driver, sessions=True, is_async=is_async)})
    # A connection is used as the connection of a session is. Only how transactions begin and end is different.
    with_connection = harness(driver, sessions=False, is_async=is_async)
    globals()[f"test_{name % 'connection'}"] = state_tests(with_connection, only=("transactions", "isolation"))
    add_soak_tests(globals(), **{f"all_{name % 'connection'}": with_connection})
