"""The library's migrations as a Django migration operation, and its functions after each
`migrate`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.db import connections
from django.db.migrations.operations.base import Operation

from queuert.adapters.django.provider import DjangoProvider
from queuert.adapters.postgres.operations import PostgresOperations
from queuert.ports.provider import run
from queuert.wiring.schema import statements_to_create, statements_to_drop
from queuert_django.clients import operations_for
from queuert_django.options import databases, options_of


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
        """The tables have no models: programs read jobs through the client."""

    def database_forwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:  # noqa: ARG002
        alias = schema_editor.connection.alias
        if alias not in databases():
            return
        if schema_editor.collect_sql:
            # What an empty database needs. What is missing from this one is only known when it is
            # run.
            for statement in statements_to_create(*_place(alias)):
                schema_editor.execute(statement, params=None)
            return
        run(DjangoProvider(alias), None, operations_for(alias).migrate())

    def database_backwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:  # noqa: ARG002
        alias = schema_editor.connection.alias
        if alias not in databases() or not self.first:
            return  # only the first migration can be undone: older code works with a newer schema
        for statement in statements_to_drop(*_place(alias)):
            schema_editor.execute(statement, params=None)

    def describe(self) -> str:
        return "Create or update queuert's tables"


def install_functions(using: str, **_: Any) -> None:
    """After every `migrate`: the SQL functions of this version, if its tables are there.

    A new version of queuert may change functions without a migration of the tables.
    """
    if connections[using].vendor == "postgresql" and using in databases():
        operations = operations_for(using)
        assert isinstance(operations, PostgresOperations)
        run(DjangoProvider(using), None, operations.install_functions())


def _place(alias: str) -> tuple[str | None, str]:
    """Schema, None for SQLite, and prefix of our tables."""
    options = options_of(alias)
    schema = options.get("schema", "public") if connections[alias].vendor == "postgresql" else None
    return schema, options.get("table_prefix", "queuert_")
