"""Django's connections for the state suite: to a file, and to PostgreSQL."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from django.db import DatabaseError, connections
from tests.conformance.postgres_harness import database, empty
from tests.support.django import add_database, postgres_settings, remove_database, sqlite_settings

from queuert.adapters.django import DjangoConnection, DjangoProvider
from queuert.adapters.postgres.operations import PostgresOperations
from queuert.adapters.sqlite import SqliteOperations
from queuert.ports.state import StateOperations, SyncStateAdapter
from queuert_conformance import StateHarness
from queuert_conformance.state.driver import AnyStateAdapter

QUICK = "PRAGMA journal_mode=WAL; PRAGMA synchronous=OFF"
"""Nothing is asked of these files beyond the test."""


class DjangoState(SyncStateAdapter[DjangoConnection]):
    """Closes Django's connection of the thread that it was used in, as the end of a request would."""

    def __init__(self, operations: StateOperations, alias: str) -> None:
        super().__init__(operations, DjangoProvider(alias))
        self.alias = alias

    def close(self) -> None:
        connections[self.alias].close()
        super().close()


class DjangoHarness(StateHarness):
    def __init__(self, settings: dict[str, Any], operations: type[Any]) -> None:
        self.alias = add_database(settings)
        self.operations = operations
        super().__init__(self.make())

    def make(self) -> AnyStateAdapter:
        return DjangoState(self.operations(), self.alias)

    async def second(self) -> AnyStateAdapter:
        return self.make()

    async def dispose(self) -> None:
        remove_database(self.alias)

    def poison(self, connection: Any) -> None:
        try:
            with connection.cursor() as cursor:
                cursor.execute("INSERT INTO there_is_no_such_table VALUES (1)")
        except DatabaseError:
            return


class DjangoPostgresHarness(DjangoHarness):
    def __init__(self) -> None:
        super().__init__(postgres_settings(database()), PostgresOperations)

    async def reset(self) -> None:
        empty()


class DjangoSqliteHarness(DjangoHarness):
    single_writer = True

    def __init__(self) -> None:
        self.directory = TemporaryDirectory()
        super().__init__(sqlite_settings(Path(self.directory.name) / "jobs.db", init_command=QUICK), SqliteOperations)

    async def dispose(self) -> None:
        await super().dispose()
        self.directory.cleanup()
