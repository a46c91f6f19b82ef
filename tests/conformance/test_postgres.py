"""The state suite over PostgreSQL, with each driver."""

from __future__ import annotations

from tests.conformance.driver_tests import add_driver_tests, add_transaction_tests
from tests.conformance.postgres_harness import (
    asyncpg_harness,
    kept_psycopg_harness,
    psycopg_harness,
    sync_psycopg_harness,
)

from queuert_conformance.pytest_plugin import state_tests

test_kept_psycopg = state_tests(kept_psycopg_harness)
# Its cursors send the same statements as those of the pool above, through the same module.
add_transaction_tests(globals(), sync_psycopg=sync_psycopg_harness)
add_driver_tests(globals(), psycopg=psycopg_harness, asyncpg=asyncpg_harness)
