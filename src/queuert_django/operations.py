"""The library's migrations as a Django migration operation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.db.migrations.operations.base import Operation

from queuert.adapters.django.provider import DjangoProvider
from queuert.ports.provider import run
from queuert.sql.migrate import undone
from queuert_django.clients import operations_for
from queuert_django.options import databases


class QueuertSchema(Operation):
    """Migrates the tables to this version or a later one, in the databases that QUEUERT names.

    Backwards, it removes the tables with all jobs. `versions`: the schema version by database
    vendor.
    """

    reduces_to_sql = True
    reversible = True
    atomic = False

    def __init__(self, versions: Mapping[str, int], *, first: bool = False) -> None:
        self.versions = dict(versions)
        self.first = first

    def deconstruct(self) -> tuple[str, list[Any], dict[str, Any]]:
        return (type(self).__name__, [self.versions], {"first": True} if self.first else {})

    def state_forwards(self, app_label: str, state: Any) -> None:
        """There are no models: users read jobs through the client."""

    def database_forwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:  # noqa: ARG002
        alias = schema_editor.connection.alias
        if alias not in databases():
            return
        if schema_editor.collect_sql:
            for statement in self._statements(schema_editor.connection):
                schema_editor.execute(statement, params=None)
            return
        run(DjangoProvider(alias), None, operations_for(alias).migrate())

    def database_backwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:  # noqa: ARG002
        connection = schema_editor.connection
        if connection.alias not in databases() or not self.first:
            return  # only the first migration can be undone: older code works with a newer schema
        for statement in undone(self._statements(connection), cascade=connection.vendor == "postgresql"):
            schema_editor.execute(statement, params=None)

    def describe(self) -> str:
        return "Create or update queuert's tables"

    def _statements(self, connection: Any) -> list[str]:
        """The statements for an empty database, as far as they are known in advance."""
        operations: Any = operations_for(connection.alias)
        store = operations.store
        if connection.vendor == "postgresql":
            from queuert.adapters.postgres.operations.store import migrations_for as postgres_migrations

            versions = postgres_migrations(store.installation)
            return [store("migrate.create").text, *(text for each in versions for text in each.statements)]
        from queuert.adapters.sqlite.operations.base import migrations_for as sqlite_migrations

        return [
            store("migrate.create").text,
            *(text for each in sqlite_migrations(store.prefix) for text in each.statements),
        ]
