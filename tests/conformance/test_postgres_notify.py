"""The notify suite over PostgreSQL with each driver; the sync adapter takes part in each."""

from __future__ import annotations

from collections.abc import Callable

from tests.conformance.postgres_harness import database

from queuert.adapters.postgres.adapter import asyncpg_notify, psycopg_notify, sync_psycopg_notify
from queuert.conformance import NotifyHarness
from queuert.conformance.pytest_plugin import notify_tests
from queuert.ports.notify import NotifyAdapter, SyncNotifyAdapter


class PostgresNotifyHarness(NotifyHarness):
    hints = False

    def __init__(self, make: Callable[[str], NotifyAdapter]) -> None:
        self.make = make
        super().__init__(make(database()))

    async def second(self) -> NotifyAdapter:
        return self.make(database())

    async def sync_adapter(self) -> SyncNotifyAdapter:
        return sync_psycopg_notify(database())


test_psycopg = notify_tests(lambda: PostgresNotifyHarness(psycopg_notify))
test_asyncpg = notify_tests(lambda: PostgresNotifyHarness(asyncpg_notify))
