"""The state suite over PostgreSQL, with each driver."""

from __future__ import annotations

from tests.conformance.driver_tests import add_driver_tests, add_transaction_tests
from tests.conformance.postgres_harness import asyncpg_harness, psycopg_harness, sync_psycopg_harness

from queuert.conformance.pytest_plugin import state_tests

test_psycopg = state_tests(psycopg_harness)
# Its cursors send the same statements as those of `psycopg`, through the same module.
add_transaction_tests(globals(), sync_psycopg=sync_psycopg_harness)
add_driver_tests(globals(), asyncpg=asyncpg_harness)
