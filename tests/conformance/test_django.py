"""The state suite over Django's connections."""

from __future__ import annotations

from tests.conformance.django_harness import DjangoPostgresHarness, DjangoSqliteHarness

from queuert.conformance.pytest_plugin import state_tests

test_django_sqlite = state_tests(DjangoSqliteHarness)
test_django_postgres = state_tests(DjangoPostgresHarness)
