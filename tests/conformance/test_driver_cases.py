"""The cases for drivers run every statement for PostgreSQL at least once.

A driver that cannot pass the values of one statement, or cannot read its rows, fails a case, even if
it does not run the whole suite. For SQLite there is nothing to check: every driver leads to the same
module of Python.
"""

from __future__ import annotations

from typing import Any

import pytest
from tests.conformance.postgres_harness import sync_psycopg_harness

from queuert.adapters.postgres.command import PgStatement, PgText
from queuert.adapters.postgres.operations import PostgresOperations
from queuert_conformance import run_state_conformance_sync


@pytest.mark.soak  # it runs cases that other tests run, too
def test_every_statement_is_run(monkeypatch: pytest.MonkeyPatch) -> None:
    run: set[str] = set()
    call = PgText.__call__

    def recording(self: PgText, **parameters: Any) -> PgStatement:
        run.add(self.name)
        return call(self, **parameters)

    monkeypatch.setattr(PgText, "__call__", recording)
    run_state_conformance_sync(sync_psycopg_harness, only="@driver").raise_if_failed()
    # The database is migrated already, and has its functions.
    assert {name for name in PostgresOperations().texts if not name.startswith(("migrate.", "functions."))} <= run
