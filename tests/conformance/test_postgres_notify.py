"""The notify suite over PostgreSQL, with each driver, and through the storage provider of a sync client."""

from __future__ import annotations

from collections.abc import Callable

from tests.conformance.postgres_harness import database

from queuert.adapters.postgres.adapter import asyncpg_notify, psycopg_notify
from queuert.adapters.postgres.drivers.psycopg import PsycopgSyncProvider
from queuert.ports.notify import NotifyAdapter
from queuert_conformance import NotifyHarness
from queuert_conformance.pytest_plugin import notify_tests


class PostgresNotifyHarness(NotifyHarness):
    hints = False

    def __init__(self, make: Callable[[str], NotifyAdapter]) -> None:
        self.make = make
        super().__init__(make(database()))

    async def second(self) -> NotifyAdapter:
        return self.make(database())


class SyncProviderHarness(PostgresNotifyHarness):
    """The sync adapter publishes through a sync client's own connections."""

    def __init__(self) -> None:
        super().__init__(psycopg_notify)
        self.provider = PsycopgSyncProvider(database(), max_size=2)

    async def sync_adapter(self) -> NotifyAdapter:
        return psycopg_notify(self.provider, listen_url=database())

    async def dispose(self) -> None:
        self.provider.close()


test_psycopg = notify_tests(lambda: PostgresNotifyHarness(psycopg_notify))
test_asyncpg = notify_tests(lambda: PostgresNotifyHarness(asyncpg_notify))
test_sync_provider = notify_tests(SyncProviderHarness, only="sync")
