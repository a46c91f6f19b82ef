"""The state suite over Django's connections."""

from __future__ import annotations

from tests.conformance.django_harness import DjangoPostgresHarness, DjangoSqliteHarness
from tests.conformance.driver_tests import add_driver_tests

add_driver_tests(globals(), django_sqlite=DjangoSqliteHarness, django_postgres=DjangoPostgresHarness)
