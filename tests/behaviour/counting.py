"""Counting what the database is asked: every SQL statement on SQLite, every operation and transaction elsewhere."""

from __future__ import annotations

import sqlite3
from typing import Any

import pytest
from tests.behaviour.conftest import Setting
from tests.behaviour.watching import Points, watched

from queuert import Client
from queuert.adapters.sqlite.connections.database import Database


class Statements:
    """How many there were so far, and which."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.points = Points(records=False)

    @property
    def number(self) -> int:
        return len(self.texts) or self.points.statements

    def trace(self, text: str) -> None:
        # "--": what a statement sets off inside SQLite. The other one is the watch's: it reads a number, no page.
        if not text.startswith(("--", "PRAGMA data_version")):
            self.texts.append(text)


def counted(setting: Setting, jobs: list[Any], monkeypatch: pytest.MonkeyPatch) -> tuple[Client[Any], Statements]:
    """A client, to be entered, and the count of what it asks."""
    statements = Statements()
    if setting.state != "sqlite":
        return watched(setting.connect(jobs), statements.points), statements
    connect = Database.connect

    def traced(self: Database, **options: Any) -> sqlite3.Connection:
        connection = connect(self, **options)
        connection.set_trace_callback(statements.trace)
        return connection

    monkeypatch.setattr(Database, "connect", traced)
    return setting.connect(jobs), statements
