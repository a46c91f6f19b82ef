"""The state suite over PostgreSQL with each driver and flavour."""

from __future__ import annotations

from tests.conformance.postgres_harness import asyncpg_harness, psycopg_harness, sync_psycopg_harness

from queuert.conformance.pytest_plugin import state_tests

test_psycopg = state_tests(psycopg_harness)
test_sync_psycopg = state_tests(sync_psycopg_harness)
test_asyncpg = state_tests(asyncpg_harness)
